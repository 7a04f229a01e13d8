//! Convolutions of integers compared with their definition in 64 bits, for all block instructions and numbers of
//! threads.

use super::conv::prepare_for;
use super::tests::{Rounded, any_rounding, grid, integers, numbers, output, wide};
use super::*;
use crate::testing::prepare as prepare_node;
use crate::testing::{run_kernel, shape};
use anabranch_cpu_base::Team;
use anabranch_op::op::{IntegerConv, Op};
use anabranch_op::tensor::TensorSpec;
use arbtest::arbitrary::Unstructured;
use std::time::Duration;

/// Images and their size, groups, input and output channels of each, and window.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    images: usize,
    size: [usize; 2],
    group: usize,
    channels: usize,
    maps: usize,
    window: [usize; 2],
}

/// Returns the node, if the window fits the image.
fn node_of(op: &IntegerConv, sizes: Sizes, dtypes: [DType; 2], rounded: Rounded) -> Option<NodeSpec> {
    let Sizes { images, size, group, channels, maps, window } = sizes;
    let mut output = [0; 2];
    for axis in 0..2 {
        let reach = (window[axis] - 1) * op.dilations[axis] + 1;
        let rest = (size[axis] + op.pads[axis] + op.pads[axis + 2]).checked_sub(reach)?;
        output[axis] = rest / op.strides[axis] + 1;
    }
    let maps = group * maps;
    let spec = |dtype, dims: &[usize]| TensorSpec::new(dtype, shape(dims));
    let mut inputs = vec![
        spec(dtypes[0], &[images, group * channels, size[0], size[1]]),
        spec(dtypes[1], &[maps, channels, window[0], window[1]]),
        spec(DType::I32, &[maps]),
    ];
    inputs.extend(op.zero_points.then(|| spec(DType::I32, &[maps])));
    let of_grid = |dtype| vec![spec(DType::F64, &[maps]), spec(DType::F64, &[maps]), spec(dtype, &[1])];
    inputs.extend(rounded.map_or(Vec::new(), |(dtype, _)| of_grid(dtype)));
    let made = rounded.map_or(DType::I32, |(dtype, _)| dtype);
    let outputs = vec![spec(made, &[images, maps, output[0], output[1]])];
    let op = IntegerConv { rounding: rounded.map(|(_, rounding)| rounding), ..op.clone() };
    Some(NodeSpec { op: Op::IntegerConv(op), inputs, outputs })
}

fn check(dots: Dots, op: &IntegerConv, sizes: Sizes, (dtypes, rounded): ([DType; 2], Rounded), constant: bool) {
    let Some(node) = node_of(op, sizes, dtypes, rounded) else { return };
    node.check().expect("sound");
    let Op::IntegerConv(op) = &node.op else { return };
    let Sizes { size, channels, maps, window, .. } = sizes;
    let dims = |input: usize| node.inputs[input].shape.dims();
    let mut inputs = vec![numbers(dtypes[0], dims(0), 1), numbers(dtypes[1], dims(1), 2)];
    inputs.extend((2..3 + usize::from(op.zero_points)).map(|input| integers(dims(input)[0], input)));
    inputs.extend(grid(dims(2)[0], rounded));
    let mut kernel = prepare_for(dots, op, &node, &[false, constant]).expect("a sound node");
    anabranch_cpu_base::pack(&mut *kernel, |input| Some(inputs[input].bytes()));
    let (x, w) = (wide(&inputs[0]), wide(&inputs[1]));
    let parameter = |input: usize, at: usize| i64::from(inputs[input].elements::<i32>().expect("i32")[at]);
    let made = node.outputs[0].shape.dims();
    let (all, plane) = (made[1], made[2] * made[3]);
    let value = |at: usize| {
        let (image, map, y, column) = (at / plane / all, at / plane % all, at / made[3] % made[2], at % made[3]);
        let zero = if op.zero_points { parameter(3, map) } else { 0 };
        let mut sum = parameter(2, map);
        for (channel, tap) in (0..channels).flat_map(|c| (0..window[0] * window[1]).map(move |tap| (c, tap))) {
            let row = (y * op.strides[0] + tap / window[1] * op.dilations[0]).wrapping_sub(op.pads[0]);
            let column = (column * op.strides[1] + tap % window[1] * op.dilations[1]).wrapping_sub(op.pads[1]);
            let plane = image * dims(0)[1] + map / maps * channels + channel;
            let covered = row < size[0] && column < size[1];
            let number = if covered { x[(plane * size[0] + row) * size[1] + column] } else { i64::from(op.border) };
            sum += number * (w[(map * channels + channel) * window[0] * window[1] + tap] - zero);
        }
        (sum as i32, map)
    };
    let sums: Vec<(i32, usize)> = (0..node.outputs[0].shape.elements()).map(value).collect();
    let want = output(&sums, &inputs, rounded);
    for threads in [1, 3] {
        let made = run_kernel(&*kernel, &node, &inputs, &Team::new(threads, |_| {}), &[0, 1]).expect("runs");
        assert!(made[0].bytes() == want, "{dots:?}, {threads} threads, {node:?}");
    }
}

