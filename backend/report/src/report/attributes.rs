//! Parameters of a node's kernel in words: strides, padding, axes, and the expression that is applied to its result.

use super::formula::{formula, words};
use anabranch_kernels::op::{
    Attention, Expression, Fourier, Gather, Interpolation, Map, NarrowFormat, NarrowMatMul, NodeSpec, Normalize, Op,
    PadMode, PoolKind, Recurrent, RecurrentKind, Reduce, Resize, Rounding, Running,
};
use serde::Serialize;
use std::fmt::Display;

/// Most numbers of a list that are written out.
const MOST_NUMBERS: usize = 12;

/// A parameter: its name and its value, as texts.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Attribute(&'static str, String);

/// Returns the parameters of a node's kernel. Axes count from 0, the outermost. A streaming block has none of its own.
pub(super) fn attributes(spec: &NodeSpec) -> Vec<Attribute> {
    let mut found = own(spec);
    if let Some(epilogue) = spec.op.epilogue() {
        let start = spec.op.epilogue_inputs_start();
        let name = |index: usize| if index == 0 { "result".into() } else { format!("input {}", start + index) };
        found.push(Attribute("then", formula(epilogue, name)));
    }
    found
}

fn own(spec: &NodeSpec) -> Vec<Attribute> {
    let windowed = |strides, pads, dilations, group| {
        let mut found = window(spec.inputs.get(1).map_or(&[][..], |weights| weights.shape.dims()));
        found.extend([steps(strides), padding(pads), dilation(dilations), of("groups", group)]);
        found
    };
    match &spec.op {
        Op::Map(op) => map(op),
        Op::MatMul(op) => transposed(op.transpose_a, op.transpose_b),
        Op::NarrowMatMul(op) => narrow(op),
        Op::IntegerMatMul(op) => vec![is("zero points", op.zero_points), rounded(op.rounding)],
        Op::IntegerConv(op) => {
            let mut found = windowed(op.strides, op.pads, op.dilations, op.group);
            found.extend([of("padded with", op.border), is("zero points", op.zero_points)]);
            found.push(rounded(op.rounding));
            found
        }
        Op::Conv(op) => windowed(op.strides, op.pads, op.dilations, op.group),
        Op::ConvTranspose(op) => windowed(op.strides, op.pads, op.dilations, op.group),
        Op::Pool(op) => {
            let kind = match op.kind {
                PoolKind::Max => "greatest element".into(),
                PoolKind::Average { count_padding: true } => "mean, padding counts as zeros".to_owned(),
                PoolKind::Average { count_padding: false } => "mean without padding".into(),
            };
            let mut found = vec![of("function", kind)];
            found.extend(window(&op.window));
            found.extend([steps(op.strides), padding(op.pads), dilation(op.dilations)]);
            found
        }
        Op::Reduce(Reduce { kind, axes }) => vec![of("function", words(kind)), list("axes", axes)],
        Op::ArgReduce(op) => {
            let which = if op.greatest { "greatest" } else { "least" };
            let equal = if op.last { "the last" } else { "the first" };
            vec![of("searches the", which), of("of equal elements", equal), of("axis", op.axis)]
        }
        Op::TopK(op) => {
            vec![of("searches the", if op.largest { "greatest" } else { "least" }), of("axis", op.axis)]
        }
        Op::Running(op) => running(op),
        Op::Fourier(Fourier { length, inverse }) => vec![of("length", length), is("inverse", *inverse)],
        Op::Scatter(op) => vec![of("old and new", words(op.kind))],
        Op::Softmax(op) => vec![of("axis", op.axis), is("logarithm", op.log)],
        Op::Normalize(Normalize { axis, epsilon, center, .. }) => {
            vec![of("axes from", axis), of("epsilon", format!("{epsilon:?}")), is("subtracts the mean", *center)]
        }
        Op::Resize(op) => resize(op),
        Op::Recurrent(Recurrent { kind, reverse, clip, coupled }) => {
            let cell = match kind {
                RecurrentKind::Gru { linear_before_reset: true } => "GRU, reset after the product",
                RecurrentKind::Gru { linear_before_reset: false } => "GRU, reset before the product",
                RecurrentKind::Lstm => "LSTM",
                RecurrentKind::Rnn => "RNN",
            };
            let mut rows = vec![of("cell", cell), is("from the last step", *reverse)];
            rows.extend(clip.map(|clip| of("arguments at most", format!("{clip:?}"))));
            rows.extend(coupled.then(|| is("coupled gates", true)));
            rows
        }
        Op::Transpose(op) => vec![list("order of axes", &op.permutation)],
        Op::Concat(op) => vec![of("axis", op.axis)],
        Op::Slice(op) => vec![list("starts", &op.starts), list("steps", &op.steps)],
        Op::Pad(op) => {
            let mode = match op.mode {
                PadMode::Constant(value) => value.to_string(),
                PadMode::Reflect => "mirrored elements".into(),
                PadMode::Edge => "the edge's element".into(),
                PadMode::Wrap => "elements of the other end".into(),
            };
            vec![of("padded with", mode), list("before each axis", &op.before)]
        }
        Op::Gather(Gather { axis, elementwise }) => {
            vec![of("axis", axis), of("chooses", if *elementwise { "elements" } else { "slices" })]
        }
        Op::Attention(op) => attention(op),
        Op::Append(op) => vec![is("circular", op.circular)],
        Op::Rotary(op) => vec![is("pairs of neighbours", op.interleaved), is("heads before positions", op.by_head)],
        Op::Length(op) => vec![of("least", op.least), of("greatest", op.most)],
        Op::Trees(op) => vec![of("joins weights by", words(op.aggregate))],
        Op::Block(_) => Vec::new(),
    }
}

