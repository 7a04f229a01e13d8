//! Convolutions compared with their definition in 64-bit floats, by every method, micro-kernel and number of threads.

use super::*;
use anabranch_cpu_base::Team;
use anabranch_kernel_testing::products::{epilogue, keep, require_close, run, run_by_teams, spec, tensor};
use anabranch_op::op::Op;
use anabranch_op::tensor::Tensor;
use arbtest::arbitrary::{Result as Arbitrary, Unstructured};
use std::time::Duration;

/// Returns a node of this convolution: images, group, input and output channels of a group, size of the image and of
/// the window.
fn node_of(
    op: &Conv,
    images: usize,
    [channels, maps]: [usize; 2],
    size: [usize; 2],
    window: [usize; 2],
) -> Option<NodeSpec> {
    let positions = |axis: usize| {
        let padded = size[axis] + op.pads[axis] + op.pads[axis + 2];
        Some(padded.checked_sub((window[axis] - 1) * op.dilations[axis] + 1)? / op.strides[axis] + 1)
    };
    let input = spec(&[images, channels * op.group, size[0], size[1]]);
    let weights = spec(&[maps * op.group, channels, window[0], window[1]]);
    let output = spec(&[images, maps * op.group, positions(0)?, positions(1)?]);
    Some(NodeSpec { op: Op::Conv(op.clone()), inputs: vec![input, weights], outputs: vec![output] })
}

/// Returns a convolution whose output is small and has many channels, several images, several groups, or a depth of
/// several slices.
fn random_small_node(u: &mut Unstructured<'_>) -> Arbitrary<Option<(Conv, NodeSpec)>> {
    let window = *u.choose(&[1, 1, 3])?;
    let op = Conv {
        strides: [u.int_in_range(1..=2)?; 2],
        pads: [window / 2; 4],
        dilations: [1, 1],
        group: u.int_in_range(1..=2)?,
        epilogue: None,
    };
    let parts = [*u.choose(&[1, 7, 40, 250])?, u.int_in_range(32..=210)?];
    let size = [u.int_in_range(1..=8)?, u.int_in_range(1..=8)?];
    let Some(node) = node_of(&op, u.int_in_range(1..=2)?, parts, size, [window; 2]) else { return Ok(None) };
    with_epilogue(u, op, node).map(Some)
}

fn with_epilogue(u: &mut Unstructured<'_>, op: Conv, mut node: NodeSpec) -> Arbitrary<(Conv, NodeSpec)> {
    let output = node.outputs[0].shape.dims().to_vec();
    let (expression, extras) = epilogue(u, &output, &[1, output[1], 1, 1])?;
    node.inputs.extend(extras.iter().map(|dims| spec(dims)));
    let op = Conv { epilogue: expression, ..op };
    node.op = Op::Conv(op.clone());
    Ok((op, node))
}

fn random_node(u: &mut Unstructured<'_>) -> Arbitrary<Option<(Conv, NodeSpec)>> {
    let mut size = |most: usize| u.int_in_range(1..=most);
    let op = Conv {
        strides: [size(3)?, size(3)?],
        pads: [size(4)? - 1, size(4)? - 1, size(4)? - 1, size(4)? - 1],
        dilations: [size(2)?, size(2)?],
        group: [1, 1, 2, 5][size(4)? - 1],
        epilogue: None,
    };
    let parts = if size(2)? == 1 && op.group > 1 { [1, size(2)?] } else { [size(9)?, size(20)?] };
    let images = size(3)? - 1;
    let Some(node) = node_of(&op, images, parts, [size(14)?, size(40)?], [size(4)?, size(4)?]) else {
        return Ok(None);
    };
    with_epilogue(u, op, node).map(Some)
}

/// Returns a depthwise convolution by windows that have their own kernels, over narrow planes and wide ones.
fn random_depthwise_node(u: &mut Unstructured<'_>) -> Arbitrary<Option<(Conv, NodeSpec)>> {
    let window = *u.choose(&[3, 5, 5, 7])?;
    let stride = u.int_in_range(1..=4)?;
    let mut pad = || u.int_in_range(0..=window + 4);
    let op = Conv {
        pads: [pad()?, pad()?, pad()?, pad()?],
        strides: [*u.choose(&[stride, stride, 1])?, stride],
        dilations: [*u.choose(&[1, 1, 2])?, *u.choose(&[1, 1, 2])?],
        group: u.int_in_range(2..=40)?,
        epilogue: None,
    };
    let size = [u.int_in_range(1..=20)?, *u.choose(&[1, 5, 7, 8, 14, 16, 17, 28, 33, 40, 70])?];
    let parts = [1, u.int_in_range(1..=2)?];
    let Some(node) = node_of(&op, u.int_in_range(1..=2)?, parts, size, [window; 2]) else { return Ok(None) };
    with_epilogue(u, op, node).map(Some)
}

