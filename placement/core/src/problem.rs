//! Placement problem: a graph, a platform, costs and a memory rule. Each unit is verified to have a feasible device.

mod error;

pub use error::ProblemError;

use crate::cost::{CostError, CostModel, TimeTable};
use crate::device_sets::DeviceSets;
use crate::graph::{TaskGraph, TaskId, UnitId};
use crate::platform::{DeviceId, DeviceKind, Platform};
use crate::rules::{LinkContention, Rules};
use serde::{Deserialize, Serialize};

/// Rule that decides which bytes count against a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemoryRule {
    /// The resident memory, outputs and inputs of each task (`size_est` of Laich 2017, Table 2.2).
    SizeEstimate,
    /// Only the resident memory of each task; buffers are planned elsewhere.
    #[default]
    Resident,
    /// Nothing.
    Ignore,
}

/// Verified problem, with the figures that strategies share.
///
/// A device is *feasible* for an assignment unit under three conditions: the unit's kinds and pin admit it, every
/// member can run on it, and the unit alone fits into its memory. If a unit has no feasible device, [`Problem::new`]
/// rejects the problem before anything is placed. Takes `O(tasks × devices)` time and memory.
/// ```
/// use anabranch_placement::cost::CostTable;
/// use anabranch_placement::graph::{GraphBuilder, Task};
/// use anabranch_placement::platform::{Device, DeviceId, DeviceKind, Platform};
/// use anabranch_placement::problem::{MemoryRule, Problem};
///
/// let mut builder = GraphBuilder::new();
/// let task = builder.task(Task::new("top_k"));
/// let graph = builder.build()?;
/// let devices = vec![Device::new("cpu0", DeviceKind::Cpu), Device::new("gpu0", DeviceKind::Gpu)];
/// let platform = Platform::uniform(devices, 10e-6, 10e9)?;
/// // Seconds of the task on each device; it has no kernel for the GPU.
/// let costs = CostTable::from_fn(&graph, &platform, |_, device| [Some(1e-4), None][device.index()])?;
/// let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Resident)?;
/// assert_eq!(problem.only_feasible(graph.unit(task)), Some(DeviceId(0)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Problem<'a> {
    graph: &'a TaskGraph,
    platform: &'a Platform,
    costs: &'a dyn CostModel,
    memory_rule: MemoryRule,
    rules: Rules,
    times: TimeTable,
    /// Mean time of each task, see [`Problem::work`].
    work: Vec<f64>,
    is_restricted: bool,
    demand: Vec<u64>,
    feasible: DeviceSets,
    /// Mean time of each task, see [`Problem::mean_time`].
    mean_times: Vec<f64>,
    mean_latency: f64,
    mean_time_a_byte: f64,
}

impl<'a> Problem<'a> {
    /// Verifies the costs and finds the feasible devices of every unit.
    ///
    /// # Errors
    /// Returns an error for a time that is negative, infinite or not a number, and for times with such a sum. Also
    /// returns an error for a pin to an unknown device, and for a unit without a feasible device.
    pub fn new(
        graph: &'a TaskGraph,
        platform: &'a Platform,
        costs: &'a dyn CostModel,
        memory_rule: MemoryRule,
    ) -> Result<Self, ProblemError> {
        let (tasks, devices) = (graph.task_count(), platform.device_count());
        let times = TimeTable::from_fn(tasks, devices, |task, device| costs.task_time(task, device))
            .map_err(|error| ProblemError::time(graph, platform, &error))?;
        let nominal = Nominal::of(graph, platform, costs)?;
        let largest = graph.datum_ids().map(|datum| graph.bytes(datum)).max().unwrap_or(0);
        let empty = Transfers::of(platform, costs, 0)?;
        let full = Transfers::of(platform, costs, largest)?;
        refuse_overflow(graph, platform, &times, empty.longest.max(full.longest))?;
        let demand = graph.unit_ids().map(|unit| demand(graph, memory_rule, unit)).collect();
        let mut problem = Problem {
            graph,
            platform,
            costs,
            memory_rule,
            rules: Rules::default(),
            times,
            work: nominal.means,
            is_restricted: false,
            demand,
            feasible: DeviceSets::empty(graph.unit_count(), platform.device_count()),
            mean_times: Vec::new(),
            mean_latency: empty.mean,
            mean_time_a_byte: if largest == 0 { 0.0 } else { (full.mean - empty.mean).max(0.0) / largest as f64 },
        };
        problem.find_feasible()?;
        problem.is_restricted = problem.excludes_any(&nominal.known);
        let mean_time = |task| mean(problem.feasible(graph.unit(task)).map(|device| problem.time(task, device)));
        problem.mean_times = graph.task_ids().map(mean_time).collect();
        Ok(problem)
    }

