//! What micro-kernels ask of an instruction set.

/// The vectors of one instruction set. Everything is `#[inline(always)]`, so that it becomes single instructions inside
/// of functions that enable the set.
///
/// # Safety
/// All functions: the processor has the instruction set. Those that take a pointer: the elements that they read or write
/// are valid for that, a masked one's those that the mask selects.
pub(super) trait Simd {
    type Vector: Copy;
    /// The first lanes of a vector, at least one.
    type Mask: Copy;

    /// Elements of a vector.
    const LANES: usize;

    /// The mask of the first `lanes` lanes.
    unsafe fn mask(lanes: usize) -> Self::Mask;

    unsafe fn splat(value: f32) -> Self::Vector;

    unsafe fn load(from: *const f32) -> Self::Vector;

    /// Lanes beyond the mask are 0.
    unsafe fn load_masked(from: *const f32, mask: Self::Mask) -> Self::Vector;

    unsafe fn store(to: *mut f32, vector: Self::Vector);

    unsafe fn store_masked(to: *mut f32, mask: Self::Mask, vector: Self::Vector);

    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    unsafe fn multiply(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a · b + c`, rounded once where the set can.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// `value`, or the bound that it lies beyond; NaN stays.
    unsafe fn clamp(value: Self::Vector, least: Self::Vector, greatest: Self::Vector) -> Self::Vector;

    /// Asks for the cache line of any address to be brought into the first-level cache.
    unsafe fn prefetch(address: *const f32);

    /// The same, into the second-level cache.
    unsafe fn prefetch_far(address: *const f32);
}
