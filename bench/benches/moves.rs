//! How near to a copy's speed are nodes that bring values into another order or another size?
//!
//! Rates in bytes read and written.

use anabranch_bench::cpu::CpuRun;
use anabranch_bench::nodes::moves;
use anabranch_kernels::cpu::Team;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn by_name(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("moves");
    for (name, node) in moves() {
        let mut run = CpuRun::new(&node, &[]);
        group.throughput(Throughput::Bytes(run.bytes()));
        for threads in [1, 2] {
            let team = Team::new(threads, |_| {});
            group.bench_function(BenchmarkId::new(name, threads), |bencher| bencher.iter(|| run.call(&team)));
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = anabranch_bench::short();
    targets = by_name
}
criterion_main!(benches);
