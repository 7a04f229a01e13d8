//! Transposed convolution: each input element is spread over the output through the window.
//!
//! What all elements of the window make of all pixels is one product, of the transposed weights with the image. It is computed
//! for a block of image rows and some maps at a time, so that it stays in the second-level cache, and gathered from there: each output row
//! is the sum of the shifted rows that land on it, those of equal remainder by the stride together, in a fixed order. Where
//! windows overlap, neighbouring blocks of output rows both compute the image rows that reach into both.

use super::elements::{elements, elements_mut};
use super::gemm::{Left, MicroKernel, Panels, Product, Right, View, pack_panels};
use super::layout::{Layout, PackedInput, PackedMatrices, Packing};
use super::map::Epilogue;
use super::strided::{add_every, interleave};
use super::team::{Grid, Tile, with_workspace};
use super::vector::{Isa, Loop, vectorised};
use super::{Call, CpuKernel, Team};
use crate::error::KernelError;
use crate::op::{ConvTranspose, NodeSpec};
use crate::shape::Shape;
use crate::tensor::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Pixels of a block of image rows, about.
const PIXELS: usize = 512;

/// Rows of a product that is computed at a time, about.
const ROWS: usize = 128;

/// Tiles beyond which no finer cut is needed to keep a team busy.
const ENOUGH_TILES: usize = 16;

/// Multiply-adds below which a tile is not cut further.
const TILE_WORK: usize = 1 << 20;

/// A transposed convolution of images of one size.
struct ConvTransposeKernel {
    op: ConvTranspose,
    micro: &'static MicroKernel,
    /// Input channels and output maps of a group.
    channels: usize,
    maps: usize,
    input: [usize; 2],
    window: [usize; 2],
    output: [usize; 2],
    /// A matrix for each group: the rows are the elements of its maps' windows.
    weights: PackedInput,
    /// Maps of a product.
    together: usize,
    /// For each image and group a matrix of a row for each map.
    grid: Grid,
    epilogue: Option<Epilogue>,
}

/// Prepares a transposed convolution.
pub(crate) fn prepare(
    node: &NodeSpec,
    op: &ConvTranspose,
    constants: &[bool],
) -> Result<Box<dyn CpuKernel>, KernelError> {
    let dims = |shape: &Shape| <[usize; 4]>::try_from(shape.dims()).expect("images that were checked");
    let [[n, c, h, w], [_, maps, kh, kw], [_, _, oh, ow]] =
        [&node.inputs[0], &node.inputs[1], &node.outputs[0]].map(|spec| dims(&spec.shape));
    let small = |size: &usize| *size <= 1 << 31;
    let sizes = op.strides.iter().chain(&op.dilations).chain(&op.pads).chain([&h, &w, &kh, &kw, &oh, &ow]);
    node.require(sizes.into_iter().all(small), "its sizes are below 2³¹")?;
    let micro = MicroKernel::best();
    let (channels, taps) = (c / op.group, kh * kw);
    // Products begin at a block of the micro-kernel's rows.
    let unit = (1..=micro.rows).find(|maps| (maps * taps).is_multiple_of(micro.rows)).unwrap_or(micro.rows);
    let together = (ROWS / (unit * taps).max(1)).max(1) * unit;
    // All that is computed from the sizes below is at most this, which fits the address space.
    Shape::new([(together * taps).max(channels), (h * w).next_multiple_of(micro.columns)])?;
    let overlap = ((kh - 1) * op.dilations[0] + 1).saturating_sub(op.strides[0]).div_ceil(op.strides[0]);
    let block = PIXELS.div_ceil(w.max(1)).max(overlap.saturating_mul(4)).min(h.max(1)).saturating_mul(op.strides[0]);
    let mut grid = Grid {
        batch: n * op.group,
        rows: maps,
        columns: oh * ow,
        tile_rows: maps.next_multiple_of(unit),
        tile_columns: block.min(oh) * ow,
    };
    let work = channels * taps * (block / op.strides[0] * w).min(h * w);
    while grid.tiles() < ENOUGH_TILES && grid.tile_rows > unit && grid.tile_rows.saturating_mul(work) > 2 * TILE_WORK {
        grid.tile_rows = (grid.tile_rows / 2).next_multiple_of(unit);
    }
    Ok(Box::new(ConvTransposeKernel {
        op: op.clone(),
        micro,
        channels,
        maps,
        input: [h, w],
        window: [kh, kw],
        output: [oh, ow],
        weights: PackedInput::new(1, Layout::right(op.group, [channels, maps * taps], false, micro.rows), constants),
        together,
        grid,
        epilogue: Epilogue::of(node)?,
    }))
}

