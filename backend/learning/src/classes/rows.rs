//! Probes for calibration: reductions, data movement and element-wise expressions in the sizes that networks have.

use super::{Probe, tensor};
use anabranch_ir::program::map;
use anabranch_kernels::DType;
use anabranch_kernels::op::{
    ArgReduce, Binary, Concat, Expression, Gather, NodeSpec, Normalize, Op, Pad, PadMode, Reduce, ReduceKind, Register,
    Slice, Softmax, Step, Transpose, Unary,
};

/// Reductions along the innermost axes and along outer axes.
pub(super) fn reductions() -> Vec<Probe> {
    let reduces: [(&[usize], &[usize], ReduceKind); 17] = [
        (&[64, 256], &[1], ReduceKind::Max),
        (&[64, 256], &[0], ReduceKind::Max),
        (&[16, 32], &[1], ReduceKind::Sum),
        (&[128, 512], &[1], ReduceKind::Max),
        (&[512, 512], &[1], ReduceKind::Mean),
        (&[1, 64, 56, 56], &[2, 3], ReduceKind::Mean),
        (&[1, 512, 7, 7], &[2, 3], ReduceKind::Mean),
        (&[1, 1280, 7, 7], &[2, 3], ReduceKind::Mean),
        (&[1, 200, 8, 8], &[2, 3], ReduceKind::Mean),
        (&[40, 96], &[1], ReduceKind::Sum),
        (&[24, 10], &[1], ReduceKind::Mean),
        (&[16, 32], &[0], ReduceKind::Sum),
        (&[128, 512], &[0], ReduceKind::Max),
        (&[1, 49, 768], &[1], ReduceKind::Mean),
        (&[1024, 256], &[0], ReduceKind::Sum),
        (&[8, 64, 64], &[1], ReduceKind::Mean),
        (&[1, 64, 56, 56], &[1], ReduceKind::Mean),
    ];
    let reduce = |(dims, axes, kind): (&[usize], &[usize], ReduceKind)| {
        let kept: Vec<usize> = (0..dims.len()).filter(|axis| !axes.contains(axis)).map(|axis| dims[axis]).collect();
        Probe::new(Op::Reduce(Reduce { kind, axes: axes.to_vec() }), 1, &[dims], &kept)
    };
    let axes: [(&[usize], usize); 14] = [
        (&[4, 16], 1),
        (&[40, 9], 1),
        (&[120, 20], 1),
        (&[400, 100], 1),
        (&[1, 1000], 1),
        (&[64, 197], 1),
        (&[12, 128, 128], 2),
        (&[256, 512], 1),
        (&[50, 10], 1),
        (&[4, 16], 0),
        (&[10, 300], 0),
        (&[8, 64, 16], 1),
        (&[21, 48, 48], 0),
        (&[64, 1024], 0),
    ];
    let searched = |&(dims, axis): &(&[usize], usize)| {
        let kept: Vec<usize> = (0..dims.len()).filter(|other| *other != axis).map(|axis| dims[axis]).collect();
        let mut probe = Probe::new(Op::ArgReduce(ArgReduce { axis, greatest: true, last: false }), 1, &[dims], &kept);
        probe.spec.outputs = vec![tensor(DType::I64, &kept)];
        probe
    };
    let softmax =
        |&(dims, axis): &(&[usize], usize)| Probe::new(Op::Softmax(Softmax { axis, log: false }), 1, &[dims], dims);
    let rows = [
        (16, 64),
        (10, 40),
        (197, 192),
        (128, 512),
        (1, 768),
        (32, 6272),
        (512, 256),
        (64, 1024),
        (4, 48),
        (20, 96),
        (512, 200),
        (256, 784),
    ];
    let normalized = rows.into_iter().enumerate().map(|(at, (rows, length))| normalize(rows, length, at % 2 == 1));
    let along = axes.iter().map(searched).chain(axes.iter().map(softmax)).collect::<Vec<_>>();
    reduces.into_iter().map(reduce).chain(along).chain(normalized).collect()
}

/// A normalisation, with scale and bias if `affine`.
fn normalize(rows: usize, length: usize, affine: bool) -> Probe {
    let [result, scale, bias, scaled] = [0, 1, 2, 3].map(Register);
    let steps = vec![Step::Binary(Binary::Multiply, result, scale), Step::Binary(Binary::Add, scaled, bias)];
    let epilogue = affine.then(|| Expression::new(3, steps).expect("each step reads what is before it"));
    let op = Op::Normalize(Normalize { axis: 1, epsilon: 1e-5, center: true, epilogue });
    let inputs: [&[usize]; 3] = [&[rows, length], &[length], &[length]];
    Probe::new(op, 1, &inputs[..if affine { 3 } else { 1 }], &[rows, length])
}

