//! Models in which tools put QuantizeLinear and DequantizeLinear around products: these are computed in integers, as
//! exactly.

use anabranch::import::from_bytes;
use anabranch::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
    data_type,
};
use anabranch::lower::{LowerOptions, lower};
use anabranch::program::Node;
use anabranch::session::{Inputs, Session};
use anabranch::{Shape, Tensor};
use anabranch_kernels::op::{Op, Rounding};
use anabranch_tests::one_cpu;

const CHANNELS: usize = 2;
const FILTERS: usize = 3;
const SIZE: [usize; 2] = [5, 6];
const MAPS: usize = 4;

/// Scales are powers of two, so that only the quantisation rounds.
const X: (f64, f64) = (1.0 / 16.0, 3.0);
const MIDDLE: (f64, f64) = (1.0 / 8.0, 10.0);

fn filter_scale(filter: usize) -> f64 {
    1.0 / f64::from(16 << filter)
}

fn weight(at: usize) -> i8 {
    ((at * 37 % 251) as u8) as i8
}

fn bytes(name: &str, dims: &[usize]) -> TensorProto {
    let count = dims.iter().product();
    let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    TensorProto::raw(name, data_type::INT8, &dims, (0..count).map(|at| weight(at) as u8).collect())
}

fn scales(name: &str, count: usize) -> TensorProto {
    let values: Vec<f32> = (0..count).map(|at| filter_scale(at) as f32).collect();
    TensorProto::f32s(name, &[count as i64], &values)
}

fn uniform(name: &str, (scale, zero): (f64, f64)) -> [TensorProto; 2] {
    let zero = TensorProto::raw(&format!("{name}.z"), data_type::UINT8, &[], vec![zero as u8]);
    [TensorProto::f32s(&format!("{name}.s"), &[], &[scale as f32]), zero]
}