/// Returns a convolution of many groups of a few channels, whose output channels lie along vectors.
fn random_grouped_node(u: &mut Unstructured<'_>) -> Arbitrary<Option<(Conv, NodeSpec)>> {
    let mut pad = || u.int_in_range(0..=3);
    let op = Conv {
        pads: [pad()?, pad()?, pad()?, pad()?],
        strides: [u.int_in_range(1..=2)?, u.int_in_range(1..=3)?],
        dilations: [*u.choose(&[1, 1, 2])?, *u.choose(&[1, 1, 2])?],
        group: u.int_in_range(2..=40)?,
        epilogue: None,
    };
    let parts = [u.int_in_range(2..=4)?, *u.choose(&[1, 2, 2, 3, 4, 5, 8])?];
    let size = [u.int_in_range(1..=16)?, *u.choose(&[1, 5, 7, 8, 14, 17, 30])?];
    let window = [u.int_in_range(1..=4)?, u.int_in_range(1..=4)?];
    let Some(node) = node_of(&op, u.int_in_range(1..=2)?, parts, size, window) else { return Ok(None) };
    with_epilogue(u, op, node).map(Some)
}

/// Returns a projection of many channels to few, whose channels threads divide, to small images and others.
fn random_projection(u: &mut Unstructured<'_>) -> Arbitrary<Option<(Conv, NodeSpec)>> {
    let op = Conv { strides: [1; 2], pads: [0; 4], dilations: [1; 2], group: 1, epilogue: None };
    let maps = u.int_in_range(30..=150)?;
    let parts = [u.int_in_range(2 * maps - 3..=500)?, maps];
    let size = [*u.choose(&[1, 4, 7, 9, 14])?, *u.choose(&[1, 5, 7, 11, 14, 28, 64])?];
    let Some(node) = node_of(&op, *u.choose(&[1, 1, 2])?, parts, size, [1, 1]) else { return Ok(None) };
    with_epilogue(u, op, node).map(Some)
}

fn inputs_of(node: &NodeSpec) -> Vec<Tensor> {
    node.inputs.iter().zip(1..).map(|(spec, seed)| tensor(spec.shape.dims(), seed)).collect()
}

fn require_correct(op: &Conv, node: &NodeSpec, inputs: &[Tensor], found: &[f32]) {
    let geometry = geometry_of(op, node).expect("a sound node");
    let (x, w) = (inputs[0].elements::<f32>().expect("f32"), inputs[1].elements::<f32>().expect("f32"));
    let [height, width] = geometry.size;
    let [kh, kw] = geometry.window;
    require_close(node, inputs, found, |at| {
        let &[image, map, oy, ox] = at else { unreachable!("outputs have four dimensions") };
        let first = map / geometry.group_maps() * geometry.group_channels();
        let (mut sum, mut magnitude) = (0.0, 0.0);
        for c in 0..geometry.group_channels() {
            for (ky, kx) in (0..kh).flat_map(|ky| (0..kw).map(move |kx| (ky, kx))) {
                let y = (oy * op.strides[0] + ky * op.dilations[0]).wrapping_sub(op.pads[0]);
                let x_ = (ox * op.strides[1] + kx * op.dilations[1]).wrapping_sub(op.pads[1]);
                if y < height && x_ < width {
                    let element = x[((image * geometry.channels + first + c) * height + y) * width + x_];
                    let weight = w[((map * geometry.group_channels() + c) * kh + ky) * kw + kx];
                    let term = f64::from(element) * f64::from(weight);
                    (sum, magnitude) = (sum + term, magnitude + term.abs());
                }
            }
        }
        (sum, magnitude)
    });
}

/// Runs the node with its weights constant or not; matrix products use the micro-kernel.
fn run_as(micro: &'static MicroKernel, op: &Conv, node: &NodeSpec, inputs: &[Tensor], constant: bool) -> Vec<f32> {
    let mut kernel = prepare_for(micro, op, node, &[false, constant]).expect("a sound node");
    keep(&mut *kernel, inputs);
    run_by_teams(&*kernel, node, inputs)
}

