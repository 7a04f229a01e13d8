//! Calibration: measures devices and links by probes that run through the executor that also runs the models.
//!
//! A quick calibration of unknown devices precedes the first placement. A full calibration ([`Calibrator`]) takes steps
//! whose results can be saved one by one. The steps are: peak rates; all kernels in many sizes; each link in several
//! sizes, whole and in chunks; hops between CPU devices; and slowdowns of devices by each other.

mod trial;

use super::classes::Class;
use super::probe::{Probe, ROW_WEIGHTS, relay, rows, side_by_side};
use super::record::{ProfiledRun, record, sample};
use anabranch_base::load::{Load, LoadMeter};
use anabranch_costs::{LinkCosts, MachineCosts, Rates};
use anabranch_device::Inventory;
use anabranch_execute::{DevicePool, ExecError, Executor, Kernels};
use anabranch_ir::program::Program;
use anabranch_ir::random::random_tensor;
use anabranch_kernels::gpu::GpuLimits;
use anabranch_kernels::op::Precision;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{HOST, Plan, PlanOptions, StreamMode};
use anabranch_planning::{
    Constraints, Machine, MachineDevice, Order, PlacementRequest, Placing, PlanningError, compute_devices, forecast,
    link, machine_devices,
};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trial::Trial;

/// Fewest runs of a probe, the first of them cold, and most runs.
const RUNS: [usize; 2] = [4, 9];

/// Time after which a probe has run often enough.
const ENOUGH: Duration = Duration::from_millis(250);

/// Number of runs of the kernels of a class.
#[derive(Clone, Copy)]
struct Rounds {
    /// Fewest rounds, the first of them cold, and most rounds.
    least: usize,
    most: usize,
    /// Time after which there were enough rounds.
    enough: Duration,
}

impl Rounds {
    /// Rounds of a full calibration.
    const FULL: Self = Self { least: 4, most: 16, enough: Duration::from_millis(250) };
    /// Rounds before the first placement.
    const QUICK: Self = Self { least: 2, most: 2, enough: Duration::from_millis(250) };
}

/// Fastest plausible rate of a link: a faster transfer took no measurable time.
const MOST_RATE: f64 = 1e12;

/// Elements of the transfers that measure a link: 64 bytes to 16 MiB.
const SIZES: [usize; 6] = [16, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22];

/// Elements of the transfers in chunks.
const STREAMED: [usize; 3] = [1 << 20, 1 << 21, 1 << 22];

/// Elements that CPU devices read from each other's caches: 4 KiB, which fits the nearest caches, to 4 MiB, more than a
/// core's caches.
const READ: [usize; 4] = [1 << 10, 1 << 14, 1 << 18, 1 << 20];

/// Size of the weights that exceed a device's cache, as a multiple of the cache.
const UNCACHED: u64 = 4;

/// Number of comparisons of weights inside and outside the cache before they count as equally fast.
const MISS_TRIES: usize = 3;

/// Extra seconds per MiB of weights if no difference was measured: too few to change a plan, but more than 0, which
/// means unmeasured.
const NO_LONGER: f64 = 1e-9;

/// Nodes of a chain that two devices share.
const RELAY: u32 = 16;

/// Most nodes of the chain that another device is measured next to.
const LONGEST: f64 = 400.0;

/// Reason that calibration cannot go on: a probe cannot be planned, prepared or run.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// A probe cannot be placed or planned.
    #[error("calibration: {0}")]
    Planning(#[from] PlanningError),
    /// A probe cannot be prepared on a device, or does not run.
    #[error("calibration: {0}")]
    Exec(#[from] ExecError),
}

/// One step of a full calibration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrationStep {
    name: String,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Rates(DeviceId),
    Kernels(DeviceId, Class),
    Link { device: DeviceId, elements: usize, streamed: bool },
    Hop { from: DeviceId, to: DeviceId, elements: usize },
    Reads { from: DeviceId, to: DeviceId, elements: usize },
    Beside(DeviceId, DeviceId),
}

impl fmt::Display for CalibrationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Measures the devices of an inventory by running probes on them.
pub struct Calibrator<'a> {
    inventory: &'a Inventory,
    devices: Vec<MachineDevice>,
    /// Load of the machine during all probes.
    load: Cell<Load>,
}