impl ConvTransposeKernel {
    /// Where the element at `tap` of the window puts input index 0 along an axis: it may lie outside.
    fn start(&self, axis: usize, tap: usize) -> i64 {
        tap as i64 * self.op.dilations[axis] as i64 - self.op.pads[axis] as i64
    }

    /// The image rows that reach into these output rows.
    fn sources(&self, rows: Range<usize>) -> Range<usize> {
        let (stride, size) = (self.op.strides[0] as i64, self.input[0] as i64);
        let first = (rows.start as i64 - self.start(0, self.window[0] - 1)).max(0) as u64;
        let behind = (rows.end as i64 - 1 - self.start(0, 0)).div_euclid(stride) + 1;
        let behind = behind.clamp(0, size) as usize;
        (first.div_ceil(stride as u64) as usize).min(behind)..behind
    }

    /// Remainders of output columns by the stride.
    fn remainders(&self) -> usize {
        self.op.strides[1].min(self.output[1])
    }

    /// Computes a block of output rows of some maps.
    fn compute(&self, tile: &mut Tile<'_, f32>, images: &[f32], weights: PackedMatrices<'_>, extras: &[&[u8]]) {
        let ([height, width], [_, wide]) = (self.input, self.output);
        let (taps, first) = (self.window[0] * self.window[1], tile.columns.start / wide);
        let sources = self.sources(first..tile.columns.end / wide);
        let pixels = sources.len() * width;
        let sums = self.remainders() * wide.div_ceil(self.op.strides[1]);
        let panels = Panels::floats(self.micro.columns, self.channels, pixels);
        let image = &images[tile.matrix * self.channels * height * width..][..self.channels * height * width];
        let spread = self.together.min(tile.rows.len()) * taps * pixels;
        with_workspace(panels + spread + sums, |memory| {
            let (panels, memory) = memory.split_at_mut(panels);
            let (spread, sums) = memory.split_at_mut(spread);
            let rows = View::with_strides(
                image.get(sources.start * width..).unwrap_or(&[]),
                self.channels,
                pixels,
                (height * width, 1),
            );
            pack_panels(rows, 0..self.channels, 0..pixels, self.micro.columns, panels);
            let right = Right::Packed(Panels::new(panels, self.channels, pixels, self.micro.columns));
            let weights = weights.panels(tile.matrix % self.op.group);
            for map in (0..tile.rows.len()).step_by(self.together) {
                let maps = map..tile.rows.len().min(map + self.together);
                let above = (tile.rows.start + map) * taps;
                let left = Panels::new(weights.from(0, above), self.channels, maps.len() * taps, self.micro.rows);
                let spread = &mut spread[..maps.len() * taps * pixels];
                product(Product::new(self.micro, Left::Packed(left), right), maps.len() * taps, spread);
                for (at, map) in maps.enumerate() {
                    let spread = &spread[at * taps * pixels..][..taps * pixels];
                    let out = tile.row(map);
                    vectorised(Gather { kernel: self, spread, sources: sources.clone(), first, sums, out });
                }
            }
            if let Some(epilogue) = &self.epilogue {
                for map in 0..tile.rows.len() {
                    let plane = tile.matrix * self.maps + tile.rows.start + map;
                    epilogue.apply(plane * self.output[0] + first, 0, tile.row(map), extras);
                }
            }
        });
    }
}

/// Computes a whole product of so many rows.
fn product(product: Product<'_>, rows: usize, out: &mut [f32]) {
    let columns = out.len().checked_div(rows).unwrap_or(0);
    let grid = Grid { batch: 1, rows, columns, tile_rows: rows, tile_columns: columns };
    Team::solo().run_tiles(out, grid, &|mut tile| product.compute(&mut tile, None));
}

