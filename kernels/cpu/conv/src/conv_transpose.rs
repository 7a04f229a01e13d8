//! Transposed convolution: the window spreads each input element over the output.
//!
//! One matrix product, of the transposed weights with the image, gives the contribution of every window element for
//! every pixel. It is computed for a chunk of the image and some output channels at a time, so that it stays in the L2
//! cache. Each output row is then the sum of the shifted product rows that land on it, in a fixed order. Rows of equal
//! remainder by the stride are added together. If windows overlap, neighbouring tiles of the output both compute the
//! pixels that reach into both.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm::{Finish, Left, MicroKernel, Panels, Product, Right, View, pack_panels};
use anabranch_cpu_base::layout::{Layout, PackedInput, PackedMatrices, Packing};
use anabranch_cpu_base::strided::{add_every, interleave};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel, Team};
use anabranch_cpu_map::Epilogue;
use anabranch_op::error::KernelError;
use anabranch_op::op::{ConvTranspose, NodeSpec};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Approximate number of pixels that reach into a tile of output rows.
const PIXELS: usize = 512;

/// Maximum pixels of a product: more than a panel has.
const CHUNK: usize = 1024;

/// Maximum numbers of a thread's workspace, 2 MiB, independent of the image's size, the strides and the dilations. If
/// many channels or a large window need more than this for one panel of the micro-kernel's pixels, the workspace is as
/// large as that panel needs.
const WORKSPACE: usize = 512 << 10;

/// Approximate columns of the output in a tile of one row.
const LINE: usize = 4096;

/// Maximum columns of a tile.
const LONGEST: usize = 32 << 10;

/// Approximate rows of a product that is computed at a time.
const ROWS: usize = 128;

/// Number of tiles from which no finer cut is needed to keep a team busy.
const ENOUGH_TILES: usize = 16;

/// Multiply-adds below which a tile is not cut further.
const TILE_WORK: usize = 1 << 20;

/// Kernel of a transposed convolution of images of one size.
struct ConvTransposeKernel {
    op: ConvTranspose,
    micro: &'static MicroKernel,
    /// Input and output channels of a group.
    channels: usize,
    maps: usize,
    input: [usize; 2],
    window: [usize; 2],
    output: [usize; 2],
    /// One matrix per group: the rows are the elements of its output channels' windows.
    weights: PackedInput,
    /// Maximum output channels and pixels of a product.
    together: usize,
    chunk: usize,
    /// Maximum output columns of a tile.
    line: usize,
    /// One matrix per image and group, with a row per output channel.
    grid: Grid,
    epilogue: Option<Epilogue>,
}

/// Prepares a transposed convolution.
pub(crate) fn prepare(
    node: &NodeSpec,
    op: &ConvTranspose,
    constants: &[bool],
) -> Result<Box<dyn CpuKernel>, KernelError> {
    Ok(Box::new(ConvTransposeKernel::new(MicroKernel::best(), node, op, constants)?))
}