impl<'a> Calibrator<'a> {
    /// Bytes of memory that the probes need on a device and on the host.
    pub const ROOM: u64 = 256 << 20;

    /// Creates a calibration of these devices. Equal devices are measured once.
    pub fn new(inventory: &'a Inventory) -> Self {
        Self { inventory, devices: machine_devices(inventory), load: Cell::default() }
    }

    /// Returns all steps, the most important first.
    pub fn steps(&self) -> Vec<CalibrationStep> {
        let devices = &self.devices;
        let first_of_key = |at: &usize| devices[..*at].iter().all(|other| other.key != devices[*at].key);
        let distinct: Vec<usize> = (0..devices.len()).filter(first_of_key).filter(|at| self.has_room(*at)).collect();
        let mut steps = Vec::new();
        let mut step = |what: What, name: String| steps.push(CalibrationStep { name, what });
        let id = |at: usize| DeviceId(at as u32);
        for at in &distinct {
            step(What::Rates(id(*at)), format!("peak rates of {}", devices[*at].key));
        }
        for at in distinct.iter().filter(|at| devices[**at].kind != DeviceKind::Cpu) {
            for elements in SIZES {
                let what = What::Link { device: id(*at), elements, streamed: false };
                step(what, format!("{} bytes to and from {}", 4 * elements, devices[*at].key));
            }
            for elements in STREAMED {
                let what = What::Link { device: id(*at), elements, streamed: true };
                step(what, format!("{} bytes in chunks to and from {}", 4 * elements, devices[*at].key));
            }
        }
        for (a, b) in self.pairs() {
            let both = format!("{} and {}", devices[a].key, devices[b].key);
            if devices[a].kind == DeviceKind::Cpu && devices[b].kind == DeviceKind::Cpu {
                for elements in READ {
                    let what = What::Reads { from: id(a), to: id(b), elements };
                    step(what, format!("reads of {} bytes between {both}", 4 * elements));
                }
                for elements in [16, 1 << 18] {
                    let what = What::Hop { from: id(a), to: id(b), elements };
                    step(what, format!("hops of {} bytes between {both}", 4 * elements));
                }
            }
            step(What::Beside(id(a), id(b)), format!("{both} side by side"));
        }
        for (at, class) in distinct.into_iter().flat_map(|at| Class::ALL.map(|class| (at, class))) {
            step(What::Kernels(id(at), class), format!("{class} on {}", devices[at].key));
        }
        steps
    }

    /// Returns the load of the machine during all probes so far. On a busy machine, measured rates are too low.
    pub fn load(&self) -> Load {
        self.load.get()
    }

    /// Whether a step was done with this build's kernels.
    pub fn is_done(&self, step: &CalibrationStep, known: &MachineCosts) -> bool {
        known.calibrated.get(&step.name) == Some(&anabranch_kernels::VERSION)
    }

    /// Does one step and adds its results to `known`.
    ///
    /// Takes less than a second on most devices, and several seconds on a software GPU.
    ///
    /// # Errors
    /// If a probe fails to run: models would fail, too.
    pub fn measure(&self, step: &CalibrationStep, known: &mut MachineCosts) -> Result<(), CalibrationError> {
        match step.what {
            What::Rates(device) => self.learn_rates(device, known)?,
            What::Kernels(device, class) => self.learn_kernels(device, class, Rounds::FULL, known)?,
            What::Link { device, elements, streamed } => {
                // A stream needs a reader on the host, too.
                let there = |node: usize| if node == 0 { device } else { HOST };
                self.record(&self.run(relay(elements, 1 + u32::from(streamed)), &there, streamed)?, known);
            }
            What::Hop { from, to, elements } => {
                self.record(&self.run(relay(elements, RELAY), &alternate(from, to), false)?, known);
            }
            What::Reads { from, to, elements } => self.learn_reads([from, to], elements, known)?,
            What::Beside(first, second) => self.learn_slowdown([first, second], known)?,
        }
        known.calibrated.insert(step.name.clone(), anabranch_kernels::VERSION);
        Ok(())
    }

