//! Convolutions of few input channels (the first of a network), of few output channels (its last), or of both, in one
//! group or in many.
//!
//! Panels of windows would cost much compared with the products of few channels, so windows are read in place, from
//! [`Lines`]. A block of output channels and of neighbouring outputs of a row is summed in registers. Either the output
//! channels or the outputs lie along the vectors.

mod maps;
mod pixels;

use super::lines::Lines;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm::Panels;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::layout::{Layout, PackedInput, PackedMatrices, Packing};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{LANES, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_cpu_map::{Epilogue, Uniform};
use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;
use anabranch_op::op::shallow::{Across, PANEL};
use anabranch_op::tensor::Buffer;
use maps::AcrossMaps;
use pixels::AcrossPixels;
use std::sync::Arc;

/// Rows of outputs of a tile.
const ROWS: usize = 4;

/// Maximum numbers of a tile's lines, …
const MOST: usize = 1 << 16;

/// … and their maximum if the lines are read once for every two vectors of output channels and a tile has more than one
/// row: a core's own caches hold this many with the sums and most weights.
const NEAR: usize = 16 << 10;

/// Number of tiles into which few groups are cut, so that each thread of a team has some.
const ENOUGH: usize = 16;

pub(super) struct Kernel {
    geometry: Geometry,
    across: Across,
    lines: Lines,
    /// Weights of each group, in panels of output channels.
    weights: PackedInput,
    /// Offsets in the lines of a group at which the elements begin that each step of the weights covers.
    offsets: Vec<usize>,
    grid: Grid,
    epilogue: Option<Epilogue>,
}

impl Kernel {
    /// Creates the kernel of a convolution that is [shallow](anabranch_op::op::Conv::shallow); `None` if its lines are
    /// too long.
    ///
    /// # Errors
    /// If the epilogue does not fit the node.
    pub(super) fn new(
        geometry: Geometry,
        across: Across,
        node: &NodeSpec,
        constants: &[bool],
    ) -> Result<Option<Self>, KernelError> {
        let Geometry { images, output: [high, wide], window, .. } = geometry;
        let (channels, maps) = (geometry.group_channels(), geometry.group_maps());
        let fits = |rows: usize, most: usize| Lines::new(&geometry, rows).floats().saturating_mul(channels) <= most;
        let (panel, most) = match across {
            Across::Pixels => (PANEL, ROWS),
            Across::Maps => {
                let stripes = ENOUGH.div_ceil(images.saturating_mul(geometry.group).max(1));
                let most = high.div_ceil(stripes).max(1);
                (LANES, (1..=most).take_while(|rows| fits(*rows, NEAR)).last().unwrap_or(1))
            }
        };
        // An image without rows has a tile without rows.
        let most = most.min(high);
        let Some(rows) = (most.min(1)..=most).rev().find(|rows| fits(*rows, MOST)) else { return Ok(None) };
        let lines = Lines::new(&geometry, rows);
        let channel = lines.floats();
        let taps = (0..window[0]).flat_map(|y| (0..window[1]).map(move |x| (y, x)));
        let offsets =
            taps.flat_map(|tap| (0..channels).map(|at| at * channel + lines.offset(tap)).collect::<Vec<_>>()).collect();
        let (batch, columns) = (images * geometry.group, high * wide);
        Ok(Some(Self {
            geometry,
            across,
            lines,
            weights: PackedInput::new(1, Layout::windows(geometry.weights(), panel), constants),
            offsets,
            grid: Grid { batch, rows: maps, columns, tile_rows: maps, tile_columns: rows * wide },
            epilogue: Epilogue::of(node)?,
        }))
    }

    /// Returns the sizes of a thread's workspace, in numbers: the lines, the finish of each output channel, and sums
    /// that are not in the output's order.
    fn workspace(&self) -> [usize; 3] {
        let finishes = self.grid.rows * size_of::<Finish>() / size_of::<f32>();
        let made = if self.across == Across::Maps { 3 * LANES * self.grid.tile_columns } else { 0 };
        [self.geometry.group_channels() * self.lines.floats(), finishes, made]
    }

    /// Computes rows of all output channels of a group.
    fn compute(
        &self,
        tile: &mut Tile<'_, f32>,
        input: &[f32],
        weights: PackedMatrices<'_>,
        extras: &[&[u8]],
        workspace: &mut [f32],
    ) {
        let ([high, wide], plane, maps) = (self.geometry.output, self.geometry.plane(), self.grid.rows);
        let (first, rows) = (tile.columns.start / wide, tile.columns.len() / wide);
        let [of_lines, of_finishes, _] = self.workspace();
        let (lines, workspace) = workspace.split_at_mut(of_lines);
        let (finishes, made) = workspace.split_at_mut(of_finishes);
        let image = self.geometry.group_channels() * plane;
        self.lines.fill(&input[tile.matrix * image..][..image], first..first + rows, lines);
        let row = tile.matrix * maps * high + first;
        let finishes = finishes.as_chunks_mut().0;
        finishes.fill(numbers(Uniform::IDENTITY));
        let mut same = true;
        if let Some(epilogue) = &self.epilogue {
            let mut uniforms = epilogue.uniforms([row * wide, high * wide, rows * wide], extras);
            let mut uniform = Uniform::IDENTITY;
            same = finishes.iter_mut().all(|to| {
                let same = uniforms.next(&mut uniform);
                *to = numbers(uniform);
                same
            });
            if !same {
                finishes.fill(numbers(Uniform::IDENTITY));
            }
        }
        let weights = weights.panels(tile.matrix % self.geometry.group);
        let sums = Sums { kernel: self, lines, weights, finishes, tile };
        match self.across {
            Across::Pixels => vectorised(AcrossPixels(sums)),
            Across::Maps => vectorised(AcrossMaps { sums, made }),
        }
        if let Some(epilogue) = &self.epilogue {
            if same {
                epilogue.activate(tile);
            } else {
                (0..maps).for_each(|map| epilogue.apply(row + map * high, 0, tile.row(map), extras));
            }
        }
    }
}

/// Scale, bias and bounds of an output channel.
type Finish = [f32; 4];

fn numbers(Uniform { scale, bias, least, greatest }: Uniform) -> Finish {
    [scale, bias, least, greatest]
}

/// Outputs of a tile, which a kernel sums.
struct Sums<'a, 'b> {
    kernel: &'a Kernel,
    lines: &'a [f32],
    weights: Panels<'a>,
    finishes: &'a [Finish],
    tile: &'a mut Tile<'b, f32>,
}

impl CpuKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        self.weights.scratch_floats() * size_of::<f32>()
    }

    fn resident_bytes(&self) -> usize {
        size_of_val(&*self.offsets)
    }

    fn packings(&self) -> Vec<Packing> {
        self.weights.packings()
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        self.weights.keep(packed);
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let input = elements(call.inputs[0]);
        let weights = self.weights.matrices(call.inputs, elements_mut(call.scratch))?;
        let (output, extras) = (elements_mut(call.outputs[0]), &call.inputs[2..]);
        call.team.run_tiles(output, self.grid, &|mut tile| {
            let floats = self.workspace().iter().sum();
            with_workspace(floats, |space| self.compute(&mut tile, input, weights, extras, space));
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::spec;
    use anabranch_cpu_base::geometry::Steps;
    use anabranch_cpu_base::vector::{levels, vectorised_at};
    use anabranch_op::op::{Conv, Op};

    /// Returns a convolution of one image, and its kernel.
    fn kernel(parts: [usize; 3], size: [usize; 2], window: [usize; 2], steps: Steps) -> (NodeSpec, Option<Kernel>) {
        let Steps { strides, pads, dilations } = steps;
        let geometry = Geometry::of_image(parts, size, window, steps);
        let [channels, maps, group] = parts;
        let op = Op::Conv(Conv { strides, pads, dilations, group, epilogue: None });
        let inputs = [[1, channels, size[0], size[1]], [maps, channels / group, window[0], window[1]]];
        let outputs = [[1, maps, geometry.output[0], geometry.output[1]]];
        let node = NodeSpec {
            op,
            inputs: inputs.map(|dims| spec(&dims)).into(),
            outputs: outputs.map(|dims| spec(&dims)).into(),
        };
        let across = if group > 1 { Across::Maps } else { Across::Pixels };
        let kernel = Kernel::new(geometry, across, &node, &[]).expect("a sound node");
        (node, kernel)
    }

    #[test]
    fn sums_of_every_instruction_set_are_those_of_the_definition() {
        // Rows of all lengths have blocks of all sizes, and two rows may share a block. These cases and the next have
        // output channels along the vectors.
        let rows = (1..=30).map(|wide| {
            let stride = 1 + wide % 3;
            (2, 2, if wide % 4 == 0 { 32 } else { 16 }, [2 + wide % 5, wide], [3, 3], [stride, stride], [1, 1])
        });
        for (group, channels, maps, size, window, strides, dilations) in rows.chain([
            (2, 16, 16, [14, 14], [3, 3], [1, 1], [1, 1]),
            (3, 5, 32, [7, 7], [3, 3], [1, 1], [1, 1]),
            (2, 8, 47, [13, 30], [5, 3], [2, 2], [1, 2]),
            (2, 32, 30, [6, 1], [2, 2], [1, 3], [1, 1]),
            (2, 31, 64, [9, 61], [3, 3], [2, 2], [1, 1]),
            (1, 3, 16, [9, 60], [3, 3], [2, 2], [1, 1]),
            (1, 1, 8, [7, 61], [5, 4], [1, 1], [1, 1]),
            (1, 4, 15, [11, 31], [2, 7], [2, 2], [2, 1]),
            (1, 2, 31, [8, 45], [3, 2], [1, 3], [1, 2]),
            (1, 9, 3, [9, 60], [3, 3], [1, 1], [1, 1]),
            (1, 40, 5, [9, 61], [3, 5], [1, 2], [1, 1]),
            (1, 90, 1, [9, 120], [3, 3], [2, 1], [1, 1]),
        ]) {
            let steps = Steps { strides, pads: [1, 2, 0, 1], dilations };
            let (node, kernel) = kernel([group * channels, group * maps, group], size, window, steps);
            let kernel = kernel.expect("few channels or maps, and wide rows");
            let numbers = |count: usize| (0..count).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect::<Vec<_>>();
            let (image, raw) = (numbers(channels * size[0] * size[1]), numbers(node.inputs[1].shape.elements()));
            let mut scratch = vec![0.0; kernel.scratch_bytes() / size_of::<f32>()];
            let inputs = [bytemuck::cast_slice(&image), bytemuck::cast_slice(&raw)];
            let weights = kernel.weights.matrices(&inputs, &mut scratch).expect("weights of this call").panels(0);
            let [high, wide] = kernel.geometry.output;
            let mut lines = vec![f32::NAN; kernel.workspace()[0]];
            let rows = kernel.grid.tile_columns / wide;
            assert!(group > 1 || rows == ROWS.min(high) || channels == 90, "what all rows need fits");
            kernel.lines.fill(&image, 0..rows, &mut lines);
            let finishes: Vec<Finish> = (0..maps).map(|map| [2.0, map as f32 / 8.0, -1.5, 4.0]).collect();
            for level in levels() {
                let mut out = vec![f32::NAN; maps * rows * wide];
                let (kernel, lines, finishes) = (&kernel, &lines, &finishes);
                let tile = &mut Tile::whole(&mut out, rows * wide);
                let mut made = vec![f32::NAN; kernel.workspace()[2]];
                let sums = Sums { kernel, lines, weights, finishes, tile };
                match kernel.across {
                    Across::Pixels => vectorised_at(level, AcrossPixels(sums)),
                    Across::Maps => vectorised_at(level, AcrossMaps { sums, made: &mut made }),
                }
                for (at, found) in out.iter().enumerate() {
                    let (map, y, x) = (at / (rows * wide), at / wide % rows, at % wide);
                    let taps = window[0] * window[1];
                    let terms = (0..channels * taps).map(|step| {
                        let (channel, tap) = (step / taps, step % taps);
                        let row = y * strides[0] + tap / window[1] * dilations[0];
                        let column = x * strides[1] + tap % window[1] * dilations[1];
                        let inside = (1..=size[0]).contains(&row) && (2..size[1] + 2).contains(&column);
                        let place = || (channel * size[0] + row - 1) * size[1] + column - 2;
                        let element = if inside { image[place()] } else { 0.0 };
                        f64::from(element) * f64::from(raw[map * channels * taps + step])
                    });
                    let want = (terms.sum::<f64>() * 2.0 + map as f64 / 8.0).clamp(-1.5, 4.0);
                    assert!((f64::from(*found) - want).abs() < 3e-5, "level {level}, {at} of {node:?}: {found} {want}");
                }
            }
        }
    }

    #[test]
    fn other_kernels_have_lines_that_are_too_long() {
        let steps = Steps { strides: [1, 1], pads: [0; 4], dilations: [1; 2] };
        assert!(kernel([3, 16, 1], [4, 1 << 20], [3, 3], steps).1.is_none());
        assert!(kernel([6, 32, 2], [20, 40], [3, 3], steps).1.is_some());
    }

    #[test]
    fn lines_fit_if_output_channels_are_said_to_lie_along_the_vectors() {
        let mut found = [0; 2];
        for (channels, wide) in [5, 31, 64, 100, 128].into_iter().flat_map(|c| [4, 63, 100, 139, 256].map(|w| (c, w))) {
            for (window, stride) in [[3, 3], [5, 5], [7, 3]].into_iter().flat_map(|w| (1..=4).map(move |s| (w, s))) {
                for (group, down) in [(1, 1), (1, 6), (2, 1), (2, 6)] {
                    let steps = Steps { strides: [1, stride], pads: [0, 1, 0, 1], dilations: [down, 1] };
                    let size = [(window[0] - 1) * down + 1, (wide - 1) * stride + window[1] - 2];
                    let parts = [group * channels, 16 * group, group];
                    let (node, _) = kernel(parts, size, window, steps);
                    let Op::Conv(op) = &node.op else { unreachable!("a convolution") };
                    let fits = op.shallow(&node) == Some(Across::Maps);
                    found[usize::from(fits)] += 1;
                    let geometry = Geometry::of_image(parts, size, window, steps);
                    let kernel = Kernel::new(geometry, Across::Maps, &node, &[]).expect("a sound node");
                    assert!(!fits || kernel.is_some(), "{geometry:?}");
                }
            }
        }
        assert!(found.iter().all(|count| *count > 100), "{found:?}");
    }
}
