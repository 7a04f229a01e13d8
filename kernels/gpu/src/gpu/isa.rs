//! Shaders of the kernels in which models spend most time, for `bench/gpu_isa`, which counts their instructions.
//!
//! If `ANABRANCH_ISA` names a folder, each shader is written there as `KERNEL.DISPATCH.READS.WRITES.spv`: the number of
//! its dispatch, and the numbers of its buffers, which follow the parameters in the order of bindings.

use super::testing::{gpu, noise, shape, spec, tensor};
use super::{Buffers, compile, corpus, scratch_bytes};
use anabranch_op::dtype::DType;
use anabranch_op::op::{Attention, Conv, MatMul, NarrowFormat, NarrowMatMul, NodeSpec, Op, Recurrent, RecurrentKind};
use anabranch_op::tensor::TensorSpec;
use std::{env, fs, path::PathBuf};

fn product([m, n, k]: [usize; 3], transpose_b: bool) -> NodeSpec {
    let op = Op::MatMul(MatMul { transpose_b, ..MatMul::default() });
    let b = if transpose_b { [n, k] } else { [k, n] };
    NodeSpec { op, inputs: vec![spec(&[m, k]), spec(&b)], outputs: vec![spec(&[m, n])] }
}

fn narrow([m, n, k]: [usize; 3], format: NarrowFormat, dtype: DType, transpose_b: bool) -> NodeSpec {
    let op = NarrowMatMul { format, transpose_b, quantize_a: false, epilogue: None };
    let line = k * op.bits() / (8 * dtype.size());
    let weights = TensorSpec::new(dtype, shape(&if transpose_b { [n, line] } else { [line, n] }));
    let mut inputs = vec![spec(&[m, k]), weights];
    if let NarrowFormat::Grid { block, .. } = format {
        inputs.extend((2..op.operands()).map(|_| spec(&[n, k.div_ceil(block)])));
    }
    NodeSpec { op: Op::NarrowMatMul(op), inputs, outputs: vec![spec(&[m, n])] }
}

fn recurrent(kind: RecurrentKind, units: usize) -> NodeSpec {
    let wide = kind.gates() * units;
    let inputs: [&[usize]; 5] = [&[4, 1, wide], &[wide, units], &[wide], &[1, units], &[1, units]];
    let outputs: [&[usize]; 3] = [&[4, 1, units], &[1, units], &[1, units]];
    let specs = |all: &[&[usize]]| all.iter().map(|dims| spec(dims)).collect();
    let (inputs, outputs) = (specs(&inputs[..3 + kind.states()]), specs(&outputs[..1 + kind.states()]));
    NodeSpec { op: Op::Recurrent(Recurrent::new(kind)), inputs, outputs }
}

/// Returns a convolution of images of 56 × 56.
fn convolution(channels: usize, window: usize, pad: usize) -> NodeSpec {
    let op = Op::Conv(Conv { strides: [1; 2], pads: [pad; 4], dilations: [1; 2], group: 1, epilogue: None });
    let images = |side: usize| spec(&[1, channels, side, side]);
    let inputs = vec![images(56), spec(&[channels, channels, window, window])];
    NodeSpec { op, inputs, outputs: vec![images(56 + 2 * pad + 1 - window)] }
}

/// Returns attention over a cache of 2048 positions by `queries` queries for each head of keys.
fn attention(queries: usize, stored: DType) -> NodeSpec {
    let op = Attention { scale: 0.1, cap: 0.0, before: None, after: Some(0), bias: false, expected: 1 };
    let of = |dtype, dims: &[usize]| TensorSpec::new(dtype, shape(dims));
    let (cache, length) = (of(stored, &[1, 8, 2048, 128]), of(DType::I64, &[1]));
    let inputs = vec![spec(&[1, 8 * queries, 1, 128]), cache.clone(), cache, length.clone(), length];
    NodeSpec { op: Op::Attention(op), inputs, outputs: vec![spec(&[1, 1, 8 * queries, 128])] }
}

