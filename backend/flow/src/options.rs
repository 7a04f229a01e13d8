//! Options of a run: its workers and their machines, and the scheduler.

use super::allocation::Allocation;
use super::error::FlowError;
use anabranch_base::cancel::CancelToken;
use anabranch_device::{CpuGranularity, DetectOptions, detect};
use std::time::Duration;

/// Most workers of a flow.
const MOST_WORKERS: u32 = 1024;

/// Default number of iterations in flight per worker.
const WINDOW_A_WORKER: usize = 4;

/// The workers of a flow, and which of them share a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerConfig {
    /// Machine of each worker.
    machine_of: Vec<u32>,
    /// Processing unit that each worker stays on.
    units: Vec<Option<u32>>,
    links: Links,
}

/// Costs of sending an operand from one worker to another, as placements assume them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    /// Latency in seconds and bytes per second between workers of one machine.
    pub same_machine: (f64, f64),
    /// Latency in seconds and bytes per second between workers of different machines.
    pub other_machine: (f64, f64),
}

impl Default for Links {
    /// Assumes a microsecond and 10 GB/s within a machine, 20 µs and 1 GB/s between machines.
    fn default() -> Self {
        Links { same_machine: (1e-6, 1e10), other_machine: (2e-5, 1e9) }
    }
}

impl WorkerConfig {
    /// Returns `workers` workers on one machine.
    ///
    /// # Errors
    /// If there are none, or more than 1024.
    pub fn of(workers: u32) -> Result<Self, FlowError> {
        Self::machines(1, workers)
    }

    /// Returns `machines` machines with `workers_each` workers each.
    ///
    /// Machines beyond this machine are emulated: their workers share its memory, but get their tasks and appear in
    /// reports as if they did not.
    ///
    /// # Errors
    /// If there is no machine or worker, or more than 1024 workers together.
    pub fn machines(machines: u32, workers_each: u32) -> Result<Self, FlowError> {
        match machines.checked_mul(workers_each).filter(|workers| (1..=MOST_WORKERS).contains(workers)) {
            Some(workers) => Ok(WorkerConfig {
                machine_of: (0..workers).map(|worker| worker / workers_each).collect(),
                units: vec![None; workers as usize],
                links: Links::default(),
            }),
            None => Err(FlowError::Options(format!(
                "{machines} × {workers_each} workers (machines × workers of each) are not possible; a flow has 1 to \
                 {MOST_WORKERS} workers"
            ))),
        }
    }

    /// Returns machines with these numbers of workers.
    ///
    /// # Errors
    /// If there is no machine, a machine has no worker, or there are more than 1024 workers together.
    pub fn of_machines(workers: &[u32]) -> Result<Self, FlowError> {
        let total = workers.iter().fold(0, |total: u32, workers| total.saturating_add(*workers));
        if workers.contains(&0) || !(1..=MOST_WORKERS).contains(&total) {
            return Err(FlowError::Options(format!(
                "{total} workers on {} machines are not possible; each machine needs a worker, and a flow has 1 to \
                 {MOST_WORKERS}",
                workers.len()
            )));
        }
        let machine_of =
            (0..).zip(workers).flat_map(|(machine, workers)| (0..*workers).map(move |_| machine)).collect();
        Ok(WorkerConfig { machine_of, units: vec![None; total as usize], links: Links::default() })
    }

