//! Generic code of all micro-kernels: blocks of C are accumulated in registers, finished there and stored.
//!
//! A processor can look ahead about a hundred multiply-add instructions, so the next block must begin within few
//! instructions of the end of the last one. One call therefore computes all blocks of a panel.

use super::simd::Simd;

/// Maximum rows of a block that prefetches its own panel: it reads faster than the hardware expects.
pub(super) const FEW_ROWS: usize = 2;

/// Prefetch distance in elements of few rows' own panel. The lines go to the L2 cache only: the L1 cache has too few
/// buffers for lines that are on their way.
const AHEAD: usize = 1024;

/// Number of steps from which a block takes long enough for C's lines to arrive from memory meanwhile.
const LINGERING: usize = 32;

/// Elements of a cache line.
pub(super) const LINE: usize = 16;

/// Operands and result of one call of a micro-kernel: blocks of rows below each other. Distances are in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) count: usize,
    /// Number of rows of each block, from 1 to the kernel's.
    pub(super) rows: usize,
    /// Number of columns, from 1 to the kernel's.
    pub(super) columns: usize,
    pub(super) depth: usize,
    /// Element (i, p) of a block of A is at `i · a_row + p · a_step`, readable for each row and step.
    pub(super) a: *const f32,
    pub(super) a_row: usize,
    /// Distance of A's elements from step to step.
    pub(super) a_step: usize,
    /// Distance of A's blocks.
    pub(super) a_block: usize,
    /// Element (p, j) of B is at `p · b_step + j`, readable for each step and column.
    pub(super) b: *const f32,
    pub(super) b_step: usize,
    /// Whether B is also readable up to the end of the last vector of columns.
    pub(super) whole: bool,
    /// Element (i, j) of C is at `i · c_row + j`, exclusively writable; a block's rows follow those of the block before
    /// it.
    pub(super) c: *mut f32,
    pub(super) c_row: usize,
    /// Whether the product is added to C, which must then be readable, instead of stored.
    pub(super) accumulate: bool,
    /// Initial values of the sums, if not zero.
    pub(super) initial: Option<Term>,
    /// Function applied to the sums before they are stored.
    pub(super) change: Option<Change>,
    pub(super) ahead: Ahead,
}

/// Memory that will soon be read. Each step prefetches an element of it, except for blocks of few columns. Any address
/// is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) data: *const f32,
    pub(super) step: usize,
    /// Distance of the memory that the first blocks prefetch. All blocks after `last` prefetch the same memory.
    pub(super) block: usize,
    pub(super) last: usize,
    /// Columns from those of C that are computed to those that are prefetched.
    pub(super) columns: usize,
}

/// Function `min(max(x · scale + summand, least), greatest)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) scale: f32,
    /// Term that is added; columns do not share it.
    pub(super) summand: Option<Term>,
    pub(super) least: f32,
    pub(super) greatest: f32,
}

/// Matrix that has a block as large as C's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    /// Element (i, j) is at `i · row + j`, or at `i · row` if all columns share it; readable for all rows and columns.
    pub(super) data: *const f32,
    pub(super) row: usize,
    pub(super) shared: bool,
}

/// Sums of a block's elements, one vector for each row and [`Simd::LANES`] columns.
pub(super) type Sums<S, const ROWS: usize, const VECTORS: usize> = [[<S as Simd>::Vector; VECTORS]; ROWS];

/// Addresses of the operands of the next step.
struct Cursor<S: Simd> {
    /// Every third row of A: address modes reach the rows between.
    a: [*const f32; 3],
    b: *const f32,
    prefetch: *const f32,
    /// Columns of the last vector.
    last: S::Mask,
}

/// Computes blocks of `ROWS` rows, at most 9, and `VECTORS` vectors of columns. Every `CHAINS`-th step is summed
/// separately.
///
/// # Safety
/// The pointers are valid as [`Blocks`] says, the blocks have `ROWS` rows and end in the last of `VECTORS` vectors, and
/// are `whole` if `WHOLE`. The processor has the instruction set.
#[inline(always)]
pub(super) unsafe fn compute<
    S: Simd,
    const ROWS: usize,
    const VECTORS: usize,
    const CHAINS: usize,
    const WHOLE: bool,
>(
    blocks: &Blocks,
) {
    // SAFETY: the last vector has a column.
    let last = unsafe { S::mask(blocks.columns - (VECTORS - 1) * S::LANES) };
    for index in 0..blocks.count {
        // SAFETY: the caller's promise; the mask selects the columns of the last vector.
        unsafe { compute_one::<S, ROWS, VECTORS, CHAINS, WHOLE>(blocks, index, last) };
    }
}

