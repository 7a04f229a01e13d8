//! Cost of the runtime itself: per run, per node, per transfer of a value to another device, and for queued callers.
//!
//! The chains of element-wise nodes work on 16 elements, which take a few nanoseconds. They run on one CPU device,
//! alternately on two of them, and alternately on a CPU device and a GPU (a software GPU if there is no other). Runs
//! write into the same result. A table is printed first. The cost of a node and of a hop is the difference between
//! chains of two lengths, so that it does not include the cost of a run. Each figure there is the minimum and the
//! median of many samples; the minimum is the runtime's cost without disturbance.

use anabranch::execute::{ComputeDevice, DevicePool, Executor, RunOptions, RunOutput};
use anabranch::plan::PlanOptions;
use anabranch_bench::chains::{Chain, cpu, gpu};
use anabranch_bench::tiny::spec;
use anabranch_bench::turns::{Call, in_turn};
use anabranch_kernels::Tensor;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::time::{Duration, Instant};

fn executor(length: usize, devices: &[ComputeDevice], tiny: bool) -> Option<Executor> {
    Chain::tiny(length, tiny).executor(devices, &PlanOptions::default())
}

/// Returns the nanoseconds of a run of each executor: the minimum and the median of samples.
fn nanoseconds(executors: &[Executor], options: &RunOptions) -> Vec<[f64; 2]> {
    let input = Tensor::zeroed(spec());
    let mut calls: Vec<Call<'_>> = Vec::new();
    for executor in executors {
        let (input, mut output) = (&input, RunOutput::default());
        calls.push(Box::new(move || {
            executor.run_into(&[input], options, &mut output)?;
            Ok(())
        }));
    }
    let mut samples = in_turn(&mut calls, 0.5).expect("nothing fails");
    samples.iter_mut().for_each(|samples| samples.sort_by(f64::total_cmp));
    samples.iter().map(|samples| [samples[0] * 1e9, samples[samples.len() / 2] * 1e9]).collect()
}

/// Returns the runs per second of `callers` threads together, with one node.
fn throughput(executor: &Executor, callers: u32) -> f64 {
    let (runs, start) = (100_000 / callers, Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                let (input, mut output) = (Tensor::zeroed(spec()), RunOutput::default());
                for _ in 0..runs {
                    let inputs = &[&input];
                    executor.run_into(inputs, &RunOptions::default(), &mut output).expect("nothing fails");
                }
            });
        }
    });
    f64::from(runs * callers) / start.elapsed().as_secs_f64()
}

/// Prints the figures as a table.
fn table() {
    let (options, one) = (RunOptions::default(), [cpu(0, Vec::new())]);
    let profiled = RunOptions::default().with_profile(true);
    let times = |devices: &[ComputeDevice], lengths: &[usize], options: &RunOptions| {
        let executors: Option<Vec<_>> = lengths.iter().map(|length| executor(*length, devices, true)).collect();
        executors.map(|executors| nanoseconds(&executors, options))
    };
    let row = |name: &str, [least, median]: [f64; 2]| println!("{name:<42} {least:>9.1} ns  median {median:>9.1} ns");
    let each = |name: &str, devices: &[ComputeDevice], options: &RunOptions, [short, long]: [usize; 2]| {
        let Some(times) = times(devices, &[short, long], options) else {
            return println!("{name:<42} not on this machine");
        };
        row(name, [0, 1].map(|at| (times[1][at] - times[0][at]) / (long - short) as f64));
    };
    if let Some(times) = times(&one, &[1], &options) {
        row("a run of one node", times[0]);
    }
    each("a node", &one, &options, [100, 1100]);
    each("a node, profiled", &one, &profiled, [100, 1100]);
    let two = [cpu(0, vec![0]), cpu(1, vec![1])];
    each("a node and a hop to another CPU device", &two, &options, [20, 120]);
    if let Some(executor) = executor(1, &one, true) {
        let runs = [1, 8].map(|callers| throughput(&executor, callers));
        println!("{:<42} {:>9.0} and {:.0} runs a second", "one caller and eight", runs[0], runs[1]);
    }
}

fn overhead(criterion: &mut Criterion) {
    println!("{} threads of {}", std::thread::available_parallelism().map_or(0, usize::from), std::env::consts::ARCH);
    table();
    let input = Tensor::zeroed(spec());
    let mut group = criterion.benchmark_group("overhead");
    let mut measure = |name: &str, executor: Option<Executor>, options: &RunOptions| {
        let Some(executor) = executor else { return println!("overhead/{name}: not on this machine") };
        let mut output = RunOutput::default();
        group.throughput(Throughput::Elements(executor.program().nodes.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                let inputs = &[&input];
                executor.run_into(inputs, options, &mut output).expect("nothing fails");
            });
        });
    };
    let (one, options) = ([cpu(0, Vec::new())], RunOptions::default());
    let profiled = RunOptions::default().with_profile(true);
    measure("one node", executor(1, &one, true), &options);
    measure("chain of 1000, bare kernel", executor(1000, &one, true), &options);
    measure("chain of 1000, bare kernel, profiled", executor(1000, &one, true), &profiled);
    measure("chain of 1000, relu", executor(1000, &one, false), &options);
    measure("chain of 1000, relu, profiled", executor(1000, &one, false), &profiled);
    let two = DevicePool::new(vec![cpu(0, Vec::new()), cpu(1, Vec::new())]);
    let turns = || Chain::tiny(100, true).executor_on(&two, &PlanOptions::default());
    measure("100 nodes in turns on two CPU devices", turns(), &options);
    let sleepy = RunOptions::default().with_spin(Duration::ZERO).with_linger(Duration::ZERO);
    measure("100 nodes in turns on two CPU devices, no spinning", turns(), &sleepy);
    let mixed = gpu().and_then(|gpu| executor(100, &[cpu(0, Vec::new()), gpu], true));
    measure("100 nodes in turns on CPU and GPU", mixed, &options);
    group.finish();
}

criterion_group!(benches, overhead);
criterion_main!(benches);
