//! Operators between DequantizeLinear and QuantizeLinear that only move elements: they move integers.

use anabranch::import::from_bytes;
use anabranch::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch::lower::{LowerOptions, lower};
use anabranch::session::{Inputs, Session};
use anabranch::{DType, Shape, Tensor};
use anabranch_tests::one_cpu;

const DIMS: [i64; 4] = [1, 8, 6, 10];

/// Scale and zero point.
type Grid = (f32, i64);

/// Grids of which neither the scales nor their quotients are exact.
const OWN: Grid = (0.013, 7);
const OTHER: Grid = (0.0517, -20);

/// Model of a node over inputs of these grids, whose result is put on another grid. Without grids, the node itself.
fn model(node: &NodeProto, grids: &[Grid], to: Option<Grid>, constants: &[TensorProto]) -> Vec<u8> {
    let parameters = |name: &str, (scale, zero): Grid| {
        let zero = TensorProto::raw(&format!("{name}.z"), data_type::INT8, &[], vec![zero as i8 as u8]);
        [TensorProto::f32s(&format!("{name}.s"), &[], &[scale]), zero]
    };
    let (mut nodes, mut initializer, mut moved) = (Vec::new(), constants.to_vec(), node.clone());
    if let Some(to) = to {
        for (at, grid) in grids.iter().enumerate() {
            let [scale, zero, wide] = [format!("x{at}.s"), format!("x{at}.z"), format!("x{at}.d")];
            nodes.push(NodeProto::of("DequantizeLinear", &[&format!("x{at}"), &scale, &zero], &[&wide]));
            moved.input[at] = wide;
            initializer.extend(parameters(&format!("x{at}"), *grid));
        }
        moved.output = vec!["m".into()];
        nodes.extend([moved, NodeProto::of("QuantizeLinear", &["m", "y.s", "y.z"], &["y"])]);
        initializer.extend(parameters("y", to));
    } else {
        nodes.push(moved);
    }
    let dims = || DIMS.map(DimensionProto::known).to_vec();
    let input = (0..grids.len()).map(|at| ValueInfoProto::tensor(&format!("x{at}"), data_type::INT8, dims())).collect();
    let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
    ModelProto::of(GraphProto { node: nodes, initializer, input, output, ..GraphProto::default() }, 19).to_bytes()
}

fn run(model: &[u8], inputs: usize) -> Vec<i8> {
    let session = Session::from_bytes(model, one_cpu()).expect("a sound model");
    let shape = Shape::new(DIMS.map(|dim| dim as usize)).expect("small");
    let numbers =
        |at: usize| (0..shape.elements()).map(|i| (i * 73 + i / 256 + at * 31) as u8 as i8).collect::<Vec<_>>();
    let tensor = |at: usize| Tensor::from_elements(shape.clone(), &numbers(at)).expect("as many");
    let given = (0..inputs).fold(Inputs::new(), |given, at| given.tensor(&format!("x{at}"), tensor(at)));
    let outputs = session.run(&given).expect("runs");
    outputs.tensor("y").expect("made").elements::<i8>().expect("bytes").to_vec()
}

/// Returns what the standard defines for a number of a grid on another.
fn converted(number: i8, (scale, zero): Grid, (made, point): Grid) -> i8 {
    let x = (i64::from(number) - zero) as f32 * scale;
    ((x / made).round_ties_even() as i64 + point).clamp(-128, 127) as i8
}

fn nodes() -> Vec<(NodeProto, Vec<TensorProto>)> {
    let ints = |name: &str, values: &[i64]| TensorProto::i64s(name, &[values.len() as i64], values);
    let pool = |pads: &[i64]| {
        NodeProto::of("MaxPool", &["x0"], &["y"])
            .with(AttributeProto::ints("kernel_shape", &[3, 2]))
            .with(AttributeProto::ints("pads", pads))
    };
    let transpose = NodeProto::of("Transpose", &["x0"], &["y"]).with(AttributeProto::ints("perm", &[0, 2, 3, 1]));
    let blocks = |name: &str| NodeProto::of(name, &["x0"], &["y"]).with(AttributeProto::int("blocksize", 2));
    let slice = NodeProto::of("Slice", &["x0", "starts", "ends", "axes", "steps"], &["y"]);
    let bounds = vec![ints("starts", &[1, -1]), ints("ends", &[6, -9]), ints("axes", &[1, 3]), ints("steps", &[2, -3])];
    vec![
        (transpose, vec![]),
        (blocks("DepthToSpace"), vec![]),
        (blocks("SpaceToDepth"), vec![]),
        (slice, bounds),
        (
            NodeProto::of("Gather", &["x0", "at"], &["y"]).with(AttributeProto::int("axis", 3)),
            vec![ints("at", &[3, 0, 3])],
        ),
        (NodeProto::of("Expand", &["x0", "shape"], &["y"]), vec![ints("shape", &[3, 8, 6, 10])]),
        (NodeProto::of("Tile", &["x0", "times"], &["y"]), vec![ints("times", &[1, 2, 1, 3])]),
        (pool(&[0, 0, 0, 0]), vec![]),
        (pool(&[2, 1, 1, 1]), vec![]),
        (pool(&[1, 1, 1, 1]).with(AttributeProto::ints("dilations", &[2, 3])), vec![]),
        (
            pool(&[0; 4]).with(AttributeProto::ints("strides", &[4, 4])).with(AttributeProto::int("ceil_mode", 1)),
            vec![],
        ),
    ]
}