#[test]
fn convolutions_are_exact() {
    let random = |u: &mut Unstructured<'_>| {
        let dots = *u.choose(&Dots::available())?;
        let kinds = [DType::U8, DType::I8];
        let dtypes = [*u.choose(&kinds)?, *u.choose(&kinds)?];
        let channels = *u.choose(&[1, 1, 2, 3, 4, 8, 12, 9])?;
        let mut some = |most: usize| u.int_in_range(1..=most);
        let sizes = Sizes {
            images: some(2)?,
            size: [some(14)?, some(60)?],
            group: some(3)?,
            channels,
            maps: some(20)?,
            window: [some(5)?, some(4)?],
        };
        let (strides, dilations) = ([some(2)?, some(3)?], [some(2)?, some(2)?]);
        let pads = [some(4)? - 1, some(4)? - 1, some(4)? - 1, some(4)? - 1];
        let border = u.int_in_range(if dtypes[0] == DType::I8 { -128..=127 } else { 0..=255 })?;
        let op = IntegerConv {
            strides,
            pads,
            dilations,
            group: sizes.group,
            border,
            zero_points: u.arbitrary()?,
            rounding: None,
        };
        check(dots, &op, sizes, (dtypes, any_rounding(u)?), u.arbitrary()?);
        Ok(())
    };
    arbtest::arbtest(random).budget(Duration::from_millis(900));
}

const PLAIN: IntegerConv = IntegerConv {
    strides: [1; 2],
    pads: [1; 4],
    dilations: [1; 2],
    group: 1,
    border: 7,
    zero_points: false,
    rounding: None,
};

#[test]
fn many_channels_of_large_and_small_images_are_exact() {
    let op = PLAIN;
    let sizes = Sizes { images: 1, size: [7, 7], group: 1, channels: 130, maps: 75, window: [3, 3] };
    for dots in Dots::available() {
        check(dots, &op, sizes, ([DType::U8, DType::I8], None), true);
        check(dots, &op, Sizes { size: [20, 110], channels: 5, ..sizes }, ([DType::I8, DType::U8], None), true);
        let depthwise = IntegerConv { group: 20, strides: [2; 2], ..op.clone() };
        let sizes = Sizes { size: [56, 56], group: 20, channels: 1, maps: 1, ..sizes };
        check(dots, &depthwise, sizes, ([DType::U8, DType::I8], None), true);
        // The quads of several bands of rows.
        let bands = IntegerConv { group: 3, ..op.clone() };
        let sizes = Sizes { size: [64, 200], group: 3, window: [5, 3], ..sizes };
        for strides in [[1, 1], [2, 3], [1, 2]] {
            check(dots, &IntegerConv { strides, ..bands.clone() }, sizes, ([DType::I8; 2], None), true);
        }
        // Taps far apart, and a distance that a single tap does not have.
        let far = IntegerConv { dilations: [9, 11], pads: [9, 11, 9, 11], ..bands.clone() };
        check(dots, &far, Sizes { window: [3, 3], size: [20, 30], ..sizes }, ([DType::U8, DType::I8], None), true);
        let apart = IntegerConv { dilations: [300; 2], pads: [300; 4], zero_points: true, ..bands.clone() };
        for channels in [1, 5, 8] {
            let sizes = Sizes { window: [3, 3], size: [8, 8], channels, maps: 3, ..sizes };
            check(dots, &apart, sizes, ([DType::I8, DType::U8], None), true);
        }
        // Rows of several chunks and tiles, and windows of many rows.
        for (channels, maps) in [(1, 2), (3, 3), (4, 8)] {
            let sizes = Sizes { size: [2, 1100], group: 2, channels, maps, window: [2, 5], ..sizes };
            let op = IntegerConv { group: 2, zero_points: true, ..op.clone() };
            check(dots, &op, sizes, ([DType::U8; 2], None), true);
            check(dots, &IntegerConv { strides: [2, 3], ..op.clone() }, sizes, ([DType::I8; 2], None), true);
            let high = IntegerConv { pads: [15, 1, 15, 1], ..op };
            check(dots, &high, Sizes { size: [12, 9], window: [31, 3], ..sizes }, ([DType::I8, DType::U8], None), true);
        }
        // Rows of outputs that are much shorter than rows of windows.
        let thin = IntegerConv { pads: [0; 4], zero_points: true, ..op.clone() };
        for (channels, maps) in [(1, 2), (1, 9), (4, 3)] {
            let sizes = Sizes { size: [70, 41], group: 1, channels, maps, window: [3, 40], ..sizes };
            check(dots, &thin, sizes, ([DType::I8, DType::U8], None), true);
        }
        // A plane whose rows several threads write.
        let sizes_of_rows = Sizes { size: [130, 60], group: 1, channels: 3, maps: 2, window: [2, 3], ..sizes };
        check(dots, &thin, sizes_of_rows, ([DType::U8, DType::I8], None), true);
        let single = IntegerConv { dilations: [usize::MAX / 2; 2], pads: [0; 4], ..bands.clone() };
        check(dots, &single, Sizes { window: [1, 1], size: [8, 8], ..sizes }, ([DType::U8, DType::I8], None), true);
        let sizes = Sizes { size: [56, 56], window: [3, 3], ..sizes };
        let pointwise = IntegerConv { pads: [0; 4], ..op.clone() };
        check(
            dots,
            &pointwise,
            Sizes { group: 1, channels: 33, maps: 9, window: [1, 1], ..sizes },
            ([DType::I8; 2], None),
            true,
        );
    }
}

