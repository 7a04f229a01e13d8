//! The devices of a session, shared by the executors of all its plans.

use super::RunOptions;
use super::event::Lane;
use super::inside;
use super::memory_accounting::{MemoryAccounting, PoolBytes};
use super::queue::{RunQueue, Turn};
use super::run_channels::Stop;
use super::runner::{Job, RunnerThread};
use super::supervise::{Deadline, TICK};
use super::threads::{Busy, Inbox, PoolThread};
use anabranch_base::sync::{Mutex, Sender, lock};
use anabranch_device::{ComputeDevice, CpuTeam, affinity};
use anabranch_kernels::cpu::{Interrupt, Team};
use anabranch_kernels::gpu::Gpu;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{ExecError, HOST};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most threads that copy a piece together: more do not copy faster, and take cores from kernels.
const COPIERS: usize = 4;

/// The devices on which plans run.
///
/// A pool has a team of threads for each CPU device, an opened GPU for each GPU, and a thread for each link and each
/// device except the host. Links share one more team, which copies large values. Each is started or opened when the
/// first plan with steps there is prepared, used by all plans, and ended with the pool and its executors. Idle devices
/// cost nothing beyond [`RunOptions::linger`](super::RunOptions::linger).
///
/// The first device is the host. The thread that calls [`Executor::run`](super::Executor::run) runs its steps; if a
/// long run finds the devices taken, a thread of the pool does.
///
/// **Runs of one pool are serialised**, both of one plan and of several plans: a run uses all the cores for which its
/// plan was made. Further callers queue; a queued run ends at its own timeout or when its own token is cancelled. Long
/// queued runs are served in order. Among all other callers, the first to ask after a run's end is next. Once per
/// millisecond the longest waiting caller is next.
pub struct DevicePool {
    devices: Vec<ComputeDevice>,
    held: PoolBytes,
    queue: RunQueue,
    busy: Arc<Busy>,
    /// Whether waits may spin: another processing unit runs the awaited thread.
    spins: bool,
    /// Whether slots may be pinned for GPUs.
    pins_memory: bool,
    started: Mutex<Started>,
    /// Opened GPU of each device. Each has its own lock, because opening takes long.
    gpus: Vec<Mutex<Option<Opened>>>,
    notes: Arc<Mutex<BTreeSet<String>>>,
}

/// An opened GPU. It is hidden in a closure, because its type is so deep that users who need a pool to be `Send` would
/// otherwise have to raise the compiler's recursion limit.
type Opened = Box<dyn Fn() -> Arc<Gpu> + Send + Sync>;

/// Threads that have been started.
#[derive(Default)]
struct Started {
    threads: BTreeMap<Lane, PoolThread>,
    teams: BTreeMap<DeviceId, Arc<Team>>,
    copiers: Option<Arc<Team>>,
    runner: Option<RunnerThread>,
}

impl DevicePool {
    /// Creates a pool of these devices, the host first. Starts and opens nothing yet.
    pub fn new(devices: Vec<ComputeDevice>) -> Arc<Self> {
        Self::with_pinned(devices, true)
    }

    /// Creates a pool of these devices, and states whether GPUs may copy from and to memory of the host by themselves.
    /// Otherwise, or if a GPU cannot, all values go through staging buffers, with the same bits.
    pub fn with_pinned(devices: Vec<ComputeDevice>, pins_memory: bool) -> Arc<Self> {
        Arc::new(Self {
            held: devices.iter().map(|_| AtomicU64::new(0)).collect(),
            gpus: devices.iter().map(|_| Mutex::default()).collect(),
            devices,
            pins_memory,
            queue: RunQueue::new(),
            busy: Arc::default(),
            spins: std::thread::available_parallelism().is_ok_and(|units| units.get() > 1),
            started: Mutex::default(),
            notes: Arc::default(),
        })
    }

    /// Returns the devices, the host first.
    pub fn devices(&self) -> &[ComputeDevice] {
        &self.devices
    }

    /// Whether GPUs may copy from and to memory of the host by themselves ([`with_pinned`](Self::with_pinned)).
    pub fn pins_memory(&self) -> bool {
        self.pins_memory
    }