fn model() -> Vec<u8> {
    let there_and_back = |from: &str, grid: &str, to: &str| {
        let [scale, zero, quantized] = [format!("{grid}.s"), format!("{grid}.z"), format!("{to}.q")];
        [
            NodeProto::of("QuantizeLinear", &[from, &scale, &zero], &[&quantized]),
            NodeProto::of("DequantizeLinear", &[&quantized, &scale, &zero], &[to]),
        ]
    };
    let widened = |name: &str, axis: i64| {
        let [integers, scale] = [format!("{name}.q"), format!("{name}.s")];
        NodeProto::of("DequantizeLinear", &[&integers, &scale], &[name]).with(AttributeProto::int("axis", axis))
    };
    let pads = AttributeProto::ints("pads", &[1, 1, 1, 1]);
    let [x_there, x_back] = there_and_back("x", "x", "xd");
    let [there, back] = there_and_back("r", "m", "rd");
    let node = vec![
        x_there,
        x_back,
        widened("w", 0),
        NodeProto::of("Conv", &["xd", "w", "b"], &["c"]).with(pads),
        NodeProto::of("Relu", &["c"], &["r"]),
        there,
        back,
        NodeProto::of("Flatten", &["rd"], &["f"]),
        widened("columns", 1),
        NodeProto::of("MatMul", &["f", "columns"], &["product"]),
        widened("rows", 0),
        NodeProto::of("Gemm", &["f", "rows", "c2"], &["gemm"]).with(AttributeProto::int("transB", 1)),
    ];
    let depth = FILTERS * SIZE[0] * SIZE[1];
    let biases: Vec<f32> = (0..FILTERS).map(|filter| filter as f32 - 1.0).collect();
    let mut initializer = vec![
        bytes("w.q", &[FILTERS, CHANNELS, 3, 3]),
        scales("w.s", FILTERS),
        TensorProto::f32s("b", &[FILTERS as i64], &biases),
        bytes("columns.q", &[depth, MAPS]),
        scales("columns.s", MAPS),
        bytes("rows.q", &[MAPS, depth]),
        scales("rows.s", MAPS),
        TensorProto::f32s("c2", &[], &[0.5]),
    ];
    initializer.extend(uniform("x", X).into_iter().chain(uniform("m", MIDDLE)));
    let dims = [1, CHANNELS, SIZE[0], SIZE[1]].map(|dim| DimensionProto::known(dim as i64)).to_vec();
    let input = vec![ValueInfoProto::tensor("x", data_type::FLOAT, dims)];
    let output = ["product", "gemm"].map(|name| ValueInfoProto { name: name.into(), r#type: None }).to_vec();
    ModelProto::of(GraphProto { node, initializer, input, output, ..GraphProto::default() }, 17).to_bytes()
}

/// Returns the value of the nearest number on a grid of bytes.
fn rounded(x: f64, (scale, zero): (f64, f64)) -> f64 {
    (((x / scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero) * scale
}

/// Returns the outputs that the ONNX specification defines, in `f64`.
fn expected(x: &[f32]) -> [Vec<f64>; 2] {
    let [high, wide] = SIZE;
    let plane = high * wide;
    let mut flat = Vec::new();
    for (filter, y, x0) in (0..FILTERS * plane).map(|at| (at / plane, at / wide % high, at % wide)) {
        let mut sum = filter as f64 - 1.0;
        for (channel, tap) in (0..CHANNELS).flat_map(|channel| (0..9).map(move |tap| (channel, tap))) {
            let [row, column] = [(y + tap / 3).wrapping_sub(1), (x0 + tap % 3).wrapping_sub(1)];
            if row < high && column < wide {
                let w = f64::from(weight((filter * CHANNELS + channel) * 9 + tap)) * filter_scale(filter);
                sum += rounded(f64::from(x[(channel * high + row) * wide + column]), X) * w;
            }
        }
        flat.push(rounded(sum.max(0.0), MIDDLE));
    }
    let depth = flat.len();
    let dot = |map: usize, place: &dyn Fn(usize) -> usize| {
        let terms = flat.iter().enumerate().map(|(at, x)| x * f64::from(weight(place(at))));
        terms.sum::<f64>() * filter_scale(map)
    };
    let product = (0..MAPS).map(|map| dot(map, &|at| at * MAPS + map)).collect();
    [product, (0..MAPS).map(|map| dot(map, &|at| map * depth + at) + 0.5).collect()]
}

#[test]
fn products_between_quantised_values_are_computed_in_integers() {
    let bytes = model();
    let program = lower(&from_bytes(&bytes, None).expect("sound"), &LowerOptions::default()).expect("lowers");
    let count = |of: fn(&Op) -> bool| program.nodes.iter().filter(|node| of(&node.spec.op)).count();
    assert_eq!(count(|op| matches!(op, Op::IntegerMatMul(_))), 2);
    assert_eq!(count(|op| matches!(op, Op::MatMul(_) | Op::NarrowMatMul(_) | Op::Conv(_))), 0);
    // The Relu is a bound of the rounding: the zero point of the grid behind it.
    let rounding = Rounding { least: MIDDLE.1 as i16, greatest: 255 };
    let rounded = |node: &Node| matches!(&node.spec.op, Op::IntegerConv(op) if op.rounding == Some(rounding));
    let conv = program.nodes.iter().find(|node| rounded(node)).expect("a rounded convolution");
    let kinds: Vec<_> = conv.operators.iter().map(|operator| operator.kind.as_str()).collect();
    assert_eq!(kinds, ["Conv", "Relu", "QuantizeLinear"], "it does the work of all three, and is found by their names");
    let planned = |name: &str| {
        let session = Session::from_bytes(&bytes, one_cpu().with_pin(name, "cpu0")).expect("a sound model");
        session.plan(&session.fill_random(Inputs::new(), 0).expect("known shapes")).map(drop)
    };
    ["Conv_3", "Relu_4", "QuantizeLinear_5"].iter().for_each(|name| planned(name).expect("one node has the name"));
    let unknown = planned("Flatten_7").expect_err("it only changes a shape").to_string();
    assert!(unknown.contains("operators that only change a shape"), "{unknown}");
    // GPUs have no kernel for convolutions of integers.
    let options = LowerOptions { integer_convolutions: false, ..LowerOptions::default() };
    let floats = lower(&from_bytes(&bytes, None).expect("sound"), &options).expect("lowers");
    let is_float = |node: &Node| matches!(node.spec.op, Op::Conv(_));
    assert!(floats.nodes.iter().any(is_float) && !program.nodes.iter().any(is_float));
    let x: Vec<f32> = (0..CHANNELS * SIZE[0] * SIZE[1]).map(|at| (at * 29 % 101) as f32 / 7.0 - 2.0).collect();
    let tensor = Tensor::from_elements(Shape::new([1, CHANNELS, SIZE[0], SIZE[1]]).expect("small"), &x);
    let session = Session::from_bytes(&bytes, one_cpu()).expect("a sound model");
    let outputs = session.run(&Inputs::new().tensor("x", tensor.expect("as many"))).expect("runs");
    for (name, want) in ["product", "gemm"].into_iter().zip(expected(&x)) {
        let found = outputs.tensor(name).expect("made").elements::<f32>().expect("floats");
        let found: Vec<f64> = found.iter().map(|x| f64::from(*x)).collect();
        assert_eq!(found, want, "{name}");
    }
}

/// Sums that 32 bits do not hold are computed in floats. Terms have one sign, so that no rounding cancels another.
#[test]
fn products_of_any_depth_have_the_accuracy_of_floats() {
    const COLUMNS: usize = 3;
    let number = |at: usize, is_signed: bool| if is_signed { 127 - (at % 7) as i64 } else { 255 - (at % 13) as i64 };
    for (depth, integers) in [(33_025, 1), (33_026, 0), (70_000, 0), (200_000, 0)] {
        for [a, b] in [[false, false], [false, true], [true, true], [true, false]] {
            let one = TensorProto::f32s("one", &[], &[1.0]);
            let dtype = |is_signed| if is_signed { data_type::INT8 } else { data_type::UINT8 };
            let raw = (0..depth * COLUMNS).map(|at| number(at, b) as u8).collect();
            let weights = TensorProto::raw("w.q", dtype(b), &[depth as i64, COLUMNS as i64], raw);
            let node = vec![
                NodeProto::of("DequantizeLinear", &["x", "one"], &["xd"]),
                NodeProto::of("DequantizeLinear", &["w.q", "one"], &["w"]),
                NodeProto::of("MatMul", &["xd", "w"], &["y"]),
            ];
            let dims = [1, depth as i64].map(DimensionProto::known).to_vec();
            let input = vec![ValueInfoProto::tensor("x", dtype(a), dims)];
            let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
            let graph = GraphProto { node, initializer: vec![one, weights], input, output, ..GraphProto::default() };
            let bytes = ModelProto::of(graph, 17).to_bytes();
            let program = lower(&from_bytes(&bytes, None).expect("sound"), &LowerOptions::default()).expect("lowers");
            let found = program.nodes.iter().filter(|node| matches!(node.spec.op, Op::IntegerMatMul(_))).count();
            assert_eq!(found, integers, "{depth}");
            let session = Session::from_bytes(&bytes, one_cpu()).expect("a sound model");
            let (shape, row) = (Shape::new([1, depth]).expect("small"), (0..depth).map(|at| number(at, a)));
            let x = match a {
                true => Tensor::from_elements(shape, &row.map(|x| x as i8).collect::<Vec<_>>()),
                false => Tensor::from_elements(shape, &row.map(|x| x as u8).collect::<Vec<_>>()),
            };
            let outputs = session.run(&Inputs::new().tensor("x", x.expect("as many"))).expect("runs");
            let y = outputs.tensor("y").expect("made").elements::<f32>().expect("floats");
            for (column, y) in y.iter().enumerate() {
                let want: i64 = (0..depth).map(|at| number(at, a) * number(at * COLUMNS + column, b)).sum();
                let error = (f64::from(*y) - want as f64).abs() / want as f64;
                assert!(error < 2e-6, "{depth} terms, signed {a} and {b}: {y} rather than {want}");
            }
        }
    }
}

/// Elements are whole numbers, and 127 is the greatest magnitude of each block, so that rounding rows changes nothing.
#[test]
fn rows_are_quantised_where_the_model_allows_it() {
    let (rows, depth, columns) = (3, 40, 70);
    for (level, bits, block) in [(4, 4, 16), (4, 4, 32), (4, 8, 16), (4, 2, 16), (1, 4, 32), (0, 4, 32)] {
        let blocks = (depth + block - 1) / block;
        let line = blocks * block * bits / 8;
        let packed: Vec<u8> = (0..columns * line).map(|at| weight(at as usize) as u8).collect();
        let scales: Vec<f32> = (0..columns * blocks).map(|at| 0.5 + (at % 3) as f32).collect();
        let mut node = NodeProto::of("MatMulNBits", &["x", "w", "s"], &["y"]);
        node.domain = "com.microsoft".into();
        let attributes =
            [("K", depth), ("N", columns), ("bits", bits), ("block_size", block), ("accuracy_level", level)];
        let node = attributes.iter().fold(node, |node, (name, value)| node.with(AttributeProto::int(name, *value)));
        let weights = TensorProto::raw("w", data_type::UINT8, &[columns, blocks, line / blocks], packed.clone());
        let initializer = vec![weights, TensorProto::f32s("s", &[columns * blocks], &scales)];
        let input =
            vec![ValueInfoProto::tensor("x", data_type::FLOAT, [rows, depth].map(DimensionProto::known).to_vec())];
        let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
        let graph = GraphProto { node: vec![node], initializer, input, output, ..GraphProto::default() };
        let mut model = ModelProto::of(graph, 21);
        model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 });
        let bytes = model.to_bytes();
        let program = lower(&from_bytes(&bytes, None).expect("sound"), &LowerOptions::default()).expect("lowers");
        let quantized = program.nodes.iter().any(|node| matches!(&node.spec.op, Op::NarrowMatMul(op) if op.quantize_a));
        assert_eq!(quantized, level == 4 && bits == 4, "level {level}, {bits} bits");
        let element = |at: i64| if at % depth % block == 1 { 127 } else { at * 7 % 90 - 40 };
        let x: Vec<f32> = (0..rows * depth).map(|at| element(at) as f32).collect();
        let x =
            Tensor::from_elements(Shape::new([rows as usize, depth as usize]).expect("small"), &x).expect("as many");
        let session = Session::from_bytes(&bytes, one_cpu()).expect("a sound model");
        let outputs = session.run(&Inputs::new().tensor("x", x)).expect("runs");
        let found = outputs.tensor("y").expect("made").elements::<f32>().expect("floats");
        let want = (0..rows * columns).map(|at| {
            let (i, j) = (at / columns, at % columns);
            let term = |p: i64| {
                let byte = packed[(j * line + p * bits / 8) as usize];
                let number = i64::from(byte >> (p * bits % 8) & (u8::MAX >> (8 - bits))) - (1 << (bits - 1));
                (element(i * depth + p) * number) as f32 * scales[(j * blocks + p / block) as usize]
            };
            (0..depth).map(term).sum::<f32>()
        });
        assert_eq!(found, want.collect::<Vec<_>>(), "level {level}, {bits} bits, blocks of {block}");
    }
}

/// Returns what a node over `x` says that has these shapes of initializers, all filled with ones.
fn refusal(op: &str, x: &[i64], shapes: &[&[i64]]) -> Option<String> {
    let names: Vec<_> = (0..shapes.len()).map(|at| format!("p{at}")).collect();
    let inputs: Vec<&str> = std::iter::once("x").chain(names.iter().map(String::as_str)).collect();
    // Scales are inputs 1, 4 and 6; the others are integers.
    let parameter = |(at, dims): (usize, &&[i64])| match at {
        0 | 3 | 5 => TensorProto::f32s(&names[at], dims, &vec![1.0; dims.iter().product::<i64>() as usize]),
        _ => TensorProto::raw(&names[at], data_type::UINT8, dims, vec![1; dims.iter().product::<i64>() as usize]),
    };
    let initializer = shapes.iter().enumerate().map(parameter).collect();
    let dims = x.iter().map(|dim| DimensionProto::known(*dim)).collect();
    let input = vec![ValueInfoProto::tensor("x", data_type::UINT8, dims)];
    let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
    let node = vec![NodeProto::of(op, &inputs, &["y"])];
    let graph = GraphProto { node, initializer, input, output, ..GraphProto::default() };
    let model = from_bytes(&ModelProto::of(graph, 21).to_bytes(), None).expect("sound");
    lower(&model, &LowerOptions::default()).err().map(|error| error.to_string())
}

fn slices<'a>(all: &[&'a [i64]]) -> Vec<&'a [i64]> {
    all.to_vec()
}

