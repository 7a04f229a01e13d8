//! Classes and quantities of nodes with known shapes.

use super::*;
use crate::op::{Gather, Map, Normalize, Recurrent, Reduce, Slice, Transpose};
use crate::{Shape, TensorSpec};

fn family(op: Op, inputs: &[&[usize]], output: &[usize]) -> (&'static str, Vec<f64>) {
    let spec = |dims: &[usize]| TensorSpec::new(DType::F32, Shape::new(dims).expect("small"));
    let inputs = inputs.iter().map(|dims| spec(dims)).collect();
    let Family { name, amounts } = NodeSpec { op, inputs, outputs: vec![spec(output)] }.family();
    (name, amounts)
}

#[test]
fn products_are_told_apart_by_what_they_share() {
    let matmul = || Op::MatMul(MatMul::default());
    let want = vec![2.0 * 60.0 * 7.0, 84.0, 35.0, 60.0, 0.0, 0.0, 0.0];
    assert_eq!(family(matmul(), &[&[3, 4, 7], &[7, 5]], &[3, 4, 5]), ("matmul", want));
    // Three matrices of five columns, which take as long as sixteen.
    let want = vec![2.0 * 12.0 * 7.0 * 16.0, 84.0, 0.0, 60.0, 3.0, 0.0, 0.0, 0.0];
    assert_eq!(family(matmul(), &[&[3, 4, 7], &[3, 7, 5]], &[3, 4, 5]), ("matmul batched", want));
    assert_eq!(family(matmul(), &[&[1, 7], &[7, 5]], &[1, 5]).0, "matmul row");
    assert_eq!(family(matmul(), &[&[2, 1, 7], &[2, 7, 5]], &[2, 1, 5]).0, "matmul vector");
    assert_eq!(family(matmul(), &[&[9, 7], &[7, 1]], &[9, 1]).0, "matmul vector");
    let both = MatMul { transpose_a: true, transpose_b: true, epilogue: None, ..MatMul::default() };
    let want = vec![2.0 * 4.0 * 7.0 * 16.0, 28.0, 35.0, 20.0, 1.0, 0.0, 0.0, 0.0];
    assert_eq!(family(Op::MatMul(both), &[&[7, 4], &[5, 7]], &[4, 5]), ("matmul batched", want));
}

#[test]
fn large_products_of_each_precision_are_classes_of_their_own() {
    let name = |precision, inputs: &[&[usize]], output: &[usize]| {
        family(Op::MatMul(MatMul { precision, ..MatMul::default() }), inputs, output).0
    };
    for (precision, shared, batched) in [
        (Precision::F32, "matmul", "matmul batched"),
        (Precision::F16x3, "matmul f16x3", "matmul batched f16x3"),
        (Precision::F16, "matmul f16", "matmul batched f16"),
    ] {
        assert_eq!(name(precision, &[&[2, 20, 32], &[32, 40]], &[2, 20, 40]), shared);
        assert_eq!(name(precision, &[&[2, 32, 32], &[2, 32, 40]], &[2, 32, 40]), batched);
        assert_eq!(name(precision, &[&[31, 32], &[32, 40]], &[31, 40]), "matmul");
        assert_eq!(name(precision, &[&[1, 32], &[32, 40]], &[1, 40]), "matmul row");
    }
}