/// Transposition of matrices, heads and channels; slices; concatenation; padding; and table look-ups.
pub(super) fn moves() -> Vec<Probe> {
    let transposes: [(&[usize], &[usize]); 18] = [
        (&[1, 8, 100, 64], &[0, 2, 1, 3]),
        (&[1, 4, 256, 32], &[0, 2, 1, 3]),
        (&[4, 6, 8], &[1, 0, 2]),
        (&[1, 20, 5, 10], &[0, 2, 1, 3]),
        (&[12, 3, 4, 8], &[1, 2, 0, 3]),
        (&[1, 128, 8, 64], &[0, 2, 1, 3]),
        (&[1, 50, 3, 32], &[0, 2, 1, 3]),
        (&[1, 8, 7, 8, 7, 32], &[0, 1, 3, 2, 4, 5]),
        (&[512, 512], &[1, 0]),
        (&[64, 64], &[1, 0]),
        (&[12, 8], &[1, 0]),
        (&[1, 64, 28, 28], &[0, 2, 3, 1]),
        (&[1, 56, 56, 96], &[0, 3, 1, 2]),
        (&[8, 128, 64], &[0, 2, 1]),
        (&[32, 16, 24], &[2, 1, 0]),
        (&[6, 4, 5], &[2, 1, 0]),
        (&[1, 8, 2, 2, 28, 28], &[0, 1, 4, 2, 5, 3]),
        (&[1, 16, 3, 3, 32, 32], &[0, 1, 4, 2, 5, 3]),
    ];
    let transpose = |(dims, permutation): (&[usize], &[usize])| {
        let moved: Vec<usize> = permutation.iter().map(|axis| dims[*axis]).collect();
        Probe::new(Op::Transpose(Transpose { permutation: permutation.to_vec() }), 1, &[dims], &moved)
    };
    let slices: [(&[usize], &[isize], &[usize]); 8] = [
        (&[128, 1536], &[1, 1], &[128, 512]),
        (&[1, 64, 28, 28], &[1; 4], &[1, 32, 28, 28]),
        (&[1, 96, 57, 57], &[1; 4], &[1, 96, 56, 56]),
        (&[20, 96], &[1, 1], &[20, 32]),
        (&[3, 12, 40], &[1; 3], &[1, 12, 40]),
        (&[64, 256], &[1, 2], &[64, 128]),
        (&[4, 10], &[1, 2], &[4, 5]),
        (&[1, 3, 112, 112], &[1, 1, 2, 2], &[1, 3, 56, 56]),
    ];
    let slice = |(dims, steps, output): (&[usize], &[isize], &[usize])| {
        Probe::new(Op::Slice(Slice { starts: vec![0; dims.len()], steps: steps.to_vec() }), 1, &[dims], output)
    };
    let concats: [(&[usize], usize, usize); 7] = [
        (&[4, 8], 3, 0),
        (&[1, 64, 28, 28], 2, 1),
        (&[1, 32, 56, 56], 4, 1),
        (&[128, 64], 2, 1),
        (&[512, 32], 2, 1),
        (&[1, 12, 64, 64], 2, 2),
        (&[1, 8, 5, 5], 5, 1),
    ];
    let concat = |(dims, count, axis): (&[usize], usize, usize)| {
        let mut joined = dims.to_vec();
        joined[axis] *= count;
        Probe::new(Op::Concat(Concat { axis }), count, &vec![dims; count], &joined)
    };
    let moved = transposes.into_iter().map(transpose).chain(slices.into_iter().map(slice));
    moved.chain(concats.into_iter().map(concat)).chain(pads()).chain(tables()).collect()
}

fn pads() -> Vec<Probe> {
    let zeros = PadMode::ZERO;
    let pads: [(&[usize], usize, PadMode); 6] = [
        (&[1, 2, 4, 4], 1, zeros),
        (&[1, 16, 14, 14], 1, zeros),
        (&[1, 32, 28, 28], 1, zeros),
        (&[1, 64, 56, 56], 1, zeros),
        (&[1, 3, 112, 112], 3, PadMode::Reflect),
        (&[1, 8, 32, 32], 2, PadMode::Edge),
    ];
    let pad = |(dims, border, mode): (&[usize], usize, PadMode)| {
        let before: Vec<isize> = (0..dims.len()).map(|axis| if axis < 2 { 0 } else { border as isize }).collect();
        let padded: Vec<usize> = dims.iter().zip(&before).map(|(size, before)| size + 2 * *before as usize).collect();
        Probe::new(Op::Pad(Pad { mode, before }), 1, &[dims], &padded)
    };
    pads.into_iter().map(pad).collect()
}

