//! Tests of each rewrite alone: programs before and after it compute equal results.

use super::tests::{TOLERANCE, evaluate};
use super::{Rewrite, Rewrites, fuse};
use crate::lower::fold::Folding;
use anabranch_ir::program::{Node, Origin, Program, ValueId};
use anabranch_ir::testing::{Maker, add, map, relu};
use anabranch_kernels::Tensor;
use anabranch_kernels::op::{
    Binary, Conv, Expression, Literal, MatMul, Op, Pad, PadMode, Reduce, ReduceKind, Register, Slice, Step, Transpose,
    Unary,
};

/// Lists the nodes in order: their ops and inputs.
fn listing(program: &Program) -> Vec<String> {
    let value = |id: &ValueId| match &program.value(*id).origin {
        Origin::Input => "x".to_owned(),
        Origin::Constant(_) => "w".to_owned(),
        Origin::Node(node) => format!("{}", node.0),
    };
    let line = |node: &Node| {
        let what = match &node.spec.op {
            Op::Map(map) => map.expression.to_string(),
            Op::MatMul(op) => {
                let turned = |is: bool| if is { "T" } else { "" };
                format!("MatMul{}{}", turned(op.transpose_a), if op.transpose_b { "·T" } else { "" })
            }
            Op::Conv(op) => format!("Conv{:?}", op.pads),
            Op::Transpose(op) => format!("Transpose{:?}", op.permutation),
            op => op.name().to_owned(),
        };
        let epilogue = node.spec.op.epilogue().map_or(String::new(), |epilogue| format!(" then {epilogue}"));
        format!("{what}({}){epilogue}", node.inputs.iter().map(value).collect::<Vec<_>>().join(","))
    };
    program.nodes.iter().map(line).collect()
}

/// A program of one input, from which `make` builds it.
fn of(dims: &[usize], make: impl FnOnce(&mut Maker, ValueId) -> Vec<ValueId>) -> Program {
    let mut maker = Maker::new();
    let x = maker.input(dims);
    let outputs = make(&mut maker, x);
    maker.finish(&outputs)
}

fn weights(maker: &mut Maker, dims: &[usize]) -> ValueId {
    maker.constant(dims, |at| ((at * 37) % 41) as f32 / 20.5 - 1.0)
}

fn binary(function: Binary) -> Op {
    map(Expression::binary(function))
}

/// Asserts the effect of a rewrite on a program after the rewrites of `base`, and that the result is unchanged.
fn proves(rewrite: Rewrite, base: &[Rewrite], program: &Program, before: &[&str], after: &[&str]) {
    let base = base.iter().fold(Rewrites::NONE, |rewrites, rewrite| rewrites.with(*rewrite));
    let fused = |rewrites: Rewrites| fuse(program.clone(), rewrites, &mut Folding::new(1 << 24));
    let (old, new) = (fused(base), fused(base.with(rewrite)));
    assert_eq!(listing(&old), before, "before {rewrite}");
    assert_eq!(listing(&new), after, "after {rewrite}");
    let shape = program.value(program.inputs[0]).spec.shape.clone();
    let elements: Vec<f32> = (0..shape.elements()).map(|at| (at * 29 % 31) as f32 / 15.5 - 1.0).collect();
    let input = [Tensor::from_elements(shape, &elements).expect("one for each")];
    let ((want, greatest), (found, _)) = (evaluate(program, &input), evaluate(&new, &input));
    assert_eq!(want.len(), found.len());
    for (want, found) in want.iter().zip(&found) {
        let (a, b) = (want.elements::<f32>().expect("f32"), found.elements::<f32>().expect("f32"));
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= TOLERANCE * greatest;
        assert!(a.len() == b.len() && a.iter().zip(b).all(near), "{rewrite}: {a:?}, {b:?}");
    }
}

#[test]
fn common() {
    let program = of(&[2, 3], |maker, x| {
        let (a, b) = (maker.node(relu(), &[x], &[2, 3]), maker.node(relu(), &[x], &[2, 3]));
        vec![maker.node(add(), &[a, b], &[2, 3])]
    });
    let before = ["1: Relu(r0)(x)", "1: Relu(r0)(x)", "2: Add(r0,r1)(0,1)"];
    proves(Rewrite::Common, &[], &program, &before, &["1: Relu(r0)(x)", "2: Add(r0,r1)(0,0)"]);
}

