//! Buffers and kernels of an executor, and one run of its plan.
//!
//! Protocol: the caller of a run has the pool's turn, so that all workers are idle. It gives each thread with steps its
//! part, runs the host's worker program itself, and waits until all threads are done. The first worker that fails
//! records the reason and raises the stop flag; the other workers leave at their next step, chunk or wait. A worker
//! that sees the end of the run's time in a kernel just leaves: the caller, who checks the same token and clock, stops
//! the others. When all workers have left a failed run, its caller takes the buffers that the run went on with in
//! place. Then it resets everything in flight, so that no data of one run reaches the next.

use super::RunOptions;
use super::cpu::CpuWorker;
use super::diagnosis::Diagnosis;
use super::error::FailureSite;
use super::event::Lane;
use super::gpu::GpuSide;
#[cfg(feature = "gpu")]
use super::gpu::GpuWorker;
use super::link::LinkWorker;
use super::memory_accounting::MemoryAccounting;
use super::pool::DevicePool;
use super::run_channels::{Doing, Halt, RunChannels};
use super::supervise::{Deadline, Supervisor, Verdict};
use super::threads::{Inbox, Job};
use super::worker::{GpuTensors, Run, Terms, Worker, attempt};
use super::worker_program::{DeviceProgram, LinkProgram, LinkStep, WorkerPrograms};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::sync::{Mutex, lock};
use anabranch_device::ComputeDevice;
use anabranch_ir::program::{NodeId, ValueId};
use anabranch_kernels::cpu::Team;
use anabranch_kernels::gpu::{Gpu, GpuBuffer};
use anabranch_kernels::{Buffer, Tensor};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{ExecError, HOST, Kernels, Plan};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Everything that a plan keeps on its devices between runs.
pub(super) struct Engine {
    pub(super) accounting: MemoryAccounting,
    diagnosis: Diagnosis,
    pub(super) channels: RunChannels,
    verdict: Verdict,
    /// Workers of the devices, by their ids, and then of the links; `None` for those without steps.
    stations: Vec<Option<Station>>,
    /// Whether the caller has tensors on GPUs.
    has_resident: bool,
    /// Whether several CPU devices have steps.
    shares_cpus: bool,
    /// Whether threads other than the caller's compute on cores. They stay on their cores, and the caller should avoid
    /// these.
    has_helpers: bool,
    /// Whether the caller may sleep in a run: it waits for other devices or links, or emulates a slower device.
    may_sleep: bool,
}

/// A worker, and the thread that runs it.
struct Station {
    worker: Mutex<Box<dyn Worker>>,
    /// Inbox of its thread; `None` for the host, whose steps the caller runs.
    inbox: Option<Arc<Inbox>>,
}

/// Inputs and outputs of one call of a run.
pub(super) struct Call<'a> {
    pub inputs: &'a [&'a Tensor],
    pub(super) options: &'a RunOptions,
    pub(super) origin: Instant,
    /// Buffers of former outputs that the caller no longer uses, by output.
    pub(super) spare: &'a mut [Option<Arc<Buffer>>],
    /// Tensors of the caller on GPUs.
    pub(super) tensors: GpuTensors,
}

/// A failure, and whether the engine is unusable. Otherwise it has to be [reset](Engine::reset) before its next run.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) error: ExecError,
    pub(super) beyond_repair: bool,
}

/// Parts from which an engine is built.
struct Parts<'a> {
    plan: &'a Arc<Plan>,
    kernels: &'a Kernels,
    pool: &'a DevicePool,
    accounting: &'a MemoryAccounting,
    gpus: Vec<Option<Arc<GpuSide>>>,
}