    /// Runs the kernels of a class in turn, so that other load of the machine affects all kernels equally.
    fn learn_kernels(
        &self,
        device: DeviceId,
        class: Class,
        rounds: Rounds,
        known: &mut MachineCosts,
    ) -> Result<(), CalibrationError> {
        let pool = DevicePool::new(compute_devices(self.inventory, Precision::F32));
        let mut trials = Vec::new();
        for program in class.programs() {
            let program = program.ok_or_else(|| ExecError::memory(&self.devices[device.index()].name))?;
            let cpu = self.devices[device.index()].kind == DeviceKind::Cpu;
            let runs = self.machine().gpu_runs(&program);
            // Nodes without a kernel on the device run on the host.
            let there = |node: usize| if cpu || runs[node] { device } else { HOST };
            trials.push(self.ready(program, &there, false, &pool)?);
        }
        let meter = LoadMeter::start();
        let started = Instant::now();
        for round in 0..rounds.most {
            if round >= rounds.least && started.elapsed() > rounds.enough {
                break;
            }
            for trial in &mut trials {
                trial.run()?;
                if started.elapsed() < rounds.enough {
                    trial.run_again()?;
                }
            }
        }
        self.load.set(self.load.get().plus(meter.stop()));
        trials.iter().for_each(|trial| self.record(trial, known));
        Ok(())
    }

    /// Returns two devices for each pair of keys.
    fn pairs(&self) -> Vec<(usize, usize)> {
        let devices = &self.devices;
        let mut seen = Vec::new();
        let mut pairs = Vec::new();
        for (a, b) in (0..devices.len()).flat_map(|a| (a + 1..devices.len()).map(move |b| (a, b))) {
            let keys = (&devices[a].key, &devices[b].key);
            if !seen.contains(&keys) && self.has_room(a) && self.has_room(b) {
                seen.push(keys);
                pairs.push((a, b));
            }
        }
        pairs
    }

    /// The devices, with nothing known about them.
    fn machine(&self) -> Machine {
        Machine::present(self.inventory, &MachineCosts::default())
    }

    /// Names of the devices that are not measured, because the probes do not fit them or the host.
    pub fn without_room(&self) -> impl Iterator<Item = &str> {
        let devices = self.devices.iter().enumerate();
        devices.filter(|(at, _)| !self.has_room(*at)).map(|(_, device)| &*device.name)
    }

    /// Whether the probes fit. The largest probes need two tensors of 32 MiB with staging on the host, or on CPU
    /// devices 128 MiB of weights and their packed copies.
    fn has_room(&self, index: usize) -> bool {
        let target = &self.devices[index];
        let gpu = self.inventory.gpus.iter().find(|gpu| gpu.name == target.name);
        let bound = gpu.map(|gpu| GpuLimits::of(&gpu.adapter));
        let room = target.memory.or_all().min(self.devices[HOST.index()].memory.or_all());
        room >= Self::ROOM && bound.is_none_or(|limits| limits.binding_bytes >= 64 << 20)
    }

    /// Measures the rates of a device, and the kernels of a CPU device.
    fn learn_quickly(&self, device: DeviceId, known: &mut MachineCosts) -> Result<(), CalibrationError> {
        let target = &self.devices[device.index()];
        // An equal device may have been measured before.
        if known.devices.get(&target.key).is_some_and(|costs| costs.rates.is_some()) {
            return Ok(());
        }
        self.learn_rates(device, known)?;
        let classes = if target.kind == DeviceKind::Cpu { &Class::ALL[..] } else { &[] };
        classes.iter().try_for_each(|class| self.learn_kernels(device, *class, Rounds::QUICK, known))
    }

    /// Measures the rates of a device, and the affine law of its links.
    fn learn_rates(&self, device: DeviceId, known: &mut MachineCosts) -> Result<(), CalibrationError> {
        self.learn_misses(device, known)?;
        let mut trials = Vec::new();
        for probe in Probe::ALL {
            let trial = self.run(probe.program(), &|_| device, false)?;
            self.record(&trial, known);
            trials.push((probe, trial.least_node()));
            match probe {
                Probe::Bandwidth => self.learn_links(&trial, device, known, |large, link| {
                    link.rate = (large.0 / (large.1 - link.latency).max(1e-9)).clamp(1.0, MOST_RATE);
                }),
                Probe::Launch => self.learn_links(&trial, device, known, |small, link| {
                    // The large transfer was measured before: the rate stays.
                    link.latency = small.1;
                }),
                Probe::MatMul | Probe::Conv | Probe::Map => {}
            }
        }
        let seconds = |probe: Probe| trials.iter().find(|(p, _)| *p == probe).map_or(0.0, |(_, seconds)| *seconds);
        known.devices.entry(self.devices[device.index()].key.clone()).or_default().rates = Some(rates(&seconds));
        Ok(())
    }