/// Look-ups in tables that are constants, as in embeddings, or made at each run.
fn tables() -> Vec<Probe> {
    let tables: [(&[usize], usize, usize, bool); 7] = [
        (&[16, 8], 0, 4, false),
        (&[5000, 256], 0, 64, false),
        (&[1000, 768], 0, 128, false),
        (&[4000, 64], 0, 8, false),
        (&[64, 100], 1, 10, true),
        (&[16, 8, 64, 32], 0, 1, true),
        (&[1, 50, 192], 1, 1, true),
    ];
    let table = |(dims, axis, count, made): (&[usize], usize, usize, bool)| {
        let mut chosen = dims.to_vec();
        chosen[axis] = count;
        let mut probe =
            Probe::new(Op::Gather(Gather { axis, elementwise: false }), usize::from(made), &[dims], &chosen);
        probe.spec.inputs.push(tensor(DType::I64, &[count]));
        probe
    };
    tables.into_iter().map(table).collect()
}

/// Expressions of few and many steps, with expensive functions, with broadcasts, and between types.
pub(super) fn maps() -> Vec<Probe> {
    let add = || Expression::binary(Binary::Add);
    let expressions: [(Expression, &[&[usize]]); 19] = [
        (add(), &[&[64], &[64]]),
        (add(), &[&[64, 64], &[64, 64]]),
        (add(), &[&[1, 64, 56, 56], &[1, 64, 56, 56]]),
        (add(), &[&[512, 1024], &[512, 1024]]),
        (Expression::binary(Binary::Multiply), &[&[1, 96, 28, 28], &[1, 96, 1, 1]]),
        (Expression::binary(Binary::Multiply), &[&[1, 960, 7, 7], &[1, 960, 1, 1]]),
        (add(), &[&[128, 512], &[512]]),
        (add(), &[&[8, 128, 128], &[128, 128]]),
        (add(), &[&[5, 12, 12], &[5, 1, 12]]),
        (add(), &[&[40, 24], &[24]]),
        (Expression::binary(Binary::Multiply), &[&[200, 48], &[200, 1]]),
        (Expression::unary(Unary::Exp), &[&[16, 16]]),
        (Expression::unary(Unary::Tanh), &[&[64, 64]]),
        (Expression::unary(Unary::Sigmoid), &[&[256, 256]]),
        (gelu(), &[&[128, 1024]]),
        (gelu(), &[&[10, 96]]),
        (silu(), &[&[1, 96, 28, 28]]),
        (silu(), &[&[1, 64, 56, 56]]),
        (Expression::unary(Unary::Sqrt), &[&[128, 256]]),
    ];
    let expression =
        |(expression, inputs): (Expression, &[&[usize]])| Probe::new(map(expression), inputs.len(), inputs, inputs[0]);
    let converted =
        [(DType::I64, 16), (DType::I64, 1 << 12), (DType::I64, 1 << 17), (DType::Bool, 1 << 8), (DType::Bool, 1 << 15)];
    let convert = |(dtype, elements): (DType, usize)| {
        let probe = Probe::new(map(Expression::unary(Unary::Relu)), 1, &[&[elements]], &[elements]);
        Probe { spec: NodeSpec { outputs: vec![tensor(dtype, &[elements])], ..probe.spec }, ..probe }
    };
    expressions.into_iter().map(expression).chain(converted.into_iter().map(convert)).collect()
}

/// `x · (1 + erf(x)) · x`: as many steps as the usual expression.
fn gelu() -> Expression {
    let [x, erf, sum, product] = [0, 1, 2, 3].map(Register);
    let steps = vec![
        Step::Unary(Unary::Erf, x),
        Step::Binary(Binary::Add, erf, x),
        Step::Binary(Binary::Multiply, sum, x),
        Step::Binary(Binary::Multiply, product, x),
    ];
    Expression::new(1, steps).expect("each step reads what is before it")
}

fn silu() -> Expression {
    let steps =
        vec![Step::Unary(Unary::Sigmoid, Register(0)), Step::Binary(Binary::Multiply, Register(0), Register(1))];
    Expression::new(1, steps).expect("each step reads what is before it")
}
