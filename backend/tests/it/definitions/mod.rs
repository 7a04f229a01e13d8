//! Operators that are lowered to many nodes, against their definitions written as loops in `f64`. All inputs are
//! constants, so that lowering computes the result.

mod attention;
mod grids;
mod norms;
mod recurrent;

use anabranch::Tensor;
use anabranch::import::from_bytes;
use anabranch::import::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
};
use anabranch::lower::{LowerOptions, lower};

/// Returns the outputs `y` and, if it has more outputs, `z` of a node over these tensors, or the error.
fn answers(node: NodeProto, inputs: Vec<TensorProto>) -> Result<Vec<Tensor>, String> {
    answers_of(vec![node], inputs)
}

/// Returns all outputs of some nodes.
fn answers_of(node: Vec<NodeProto>, inputs: Vec<TensorProto>) -> Result<Vec<Tensor>, String> {
    let names = node.iter().flat_map(|node| &node.output);
    let output = names.map(|name| ValueInfoProto { name: name.clone(), r#type: None }).collect();
    let graph = GraphProto { node, initializer: inputs, output, ..GraphProto::default() };
    let mut model = ModelProto::of(graph, 28);
    for domain in ["ai.onnx.preview", "com.microsoft"] {
        model.opset_import.push(OperatorSetIdProto { domain: domain.into(), version: 1 });
    }
    let model = from_bytes(&model.to_bytes(), None).map_err(|error| error.to_string())?;
    let program = lower(&model, &LowerOptions::default()).map_err(|error| error.to_string())?;
    let tensor = |output: &anabranch::program::Output| {
        let constant = program.constant(output.value).expect("folded").load().expect("in memory");
        constant.reshaped(output.spec.shape.clone()).expect("of its shape")
    };
    Ok(program.outputs.iter().map(tensor).collect())
}

/// Returns the outputs as numbers.
fn numbers(node: NodeProto, inputs: Vec<TensorProto>) -> Vec<Vec<f32>> {
    let tensors = answers(node, inputs).unwrap_or_else(|error| panic!("{error}"));
    tensors.iter().map(|tensor| tensor.elements::<f32>().expect("f32").to_vec()).collect()
}

fn near(made: &[f32], wanted: &[f64], what: &str) {
    assert_eq!(made.len(), wanted.len(), "{what}");
    for (at, (made, wanted)) in made.iter().zip(wanted).enumerate() {
        let error = (f64::from(*made) - wanted).abs();
        assert!(error <= 2e-5 * wanted.abs().max(1.0), "{what}: {made} at {at} should be {wanted}");
    }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto::ints(name, values)
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto::int(name, value)
}

/// A tensor and its elements.
struct Given {
    name: &'static str,
    dims: Vec<usize>,
    elements: Vec<f32>,
}

impl Given {
    /// Numbers between −1 and 1 that depend only on the name.
    fn of(name: &'static str, dims: &[usize]) -> Self {
        let mut state = name.bytes().fold(12345u64, |state, byte| state * 31 + u64::from(byte));
        let elements = (0..dims.iter().product()).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        });
        Self { name, dims: dims.to_vec(), elements: elements.collect() }
    }

    fn message(&self) -> TensorProto {
        let dims: Vec<_> = self.dims.iter().map(|dim| *dim as i64).collect();
        TensorProto::f32s(self.name, &dims, &self.elements)
    }

    fn at(&self, place: &[usize]) -> f64 {
        assert!(place.iter().zip(&self.dims).all(|(at, dim)| at < dim) && place.len() == self.dims.len());
        f64::from(self.elements[place.iter().zip(&self.dims).fold(0, |flat, (at, dim)| flat * dim + at)])
    }
}

/// All positions of a shape, the last axis fastest.
fn places(dims: &[usize]) -> Vec<Vec<usize>> {
    let mut places = vec![vec![]];
    for dim in dims {
        places = places.into_iter().flat_map(|place| (0..*dim).map(move |at| [&place[..], &[at]].concat())).collect();
    }
    places
}