/// Adds up a block of rows of one map.
struct Gather<'a> {
    kernel: &'a ConvTransposeKernel,
    /// For each element of the window what it makes of the image rows `sources`.
    spread: &'a [f32],
    sources: Range<usize>,
    /// The first output row.
    first: usize,
    /// Memory for an output row, ordered by the remainders of columns by the stride.
    sums: &'a mut [f32],
    out: &'a mut [f32],
}

impl Loop for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, spread, sources, first, sums, out } = self;
        let (width, wide, [_, columns]) = (kernel.input[1], kernel.output[1], kernel.window);
        let stride = kernel.op.strides[1];
        let length = wide.div_ceil(stride);
        for (row, out) in out.chunks_exact_mut(wide).enumerate() {
            sums.fill(0.0);
            for (tap, spread) in spread.chunks_exact((sources.len() * width).max(1)).enumerate() {
                let down = (first + row) as i64 - kernel.start(0, tap / columns);
                let source = down.div_euclid(kernel.op.strides[0] as i64);
                if down % kernel.op.strides[0] as i64 != 0
                    || !(sources.start as i64..sources.end as i64).contains(&source)
                {
                    continue;
                }
                let line = &spread[(source as usize - sources.start) * width..][..width];
                let start = kernel.start(1, tap % columns);
                let (shift, remainder) = (start.div_euclid(stride as i64), start.rem_euclid(stride as i64) as usize);
                // Column x lands at x + shift of those with this remainder.
                let line = line.get(shift.min(0).unsigned_abs() as usize..).unwrap_or(&[]);
                let sums = sums.chunks_exact_mut(length).nth(remainder).unwrap_or(&mut []);
                let sums = sums.get_mut(shift.max(0) as usize..).unwrap_or(&mut []);
                add_every::<I>(sums, line, 1, 1.0);
            }
            interleave(sums, length, out);
        }
    }
}

impl CpuKernel for ConvTransposeKernel {
    fn scratch_bytes(&self) -> usize {
        self.weights.scratch_floats() * size_of::<f32>()
    }

