//! What does the runtime itself cost for each node, and for each time a value crosses to another device?
//!
//! Chains of element-wise nodes on 16 elements, which compute in a few nanoseconds: on one CPU device, in turns on two of
//! them, and in turns on a CPU device and a GPU (a software one if there is no other). The time of a chain of 1,000 nodes
//! in microseconds is the time of a node in nanoseconds.

use anabranch::execute::{ComputeDevice, Executor, RunOptions};
use anabranch::plan::PlanOptions;
use anabranch_bench::chains::{Chain, cpu, gpu};
use anabranch_bench::tiny::{Tiny, spec};
use anabranch_kernels::Tensor;
use anabranch_kernels::cpu::CpuKernel;
use anabranch_kernels::op::{Domain, Expression, Map, Op, Unary};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::sync::Arc;

/// `relu` applied `length` times.
fn executor(length: usize, devices: &[ComputeDevice], tiny: bool) -> Option<Executor> {
    let op = Op::Map(Map { domain: Domain::F32, expression: Expression::unary(Unary::Relu) });
    let kernel = tiny.then(|| Arc::new(Tiny) as Arc<dyn CpuKernel>);
    Chain { op, spec: spec(), length, kernel, seconds: 1e-7 }.executor(devices, &PlanOptions::default())
}

fn overhead(criterion: &mut Criterion) {
    println!("{} threads of {}", std::thread::available_parallelism().map_or(0, usize::from), std::env::consts::ARCH);
    let input = Tensor::zeroed(spec());
    let mut group = criterion.benchmark_group("overhead");
    let mut measure = |name: &str, length: usize, executor: Option<Executor>, profile: bool| {
        let Some(executor) = executor else { return println!("overhead/{name}: not on this machine") };
        let options = RunOptions { profile, ..RunOptions::default() };
        group.throughput(Throughput::Elements(length as u64));
        group.bench_function(name, |b| {
            b.iter(|| executor.run(std::slice::from_ref(&input), &options).expect("nothing fails"));
        });
    };
    let one = [cpu(0, Vec::new())];
    measure("chain of 1000, bare kernel", 1000, executor(1000, &one, true), false);
    measure("chain of 1000, bare kernel, profiled", 1000, executor(1000, &one, true), true);
    measure("chain of 1000, relu", 1000, executor(1000, &one, false), false);
    measure("chain of 1000, relu, profiled", 1000, executor(1000, &one, false), true);
    measure("one node", 1, executor(1, &one, true), false);
    measure(
        "100 nodes in turns on two CPU devices",
        100,
        executor(100, &[cpu(0, Vec::new()), cpu(1, Vec::new())], true),
        false,
    );
    let mixed = gpu().and_then(|gpu| executor(100, &[cpu(0, Vec::new()), gpu], true));
    measure("100 nodes in turns on CPU and GPU", 100, mixed, false);
    group.finish();
}

criterion_group!(benches, overhead);
criterion_main!(benches);