fn map(Map { domain, expression }: &Map) -> Vec<Attribute> {
    let value = match expression.inputs() {
        1 if expression.steps().is_empty() => "a copy of its input".into(),
        _ => said(expression),
    };
    vec![of("computes", value), of("in", words(domain))]
}

fn said(expression: &Expression) -> String {
    formula(expression, |index| format!("input {}", index + 1))
}

fn transposed(a: bool, b: bool) -> Vec<Attribute> {
    vec![is("input 1 transposed", a), is("input 2 transposed", b)]
}

fn narrow(op: &NarrowMatMul) -> Vec<Attribute> {
    let mut found = transposed(false, op.transpose_b);
    match op.format {
        NarrowFormat::Float => found.push(of("weights", "16-bit floats")),
        NarrowFormat::Grid { bits, block, zero_points } => {
            found.push(of("weights", format!("{bits}-bit integers")));
            found.extend([of("weights of a scale", block), is("zero points", zero_points)]);
        }
    }
    found.push(is("input 1 rounded to 8 bits", op.quantize_a));
    found
}

fn running(op: &Running) -> Vec<Attribute> {
    let function = if op.multiply { "product" } else { "sum" };
    vec![
        of("function", function),
        of("axis", op.axis),
        is("from the end", op.reverse),
        is("without the element itself", op.exclusive),
    ]
}

fn resize(op: &Resize) -> Vec<Attribute> {
    let interpolation = match op.interpolation {
        Interpolation::Nearest(rounding) => format!("nearest, {}", words(rounding)),
        Interpolation::Linear => "linear".into(),
        Interpolation::Cubic { coefficient } => format!("cubic, coefficient {coefficient}"),
    };
    let [rows, columns] = op.scales;
    vec![
        of("interpolation", interpolation),
        of("coordinates", words(op.coordinates)),
        of("scale", format!("{rows} × {columns}")),
    ]
}

fn attention(op: &Attention) -> Vec<Attribute> {
    let keys = |keys: Option<usize>| keys.map_or("all".to_owned(), |keys| keys.to_string());
    let mut found = vec![of("scale", op.scale), of("keys before", keys(op.before)), of("keys after", keys(op.after))];
    if op.cap != 0.0 {
        found.push(of("scores bent towards", op.cap));
    }
    found.extend([is("scores have summands", op.bias), of("costs count keys", op.expected)]);
    found
}

