//! Micro-kernels for matrix products of 8-bit integers, and the choice among the instructions of the processor.
//!
//! One call multiplies a few rows of A by a panel of B of up to [`PANEL`] columns. In a panel, four steps of a column
//! lie next to each other, as instructions for dot products of bytes read them.

#[cfg(target_arch = "x86_64")]
use super::x86;
#[cfg(target_arch = "x86_64")]
use anabranch_cpu_base::features::has;
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::vector::LANES;

/// Rows of a block.
pub(super) const ROWS: usize = 8;

/// Numbers of the columns of a panel. They lie in whole cache lines: a register that crosses a line takes much longer
/// to be stored and loaded again.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Row(pub(super) [i32; PANEL]);

impl Row {
    pub(super) const ZEROS: Self = Self([0; PANEL]);

    /// Returns `self − factor · totals`. Inlined always.
    #[inline(always)]
    pub(super) fn less(&self, totals: &Self, factor: i32) -> Self {
        let mut made = Self::ZEROS;
        for v in 0..PANEL / LANES {
            let (own, totals) = (self.register(v), totals.register(v));
            let mut lanes = [0; LANES];
            for u in 0..LANES {
                lanes[u] = own[u].wrapping_sub(factor.wrapping_mul(totals[u]));
            }
            made.0[v * LANES..][..LANES].copy_from_slice(&lanes);
        }
        made
    }

    /// Returns the numbers of one of the registers. Inlined always: arrays of their own, which nothing else refers to,
    /// become registers.
    #[inline(always)]
    pub(super) fn register(&self, number: usize) -> [i32; LANES] {
        self.0.as_chunks().0[number]
    }
}

/// Sums of a block.
pub(super) type Block = [Row; ROWS];

/// Panel of B: for each quad of a row of A, the quads of neighbouring columns.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a> {
    pub(super) bytes: &'a [u8],
    /// Quad of the first column for each quad of a row.
    pub(super) starts: &'a Starts,
    /// Columns, a multiple of [`LANES`].
    pub(super) width: usize,
}

/// Where runs of quads begin in a slice: one for each quad of a row.
pub(super) struct Starts {
    all: Vec<usize>,
    greatest: usize,
}

impl Starts {
    pub(super) fn new(all: Vec<usize>) -> Self {
        Self { greatest: all.iter().copied().max().unwrap_or(0), all }
    }

    /// Returns the starts of `quads` quads of `width` columns that lie one after the other.
    pub(super) fn dense(quads: usize, width: usize) -> Self {
        Self::new((0..quads).map(|quad| quad * width).collect())
    }

    pub(super) fn all(&self) -> &[usize] {
        &self.all
    }

    /// Whether a slice of `quads` quads has `width` of them from each start on.
    pub(super) fn fit(&self, quads: usize, width: usize) -> bool {
        self.all.is_empty() || quads.checked_sub(width).is_some_and(|most| self.greatest <= most)
    }
}

/// Instructions that compute blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dots {
    /// AVX-512 with dot products of four bytes.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// Products of 16-bit numbers, added in pairs.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Dots {
    /// Returns the fastest instructions of this processor.
    pub(super) fn best() -> Self {
        Self::available()[0]
    }

    /// Returns all instructions of this processor, the fastest first.
    pub(super) fn available() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if has!("avx512f", "avx512bw", "avx512vnni") {
                all.push(Self::Vnni);
            }
            if has!("avx2") {
                all.push(Self::Avx2);
            }
        }
        all.push(Self::Portable);
        all
    }

    /// Multiplies rows of A, 1, 2, 4 or [`ROWS`], by a panel, and writes this part of the block. The length of rows is
    /// a multiple of 4. One of the two operands has signed numbers: A if `signed`.
    pub(super) fn of(self, rows: &[u8], count: usize, panel: Panel<'_>, signed: bool, block: &mut Block) {
        let Panel { bytes: panel, starts, width } = panel;
        assert!(matches!(count, 1 | 2 | 4 | ROWS) && matches!(width, 16 | 32 | PANEL), "blocks of whole registers");
        let whole = rows.len() == 4 * count * starts.all.len();
        assert!(whole && starts.fit(panel.len() / 4, width), "rows as deep as their panel");
        let (starts, sizes) = (&starts.all[..], [count, width]);
        match (self, signed) {
            // SAFETY: only instructions of this processor are constructed; the sizes were checked.
            #[cfg(target_arch = "x86_64")]
            (Self::Vnni, true) => unsafe { x86::vnni::<true>(rows, panel, starts, sizes, block) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Self::Vnni, false) => unsafe { x86::vnni::<false>(rows, panel, starts, sizes, block) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2, true) => unsafe { x86::avx2::<true>(rows, panel, starts, sizes, block) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2, false) => unsafe { x86::avx2::<false>(rows, panel, starts, sizes, block) },
            (Self::Portable, _) => portable(rows, panel, starts, sizes, signed, block),
        }
    }

    /// Writes, for each position, the sum of the dot products of a filter's signed quads and unsigned quads. The latter
    /// for quad `i` of the filter and position `p` is `quads[starts[i] + p]`. The number of positions is a multiple of
    /// [`LANES`].
    pub(super) fn windows(self, filters: &[u8], starts: &Starts, quads: &[u32], sums: &mut [i32]) {
        assert!(filters.len() == 4 * starts.all.len() && sums.len().is_multiple_of(LANES), "whole quads and registers");
        assert!(starts.fit(quads.len(), sums.len()), "a quad for each filter and position");
        let starts = &starts.all[..];
        match self {
            // SAFETY: only instructions of this processor are constructed; the sizes were checked.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::vnni_windows(filters, starts, quads, sums) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::avx2_windows(filters, starts, quads, sums) },
            Self::Portable => portable_windows(filters, starts, quads, sums),
        }
    }
}

fn portable_windows(filters: &[u8], starts: &[usize], quads: &[u32], sums: &mut [i32]) {
    sums.fill(0);
    for (filter, start) in filters.as_chunks::<4>().0.iter().zip(starts) {
        for (sum, quad) in sums.iter_mut().zip(&quads[*start..]) {
            let products = filter.iter().zip(quad.to_ne_bytes()).map(|(a, b)| i32::from(*a as i8) * i32::from(b));
            *sum = sum.wrapping_add(products.sum());
        }
    }
}

fn portable(rows: &[u8], panel: &[u8], starts: &[usize], [count, width]: [usize; 2], signed: bool, block: &mut Block) {
    let wide = |x: u8, signed: bool| if signed { i32::from(x as i8) } else { i32::from(x) };
    block[..count].iter_mut().for_each(|Row(sums)| sums[..width].fill(0));
    for (quad, start) in starts.iter().enumerate() {
        let columns = panel[4 * start..][..4 * width].as_chunks::<4>().0;
        for (i, Row(sums)) in block[..count].iter_mut().enumerate() {
            let a: [i32; 4] = std::array::from_fn(|s| wide(rows[(i * starts.len() + quad) * 4 + s], signed));
            for (sum, b) in sums.iter_mut().zip(columns) {
                let dot: i32 = (0..4).map(|s| a[s] * wide(b[s], !signed)).sum();
                *sum = sum.wrapping_add(dot);
            }
        }
    }
}