fn kernels() -> Vec<(&'static str, NodeSpec)> {
    let one = [1, 2048, 2048];
    let grid = |bits, block, zero_points| NarrowFormat::Grid { bits, block, zero_points };
    let gru = |linear_before_reset| RecurrentKind::Gru { linear_before_reset };
    vec![
        ("vector f32", product(one, false)),
        ("vector f32 transposed", product(one, true)),
        ("vector f16", narrow(one, NarrowFormat::Float, DType::F16, true)),
        ("vector bf16", narrow(one, NarrowFormat::Float, DType::BF16, true)),
        ("vector f16 columns", narrow(one, NarrowFormat::Float, DType::F16, false)),
        ("vector 8 bits", narrow(one, grid(8, 32, false), DType::U8, true)),
        ("vector 8 bits columns", narrow(one, grid(8, one[2], true), DType::U8, false)),
        ("vector 4 bits", narrow(one, grid(4, 32, false), DType::U8, true)),
        ("vector 4 bits zeros", narrow(one, grid(4, 32, true), DType::U8, true)),
        ("vector 4 bits block 128", narrow(one, grid(4, 128, false), DType::U8, true)),
        ("vector 4 bits block 16", narrow(one, grid(4, 16, false), DType::U8, true)),
        ("vector 2 bits", narrow(one, grid(2, 64, false), DType::U8, true)),
        ("4 rows 4 bits", narrow([4, 2048, 2048], grid(4, 32, false), DType::U8, true)),
        ("8 rows 4 bits", narrow([8, 2048, 2048], grid(4, 32, false), DType::U8, true)),
        ("lstm", recurrent(RecurrentKind::Lstm, 512)),
        ("gru", recurrent(gru(false), 512)),
        ("gru reset after", recurrent(gru(true), 512)),
        ("tile 128 128", product([2048, 2048, 512], false)),
        ("tile 128 128 transposed", product([2048, 2048, 512], true)),
        ("tile 128 128 odd lines", product([2047, 2047, 511], false)),
        ("tile 128 64", product([1024, 1024, 512], false)),
        ("tile 64 64", product([1024, 1024, 64], false)),
        ("tile 32 32", product([256, 256, 64], false)),
        ("convolution 3x3 128 128", convolution(256, 3, 1)),
        ("convolution 3x3 64 64", convolution(64, 3, 1)),
        ("convolution 3x3 64 64 inside", convolution(64, 3, 0)),
        ("convolution 1x1 64 64", convolution(256, 1, 0)),
        ("attention 1 query f16", attention(1, DType::F16)),
        ("attention 4 queries f16", attention(4, DType::F16)),
    ]
}

#[test]
fn kernels_of_which_instructions_are_counted() {
    let folder = env::var_os("ANABRANCH_ISA").map(PathBuf::from);
    for (name, node) in kernels() {
        let hold = |spec: &TensorSpec| gpu().storage(spec.bytes() as u64).expect("a small buffer");
        // The weights of recurrent layers are constants in most models.
        let constant = |at: usize| matches!(node.op, Op::Recurrent(_)) && at == 1;
        let value = |(at, spec): (usize, &TensorSpec)| {
            constant(at).then(|| tensor(spec.shape.dims(), &noise(1, spec.shape.elements())))
        };
        let constants: Vec<_> = node.inputs.iter().enumerate().map(value).collect();
        let inputs: Vec<_> = node.inputs.iter().map(hold).collect();
        let outputs: Vec<_> = node.outputs.iter().map(hold).collect();
        let scratch = gpu().storage(scratch_bytes(&node).max(4)).expect("a small buffer");
        let buffers = Buffers {
            inputs: &inputs.iter().map(Some).collect::<Vec<_>>(),
            outputs: &outputs.iter().collect::<Vec<_>>(),
            scratch: Some(&scratch),
            status: None,
        };
        let modules = corpus::modules(|| compile(gpu(), &node, &constants, &buffers, None).expect("a common kernel"));
        assert!(!modules.is_empty(), "{name}");
        for (at, ([reads, writes], words)) in modules.iter().enumerate() {
            if let Some(folder) = &folder {
                fs::create_dir_all(folder).expect("the folder of shaders");
                let file = folder.join(format!("{name}.{at}.{reads}.{writes}.spv"));
                fs::write(file, bytemuck::cast_slice::<u32, u8>(words)).expect("a shader's file");
            }
        }
    }
}