    /// Sets the rules (default: [`Rules::default`]).
    ///
    /// # Errors
    /// Returns an error for invalid send costs, delays or slowdowns, or if delays or slowdowns are for another number
    /// of devices.
    pub fn under(self, rules: Rules) -> Result<Self, ProblemError> {
        let devices = self.platform.device_count();
        if rules.send_costs.is_valid() && rules.delays.is_valid(devices) && rules.slowdowns.is_valid(devices) {
            Ok(Problem { rules, ..self })
        } else {
            Err(ProblemError::rules(&rules))
        }
    }

    fn find_feasible(&mut self) -> Result<(), ProblemError> {
        for unit in self.graph.unit_ids() {
            let mut any = false;
            for device in self.platform.device_ids() {
                if self.admits(unit, device) && self.can_run(unit, device) && self.fits_alone(unit, device) {
                    self.feasible.insert(unit.index(), device);
                    any = true;
                }
            }
            if !any {
                return Err(ProblemError::of_unit(self, unit));
            }
        }
        Ok(())
    }

    /// Whether some task has fewer feasible devices than devices with a known time, whose number is `known`.
    fn excludes_any(&self, known: &[usize]) -> bool {
        self.graph.task_ids().any(|task| self.feasible(self.graph.unit(task)).count() < known[task.index()])
    }