#[test]
fn tidy() {
    let program = of(&[2, 3], |maker, x| {
        let ones = maker.constant(&[3], |_| 1.0);
        let same = maker.node(binary(Binary::Multiply), &[x, ones], &[2, 3]);
        vec![maker.node(relu(), &[same], &[2, 3])]
    });
    let before = ["2: Multiply(r0,r1)(x,w)", "1: Relu(r0)(0)"];
    proves(Rewrite::Tidy, &[], &program, &before, &["1: Relu(r0)(x)"]);
}

#[test]
fn hoists() {
    let program = of(&[4, 6], |maker, x| {
        let turned = maker.node(Op::Transpose(Transpose { permutation: vec![1, 0] }), &[x], &[6, 4]);
        let steps = vec![Step::Constant(Literal::Float(0.3)), Step::Binary(Binary::Multiply, Register(0), Register(1))];
        let scaled = maker.node(map(Expression::new(1, steps).expect("two steps")), &[turned], &[6, 4]);
        let w = weights(maker, &[4, 5]);
        vec![maker.node(Op::MatMul(MatMul::default()), &[scaled, w], &[6, 5])]
    });
    let before = ["Transpose[1, 0](x)", "1: 0.3 Multiply(r0,r1)(0)", "MatMul(1,w)"];
    let after = ["1: 0.3 Multiply(r0,r1)(x)", "Transpose[1, 0](0)", "MatMul(1,w)"];
    proves(Rewrite::Hoists, &[], &program, &before, &after);
    proves(Rewrite::Transposes, &[Rewrite::Hoists], &program, &after, &[after[0], "MatMulT(0,w)"]);
}

#[test]
fn slices() {
    let program = of(&[4, 6], |maker, x| {
        let turned = maker.node(Op::Transpose(Transpose { permutation: vec![1, 0] }), &[x], &[6, 4]);
        vec![maker.node(Op::Slice(Slice { starts: vec![2, 0], steps: vec![1, 1] }), &[turned], &[1, 4])]
    });
    proves(Rewrite::Slices, &[], &program, &["Transpose[1, 0](x)", "slice(0)"], &["slice(x)"]);
}

#[test]
fn columns() {
    let program = of(&[3, 8], |maker, x| {
        let w = weights(maker, &[8, 128]);
        let all = maker.node(Op::MatMul(MatMul::default()), &[x, w], &[3, 128]);
        let part = |maker: &mut Maker, start| {
            let op = Op::Slice(Slice { starts: vec![0, start], steps: vec![1, 1] });
            maker.node(op, &[all], &[3, 64])
        };
        vec![part(maker, 0), part(maker, 64)]
    });
    let before = ["MatMul(x,w)", "slice(0)", "slice(0)"];
    proves(Rewrite::Columns, &[], &program, &before, &["MatMul(x,w)", "MatMul(x,w)"]);
}

#[test]
fn transposes() {
    let turn = || Op::Transpose(Transpose { permutation: vec![1, 0] });
    let product = of(&[4, 6], |maker, x| {
        let turned = maker.node(turn(), &[x], &[6, 4]);
        let w = weights(maker, &[4, 5]);
        vec![maker.node(Op::MatMul(MatMul::default()), &[turned, w], &[6, 5])]
    });
    proves(Rewrite::Transposes, &[], &product, &["Transpose[1, 0](x)", "MatMul(0,w)"], &["MatMulT(x,w)"]);
    let twice = of(&[4, 6], |maker, x| {
        let once = maker.node(turn(), &[x], &[6, 4]);
        let twice = maker.node(turn(), &[once], &[4, 6]);
        vec![maker.node(relu(), &[twice], &[4, 6])]
    });
    let before = ["Transpose[1, 0](x)", "Transpose[1, 0](0)", "1: Relu(r0)(1)"];
    proves(Rewrite::Transposes, &[], &twice, &before, &["1: Relu(r0)(x)"]);
}

