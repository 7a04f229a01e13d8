//! Anabranch's part of the comparison with other runtimes: one question per call, all samples as one line of JSON.
//!
//! `bench/peers/run` builds this program and calls it alternately with the other runtimes. Its affinity (`taskset`)
//! determines the cores that it may use. Samples are seconds of one call, node or hop.

use anabranch::device::{CpuGranularity, DetectOptions, detect};
use anabranch::execute::{ComputeDevice, Executor, RunOptions};
use anabranch::lower::Rewrites;
use anabranch::plan::{PlanOptions, StreamMode};
use anabranch::session::{Inputs, Session, SessionConfig};
use anabranch_bench::chains::{Chain, cpu};
use anabranch_bench::models::inputs_beside;
use anabranch_bench::tiny::spec;
use anabranch_bench::turns::{Call, Failure, in_turn};
use anabranch_kernels::{DType, Tensor};
use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Lengths of two chains whose difference gives the cost of one node; the script makes models of these lengths.
const LENGTHS: [usize; 2] = [1000, 100];

/// Lengths of two chains whose difference gives the cost of one hop.
const HOPS: [usize; 2] = [220, 20];

/// Periods of a throughput measurement.
const PERIODS: u32 = 5;

/// Batches of a floor.
const FLOORS: u64 = 51;

/// Samples by name, in seconds.
type Samples = BTreeMap<String, Vec<f64>>;

/// Anabranch's answers to the questions of bench/peers/run
#[derive(Parser, Debug)]
struct Arguments {
    /// Question to answer
    #[command(subcommand)]
    question: Question,
    /// Seconds that all measured calls together should take
    #[arg(long, global = true, default_value_t = 0.5)]
    seconds: f64,
}

#[derive(Subcommand, Debug)]
enum Question {
    /// A node of a chain of tiny nodes
    Chain {
        /// Directory with chain1000.onnx and chain100.onnx
        directory: PathBuf,
    },
    /// A whole run of one tiny node
    One {
        /// Directory with chain1.onnx
        directory: PathBuf,
    },
    /// A hop to another CPU device, and between two bare threads
    Hop,
    /// A run, profiled and not
    Profile {
        /// The model
        model: PathBuf,
    },
    /// From opening a model to its first result, the peak of memory until then, and further runs
    Model {
        /// The model
        model: PathBuf,
        /// Directory for the outputs' elements, a file each, named by its position
        #[arg(long)]
        outputs: PathBuf,
    },
    /// Runs on one session from one thread, and from several
    Throughput {
        /// The model
        model: PathBuf,
        /// Threads that run at the same time
        #[arg(long, default_value_t = 8)]
        clients: usize,
    },
}

fn main() -> Result<(), Failure> {
    let Arguments { question, seconds } = Arguments::parse();
    let answer = match question {
        Question::Chain { directory } => chain(&directory, seconds)?,
        Question::One { directory } => one(&directory, seconds)?,
        Question::Hop => hop(seconds)?,
        Question::Profile { model } => profile(&model, seconds)?,
        Question::Model { model, outputs } => first_and_further(&model, &outputs, seconds)?,
        Question::Throughput { model, clients } => throughput(&model, clients, seconds)?,
    };
    println!("{answer}");
    Ok(())
}

fn answer(samples: &Samples, facts: Value) -> Value {
    json!({ "samples": samples, "facts": facts })
}

/// Returns the cost of a node: the difference of a long and a short chain, so that it does not include the cost of a
/// run.
fn chain(directory: &Path, seconds: f64) -> Result<Value, Failure> {
    let input = Tensor::zeroed(spec());
    let devices = cores(1)?;
    let bare = LENGTHS.map(|length| executor(length, &devices));
    let mut sessions = Vec::new();
    for length in LENGTHS {
        let (session, inputs) = open(&directory.join(format!("chain{length}.onnx")), false)?;
        let nodes = session.prepare(&inputs)?.program.nodes.len();
        if nodes != length {
            return Err(format!("the plan of a chain of {length} has {nodes} nodes, and is another chain").into());
        }
        sessions.push((session, inputs));
    }
    let mut calls: Vec<Call<'_>> = Vec::new();
    for executor in bare {
        let (executor, input) = (executor?, &input);
        calls.push(Box::new(move || execute(&executor, input)));
    }
    for (session, inputs) in &sessions {
        calls.push(Box::new(|| run(session, inputs)));
    }
    let times = in_turn(&mut calls, seconds)?;
    let mut samples = Samples::new();
    for (pair, way) in times.chunks(2).zip(["executor", "session"]) {
        let span = (LENGTHS[0] - LENGTHS[1]) as f64;
        let node = pair[0].iter().zip(&pair[1]).map(|(long, short)| (long - short) / span).collect();
        samples.insert(format!("{way}/node"), node);
        samples.insert(format!("{way}/chain{}", LENGTHS[0]), pair[0].clone());
        samples.insert(format!("{way}/chain{}", LENGTHS[1]), pair[1].clone());
    }
    Ok(answer(&samples, json!({})))
}