    /// Returns the graph to be placed.
    pub fn graph(&self) -> &'a TaskGraph {
        self.graph
    }

    /// Returns the devices to place it on.
    pub fn platform(&self) -> &'a Platform {
        self.platform
    }

    /// Returns the cost model.
    pub fn costs(&self) -> &'a dyn CostModel {
        self.costs
    }

    /// Returns the rules for sends, links and slowdowns.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the memory rule.
    pub fn memory_rule(&self) -> MemoryRule {
        self.memory_rule
    }

    /// Returns the time of `task` on `device`; infinite if it cannot run there. `O(1)`.
    pub fn time(&self, task: TaskId, device: DeviceId) -> f64 {
        self.times.row(task)[device.index()]
    }

    /// Returns the time of all members of `unit` on `device`, one after the other.
    pub fn unit_time(&self, unit: UnitId, device: DeviceId) -> f64 {
        self.graph.members(unit).iter().map(|&task| self.time(task, device)).sum()
    }

    /// Returns the mean time of `task` over its feasible devices: the weight of a task in list scheduling. `O(1)`.
    pub fn mean_time(&self, task: TaskId) -> f64 {
        self.mean_times[task.index()]
    }

    /// Whether constraints or memory exclude some task from a device on which its time is known.
    pub fn is_restricted(&self) -> bool {
        self.is_restricted
    }

    /// Returns the mean time of `task` over all devices that could run it, without regard to its constraints. `O(1)`.
    ///
    /// If time is operations over speed, this is the task's operations times a constant of the platform. It replaces
    /// the number of operations in algorithms that compare operations, and is also defined if only times are known.
    pub fn work(&self, task: TaskId) -> f64 {
        self.work[task.index()]
    }

    /// Returns the time to move `bytes` from one device to another; 0 from a device to itself.
    pub fn transfer_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64 {
        if from == to { 0.0 } else { self.costs.transfer_time(bytes, from, to) }
    }

    /// Whether transfers from one device to another wait until their link is free.
    pub(crate) fn is_serial(&self, from: DeviceId, to: DeviceId) -> bool {
        let is_cpu = |device| self.platform.device(device).kind == DeviceKind::Cpu;
        match self.rules.contention {
            LinkContention::None => false,
            LinkContention::Serial => true,
            LinkContention::SerialCopies => !(is_cpu(from) && is_cpu(to)),
        }
    }

    /// Returns the mean time to move `bytes` over the pairs of different devices; 0 on a platform of one device.
    ///
    /// The mean is affine in `bytes`, through the means for no bytes and for the graph's largest datum. It is exact if
    /// every link has a latency and a rate, and an estimate for other models.
    pub fn mean_transfer_time(&self, bytes: u64) -> f64 {
        self.mean_latency + self.mean_time_a_byte * bytes as f64
    }

    /// Returns the bytes that `unit` takes on its device under the memory rule; saturates at `u64::MAX`.
    pub fn demand(&self, unit: UnitId) -> u64 {
        self.demand[unit.index()]
    }

    /// Whether `device` is feasible for `unit`.
    pub fn is_feasible(&self, unit: UnitId, device: DeviceId) -> bool {
        self.feasible.contains(unit.index(), device)
    }

    /// Returns the feasible devices of `unit`, ascending; never empty.
    pub fn feasible(&self, unit: UnitId) -> impl Iterator<Item = DeviceId> + Clone + '_ {
        self.feasible.iter(unit.index())
    }

    /// Returns the device of `unit` if only one is feasible.
    pub fn only_feasible(&self, unit: UnitId) -> Option<DeviceId> {
        self.feasible.only(unit.index())
    }

    fn admits(&self, unit: UnitId, device: DeviceId) -> bool {
        let kind = self.platform.device(device).kind;
        self.graph.unit_allowed(unit).contains(kind) && self.graph.unit_pinned(unit).is_none_or(|pin| pin == device)
    }

    fn can_run(&self, unit: UnitId, device: DeviceId) -> bool {
        self.graph.members(unit).iter().all(|&task| self.time(task, device).is_finite())
    }

    fn fits_alone(&self, unit: UnitId, device: DeviceId) -> bool {
        self.platform.device(device).memory.is_none_or(|memory| self.demand(unit) <= memory)
    }
}

/// Known times of the tasks, without regard to constraints.
struct Nominal {
    /// Mean time of each task over the devices with a known time.
    means: Vec<f64>,
    /// Number of devices with a known time, for each task.
    known: Vec<usize>,
}

impl Nominal {
    fn of(graph: &TaskGraph, platform: &Platform, costs: &dyn CostModel) -> Result<Self, ProblemError> {
        let mut nominal = Nominal { means: Vec::new(), known: Vec::new() };
        let mut times = Vec::with_capacity(platform.device_count());
        for task in graph.task_ids() {
            times.clear();
            for device in platform.device_ids() {
                let Some(time) = costs.nominal_time(task, device) else { continue };
                if !(time >= 0.0 && time.is_finite()) {
                    return Err(ProblemError::time(graph, platform, &CostError { task, device, time }));
                }
                times.push(time);
            }
            nominal.means.push(mean(times.iter().copied()));
            nominal.known.push(times.len());
        }
        Ok(nominal)
    }
}

/// Times to move a number of bytes, over the ordered pairs of different devices; 0 if there are none.
struct Transfers {
    mean: f64,
    longest: f64,
}

impl Transfers {
    /// Queries the cost model for every pair, and verifies its answers.
    fn of(platform: &Platform, costs: &dyn CostModel, bytes: u64) -> Result<Self, ProblemError> {
        let (mut sum, mut longest, mut pairs) = (0.0, 0.0f64, 0u64);
        for from in platform.device_ids() {
            for to in platform.device_ids().filter(|&to| to != from) {
                let time = costs.transfer_time(bytes, from, to);
                if !(time >= 0.0 && time.is_finite()) {
                    return Err(ProblemError::transfer(platform, from, to, bytes, time));
                }
                sum += time;
                longest = longest.max(time);
                pairs += 1;
            }
        }
        Ok(Transfers { mean: if pairs == 0 { 0.0 } else { sum / pairs as f64 }, longest })
    }
}