#[test]
fn elements_that_move_between_grids_are_those_of_the_standard() {
    for (node, constants) in nodes() {
        let moved = run(&model(&node, &[OWN], None, &constants), 1);
        for (own, other) in [(OWN, OTHER), (OWN, OWN), (OTHER, OWN), ((1e-30, 0), (1e-30, 0)), ((2e-45, 3), (2e-45, 3))]
        {
            let model = model(&node, &[own], Some(other), &constants);
            let want: Vec<_> = moved.iter().map(|number| converted(*number, own, other)).collect();
            assert_eq!(run(&model, 1), want, "{} from {own:?} to {other:?}", node.op_type);
            // Nothing is converted if the grids are the same. Pools compute in floats.
            if own == other && own.0.is_normal() && node.op_type != "MaxPool" {
                let program = lower(&from_bytes(&model, None).expect("sound"), &LowerOptions::default());
                let program = program.expect("lowers");
                let mut outputs = program.nodes.iter().flat_map(|node| &node.spec.outputs);
                assert!(outputs.all(|output| output.dtype == DType::I8), "{}: {:?}", node.op_type, program.nodes);
            }
        }
    }
}

/// The greatest number of a grid with a negative scale is that of the least integer.
#[test]
fn greatest_elements_of_grids_that_fall_are_the_least_integers() {
    let (node, constants) = nodes().remove(7);
    let (own, other) = ((-0.25, 5), (0.25, 0));
    let [high, wide] = [DIMS[2] as usize, DIMS[3] as usize];
    let identity = NodeProto::of("Identity", &["x0"], &["y"]);
    let x = run(&model(&identity, &[own], None, &[]), 1);
    let made = run(&model(&node, &[own], Some(other), &constants), 1);
    let mut want = Vec::new();
    for (plane, y, at) in (0..8 * 4 * 9).map(|i| (i / 36, i / 9 % 4, i % 9)) {
        let window = (0..6).map(|tap| x[(plane * high + y + tap / 2) * wide + at + tap % 2]);
        want.push(converted(window.min().expect("a window"), own, other));
    }
    assert_eq!(made, want);
}

/// One of two joined parts has no elements: the whole is the other one.
#[test]
fn a_part_that_is_the_whole_is_converted_once() {
    let scale = TensorProto::f32s("s", &[], &[0.5]);
    let other = TensorProto::f32s("t", &[], &[0.25]);
    let empty = TensorProto::raw("e.q", data_type::INT8, &[1, 0, 6, 10], vec![]);
    let node = vec![
        NodeProto::of("DequantizeLinear", &["x0", "s"], &["d"]),
        NodeProto::of("DequantizeLinear", &["e.q", "s"], &["e"]),
        NodeProto::of("Concat", &["d", "e"], &["c"]).with(AttributeProto::int("axis", 1)),
        NodeProto::of("QuantizeLinear", &["c", "t", "z"], &["y"]),
    ];
    let zero = TensorProto::raw("z", data_type::INT8, &[], vec![0]);
    let input = vec![ValueInfoProto::tensor("x0", data_type::INT8, DIMS.map(DimensionProto::known).to_vec())];
    let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
    let initializer = vec![scale, other, empty, zero];
    let graph = GraphProto { node, initializer, input, output, ..GraphProto::default() };
    let made = run(&ModelProto::of(graph, 19).to_bytes(), 1);
    let identity = NodeProto::of("Identity", &["x0"], &["y"]);
    let x = run(&model(&identity, &[OWN], None, &[]), 1);
    let want: Vec<_> = x.iter().map(|number| converted(*number, (0.5, 0), (0.25, 0))).collect();
    assert_eq!(made, want);
}

#[test]
fn parts_of_other_grids_are_converted_before_they_are_joined() {
    for axis in [1, -1] {
        let node = NodeProto::of("Concat", &["x0", "x1"], &["y"]).with(AttributeProto::int("axis", axis));
        let joined = |own: [Grid; 2], to: Grid| run(&model(&node, &own, Some(to), &[]), 2);
        let plain = run(&model(&node, &[OWN; 2], None, &[]), 2);
        let length = [8 * 60, 10][usize::from(axis < 0)];
        for (own, to) in [([OWN, OWN], OWN), ([OWN, OTHER], OWN), ([OTHER, OWN], (0.031, 1))] {
            let part = |at: usize| own[at / length % 2];
            let want: Vec<_> = plain.iter().enumerate().map(|(at, number)| converted(*number, part(at), to)).collect();
            assert_eq!(joined(own, to), want, "{own:?} to {to:?} along {axis}");
        }
    }
}
