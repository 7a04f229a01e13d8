//! How fast are convolutions, beside the product of matrices that each of them is?
//!
//! Weights are constant, as in a model. Criterion prints the throughput: an "element" is a multiply-add.

use anabranch_bench::cpu::CpuRun;
use anabranch_bench::nodes::{LAYERS, matmul};
use anabranch_kernels::cpu::Team;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn layers(criterion: &mut Criterion) {
    for threads in [1, 2] {
        let team = Team::new(threads, |_| {});
        for layer in LAYERS {
            let mut group = criterion.benchmark_group(format!("conv {}/{threads}", layer.name));
            group.throughput(Throughput::Elements(layer.multiply_adds()));
            let mut run = CpuRun::new(&layer.node(), &[false, true]);
            group.bench_function("conv", |bencher| bencher.iter(|| run.call(&team)));
            if layer.group == 1 {
                let mut run = CpuRun::new(&matmul(layer.product()), &[true, false]);
                group.bench_function("product", |bencher| bencher.iter(|| run.call(&team)));
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = anabranch_bench::short();
    targets = layers
}
criterion_main!(benches);