impl ConvTransposeKernel {
    fn new(
        micro: &'static MicroKernel,
        node: &NodeSpec,
        op: &ConvTranspose,
        constants: &[bool],
    ) -> Result<Self, KernelError> {
        let dims = |shape: &Shape| <[usize; 4]>::try_from(shape.dims()).expect("images that were checked");
        let [[n, c, h, w], [_, maps, kh, kw], [_, _, oh, ow]] =
            [&node.inputs[0], &node.inputs[1], &node.outputs[0]].map(|spec| dims(&spec.shape));
        let small = |size: &usize| *size <= 1 << 31;
        let sizes = op.strides.iter().chain(&op.dilations).chain(&op.pads).chain([&h, &w, &kh, &kw, &oh, &ow]);
        node.require(sizes.into_iter().all(small), "its sizes are below 2³¹")?;
        let (channels, taps) = (c / op.group, kh * kw);
        // The weights of a group are a matrix that fits the address space, even without channels.
        Shape::new([maps, taps, channels.max(1)])?;
        // Products begin at a block of the micro-kernel's rows.
        let aligned = |maps: &usize| maps.saturating_mul(taps).is_multiple_of(micro.rows);
        let unit = (1..=micro.rows).find(aligned).unwrap_or(micro.rows);
        let together = (ROWS / unit.saturating_mul(taps).max(1)).max(1) * unit;
        let per_pixel = together.min(maps).saturating_mul(taps).saturating_add(channels);
        let fitting = (WORKSPACE - 3 * LONGEST) / per_pixel.max(1) / micro.columns * micro.columns;
        // Whole panels: a part of a panel takes as much memory as a whole one.
        let most = CHUNK / micro.columns * micro.columns;
        let chunk = fitting.clamp(micro.columns, most).min((h * w).max(1).next_multiple_of(micro.columns));
        Shape::new([per_pixel, chunk])?;
        let overlap = [(0, kh), (1, kw)].map(|(axis, window)| {
            let reach = (window.max(1) - 1) * op.dilations[axis] + 1;
            reach.saturating_sub(op.strides[axis]).div_ceil(op.strides[axis])
        });
        // Tiles have whole rows, unless rows are too long or there is only one row.
        let longest = match ow {
            ..=LONGEST if oh > 1 => ow,
            _ => LINE.max(overlap[1].saturating_mul(4 * op.strides[1])).min(LONGEST),
        };
        let line = ow.div_ceil(ow.div_ceil(longest.max(1)).max(1));
        let across = w.min(line.div_ceil(op.strides[1]) + overlap[1]);
        let high = match PIXELS.div_ceil(across.max(1)).max(overlap[0].saturating_mul(4)).saturating_mul(op.strides[0])
        {
            high if line == ow => high.min(oh),
            _ => 1,
        };
        let mut grid = Grid {
            batch: n * op.group,
            rows: maps,
            columns: oh * ow,
            tile_rows: maps.next_multiple_of(unit),
            tile_columns: high * line,
        };
        let down = h.min(high.div_ceil(op.strides[0]) + overlap[0]);
        let work = [channels, taps, across, down].into_iter().fold(1, usize::saturating_mul);
        // Tiles with fewer output channels than a product would pack the same pixels again for little work.
        while grid.tiles() < ENOUGH_TILES
            && grid.tile_rows > together
            && grid.tile_rows.saturating_mul(work) > 2 * TILE_WORK
        {
            grid.tile_rows = (grid.tile_rows / 2).next_multiple_of(unit).max(together);
        }
        Ok(Self {
            op: op.clone(),
            micro,
            channels,
            maps,
            input: [h, w],
            window: [kh, kw],
            output: [oh, ow],
            weights: PackedInput::new(
                1,
                Layout::right(op.group, [channels, maps * taps], false, micro.rows),
                constants,
            ),
            together: together.min(maps),
            chunk,
            line,
            grid,
            epilogue: Epilogue::of(node)?,
        })
    }

    /// Returns the position along an axis of input index 0 for the element `tap` of the window. It may lie outside the
    /// output.
    fn start(&self, axis: usize, tap: usize) -> i64 {
        tap as i64 * self.op.dilations[axis] as i64 - self.op.pads[axis] as i64
    }

    /// Returns the first pixel from `from` on that element `tap` of the window puts into `outputs` along an axis, or
    /// after them.
    fn first(&self, axis: usize, tap: usize, outputs: &Range<usize>, from: usize) -> usize {
        let before = (outputs.start as i64 - self.start(axis, tap)).max(0) as usize;
        before.div_ceil(self.op.strides[axis]).max(from)
    }

    /// Whether some of these pixels reach into `outputs` along an axis.
    fn reach(&self, axis: usize, pixels: &Range<usize>, outputs: &Range<usize>) -> bool {
        (0..self.window[axis]).any(|tap| {
            let first = self.first(axis, tap, outputs, pixels.start);
            let place = (first * self.op.strides[axis]) as i64 + self.start(axis, tap);
            first < pixels.end && place < outputs.end as i64
        })
    }

