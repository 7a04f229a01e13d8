//! Attributes and sizes that make no sense are refused when the model is lowered, naming the node: nothing wraps and nothing panics.

use anabranch::import::from_bytes;
use anabranch::import::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use anabranch::lower::{LowerOptions, lower};

/// A node over `x` of these dimensions and initialisers `a`, `b`, … of integers.
fn lowered(kind: &str, dims: &[i64], ints: &[&[i64]], attributes: &[AttributeProto]) -> Result<usize, String> {
    let names = ["a", "b", "c", "d"];
    let inputs: Vec<&str> =
        (!dims.is_empty()).then_some("x").into_iter().chain(names[..ints.len()].iter().copied()).collect();
    let node = NodeProto::of(kind, &inputs, &["y"]).named("the_node");
    let tensor = |(name, values): (&&str, &&[i64])| match values {
        [single] if matches!(kind, "Range" | "OneHot") => TensorProto::i64s(name, &[], &[*single]),
        values => TensorProto::i64s(name, &[values.len() as i64], values),
    };
    let graph = GraphProto {
        node: vec![attributes.iter().cloned().fold(node, NodeProto::with)],
        initializer: names.iter().zip(ints).map(tensor).collect(),
        input: vec![ValueInfoProto::f32s("x", dims)],
        output: vec![ValueInfoProto::f32s("y", &[])],
        ..GraphProto::default()
    };
    let model = from_bytes(&ModelProto::of(graph, 17).to_bytes(), None).map_err(|error| error.to_string())?;
    lower(&model, &LowerOptions::default()).map(|program| program.nodes.len()).map_err(|error| error.to_string())
}

/// An operator, its input's dimensions, its other inputs and its attributes.
type Case<'a> = (&'a str, &'a [i64], Vec<&'a [i64]>, Vec<AttributeProto>);

const HUGE: i64 = 1 << 62;

#[test]
fn attributes_without_sense_are_refused_by_the_name_of_their_node() {
    let ints = AttributeProto::ints;
    let window = |more: &[AttributeProto]| [&[ints("kernel_shape", &[3, 3])], more].concat();
    let image: &[i64] = &[1, 4, 8, 8];
    let cases: Vec<Case<'_>> = vec![
        ("MaxPool", image, vec![], window(&[ints("strides", &[0, 1])])),
        ("MaxPool", image, vec![], window(&[ints("strides", &[-1, 1])])),
        ("MaxPool", image, vec![], window(&[ints("dilations", &[0, 0])])),
        ("MaxPool", image, vec![], window(&[ints("dilations", &[HUGE, HUGE])])),
        ("MaxPool", image, vec![], window(&[ints("pads", &[-9, -9, -9, -9])])),
        ("MaxPool", image, vec![], window(&[ints("pads", &[HUGE, HUGE, HUGE, HUGE])])),
        ("MaxPool", image, vec![], vec![ints("kernel_shape", &[9, 9])]),
        ("AveragePool", image, vec![], vec![ints("kernel_shape", &[0, 3])]),
        ("AveragePool", image, vec![], vec![ints("kernel_shape", &[i64::MIN, 3])]),
        ("Transpose", image, vec![], vec![ints("perm", &[0, 1, 2, 2])]),
        ("Transpose", image, vec![], vec![ints("perm", &[0, 1, 2, 9])]),
        ("Reshape", image, vec![&[-1, -1]], vec![]),
        ("Reshape", image, vec![&[HUGE, 4]], vec![]),
        ("Reshape", image, vec![&[7, -1]], vec![]),
        ("Slice", image, vec![&[0], &[4], &[2], &[0]], vec![]),
        ("Slice", image, vec![&[0], &[4], &[9], &[1]], vec![]),
        ("Split", image, vec![&[3, 3]], vec![]),
        ("Split", image, vec![&[-1, 2]], vec![]),
        ("Squeeze", image, vec![&[1]], vec![]),
        ("Unsqueeze", image, vec![&[9]], vec![]),
        ("Expand", image, vec![&[1 << 40, 1 << 40, 1, 1, 1, 1]], vec![]),
        ("Expand", image, vec![&[-3]], vec![]),
        ("Tile", image, vec![&[HUGE, HUGE, 1, 1]], vec![]),
        ("Tile", image, vec![&[-1, 1, 1, 1]], vec![]),
        ("Pad", image, vec![&[HUGE, 0, 0, 0, HUGE, 0, 0, 0]], vec![]),
        ("Pad", image, vec![&[-9, 0, 0, 0, 0, 0, 0, 0]], vec![]),
        ("Range", &[], vec![&[0], &[8], &[0]], vec![]),
        ("Range", &[], vec![&[0], &[1 << 40], &[1]], vec![]),
        ("ConstantOfShape", &[], vec![&[HUGE, HUGE]], vec![]),
        ("ConstantOfShape", &[], vec![&[-1]], vec![]),
        ("Flatten", image, vec![], vec![AttributeProto::int("axis", 9)]),
        ("Softmax", image, vec![], vec![AttributeProto::int("axis", i64::MIN)]),
        ("DepthToSpace", image, vec![], vec![AttributeProto::int("blocksize", 0)]),
        ("DepthToSpace", image, vec![], vec![AttributeProto::int("blocksize", HUGE)]),
        ("Relu", image, vec![&[1]], vec![]),
        ("Transpose", image, vec![&[1]], vec![ints("perm", &[0, 1, 2, 3])]),
    ];
    for (kind, dims, inputs, attributes) in cases {
        match lowered(kind, dims, &inputs, &attributes) {
            Ok(_) => panic!("{kind} {inputs:?} {attributes:?} is lowered"),
            Err(error) => assert!(error.contains("the_node"), "{kind} {inputs:?}: {error}"),
        }
    }
    assert_eq!(lowered("MaxPool", image, &[], &window(&[])), Ok(1), "a sound one is lowered");
}