/// # Safety
/// The promises of [`compute`]; `index` is the number of a block, and `last` the mask of the last vector's columns.
#[inline(always)]
unsafe fn compute_one<S: Simd, const ROWS: usize, const VECTORS: usize, const CHAINS: usize, const WHOLE: bool>(
    block: &Blocks,
    index: usize,
    last: S::Mask,
) {
    let top = index * ROWS;
    // SAFETY: `step` is called once for each step of the depth. Everything else touches elements of the block only, as
    // the mask selects the columns that the last vector has.
    unsafe {
        let a = block.a.wrapping_add(index * block.a_block);
        let ahead = block.ahead.data.wrapping_add(index.min(block.ahead.last) * block.ahead.block);
        let mut cursor = Cursor::<S> { a: [a; 3], b: block.b, prefetch: ahead, last };
        for (i, a) in cursor.a.iter_mut().enumerate() {
            *a = a.wrapping_add(3 * i * block.a_row);
        }
        fetch::<S, ROWS, VECTORS>(block, top);
        let mut sums = [[[S::splat(0.0); VECTORS]; ROWS]; CHAINS];
        if let Some(initial) = &block.initial {
            begin::<S, ROWS, VECTORS>(initial, top, last, &mut sums[0]);
        }
        for _ in 0..block.depth / CHAINS {
            for sums in &mut sums {
                step::<S, ROWS, VECTORS, WHOLE>(block, &mut cursor, sums);
            }
        }
        for _ in 0..block.depth % CHAINS {
            step::<S, ROWS, VECTORS, WHOLE>(block, &mut cursor, &mut sums[0]);
        }
        let mut total = sums[0];
        for chain in &sums[1..] {
            for (sum, other) in total.as_flattened_mut().iter_mut().zip(chain.as_flattened()) {
                *sum = S::add(*sum, *other);
            }
        }
        complete::<S, ROWS, VECTORS>(block, top, last, total);
    }
}

/// Prefetches the lines of C, and of the terms added to it, of the block whose first row is `top`, or of later blocks.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(super) unsafe fn fetch<S: Simd, const ROWS: usize, const VECTORS: usize>(block: &Blocks, top: usize) {
    let c = block.c.wrapping_add(top * block.c_row);
    // SAFETY: any address may be prefetched.
    unsafe {
        // Prefetches the lines of a later panel: in a network they have left the caches, and this many rows at once are
        // more streams than a hardware prefetcher follows.
        let soon = |line: usize| block.ahead.columns + line * LINE;
        let lines = (VECTORS * S::LANES).div_ceil(LINE);
        if block.depth >= LINGERING {
            for (i, v) in (0..ROWS).flat_map(|i| (0..VECTORS).map(move |v| (i, v))) {
                S::prefetch(c.wrapping_add(i * block.c_row + v * S::LANES));
            }
        } else {
            for (i, line) in (0..ROWS).flat_map(|i| (0..lines).map(move |line| (i, line))) {
                S::prefetch_far(c.wrapping_add(i * block.c_row + soon(line)));
            }
        }
        if let Some(Change { summand: Some(term), .. }) = &block.change
            && term.row > 0
        {
            for (i, line) in (0..ROWS).flat_map(|i| (0..lines).map(move |line| (i, line))) {
                S::prefetch_far(term.data.wrapping_add((top + i) * term.row + soon(line)));
            }
        }
    }
}

/// Stores the sums of the block whose first row is `top`, after adding C and applying the change as the block demands.
///
/// # Safety
/// The promises of [`compute`].
#[inline(always)]
pub(super) unsafe fn complete<S: Simd, const ROWS: usize, const VECTORS: usize>(
    block: &Blocks,
    top: usize,
    last: S::Mask,
    mut total: Sums<S, ROWS, VECTORS>,
) {
    let c = block.c.wrapping_add(top * block.c_row);
    // SAFETY: only elements of the block are touched, as the mask selects the columns that the last vector has.
    unsafe {
        if block.accumulate {
            let sums = Term { data: block.c, row: block.c_row, shared: false };
            add::<S, ROWS, VECTORS>(&sums, top, last, &mut total);
        }
        if let Some(change) = &block.change {
            apply::<S, ROWS, VECTORS>(change, top, last, &mut total);
        }
        for (i, row) in total.iter().enumerate() {
            let c = c.wrapping_add(i * block.c_row);
            for (v, sum) in row.iter().enumerate() {
                let c = c.wrapping_add(v * S::LANES);
                if v + 1 < VECTORS { S::store(c, *sum) } else { S::store_masked(c, last, *sum) }
            }
        }
    }
}