impl Engine {
    /// Allocates all memory, prepares all kernels, and starts or opens the devices on which the plan has steps.
    pub(super) fn build(plan: &Arc<Plan>, kernels: &Kernels, pool: &DevicePool) -> Result<Self, ExecError> {
        let program = kernels.program();
        let WorkerPrograms { mut devices, mut links, ports } = WorkerPrograms::of(plan, program)?;
        let accounting = pool.accounting();
        ready_constants(kernels, pool, &mut devices, &accounting)?;
        ready_sent(plan, kernels, &mut links, &accounting)?;
        let channels = RunChannels::new(&ports).ok_or_else(|| ExecError::memory(pool.devices()[0].name()))?;
        let mut parts = Parts { plan, kernels, pool, accounting: &accounting, gpus: Vec::new() };
        let cpus =
            devices.iter().zip(pool.devices()).enumerate().filter_map(|(at, (worker_program, device))| match device {
                ComputeDevice::Cpu(team) if !worker_program.steps.is_empty() => {
                    Some(at != HOST.index() || team.threads > 1 && !worker_program.nodes.is_empty())
                }
                _ => None,
            });
        let (shares_cpus, has_helpers) = (cpus.clone().count() > 1, cpus.clone().any(|helped| helped));
        let mut stations = Vec::new();
        for (at, worker_program) in devices.into_iter().enumerate() {
            let device = DeviceId(at as u32);
            accounting.take(device, channels.port(device.0).ring_bytes());
            stations.push(parts.station(device, worker_program)?);
        }
        for worker_program in links {
            stations.push(Some(parts.link(stations.len(), worker_program)?));
        }
        drop(parts);
        let diagnosis = Diagnosis { plan: Arc::clone(plan), program: Arc::clone(program), ports };
        let callers = (0..program.inputs.len()).map(|at| plan.input_device(at));
        let mut callers = callers.chain((0..program.outputs.len()).map(|at| plan.output_device(at)));
        let has_resident = callers.any(|device| device != HOST);
        let waits = stations.iter().flatten().any(|station| station.inbox.is_some());
        let may_sleep =
            waits || matches!(&pool.devices()[HOST.index()], ComputeDevice::Cpu(team) if team.slowdown().is_some());
        Ok(Self {
            accounting,
            diagnosis,
            channels,
            verdict: Verdict::default(),
            stations,
            has_resident,
            shares_cpus,
            has_helpers,
            may_sleep,
        })
    }

    /// Whether all its GPUs are the ones that the pool has open.
    pub(super) fn is_current(&self, pool: &DevicePool) -> bool {
        self.stations.iter().zip(pool.devices()).enumerate().all(|(at, (station, device))| match (station, device) {
            (Some(station), ComputeDevice::Gpu(_)) => {
                lock(&station.worker).gpu().is_none_or(|gpu| pool.is_current(DeviceId(at as u32), gpu))
            }
            _ => true,
        })
    }

    /// Runs once. The caller has the pool's turn: all workers are idle before and after.
    pub(super) fn run(self: &Arc<Self>, pool: &DevicePool, call: &mut Call<'_>) -> Result<(), Broken> {
        let (spin, linger) = (pool.spin(call.options.spin), pool.spin(call.options.linger));
        let graph = || self.diagnosis.wait_for_graph(&self.channels);
        let deadline = Deadline::new(call.options, call.origin);
        let interrupt = deadline.interrupt(&self.channels.stop);
        let terms = Terms { origin: call.origin, profile: call.options.profile, spin, linger, interrupt };
        let supervisor = Supervisor {
            deadline,
            channels: &self.channels,
            verdict: &self.verdict,
            graph: &graph,
            stall_after: call.options.stall_after,
            watch: RefCell::default(),
        };
        let _pinned = if self.has_helpers { pool.bring_caller(self.may_sleep) } else { None };
        self.adopt(call.spare);
        self.give(&call.tensors);
        let threads = self.start(pool, &terms);
        let host = self.terms_on(HOST.0, pool, &terms);
        let spin = host.spin;
        self.host(host, call, &supervisor);
        if threads > 0 {
            pool.busy().caller.wait(spin, || pool.busy().is_over(), || supervisor.look());
        }
        self.give(&GpuTensors::default());
        match self.verdict.take(|| supervisor.check()) {
            None => Ok(()),
            Some(blame) => {
                // After the loss of a device, or a bug of this code, the engine is unusable.
                let beyond_repair = matches!(blame.failure.error.kind, ErrorKind::DeviceFailure | ErrorKind::Internal);
                Err(Broken { error: self.diagnosis.named(blame), beyond_repair })
            }
        }
    }