    /// Measures the extra time of constants that are not in a CPU device's own cache.
    ///
    /// Runs products of a row with weights that the cache holds, then with more weights. This comes first, because
    /// other measurements subtract it. Caches too small to hold useful weights are skipped, as are teams whose caches
    /// together are more than the probe can fill. A busy machine can hide the difference; the probe then runs again. At
    /// last [`NO_LONGER`] is recorded, so that the next session does not measure and plan again.
    fn learn_misses(&self, device: DeviceId, known: &mut MachineCosts) -> Result<(), CalibrationError> {
        let target = &self.devices[device.index()];
        let threads = target.threads.max(1) as u64;
        let Some(matrices) = uncached_matrices(target.cache, threads).filter(|_| target.kind == DeviceKind::Cpu) else {
            return Ok(());
        };
        let products = 2 * matrices;
        let usual = |matrices: u64| {
            let trial = self.run(rows(products, matrices, threads), &|_| device, false)?;
            Ok::<_, CalibrationError>(trial.usual_node(device))
        };
        let longer = positive_of(MISS_TRIES, || Ok::<_, CalibrationError>(usual(matrices)? - usual(1)?))?;
        let seconds = (longer * f64::from(1 << 20) / (ROW_WEIGHTS * threads) as f64).max(NO_LONGER);
        known.devices.entry(target.key.clone()).or_default().misses.add(sample(seconds, false));
        Ok(())
    }

    /// Lets `learn` set the affine law of each link between the device and a CPU from the trial's shortest transfers
    /// (bytes, seconds).
    ///
    /// All CPU devices share one memory, so that the link with the host stands for the links with the other CPUs, too.
    fn learn_links(
        &self,
        trial: &Trial,
        device: DeviceId,
        known: &mut MachineCosts,
        learn: impl Fn((f64, f64), &mut LinkCosts),
    ) {
        let target = &self.devices[device.index()];
        if target.kind == DeviceKind::Cpu {
            return;
        }
        for back in [false, true] {
            let Some(least) = trial.least_transfer(back) else { continue };
            for cpu in self.devices.iter().filter(|other| other.kind == DeviceKind::Cpu) {
                let (from, to) = if back { (target, cpu) } else { (cpu, target) };
                let link = known.links.entry(MachineCosts::link_key(&from.key, &to.key));
                learn(least, link.or_insert_with(|| LinkCosts::affine(0.0, MOST_RATE)));
            }
        }
    }

    /// Measures the extra time of reads from the other CPU device's cache.
    ///
    /// Runs the same chain on each of two CPU devices alone, then alternately on both, so that each node reads data
    /// that the other device has just written.
    fn learn_reads(
        &self,
        pair: [DeviceId; 2],
        elements: usize,
        known: &mut MachineCosts,
    ) -> Result<(), CalibrationError> {
        let [a, b] = pair;
        let own = pair.map(|device| self.run(relay(elements, RELAY), &|_| device, false));
        let turns = self.run(relay(elements, RELAY), &alternate(a, b), false)?;
        for ((from, to), own) in [(b, a), (a, b)].into_iter().zip(own) {
            let longer = turns.usual_node(to) - own?.usual_node(to);
            let [from, to] = [from, to].map(|device| &self.devices[device.index()]);
            let unmeasured = link(known, from, to);
            let link = known.links.entry(MachineCosts::link_key(&from.key, &to.key)).or_insert(unmeasured);
            link.record_read(4 * elements as u64, sample(longer, false));
        }
        Ok(())
    }

    /// Measures the slowdown of two devices by each other.
    ///
    /// Runs the same chain on each device alone, then on both at the same time. The faster device gets a longer chain,
    /// so that the slower one is busy throughout.
    fn learn_slowdown(&self, pair: [DeviceId; 2], known: &mut MachineCosts) -> Result<(), CalibrationError> {
        let mut seconds = [0.0; 2];
        for (device, seconds) in pair.iter().zip(&mut seconds) {
            let trial = self.run(side_by_side([2, 2]), &|_| *device, false)?;
            self.record(&trial, known);
            *seconds = trial.least_node();
        }
        let slower = seconds[0].max(seconds[1]);
        let lengths = seconds.map(|seconds| (4.0 * slower / seconds.max(1e-9)).clamp(4.0, LONGEST) as u32);
        let divided = |node: usize| pair[usize::from(node >= lengths[0] as usize)];
        self.record(&self.run(side_by_side(lengths), &divided, false)?, known);
        Ok(())
    }

