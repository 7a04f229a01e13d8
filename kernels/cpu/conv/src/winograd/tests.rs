//! The Winograd algorithm compared with the definition in 64-bit floats, for both tile sizes, and for shapes and values
//! of all kinds.

use super::*;
use crate::geometry_of;
use anabranch_cpu_base::Team;
use anabranch_kernel_testing::products::{keep, run, run_by_teams, spec, tensor};
use anabranch_op::op::{Binary, Conv, Expression, Op, Unary};
use anabranch_op::tensor::Tensor;
use arbtest::arbitrary::Unstructured;
use std::sync::LazyLock;
use std::time::Duration;

const BOTH: [WinogradTile; 2] = [WinogradTile::Two, WinogradTile::Four];

/// Convolution without epilogue.
struct Case {
    op: Conv,
    node: NodeSpec,
    inputs: Vec<Tensor>,
}

impl Case {
    fn new(images: usize, channels: [usize; 2], size: [usize; 2], pads: [usize; 4]) -> Self {
        Self::of_groups(1, images, channels, size, pads)
    }

    /// Creates the convolution of images with so many channels and output channels in each group.
    fn of_groups(
        group: usize,
        images: usize,
        [channels, maps]: [usize; 2],
        size: [usize; 2],
        pads: [usize; 4],
    ) -> Self {
        let op = Conv { strides: [1; 2], pads, dilations: [1; 2], group, epilogue: None };
        let output = [0, 1].map(|axis| size[axis] + pads[axis] + pads[axis + 2] - 2);
        let (read, made) = (group * channels, group * maps);
        let dims = [[images, read, size[0], size[1]], [made, channels, 3, 3], [images, made, output[0], output[1]]];
        let [input, weights, output] = dims.map(|dims| spec(&dims));
        let inputs = vec![tensor(input.shape.dims(), 1), tensor(weights.shape.dims(), 2)];
        let node = NodeSpec { op: Op::Conv(op.clone()), inputs: vec![input, weights], outputs: vec![output] };
        Self { op, node, inputs }
    }

    /// Adds a bias of each output channel, another tensor of the output's shape, and a rectifier.
    fn finished(mut self) -> Self {
        let add = Expression::binary(Binary::Add);
        let both = add.then(&add, 0).and_then(|sum| sum.then(&Expression::unary(Unary::Relu), 0));
        self.op.epilogue = Some(both.expect("few registers"));
        self.node.op = Op::Conv(self.op.clone());
        let output = self.node.outputs[0].clone();
        for extra in [spec(&[1, output.shape.dims()[1], 1, 1]), output] {
            self.inputs.push(tensor(extra.shape.dims(), 3));
            self.node.inputs.push(extra);
        }
        self
    }

    /// Replaces values by a function of an element's coordinates.
    fn with(mut self, input: usize, value: impl FnMut([usize; 4]) -> f32) -> Self {
        let shape = self.inputs[input].shape().clone();
        let &[_, b, c, d] = shape.dims() else { unreachable!("four dimensions") };
        let coordinates = |at: usize| [at / d / c / b, at / d / c % b, at / d % c, at % d];
        let values: Vec<f32> = (0..shape.elements()).map(coordinates).map(value).collect();
        self.inputs[input] = Tensor::from_elements(shape, &values).expect("as many");
        self
    }

    fn kernel(&self, micro: &'static MicroKernel, winograd_tile: WinogradTile) -> Kernel {
        let geometry = geometry_of(&self.op, &self.node).expect("a sound node");
        let mut kernel = Kernel::new(micro, geometry, winograd_tile, &self.node).expect("a sound node");
        keep(&mut kernel, &self.inputs);
        kernel
    }

