//! The text of all micro-kernels: blocks of C are accumulated in registers, finished there and stored.
//!
//! What a processor can look ahead is about a hundred instructions of multiply-adds, so the next block must begin within
//! few instructions of the end of the last one: a call computes all blocks of a panel.

use super::simd::Simd;

/// How many elements ahead few rows fetch their own panel, which they read faster than it is expected.
const AHEAD: usize = 1024;

/// Steps from which a block takes long enough for C's lines to come from memory meanwhile.
const LINGERING: usize = 32;

/// Elements of a line of a cache.
pub(super) const LINE: usize = 16;

/// Operands and result of one call of a micro-kernel: blocks of rows below each other. Distances are in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) count: usize,
    /// Number of rows of each block, 1 to the kernel's.
    pub(super) rows: usize,
    /// Number of columns, 1 to the kernel's.
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
    /// Whether B is readable up to the end of the last vector of columns too.
    pub(super) whole: bool,
    /// Element (i, j) of C is at `i · c_row + j`, exclusively writable; a block's rows follow those of the block before.
    pub(super) c: *mut f32,
    pub(super) c_row: usize,
    /// Whether the product is added to C, which is readable then, rather than stored.
    pub(super) accumulate: bool,
    /// What the sums begin with, if not with zero.
    pub(super) initial: Option<Term>,
    /// What becomes of the sums before they are stored.
    pub(super) change: Option<Change>,
    pub(super) ahead: Ahead,
}

/// Memory that will soon be read: an element of it is fetched with each step, but by blocks of few columns. Any address will do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) data: *const f32,
    pub(super) step: usize,
    /// Distance of what the first blocks fetch. All after the block `last` fetch the same.
    pub(super) block: usize,
    pub(super) last: usize,
    /// Columns from those of C that are computed to those that are fetched.
    pub(super) columns: usize,
}

/// `min(max(x · scale + summand, least), greatest)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) scale: f32,
    /// Columns do not share it.
    pub(super) summand: Option<Term>,
    pub(super) least: f32,
    pub(super) greatest: f32,
}

/// A matrix of which a block is as large as C's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    /// Element (i, j) is at `i · row + j`, or at `i · row` if all columns share it; readable for each.
    pub(super) data: *const f32,
    pub(super) row: usize,
    pub(super) shared: bool,
}

/// The sums of a block's elements, one vector for each row and [`Simd::LANES`] columns.
pub(super) type Sums<S, const ROWS: usize, const VECTORS: usize> = [[<S as Simd>::Vector; VECTORS]; ROWS];

/// Where the operands of the next step are.
struct Cursor<S: Simd> {
    /// Each third row of A: the distances to the rows between are address modes.
    a: [*const f32; 3],
    b: *const f32,
    prefetch: *const f32,
    /// The columns of the last vector.
    last: S::Mask,
}

/// Computes blocks of `ROWS` rows, at most 9, and `VECTORS` vectors of columns, adding up every `CHAINS`-th step
/// separately.
///
/// # Safety
/// The pointers are valid as [`Blocks`] says, the blocks have `ROWS` rows and end in the last of `VECTORS` vectors, and are
/// `whole` if `WHOLE`; the processor has the instruction set.
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
        // SAFETY: passed on to the caller; the mask selects the columns of the last vector.
        unsafe { compute_one::<S, ROWS, VECTORS, CHAINS, WHOLE>(blocks, index, last) };
    }
}

/// # Safety
/// As [`compute`]; `index` is the number of a block, and `last` the mask of the last vector's columns.
#[inline(always)]
unsafe fn compute_one<S: Simd, const ROWS: usize, const VECTORS: usize, const CHAINS: usize, const WHOLE: bool>(
    block: &Blocks,
    index: usize,
    last: S::Mask,
) {
    let top = index * ROWS;
    // SAFETY: `step` is called once for each step of the depth; all else touches elements of the block only, as the mask
    // selects the columns that the last vector has.
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

/// Asks for the lines of C, and of what is added to it, of the block whose first row is `top`, or of those after it.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(super) unsafe fn fetch<S: Simd, const ROWS: usize, const VECTORS: usize>(block: &Blocks, top: usize) {
    let c = block.c.wrapping_add(top * block.c_row);
    // SAFETY: any address may be asked for.
    unsafe {
        // The lines of a panel after this one: in a network they have left the caches, and so many rows at once are more streams than a processor
        // foresees.
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

/// Stores the sums of the block whose first row is `top`, added to C and changed as the block asks for.
///
/// # Safety
/// As [`compute`].
#[inline(always)]
pub(super) unsafe fn complete<S: Simd, const ROWS: usize, const VECTORS: usize>(
    block: &Blocks,
    top: usize,
    last: S::Mask,
    mut total: Sums<S, ROWS, VECTORS>,
) {
    let c = block.c.wrapping_add(top * block.c_row);
    // SAFETY: all that is touched are elements of the block, as the mask selects the columns that the last vector has.
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
/// As [`compute`]; the cursor has made fewer steps than the block's depth.
#[inline(always)]
unsafe fn step<S: Simd, const ROWS: usize, const VECTORS: usize, const WHOLE: bool>(
    block: &Blocks,
    cursor: &mut Cursor<S>,
    sums: &mut Sums<S, ROWS, VECTORS>,
) {
    // SAFETY: this step's row of B has the block's columns, and the rest of the last vector if it is whole; each row of A
    // has an element at this step.
    unsafe {
        S::prefetch_far(cursor.prefetch);
        let mut row = [S::splat(0.0); VECTORS];
        for (v, row) in row.iter_mut().enumerate() {
            let b = cursor.b.wrapping_add(v * S::LANES);
            if ROWS <= 2 {
                S::prefetch(b.wrapping_add(AHEAD));
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

/// Sets the sums of the block whose first row is `top` to what they begin with.
///
/// # Safety
/// As [`compute`].
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

/// Changes the sums as the block asks for, in the order of the definition, each operation rounded by itself.
///
/// # Safety
/// As [`compute`].
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
/// As [`compute`].
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

/// Vector `v` of a row of the block.
///
/// # Safety
/// As [`compute`]; the row is readable in the block's columns.
#[inline(always)]
unsafe fn vector<S: Simd, const VECTORS: usize>(row: *const f32, v: usize, last: S::Mask) -> S::Vector {
    let from = row.wrapping_add(v * S::LANES);
    // SAFETY: all vectors but the last are of columns of the block, and of the last those that the mask selects.
    unsafe { if v + 1 < VECTORS { S::load(from) } else { S::load_masked(from, last) } }
}