    /// Runs a probe with each node on the device that `device_of` names; `streamed` with transfers in chunks.
    fn run(
        &self,
        program: Program,
        device_of: &dyn Fn(usize) -> DeviceId,
        streamed: bool,
    ) -> Result<Trial, CalibrationError> {
        let pool = DevicePool::new(compute_devices(self.inventory, Precision::F32));
        let mut trial = self.ready(program, device_of, streamed, &pool)?;
        let meter = LoadMeter::start();
        let started = Instant::now();
        while trial.runs.len() < RUNS[0] || (trial.runs.len() < RUNS[1] && started.elapsed() < ENOUGH) {
            trial.run()?;
        }
        // The pool's threads still live, so that their waits count.
        self.load.set(self.load.get().plus(meter.stop()));
        Ok(trial)
    }

    /// Plans and prepares a probe.
    fn ready(
        &self,
        program: Program,
        device_of: &dyn Fn(usize) -> DeviceId,
        streamed: bool,
        pool: &Arc<DevicePool>,
    ) -> Result<Trial, CalibrationError> {
        let program = Arc::new(program);
        let machine = self.machine();
        let placing = Placing::new(&program, &machine, &Constraints::default())?;
        let assignment = (0..program.nodes.len()).map(device_of).collect();
        let request = PlacementRequest::fixed(assignment, Order::Pct);
        let placed = placing.place(&request, &machine.memory())?;
        let kernels = Arc::new(Kernels::new(Arc::clone(&program)));
        let streaming = if streamed { StreamMode::Always } else { StreamMode::Off };
        let options = PlanOptions { streaming, ..PlanOptions::default() };
        let plan = Plan::build(
            &program,
            &machine.plan_devices(),
            &placed.placement,
            &placed.schedule,
            Vec::new(),
            kernels.as_ref(),
            &options,
        )
        .map_err(PlanningError::from)?;
        let plan = forecast(&program, plan, &placed.costs, &machine)?;
        let executor = Executor::new(plan, kernels, pool)?;
        // Zeros would be pages that the system has not allocated yet.
        let given = program.inputs.iter().map(|id| program.value(*id));
        let inputs: Option<Vec<_>> = given.map(|value| random_tensor(&value.name, &value.spec, 0)).collect();
        let inputs = inputs.ok_or_else(|| ExecError::memory(pool.devices()[0].name()))?;
        Ok(Trial { program, executor, inputs, runs: Vec::new(), outputs: Vec::new() })
    }

    /// Adds the times of all runs of a trial; the first is cold.
    fn record(&self, trial: &Trial, known: &mut MachineCosts) {
        for (number, run) in trial.runs.iter().enumerate() {
            let profiled = ProfiledRun {
                program: &trial.program,
                plan: trial.executor.plan(),
                run,
                cold: number == 0,
                streams_alone: true,
                devices: &self.devices,
            };
            record(known, profiled);
        }
    }
}

/// Measures every device without known rates, its links with the host, and the extra time of reads between CPU devices.
/// On CPU devices, also runs all kernels a few times: rates alone predict some kernels wrongly by a factor of three.
///
/// Takes about a second per device. A device on which the probes do not fit keeps assumed rates. Returns the load
/// of the machine meanwhile; `None` if nothing was measured.
///
/// # Errors
/// If a probe fails to run: models would fail, too.
pub fn calibrate(inventory: &Inventory, known: &mut MachineCosts) -> Result<Option<Load>, CalibrationError> {
    let bench = Calibrator::new(inventory);
    let unknown = |device: &MachineDevice| known.devices.get(&device.key).is_none_or(|costs| costs.rates.is_none());
    let fresh: Vec<bool> = bench.devices.iter().map(unknown).collect();
    for index in (0..fresh.len()).filter(|index| bench.has_room(*index)) {
        let unmeasured = known.devices.get(&bench.devices[index].key).is_none_or(|costs| costs.misses.is_empty());
        match (fresh[index], unmeasured) {
            (true, _) => bench.learn_quickly(DeviceId(index as u32), known)?,
            // The rates come from a store of an older version.
            (false, true) => bench.learn_misses(DeviceId(index as u32), known)?,
            (false, false) => {}
        }
    }
    let cpu = |at: &usize| bench.devices[*at].kind == DeviceKind::Cpu;
    for pair in bench.pairs().into_iter().map(|(a, b)| [a, b]).filter(|pair| pair.iter().all(cpu)) {
        for elements in READ.into_iter().filter(|_| pair.iter().any(|at| fresh[*at])) {
            bench.learn_reads(pair.map(|at| DeviceId(at as u32)), elements, known)?;
        }
    }
    Ok(Some(bench.load()).filter(|load| load.wall_ms.is_some()))
}

