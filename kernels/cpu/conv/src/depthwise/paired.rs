//! Depthwise convolution of two narrow planes at a time, whose rows share a vector, for AVX-512.
//!
//! Each half of a vector is a row of one plane. One permutation for each column of the window turns rows of both images
//! into the vector of all elements that the column covers for a row of outputs. Elements outside of the image are
//! zeros. The outputs are sums of products of these vectors. If planes are 7 wide, as the last ones of common networks
//! are, 14 of 16 lanes are busy.

use super::{ACTIVATED, TILE_WORK};
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm::MicroKernel;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_cpu_map::{Epilogue, Uniform};
use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;

/// Lanes of a plane.
const HALF: usize = 8;

/// Maximum columns of an image: those of a register.
const WIDEST: usize = 2 * HALF;

/// Minimum outputs of a row: with fewer, most lanes would be empty.
const FEWEST: usize = 4;

/// Cost of a pair of planes without its multiply-adds, in multiply-adds.
const PAIR: usize = 30;

/// Maximum vectors of covered elements: half of an L1 cache.
const MOST: usize = 256;

/// Numbers of a vector.
type Lanes = [f32; WIDEST];

pub(super) struct Kernel {
    geometry: Geometry,
    columns: Vec<Column>,
    grid: Grid,
    epilogue: Option<Epilogue>,
}

/// Elements that a column of the window covers, for each output of a row.
struct Column {
    /// Lane among those of two registers.
    from: [i32; WIDEST],
    /// Bit for each output whose element lies in the image.
    inside: u16,
}

impl Kernel {
    /// Returns `None` if planes are too wide or too narrow, if windows are neither 3 × 3 nor 5 × 5 or too far apart, or
    /// if the processor lacks AVX-512.
    ///
    /// # Errors
    /// If the epilogue does not fit the node.
    pub(super) fn new(micro: &MicroKernel, geometry: Geometry, node: &NodeSpec) -> Result<Option<Self>, KernelError> {
        let Geometry { images, maps, size, output: [high, wide], window: [side, across], .. } = geometry;
        let lines = lines(&geometry);
        let fits = (FEWEST..=HALF).contains(&wide) && (1..=WIDEST).contains(&size[1]) && high > 0;
        let square = side == across && (side == 3 || side == 5) && lines.saturating_mul(side) <= MOST;
        if micro.name != "AVX-512" || !fits || !square {
            return Ok(None);
        }
        // Equal tiles, and equally many for each of two threads.
        let pair = side * (lines + side * high) + PAIR;
        let tiles = maps.div_ceil(2 * (TILE_WORK / WIDEST / pair).max(1));
        let tiles = if tiles > 1 { tiles.next_multiple_of(2) } else { 1 };
        let (planes, pixels) = (maps.div_ceil(tiles).next_multiple_of(2), geometry.pixels());
        let grid = Grid { batch: images, rows: maps, columns: pixels, tile_rows: planes, tile_columns: pixels };
        let columns = (0..across).map(|kx| Column::new(&geometry, kx)).collect();
        Ok(Some(Self { geometry, columns, grid, epilogue: Epilogue::of(node)? }))
    }

    /// Computes some output channels of an image.
    fn compute(&self, tile: &mut Tile<'_, f32>, input: &[f32], weights: &[f32], extras: &[&[u8]]) {
        let Geometry { channels, maps, .. } = self.geometry;
        let (pixels, plane, taps) = (self.geometry.pixels(), self.geometry.plane(), self.geometry.taps());
        let image = &input[tile.matrix * channels * plane..][..channels * plane];
        let (first, vectors) = (tile.matrix * maps, lines(&self.geometry) * self.columns.len());
        let together = (ACTIVATED / pixels).max(1).next_multiple_of(2);
        let mut map = tile.rows.start;
        with_workspace(vectors * WIDEST, |memory| {
            // The lines above and below the image are written here only.
            memory.fill(0.0);
            let covered = memory.as_chunks_mut().0;
            for out in tile.whole_rows().chunks_mut(together * pixels) {
                let start = (first + map) * pixels;
                let mut uniforms =
                    self.epilogue.as_ref().map(|epilogue| epilogue.uniforms([start, pixels, pixels], extras));
                // Constancy is the same for all planes, as they begin and end with rows of the epilogue or lie in one.
                let mut uniform = true;
                for out in out.chunks_mut(2 * pixels) {
                    let mut operands = [Operands::default(); 2];
                    let count = out.len() / pixels;
                    for (map, operands) in (map..map + count).zip(&mut operands) {
                        operands.plane = &image[self.geometry.read_by(map) * plane..][..plane];
                        operands.weights = &weights[map * taps..][..taps];
                        if let Some(uniforms) = &mut uniforms {
                            uniform &= uniforms.next(&mut operands.finish);
                        }
                    }
                    if count == 1 {
                        operands[1] = operands[0];
                    }
                    // SAFETY: `new` checked the processor; the slices have the kernel's sizes.
                    unsafe { x86::pair(self, &operands, covered, out) };
                    map += count;
                }
                match &self.epilogue {
                    Some(epilogue) if uniform => epilogue.activate(&mut Tile::of(out)),
                    Some(epilogue) => epilogue.apply(start / self.geometry.output[1], 0, out, extras),
                    None => {}
                }
            }
        });
    }
}