    /// Returns the bytes that all executors together hold on each device. Weights that several executors share count
    /// for each.
    pub fn held(&self) -> Vec<u64> {
        self.held.iter().map(|held| held.load(Ordering::Relaxed)).collect()
    }

    /// Returns notes about problems that do not change results, such as a thread that could not be pinned.
    pub fn notes(&self) -> Vec<String> {
        lock(&self.notes).iter().cloned().collect()
    }

    pub(super) fn accounting(&self) -> MemoryAccounting {
        MemoryAccounting::new(&self.held)
    }

    pub(super) fn busy(&self) -> &Arc<Busy> {
        &self.busy
    }

    /// Waits until a run can start.
    pub fn turn(&self, deadline: &Deadline<'_>, spin: Duration) -> Result<Turn<'_>, ExecError> {
        self.queue.turn(deadline, self.spin(spin))
    }

    /// Whether a run has the turn.
    pub(super) fn is_taken(&self) -> bool {
        self.queue.is_taken()
    }

    /// Returns the queue for long runs whose callers find the devices taken.
    pub(super) fn runner(&self) -> Result<Sender<Arc<Job>>, ExecError> {
        let mut started = lock(&self.started);
        let runner = match &mut started.runner {
            Some(runner) => runner,
            none => none.insert(RunnerThread::start(self.host_units())?),
        };
        Ok(runner.queue())
    }

    /// Processing units of the host, if they are given.
    fn host_units(&self) -> Vec<u32> {
        match self.devices.first() {
            Some(ComputeDevice::Cpu(cpu)) => cpu.units.clone(),
            _ => Vec::new(),
        }
    }

    /// Limits the time that waits may spin: a spinning caller must not leave its clock and token unchecked for longer.
    pub(super) fn spin(&self, wanted: Duration) -> Duration {
        if self.spins { wanted.min(TICK) } else { Duration::ZERO }
    }

    /// Returns the team of a CPU device. Its threads except the calling one start here, each on its processing unit.
    pub(super) fn team(&self, device: DeviceId, cpu: &CpuTeam) -> Arc<Team> {
        let mut started = lock(&self.started);
        let team = started.teams.entry(device).or_insert_with(|| {
            let pin = self.pinning(cpu);
            Arc::new(Team::new(cpu.threads.max(1), move |member| {
                inside::enter();
                pin(member);
            }))
        });
        Arc::clone(team)
    }

    /// Returns the team that copies large pieces on links. It is not the host's, whose kernels would then find their
    /// helpers copying and run alone. Links that copy at the same time share it: the first has its helpers.
    pub(super) fn copiers(&self) -> Arc<Team> {
        let threads = self.devices.iter().map(|device| match device {
            ComputeDevice::Cpu(cpu) => cpu.threads,
            ComputeDevice::Gpu(_) => 0,
        });
        let threads = threads.sum::<usize>().min(COPIERS);
        let start = || Arc::new(Team::new(threads, |_| inside::enter()));
        Arc::clone(lock(&self.started).copiers.get_or_insert_with(start))
    }

    /// Runs work on the host's team between two plans, as soon as the caller has its turn.
    ///
    /// The team and the work check the interrupt; after an interruption the result is discarded.
    ///
    /// # Errors
    /// If the run has to end before its turn comes.
    pub fn on_host<R>(
        &self,
        options: &RunOptions,
        work: impl FnOnce(&Team, Option<&Interrupt>) -> R,
    ) -> Result<R, ExecError> {
        let deadline = Deadline::new(options, Instant::now());
        let _turn = self.turn(&deadline, options.spin)?;
        let team = match self.devices.first() {
            Some(ComputeDevice::Cpu(cpu)) => self.team(HOST, cpu),
            _ => Arc::new(Team::solo()),
        };
        let _pinned = if team.threads() > 1 { self.bring_caller(false) } else { None };
        let interrupt = deadline.interrupt(&Stop::default());
        let _watched = interrupt.as_ref().map(|interrupt| team.watch(Arc::clone(interrupt)));
        Ok(work(&team, interrupt.as_ref()))
    }

    /// Returns a GPU, and opens it if it is not open or was lost.
    pub fn gpu(&self, device: DeviceId) -> Result<Arc<Gpu>, ExecError> {
        let ComputeDevice::Gpu(opener) = &self.devices[device.index()] else {
            return Err(ExecError::internal("a CPU device was to be opened as a GPU"));
        };
        let mut opened = lock(&self.gpus[device.index()]);
        if let Some(gpu) = opened.as_ref().map(|gpu| gpu()).filter(|gpu| gpu.fault().is_none()) {
            return Ok(gpu);
        }
        *opened = None;
        let gpu = opener.open().map_err(|error| ExecError::unusable(&opener.name, &error))?;
        let kept = Arc::clone(&gpu);
        *opened = Some(Box::new(move || Arc::clone(&kept)));
        Ok(gpu)
    }

    /// Whether executors should use this GPU.
    pub(super) fn is_current(&self, device: DeviceId, gpu: &Arc<Gpu>) -> bool {
        lock(&self.gpus[device.index()]).as_ref().is_some_and(|current| Arc::ptr_eq(&current(), gpu))
    }

    /// Drops the GPUs that are lost, so that all executors open them again.
    pub(super) fn forget_lost(&self) {
        self.gpus.iter().for_each(|gpu| {
            lock(gpu).take_if(|gpu| gpu().fault().is_some());
        });
    }

    /// Returns the thread of a device or link.
    pub(super) fn thread(&self, lane: Lane) -> Result<Arc<Inbox>, ExecError> {
        let mut started = lock(&self.started);
        if let Some(thread) = started.threads.get(&lane) {
            return Ok(Arc::clone(&thread.inbox));
        }
        let name = |device: DeviceId| self.devices[device.index()].name();
        let thread = match lane {
            Lane::Link { from, to } => {
                PoolThread::start(&format!("{} -> {}", name(from), name(to)), &self.busy, || {})?
            }
            Lane::Device(device) => match &self.devices[device.index()] {
                ComputeDevice::Gpu(opener) => PoolThread::start(&opener.name, &self.busy, || {})?,
                ComputeDevice::Cpu(cpu) => {
                    let pin = self.pinning(cpu);
                    PoolThread::start(&cpu.name, &self.busy, move || pin(0))?
                }
            },
        };
        let inbox = Arc::clone(&thread.inbox);
        started.threads.insert(lane, thread);
        Ok(inbox)
    }

    /// Keeps the calling thread on the host's first processing unit until the result is dropped.
    pub fn pin_caller(&self) -> Option<affinity::Pinned> {
        let Some(ComputeDevice::Cpu(cpu)) = self.devices.first() else { return None };
        let pinned = affinity::pin_current_thread(&[*cpu.units.first()?]);
        pinned.map_err(|error| note(&self.notes, &cpu.name, &error)).ok()
    }

    /// Pins the calling thread of the application for a run, as [`pin_caller`](Self::pin_caller) does, unless its own
    /// affinity excludes the unit.
    ///
    /// A thread that is already there and will not sleep is left alone: it seldom moves, and pinning would cost a
    /// network of 25 µs a tenth of its time.
    pub(super) fn bring_caller(&self, may_sleep: bool) -> Option<affinity::Pinned> {
        let Some(ComputeDevice::Cpu(cpu)) = self.devices.first() else { return None };
        let unit = *cpu.units.first()?;
        let stays = !may_sleep && affinity::current_unit() == Some(unit) || affinity::excludes(unit);
        if stays { None } else { self.pin_caller() }
    }

    /// Keeps a thread, the `member`th of a team, on its processing unit for its lifetime. If the system does not allow
    /// that, the thread runs elsewhere: perhaps slower, with equal results.
    pub(super) fn pinning(&self, cpu: &CpuTeam) -> impl Fn(usize) + Send + Sync + 'static {
        let (name, units, notes) = (cpu.name.clone(), cpu.units.clone(), Arc::clone(&self.notes));
        move |member: usize| {
            if units.is_empty() {
                return;
            }
            match affinity::pin_current_thread(&[units[member % units.len()]]) {
                Ok(pinned) => pinned.for_good(),
                Err(error) => note(&notes, &name, &error),
            }
        }
    }
}

fn note(notes: &Mutex<BTreeSet<String>>, device: &str, error: &affinity::PinError) {
    lock(notes).insert(format!("{device}: {error}"));
}

impl fmt::Debug for DevicePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevicePool").field("devices", &self.devices).field("held", &self.held()).finish_non_exhaustive()
    }
}