/// Compares nodes of a kind by all methods; unless `always`, weights are constant in some of them only.
fn agree_with_the_definition(
    node: impl Fn(&mut Unstructured<'_>) -> Arbitrary<Option<(Conv, NodeSpec)>>,
    always: bool,
) {
    arbtest::arbtest(|u| {
        if let Some((op, node)) = node(u)? {
            let micro = *u.choose(&MicroKernel::of_all_sizes())?;
            let inputs = inputs_of(&node);
            let constant = always || u.arbitrary()?;
            require_correct(&op, &node, &inputs, &run_as(micro, &op, &node, &inputs, constant));
        }
        Ok(())
    })
    .budget(Duration::from_millis(900));
}

#[test]
fn convolutions_agree_with_the_definition() {
    agree_with_the_definition(random_node, false);
}

#[test]
fn small_images_agree_with_the_definition() {
    agree_with_the_definition(random_small_node, true);
}

#[test]
fn projections_agree_with_the_definition() {
    agree_with_the_definition(random_projection, true);
}

#[test]
fn channels_by_themselves_agree_with_the_definition() {
    agree_with_the_definition(random_depthwise_node, false);
}

#[test]
fn groups_of_few_channels_agree_with_the_definition() {
    agree_with_the_definition(random_grouped_node, false);
}

#[test]
fn the_layers_of_networks_agree_with_the_definition() {
    let plain =
        |stride, pad, group| Conv { strides: [stride; 2], pads: [pad; 4], dilations: [1; 2], group, epilogue: None };
    for (op, images, parts, size, window) in [
        (plain(2, 3, 1), 1, [3, 20], [50, 50], [7, 7]),
        (plain(2, 1, 1), 2, [3, 16], [33, 64], [3, 3]),
        (plain(1, 2, 2), 1, [4, 8], [9, 32], [5, 5]),
        (plain(1, 1, 1), 1, [70, 150], [7, 7], [3, 3]),
        (plain(1, 1, 1), 1, [256, 0], [14, 14], [3, 3]),
        (plain(1, 2, 1), 1, [64, 64], [0, 20], [3, 3]),
        (Conv { strides: [1, 1 << 40], ..plain(1, 0, 16) }, 1, [1, 1], [3, 3], [3, 3]),
        (Conv { strides: [55, 55], ..plain(1, 0, 32) }, 1, [1, 1], [55, 55], [55, 55]),
        (plain(2, 1, 1), 2, [40, 130], [15, 15], [3, 3]),
        (plain(1, 0, 1), 2, [50, 30], [14, 14], [1, 1]),
        (plain(1, 0, 2), 2, [20, 150], [14, 14], [1, 1]),
        (plain(1, 0, 1), 1, [260, 21], [28, 28], [1, 1]),
        (plain(2, 0, 1), 1, [33, 40], [14, 14], [1, 1]),
        (plain(1, 1, 40), 1, [1, 1], [30, 70], [3, 3]),
        (plain(2, 1, 6), 2, [1, 1], [29, 130], [3, 3]),
        (plain(1, 3, 37), 2, [1, 1], [7, 7], [7, 7]),
        (plain(1, 3, 20), 1, [1, 1], [60, 61], [7, 7]),
        (plain(2, 1, 33), 1, [1, 1], [14, 14], [3, 3]),
        (plain(1, 1, 45), 2, [1, 1], [7, 7], [3, 3]),
        (plain(1, 2, 101), 1, [1, 1], [7, 7], [5, 5]),
        (plain(2, 2, 27), 2, [1, 2], [16, 15], [5, 5]),
        (plain(1, 1, 9), 1, [1, 1], [40, 8], [3, 3]),
        (Conv { strides: [3, 1], pads: [4, 1, 0, 1], ..plain(1, 0, 2) }, 2, [1, 1], [1, 8], [3, 3]),
        (Conv { strides: [1, 1 << 40], ..plain(1, 1, 16) }, 1, [1, 1], [9, 5], [3, 3]),
        (plain(2, 2, 16), 1, [1, 2], [29, 30], [5, 5]),
        (plain(1, 3, 3), 1, [1, 1], [21, 40], [7, 7]),
        (plain(1, 1, 8), 1, [4, 4], [28, 28], [3, 3]),
        (plain(1, 1, 32), 1, [2, 2], [14, 14], [3, 3]),
        (plain(2, 1, 17), 2, [2, 3], [15, 15], [3, 3]),
        (plain(1, 0, 2), 2, [20, 70], [7, 7], [1, 1]),
        (plain(1, 1, 2), 2, [32, 48], [14, 14], [3, 3]),
        (plain(2, 1, 3), 2, [9, 31], [40, 40], [3, 3]),
        (plain(1, 1, 5), 1, [12, 14], [7, 8], [3, 3]),
        (plain(1, 1, 4), 3, [7, 8], [30, 16], [3, 3]),
        (plain(1, 1, 2), 2, [3, 35], [7, 7], [3, 3]),
        (plain(1, 0, 1), 1, [30, 200], [1, 1], [1, 1]),
        (plain(1, 8, 1), 1, [2, 5], [3, 3], [17, 17]),
        (plain(1, 5, 16), 1, [1, 1], [3, 1500], [11, 11]),
        (plain(2, 0, 20), 1, [1, 1], [1, 9000], [1, 12]),
        (Conv { dilations: [7, 9], ..plain(1, 4, 17) }, 1, [1, 1], [40, 200], [4, 4]),
        (Conv { dilations: [1, 400], strides: [1, 3], ..plain(1, 0, 16) }, 1, [1, 2], [1, 5000], [1, 11]),
    ] {
        let node = node_of(&op, images, parts, size, window).expect("the window fits");
        let inputs = inputs_of(&node);
        for constant in [true, false] {
            require_correct(&op, &node, &inputs, &run_as(MicroKernel::best(), &op, &node, &inputs, constant));
        }
    }
}

#[test]
fn not_a_number_reaches_the_windows_that_cover_it_only() {
    for (group, channels, maps) in [(1, 2, 4), (2, 2, 4), (8, 16, 16)] {
        let op = Conv { strides: [1, 1], pads: [1; 4], dilations: [1; 2], group, epilogue: None };
        let node = node_of(&op, 1, [channels / group, maps / group], [9, 9], [3, 3]).expect("the window fits");
        let mut inputs = inputs_of(&node);
        let mut x = inputs[0].elements::<f32>().expect("f32").to_vec();
        x[4 * 9 + 8] = f32::NAN;
        inputs[0] = Tensor::from_elements(node.inputs[0].shape.clone(), &x).expect("as many");
        let kernel = prepare(&node, &[]).expect("a sound node");
        for (at, found) in run(&*kernel, &node, &inputs, &Team::solo()).iter().enumerate() {
            let (map, y, x) = (at / 81, at / 9 % 9, at % 9);
            let covered = (3..=5).contains(&y) && x >= 7 && map < maps / group;
            assert_eq!(found.is_nan(), covered, "group {group}, map {map}, ({y}, {x})");
        }
    }
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let op = Conv { strides: [1, 1], pads: [0; 4], dilations: [1; 2], group: 2, epilogue: None };
    let cases: [([usize; 4], [usize; 4], [usize; 4]); 7] = [
        ([1, 4, 5, 5], [6, 2, 3, 3], [1, 6, 3, 4]),
        ([1, 4, 5, 5], [6, 2, 3, 3], [2, 6, 3, 3]),
        ([1, 4, 5, 5], [6, 2, 3, 3], [1, 5, 3, 3]),
        ([1, 4, 5, 5], [5, 2, 3, 3], [1, 5, 3, 3]),
        ([1, 4, 5, 5], [6, 4, 3, 3], [1, 6, 3, 3]),
        ([1, 4, 2, 5], [6, 2, 3, 3], [1, 6, 0, 3]),
        ([1, 4, 5, 5], [6, 2, 0, 3], [1, 6, 6, 3]),
    ];
    for (input, weights, output) in cases {
        let node = NodeSpec {
            op: Op::Conv(op.clone()),
            inputs: vec![spec(&input), spec(&weights)],
            outputs: vec![spec(&output)],
        };
        assert!(crate::testing::prepare(&node, &[]).is_err(), "{node:?}");
    }
    let node = NodeSpec {
        op: Op::Conv(op.clone()),
        inputs: vec![spec(&[1, 4, 5, 5]), spec(&[6, 2, 3, 3])],
        outputs: vec![spec(&[1, 6, 3, 3])],
    };
    assert!(crate::testing::prepare(&node, &[]).is_ok());
    for broken in
        [Conv { group: 0, ..op.clone() }, Conv { strides: [0, 1], ..op.clone() }, Conv { pads: [usize::MAX; 4], ..op }]
    {
        let node = NodeSpec { op: Op::Conv(broken.clone()), ..node.clone() };
        assert!(crate::testing::prepare(&node, &[]).is_err(), "{broken:?}");
    }
}