    /// Returns each output by the definition, and the greatest sum of its terms' magnitudes.
    fn wanted(&self) -> (Vec<f64>, f64) {
        let [x, w] = [0, 1].map(|at| self.inputs[at].elements::<f32>().expect("f32"));
        let [&[_, read, height, width], &[_, maps, rows, columns]] =
            [self.node.inputs[0].shape.dims(), self.node.outputs[0].shape.dims()]
        else {
            unreachable!("four dimensions")
        };
        let channels = read / self.op.group;
        let mut most = 0f64;
        let output = |at: usize| {
            let [image, map, y, x_] =
                [at / columns / rows / maps, at / columns / rows % maps, at / columns % rows, at % columns];
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for (c, tap) in (0..channels).flat_map(|c| (0..9).map(move |tap| (c, tap))) {
                let y = (y + tap / 3).wrapping_sub(self.op.pads[0]);
                let x_ = (x_ + tap % 3).wrapping_sub(self.op.pads[1]);
                if y < height && x_ < width {
                    let first = map / (maps / self.op.group) * channels;
                    let term = f64::from(x[((image * read + first + c) * height + y) * width + x_])
                        * f64::from(w[(map * channels + c) * 9 + tap]);
                    (sum, magnitude) = (sum + term, magnitude + term.abs());
                }
            }
            most = most.max(magnitude);
            sum
        };
        ((0..self.node.outputs[0].shape.elements()).map(output).collect(), most)
    }
}

fn greatest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |most, value| if value.is_nan() { f64::INFINITY } else { most.max(value.abs()) })
}

fn micro_kernels() -> Vec<&'static MicroKernel> {
    MicroKernel::of_all_sizes().into_iter().filter(|micro| Kernel::suits(micro)).collect()
}

#[test]
fn any_shape_agrees_with_the_definition() {
    let case = |u: &mut Unstructured<'_>| {
        let mut size = |least: usize, most: usize| u.int_in_range(least..=most);
        let pads = [size(0, 3)?, size(0, 3)?, size(0, 3)?, size(0, 3)?];
        let channels = [size(1, 40)?, size(1, 70)?];
        let mut side = |axis: usize| size(3usize.saturating_sub(pads[axis] + pads[axis + 2]).max(1), 30);
        let sides = [side(0)?, side(1)?];
        Ok(Case::of_groups(size(1, 3)?, size(0, 3)?, channels, sides, pads))
    };
    arbtest::arbtest(|u| {
        let case = case(u)?;
        let (micros, winograd_tile) = (micro_kernels(), *u.choose(&BOTH)?);
        if micros.is_empty() {
            return Ok(());
        }
        let micro = *u.choose(&micros)?;
        let found = run_by_teams(&case.kernel(micro, winograd_tile), &case.node, &case.inputs);
        let (want, magnitude) = case.wanted();
        let error = greatest(found.iter().zip(&want).map(|(found, want)| f64::from(*found) - want));
        assert!(error <= 5e-6 * magnitude, "{error} of {magnitude}, {winograd_tile:?}: {:?}", case.node);
        let case = case.finished();
        let finished = run_by_teams(&case.kernel(micro, winograd_tile), &case.node, &case.inputs);
        let [bias, other] = [2, 3].map(|at| case.inputs[at].elements::<f32>().expect("f32"));
        let (pixels, maps) = (found.len() / (bias.len() * case.node.inputs[0].shape.dims()[0]).max(1), bias.len());
        for (at, (found, other)) in found.iter().zip(other).enumerate() {
            assert_eq!(finished[at], (found + bias[at / pixels % maps] + other).max(0.0), "{at}: {:?}", case.node);
        }
        Ok(())
    })
    .budget(Duration::from_millis(900));
}

/// Returns numbers that are approximately normally distributed.
fn normal(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..12).map(|_| uniform()).sum()
    }
}

