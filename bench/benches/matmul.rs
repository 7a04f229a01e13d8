//! Operations per second of the matrix product, and of other implementations, for the shapes of networks.
//!
//! Each row runs four products on the same operands: with B packed in advance (a layer's weights), with B given at run
//! time, by the `gemm` crate, and by the system's OpenBLAS if it is installed. Criterion prints the throughput: an
//! "element" is a multiply-add.

use anabranch_bench::blas::OpenBlas;
use anabranch_bench::cpu::CpuRun;
use anabranch_bench::nodes::{matmul, values};
use anabranch_kernels::cpu::Team;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

/// Sizes m × n × k.
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

fn products(criterion: &mut Criterion) {
    for threads in [1, 2] {
        let team = Team::new(threads, |_| {});
        let blas = OpenBlas::open(threads);
        for [m, n, k] in SHAPES {
            let node = matmul([m, n, k]);
            let mut group = criterion.benchmark_group(format!("{m}x{n}x{k}/{threads}"));
            group.throughput(Throughput::Elements((m * n * k) as u64));
            for (name, constant) in [("packed", [false, true]), ("given", [false, false])] {
                let mut run = CpuRun::new(&node, &constant);
                group.bench_function(name, |bencher| bencher.iter(|| run.call(&team)));
            }
            let (a, b) = (values(&node.inputs[0]), values(&node.inputs[1]));
            let (a, b) = (a.elements::<f32>().expect("f32"), b.elements::<f32>().expect("f32"));
            let mut c = vec![0f32; m * n];
            group.bench_function("gemm crate", |bencher| {
                bencher.iter(|| peer([m, n, k], a, b, black_box(&mut c), threads))
            });
            if let Some(blas) = &blas {
                group.bench_function("OpenBLAS", |bencher| {
                    bencher.iter(|| blas.multiply([m, n, k], a, b, black_box(&mut c)))
                });
            }
        }
    }
}

/// Computes the product with the `gemm` crate.
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
    config = anabranch_bench::short();
    targets = products
}
criterion_main!(benches);