fn of(name: &'static str, value: impl Display) -> Attribute {
    Attribute(name, value.to_string())
}

fn rounded(rounding: Option<Rounding>) -> Attribute {
    of("output", rounding.map_or("exact sums".into(), |to| format!("rounded to {} to {}", to.least, to.greatest)))
}

fn is(name: &'static str, value: bool) -> Attribute {
    of(name, if value { "yes" } else { "no" })
}

fn list<T: Display>(name: &'static str, values: &[T]) -> Attribute {
    let shown: Vec<String> = values.iter().take(MOST_NUMBERS).map(ToString::to_string).collect();
    let more = values.len().saturating_sub(MOST_NUMBERS);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    of(name, format!("{}{rest}", shown.join(", ")))
}

/// Returns the rows and columns of a window, which are its last two sizes.
fn window(dims: &[usize]) -> Vec<Attribute> {
    dims.last_chunk::<2>().map(|[rows, columns]| of("window", format!("{rows} × {columns}"))).into_iter().collect()
}

fn steps([rows, columns]: [usize; 2]) -> Attribute {
    of("strides", format!("{rows} × {columns}"))
}

fn dilation([rows, columns]: [usize; 2]) -> Attribute {
    of("dilations", format!("{rows} × {columns}"))
}

fn padding(pads: [usize; 4]) -> Attribute {
    let [above, left, below, right] = pads;
    of(
        "pads",
        match pads {
            [0, 0, 0, 0] => "none".into(),
            _ if pads == [above; 4] => format!("{above} on each side"),
            _ => format!("above {above}, left {left}, below {below}, right {right}"),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::op::{Binary, Conv, Register, Slice, Step, Unary};
    use anabranch_kernels::{DType, Shape, TensorSpec};

    fn spec(op: Op, inputs: &[&[usize]]) -> NodeSpec {
        let tensor = |dims: &&[usize]| TensorSpec::new(DType::F32, Shape::new(*dims).expect("small"));
        NodeSpec { op, inputs: inputs.iter().map(tensor).collect(), outputs: Vec::new() }
    }

    fn told(op: Op, inputs: &[&[usize]]) -> String {
        let told = |Attribute(name, value): &Attribute| format!("{name} {value}");
        attributes(&spec(op, inputs)).iter().map(told).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_convolution_has_its_window_and_what_follows_in_words() {
        let biased = vec![Step::Binary(Binary::Add, Register(0), Register(1)), Step::Unary(Unary::Relu, Register(2))];
        let conv = |pads| {
            let epilogue = Some(Expression::new(2, biased.clone()).expect("valid"));
            Op::Conv(Conv { strides: [2, 1], pads, dilations: [1, 1], group: 4, epilogue })
        };
        let inputs: &[&[usize]] = &[&[1, 4, 8, 8], &[8, 1, 3, 5], &[8]];
        assert_eq!(
            told(conv([1; 4]), inputs),
            "window 3 × 5; strides 2 × 1; pads 1 on each side; dilations 1 × 1; groups 4; then relu(result + input 3)"
        );
        assert!(told(conv([0; 4]), inputs).contains("pads none"));
        assert!(told(conv([0, 1, 2, 3]), inputs).contains("pads above 0, left 1, below 2, right 3"));
    }

    #[test]
    fn numbers_are_those_of_the_model() {
        let normalize = Op::Normalize(Normalize { axis: 2, epsilon: 1e-5, center: true, epilogue: None });
        assert_eq!(told(normalize, &[&[1, 2, 8]]), "axes from 2; epsilon 1e-5; subtracts the mean yes");
        let slice = Op::Slice(Slice { starts: (0..14).collect(), steps: vec![-1; 2] });
        assert_eq!(told(slice, &[]), "starts 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more; steps -1, -1");
        let copy = Op::Map(Map { domain: anabranch_kernels::op::Domain::F32, expression: Expression::identity() });
        assert_eq!(told(copy, &[&[1]]), "computes a copy of its input; in f32");
    }
}