#[test]
fn convolutions_are_told_apart_by_their_kernels() {
    let conv = |stride, pad, group| {
        Op::Conv(Conv { strides: [stride; 2], pads: [pad; 4], dilations: [1; 2], group, epilogue: None })
    };
    // 40 output channels of 10 × 10 pixels, each from windows of 8 · 9 elements. A vector and a row begin together
    // at pixels 0 and 80; a vector begins alone at 5 pixels, and a row at 8.
    let want = vec![2.0 * 4000.0 * 72.0, 7200.0, 9.0 * 15.0, 2880.0, 800.0, 4000.0, 0.0, 0.0];
    assert_eq!(family(conv(1, 1, 1), &[&[1, 8, 10, 10], &[40, 8, 3, 3]], &[1, 40, 10, 10]), ("conv windows", want));
    assert_eq!(family(conv(1, 0, 1), &[&[1, 8, 10, 10], &[32, 8, 1, 1]], &[1, 32, 10, 10]).0, "conv pointwise");
    assert_eq!(family(conv(2, 0, 1), &[&[1, 8, 20, 20], &[32, 8, 1, 1]], &[1, 32, 10, 10]).0, "conv windows");
    // Windows are written, and the image itself.
    let want = vec![2.0 * 1960.0 * 72.0, 72.0 * 64.0, 2880.0, 1960.0, 0.0, 0.0];
    assert_eq!(family(conv(1, 1, 1), &[&[1, 8, 7, 7], &[40, 8, 3, 3]], &[1, 40, 7, 7]), ("conv small", want));
    let want = vec![2.0 * 1568.0 * 8.0, 0.0, 256.0, 1568.0, 0.0, 0.0];
    assert_eq!(family(conv(1, 0, 1), &[&[1, 8, 7, 7], &[32, 8, 1, 1]], &[1, 32, 7, 7]), ("conv small", want));
    // 14 output channels of rows of 28 are computed as 16 of 32.
    let want = vec![2.0 * 16.0 * 27.0 * 28.0 * 32.0, 2352.0, 14.0 * 784.0, 0.0, 0.0];
    let found = family(conv(1, 1, 1), &[&[1, 3, 28, 28], &[14, 3, 3, 3]], &[1, 14, 28, 28]);
    assert_eq!(found, ("conv shallow", want));
    let want = vec![2.0 * 4.0 * 144.0 * 16.0 * 16.0, 4096.0, 768.0, 0.0, 0.0];
    let found = family(conv(1, 1, 1), &[&[1, 16, 16, 16], &[3, 16, 3, 3]], &[1, 3, 16, 16]);
    assert_eq!(found, ("conv shallow", want));
    // 5 × 5 tiles of 4 × 4 pixels, each with 36 products.
    let want = vec![
        72.0 * 25.0 * 2048.0,
        36.0 * 25.0 * 64.0,
        36.0 * 25.0 * 32.0,
        36.0 * 2048.0,
        18.0 * 400.0 * 2048.0,
        0.0,
        0.0,
    ];
    let found = family(conv(1, 1, 1), &[&[1, 64, 20, 20], &[32, 64, 3, 3]], &[1, 32, 20, 20]);
    assert_eq!(found, ("conv filtered", want));
    assert_eq!(family(conv(1, 1, 2), &[&[1, 8, 10, 10], &[32, 4, 3, 3]], &[1, 32, 10, 10]).0, "conv grouped");
    assert_eq!(family(conv(1, 1, 1), &[&[1, 8, 10, 10], &[32, 8, 3, 3]], &[1, 32, 10, 10]).0, "conv grouped");
    let two = family(conv(1, 1, 2), &[&[1, 128, 20, 20], &[64, 64, 3, 3]], &[1, 64, 20, 20]);
    assert_eq!(two, ("conv filtered", found.1.iter().map(|amount| 2.0 * amount).collect()), "twice that of a group");
    assert_eq!(family(conv(1, 1, 8), &[&[1, 8, 10, 10], &[8, 1, 3, 3]], &[1, 8, 10, 10]).0, "conv depthwise");
    assert_eq!(family(conv(1, 1, 8), &[&[1, 8, 7, 7], &[8, 1, 3, 3]], &[1, 8, 7, 7]).0, "conv depthwise narrow");
    assert_eq!(family(conv(1, 1, 8), &[&[1, 8, 9, 9], &[8, 1, 7, 7]], &[1, 8, 5, 5]).0, "conv depthwise other");
}