/// Places the nodes of a chain alternately on two devices.
fn alternate(from: DeviceId, to: DeviceId) -> impl Fn(usize) -> DeviceId {
    move |node| if node.is_multiple_of(2) { to } else { from }
}

/// Returns the first positive difference in up to `tries` measurements, or the last difference.
fn positive_of<E>(tries: usize, mut difference: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
    let mut seconds = 0.0;
    for _ in 0..tries {
        seconds = difference()?;
        if seconds > 0.0 {
            break;
        }
    }
    Ok(seconds)
}

/// Number of matrices of [`rows`] that exceed the caches (`cache` bytes each) of this many threads.
///
/// `None` if a cache is too small to hold one matrix, or if the matrices would fill more than half of the memory of
/// calibration (kernels also keep packed copies).
fn uncached_matrices(cache: u64, threads: u64) -> Option<u64> {
    let most = Calibrator::ROOM / 2 / threads;
    let matrices = UNCACHED.saturating_mul(cache).min(most) / ROW_WEIGHTS;
    (cache >= 2 * ROW_WEIGHTS && matrices * ROW_WEIGHTS >= cache.saturating_mul(2)).then_some(matrices)
}

fn rates(seconds: &dyn Fn(Probe) -> f64) -> Rates {
    let launch = seconds(Probe::Launch);
    // Every node's time includes the launch. A probe is long enough that at least a tenth of it is work.
    let rate = |probe: Probe, work: f64| work / (seconds(probe) - launch).max(seconds(probe) * 0.1).max(1e-9);
    let flops = |probe: Probe| probe.program().nodes[0].spec.work().flops;
    Rates {
        matmul_flops: rate(Probe::MatMul, flops(Probe::MatMul)),
        conv_flops: rate(Probe::Conv, flops(Probe::Conv)),
        map_flops: rate(Probe::Map, flops(Probe::Map)),
        bandwidth: rate(Probe::Bandwidth, Probe::Bandwidth.program().nodes[0].spec.work().bytes()),
        launch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_noise_hid_is_measured_again_and_one_that_is_none_is_kept() {
        let after = |differences: [f64; 3]| {
            let mut left = differences.into_iter();
            let measured = positive_of(MISS_TRIES, || left.next().ok_or("one too many")).expect("three are enough");
            (measured, left.count())
        };
        assert_eq!(after([-2.0, 3.0, 5.0]), (3.0, 1));
        assert_eq!(after([-2.0, 0.0, -5.0]), (-5.0, 0));
        let mut costs = MachineCosts::default();
        let misses = &mut costs.devices.entry("cpu".to_owned()).or_default().misses;
        assert!(misses.add(sample(NO_LONGER, false)), "it is not measured in each session");
        assert!(costs.misses("cpu") < 1e-14, "and changes no plan");
    }

    #[test]
    fn uncached_weights_are_more_than_caches_hold_and_fit_the_memory() {
        assert_eq!(uncached_matrices(256 << 10, 1), None, "none would be in cache");
        assert_eq!(uncached_matrices(512 << 10, 1), Some(8));
        assert_eq!(uncached_matrices(2 << 20, 1), Some(32));
        assert_eq!(uncached_matrices(2 << 20, 32), Some(16), "half of the memory, still twice what caches hold");
        assert_eq!(uncached_matrices(2 << 20, 64), None, "no longer");
        assert_eq!(uncached_matrices(u64::MAX, 1), None);
    }
}
