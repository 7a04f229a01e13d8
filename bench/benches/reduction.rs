//! How near do reductions and the nodes built on them come to the memory's speed?
//!
//! Matrices of 64 MiB, rates in bytes read and written; `copy` is the standard library's copy of one.

use anabranch_bench::cpu::{CpuRun, copies};
use anabranch_bench::nodes::reductions;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const DIMS: [usize; 2] = [16 * 1024, 1024];

fn memory_bound(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reduction");
    copies(&mut group, DIMS.iter().product::<usize>() * size_of::<f32>());
    for (name, node) in reductions(DIMS) {
        let mut run = CpuRun::new(&node, &[]);
        group.throughput(Throughput::Bytes(run.bytes()));
        run.by_threads(&mut group, name);
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = anabranch_bench::short();
    targets = memory_bound
}
criterion_main!(benches);