/// A convolution of 2 channels by 3 × 3 windows.
fn conv(maker: &mut Maker, x: ValueId) -> ValueId {
    let w = weights(maker, &[2, 1, 3, 3]);
    let op = Conv { strides: [1, 1], pads: [0; 4], dilations: [1, 1], group: 1, epilogue: None };
    maker.node(Op::Conv(op), &[x, w], &[1, 2, 4, 4])
}

#[test]
fn pads() {
    let program = of(&[1, 1, 4, 4], |maker, x| {
        let op = Op::Pad(Pad { mode: PadMode::ZERO, before: vec![0, 0, 1, 1] });
        let padded = maker.node(op, &[x], &[1, 1, 6, 6]);
        vec![conv(maker, padded)]
    });
    let before = ["pad(x)", "Conv[0, 0, 0, 0](0,w)"];
    proves(Rewrite::Pads, &[], &program, &before, &["Conv[1, 1, 1, 1](x,w)"]);
}

#[test]
fn scales() {
    let program = of(&[1, 1, 6, 6], |maker, x| {
        let made = conv(maker, x);
        let factor = weights(maker, &[2, 1, 1]);
        vec![maker.node(binary(Binary::Multiply), &[made, factor], &[1, 2, 4, 4])]
    });
    let before = ["Conv[0, 0, 0, 0](x,w)", "2: Multiply(r0,r1)(0,w)"];
    proves(Rewrite::Scales, &[], &program, &before, &["Conv[0, 0, 0, 0](x,w)"]);
}

#[test]
fn maps() {
    let program = of(&[2, 3], |maker, x| {
        let a = maker.node(relu(), &[x], &[2, 3]);
        vec![maker.node(map(Expression::unary(Unary::Tanh)), &[a], &[2, 3])]
    });
    let before = ["1: Relu(r0)(x)", "1: Tanh(r0)(0)"];
    proves(Rewrite::Maps, &[], &program, &before, &["1: Relu(r0) Tanh(r1)(x)"]);
}

#[test]
fn norms() {
    let program = of(&[2, 8], |maker, x| {
        let mean = Op::Reduce(Reduce { kind: ReduceKind::Mean, axes: vec![1] });
        let square = maker.node(binary(Binary::Multiply), &[x, x], &[2, 8]);
        let variance = maker.node(mean, &[square], &[2, 1]);
        let epsilon = maker.constant(&[], |_| 0.5);
        let shifted = maker.node(add(), &[variance, epsilon], &[2, 1]);
        let root = maker.node(map(Expression::unary(Unary::Sqrt)), &[shifted], &[2, 1]);
        vec![maker.node(binary(Binary::Divide), &[x, root], &[2, 8])]
    });
    let before = ["1: Multiply(r0,r0)(x)", "reduce(0)", "1: 0.5 Add(r0,r1) Sqrt(r2)(1)", "2: Divide(r0,r1)(x,2)"];
    proves(Rewrite::Norms, &[Rewrite::Tidy, Rewrite::Maps], &program, &before, &["normalize(x)"]);
}

#[test]
fn epilogues() {
    let program = of(&[4, 6], |maker, x| {
        let w = weights(maker, &[6, 5]);
        let product = maker.node(Op::MatMul(MatMul::default()), &[x, w], &[4, 5]);
        vec![maker.node(relu(), &[product], &[4, 5])]
    });
    let after = ["MatMul(x,w) then 1: Relu(r0)"];
    proves(Rewrite::Epilogues, &[], &program, &["MatMul(x,w)", "1: Relu(r0)(0)"], &after);
}

#[test]
fn every_rewrite_has_a_name_of_its_own() {
    for rewrite in Rewrite::ALL {
        assert_eq!(rewrite.name().parse(), Ok(rewrite));
        let left = Rewrites::ALL.without(rewrite);
        assert!(left.iter().all(|other| other != rewrite) && left.with(rewrite) == Rewrites::ALL);
    }
    assert_eq!(Rewrites::ALL.iter().collect::<Vec<_>>(), Rewrite::ALL);
    let error = "pad".parse::<Rewrite>().expect_err("no such").to_string();
    assert!(error.contains("no rewrite `pad`") && error.contains("pads") && error.contains("epilogues"), "{error}");
}