    /// Returns the pixels that reach into `outputs` along an axis, and some between, in equal chunks of at most `most`.
    /// If `outputs` is the whole axis, all pixels are returned, so that pixels of neighbouring rows are consecutive.
    fn chunks(&self, axis: usize, outputs: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
        let first = self.first(axis, self.window[axis].saturating_sub(1), &outputs, 0);
        let behind = (outputs.end as i64 - 1 - self.start(axis, 0)).div_euclid(self.op.strides[axis] as i64) + 1;
        let behind = behind.clamp(0, self.input[axis] as i64) as usize;
        let (first, behind) = if outputs.len() == self.output[axis] { (0, self.input[axis]) } else { (first, behind) };
        let length = behind.saturating_sub(first);
        let chunk = length.div_ceil(length.div_ceil(most).max(1)).max(1);
        let chunks = (first..behind).step_by(chunk).map(move |at| at..behind.min(at + chunk));
        chunks.filter(move |chunk| self.reach(axis, chunk, &outputs))
    }

    /// Returns the sizes of a thread's workspace, in numbers: panels of a chunk, a product, and the sums of a row with
    /// one more row.
    fn workspace(&self) -> [usize; 3] {
        let taps = self.window[0] * self.window[1];
        let panels = Panels::floats(self.micro.columns, self.channels, self.chunk);
        [panels, self.together * taps * self.chunk, 3 * self.line]
    }

    /// Computes a tile: some outputs of some output channels.
    fn compute(&self, tile: &mut Tile<'_, f32>, images: &[f32], weights: PackedMatrices<'_>, extras: &[&[u8]]) {
        let image = self.channels * self.input[0] * self.input[1];
        let image = &images[tile.matrix * image..][..image];
        let weights = weights.panels(tile.matrix % self.op.group);
        let sizes = self.workspace();
        with_workspace(sizes.iter().sum(), |memory| {
            for outputs in tile.rectangles(self.output[1]) {
                let across = self.chunks(1, outputs[1].clone(), self.chunk).next().map_or(0, |chunk| chunk.len());
                // The pixels of a chunk must be consecutive.
                let most = if across == self.input[1] { self.chunk / across.max(1) } else { 1 };
                let mut fresh = true;
                for rows in self.chunks(0, outputs[0].clone(), most) {
                    for columns in self.chunks(1, outputs[1].clone(), self.chunk) {
                        let step = Step { outputs: &outputs, pixels: [rows.clone(), columns], fresh };
                        self.add(tile, &step, image, weights, memory);
                        fresh = false;
                    }
                }
                self.finish(tile, &outputs, fresh, extras);
            }
        });
    }

    /// Returns the positions of a rectangle's elements in each row of a tile.
    fn place(&self, tile: &Tile<'_, f32>, [rows, columns]: &[Range<usize>; 2]) -> Range<usize> {
        let start = rows.start * self.output[1] + columns.start - tile.columns.start;
        start..start + rows.len() * columns.len()
    }

    /// Adds one step to all output channels of a tile.
    fn add(&self, tile: &mut Tile<'_, f32>, step: &Step<'_>, image: &[f32], weights: Panels<'_>, memory: &mut [f32]) {
        let ([height, width], taps, [rows, columns]) = (self.input, self.window[0] * self.window[1], &step.pixels);
        let (channels, pixels, place) = (self.channels, rows.len() * columns.len(), self.place(tile, step.outputs));
        let [panels, spread, _] = self.workspace();
        let (panels, memory) = memory.split_at_mut(panels);
        let (spread, sums) = memory.split_at_mut(spread);
        let panels = &mut panels[..Panels::floats(self.micro.columns, channels, pixels)];
        let image = image.get(rows.start * width + columns.start..).unwrap_or(&[]);
        let image = View::with_strides(image, channels, pixels, (height * width, 1));
        pack_panels(image, 0..channels, 0..pixels, self.micro.columns, panels);
        let right = Right::Packed(Panels::new(panels, channels, pixels, self.micro.columns));
        for map in (0..tile.rows.len()).step_by(self.together) {
            let maps = map..tile.rows.len().min(map + self.together);
            let above = (tile.rows.start + map) * taps;
            let left = Panels::new(weights.from(0, above), channels, maps.len() * taps, self.micro.rows);
            let spread = &mut spread[..maps.len() * taps * pixels];
            product(Product::new(self.micro, Left::Packed(left), right), maps.len() * taps, spread);
            for (at, map) in maps.enumerate() {
                let spread = &spread[at * taps * pixels..][..taps * pixels];
                let out = &mut tile.row(map)[place.clone()];
                vectorised(Gather { kernel: self, step, spread, sums, out });
            }
        }
    }