    /// Makes all workers forget a failed run, after the caller has taken what it [left](Self::left). Returns whether
    /// memory sufficed to create lost buffers again.
    ///
    /// A buffer is lost only if something holds it after all workers have let go.
    pub(super) fn reset(&self) -> bool {
        let workers = || self.stations.iter().flatten().map(|station| lock(&station.worker));
        workers().for_each(|mut worker| worker.let_go());
        self.channels.reset() && workers().all(|mut worker| worker.restore())
    }

    /// Lets the devices write into buffers that the caller no longer uses, and drops the other buffers.
    fn adopt(&self, spare: &mut [Option<Arc<Buffer>>]) {
        for station in self.stations.iter().flatten() {
            if let Some(worker) = lock(&station.worker).cpu() {
                worker.adopt(spare);
            }
        }
        spare.fill(None);
    }

    /// Returns the slot on a GPU that holds this output in place, if no run had it yet; once.
    pub(super) fn unused_slot(&self, device: DeviceId, output: u32) -> Option<(Arc<Gpu>, GpuBuffer)> {
        lock(&self.stations.get(device.index())?.as_ref()?.worker).unused_slot(output)
    }

    /// Lets the host go on in place with a former output; gives the buffer back if that cannot be.
    pub(super) fn go_on_with(&self, output: u32, buffer: Arc<Buffer>) -> Result<(), Arc<Buffer>> {
        let Some(station) = &self.stations[HOST.index()] else { return Err(buffer) };
        match lock(&station.worker).cpu() {
            Some(worker) => worker.go_on_with(output, buffer),
            None => Err(buffer),
        }
    }

    /// Takes the buffer that a failed run has left for an output of the host.
    pub(super) fn left(&self, output: u32) -> Option<Arc<Buffer>> {
        lock(&self.stations[HOST.index()].as_ref()?.worker).cpu()?.left(output)
    }

    /// Gives the GPUs the caller's tensors, where a run has any, or takes them away.
    fn give(&self, tensors: &GpuTensors) {
        for station in self.stations.iter().flatten().filter(|_| self.has_resident) {
            if let Some(held) = lock(&station.worker).tensors() {
                held.clone_from(tensors);
            }
        }
    }

    /// Gives all threads with steps their part; returns the number of threads.
    fn start(self: &Arc<Self>, pool: &DevicePool, terms: &Terms) -> u32 {
        let inboxes = || {
            let inbox = |(at, station): (usize, &Option<Station>)| {
                Some((at as u32, Arc::clone(station.as_ref()?.inbox.as_ref()?)))
            };
            self.stations.iter().enumerate().filter_map(inbox)
        };
        let threads = inboxes().count() as u32;
        if threads > 0 {
            self.channels.port(HOST.0).waiter.enter();
            pool.busy().enter(threads);
            self.channels.port(HOST.0).show(Doing::Working);
            inboxes().for_each(|(worker, _)| self.channels.port(worker).show(Doing::Working));
            let job = |worker| Job { engine: Arc::clone(self), worker, terms: self.terms_on(worker, pool, terms) };
            inboxes().for_each(|(worker, inbox)| inbox.give(job(worker)));
        }
        threads
    }

    /// Terms of one worker. Threads of several CPU devices spin longer while they wait for each other and for the next
    /// run: such waits take as long as their own work, and a thread that slept is late.
    fn terms_on(&self, worker: u32, pool: &DevicePool, terms: &Terms) -> Terms {
        let cpu = matches!(pool.devices().get(worker as usize), Some(ComputeDevice::Cpu(_)));
        let spin = if cpu && self.shares_cpus { terms.spin.max(terms.linger) } else { terms.spin };
        Terms { spin, ..terms.clone() }
    }