    /// Returns `workers` workers, each on a processing unit of its own as long as there are enough. Workers that share
    /// a last-level cache are on one machine.
    ///
    /// Takes some milliseconds.
    ///
    /// # Errors
    /// If there is no worker, or more than 1024.
    pub fn detect(workers: u32) -> Result<Self, FlowError> {
        let mut worker_config = Self::of(workers)?;
        let options = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::L3);
        let Ok(inventory) = detect(&options) else { return Ok(worker_config) };
        let shared = inventory.cpus.iter().enumerate();
        let units = shared.flat_map(|(machine, cpu)| cpu.team().iter().map(move |unit| (machine as u32, *unit)));
        for (worker, (machine, unit)) in units.take(workers as usize).enumerate() {
            (worker_config.machine_of[worker], worker_config.units[worker]) = (machine, Some(unit));
        }
        Ok(worker_config)
    }

    /// Distributes workers evenly among machines.
    ///
    /// Without a number of machines, as [`WorkerConfig::detect`]. Without a number of workers, as many as this process
    /// may use processing units, rounded down to a multiple of the machines, and at least one per machine.
    ///
    /// # Errors
    /// If the workers are not a multiple of the machines, if there is no machine or worker, or if there are more than
    /// 1024 workers.
    pub fn shared_out(workers: Option<u32>, machines: Option<u32>) -> Result<Self, FlowError> {
        let usual = units();
        match (workers, machines) {
            (workers, None) => Self::detect(workers.unwrap_or(usual)),
            (None, Some(machines)) => Self::machines(machines, (usual / machines.max(1)).max(1)),
            (Some(workers), Some(machines)) if machines > 0 && workers % machines == 0 => {
                Self::machines(machines, workers / machines)
            }
            (Some(workers), Some(machines)) => Err(FlowError::Options(format!(
                "{workers} workers cannot be divided among {machines} machines; use a multiple of the machines"
            ))),
        }
    }

    /// Sets the links between workers (default: [`Links::default`]).
    pub fn with_links(self, links: Links) -> Self {
        WorkerConfig { links, ..self }
    }

    /// Returns the name of a worker in allocations and reports.
    pub fn name_of(worker: u32) -> String {
        format!("worker{worker}")
    }

    /// Latency in seconds and bytes per second from one worker to another.
    pub(super) fn link(&self, from: u32, to: u32) -> (f64, f64) {
        if self.machine_of(from) == self.machine_of(to) { self.links.same_machine } else { self.links.other_machine }
    }

    /// Number of workers.
    pub fn worker_count(&self) -> u32 {
        self.machine_of.len() as u32
    }

    /// Number of machines.
    pub fn machine_count(&self) -> u32 {
        self.machine_of.iter().max().map_or(1, |last| last + 1)
    }

    /// Returns the machine of a worker.
    pub fn machine_of(&self, worker: u32) -> u32 {
        self.machine_of[worker as usize]
    }

    /// Machine of each worker.
    pub(super) fn machine_of_all(&self) -> &[u32] {
        &self.machine_of
    }

    pub(super) fn unit_of(&self, worker: u32) -> Option<u32> {
        self.units[worker as usize]
    }

    /// Checks that a node can be bound to this worker and machine.
    pub(super) fn admits(&self, node: &str, worker: Option<u32>, machine: Option<u32>) -> Result<(), FlowError> {
        let node = || node.to_owned();
        if let Some(worker) = worker.filter(|worker| *worker >= self.worker_count()) {
            return Err(FlowError::UnknownWorker { node: node(), worker, last: self.worker_count() - 1 });
        }
        if let Some(machine) = machine.filter(|machine| !self.machine_of.contains(machine)) {
            return Err(FlowError::UnknownMachine { node: node(), machine, last: self.machine_count() - 1 });
        }
        match (worker, machine) {
            (Some(worker), Some(machine)) if self.machine_of(worker) != machine => {
                Err(FlowError::PinElsewhere { node: node(), worker, machine })
            }
            _ => Ok(()),
        }
    }
}

/// Number of processing units that this process may use, limited to the most workers of a flow.
fn units() -> u32 {
    std::thread::available_parallelism().map_or(1, |units| units.get() as u32).min(MOST_WORKERS)
}

/// Scheduler that gives workers their tasks (Silva et al., section II and III). Under any of them, nodes that are bound
/// to a worker or machine stay there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// One ready queue for all workers of all machines, first in, first out, as in the original Sucuri.
    Central,
    /// As [`Self::Central`], but each worker keeps the tasks that it has made ready, and idle workers steal from
    /// others.
    CentralStealing,
    /// One ready queue per machine, first in, first out, with the tasks of the nodes that are allocated there.
    Local,
    /// As [`Self::Local`], but each worker keeps the tasks of its machine that it has made ready. Idle workers steal
    /// from others: first from workers of their machine, then from other machines.
    #[default]
    Stealing,
}