    /// Finishes a rectangle of outputs: fills it with zeros if no step wrote it, and applies the epilogue.
    fn finish(&self, tile: &mut Tile<'_, f32>, outputs: &[Range<usize>; 2], fresh: bool, extras: &[&[u8]]) {
        let place = self.place(tile, outputs);
        for map in 0..tile.rows.len() {
            let plane = tile.matrix * self.maps + tile.rows.start + map;
            let out = &mut tile.row(map)[place.clone()];
            if fresh {
                out.fill(0.0);
            }
            if let Some(epilogue) = &self.epilogue {
                epilogue.apply(plane * self.output[0] + outputs[0].start, outputs[1].start, out, extras);
            }
        }
    }
}

/// Contribution of a chunk of the image to some outputs.
struct Step<'a> {
    /// Rows and columns of the outputs.
    outputs: &'a [Range<usize>; 2],
    /// Rows and columns of the chunk.
    pixels: [Range<usize>; 2],
    /// Whether no step has written the outputs yet.
    fresh: bool,
}

/// Computes a whole product of `rows` rows.
fn product(product: Product<'_>, rows: usize, out: &mut [f32]) {
    let columns = out.len().checked_div(rows).unwrap_or(0);
    let grid = Grid { batch: 1, rows, columns, tile_rows: rows, tile_columns: columns };
    Team::solo().run_tiles(out, grid, &|mut tile| product.compute(&mut tile, Finish::Nothing));
}

/// Sums the product's rows for one output channel.
struct Gather<'a> {
    kernel: &'a ConvTransposeKernel,
    step: &'a Step<'a>,
    /// Contributions of each element of the window for each pixel.
    spread: &'a [f32],
    /// Memory for an output row, ordered by the remainders of columns by the stride, and for one more row.
    sums: &'a mut [f32],
    out: &'a mut [f32],
}

