//! How many operations a second does our matrix product reach, and the `gemm` crate's, for the shapes of networks?
//!
//! Each row compares the product with B packed ahead (a layer's weights), with B given at run time, and the `gemm` crate
//! on the same operands. Criterion prints the throughput: an "element" is a multiply-add.

use anabranch_kernels::cpu::{Call, CpuKernel, Team, prepare};
use anabranch_kernels::op::{MatMul, NodeSpec, Op};
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

/// m × n × k.
const SHAPES: [[usize; 3]; 16] = [
    [1, 1000, 2048],
    [1, 4096, 4096],
    [16, 16, 16],
    [64, 64, 64],
    [64, 3136, 64],
    [64, 3136, 576],
    [128, 768, 768],
    [128, 768, 3072],
    [128, 3072, 768],
    [256, 256, 256],
    [512, 49, 4608],
    [512, 512, 512],
    [1000, 1, 2048],
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [197, 197, 64],
];

/// A matrix of values that look random, the same in every run.
fn matrix(rows: usize, columns: usize) -> Tensor {
    let value = |i: usize| (i.wrapping_mul(2_654_435_761) >> 7) as u16 as f32 / 32768.0 - 1.0;
    let values: Vec<f32> = (0..rows * columns).map(value).collect();
    Tensor::from_elements(Shape::new([rows, columns]).expect("fits"), &values).expect("as many values")
}

fn run(kernel: &dyn CpuKernel, inputs: &[&[u8]], output: &mut Buffer, scratch: &mut Buffer, team: &Team) {
    let outputs = &mut [output.bytes_mut()];
    let call = Call { inputs, outputs, rows: 0..1, scratch: scratch.bytes_mut(), team };
    kernel.run(call).expect("a product is defined everywhere");
}

fn products(criterion: &mut Criterion) {
    for threads in [1, 2] {
        let team = Team::new(threads, |_| {});
        for [m, n, k] in SHAPES {
            let (a, b) = (matrix(m, k), matrix(k, n));
            let output = TensorSpec::new(DType::F32, Shape::new([m, n]).expect("fits"));
            let mut c = Buffer::zeroed(output.bytes());
            let op = Op::MatMul(MatMul::default());
            let node = NodeSpec { op, inputs: vec![a.spec().clone(), b.spec().clone()], outputs: vec![output] };
            let mut group = criterion.benchmark_group(format!("{m}x{n}x{k}/{threads}"));
            group.throughput(Throughput::Elements((m * n * k) as u64));
            for (name, constants) in [("packed", [None, Some(b.clone())]), ("given", [None, None])] {
                let kernel = prepare(&node, &constants).expect("a sound node");
                let mut scratch = Buffer::zeroed(kernel.scratch_bytes());
                group.bench_function(name, |bencher| {
                    bencher.iter(|| run(&*kernel, &[a.bytes(), b.bytes()], black_box(&mut c), &mut scratch, &team));
                });
            }
            let (a, b) = (a.elements::<f32>().expect("f32"), b.elements::<f32>().expect("f32"));
            let mut c = vec![0f32; m * n];
            group.bench_function("gemm crate", |bencher| {
                bencher.iter(|| peer([m, n, k], a, b, black_box(&mut c), threads))
            });
        }
    }
}

/// The same product by the `gemm` crate.
fn peer([m, n, k]: [usize; 3], a: &[f32], b: &[f32], c: &mut [f32], threads: usize) {
    let parallelism = if threads == 1 { gemm::Parallelism::None } else { gemm::Parallelism::Rayon(threads) };
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "row-major operands");
    // SAFETY: the slices hold whole row-major matrices of these sizes, and C is exclusively borrowed.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.as_ptr(),
            1,
            k as isize,
            b.as_ptr(),
            1,
            n as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(300));
    targets = products
}
criterion_main!(benches);