    /// Runs the host's part, on the caller's thread.
    fn host(&self, terms: Terms, call: &Call<'_>, supervisor: &Supervisor<'_>) {
        let Some(station) = &self.stations[HOST.index()] else { return };
        let mut worker = lock(&station.worker);
        let run =
            Run { channels: &self.channels, worker: HOST.0, terms, inputs: call.inputs, supervisor: Some(supervisor) };
        let result = attempt(&mut **worker, &run);
        self.finished(HOST.0, result);
    }

    /// Runs the part of another worker, on its thread.
    pub(super) fn work(&self, worker: u32, terms: Terms) {
        let result = match &self.stations[worker as usize] {
            Some(station) => {
                let run = Run { channels: &self.channels, worker, terms, inputs: &[], supervisor: None };
                self.channels.port(worker).waiter.enter();
                attempt(&mut **lock(&station.worker), &run)
            }
            None => Ok(()),
        };
        self.finished(worker, result);
    }

    fn finished(&self, worker: u32, result: Result<(), Halt>) {
        match result {
            Ok(()) => {}
            Err(Halt::Failed(failure)) => self.verdict.fail(Some(worker), failure, &self.channels),
            Err(Halt::Stopped) => self.verdict.leave(worker, FailureSite::Nowhere),
            Err(Halt::Left(place)) => self.verdict.leave(worker, place),
        }
        self.channels.port(worker).show(Doing::Idle);
    }

    /// Appends the events of a successful run, and clears the workers' logs. Returns the bytes that GPUs have copied.
    pub(super) fn take_log(&self, events: &mut Vec<super::Event>) -> u64 {
        let taken = |station: &Station| {
            let mut worker = lock(&station.worker);
            events.append(&mut worker.log().events);
            worker.log().copied
        };
        self.stations.iter().flatten().map(taken).sum()
    }

    /// Appends the outputs of a successful run, with their numbers. Large ones are the caller's alone.
    pub(super) fn take_outputs(&self, outputs: &mut Vec<(u32, Arc<Buffer>)>) {
        for (at, station) in self.stations.iter().enumerate() {
            let Some(station) = station else { continue };
            if let Some(worker) = lock(&station.worker).cpu() {
                if at == HOST.index() {
                    outputs.append(&mut worker.outputs);
                }
                worker.give_away();
            }
        }
    }
}

impl Parts<'_> {
    /// Creates the worker of a device, if it has steps.
    fn station(&mut self, device: DeviceId, worker_program: DeviceProgram) -> Result<Option<Station>, ExecError> {
        let is_host = device == HOST;
        if worker_program.steps.is_empty() && !is_host {
            self.gpus.push(None);
            return Ok(None);
        }
        let (side, worker): (_, Box<dyn Worker>) = match &self.pool.devices()[device.index()] {
            ComputeDevice::Cpu(cpu) => {
                let computes = !worker_program.nodes.is_empty();
                let team = if computes { self.pool.team(device, cpu) } else { Arc::new(Team::solo()) };
                let kernels =
                    worker_program.nodes.iter().map(|node| self.kernels.cpu(node.node)).collect::<Result<_, _>>()?;
                let slots = worker_program.cells.slots.iter().filter(|_| self.pool.pins_memory());
                let pinned = slots.filter_map(|slot| slot.pinned);
                let gpus = pinned.map(|gpu| Ok((gpu, self.pool.gpu(gpu)?))).collect::<Result<_, ExecError>>()?;
                let (plan, accounting) = (self.plan, self.accounting);
                (None, Box::new(CpuWorker::new((device, cpu), worker_program, kernels, team, plan, accounting, gpus)?))
            }
            #[cfg(not(feature = "gpu"))]
            ComputeDevice::Gpu(_) => match *self.pool.gpu(device)? {},
            #[cfg(feature = "gpu")]
            ComputeDevice::Gpu(opener) => {
                let (gpu, memory) = (self.pool.gpu(device)?, &self.plan.memory().devices()[device.index()]);
                let side =
                    GpuSide::new(gpu, &opener.name, device, &worker_program, self.kernels, self.accounting, memory)?;
                let worker = GpuWorker::new(device, worker_program, Arc::clone(&side));
                let worker = worker.map_err(|error| ExecError::unusable(&opener.name, &error))?;
                (Some(side), Box::new(worker))
            }
        };
        self.gpus.push(side);
        let inbox = if is_host { None } else { Some(self.pool.thread(Lane::Device(device))?) };
        Ok(Some(Station { worker: Mutex::new(worker), inbox }))
    }

    /// Creates the worker of a link.
    fn link(&self, worker: usize, worker_program: LinkProgram) -> Result<Station, ExecError> {
        let devices = self.plan.devices();
        if let Some(link) = self.plan.links().get(worker - devices.len()) {
            for (device, bytes) in link.staging_bytes(devices) {
                self.accounting.take(device, bytes as usize);
            }
            self.accounting.take(link.to, link.ring.total() as usize);
        }
        let ends = [worker_program.from, worker_program.to].map(|end| self.gpus[end.index()].clone());
        let inbox = Some(self.pool.thread(Lane::Link { from: worker_program.from, to: worker_program.to })?);
        let worker: Box<dyn Worker> =
            Box::new(LinkWorker::new(worker_program, self.plan, || self.pool.copiers(), ends)?);
        Ok(Station { worker: Mutex::new(worker), inbox })
    }
}