#[test]
fn errors_are_a_hundred_thousandth_of_the_greatest_output() {
    let [mut image, mut filter] = [normal(1), normal(2)];
    let positive = |x: f32| x.max(0.0);
    for (channels, maps, size) in [(512, 16, 7), (512, 16, 17), (64, 48, 28), (16, 16, 33)] {
        let deviation = (2.0 / (9.0 * channels as f32)).sqrt();
        let mut plain = || Case::new(1, [channels, maps], [size; 2], [1; 4]).with(1, |_| filter() * deviation);
        // Images: after a rectifier; far from zero; channels of very different sizes; a smooth image; filters with
        // equal taps.
        let cases = [
            plain().with(0, |_| image()),
            plain().with(0, |_| positive(image())),
            plain().with(0, |_| 10.0 + image()),
            plain().with(0, |[_, c, ..]| positive(image()) * ((c * 37 % 11) as f32 - 5.0).exp2()),
            plain().with(0, |[_, c, y, x]| positive((c as f32 + y as f32 * 0.3).sin() + (x as f32 * 0.2).cos())),
            plain().with(0, |_| positive(image())).with(1, |[m, c, ..]| ((m * 13 + c * 7) as f32).sin()),
        ];
        for (number, case) in cases.iter().enumerate() {
            let (want, _) = case.wanted();
            let most = greatest(want.iter().copied());
            for (micro, winograd_tile) in micro_kernels().into_iter().flat_map(|micro| BOTH.map(|both| (micro, both))) {
                let found = run(&case.kernel(micro, winograd_tile), &case.node, &case.inputs, &Team::solo());
                let error = greatest(found.iter().zip(&want).map(|(found, want)| f64::from(*found) - want));
                assert!(
                    error <= 1e-5 * most,
                    "case {number}, {channels} channels, {winograd_tile:?}: {}",
                    error / most
                );
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    static TEAMS: LazyLock<[Team; 6]> = LazyLock::new(|| [1, 2, 3, 5, 8, 16].map(|threads| Team::new(threads, |_| {})));
    for (size, channels, by_maps) in [([19, 23], 33, true), ([150, 70], 17, false)] {
        let case = Case::new(2, [channels, 70], size, [1, 0, 2, 1]);
        for (micro, winograd_tile) in micro_kernels().into_iter().flat_map(|micro| BOTH.map(|both| (micro, both))) {
            let kernel = case.kernel(micro, winograd_tile);
            assert_eq!(kernel.division(3).parts.tile_rows < 70, by_maps, "both ways are tested");
            let [first, others @ ..] = TEAMS.each_ref().map(|team| run(&kernel, &case.node, &case.inputs, team));
            let same = |other: &Vec<f32>| first.iter().zip(other).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(others.iter().all(same), "{size:?} by {winograd_tile:?}");
        }
    }
    // Blocks of other sizes would sum in another order.
    for (channels, size) in [(64, 14), (128, 28), (64, 7)] {
        let case = Case::new(1, [channels; 2], [size; 2], [1; 4]);
        for (micro, winograd_tile) in micro_kernels().into_iter().flat_map(|micro| BOTH.map(|both| (micro, both))) {
            let kernel = case.kernel(micro, winograd_tile);
            let [first, others @ ..] = TEAMS.each_ref().map(|team| run(&kernel, &case.node, &case.inputs, team));
            let same = |other: &Vec<f32>| first.iter().zip(other).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(others.iter().all(same), "{channels} channels of {size}² by {winograd_tile:?}");
        }
    }
}

#[test]
fn filters_that_were_not_given_are_an_error() {
    let case = Case::new(1, [16, 16], [8, 8], [1; 4]);
    let geometry = geometry_of(&case.op, &case.node).expect("a sound node");
    for micro in micro_kernels() {
        let kernel = Kernel::new(micro, geometry, WinogradTile::Two, &case.node).expect("a sound node");
        let mut output = vec![0; case.node.outputs[0].bytes()];
        let call = Call {
            inputs: &[case.inputs[0].bytes(), &[]],
            outputs: &mut [&mut output],
            rows: 0..1,
            scratch: &mut [],
            team: &Team::solo(),
        };
        assert!(matches!(kernel.run(call), Err(KernelError::Packed { input: 1 })));
    }
}

#[test]
fn layers_of_many_channels_have_parts_for_a_team() {
    for micro in micro_kernels() {
        for (images, channels, size) in
            [(1, [1024, 512], 32), (1, [64, 512], 14), (2, [64, 256], 28), (3, [64, 256], 14)]
        {
            let case = Case::new(images, channels, [size; 2], [1; 4]);
            let geometry = geometry_of(&case.op, &case.node).expect("a sound node");
            let kernel = Kernel::new(micro, geometry, WinogradTile::Four, &case.node).expect("a sound node");
            for threads in [2, 3, 5, 8] {
                let parts = kernel.division(threads).parts.tiles();
                assert!(
                    parts >= threads,
                    "{}, {threads} threads: {parts} parts of {size}² by {channels:?}",
                    micro.name
                );
            }
        }
    }
}
