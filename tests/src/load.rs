//! Many runs of mixed models and shapes by several threads on shared sessions. Every result is compared, and the
//! resources of the process are watched.

use crate::{MODELS, model, one_cpu, options, reference, same};
use anabranch::{Inputs, Outputs, Session, Shape, Tensor};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Resources of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Number of threads.
    pub threads: u64,
    /// Number of open files.
    pub files: u64,
    /// Resident memory in KiB.
    pub resident: u64,
}

impl Process {
    /// Returns the resources of this process now; zeros if the system does not report them.
    pub fn now() -> Self {
        let count = |directory: &str| std::fs::read_dir(directory).map_or(0, |entries| entries.count() as u64);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |line: &str| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok();
        let resident = status.lines().find_map(kib).unwrap_or(0);
        Self { threads: count("/proc/self/task"), files: count("/proc/self/fd"), resident }
    }
}

/// Result of a load.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of runs that gave the right bits.
    pub right: u64,
    /// Runs that gave other bits, or an error.
    pub wrong: Vec<String>,
    /// Resources of the process after a number of runs.
    pub held: Vec<(u64, Process)>,
}

impl Report {
    /// Returns the growth of resident memory in KiB per thousand runs of the second half: the slope of the
    /// least-squares line.
    pub fn slope(&self) -> f64 {
        let half = &self.held[self.held.len() / 2..];
        let points = half.iter().map(|(runs, held)| (*runs as f64 / 1000.0, held.resident as f64));
        let points: Vec<(f64, f64)> = points.collect();
        let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / points.len() as f64;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let along: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let square: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        if square == 0.0 { 0.0 } else { along / square }
    }
}

/// Session, its inputs and the expected outputs.
type Work = (usize, Inputs, Outputs);

/// Runs `runs` runs with `threads` threads on sessions of all bundled models, two of which also use a GPU.
///
/// # Panics
/// If a bundled model does not open or run at all.
pub fn load(runs: u64, threads: u64) -> Report {
    let mut sessions: Vec<Session> = Vec::new();
    let mut work: Vec<Work> = Vec::new();
    let over_gpu = ["encoder", "fire"].map(|name| (name, options("heft")));
    for (name, options) in MODELS.map(|name| (name, one_cpu())).into_iter().chain(over_gpu) {
        let session = Session::open(model(name), options).expect("a bundled model opens");
        let inputs = match name {
            "encoder" => (1..=6).map(|at| encoded(1 + at % 3, 3 + 2 * at)).collect(),
            _ => vec![reference(name).0],
        };
        for inputs in inputs {
            let outputs = session.run(&inputs).expect("a bundled model runs");
            work.push((sessions.len(), inputs, outputs));
        }
        sessions.push(session);
    }
    let (next, report) = (AtomicU64::new(0), Mutex::new(Report::default()));
    let lock = || report.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let every = (runs / 40).max(1);
    let turn = |outputs: &mut Outputs| -> bool {
        let at = next.fetch_add(1, Ordering::Relaxed);
        if at >= runs {
            return false;
        }
        // Fibonacci hashing: the models follow each other in a mixed order, the same in every load.
        let (session, inputs, want) = &work[(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % work.len()];
        let problem = match sessions[*session].run_into(inputs, outputs) {
            Ok(()) if same(outputs, want) => None,
            Ok(()) => Some(format!("run {at}: other bits")),
            Err(error) => Some(format!("run {at}: {error}")),
        };
        let mut report = lock();
        report.right += u64::from(problem.is_none());
        report.wrong.extend(problem);
        if at % every == 0 {
            report.held.push((at, Process::now()));
        }
        true
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut outputs = Outputs::default();
                while turn(&mut outputs) {}
            });
        }
    });
    let mut report = std::mem::take(&mut *lock());
    report.held.sort_by_key(|(runs, _)| *runs);
    report
}

/// Returns inputs of the bundled encoder.
pub fn encoded(batch: usize, length: usize) -> Inputs {
    let x = (0..batch * length * 32).map(|i| ((i * 7 + length) % 23) as f32 * 0.05 - 0.5).collect::<Vec<_>>();
    let mask = (0..batch * length).map(|i| i64::from(i % length <= length / 2)).collect::<Vec<_>>();
    let shape = |dims: Vec<usize>| Shape::new(dims).expect("small");
    let x = Tensor::from_elements(shape(vec![batch, length, 32]), &x).expect("one for each");
    let mask = Tensor::from_elements(shape(vec![batch, length]), &mask).expect("one for each");
    Inputs::new().tensor("x", x).tensor("mask", mask)
}
