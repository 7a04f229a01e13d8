//! Speed of nodes that reorder or resize values, including pooling, compared with that of a copy.
//!
//! Rates in bytes read and written.

use anabranch_bench::cpu::CpuRun;
use anabranch_bench::nodes::moves;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn by_name(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("moves");
    for (name, node) in moves() {
        let mut run = CpuRun::new(&node, &[]);
        group.throughput(Throughput::Bytes(run.bytes()));
        run.by_threads(&mut group, name);
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = anabranch_bench::short();
    targets = by_name
}
criterion_main!(benches);