/// Rejects times whose sum overflows, so that no strategy has to compare infinities.
fn refuse_overflow(
    graph: &TaskGraph,
    platform: &Platform,
    times: &TimeTable,
    longest_transfer: f64,
) -> Result<(), ProblemError> {
    let finite = |row: &[f64]| row.iter().copied().filter(|time| time.is_finite()).sum::<f64>();
    let tasks: f64 = graph.task_ids().map(|task| finite(times.row(task))).sum();
    let pairs = (platform.device_count() * platform.device_count()).max(graph.edge_count()) as f64;
    if (tasks + pairs * longest_transfer).is_finite() { Ok(()) } else { Err(ProblemError::overflow()) }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

fn demand(graph: &TaskGraph, rule: MemoryRule, unit: UnitId) -> u64 {
    let of_task = |task: TaskId| match rule {
        MemoryRule::Ignore => 0,
        MemoryRule::Resident => graph.task(task).memory,
        MemoryRule::SizeEstimate => graph
            .outputs(task)
            .iter()
            .chain(graph.inputs(task))
            .fold(graph.task(task).memory, |sum, &datum| sum.saturating_add(graph.bytes(datum))),
    };
    graph.members(unit).iter().fold(0, |sum: u64, &task| sum.saturating_add(of_task(task)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{CostTable, OperationsOverSpeed};
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind, DeviceKinds};

    fn platform(devices: usize) -> Platform {
        let kind = |id| {
            if id % 2 == 0 { DeviceKind::Cpu } else { DeviceKind::Gpu }
        };
        let devices = (0..devices).map(|id| Device::new(format!("d{id}"), kind(id)).with_memory(100)).collect();
        Platform::uniform(devices, 1.0, 10.0).unwrap()
    }

    #[test]
    fn feasible_devices_meet_kinds_pins_costs_and_memory() {
        let mut builder = GraphBuilder::new();
        let gpu = builder.task(Task::new("gpu").with_allowed(DeviceKinds::GPU));
        let pinned = builder.task(Task::new("pinned").with_pin(DeviceId(2)));
        let lame = builder.task(Task::new("lame"));
        let graph = builder.build().unwrap();
        let platform = platform(130);
        let costs =
            CostTable::from_fn(&graph, &platform, |task, device| (task != lame || device.0 >= 128).then_some(1.0));
        let costs = costs.unwrap();
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Resident).unwrap();
        let feasible = |task| problem.feasible(graph.unit(task)).map(|device| device.0).collect::<Vec<_>>();
        assert_eq!(feasible(gpu), (0..65).map(|half| half * 2 + 1).collect::<Vec<_>>());
        assert_eq!(feasible(pinned), [2]);
        assert_eq!(feasible(lame), [128, 129]);
        assert_eq!(problem.only_feasible(graph.unit(pinned)), Some(DeviceId(2)));
        assert_eq!(problem.only_feasible(graph.unit(lame)), None);
        assert_eq!(problem.mean_time(lame), 1.0);
    }

    #[test]
    fn memory_rules_count_what_they_say() {
        let mut builder = GraphBuilder::new();
        let a = builder.task(Task::new("a").with_memory(10));
        let b = builder.task(Task::new("b").with_memory(1));
        builder.edge(a, b, 20);
        builder.datum(a, 5);
        builder.colocate(a, b);
        let graph = builder.build().unwrap();
        let platform = platform(2);
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let demand = |rule| Problem::new(&graph, &platform, &costs, rule).unwrap().demand(UnitId(0));
        assert_eq!(demand(MemoryRule::SizeEstimate), 56);
        assert_eq!(demand(MemoryRule::Resident), 11);
        assert_eq!(demand(MemoryRule::Ignore), 0);
    }

    #[test]
    fn a_unit_without_a_feasible_device_is_refused_with_its_reason() {
        let refusal = |task: Task, runs: bool| {
            let mut builder = GraphBuilder::new();
            builder.task(task);
            let graph = builder.build().unwrap();
            let platform = platform(2);
            let costs = CostTable::from_fn(&graph, &platform, |_, _| runs.then_some(1.0)).unwrap();
            Problem::new(&graph, &platform, &costs, MemoryRule::Resident).err().unwrap().to_string()
        };
        let large = refusal(Task::new("large").with_memory(101).with_allowed(DeviceKinds::GPU), true);
        assert!(["\"large\"", "\"d1\"", "101", "100"].iter().all(|part| large.contains(part)), "{large}");
        let kind = refusal(Task::new("odd").with_allowed(DeviceKinds::TPU), true);
        assert!(kind.contains("\"odd\"") && kind.contains("TPU"), "{kind}");
        let pin = refusal(Task::new("lost").with_pin(DeviceId(9)), true);
        assert!(pin.contains("\"lost\"") && pin.contains("device 9"), "{pin}");
        let pin = refusal(Task::new("torn").with_pin(DeviceId(0)).with_allowed(DeviceKinds::GPU), true);
        assert!(pin.contains("\"torn\"") && pin.contains("\"d0\"") && pin.contains("GPU"), "{pin}");
        let lame = refusal(Task::new("lame"), false);
        assert!(lame.contains("\"lame\""), "{lame}");
    }

    #[test]
    fn times_that_are_no_times_are_refused() {
        struct Broken(f64, f64);
        impl CostModel for Broken {
            fn task_time(&self, _: TaskId, _: DeviceId) -> Option<f64> {
                Some(self.0)
            }
            fn transfer_time(&self, _: u64, _: DeviceId, _: DeviceId) -> f64 {
                self.1
            }
        }
        let mut builder = GraphBuilder::new();
        builder.task(Task::new("a"));
        let graph = builder.build().unwrap();
        let platform = platform(2);
        for bad in [f64::NAN, -1.0, f64::INFINITY] {
            let error = Problem::new(&graph, &platform, &Broken(bad, 0.0), MemoryRule::Ignore).err();
            assert!(error.unwrap().to_string().starts_with("task \"a\" takes"));
            let error = Problem::new(&graph, &platform, &Broken(0.0, bad), MemoryRule::Ignore).err();
            assert!(error.unwrap().to_string().starts_with("moving 0 bytes from \"d0\" to \"d1\" takes"));
        }
    }

    #[test]
    fn times_whose_sum_is_infinite_are_refused() {
        let mut builder = GraphBuilder::new();
        let [a, b, c] = ["a", "b", "c"].map(|name| builder.task(Task::new(name)));
        builder.edge(a, b, u64::MAX);
        builder.edge(b, c, u64::MAX);
        let graph = builder.build().unwrap();
        let huge = |time: f64, rate: f64| {
            let platform = Platform::uniform(platform(2).devices().to_vec(), 0.0, rate).unwrap();
            let costs = CostTable::from_fn(&graph, &platform, |_, _| Some(time)).unwrap();
            Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).err()
        };
        assert_eq!(huge(1e307, 1.0), None);
        assert_eq!(huge(1e308, 1.0), Some(ProblemError::overflow()));
        assert_eq!(huge(1.0, 2e-289), Some(ProblemError::overflow()));
    }

    #[test]
    fn the_mean_transfer_is_exact_for_latencies_and_rates() {
        let mut builder = GraphBuilder::new();
        let a = builder.task(Task::new("a"));
        builder.datum(a, 1000);
        let graph = builder.build().unwrap();
        let devices = (0..3).map(|id| Device::new(format!("d{id}"), DeviceKind::Cpu)).collect();
        let platform = Platform::new(devices, |from, to| (f64::from(from.0), f64::from(1 + to.0))).unwrap();
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
        let sum: f64 = pairs.iter().map(|&(from, to)| platform.transfer_time(60, DeviceId(from), DeviceId(to))).sum();
        assert!((problem.mean_transfer_time(60) - sum / 6.0).abs() < 1e-12);
    }
}