/// Operands of a plane of outputs.
#[derive(Clone, Copy, Default)]
struct Operands<'a> {
    plane: &'a [f32],
    weights: &'a [f32],
    finish: Uniform,
}

impl Column {
    /// Returns the column of this number.
    fn new(geometry: &Geometry, number: usize) -> Self {
        let Geometry { size: [_, width], output: [_, wide], steps, .. } = *geometry;
        let (mut from, mut inside) = ([0; WIDEST], 0);
        for (lane, from) in from.iter_mut().enumerate() {
            let (plane, x) = (lane / HALF, lane % HALF);
            if x < wide {
                let at = (x * steps.strides[1] + number * steps.dilations[1]).wrapping_sub(steps.pads[1]);
                if at < width {
                    *from = (plane * WIDEST + at) as i32;
                    inside |= 1 << lane;
                }
            }
        }
        Self { from, inside }
    }
}

/// Returns the rows of the image with those of zeros that windows reach.
fn lines(geometry: &Geometry) -> usize {
    let Geometry { output: [high, _], window, steps, .. } = *geometry;
    let first = (high.max(1) - 1).saturating_mul(steps.strides[0]);
    first.saturating_add((window[0] - 1).saturating_mul(steps.dilations[0])).saturating_add(1)
}

impl CpuKernel for Kernel {
    fn resident_bytes(&self) -> usize {
        size_of_val(&*self.columns)
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (input, weights) = (elements(call.inputs[0]), elements(call.inputs[1]));
        let (output, extras) = (elements_mut(call.outputs[0]), &call.inputs[2..]);
        call.team.run_tiles(output, self.grid, &|mut tile| self.compute(&mut tile, input, weights, extras));
        Ok(())
    }
}

mod x86 {
    use super::{Geometry, HALF, Kernel, Lanes, Operands, WIDEST};
    use std::arch::x86_64::*;

