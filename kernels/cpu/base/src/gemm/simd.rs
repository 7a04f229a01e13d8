//! Instructions that micro-kernels need of an instruction set.

/// Vectors of one instruction set. Everything is `#[inline(always)]`, so that it becomes single instructions inside
/// functions that enable the set.
///
/// # Safety
/// For all functions, the processor must have the instruction set. Functions that take a pointer read or write elements
/// there, which must be valid for that; a masked function touches only those that the mask selects.
pub(super) trait Simd {
    type Vector: Copy;
    /// Mask of the first lanes of a vector, at least one.
    type Mask: Copy;

    /// Number of elements of a vector.
    const LANES: usize;

    /// Returns the mask of the first `lanes` lanes.
    unsafe fn mask(lanes: usize) -> Self::Mask;

    unsafe fn splat(value: f32) -> Self::Vector;

    unsafe fn load(from: *const f32) -> Self::Vector;

    /// Loads the lanes of the mask; lanes beyond the mask are 0.
    unsafe fn load_masked(from: *const f32, mask: Self::Mask) -> Self::Vector;

    unsafe fn store(to: *mut f32, vector: Self::Vector);

    unsafe fn store_masked(to: *mut f32, mask: Self::Mask, vector: Self::Vector);

    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    unsafe fn multiply(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns `a · b + c`, rounded once if the set can.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// Returns `value`, or the bound that it exceeds; NaN stays NaN.
    unsafe fn clamp(value: Self::Vector, least: Self::Vector, greatest: Self::Vector) -> Self::Vector;

    /// Prefetches the cache line of any address into the L1 cache.
    unsafe fn prefetch(address: *const f32);

    /// Prefetches the cache line of any address into the L2 cache.
    unsafe fn prefetch_far(address: *const f32);
}