#[test]
fn scales_that_do_not_fit_are_refused() {
    let (one, none): (&[i64], &[i64]) = (&[], &[0]);
    let conv = |x: &[i64], scale: &[i64], zero: &[i64]| {
        refusal("QLinearConv", &[1, 1, 3], &[x, one, &[2, 1, 1], scale, zero, one, one])
    };
    for fits in slices(&[one, &[1], &[2]]) {
        assert_eq!(conv(one, fits, one), None, "{fits:?}");
    }
    for scale in slices(&[&[3, 1, 1], &[1, 3], &[1, 1, 3], &[3], none]) {
        let text = conv(one, scale, one).expect("refused");
        assert!(text.contains("input 4 of shape"), "{scale:?}: {text}");
    }
    for scale in slices(&[&[2], &[2, 1, 1], none]) {
        assert!(conv(scale, one, one).expect("refused").contains("input 1 of shape"), "{scale:?}");
    }
    for zero in slices(&[&[3], none, &[2, 1, 1, 1]]) {
        assert!(conv(one, one, zero).expect("refused").contains("input 5 of shape"), "{zero:?}");
    }
    let product = |b: &[i64], zero: &[i64]| refusal("QLinearMatMul", &[2, 3], &[one, one, &[3, 4], b, zero, one, one]);
    // A vector's axis is not in the product, and a stack has scales for each of its matrices.
    let fits: [[&[i64]; 4]; 5] = [
        [&[3], one, &[3, 4], &[1, 4]],
        [&[3], one, &[2, 3, 4], &[2, 1, 4]],
        [&[2, 3], &[2, 1], &[3], one],
        [&[2, 2, 3], &[2, 2, 1], &[3], one],
        [&[2, 3], &[2], &[2, 3, 4], &[4]],
    ];
    for [x, a, w, b] in fits {
        assert_eq!(refusal("QLinearMatMul", x, &[a, one, w, b, one, one, one]), None, "{x:?} {a:?} {w:?} {b:?}");
    }
    let wrong: [[&[i64]; 3]; 3] = [[&[2, 4], &[1, 4], &[4, 4]], [&[4], &[4], &[4, 4]], [&[2, 2, 3], &[3], &[3]]];
    for [x, zero, w] in wrong {
        let error = refusal("QLinearMatMul", x, &[one, zero, w, one, one, one, one]).expect("refused");
        assert!(error.contains("input 2 of shape"), "{x:?} {zero:?} {w:?}: {error}");
    }
    for fits in slices(&[one, &[4], &[1, 4]]) {
        assert_eq!(product(fits, one), None, "{fits:?}");
    }
    for scale in slices(&[&[5, 1, 1], &[3], none]) {
        assert!(product(scale, one).expect("refused").contains("input 4 of shape"), "{scale:?}");
    }
    for zero in slices(&[&[3], none]) {
        assert!(product(one, zero).expect("refused").contains("input 5 of shape"), "{zero:?}");
    }
}
