//! Depthwise convolution by vectors read in place, for processors with masked loads.
//!
//! For common windows, several rows of outputs share each row of the image that they cover.
//!
//! An output vector is a sum over the window of input vectors; each begins one window element further. Lanes that lie
//! on the padding are masked off, so nothing is copied. With a stride of 2 an input vector is every second element of
//! two loads.

use anabranch_cpu_base::gemm::MicroKernel;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_map::Uniform;

/// Function that computes output rows of a channel from its weights and the finish of the sums, starting at row number
/// `usize`.
type Run = unsafe fn(&Direct, &[f32], &[f32], &Uniform, usize, &mut [f32]);

/// Parameters of one shape of convolution, without its data.
pub(super) struct Direct {
    height: usize,
    width: usize,
    output: [usize; 2],
    window: [usize; 2],
    strides: [usize; 2],
    dilations: [usize; 2],
    pads: [usize; 2],
    /// Masks of the read elements that lie in the input row, for each output vector and column of the window. Bit `i`
    /// of the first mask is element `i` from the vector's beginning, and of the second mask element `i + lanes`.
    masks: Vec<[u16; 2]>,
    run: Run,
    shares_rows: bool,
}

/// Maximum masks of a kernel: 16 MiB of them.
const MOST_MASKS: usize = 4 << 20;

impl Direct {
    /// Returns `None` if there is no kernel for the stride, or for this processor.
    pub(super) fn new(micro: &MicroKernel, geometry: &Geometry) -> Option<Self> {
        let Geometry { size: [height, width], output, window, steps, .. } = *geometry;
        let stride = steps.strides[1];
        let dense = steps.dilations[0] == 1 && (stride == 1 || steps.dilations[1] == 1);
        let square = |side: usize| window == [side, side] && dense && steps.strides[0] == stride;
        let (run, shares_rows): (Run, bool) = match (micro.name, stride) {
            #[cfg(target_arch = "x86_64")]
            ("AVX-512", 1) if square(3) => (avx512::run_square::<1, 3>, true),
            #[cfg(target_arch = "x86_64")]
            ("AVX-512", 2) if square(3) => (avx512::run_square::<2, 3>, true),
            #[cfg(target_arch = "x86_64")]
            ("AVX-512", 1) if square(5) => (avx512::run_square::<1, 5>, true),
            #[cfg(target_arch = "x86_64")]
            ("AVX-512", 2) if square(5) => (avx512::run_square::<2, 5>, true),
            #[cfg(target_arch = "x86_64")]
            ("AVX-512", 1) => (avx512::run::<1>, false),
            #[cfg(target_arch = "x86_64")]
            ("AVX-512", 2) => (avx512::run::<2>, false),
            #[cfg(target_arch = "x86_64")]
            ("AVX2", 1) if square(3) => (avx2::run_square::<1, 3>, true),
            #[cfg(target_arch = "x86_64")]
            ("AVX2", 2) if square(3) => (avx2::run_square::<2, 3>, true),
            #[cfg(target_arch = "x86_64")]
            ("AVX2", 1) => (avx2::run::<1>, false),
            #[cfg(target_arch = "x86_64")]
            ("AVX2", 2) => (avx2::run::<2>, false),
            _ => return None,
        };
        // Pads chosen by a file may make rows too long for a table; another kernel takes these convolutions.
        let entries = output[1].div_ceil(micro.lanes).saturating_mul(window[1]);
        if entries > MOST_MASKS {
            return None;
        }
        let mut masks = Vec::with_capacity(entries);
        for (vector, tap) in (0..output[1].div_ceil(micro.lanes)).flat_map(|v| (0..window[1]).map(move |tap| (v, tap)))
        {
            let first = vector * micro.lanes * stride + tap * steps.dilations[1];
            let inside = |element: usize| (steps.pads[1]..steps.pads[1] + width).contains(&(first + element));
            let bit = |half: usize, lane: usize| u16::from(inside(half * micro.lanes + lane)) << lane;
            masks.push([0, 1].map(|half| (0..micro.lanes).fold(0, |mask, lane| mask | bit(half, lane))));
        }
        let pads = [steps.pads[0], steps.pads[1]];
        Some(Self {
            height,
            width,
            output,
            window,
            strides: steps.strides,
            dilations: steps.dilations,
            pads,
            masks,
            run,
            shares_rows,
        })
    }