impl Scheduler {
    /// All schedulers.
    pub const ALL: [Self; 4] = [Self::Central, Self::CentralStealing, Self::Local, Self::Stealing];

    /// Returns its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Central => "central",
            Self::CentralStealing => "central-stealing",
            Self::Local => "local",
            Self::Stealing => "stealing",
        }
    }

    /// Whether nodes have a machine of their own.
    pub fn is_local(self) -> bool {
        matches!(self, Self::Local | Self::Stealing)
    }

    /// Whether idle workers take tasks of other workers.
    pub fn steals(self) -> bool {
        matches!(self, Self::CentralStealing | Self::Stealing)
    }
}

/// Options of a flow's run.
#[derive(Clone, Debug)]
pub struct FlowOptions {
    pub(super) worker_config: WorkerConfig,
    pub(super) scheduler: Scheduler,
    pub(super) window: Option<usize>,
    pub(super) iterations: u64,
    pub(super) allocation: Option<Allocation>,
    pub(super) cancel: Option<CancelToken>,
    pub(super) profile: bool,
    pub(super) spin: Duration,
}

impl Default for FlowOptions {
    /// One worker for each processing unit that this process may use.
    fn default() -> Self {
        let machine_of = vec![0; units() as usize];
        let worker_config = WorkerConfig { units: vec![None; machine_of.len()], machine_of, links: Links::default() };
        FlowOptions {
            worker_config,
            scheduler: Scheduler::default(),
            window: None,
            iterations: 1,
            allocation: None,
            cancel: None,
            profile: false,
            spin: Duration::from_micros(50),
        }
    }
}

impl FlowOptions {
    /// Sets the workers (default: one per processing unit that this process may use).
    pub fn with_workers(self, worker_config: WorkerConfig) -> Self {
        FlowOptions { worker_config, ..self }
    }

    /// Sets the scheduler (default: [`Scheduler::Stealing`]).
    pub fn with_scheduler(self, scheduler: Scheduler) -> Self {
        FlowOptions { scheduler, ..self }
    }

    /// Sets the most iterations in flight, at least one (default: four per worker). Sources wait while there are as
    /// many.
    ///
    /// A flow's memory is this number of operands per edge.
    pub fn with_window(self, iterations: usize) -> Self {
        FlowOptions { window: Some(iterations.max(1)), ..self }
    }

    /// Sets the number of iterations of a flow without sources (default: 1).
    pub fn with_iterations(self, iterations: u64) -> Self {
        FlowOptions { iterations, ..self }
    }

    /// Sets the allocation of nodes to workers (default: none). Without an allocation, local schedulers take the nodes'
    /// machines from Sucuri's list scheduling with the nodes' weights.
    pub fn with_allocation(self, allocation: Allocation) -> Self {
        FlowOptions { allocation: Some(allocation), ..self }
    }

    /// Sets a token that can end the run (default: none). Workers check it between nodes, and every few milliseconds
    /// while they wait.
    pub fn with_cancel(self, token: CancelToken) -> Self {
        FlowOptions { cancel: Some(token), ..self }
    }

    /// Sets whether the times of nodes are recorded (default: false). The clock is then read twice per node.
    pub fn with_profile(self, profile: bool) -> Self {
        FlowOptions { profile, ..self }
    }

    /// Sets how long idle workers spin for work before they sleep (default: 50 µs).
    pub fn with_spin(self, spin: Duration) -> Self {
        FlowOptions { spin, ..self }
    }

    /// Returns the workers.
    pub fn worker_config(&self) -> &WorkerConfig {
        &self.worker_config
    }

    /// Most iterations in flight.
    pub(super) fn window(&self) -> usize {
        self.window.unwrap_or(WINDOW_A_WORKER * self.worker_config.worker_count() as usize)
    }
}