/// Adds one outer product to the sums.
///
/// # Safety
/// The promises of [`compute`]; the cursor has made fewer steps than the block's depth.
#[inline(always)]
unsafe fn step<S: Simd, const ROWS: usize, const VECTORS: usize, const WHOLE: bool>(
    block: &Blocks,
    cursor: &mut Cursor<S>,
    sums: &mut Sums<S, ROWS, VECTORS>,
) {
    // SAFETY: this step's row of B has the block's columns, and the rest of the last vector if it is whole. Each row of
    // A has an element at this step.
    unsafe {
        S::prefetch_far(cursor.prefetch);
        let mut row = [S::splat(0.0); VECTORS];
        for (v, row) in row.iter_mut().enumerate() {
            let b = cursor.b.wrapping_add(v * S::LANES);
            if ROWS <= FEW_ROWS {
                S::prefetch_far(b.wrapping_add(AHEAD));
            }
            *row = if WHOLE || v + 1 < VECTORS { S::load(b) } else { S::load_masked(b, cursor.last) };
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            let factor = S::splat(*cursor.a[i / 3].wrapping_add(i % 3 * block.a_row));
            for (sum, row) in sums.iter_mut().zip(row) {
                *sum = S::multiply_add(factor, row, *sum);
            }
        }
    }
    for a in &mut cursor.a {
        *a = a.wrapping_add(block.a_step);
    }
    cursor.b = cursor.b.wrapping_add(block.b_step);
    cursor.prefetch = cursor.prefetch.wrapping_add(block.ahead.step);
}

/// Sets the sums of the block whose first row is `top` to their initial values.
///
/// # Safety
/// The promises of [`compute`].
#[inline(always)]
pub(super) unsafe fn begin<S: Simd, const ROWS: usize, const VECTORS: usize>(
    initial: &Term,
    top: usize,
    last: S::Mask,
    sums: &mut Sums<S, ROWS, VECTORS>,
) {
    for (i, row) in sums.iter_mut().enumerate() {
        let data = initial.data.wrapping_add((top + i) * initial.row);
        for (v, sum) in row.iter_mut().enumerate() {
            // SAFETY: the term is readable for each row and column of the block.
            *sum = unsafe { if initial.shared { S::splat(*data) } else { vector::<S, VECTORS>(data, v, last) } };
        }
    }
}

/// Applies the block's change to the sums, in the order of the definition, with a rounding for each operation.
///
/// # Safety
/// The promises of [`compute`].
#[inline(always)]
unsafe fn apply<S: Simd, const ROWS: usize, const VECTORS: usize>(
    change: &Change,
    top: usize,
    last: S::Mask,
    sums: &mut Sums<S, ROWS, VECTORS>,
) {
    // SAFETY: the summand is readable for each row and column of the block.
    unsafe {
        if change.scale != 1.0 {
            let scale = S::splat(change.scale);
            for sum in sums.as_flattened_mut() {
                *sum = S::multiply(*sum, scale);
            }
        }
        if let Some(summand) = &change.summand {
            add::<S, ROWS, VECTORS>(summand, top, last, sums);
        }
        if change.least > f32::NEG_INFINITY || change.greatest < f32::INFINITY {
            let (least, greatest) = (S::splat(change.least), S::splat(change.greatest));
            for sum in sums.as_flattened_mut() {
                *sum = S::clamp(*sum, least, greatest);
            }
        }
    }
}

/// Adds a term that columns do not share.
///
/// # Safety
/// The promises of [`compute`].
#[inline(always)]
unsafe fn add<S: Simd, const ROWS: usize, const VECTORS: usize>(
    term: &Term,
    top: usize,
    last: S::Mask,
    sums: &mut Sums<S, ROWS, VECTORS>,
) {
    for (i, row) in sums.iter_mut().enumerate() {
        let data = term.data.wrapping_add((top + i) * term.row);
        for (v, sum) in row.iter_mut().enumerate() {
            // SAFETY: the term is readable for each row and column of the block.
            *sum = unsafe { S::add(*sum, vector::<S, VECTORS>(data, v, last)) };
        }
    }
}

/// Loads vector `v` of a row of the block.
///
/// # Safety
/// The promises of [`compute`]; the row is readable in the block's columns.
#[inline(always)]
unsafe fn vector<S: Simd, const VECTORS: usize>(row: *const f32, v: usize, last: S::Mask) -> S::Vector {
    let from = row.wrapping_add(v * S::LANES);
    // SAFETY: all vectors before the last cover columns of the block; the mask selects those of the last vector.
    unsafe { if v + 1 < VECTORS { S::load(from) } else { S::load_masked(from, last) } }
}