/// Packs and loads the constants that the CPU devices read.
fn ready_constants(
    kernels: &Kernels,
    pool: &DevicePool,
    worker_programs: &mut [DeviceProgram],
    accounting: &MemoryAccounting,
) -> Result<(), ExecError> {
    let devices = || pool.devices().iter().enumerate().filter(|(_, device)| matches!(device, ComputeDevice::Cpu(_)));
    let nodes = |worker_program: &DeviceProgram| worker_program.nodes.iter().map(|node| node.node).collect::<Vec<_>>();
    let all: Vec<NodeId> = devices().flat_map(|(at, _)| nodes(&worker_programs[at])).collect();
    let values: Vec<ValueId> =
        devices().flat_map(|(at, _)| worker_programs[at].cells.constants.iter().map(|cell| cell.value)).collect();
    let mut loaded = kernels.ready(&all, &values)?.into_iter();
    // Nodes that share a constant share its buffer, which counts on the first device.
    let mut counted = BTreeSet::new();
    for (at, _) in devices() {
        let packed = nodes(&worker_programs[at]).into_iter().flat_map(|node| kernels.packed(node));
        let fresh = packed.filter(|buffer| counted.insert(Arc::as_ptr(buffer)));
        accounting.take(DeviceId(at as u32), fresh.map(|buffer| buffer.len()).sum());
    }
    for (at, _) in devices() {
        let constants = &mut worker_programs[at].cells.constants;
        constants.iter_mut().zip(&mut loaded).for_each(|(cell, buffer)| cell.buffer = buffer);
    }
    Ok(())
}

/// Loads the constants that links send. They count on the host.
fn ready_sent(
    plan: &Plan,
    kernels: &Kernels,
    links: &mut [LinkProgram],
    accounting: &MemoryAccounting,
) -> Result<(), ExecError> {
    let program = kernels.program();
    let value = |step: &LinkStep| Some(plan.transfer(step.transfer).value).filter(|v| program.constant(*v).is_some());
    let values: BTreeSet<ValueId> = links.iter().flat_map(|link| &link.steps).filter_map(value).collect();
    let values: Vec<ValueId> = values.into_iter().collect();
    let loaded: BTreeMap<ValueId, Arc<Buffer>> = values.iter().copied().zip(kernels.ready(&[], &values)?).collect();
    accounting.take(HOST, loaded.values().map(|buffer| buffer.len()).sum());
    for step in links.iter_mut().flat_map(|link| &mut link.steps) {
        step.constant = value(step).and_then(|value| loaded.get(&value).cloned());
    }
    Ok(())
}