    fn packings(&self) -> Vec<Packing> {
        self.weights.packings()
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        self.weights.keep(packed);
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let images = elements(call.inputs[0]);
        let weights = self.weights.matrices(call.inputs, elements_mut(call.scratch))?;
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        call.team.run_tiles(target, self.grid, &|mut tile| self.compute(&mut tile, images, weights, &call.inputs[2..]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::testing::{computed, tensor};
    use crate::op::{Binary, ConvTranspose, Expression, Op};
    use crate::{DType, Tensor};

    #[test]
    fn inputs_are_spread_through_the_window() {
        for (strides, pads, dilations, group, [n, c, h, w], [per, kh, kw], extra) in [
            ([1, 1], [0; 4], [1, 1], 1, [1, 2, 3, 4], [3, 2, 2], 0),
            ([2, 2], [1, 1, 1, 1], [1, 1], 1, [2, 3, 4, 5], [2, 3, 3], 1),
            ([2, 3], [0, 1, 2, 0], [2, 1], 2, [1, 4, 3, 3], [2, 2, 3], 0),
        ] {
            let full = |axis: usize, size: usize, k: usize| (size - 1) * strides[axis] + (k - 1) * dilations[axis] + 1;
            let [oh, ow] = [full(0, h, kh) - pads[0] - pads[2] + extra, full(1, w, kw) - pads[1] - pads[3] + extra];
            let m = per * group;
            let x = tensor(DType::F32, &[n, c, h, w], |i| ((i * 7) % 13) as f64 - 6.0);
            let weights = tensor(DType::F32, &[c, per, kh, kw], |i| ((i * 5) % 11) as f64 - 5.0);
            let bias = tensor(DType::F32, &[m, 1, 1], |i| i as f64);
            let epilogue = Some(Expression::binary(Binary::Add));
            let op = Op::ConvTranspose(ConvTranspose { strides, pads, dilations, group, epilogue });
            let got: Vec<f32> = computed(op, &[x.clone(), weights.clone(), bias], &[n, m, oh, ow]);
            let (x, k) = (x.elements::<f32>().expect("f32"), weights.elements::<f32>().expect("f32"));
            let mut want: Vec<f32> = (0..n * m * oh * ow).map(|i| (i / (oh * ow) % m) as f32).collect();
            for i in 0..n * c * h * w {
                let (image, channel, y, z) = (i / (c * h * w), i / (h * w) % c, i / w % h, i % w);
                for t in 0..per * kh * kw {
                    let (o, a, b) = (t / (kh * kw), t / kw % kh, t % kw);
                    let row = (y * strides[0] + a * dilations[0]).wrapping_sub(pads[0]);
                    let column = (z * strides[1] + b * dilations[1]).wrapping_sub(pads[1]);
                    if row < oh && column < ow {
                        let plane = image * m + channel / (c / group) * per + o;
                        want[(plane * oh + row) * ow + column] += x[i] * k[channel * per * kh * kw + t];
                    }
                }
            }
            assert_eq!(got, want, "small integers are exact");
        }
    }

    /// By the definition, in f64.
    fn naive(op: &ConvTranspose, x: &Tensor, weights: &Tensor, [n, m, oh, ow]: [usize; 4]) -> (Vec<f64>, Vec<f64>) {
        let [_, c, h, w] = *x.shape().dims() else { panic!("an image") };
        let [_, per, kh, kw] = *weights.shape().dims() else { panic!("windows") };
        let (x, k) = (x.elements::<f32>().expect("f32"), weights.elements::<f32>().expect("f32"));
        let (mut sums, mut sizes) = (vec![0.0; n * m * oh * ow], vec![0.0; n * m * oh * ow]);
        for (i, x) in x.iter().enumerate() {
            let (image, channel, y, z) = (i / (c * h * w), i / (h * w) % c, i / w % h, i % w);
            for t in 0..per * kh * kw {
                let (o, a, b) = (t / (kh * kw), t / kw % kh, t % kw);
                let row = (y * op.strides[0] + a * op.dilations[0]).wrapping_sub(op.pads[0]);
                let column = (z * op.strides[1] + b * op.dilations[1]).wrapping_sub(op.pads[1]);
                if row < oh && column < ow {
                    let at = ((image * m + channel / (c / op.group) * per + o) * oh + row) * ow + column;
                    let term = f64::from(*x) * f64::from(k[channel * per * kh * kw + t]);
                    sums[at] += term;
                    sizes[at] += term.abs();
                }
            }
        }
        (sums, sizes)
    }

    #[test]
    fn random_sizes_agree_with_the_definition() {
        arbtest::arbtest(|u| {
            let mut size = |most: usize| u.int_in_range(1..=most);
            let (group, n, h, w) = (size(3)?, size(2)?, size(19)?, size(45)?);
            let (c, per, kh, kw) = (size(20)? * group, size(20)?, size(4)?, size(4)?);
            let (strides, dilations) = ([size(3)?, size(4)?], [size(2)?, size(2)?]);
            let full = [
                (h - 1) * strides[0] + (kh - 1) * dilations[0] + 1,
                (w - 1) * strides[1] + (kw - 1) * dilations[1] + 1,
            ];
            let pads = [size(3)? - 1, size(3)? - 1, size(3)? - 1, size(3)? - 1];
            let extra = [size(strides[0])? - 1, size(strides[1])? - 1];
            let out = |axis: usize| (full[axis] + extra[axis]).checked_sub(pads[axis] + pads[axis + 2]);
            let (Some(oh), Some(ow)) = (out(0), out(1)) else { return Ok(()) };
            if n * c * h * w * per * kh * kw > 2_000_000 {
                return Ok(());
            }
            let value = |i: usize| ((i * 7919) % 2003) as f64 / 1001.0 - 1.0;
            let x = tensor(DType::F32, &[n, c, h, w], value);
            let weights = tensor(DType::F32, &[c, per, kh, kw], |i| value(i + 77));
            let op = ConvTranspose { strides, pads, dilations, group, epilogue: None };
            let dims = [n, per * group, oh, ow];
            let (want, sizes) = naive(&op, &x, &weights, dims);
            let got: Vec<f32> = computed(Op::ConvTranspose(op.clone()), &[x, weights], &dims);
            let close = |((got, want), size): ((&f32, &f64), &f64)| (f64::from(*got) - want).abs() <= 1e-6 * size;
            assert!(
                got.iter().zip(&want).zip(&sizes).all(close),
                "{op:?} [{n}, {c}, {h}, {w}] to {per} of {kh} × {kw}"
            );
            Ok(())
        })
        .budget_ms(1000);
    }
}