#[test]
fn transposed_convolutions_over_volumes_are_sums_over_windows() {
    /// Strides, dilations, pads before and after, output padding, groups.
    type Case = ([usize; 3], [usize; 3], [usize; 6], [usize; 3], usize);
    let cases: [Case; 5] = [
        ([1, 1, 1], [1, 1, 1], [0; 6], [0; 3], 1),
        ([2, 2, 2], [1, 1, 1], [0; 6], [0; 3], 1),
        ([2, 1, 3], [1, 2, 1], [1, 0, 1, 0, 1, 2], [1, 1, 2], 2),
        ([3, 2, 1], [2, 1, 2], [2, 1, 0, 1, 0, 1], [2, 0, 0], 2),
        ([5, 1, 1], [1, 1, 1], [1, 0, 0, 3, 0, 0], [0; 3], 1),
    ];
    let (input, kernel) = ([3, 2, 3], [3, 2, 2]);
    for (strides, dilations, pads, extra, group) in cases {
        let x = Given::of("x", &[&[2, 4][..], &input].concat());
        let w = Given::of("w", &[&[4, 3][..], &kernel].concat());
        let b = Given::of("b", &[3 * group]);
        let size = |axis: usize| {
            let full = (input[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 + extra[axis];
            full - pads[axis] - pads[axis + 3]
        };
        let made = [size(0), size(1), size(2)];
        let whole = [&[2, 3 * group][..], &made].concat();
        let mut wanted = vec![0f64; whole.iter().product()];
        for place in places(&whole) {
            let (image, filter) = (place[0], place[1]);
            let mut sum = b.at(&[filter]);
            for tap in places(&kernel) {
                let from = |axis: usize| {
                    let reached = (place[2 + axis] + pads[axis]).checked_sub(tap[axis] * dilations[axis])?;
                    Some(reached / strides[axis])
                        .filter(|from| reached.is_multiple_of(strides[axis]) && *from < input[axis])
                };
                let (Some(d), Some(h), Some(v)) = (from(0), from(1), from(2)) else { continue };
                let each = 4 / group;
                for channel in (filter / 3 * each)..(filter / 3 + 1) * each {
                    sum += x.at(&[image, channel, d, h, v]) * w.at(&[channel, filter % 3, tap[0], tap[1], tap[2]]);
                }
            }
            wanted[place.iter().zip(&whole).fold(0, |flat, (at, dim)| flat * dim + at)] = sum;
        }
        let list = |values: &[usize]| values.iter().map(|value| *value as i64).collect::<Vec<_>>();
        let node = NodeProto::of("ConvTranspose", &["x", "w", "b"], &["y"])
            .with(ints("strides", &list(&strides)))
            .with(ints("dilations", &list(&dilations)))
            .with(ints("output_padding", &list(&extra)))
            .with(int("group", group as i64));
        let padded = node.clone().with(ints("pads", &list(&pads)));
        let made_now = numbers(padded, vec![x.message(), w.message(), b.message()]);
        near(&made_now[0], &wanted, &format!("strides {strides:?}, dilations {dilations:?}, pads {pads:?}"));
        let asked = node.with(ints("output_shape", &list(&made)));
        assert_eq!(numbers(asked, vec![x.message(), w.message(), b.message()])[0].len(), wanted.len());
    }
}

#[test]
fn deformable_windows_read_between_elements() {
    for (group, offset_group, masked) in [(1, 1, false), (2, 2, true), (2, 1, true), (1, 4, false)] {
        let (x, w) = (Given::of("x", &[2, 4, 5, 4]), Given::of("w", &[6, 4 / group, 3, 2]));
        let (stride, dilation, pads) = ([2, 1], [1, 2], [1, 1, 0, 2]);
        let made = [(5 + 1 - 3) / 2 + 1, 4 + 3 - 3 + 1];
        let mut offset = Given::of("offset", &[2, offset_group * 6 * 2, made[0], made[1]]);
        // Up to three elements away, some of them outside.
        offset.elements.iter_mut().for_each(|offset| *offset *= 3.0);
        let mask = Given::of("mask", &[2, offset_group * 6, made[0], made[1]]);
        let b = Given::of("b", &[6]);
        let read = |image: usize, channel: usize, row: f64, column: f64| {
            let mut sum = 0.0;
            for (r, c) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
                let (r, c) = (row.floor() + r, column.floor() + c);
                if (0.0..5.0).contains(&r) && (0.0..4.0).contains(&c) {
                    let weight = (1.0 - (row - r).abs()) * (1.0 - (column - c).abs());
                    sum += weight * x.at(&[image, channel, r as usize, c as usize]);
                }
            }
            sum
        };
        let mut wanted = Vec::new();
        for place in places(&[2, 6, made[0], made[1]]) {
            let [image, filter, row, column] = place[..] else { unreachable!("four axes") };
            let mut sum = b.at(&[filter]);
            for (at, tap) in places(&[3, 2]).iter().enumerate() {
                for inner in 0..4 / group {
                    let channel = filter / (6 / group) * (4 / group) + inner;
                    let own = channel / (4 / offset_group) * 6 + at;
                    let moved = |axis: usize| offset.at(&[image, own * 2 + axis, row, column]);
                    let r = (row * stride[0] + tap[0] * dilation[0]) as f64 - f64::from(pads[0]) + moved(0);
                    let c = (column * stride[1] + tap[1] * dilation[1]) as f64 - f64::from(pads[1]) + moved(1);
                    let weight = if masked { mask.at(&[image, own, row, column]) } else { 1.0 };
                    sum += weight * read(image, channel, r, c) * w.at(&[filter, inner, tap[0], tap[1]]);
                }
            }
            wanted.push(sum);
        }
        let last = if masked { "mask" } else { "" };
        let node = NodeProto::of("DeformConv", &["x", "w", "offset", "b", last], &["y"])
            .with(ints("strides", &[2, 1]))
            .with(ints("dilations", &[1, 2]))
            .with(ints("pads", &[1, 1, 0, 2]))
            .with(int("group", group as i64))
            .with(int("offset_group", offset_group as i64));
        let given = vec![x.message(), w.message(), offset.message(), b.message(), mask.message()];
        near(&numbers(node, given)[0], &wanted, &format!("{group} groups, {offset_group} of offsets"));
    }
}

#[test]
fn determinants_are_signed_sums_over_permutations() {
    fn leibniz(rows: &[Vec<f64>]) -> f64 {
        let Some((first, rest)) = rows.split_first() else { return 1.0 };
        let minor =
            |column: usize| rest.iter().map(|row| [&row[..column], &row[column + 1..]].concat()).collect::<Vec<_>>();
        first.iter().enumerate().map(|(at, x)| (if at % 2 == 0 { *x } else { -x }) * leibniz(&minor(at))).sum()
    }
    for size in 1..=6 {
        let x = Given::of("x", &[3, size, size]);
        let wanted: Vec<_> = (0..3)
            .map(|matrix| {
                let row = |row| (0..size).map(|column| x.at(&[matrix, row, column])).collect();
                leibniz(&(0..size).map(row).collect::<Vec<_>>())
            })
            .collect();
        near(&numbers(NodeProto::of("Det", &["x"], &["y"]), vec![x.message()])[0], &wanted, &format!("{size} rows"));
    }
    let det = |elements: &[f32]| {
        let side = elements.len().isqrt() as i64;
        let x = TensorProto::f32s("x", &[side, side], elements);
        numbers(NodeProto::of("Det", &["x"], &["y"]), vec![x])[0][0]
    };
    assert_eq!(det(&[0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]), 1.0, "a cycle of three rows");
    assert_eq!(det(&[0.0, 1.0, 1.0, 0.0]), -1.0, "two rows that changed places");
    assert_eq!(det(&[1.0, 2.0, 2.0, 4.0]), 0.0, "one row twice the other");
    assert_eq!(det(&[0.0, 3.0, 0.0, 5.0]), 0.0, "a column of zeros");
    assert!(det(&[1.0, f32::NAN, 2.0, 4.0]).is_nan() && det(&[f32::NAN, 1.0, 2.0, 4.0]).is_nan());
}

#[test]
fn einsum_takes_the_diagonal_of_axes_of_one_name() {
    let einsum = |equation: &str, inputs: &[&Given]| {
        let names: Vec<_> = inputs.iter().map(|input| input.name).collect();
        let node = NodeProto::of("Einsum", &names, &["y"]).with(AttributeProto::string("equation", equation));
        answers(node, inputs.iter().map(|input| input.message()).collect())
            .map(|made| made[0].elements::<f32>().expect("f32").to_vec())
    };
    let (square, cube, other) = (Given::of("s", &[3, 3]), Given::of("c", &[3, 3, 3]), Given::of("o", &[3, 2]));
    let diagonal: Vec<_> = (0..3).map(|at| square.at(&[at, at])).collect();
    near(&einsum("ii->i", &[&square]).expect("sound"), &diagonal, "the diagonal");
    near(&einsum("ii", &[&square]).expect("sound"), &[diagonal.iter().sum()], "the trace");
    let all: Vec<_> = (0..3).map(|at| cube.at(&[at, at, at])).collect();
    near(&einsum("iii->i", &[&cube]).expect("sound"), &all, "of three axes");
    let outer: Vec<_> = places(&[3, 3]).iter().map(|place| cube.at(&[place[0], place[1], place[0]])).collect();
    near(&einsum("iji->ij", &[&cube]).expect("sound"), &outer, "with one between");
    let batch: Vec<_> = places(&[3, 3]).iter().map(|place| cube.at(&[place[0], place[1], place[1]])).collect();
    near(&einsum("...ii->...i", &[&cube]).expect("sound"), &batch, "under an ellipsis");
    let product = |k: usize| (0..3).map(|at| square.at(&[at, at]) * other.at(&[at, k])).sum();
    near(&einsum("ii,ik->k", &[&square, &other]).expect("sound"), &[product(0), product(1)], "in a product");
    assert!(einsum("ii->i", &[&other]).is_err_and(|error| error.contains("is 3 in one input and 2 in another")));
    assert!(einsum("ii->ii", &[&square]).is_err_and(|error| error.contains("each once in the output")));
}

#[test]
fn the_places_of_greatest_elements_are_the_first_in_their_windows() {
    for by_columns in [0, 1] {
        let mut x = Given::of("x", &[2, 3, 5, 6]);
        // Rounded, so that some are equal.
        x.elements.iter_mut().for_each(|x| *x = (*x * 3.0).round());
        let (mut values, mut places_wanted) = (Vec::new(), Vec::new());
        for place in places(&[2, 3, 3, 5]) {
            let mut best: Option<(f64, usize)> = None;
            for tap in places(&[3, 2]) {
                let row = (place[2] * 2 + tap[0]).checked_sub(1).filter(|row| *row < 5);
                let column = (place[3] + tap[1] * 2).checked_sub(1).filter(|column| *column < 6);
                let (Some(row), Some(column)) = (row, column) else { continue };
                let own = x.at(&[place[0], place[1], row, column]);
                let flat = if by_columns == 1 { column * 5 + row } else { row * 6 + column };
                if best.is_none_or(|(best, _)| own > best) {
                    best = Some((own, (place[0] * 3 + place[1]) * 30 + flat));
                }
            }
            let (value, at) = best.expect("each window has an element");
            values.push(value);
            places_wanted.push(at as i64);
        }
        let node = NodeProto::of("MaxPool", &["x"], &["y", "z"])
            .with(ints("kernel_shape", &[3, 2]))
            .with(ints("strides", &[2, 1]))
            .with(ints("dilations", &[1, 2]))
            .with(ints("pads", &[1, 1, 1, 0]))
            .with(int("storage_order", by_columns));
        let made = answers(node, vec![x.message()]).expect("sound");
        near(made[0].elements::<f32>().expect("f32"), &values, "the greatest");
        assert_eq!(made[1].elements::<i64>().expect("i64"), places_wanted);
    }
    // Nothing is greater than −∞, and still each window has a position within the image.
    let low = TensorProto::f32s("x", &[1, 1, 3], &[f32::NEG_INFINITY; 3]);
    let node =
        NodeProto::of("MaxPool", &["x"], &["y", "z"]).with(ints("kernel_shape", &[2])).with(ints("pads", &[1, 0]));
    let made = answers(node, vec![low]).expect("sound");
    assert_eq!(made[1].elements::<i64>().expect("i64"), [0, 0, 1]);
}

#[test]
fn linear_attention_follows_its_recurrences() {
    let (batch, time, heads, sharing, depth, width) = (2, 4, 2, 2, 3, 2);
    let q = Given::of("q", &[batch, time, heads * sharing * depth]);
    let (k, v) = (Given::of("k", &[batch, time, heads * depth]), Given::of("v", &[batch, time, heads * width]));
    let s = Given::of("s", &[batch, heads, depth, width]);
    for (rule, decays, corrects) in
        [("linear", false, false), ("gated", true, false), ("delta", false, true), ("gated_delta", true, true)]
    {
        for (each, rates, past) in [(1, 1, false), (depth, heads, true)] {
            let g = Given::of("g", &[batch, time, heads * each]);
            let r = Given::of("r", &[batch, time, rates]);
            let mut wanted = vec![0f64; batch * time * heads * sharing * width];
            let mut states = Vec::new();
            for place in places(&[batch, heads]) {
                let (item, head) = (place[0], place[1]);
                let first = |d: usize, e: usize| if past { s.at(&[item, head, d, e]) } else { 0.0 };
                let mut state: Vec<Vec<f64>> = (0..depth).map(|d| (0..width).map(|e| first(d, e)).collect()).collect();
                for step in 0..time {
                    let key: Vec<_> = (0..depth).map(|d| k.at(&[item, step, head * depth + d])).collect();
                    if decays {
                        for (d, row) in state.iter_mut().enumerate() {
                            let own = g.at(&[item, step, head * each + if each == 1 { 0 } else { d }]).exp();
                            row.iter_mut().for_each(|x| *x *= own);
                        }
                    }
                    let rate = if rates == 1 { r.at(&[item, step, 0]) } else { r.at(&[item, step, head]) };
                    for e in 0..width {
                        let value = v.at(&[item, step, head * width + e]);
                        let held: f64 = (0..depth).map(|d| key[d] * state[d][e]).sum();
                        let written = if corrects { rate * (value - held) } else { value };
                        (0..depth).for_each(|d| state[d][e] += key[d] * written);
                        for own in 0..sharing {
                            let query = head * sharing + own;
                            let read: f64 =
                                (0..depth).map(|d| q.at(&[item, step, query * depth + d]) * state[d][e]).sum();
                            let flat = ((item * time + step) * heads * sharing + query) * width + e;
                            wanted[flat] = 0.5 * read;
                        }
                    }
                }
                states.extend(state.into_iter().flatten());
            }
            let last = if past { "s" } else { "" };
            let node = NodeProto::of("LinearAttention", &["q", "k", "v", last, "g", "r"], &["y", "z"])
                .with(int("q_num_heads", (heads * sharing) as i64))
                .with(int("kv_num_heads", heads as i64))
                .with(AttributeProto::float("scale", 0.5))
                .with(AttributeProto::string("update_rule", rule));
            let made = numbers(node, [&q, &k, &v, &s, &g, &r].map(Given::message).to_vec());
            near(&made[0], &wanted, rule);
            near(&made[1], &states, rule);
        }
    }
}

#[test]
fn flexible_attention_passes_scores_and_weights_through_graphs() {
    let (q, k, v) = (Given::of("q", &[1, 4, 3, 2]), Given::of("k", &[1, 2, 5, 2]), Given::of("v", &[1, 2, 5, 3]));
    let graph = |operator: &str| GraphProto {
        node: vec![NodeProto::of(operator, &["in", "factor"], &["out"])],
        input: vec![ValueInfoProto { name: "in".into(), r#type: None }],
        output: vec![ValueInfoProto { name: "out".into(), r#type: None }],
        initializer: vec![TensorProto::f32s("factor", &[], &[0.5])],
        ..GraphProto::default()
    };
    let mut wanted = Vec::new();
    for place in places(&[4, 3]) {
        let (head, row) = (place[0], place[1]);
        let score = |at: usize| {
            let sum: f64 = (0..2).map(|d| q.at(&[0, head, row, d]) * k.at(&[0, head / 2, at, d])).sum();
            sum / 2f64.sqrt() * 0.5
        };
        let powers: Vec<_> = (0..5).map(|at| score(at).exp()).collect();
        let all: f64 = powers.iter().sum();
        for e in 0..3 {
            wanted.push((0..5).map(|at| (powers[at] / all - 0.5) * v.at(&[0, head / 2, at, e])).sum());
        }
    }
    let plain =
        NodeProto { domain: "ai.onnx.preview".into(), ..NodeProto::of("FlexAttention", &["q", "k", "v"], &["y"]) };
    let node = plain
        .clone()
        .with(AttributeProto::graph("score_mod", &graph("Mul")))
        .with(AttributeProto::graph("prob_mod", &graph("Sub")));
    let given = || [&q, &k, &v].map(Given::message).to_vec();
    near(&numbers(node, given())[0], &wanted, "both graphs");
    // A graph that changes the shape, a graph of two outputs, a graph that cannot be lowered.
    let two = GraphProto { output: vec![graph("Mul").output[0].clone(); 2], ..graph("Mul") };
    for (graph, text) in [
        (graph("Mul"), ""),
        (GraphProto { node: vec![NodeProto::of("Shape", &["in"], &["out"])], ..graph("Mul") }, "returns i64"),
        (two, "has 2 outputs, but must have one"),
        (graph("Undefined"), "the operator Undefined is not implemented"),
    ] {
        let made = answers(plain.clone().with(AttributeProto::graph("score_mod", &graph)), given());
        match made {
            Ok(_) => assert_eq!(text, ""),
            Err(error) => assert!(!text.is_empty() && error.contains(text), "{error} should contain: {text}"),
        }
    }
}

#[test]
fn optional_values_are_there_or_not() {
    let node = |operator: &str, inputs: &[&str]| NodeProto::of(operator, inputs, &["y"]);
    let x = Given::of("x", &[2]);
    for operator in ["Optional", "OptionalGetElement"] {
        assert_eq!(numbers(node(operator, &["x"]), vec![x.message()])[0], x.elements);
        assert!(answers(node(operator, &[]), vec![]).is_err_and(|error| error.contains("empty optional")));
    }
    for (inputs, there) in [(&["x"][..], 1), (&[""], 0), (&[], 0)] {
        let made = answers(node("OptionalHasElement", inputs), vec![x.message()]).expect("sound");
        assert_eq!((made[0].bytes(), made[0].shape().rank()), (&[there][..], 0));
    }
}

#[test]
fn bits_are_read_as_another_type_of_their_width() {
    let cast = |to: i64, x: TensorProto| answers(NodeProto::of("BitCast", &["x"], &["y"]).with(int("to", to)), vec![x]);
    let floats = || TensorProto::f32s("x", &[3], &[1.0, -2.0, f32::NAN]);
    let made = cast(6, floats()).expect("as many bits");
    let wanted = [1.0f32, -2.0, f32::NAN].map(|x| x.to_bits() as i32);
    assert_eq!(made[0].elements::<i32>().expect("i32"), wanted);
    let back = cast(11, TensorProto::i64s("x", &[2], &[0, 0x4000_0000_0000_0000])).expect("as many bits");
    assert_eq!(back[0].elements::<f64>().expect("f64"), [0.0, 2.0]);
    let bytes = |values: &[u8]| TensorProto::raw("x", 2, &[values.len() as i64], values.to_vec());
    assert_eq!(cast(9, bytes(&[0, 1])).expect("bools")[0].bytes(), [0, 1]);
    assert!(cast(9, bytes(&[0, 2])).is_err_and(|error| error.contains("other than 0 and 1")));
    assert!(cast(7, floats()).is_err_and(|error| error.contains("f32 has 32 bits, i64 has 64")));
    assert!(cast(8, floats()).is_err() && cast(99, floats()).is_err());
}

#[test]
fn what_these_operators_are_not_defined_for_is_refused() {
    let volume = || vec![Given::of("x", &[1, 2, 2, 2, 2]).message(), Given::of("w", &[2, 1, 2, 2, 2]).message()];
    let image = || {
        let (x, w) = (Given::of("x", &[1, 2, 3, 3]), Given::of("w", &[2, 2, 2, 2]));
        vec![x.message(), w.message(), Given::of("o", &[1, 8, 2, 2]).message(), Given::of("m", &[1, 4, 2, 2]).message()]
    };
    let heads = || {
        let names = [("q", 4), ("k", 4), ("v", 4), ("g", 4), ("r", 2)];
        names.map(|(name, width)| Given::of(name, &[1, 2, width]).message()).to_vec()
    };
    let huge = i64::MAX;
    let transposed = |attribute| NodeProto::of("ConvTranspose", &["x", "w"], &["y"]).with(attribute);
    let bent = |attribute| NodeProto::of("DeformConv", &["x", "w", "o"], &["y"]).with(attribute);
    let linear = |heads: [i64; 2]| {
        let node = NodeProto::of("LinearAttention", &["q", "k", "v", "", "g", "r"], &["y", "z"]);
        node.with(int("q_num_heads", heads[0])).with(int("kv_num_heads", heads[1]))
    };
    let pool = |attribute| NodeProto::of("MaxPool", &["x"], &["y", "z"]).with(attribute);
    let cases = [
        (transposed(ints("strides", &[huge; 3])), volume()),
        (transposed(ints("strides", &[1 << 20, 1, 1])), volume()),
        (transposed(ints("strides", &[0, 1, 1])), volume()),
        (transposed(ints("pads", &[huge; 6])), volume()),
        (transposed(ints("pads", &[2, 0, 0, 2, 0, 0])), volume()),
        (transposed(ints("output_shape", &[huge; 3])), volume()),
        (transposed(ints("output_padding", &[1, 0, 0])), volume()),
        (transposed(ints("dilations", &[huge; 3])), volume()),
        (transposed(int("group", 3)), volume()),
        (transposed(int("group", huge)), volume()),
        (bent(ints("strides", &[huge, 1])), image()),
        (bent(ints("dilations", &[2, 2])), image()),
        (bent(ints("dilations", &[huge, 1])), image()),
        (bent(ints("pads", &[huge, 0, 0, 0])), image()),
        (bent(ints("pads", &[1, 0, 0, 0])), image()),
        (bent(int("group", 0)), image()),
        (bent(int("group", 2)), image()),
        (bent(int("offset_group", 2)), image()),
        (bent(int("offset_group", huge)), image()),
        (bent(ints("kernel_shape", &[3, 3])), image()),
        (NodeProto::of("DeformConv", &["x", "w", "o", "", "o"], &["y"]), image()),
        (NodeProto::of("DeformConv", &["x", "w", "m"], &["y"]), image()),
        (NodeProto::of("Det", &["x"], &["y"]), vec![Given::of("x", &[2, 3]).message()]),
        (NodeProto::of("Det", &["x"], &["y"]), vec![Given::of("x", &[3]).message()]),
        (NodeProto::of("Det", &["x"], &["y"]), vec![TensorProto::f32s("x", &[0, 0], &[])]),
        (NodeProto::of("Det", &["x"], &["y"]), vec![Given::of("x", &[65, 65]).message()]),
        (linear([3, 2]), heads()),
        (linear([2, 0]), heads()),
        (linear([0, 2]), heads()),
        (linear([huge, huge]), heads()),
        (linear([2, 2]).with(AttributeProto::string("update_rule", "else")), heads()),
        (linear([4, 4]), heads()),
        (NodeProto { input: ["q", "k", "v"].map(str::to_owned).to_vec(), ..linear([2, 2]) }, heads()),
        (pool(ints("kernel_shape", &[huge, 1])), image()),
        (pool(ints("kernel_shape", &[9, 9])), image()),
    ];
    for (node, inputs) in cases {
        let made = answers(node.clone(), inputs);
        assert!(made.is_err(), "{} {:?} is computed", node.op_type, node.attribute);
    }
    assert!(answers(linear([2, 2]), heads()).is_ok() && answers(bent(int("group", 1)), image()).is_ok());
}
