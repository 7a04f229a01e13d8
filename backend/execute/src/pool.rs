//! The devices of a session, shared by the executors of all its plans.

use super::RunOptions;
use super::event::Lane;
use super::exchange::Stop;
use super::inside;
use super::ledger::{Held, Ledger};
use super::queue::{RunQueue, Turn};
use super::relay::{Errand, Relay};
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

/// The devices that plans run on: one team of threads for each CPU device, one opened GPU for each GPU, one thread for each device
/// that is not the host's and for each link. Each is started or opened when the first plan is readied that has steps there, used by
/// all plans, and ended when the pool and its executors are gone. Idle devices cost
/// nothing beyond [`RunOptions::linger`](super::RunOptions::linger).
///
/// The first device is the host: its steps are run by the thread that calls [`Executor::run`](super::Executor::run), or, for a long run
/// that finds the devices taken, by a thread of the pool.
///
/// **Runs of one pool follow each other**, those of one plan and those of several: a run uses all the cores that its plan was made
/// for. Further callers queue; a run that is queued ends at its own timeout and when its own token is cancelled. Long runs that queue
/// are made in order. Of all others, who comes first when a run ends is next, but once in a millisecond it is who has waited longest.
pub struct DevicePool {
    devices: Vec<ComputeDevice>,
    held: Held,
    queue: RunQueue,
    busy: Arc<Busy>,
    /// Whether waits may spin: there is another processing unit for who is waited for.
    spins: bool,
    started: Mutex<Started>,
    /// By device; each has a lock of its own, for opening one takes long.
    gpus: Vec<Mutex<Option<Opened>>>,
    notes: Arc<Mutex<BTreeSet<String>>>,
}

/// An opened GPU. Hidden in a closure, because its type is so deep that whoever wants a pool to be `Send` would otherwise have to raise
/// the compiler's recursion limit.
type Opened = Box<dyn Fn() -> Arc<Gpu> + Send + Sync>;

/// The threads that have been started.
#[derive(Default)]
struct Started {
    threads: BTreeMap<Lane, PoolThread>,
    teams: BTreeMap<DeviceId, Arc<Team>>,
    relay: Option<Relay>,
}

impl DevicePool {
    /// A pool of these devices, the host first. Starts and opens nothing yet.
    pub fn new(devices: Vec<ComputeDevice>) -> Arc<Self> {
        Arc::new(Self {
            held: devices.iter().map(|_| AtomicU64::new(0)).collect(),
            gpus: devices.iter().map(|_| Mutex::default()).collect(),
            devices,
            queue: RunQueue::new(),
            busy: Arc::default(),
            spins: std::thread::available_parallelism().is_ok_and(|units| units.get() > 1),
            started: Mutex::default(),
            notes: Arc::default(),
        })
    }

    /// The devices, the host first.
    pub fn devices(&self) -> &[ComputeDevice] {
        &self.devices
    }

    /// Bytes that all executors together hold on each device now. Weights that several of them share count for each.
    pub fn held(&self) -> Vec<u64> {
        self.held.iter().map(|held| held.load(Ordering::Relaxed)).collect()
    }

    /// What did not go as wanted and does not change results, such as a thread that could not be kept on its processing unit.
    pub fn notes(&self) -> Vec<String> {
        lock(&self.notes).iter().cloned().collect()
    }

    pub(super) fn ledger(&self) -> Ledger {
        Ledger::new(&self.held)
    }

    pub(super) fn busy(&self) -> &Arc<Busy> {
        &self.busy
    }

    /// Waits until a run can begin.
    pub fn turn(&self, deadline: &Deadline<'_>, spin: Duration) -> Result<Turn<'_>, ExecError> {
        self.queue.turn(deadline, self.spin(spin))
    }

    /// Whether somebody runs.
    pub(super) fn is_taken(&self) -> bool {
        self.queue.is_taken()
    }

    /// Where long runs wait whose callers find the devices taken.
    pub(super) fn relay(&self) -> Result<Sender<Arc<Errand>>, ExecError> {
        let mut started = lock(&self.started);
        let relay = match &mut started.relay {
            Some(relay) => relay,
            none => none.insert(Relay::start(self.host_units())?),
        };
        Ok(relay.queue())
    }

    /// The processing units of the host, if it is told.
    fn host_units(&self) -> Vec<u32> {
        match self.devices.first() {
            Some(ComputeDevice::Cpu(cpu)) => cpu.units.clone(),
            _ => Vec::new(),
        }
    }

    /// How long waits may spin, where so much is wanted: no longer than who waits may leave the clock and its token unseen.
    pub(super) fn spin(&self, wanted: Duration) -> Duration {
        if self.spins { wanted.min(TICK) } else { Duration::ZERO }
    }

    /// The team of a CPU device. Its threads beside the calling one start here, each on its processing unit.
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

    /// Does work on the host's team between two plans, as soon as the caller has its turn. The team asks the interrupt, which the work gets
    /// too; after an interruption its result counts for nothing.
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

    /// A GPU, opened if it is not or was lost.
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

    /// Whether this is the GPU that executors are to use.
    pub(super) fn is_current(&self, device: DeviceId, gpu: &Arc<Gpu>) -> bool {
        lock(&self.gpus[device.index()]).as_ref().is_some_and(|current| Arc::ptr_eq(&current(), gpu))
    }

    /// Lets go of the GPUs that are lost, so that all executors open them again.
    pub(super) fn forget_lost(&self) {
        self.gpus.iter().for_each(|gpu| {
            lock(gpu).take_if(|gpu| gpu().fault().is_some());
        });
    }

    /// The thread of a device or link.
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

    /// Keeps the calling thread on the host's first processing unit until what is returned is dropped.
    pub fn pin_caller(&self) -> Option<affinity::Pinned> {
        let Some(ComputeDevice::Cpu(cpu)) = self.devices.first() else { return None };
        let pinned = affinity::pin_current_thread(&[*cpu.units.first()?]);
        pinned.map_err(|error| note(&self.notes, &cpu.name, &error)).ok()
    }

    /// As [`pin_caller`](Self::pin_caller), for a run of a thread of the application, unless its own affinity keeps it elsewhere. One that is
    /// there and will not sleep is left alone: it seldom leaves, and pinning would cost a network of 25 µs a tenth of its time.
    pub(super) fn bring_caller(&self, may_sleep: bool) -> Option<affinity::Pinned> {
        let Some(ComputeDevice::Cpu(cpu)) = self.devices.first() else { return None };
        let unit = *cpu.units.first()?;
        let stays = !may_sleep && affinity::current_unit() == Some(unit) || affinity::excludes(unit);
        if stays { None } else { self.pin_caller() }
    }

    /// Keeps a thread, the `member`th of a team, on its processing unit for as long as it lives. Where the system does not allow it,
    /// the thread runs elsewhere: slower perhaps, and as right.
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