impl Loop for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, step: Step { outputs: [rows, columns], pixels, fresh }, spread, sums, out } = self;
        let (wide, width, stride) = (columns.len(), pixels[1].len(), kernel.op.strides[1]);
        let length = wide.div_ceil(stride);
        let (line, sums) = sums.split_at_mut(wide);
        let sums = &mut sums[..stride.min(wide) * length];
        for (row, out) in rows.clone().zip(out.chunks_exact_mut(wide)) {
            let sources = |down: usize| {
                let from = row as i64 - kernel.start(0, down);
                let (source, rest) = (from.div_euclid(kernel.op.strides[0] as i64), from % kernel.op.strides[0] as i64);
                let inside = rest == 0 && (pixels[0].start as i64..pixels[0].end as i64).contains(&source);
                inside.then(|| source as usize - pixels[0].start)
            };
            if !*fresh && (0..kernel.window[0]).all(|down| sources(down).is_none()) {
                continue;
            }
            sums.fill(0.0);
            for (down, spread) in spread.chunks_exact(spread.len() / kernel.window[0]).enumerate() {
                let Some(source) = sources(down) else { continue };
                for (across, spread) in spread.chunks_exact(pixels[0].len() * width).enumerate() {
                    let line = &spread[source * width..][..width];
                    let start = kernel.start(1, across) - columns.start as i64 + (pixels[1].start * stride) as i64;
                    let (shift, part) = (start.div_euclid(stride as i64), start.rem_euclid(stride as i64) as usize);
                    // Column x lands at x + shift, among the columns with this remainder.
                    let line = line.get(shift.min(0).unsigned_abs() as usize..).unwrap_or(&[]);
                    let sums = sums.chunks_exact_mut(length).nth(part).unwrap_or(&mut []);
                    let sums = sums.get_mut(shift.max(0) as usize..).unwrap_or(&mut []);
                    add_every::<I>(sums, line, 1, 1.0);
                }
            }
            if *fresh {
                interleave(sums, length, out);
            } else {
                interleave(sums, length, line);
                out.iter_mut().zip(&*line).for_each(|(out, sum)| *out += sum);
            }
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
    use super::ConvTransposeKernel;
    use crate::testing::{computed, node, spec, tensor};
    use anabranch_cpu_base::gemm::MicroKernel;
    use anabranch_kernel_testing::products::{keep, run_by_teams};
    use anabranch_op::op::{Binary, ConvTranspose, Expression, NodeSpec, Op};
    use anabranch_op::{DType, Tensor};

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

    /// Returns the typed kernel for a processor.
    fn kernel(
        micro: &'static MicroKernel,
        op: ConvTranspose,
        [x, weights, out]: [[usize; 4]; 3],
    ) -> ConvTransposeKernel {
        let inputs = [x, weights].map(|dims| spec(&dims)).into();
        let node = NodeSpec { op: Op::ConvTranspose(op.clone()), inputs, outputs: vec![spec(&out)] };
        node.check().expect("a sound node");
        ConvTransposeKernel::new(micro, &node, &op, &[false, true]).expect("sizes that fit")
    }

    /// Returns the outputs of the kernel for a processor.
    fn computed_by(
        micro: &'static MicroKernel,
        op: &ConvTranspose,
        inputs: &[Tensor; 2],
        dims: [usize; 4],
    ) -> Vec<f32> {
        let node = node(Op::ConvTranspose(op.clone()), inputs, DType::F32, &dims);
        let mut kernel = ConvTransposeKernel::new(micro, &node, op, &[false, true]).expect("sizes that fit");
        keep(&mut kernel, inputs);
        run_by_teams(&kernel, &node, inputs)
    }

    /// Returns the outputs' size without output padding.
    fn sizes(op: &ConvTranspose, image: [usize; 2], window: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|axis| {
            let full = (image[axis] - 1) * op.strides[axis] + (window[axis] - 1) * op.dilations[axis] + 1;
            full - op.pads[axis] - op.pads[axis + 2]
        })
    }

    #[test]
    fn workspaces_have_a_bound_whatever_the_image() {
        let long = 1 << 20;
        for (channels, [h, w], [kh, kw], stride, dilations) in [
            (64, [1, long], [1, 4], 2, [1, 1]),
            (512, [1, long], [1, 16], 8, [1, 1]),
            (3, [1, long], [1, 4], 1 << 10, [1, 1]),
            (64, [64, 64], [3, 3], 1, [1000, 1000]),
            (64, [1, long], [1, 3], 2, [1, 1000]),
            (16, [5, 1 << 16], [3, 3], 2, [1, 1]),
            (64, [700, 700], [4, 4], 2, [1, 1]),
        ] {
            let strides = [1, stride];
            let [oh, ow] = [
                (h - 1) * strides[0] + (kh - 1) * dilations[0] + 1,
                (w - 1) * strides[1] + (kw - 1) * dilations[1] + 1,
            ];
            let op = ConvTranspose { strides, pads: [0; 4], dilations, group: 1, epilogue: None };
            for micro in MicroKernel::of_all_sizes() {
                let dims = [[1, channels, h, w], [channels, 32, kh, kw], [1, 32, oh, ow]];
                let kernel = kernel(micro, op.clone(), dims);
                let floats: usize = kernel.workspace().iter().sum();
                assert!(floats <= super::WORKSPACE, "{}: {h} × {w} by {dilations:?}", micro.name);
                assert!(h > 1 || kernel.grid.tiles() >= super::ENOUGH_TILES, "{:?}", kernel.grid);
            }
        }
    }

    #[test]
    fn one_pixel_is_multiplied_once() {
        let op = ConvTranspose { strides: [1, 1], pads: [0; 4], dilations: [1, 1], group: 1, epilogue: None };
        let kernel = kernel(MicroKernel::best(), op, [[1, 128, 1, 1], [128, 16, 4, 4], [1, 16, 4, 4]]);
        assert_eq!(kernel.grid.tile_columns, 16, "each tile would compute all products");
    }

    #[test]
    fn pixels_come_in_chunks() {
        let value = |i: usize| ((i * 7) % 13) as f64 - 6.0;
        for ([h, w], [kh, kw], strides, dilations, pads) in [
            ([1, 9000], [1, 4], [1, 2], [1, 1], [0, 1, 0, 1]),
            ([1, 3000], [1, 3], [1, 1], [1, 2500], [0, 0, 0, 700]),
            ([3, 1500], [3, 2], [2, 1], [1, 1], [1, 0, 0, 0]),
            ([70, 40], [3, 2], [2, 1], [1, 3], [0; 4]),
            ([9, 7], [2, 2], [1, 3], [100, 50], [3, 2, 1, 0]),
            ([2, 40], [2, 2], [1, 900], [1, 1], [0; 4]),
        ] {
            let op = ConvTranspose { strides, pads, dilations, group: 1, epilogue: None };
            let [oh, ow] = sizes(&op, [h, w], [kh, kw]);
            let (x, weights) = (tensor(DType::F32, &[1, 3, h, w], value), tensor(DType::F32, &[3, 2, kh, kw], value));
            require_exact(&op, &[x, weights], [1, 2, oh, ow]);
        }
    }

    /// Checks that the outputs of small integers are exact for every processor.
    fn require_exact(op: &ConvTranspose, inputs: &[Tensor; 2], dims: [usize; 4]) {
        let (want, _) = naive(op, &inputs[0], &inputs[1], dims);
        for micro in MicroKernel::of_all_sizes() {
            let got = computed_by(micro, op, inputs, dims);
            assert!(got.iter().zip(&want).all(|(got, want)| f64::from(*got) == *want), "{}: {dims:?}", micro.name);
        }
    }

    #[test]
    fn images_around_every_panel_are_right_for_every_processor() {
        let value = |i: usize| ((i * 7) % 13) as f64 - 6.0;
        let around = |size: usize| [size - 1, size, size + 1];
        let panels = MicroKernel::of_all_sizes().into_iter().flat_map(|micro| around(micro.columns));
        let lines = panels.chain(around(super::CHUNK)).chain([1008, 1056]).map(|w| ([1, w], [1, 3], 1));
        // The layers of decoders.
        let images = [([8, 128], [3, 3], 1), ([2, 512], [4, 4], 2), ([8, 131], [2, 2], 2), ([3, 350], [3, 3], 2)];
        for (image, window, stride) in lines.chain(images) {
            let pad = usize::from(window == [4, 4]);
            let op =
                ConvTranspose { strides: [stride; 2], pads: [pad; 4], dilations: [1; 2], group: 1, epilogue: None };
            let [oh, ow] = sizes(&op, image, window);
            let x = tensor(DType::F32, &[1, 1, image[0], image[1]], value);
            let weights = tensor(DType::F32, &[1, 1, window[0], window[1]], value);
            require_exact(&op, &[x, weights], [1, 1, oh, ow]);
        }
    }

    /// Computes the definition in `f64`.
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
            let (want, magnitudes) = naive(&op, &x, &weights, dims);
            let micro = *u.choose(&MicroKernel::of_all_sizes())?;
            let got = computed_by(micro, &op, &[x, weights], dims);
            let close = |((got, want), size): ((&f32, &f64), &f64)| (f64::from(*got) - want).abs() <= 1e-6 * size;
            assert!(
                got.iter().zip(&want).zip(&magnitudes).all(close),
                "{}: {op:?} [{n}, {c}, {h}, {w}] to {per} of {kh} × {kw}",
                micro.name
            );
            Ok(())
        })
        .budget_ms(1000);
    }
}