#[test]
fn convolutions_without_channels_are_their_summands() {
    let op = IntegerConv { zero_points: true, ..PLAIN };
    let sizes = Sizes { images: 1, size: [28, 28], group: 1, channels: 0, maps: 3, window: [1, 1] };
    for (dots, constant) in Dots::available().into_iter().flat_map(|dots| [(dots, true), (dots, false)]) {
        check(dots, &op, sizes, ([DType::I8, DType::U8], None), constant);
        check(dots, &op, Sizes { window: [3, 2], ..sizes }, ([DType::U8, DType::I8], None), constant);
    }
}

/// Borders that are much larger than image and weights need no memory but the output's.
#[test]
fn planes_are_no_larger_than_images_and_outputs() {
    let op = IntegerConv { pads: [500; 4], ..PLAIN };
    let sizes = Sizes { images: 1, size: [1, 1], group: 1, channels: 400, maps: 1, window: [1, 1] };
    let node = node_of(&op, sizes, [DType::U8, DType::I8], None).expect("the window fits");
    let kernel = prepare_node(&node, &[false, true]).expect("a sound node");
    let bytes = node.inputs[0].bytes() + node.outputs[0].bytes();
    assert!(kernel.scratch_bytes() <= 8 * bytes, "{} of {bytes}", kernel.scratch_bytes());
    // Tables are made for no more than a file can hold.
    let sizes = Sizes { size: [1 << 10; 2], channels: 1 << 20, window: [1 << 10; 2], ..sizes };
    let node = node_of(&IntegerConv { pads: [0; 4], ..PLAIN }, sizes, [DType::U8, DType::I8], None).expect("it fits");
    assert!(prepare_node(&node, &[]).is_ok());
}

#[test]
fn images_without_pixels_have_a_border() {
    let op = IntegerConv { zero_points: true, ..PLAIN };
    for (channels, maps) in [(4, 8), (1, 3)] {
        let sizes = Sizes { images: 1, size: [0, 5], group: 1, channels, maps, window: [2, 2] };
        for dots in Dots::available() {
            // The earlier content of the thread's workspace must not affect results.
            check(dots, &op, Sizes { size: [6, 5], ..sizes }, ([DType::U8, DType::I8], None), true);
            check(dots, &op, sizes, ([DType::U8, DType::I8], None), true);
        }
    }
}

#[test]
fn convolutions_that_do_not_fit_are_refused() {
    let op = IntegerConv { pads: [0; 4], border: 0, zero_points: true, ..PLAIN };
    let sizes = Sizes { images: 1, size: [4, 4], group: 1, channels: 2, maps: 3, window: [2, 2] };
    let node = node_of(&op, sizes, [DType::U8, DType::I8], None).expect("the window fits");
    assert!(prepare_node(&node, &[]).is_ok());
    let spec = |dtype, dims: &[usize]| TensorSpec::new(dtype, shape(dims));
    for (input, other) in [
        (0, spec(DType::F32, &[1, 2, 4, 4])),
        (1, spec(DType::I8, &[3, 1, 2, 2])),
        (2, spec(DType::I32, &[2])),
        (3, spec(DType::U8, &[3])),
    ] {
        let mut unsound = node.clone();
        unsound.inputs[input] = other;
        assert!(prepare_node(&unsound, &[]).is_err(), "{unsound:?}");
    }
    for border in [-1, 256] {
        let unsound = NodeSpec { op: Op::IntegerConv(IntegerConv { border, ..op.clone() }), ..node.clone() };
        assert!(prepare_node(&unsound, &[]).is_err(), "{border}");
    }
}