    /// Computes two planes of outputs one after the other, or one if there is only one. The covered elements are zero
    /// above and below the image.
    ///
    /// # Safety
    /// The processor has the instructions; images, weights and outputs have the kernel's sizes.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn pair(kernel: &Kernel, operands: &[Operands<'_>; 2], covered: &mut [Lanes], out: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            match kernel.columns.len() {
                3 => sided::<3>(kernel, operands, covered.as_chunks_mut().0, out),
                _ => sided::<5>(kernel, operands, covered.as_chunks_mut().0, out),
            }
        }
    }

    /// Computes [`pair`] for windows of `SIDE` × `SIDE`.
    ///
    /// # Safety
    /// The promises of [`pair`].
    #[target_feature(enable = "avx512f")]
    unsafe fn sided<const SIDE: usize>(
        kernel: &Kernel,
        operands: &[Operands<'_>; 2],
        lines: &mut [[Lanes; SIDE]],
        out: &mut [f32],
    ) {
        cover(kernel, operands, lines);
        let high = kernel.geometry.output[0];
        // Equal parts: with few rows, multiply-adds would wait for each other.
        let most = high.div_ceil(high.div_ceil(8));
        let mut row = 0;
        while row < high {
            row += match most.min(high - row) {
                1 => rows::<SIDE, 1>(kernel, lines, operands, row, out),
                2 => rows::<SIDE, 2>(kernel, lines, operands, row, out),
                3 => rows::<SIDE, 3>(kernel, lines, operands, row, out),
                4 => rows::<SIDE, 4>(kernel, lines, operands, row, out),
                5 => rows::<SIDE, 5>(kernel, lines, operands, row, out),
                6 => rows::<SIDE, 6>(kernel, lines, operands, row, out),
                7 => rows::<SIDE, 7>(kernel, lines, operands, row, out),
                _ => rows::<SIDE, 8>(kernel, lines, operands, row, out),
            };
        }
    }

    /// Writes the elements that the window's columns cover in each row of the images.
    #[target_feature(enable = "avx512f")]
    fn cover<const SIDE: usize>(kernel: &Kernel, [first, second]: &[Operands<'_>; 2], lines: &mut [[Lanes; SIDE]]) {
        let Geometry { size: [height, width], steps, .. } = kernel.geometry;
        let Some(columns) = kernel.columns.first_chunk::<SIDE>() else { return };
        // Loops without closures, which would not be compiled for these instructions.
        let mut from = [_mm512_setzero_si512(); SIDE];
        for kx in 0..SIDE {
            // SAFETY: the array is as long as a vector.
            from[kx] = unsafe { _mm512_loadu_epi32(columns[kx].from.as_ptr()) };
        }
        let present = u16::MAX >> (WIDEST - width);
        let (first, second) = (&first.plane[..height * width], &second.plane[..height * width]);
        for (row, line) in lines.iter_mut().skip(steps.pads[0]).take(height).enumerate() {
            // SAFETY: the mask selects a row of an image.
            let (first, second) = unsafe {
                let (first, second) = (first.as_ptr().add(row * width), second.as_ptr().add(row * width));
                (_mm512_maskz_loadu_ps(present, first), _mm512_maskz_loadu_ps(present, second))
            };
            for kx in 0..SIDE {
                let lanes = _mm512_maskz_permutex2var_ps(columns[kx].inside, first, from[kx], second);
                // SAFETY: the array is as long as a vector.
                unsafe { _mm512_storeu_ps(line[kx].as_mut_ptr(), lanes) };
            }
        }
    }

    /// Returns a vector with one number in each half.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn halves(first: f32, second: f32) -> __m512 {
        _mm512_mask_blend_ps(0xFF00, _mm512_set1_ps(first), _mm512_set1_ps(second))
    }

    /// Computes rows of outputs of both planes from `row` on, and returns how many.
    #[target_feature(enable = "avx512f")]
    fn rows<const SIDE: usize, const ROWS: usize>(
        kernel: &Kernel,
        lines: &[[Lanes; SIDE]],
        [first, second]: &[Operands<'_>; 2],
        row: usize,
        out: &mut [f32],
    ) -> usize {
        let Geometry { steps, output: [_, wide], .. } = kernel.geometry;
        let (pixels, down) = (kernel.geometry.pixels(), steps.strides[0]);
        let mut sums = [_mm512_setzero_ps(); ROWS];
        let windows = first.weights.as_chunks::<SIDE>().0.iter().zip(second.weights.as_chunks::<SIDE>().0);
        for (ky, (first, second)) in windows.enumerate() {
            let lines = &lines[row * down + ky * steps.dilations[0]..][..(ROWS - 1) * down + 1];
            for kx in 0..SIDE {
                let weight = halves(first[kx], second[kx]);
                for at in 0..ROWS {
                    // SAFETY: the last read is the last of `lines`; each is as long as a vector.
                    let lanes = unsafe { _mm512_loadu_ps(lines.get_unchecked(at * down)[kx].as_ptr()) };
                    sums[at] = _mm512_fmadd_ps(weight, lanes, sums[at]);
                }
            }
        }
        let (first, second) = (first.finish, second.finish);
        let (scale, bias) = (halves(first.scale, second.scale), halves(first.bias, second.bias));
        let (least, greatest) = (_mm512_set1_ps(first.least), _mm512_set1_ps(first.greatest));
        let present = u16::MAX >> (WIDEST - wide);
        for (at, sum) in sums.into_iter().enumerate() {
            // The second operand is the result for NaN.
            let sum = _mm512_min_ps(greatest, _mm512_max_ps(least, _mm512_fmadd_ps(sum, scale, bias)));
            let place = (row + at) * wide;
            // SAFETY: the masks select a row of each plane, and of the second plane only if it exists.
            unsafe {
                _mm512_mask_storeu_ps(out[place..][..wide].as_mut_ptr(), present, sum);
                if let Some(second) = out.get_mut(pixels + place..)
                    && second.len() >= wide
                {
                    _mm512_mask_storeu_ps(second.as_mut_ptr().wrapping_sub(HALF), present << HALF, sum);
                }
            }
        }
        ROWS
    }
}