/// Returns the cost of a run that computes one node.
fn one(directory: &Path, seconds: f64) -> Result<Value, Failure> {
    let input = Tensor::zeroed(spec());
    let executor = executor(1, &cores(1)?)?;
    let (session, inputs) = open(&directory.join("chain1.onnx"), false)?;
    let mut calls: [Call<'_>; 2] = [Box::new(|| execute(&executor, &input)), Box::new(|| run(&session, &inputs))];
    let times = in_turn(&mut calls, seconds)?;
    let samples = ["executor", "session"].map(String::from).into_iter().zip(times).collect();
    Ok(answer(&samples, json!({})))
}

/// Returns the cost of running the next node on another device. Chains that alternate between two devices are compared
/// with chains on one device, each as the difference of two lengths. Two floors are added, in which bare threads pass a
/// number to each other.
fn hop(seconds: f64) -> Result<Value, Failure> {
    let input = Tensor::zeroed(spec());
    let two = cores(2)?;
    let mut calls: Vec<Call<'_>> = Vec::new();
    for devices in [&two[..], &two[..1]] {
        for length in HOPS {
            let (executor, input) = (executor(length, devices)?, &input);
            calls.push(Box::new(move || execute(&executor, input)));
        }
    }
    let times = in_turn(&mut calls, seconds)?;
    drop(calls);
    let span = (HOPS[0] - HOPS[1]) as f64;
    let hop = |at: usize| ((times[0][at] - times[1][at]) - (times[2][at] - times[3][at])) / span;
    let mut samples = Samples::from([("executor".into(), (0..times[0].len()).map(hop).collect())]);
    let chains = [("two devices", HOPS[0]), ("two devices", HOPS[1]), ("one device", HOPS[0]), ("one device", HOPS[1])];
    samples.extend(chains.map(|(devices, length)| format!("{devices}/chain{length}")).into_iter().zip(times));
    samples.insert("atomic, spinning".into(), spinning_floor());
    samples.insert("std channel".into(), channel_floor()?);
    Ok(answer(&samples, json!({})))
}

/// Returns the times of a number's round trip through two atomics; both threads spin.
fn spinning_floor() -> Vec<f64> {
    let [there, back] = [AtomicU64::new(0), AtomicU64::new(0)];
    let wait = |place: &AtomicU64, number| {
        while place.load(Ordering::Acquire) != number {
            std::hint::spin_loop();
        }
    };
    let rounds = 1000;
    let last = rounds * FLOORS;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=last {
                wait(&there, number);
                back.store(number, Ordering::Release);
            }
        });
        let mut number = 0;
        let batch = |_| {
            let started = Instant::now();
            for _ in 0..rounds {
                number += 1;
                there.store(number, Ordering::Release);
                wait(&back, number);
            }
            started.elapsed().as_secs_f64() / (2 * rounds) as f64
        };
        (0..FLOORS).map(batch).collect()
    })
}

/// Returns the times of a number's round trip through two channels, whose receivers park.
fn channel_floor() -> Result<Vec<f64>, Failure> {
    let (there, received) = mpsc::channel::<u32>();
    let (reply, back) = mpsc::channel::<u32>();
    let echo = std::thread::spawn(move || received.into_iter().all(|number| reply.send(number).is_ok()));
    let mut samples = Vec::new();
    let rounds = 200;
    for _ in 0..FLOORS {
        let started = Instant::now();
        for number in 0..rounds {
            there.send(number)?;
            back.recv()?;
        }
        samples.push(started.elapsed().as_secs_f64() / f64::from(2 * rounds));
    }
    drop(there);
    echo.join().map_err(|_| "the thread at the other end has panicked")?;
    Ok(samples)
}

