//! Speed of convolutions, compared with the matrix product that each of them is.
//!
//! Weights and biases are constant, as in a model. Each convolution runs alone, and with the steps that follow it in
//! networks. These are *residual* (a bias, an addend and a Relu) and *silu* (a bias, and the product with its sigmoid).
//! Criterion prints the throughput: an "element" is a multiply-add.

use anabranch_bench::cpu::CpuRun;
use anabranch_bench::nodes::{LAYERS, conv_transpose, matmul};
use anabranch_kernels::cpu::Team;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn layers(criterion: &mut Criterion) {
    for threads in [1, 2] {
        let team = Team::new(threads, |_| {});
        for layer in LAYERS {
            let mut group = criterion.benchmark_group(format!("conv {}/{threads}", layer.name));
            group.throughput(Throughput::Elements(layer.multiply_adds()));
            for (name, node) in [("conv", layer.node()), ("residual", layer.residual()), ("silu", layer.silu())] {
                let mut run = CpuRun::new(&node, &[false, true, true]);
                group.bench_function(name, |bencher| bencher.iter(|| run.call(&team)));
            }
            if layer.group == 1 {
                let mut run = CpuRun::new(&matmul(layer.product()), &[true, false]);
                group.bench_function("product", |bencher| bencher.iter(|| run.call(&team)));
            }
        }
    }
}

/// Input and output channels, side of the image, window and stride of transposed convolutions of U-Nets and generators.
const TRANSPOSED: [([usize; 2], usize, usize, usize); 3] =
    [([128, 64], 56, 2, 2), ([64, 32], 112, 2, 2), ([256, 128], 16, 4, 2)];

fn transposed(criterion: &mut Criterion) {
    for threads in [1, 2] {
        let team = Team::new(threads, |_| {});
        for (sizes @ [channels, maps], side, window, stride) in TRANSPOSED {
            let name = format!("transposed {window}x{window}/{stride} {channels}-{maps} of {side}/{threads}");
            let mut group = criterion.benchmark_group(name);
            let [m, n, k] = [maps * window * window, side * side, channels];
            group.throughput(Throughput::Elements((m * n * k) as u64));
            let mut run = CpuRun::new(&conv_transpose(sizes, side, window, stride), &[false, true]);
            group.bench_function("conv", |bencher| bencher.iter(|| run.call(&team)));
            let mut run = CpuRun::new(&matmul([m, n, k]), &[true, false]);
            group.bench_function("product", |bencher| bencher.iter(|| run.call(&team)));
        }
    }
}

criterion_group! {
    name = benches;
    config = anabranch_bench::short();
    targets = layers, transposed
}
criterion_main!(benches);