#[test]
fn copies_count_the_runs_that_they_make() {
    let transpose = |permutation: &[usize]| Op::Transpose(Transpose { permutation: permutation.to_vec() });
    // Heads: 64 elements stay together, 8 · 16 times.
    let heads = family(transpose(&[0, 2, 1, 3]), &[&[1, 16, 8, 64]], &[1, 8, 16, 64]);
    assert_eq!(heads, ("copy", vec![32_768.0, 128.0]));
    assert_eq!(family(transpose(&[1, 0]), &[&[30, 20]], &[20, 30]), ("copy transposed", vec![2400.0, 1.0]));
    let slice = |step| Op::Slice(Slice { starts: vec![0, 1], steps: vec![1, step] });
    assert_eq!(family(slice(1), &[&[6, 9]], &[6, 4]), ("copy", vec![96.0, 6.0]));
    assert_eq!(family(slice(2), &[&[6, 9]], &[6, 4]), ("copy apart", vec![96.0, 24.0]));
    let gather = Op::Gather(Gather { axis: 0, elementwise: false });
    assert_eq!(family(gather, &[&[100, 8], &[3]], &[3, 8]), ("gather", vec![96.0, 3.0]));
}

#[test]
fn maps_count_dear_steps_apart_and_the_rows_of_broadcasts() {
    let map = |expression| Op::Map(Map { domain: Domain::F32, expression });
    let add = || Expression::binary(Binary::Add);
    // A value for each channel: a row is a plane of 5 · 6.
    let bias = family(map(add()), &[&[2, 4, 5, 6], &[4, 1, 1]], &[2, 4, 5, 6]);
    assert_eq!(bias, ("map", vec![240.0, 0.0, 4.0 * 484.0, 0.0, 8.0]));
    let whole = family(map(add()), &[&[2, 4, 5, 6], &[2, 4, 5, 6]], &[2, 4, 5, 6]);
    assert_eq!(whole.1, [240.0, 0.0, 4.0 * 720.0, 0.0, 1.0]);
    // A megabyte is read and a megabyte is written.
    assert_eq!(family(map(Expression::unary(Unary::Abs)), &[&[1 << 18]], &[1 << 18]).1[3], f64::from(1 << 20));
    assert_eq!(family(map(Expression::unary(Unary::Tanh)), &[&[50]], &[50]).1, [0.0, 50.0, 400.0, 0.0, 1.0]);
}

#[test]
fn rows_count_what_is_left_of_them() {
    let mean = Op::Reduce(Reduce { kind: ReduceKind::Mean, axes: vec![2, 3] });
    let pooled = family(mean, &[&[1, 20, 7, 7]], &[1, 20]);
    assert_eq!(pooled, ("reduce rows", vec![980.0, 0.0, 20.0, 20.0 * 17.0]));
    let most = Op::Reduce(Reduce { kind: ReduceKind::Max, axes: vec![1] });
    assert_eq!(family(most, &[&[6, 40]], &[6]), ("reduce rows", vec![0.0, 240.0, 6.0, 0.0]));
    let normalize = Op::Normalize(Normalize { axis: 1, epsilon: 1e-5, center: true, epilogue: None });
    assert_eq!(family(normalize, &[&[6, 40]], &[6, 40]), ("normalize", vec![240.0, 6.0, 48.0, 0.0, 0.0]));
}

#[test]
fn recurrent_layers_read_their_weights_at_every_step() {
    let op = Op::Recurrent(Recurrent::new(RecurrentKind::Lstm));
    let inputs: [&[usize]; 5] = [&[5, 2, 32], &[32, 8], &[32], &[2, 8], &[2, 8]];
    let want = vec![80.0 * 4.0 * 20.0, 320.0, 5.0 * 256.0, 5.0, 0.0];
    assert_eq!(family(op, &inputs, &[5, 2, 8]), ("lstm", want));
}

#[test]
fn shapes_without_elements_have_finite_amounts() {
    let matmul = Op::MatMul(MatMul::default());
    assert!(family(matmul, &[&[0, 3], &[3, 0]], &[0, 0]).1.iter().all(|amount| amount.is_finite()));
}
