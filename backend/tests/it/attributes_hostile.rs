//! Invalid attributes and sizes are rejected when the model is lowered, with an error that names the node: nothing
//! wraps and nothing panics.

use anabranch::import::from_bytes;
use anabranch::import::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use anabranch::lower::{LowerOptions, lower};

/// Lowers a node over `x` of these dimensions and integer initialisers `a`, `b`, ….
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
        ("MaxPool", image, vec![], vec![ints("kernel_shape", &[10, 10])]),
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

/// An operator, the dimensions of its float inputs, its integer inputs, and its integer attributes: lists, unless their
/// names start with a `.`.
type Base =
    (&'static str, &'static [&'static [i64]], &'static [&'static [i64]], &'static [(&'static str, &'static [i64])]);

/// One case of each operator whose integers decide sizes, counts or positions.
const BASES: &[Base] = &[
    ("MaxPool", &[&[1, 4, 8, 8]], &[], WINDOW),
    ("AveragePool", &[&[1, 4, 8, 8]], &[], WINDOW),
    ("LpPool", &[&[1, 4, 8, 8]], &[], WINDOW),
    ("MaxPool", &[&[1, 2, 8, 8, 8]], &[], VOLUME),
    ("LpPool", &[&[1, 2, 8, 8, 8]], &[], VOLUME),
    ("Conv", &[&[1, 4, 8, 8], &[2, 4, 3, 3]], &[], WINDOW),
    ("Conv", &[&[1, 4, 8, 8, 8], &[2, 4, 3, 3, 3]], &[], VOLUME),
    ("ConvTranspose", &[&[1, 4, 8, 8], &[4, 2, 3, 3]], &[], WINDOW),
    ("ConvTranspose", &[&[1, 4, 8, 8, 8], &[4, 2, 3, 3, 3]], &[], VOLUME),
    ("Transpose", &[&[2, 3]], &[], &[("perm", &[1, 0])]),
    ("Reshape", &[&[2, 6]], &[&[3, 4]], &[(".allowzero", &[0])]),
    ("Slice", &[&[8, 8]], &[&[1], &[6], &[0], &[2]], &[]),
    ("Split", &[&[8]], &[&[3, 5]], &[(".axis", &[0])]),
    ("Squeeze", &[&[1, 8]], &[&[0]], &[]),
    ("Unsqueeze", &[&[8]], &[&[0, 2]], &[]),
    ("Expand", &[&[1, 8]], &[&[3, 8]], &[]),
    ("Tile", &[&[2, 3]], &[&[2, 2]], &[]),
    ("Pad", &[&[2, 3]], &[&[1, 0, 0, 1]], &[]),
    ("TopK", &[&[2, 8]], &[&[3]], &[(".axis", &[1])]),
    ("Trilu", &[&[4, 4]], &[&[1]], &[]),
    ("EyeLike", &[&[4, 4]], &[], &[(".k", &[1])]),
    ("CumSum", &[&[2, 8]], &[&[1]], &[]),
    ("Gather", &[&[4, 4]], &[&[1, 2]], &[(".axis", &[0])]),
    ("GatherElements", &[&[4]], &[&[1, 2]], &[(".axis", &[0])]),
    ("GatherND", &[&[4, 4]], &[&[1, 2]], &[(".batch_dims", &[0])]),
    ("Range", &[], &[&[0], &[8], &[2]], &[]),
    ("ConstantOfShape", &[], &[&[2, 3]], &[]),
    ("CenterCropPad", &[&[4, 4]], &[&[2, 6]], &[("axes", &[0, 1])]),
    (
        "Col2Im",
        &[&[1, 4, 9]],
        &[&[4, 4], &[2, 2]],
        &[("strides", &[1, 1]), ("dilations", &[1, 1]), ("pads", &[0, 0, 0, 0])],
    ),
    ("ReverseSequence", &[&[3, 2]], &[&[1, 2]], &[(".time_axis", &[0]), (".batch_axis", &[1])]),
    ("ReduceSum", &[&[2, 3]], &[&[1]], &[(".keepdims", &[1])]),
    ("Flatten", &[&[2, 3]], &[], &[(".axis", &[1])]),
    ("Softmax", &[&[2, 3]], &[], &[(".axis", &[1])]),
    ("Concat", &[&[2, 3], &[2, 3]], &[], &[(".axis", &[1])]),
    ("DepthToSpace", &[&[1, 4, 2, 2]], &[], &[(".blocksize", &[2])]),
    ("SpaceToDepth", &[&[1, 4, 2, 2]], &[], &[(".blocksize", &[2])]),
    ("LRN", &[&[1, 4, 2, 2]], &[], &[(".size", &[3])]),
    ("GroupNormalization", &[&[1, 4, 2, 2], &[4], &[4]], &[], &[(".num_groups", &[2])]),
    ("HannWindow", &[], &[&[16]], &[(".output_datatype", &[1])]),
    ("DFT", &[&[1, 8, 1]], &[&[8]], &[(".axis", &[1])]),
    ("STFT", &[&[1, 32, 1]], &[&[8]], &[]),
    ("Shape", &[&[2, 3]], &[], &[(".start", &[0]), (".end", &[2])]),
    ("ArgMax", &[&[2, 3]], &[], &[(".axis", &[1]), (".select_last_index", &[0])]),
    ("RNN", &[&[3, 1, 2], &[1, 4, 2], &[1, 4, 4]], &[], &[(".hidden_size", &[4]), (".layout", &[0])]),
    ("GlobalLpPool", &[&[1, 2, 3, 3]], &[], &[(".p", &[2])]),
    ("LpNormalization", &[&[2, 3]], &[], &[(".axis", &[1]), (".p", &[2])]),
];

const WINDOW: &[(&str, &[i64])] =
    &[("kernel_shape", &[3, 3]), ("strides", &[1, 1]), ("dilations", &[1, 1]), ("pads", &[1, 1, 1, 1])];

const VOLUME: &[(&str, &[i64])] =
    &[("kernel_shape", &[3, 3, 3]), ("strides", &[1, 1, 1]), ("dilations", &[1, 1, 1]), ("pads", &[1, 1, 1, 1, 1, 1])];

/// Most nodes that one operator may become.
const MOST_NODES: usize = 1 << 16;

/// Lowers a base; returns the number of nodes, or the error.
fn lowered_base(
    (kind, floats, ..): &Base,
    ints: &[Vec<i64>],
    attributes: &[(&str, Vec<i64>)],
) -> Result<usize, String> {
    let names: Vec<String> = (0..floats.len() + ints.len()).map(|at| format!("i{at}")).collect();
    let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut node = NodeProto::of(kind, &inputs, &["y"]).named("the_node");
    for (name, values) in attributes {
        node = node.with(match (name.strip_prefix('.'), &values[..]) {
            (Some(name), [value]) => AttributeProto::int(name, *value),
            _ => AttributeProto::ints(name, values),
        });
    }
    let scalar = matches!(*kind, "Range" | "Trilu" | "CumSum" | "HannWindow" | "DFT" | "STFT");
    let tensor = |(at, values): (usize, &Vec<i64>)| match &values[..] {
        [single] if scalar => TensorProto::i64s(&names[floats.len() + at], &[], &[*single]),
        values => TensorProto::i64s(&names[floats.len() + at], &[values.len() as i64], values),
    };
    let graph = GraphProto {
        node: vec![node],
        initializer: ints.iter().enumerate().map(tensor).collect(),
        input: names.iter().zip(*floats).map(|(name, dims)| ValueInfoProto::f32s(name, dims)).collect(),
        output: vec![ValueInfoProto { name: "y".into(), r#type: None }],
        ..GraphProto::default()
    };
    let model = from_bytes(&ModelProto::of(graph, 18).to_bytes(), None).map_err(|error| error.to_string())?;
    // Little memory for constants, so that a case takes little time.
    let options = LowerOptions { budget: 1 << 20, ..LowerOptions::default() };
    lower(&model, &options).map(|program| program.nodes.len()).map_err(|error| error.to_string())
}

/// Values that are too great, too small, or do not fit their purpose.
fn extremes() -> impl Iterator<Item = i64> {
    let powers = [0, 1, 3, 10, 13, 24, 32, 62].map(|exponent| 1i64 << exponent);
    let ends = [i64::MIN, i64::MIN + 1, i64::MAX, i64::MAX - 1, i64::from(i32::MIN), i64::from(i32::MAX)];
    powers.into_iter().flat_map(|power| [power, -power]).chain(ends).chain([0])
}

#[test]
fn no_integer_makes_more_of_an_operator_than_its_nodes() {
    let own = |lists: &[&[i64]]| lists.iter().map(|list| list.to_vec()).collect::<Vec<_>>();
    for base in BASES {
        let (kind, _, ints, attributes) = base;
        let ints = own(ints);
        let attributes: Vec<_> = attributes.iter().map(|(name, values)| (*name, values.to_vec())).collect();
        assert!(
            lowered_base(base, &ints, &attributes).is_ok_and(|nodes| nodes < 100),
            "{kind} as it is: {:?}",
            lowered_base(base, &ints, &attributes)
        );
        let check = |ints: &[Vec<i64>], attributes: &[(&str, Vec<i64>)]| match lowered_base(base, ints, attributes) {
            Ok(nodes) => assert!(nodes < MOST_NODES, "{kind} {ints:?} {attributes:?}: {nodes} nodes"),
            Err(error) => assert!(error.contains("the_node"), "{kind} {ints:?} {attributes:?}: {error}"),
        };
        for value in extremes() {
            for (list, at) in
                ints.iter().enumerate().flat_map(|(list, values)| (0..values.len()).map(move |at| (list, at)))
            {
                let mut ints = ints.clone();
                ints[list][at] = value;
                check(&ints, &attributes);
            }
            for list in 0..attributes.len() {
                for at in 0..attributes[list].1.len() {
                    let mut attributes = attributes.clone();
                    attributes[list].1[at] = value;
                    check(&ints, &attributes);
                }
                let mut attributes = attributes.clone();
                attributes[list].1.fill(value);
                check(&ints, &attributes);
            }
        }
    }
}

#[test]
fn what_would_be_unrolled_without_end_is_refused_before_it_is() {
    let regions = |points: i64| {
        let node = NodeProto::of("RoiAlign", &["x", "regions", "images"], &["y"]).named("the_node");
        let graph = GraphProto {
            node: vec![node.with(AttributeProto::int("sampling_ratio", points))],
            initializer: vec![TensorProto::i64s("images", &[1], &[0])],
            input: vec![ValueInfoProto::f32s("x", &[1, 1, 8, 8]), ValueInfoProto::f32s("regions", &[1, 4])],
            output: vec![ValueInfoProto::f32s("y", &[])],
            ..GraphProto::default()
        };
        let model = from_bytes(&ModelProto::of(graph, 17).to_bytes(), None).expect("a sound model");
        lower(&model, &LowerOptions::default()).map(|program| program.nodes.len()).map_err(|error| error.to_string())
    };
    for (points, why) in
        [(0, "on the host"), (32, "on the host"), (1 << 32, "65536"), (i64::MAX, "65536"), (-1, "0 to")]
    {
        let error = regions(points).expect_err("points are no nodes");
        assert!(error.contains("the_node") && error.contains(why), "{error}");
    }
    let strides = |step: i64| AttributeProto::ints("strides", &[1, step]);
    // A window of 300 × 300: one sum for each of its rows, and of its columns.
    let folded = lowered("Col2Im", &[1, 90_000, 4], &[&[301, 301], &[300, 300]], &[]);
    assert!(folded.as_ref().is_ok_and(|nodes| *nodes < 4000), "{folded:?}");
    // Each position along an axis becomes few nodes, so that more positions are allowed.
    let wide = |taps: i64| lowered("Col2Im", &[1, taps, 5], &[&[1, 2 * taps], &[1, taps]], &[strides(taps / 4)]);
    assert!(wide(2048).is_ok_and(|nodes| nodes > 2048), "{:?}", wide(2048));
    let error = wide(1 << 14).expect_err("16384 places");
    assert!(error.contains("the_node") && error.contains("the limit per operator is 8192"), "{error}");
    let volume: Base = ("ConvTranspose", &[&[1, 1, 2, 2, 2], &[1, 1, 4000, 1, 1]], &[], &[]);
    let error = lowered_base(&volume, &[], &[]).expect_err("4000 planes");
    assert!(error.contains("the_node") && error.contains("4000 planes"), "{error}");
}
