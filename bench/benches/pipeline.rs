//! Gain if two devices compute at the same time, chunk by chunk, instead of one after the other.
//!
//! Two consecutive softmaxes run over 64 MiB: both on one CPU device of one core, each on its own device, and the
//! second on a GPU. The GPU is a software one, whose speed means nothing, if there is no other. The value between them
//! is passed whole, and in chunks of several sizes.

use anabranch::execute::{ComputeDevice, RunOptions};
use anabranch::plan::{ChunkRule, PlanOptions, StreamMode};
use anabranch_bench::chains::{Chain, cpu, gpu};
use anabranch_bench::nodes::spec;
use anabranch_kernels::Tensor;
use anabranch_kernels::op::{Op, Softmax};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;

/// Rows and columns: 64 MiB of `f32`.
const DIMS: [usize; 2] = [16_384, 1_024];

fn pipeline(criterion: &mut Criterion) {
    println!("{} threads of {}", std::thread::available_parallelism().map_or(0, usize::from), std::env::consts::ARCH);
    let spec = spec(&DIMS);
    let input = Tensor::zeroed(spec.clone());
    let op = Op::Softmax(Softmax { axis: 1, log: false });
    let chain = Chain { op, spec, length: 2, kernel: None, seconds: 0.02 };
    let mut group = criterion.benchmark_group("pipeline");
    group.throughput(Throughput::Bytes(2 * input.bytes().len() as u64));
    let mut measure = |name: String, devices: &[ComputeDevice], streaming: StreamMode, chunk: ChunkRule| {
        let options = PlanOptions::default().with_streaming(streaming).with_chunk(chunk);
        let Some(executor) = chain.executor(devices, &options) else {
            return println!("pipeline/{name}: not on this machine");
        };
        let run = || executor.run(std::slice::from_ref(&input), &RunOptions::default()).expect("nothing fails");
        group.bench_function(name, |b| b.iter(run));
    };
    measure("one core".into(), &[cpu(0, vec![0])], StreamMode::Off, ChunkRule::Auto);
    let two = [cpu(0, vec![0]), cpu(1, vec![1])];
    let mixed = gpu().map(|gpu| [cpu(0, vec![0]), gpu]);
    let pairs = [("two cores", Some(two)), ("core and GPU", mixed)];
    for (name, devices) in pairs.iter().filter_map(|(name, devices)| Some((name, devices.as_ref()?))) {
        measure(format!("{name}, whole"), devices, StreamMode::Off, ChunkRule::Auto);
        measure(format!("{name}, auto"), devices, StreamMode::Auto, ChunkRule::Auto);
        for kibibytes in [16, 64, 256, 1024, 4096] {
            let chunk = ChunkRule::Bytes(kibibytes << 10);
            measure(format!("{name}, {kibibytes} KiB"), devices, StreamMode::Always, chunk);
        }
    }
    group.finish();
}

fn criterion() -> Criterion {
    let criterion = Criterion::default().sample_size(20);
    criterion.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2))
}

criterion_group! { name = benches; config = criterion(); targets = pipeline }
criterion_main!(benches);