    /// Whether rows of outputs share the rows of the image that they cover, so that large windows pay too.
    pub(super) fn shares_rows(&self) -> bool {
        self.shares_rows
    }

    /// Returns the bytes of the masks.
    pub(super) fn resident_bytes(&self) -> usize {
        size_of_val(&*self.masks)
    }

    /// Computes output rows from `first` on, as many as `out` holds, of one channel.
    ///
    /// # Panics
    /// If the sizes do not fit together.
    pub(super) fn compute(&self, plane: &[f32], weights: &[f32], finish: &Uniform, first: usize, out: &mut [f32]) {
        assert_eq!(plane.len(), self.height * self.width, "a whole channel");
        assert_eq!(weights.len(), self.window[0] * self.window[1], "a whole window");
        let rows = out.len() / self.output[1];
        assert!(out.len() == rows * self.output[1] && first + rows <= self.output[0], "whole rows");
        // SAFETY: `new` chose a kernel of this processor. The kernel reads elements of the channel in rows below
        // `height`. By the masks, which were made from the columns inside a row, these lie in columns below `width`.
        unsafe { (self.run)(self, plane, weights, finish, first, out) };
    }
}

/// Kernel for one instruction set; a macro, because target features belong to the function in which an intrinsic is
/// used.
#[cfg(target_arch = "x86_64")]
macro_rules! direct_kernel {
    ($name:ident, $features:literal, $lanes:literal, $vector:ty, $zero:ident, $splat:ident, $add:ident, $fused:ident,
     $greater:ident, $lesser:ident, $whole:ident, $load:ident, $store:ident, $every_second:ident, $every_other:ident, $shifted:ident) => {
        mod $name {
            use super::x86::*;
            use super::{Direct, Uniform};
            use std::arch::x86_64::*;

            const LANES: usize = $lanes;

            /// # Safety
            /// The processor has the features; the operands are those of [`Direct::compute`], of this stride.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn run<const STRIDE: usize>(
                direct: &Direct,
                plane: &[f32],
                weights: &[f32],
                finish: &Uniform,
                first: usize,
                out: &mut [f32],
            ) {
                let (width, mut y, mut out) = (direct.output[1], first, out);
                while !out.is_empty() {
                    // Narrow images compute several rows at once; otherwise every multiply-add would wait for the last
                    // one.
                    let rows = match (width.div_ceil(LANES), out.len() / width) {
                        (4.., _) | (_, 1) => 1,
                        (_, 2 | 3) => 2,
                        _ => 4,
                    };
                    let (now, later) = out.split_at_mut(rows * width);
                    let mut x = 0;
                    while x < width {
                        let at = (y, x);
                        // SAFETY: the caller's promise; this many rows are left, and each has this many vectors from
                        // column `x` on.
                        let done = unsafe {
                            match (rows, (width - x).div_ceil(LANES)) {
                                (1, 1) => vectors::<STRIDE, 1, 1>(direct, plane, weights, finish, at, now),
                                (1, 2 | 3) => vectors::<STRIDE, 1, 2>(direct, plane, weights, finish, at, now),
                                (1, _) => vectors::<STRIDE, 1, 4>(direct, plane, weights, finish, at, now),
                                (2, 1) => vectors::<STRIDE, 2, 1>(direct, plane, weights, finish, at, now),
                                (2, _) => vectors::<STRIDE, 2, 2>(direct, plane, weights, finish, at, now),
                                (_, 1) => vectors::<STRIDE, 4, 1>(direct, plane, weights, finish, at, now),
                                _ => vectors::<STRIDE, 4, 2>(direct, plane, weights, finish, at, now),
                            }
                        };
                        x += done * LANES;
                    }
                    (y, out) = (y + rows, later);
                }
            }

            /// Returns the finished sums.
            #[inline]
            #[target_feature(enable = $features)]
            fn finished(sums: $vector, finish: &Uniform) -> $vector {
                let sums = $fused(sums, $splat(finish.scale), $splat(finish.bias));
                // The second operand is the result for NaN.
                $lesser($splat(finish.greatest), $greater($splat(finish.least), sums))
            }

            /// Computes like [`run`], for windows of `SIDE` × `SIDE` and equal strides. There is no vertical dilation,
            /// and no horizontal one if the stride is 2. Several output rows at once share the input rows that they
            /// both cover.
            ///
            /// # Safety
            /// The promises of [`run`]; the window is of that kind.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn run_square<const STRIDE: usize, const SIDE: usize>(
                direct: &Direct,
                plane: &[f32],
                weights: &[f32],
                finish: &Uniform,
                first: usize,
                out: &mut [f32],
            ) {
                let mut window = [[$zero(); SIDE]; SIDE];
                for (row, weights) in window.iter_mut().zip(weights.as_chunks::<SIDE>().0) {
                    *row = weights.map(|weight| $splat(weight));
                }
                let width = direct.output[1];
                let (mut y, mut out) = (first, out);
                let end = first + out.len() / width;
                while y < end {
                    let rows = match end - y {
                        1 => 1,
                        2 | 3 => 2,
                        left if STRIDE == 1 && SIDE == 3 && LANES == 16 && left.is_multiple_of(7) => 7,
                        _ => 4,
                    };
                    let (now, later) = out.split_at_mut(rows * width);
                    for (x, masks) in (0..width).step_by(LANES).zip(direct.masks.as_chunks::<SIDE>().0) {
                        let all = u16::MAX >> (16 - LANES);
                        let whole = masks.iter().all(|[low, high]| *low == all && (STRIDE == 1 || *high == all));
                        let at = (y, x);
                        // SAFETY: the caller's promise; this many rows are left, and `x` is less than the length of a
                        // row.
                        unsafe {
                            match (rows, whole) {
                                (1, _) => {
                                    square::<STRIDE, SIDE, 1, false>(direct, plane, &window, masks, finish, at, now)
                                }
                                (2, _) => {
                                    square::<STRIDE, SIDE, 2, false>(direct, plane, &window, masks, finish, at, now)
                                }
                                (7, false) => {
                                    square::<STRIDE, SIDE, 7, false>(direct, plane, &window, masks, finish, at, now)
                                }
                                (7, true) => {
                                    square::<STRIDE, SIDE, 7, true>(direct, plane, &window, masks, finish, at, now)
                                }
                                (_, false) => {
                                    square::<STRIDE, SIDE, 4, false>(direct, plane, &window, masks, finish, at, now)
                                }
                                (_, true) => {
                                    square::<STRIDE, SIDE, 4, true>(direct, plane, &window, masks, finish, at, now)
                                }
                            }
                        }
                    }
                    (y, out) = (y + rows, later);
                }
            }

            /// Computes one vector of each of `ROWS` rows from row `y` and column `x` on.
            ///
            /// # Safety
            /// The promises of [`run_square`]; `out` has `ROWS` rows. If `WHOLE`, the windows of the vector lie within
            /// the rows.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn square<const STRIDE: usize, const SIDE: usize, const ROWS: usize, const WHOLE: bool>(
                direct: &Direct,
                plane: &[f32],
                window: &[[$vector; SIDE]; SIDE],
                masks: &[[u16; 2]; SIDE],
                finish: &Uniform,
                (y, x): (usize, usize),
                out: &mut [f32],
            ) {
                // Two sums for each row, so that fewer multiply-adds wait for each other.
                let mut sums = [[$zero(); 2]; ROWS];
                // `covered` below is constant once the loops are unrolled.
                for below in 0..(ROWS - 1) * STRIDE + SIDE {
                    let row = (y * STRIDE + below).wrapping_sub(direct.pads[0]);
                    if row >= direct.height {
                        continue;
                    }
                    let mut values = [$zero(); SIDE];
                    // Elements after the two vectors of columns, for a stride of 2.
                    let mut behind = $zero();
                    for kx in 0..SIDE {
                        let column = (x * STRIDE + kx * direct.dilations[1]).wrapping_sub(direct.pads[1]);
                        let from = plane.as_ptr().wrapping_add((row * direct.width).wrapping_add(column));
                        let [low, high] = masks[kx];
                        // SAFETY: the masks select elements of this row of the channel only.
                        unsafe {
                            match (STRIDE, kx) {
                                (1, _) if WHOLE => values[kx] = $whole(from),
                                (1, _) => values[kx] = $load(low, from),
                                (_, 0) if WHOLE => {
                                    let (low, high) = ($whole(from), $whole(from.wrapping_add(LANES)));
                                    (values[0], values[1]) = ($every_second(low, high), $every_other(low, high));
                                }
                                (_, 0) => {
                                    let (low, high) = ($load(low, from), $load(high, from.wrapping_add(LANES)));
                                    (values[0], values[1]) = ($every_second(low, high), $every_other(low, high));
                                }
                                (_, 1) => {
                                    // Last elements that the window's last column covers.
                                    let [_, last] = masks[SIDE - 1];
                                    behind = $load(last >> (LANES + 1 - SIDE), from.wrapping_add(2 * LANES - 1));
                                }
                                _ => values[kx] = $shifted(kx, values[kx % 2], behind),
                            }
                        }
                    }
                    for kx in 0..SIDE {
                        for r in 0..ROWS {
                            let covered = below >= r * STRIDE && below < r * STRIDE + SIDE;
                            if covered {
                                let weight = window[below - r * STRIDE][kx];
                                sums[r][kx % 2] = $fused(weight, values[kx], sums[r][kx % 2]);
                            }
                        }
                    }
                }
                let width = direct.output[1];
                for (r, [even, odd]) in sums.into_iter().enumerate() {
                    let sum = $add(even, odd);
                    let out = &mut out[r * width + x..][..LANES.min(width - x)];
                    // SAFETY: the mask selects the elements of `out`.
                    unsafe { $store(out.as_mut_ptr(), u16::MAX >> (16 - out.len()), finished(sum, finish)) };
                }
            }

            /// Computes neighbouring vectors of rows from row `y` and column `x` on, and returns the number of rows and
            /// of vectors.
            ///
            /// # Safety
            /// The promises of [`run`]; `out` has `ROWS` rows, and each has `VECTORS` vectors.
            #[target_feature(enable = $features)]
            unsafe fn vectors<const STRIDE: usize, const ROWS: usize, const VECTORS: usize>(
                direct: &Direct,
                plane: &[f32],
                weights: &[f32],
                finish: &Uniform,
                (y, x): (usize, usize),
                out: &mut [f32],
            ) -> usize {
                let [rows, columns] = direct.window;
                let masks = &direct.masks[x / LANES * columns..][..VECTORS * columns];
                let mut sums = [[$zero(); VECTORS]; ROWS];
                for ky in 0..rows {
                    let inside: [usize; ROWS] = std::array::from_fn(|r| {
                        ((y + r) * direct.strides[0] + ky * direct.dilations[0]).wrapping_sub(direct.pads[0])
                    });
                    for kx in 0..columns {
                        let weight = $splat(weights[ky * columns + kx]);
                        let column = (x * STRIDE + kx * direct.dilations[1]).wrapping_sub(direct.pads[1]);
                        for r in 0..ROWS {
                            if inside[r] >= direct.height {
                                continue;
                            }
                            let from = plane.as_ptr().wrapping_add((inside[r] * direct.width).wrapping_add(column));
                            for v in 0..VECTORS {
                                let [low, high] = masks[v * columns + kx];
                                let from = from.wrapping_add(v * LANES * STRIDE);
                                // SAFETY: the masks select elements of this row of the channel only.
                                let values = unsafe {
                                    match STRIDE {
                                        1 => $load(low, from),
                                        _ => $every_second($load(low, from), $load(high, from.wrapping_add(LANES))),
                                    }
                                };
                                sums[r][v] = $fused(weight, values, sums[r][v]);
                            }
                        }
                    }
                }
                for (sums, out) in sums.into_iter().zip(out.chunks_exact_mut(direct.output[1])) {
                    for (sum, out) in sums.into_iter().zip(out[x..].chunks_mut(LANES)) {
                        let present = u16::MAX >> (16 - out.len());
                        // SAFETY: the mask selects the elements of `out`.
                        unsafe { $store(out.as_mut_ptr(), present, finished(sum, finish)) };
                    }
                }
                VECTORS
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
direct_kernel!(
    avx512,
    "avx512f",
    16,
    __m512,
    _mm512_setzero_ps,
    _mm512_set1_ps,
    _mm512_add_ps,
    _mm512_fmadd_ps,
    _mm512_max_ps,
    _mm512_min_ps,
    _mm512_loadu_ps,
    load_512,
    store_512,
    even_512,
    odd_512,
    shifted_512
);
#[cfg(target_arch = "x86_64")]
direct_kernel!(
    avx2,
    "avx2,fma",
    8,
    __m256,
    _mm256_setzero_ps,
    _mm256_set1_ps,
    _mm256_add_ps,
    _mm256_fmadd_ps,
    _mm256_max_ps,
    _mm256_min_ps,
    _mm256_loadu_ps,
    load_256,
    store_256,
    even_256,
    odd_256,
    shifted_256
);

/// Masked loads and stores, and selections of every second lane of two vectors.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use anabranch_cpu_base::vector::store_first;
    use std::arch::x86_64::*;

    /// # Safety
    /// The elements that the mask selects are readable.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn load_512(mask: u16, from: *const f32) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }

    /// # Safety
    /// The elements that the mask selects are writable.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn store_512(to: *mut f32, mask: u16, values: __m512) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_mask_storeu_ps(to, mask, values) };
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn even_512(low: __m512, high: __m512) -> __m512 {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        _mm512_permutex2var_ps(low, even, high)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn odd_512(low: __m512, high: __m512) -> __m512 {
        let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        _mm512_permutex2var_ps(low, odd, high)
    }

    /// Returns every second element from column `column` of 2, 3 and 4 on. `lanes` are those from its first or second
    /// element on; `behind` follows them all.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn shifted_512(column: usize, lanes: __m512, behind: __m512) -> __m512 {
        let from = match column {
            2 => _mm512_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16),
            3 => _mm512_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17),
            _ => _mm512_setr_epi32(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18),
        };
        _mm512_permutex2var_ps(lanes, from, behind)
    }

    /// # Safety
    /// The elements that the mask selects are readable.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn load_256(mask: u16, from: *const f32) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_maskload_ps(from, lanes_of(mask)) }
    }

    /// # Safety
    /// The mask selects the first elements, which are writable.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn store_256(to: *mut f32, mask: u16, values: __m256) {
        // SAFETY: the caller's promise.
        unsafe { store_first(to, mask.trailing_ones() as usize, values) };
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn even_256(low: __m256, high: __m256) -> __m256 {
        let pairs = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(low, high));
        _mm256_castpd_ps(_mm256_permute4x64_pd::<0xD8>(pairs))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn odd_256(low: __m256, high: __m256) -> __m256 {
        let pairs = _mm256_castps_pd(_mm256_shuffle_ps::<0xDD>(low, high));
        _mm256_castpd_ps(_mm256_permute4x64_pd::<0xD8>(pairs))
    }

    /// Returns the elements of [`shifted_512`], for column 2 only.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn shifted_256(column: usize, lanes: __m256, behind: __m256) -> __m256 {
        debug_assert_eq!(column, 2, "windows of three columns");
        let next = _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0);
        _mm256_permutevar8x32_ps(_mm256_blend_ps::<1>(lanes, behind), next)
    }

    /// Returns a vector with all bits set in each lane whose mask bit is set.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn lanes_of(mask: u16) -> __m256i {
        let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(i32::from(mask)), bits), bits)
    }
}
