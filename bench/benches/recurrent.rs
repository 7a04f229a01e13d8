//! Speed of recurrent layers, compared with the speed at which their weights can be read.
//!
//! One direction of a layer is measured; the product of all inputs with their weights is another node. Rates are bytes
//! of recurrent weights, all of which every step reads. Weights that exceed a core's L2 cache come from the L3 cache,
//! or from other threads' parts.

use anabranch_bench::cpu::CpuRun;
use anabranch_bench::nodes::recurrent;
use anabranch_kernels::op::RecurrentKind;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn layers(criterion: &mut Criterion) {
    let gru = |linear_before_reset| RecurrentKind::Gru { linear_before_reset };
    let mut group = criterion.benchmark_group("recurrent");
    for (name, kind, sizes @ [steps, _, units]) in [
        ("gru 64", gru(true), [100, 1, 64]),
        ("gru 256", gru(true), [100, 1, 256]),
        ("gru 256, reset first", gru(false), [100, 1, 256]),
        ("lstm 256", RecurrentKind::Lstm, [100, 1, 256]),
        ("lstm 512", RecurrentKind::Lstm, [50, 1, 512]),
        ("lstm 256, batch of 32", RecurrentKind::Lstm, [50, 32, 256]),
    ] {
        group.throughput(Throughput::Bytes((steps * kind.gates() * units * units * size_of::<f32>()) as u64));
        let mut run = CpuRun::new(&recurrent(kind, sizes), &[false, true]);
        run.by_threads(&mut group, name);
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = anabranch_bench::short();
    targets = layers
}
criterion_main!(benches);