/// Returns the cost of profiling: ratios of neighbouring batches.
fn profile(model: &Path, seconds: f64) -> Result<Value, Failure> {
    let (session, inputs) = open(model, true)?;
    let run_profiled = || {
        session.run_with(&inputs, &RunOptions::default().with_profile(true))?;
        Ok(())
    };
    let mut calls: [Call<'_>; 2] = [Box::new(|| run(&session, &inputs)), Box::new(run_profiled)];
    let times = in_turn(&mut calls, seconds)?;
    let ratio = times[0].iter().zip(&times[1]).map(|(plain, profiled)| profiled / plain).collect();
    let mut samples = Samples::from([("ratio".into(), ratio)]);
    samples.extend(["plain", "profiled"].map(String::from).into_iter().zip(times));
    Ok(answer(&samples, json!({})))
}

fn first_and_further(model: &Path, outputs: &Path, seconds: f64) -> Result<Value, Failure> {
    let inputs = inputs_beside(model)?.unwrap_or_default();
    let before = peak_memory()?;
    let started = Instant::now();
    let session = Session::open(model, options(true))?;
    let opened = started.elapsed();
    run(&session, &inputs)?;
    let first = started.elapsed();
    let peak = peak_memory()?;
    let further = in_turn(&mut [Box::new(|| run(&session, &inputs))], seconds)?.remove(0);
    for (at, (_, output)) in session.run(&inputs)?.iter().enumerate() {
        if output.dtype() == DType::F32 {
            std::fs::write(outputs.join(at.to_string()), output.bytes())?;
        }
    }
    let once = |time: Duration| vec![time.as_secs_f64()];
    let samples = [("open", once(opened)), ("first", once(first)), ("further", further)];
    let samples = samples.map(|(name, values)| (name.to_owned(), values)).into();
    Ok(answer(&samples, json!({ "peak_before": before, "peak": peak })))
}

/// Returns the seconds per finished run, from one thread and from `clients`, period by period in turn.
fn throughput(model: &Path, clients: usize, seconds: f64) -> Result<Value, Failure> {
    let (session, inputs) = open(model, true)?;
    run(&session, &inputs)?;
    let period = Duration::from_secs_f64(seconds / f64::from(2 * PERIODS));
    let mut samples = Samples::new();
    for _ in 0..PERIODS {
        for clients in [1, clients] {
            let sample = flood(&session, &inputs, clients, period)?;
            samples.entry(format!("{clients} threads")).or_default().push(sample);
        }
    }
    Ok(answer(&samples, json!({})))
}

/// Lets all clients run as often as they can until the period is over; returns the seconds per finished run.
fn flood(session: &Session, inputs: &Inputs, clients: usize, period: Duration) -> Result<f64, Failure> {
    let started = Instant::now();
    let client = || -> Result<u32, Failure> {
        let mut runs = 0;
        while runs == 0 || started.elapsed() < period {
            run(session, inputs)?;
            runs += 1;
        }
        Ok(runs)
    };
    let runs = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let joined = clients.into_iter().map(|client| client.join().map_err(|_| "a client has panicked")?);
        joined.sum::<Result<u32, Failure>>()
    })?;
    Ok(started.elapsed().as_secs_f64() / f64::from(runs))
}

/// Returns the first cores that this process may use, each as a device.
fn cores(count: usize) -> Result<Vec<ComputeDevice>, Failure> {
    let detection = DetectOptions::default().with_cpu_granularity(CpuGranularity::Core).without_gpu();
    let cores = detect(&detection)?.cpus;
    if cores.len() < count {
        return Err(format!("{count} cores are needed, and there are {}", cores.len()).into());
    }
    Ok(cores.iter().take(count).enumerate().map(|(at, core)| cpu(at, core.team().to_vec())).collect())
}

/// Returns a chain of bare kernels, whose nodes alternate between these devices.
fn executor(length: usize, devices: &[ComputeDevice]) -> Result<Executor, Failure> {
    Chain::tiny(length, true)
        .executor(devices, &PlanOptions::default())
        .ok_or_else(|| "the chain cannot be planned".into())
}

fn execute(executor: &Executor, input: &Tensor) -> Result<(), Failure> {
    executor.run(std::slice::from_ref(input), &RunOptions::default())?;
    Ok(())
}

fn run(session: &Session, inputs: &Inputs) -> Result<(), Failure> {
    session.run(inputs)?;
    Ok(())
}

/// Returns options for all cores that this process may use as one device, without a GPU or calibration, like ONNX
/// Runtime's CPU provider. Without fusion, nodes are not joined into streaming blocks either.
fn options(fuse: bool) -> SessionConfig {
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Machine).without_gpu();
    let streaming = if fuse { StreamMode::Auto } else { StreamMode::Off };
    let plan = PlanOptions::default().with_streaming(streaming);
    SessionConfig::default()
        .with_devices(devices)
        .with_fusion(if fuse { Rewrites::ALL } else { Rewrites::NONE })
        .with_plan(plan)
}

fn open(model: &Path, fuse: bool) -> Result<(Session, Inputs), Failure> {
    let session = Session::open(model, options(fuse))?;
    Ok((session, inputs_beside(model)?.unwrap_or_default()))
}

/// Returns the maximum bytes that this process has had in memory so far.
fn peak_memory() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("/proc/self/status has no VmHWM")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}
