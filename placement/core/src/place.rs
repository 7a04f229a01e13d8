//! Placement strategies: they choose a device for every task.

mod assignment;
mod auto;
mod batch;
mod critical_path;
mod dfs;
mod evaluator;
mod exact;
mod factors;
mod fixed;
mod free_memory;
mod frontier;
mod hash;
mod icp;
mod list;
mod list_scheduler;
mod lookahead;
mod max_min;
mod mite;
mod peft;
mod ready_list;
mod ready_queue;
mod reason;
mod single;
mod slowness;
mod sucuri;
mod timeline;

pub use auto::{Auto, Improved};
pub use batch::Batch;
pub use critical_path::CriticalPath;
pub use dfs::Dfs;
pub use exact::{Exact, Proof};
pub use fixed::Fixed;
pub use hash::Hash;
pub use icp::Icp;
pub use list_scheduler::{ListRanks, ListScheduler, variants};
pub use lookahead::Lookahead;
pub use mite::Mite;
pub use peft::Peft;
pub use reason::{Explained, MiteFactors, Reason, ScoreOn};
pub use single::Single;
pub use sucuri::Sucuri;

use crate::graph::TaskId;
use crate::platform::{DeviceId, DeviceKind};
use crate::problem::Problem;
use crate::schedule::Schedule;

/// Placement strategy. Equal problems always get equal placements.
/// # Examples
///
/// A strategy of your own, which puts every unit on its first feasible device. The independent checker judges it:
///
/// ```
/// use anabranch_placement::check::check_placement;
/// use anabranch_placement::cost::CostTable;
/// use anabranch_placement::graph::{GraphBuilder, Task};
/// use anabranch_placement::place::{PlaceError, Placement, Placer, Reason};
/// use anabranch_placement::platform::{Device, DeviceKind, Platform};
/// use anabranch_placement::problem::{MemoryRule, Problem};
///
/// struct First;
///
/// impl Placer for First {
///     fn name(&self) -> &'static str {
///         "first"
///     }
///
///     fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
///         let graph = problem.graph();
///         let first = |task| problem.feasible(graph.unit(task)).next().expect("a problem has no unit without a device");
///         let device_of: Vec<_> = graph.task_ids().map(first).collect();
///         let reasons = vec![Reason::Rule("first feasible device"); device_of.len()];
///         Ok(Placement { strategy: self.name(), device_of, reasons, planned: None })
///     }
/// }
///
/// let mut builder = GraphBuilder::new();
/// let (a, b) = (builder.task(Task::new("a")), builder.task(Task::new("b")));
/// builder.edge(a, b, 1 << 20);
/// let graph = builder.build()?;
/// let devices = vec![Device::new("cpu0", DeviceKind::Cpu), Device::new("gpu0", DeviceKind::Gpu)];
/// let platform = Platform::uniform(devices, 10e-6, 10e9)?;
/// let costs = CostTable::from_fn(&graph, &platform, |_, device| Some(if device.index() == 0 { 5e-3 } else { 2e-4 }))?;
/// let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Resident)?;
///
/// let placement = First.place(&problem)?;
/// assert!(check_placement(&problem, &placement.device_of).is_empty());
/// assert_eq!(placement.device_of[a.index()].index(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Placer: Sync {
    /// Returns the short name of the strategy, as typed on a command line.
    fn name(&self) -> &'static str;

    /// Places every task.
    ///
    /// # Errors
    /// Returns an error if no device has enough free memory for some unit, although each unit alone would fit.
    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError>;
}

/// Device of every task, with the reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Name of the strategy.
    pub strategy: &'static str,
    /// Device of each task, indexed by [`TaskId`].
    pub device_of: Vec<DeviceId>,
    /// Reason for each task's device, indexed by [`TaskId`].
    pub reasons: Vec<Reason>,
    /// Schedule that the strategy planned while it placed, if any. Its [`Schedule::order`] is an order to run in.
    pub planned: Option<Schedule>,
}

impl Placement {
    /// Returns the order of all tasks that the strategy found together with the devices; `None` if it only placed.
    ///
    /// `auto` and `exact` return an order if it gives a shorter schedule than path computation times. Devices must keep
    /// it exactly, as in [`InOrder`](crate::order::InOrder).
    pub fn order_to_keep(&self) -> Option<&[TaskId]> {
        let searched = [AUTO, EXACT].contains(&self.strategy);
        self.planned.as_ref().filter(|_| searched).map(|planned| planned.order.as_slice())
    }

    /// Returns what the exact search proved, for the strategy `exact`; `None` without tasks.
    pub fn proof(&self) -> Option<Proof> {
        match self.reasons.first() {
            Some(&Reason::Exact(proof)) => Some(proof),
            _ => None,
        }
    }

    /// Adds the name of the strategy to all reasons, for a strategy that adopts this placement ([`Reason::credited`]).
    #[must_use]
    pub fn credited(mut self) -> Self {
        self.reasons = self.reasons.into_iter().map(|reason| reason.credited(self.strategy)).collect();
        self
    }
}

/// Reason why a strategy could not place a problem.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum PlaceError {
    /// Every feasible device is too full for some unit.
    #[error(
        "no feasible device has enough free memory for task {task:?} and its colocated tasks: they need {needed} \
         bytes, but {device:?} has the most left, {available} of {memory} bytes; give a device more memory or \
         allow more devices"
    )]
    InsufficientMemory { task: String, device: String, needed: u64, available: u64, memory: u64 },
    /// The number of machines differs from the number of devices.
    #[error("machines are given for {given} devices, but the platform has {devices}; give one machine per device")]
    Machines { given: usize, devices: usize },
    /// No device of the machine that a task is bound to can take it.
    #[error("no device of machine {machine} can run task {task:?}; give the task another machine or no manual rank")]
    Machine {
        task: String,
        /// The task's manual rank, or the machine that the task is bound to in spite of that rank.
        machine: u32,
    },
    /// An exhaustive search found no placement.
    #[error(
        "no placement fits into the devices' memory, which an exhaustive search has proven; give a device more memory \
         or allow more devices"
    )]
    Impossible,
    /// The given assignment breaks a constraint.
    #[error("the given placement does not match the problem: {0}")]
    Violation(crate::check::Violation),
    /// The caller wants no placement any more.
    #[error("placing was interrupted")]
    Interrupted,
}

/// Name of the strategy that tries all others and then searches.
pub const AUTO: &str = "auto";
/// Name of the strategy that searches for a proven optimum.
pub const EXACT: &str = "exact";

/// Names and descriptions of the strategies that place once. [`strategy_by_name`] also knows [`AUTO`] and [`EXACT`],
/// which search.
pub const STRATEGIES: &[(&str, &str)] = &[
    ("heft", "each task where it would finish first, the most urgent task first"),
    ("cpop", "the critical path on one device, the rest where it would finish first"),
    ("peft", "each task where its finish and what must follow from there are soonest over"),
    ("lookahead", "each task where its successors could finish first"),
    ("minmin", "of all ready tasks the one that can finish first, where it does"),
    ("maxmin", "of all ready tasks the one that can finish last, where it finishes first"),
    ("etf", "of all ready tasks the one that can start first, where it does"),
    ("dls", "of all ready tasks and devices the pair of the highest dynamic level"),
    ("sucuri", "each task where its heaviest predecessor is, or near to it"),
    ("mite", "each task where memory, importance, traffic and load together are best"),
    ("cp", "the critical path on the fastest device, the rest where least is to do"),
    ("icp", "the critical path of the remaining tasks on one device, again and again"),
    ("dfs", "depth first, each task where traffic and load together are best"),
    ("batch", "ranges of equally important tasks, the most important on the fastest device"),
    ("hash", "devices in turn"),
    ("cpu", "everything that can run there on the fastest CPU device"),
    ("gpu", "everything that can run there on the fastest GPU device"),
];

/// Returns the names that [`strategy_by_name`] knows.
pub fn strategy_names() -> Vec<&'static str> {
    let listed = STRATEGIES.iter().map(|&(name, _)| name);
    listed.chain([AUTO, EXACT]).collect()
}

/// Returns the strategy called `name`, if there is one: a [listed](strategy_names) strategy, or one of the
/// [`variants`] of list schedulers as `list:PRIORITY:SCORE:GAPS:path:sufferage`.
///
/// Parts of such a name may be left out and have any order: `upward` (default), `cpop` or `topological`; `eft`
/// (default), `est` or `quickest`; `insertion` (default) or `append`.
/// `exact:SECONDS` is `exact` with a time limit.
pub fn strategy_by_name(name: &str) -> Option<Box<dyn Placer>> {
    let named = ListScheduler::NAMED.into_iter().find(|scheduler| scheduler.name() == name);
    if let Some(scheduler) = named.or_else(|| list_scheduler::variant(name).copied()) {
        return Some(Box::new(scheduler));
    }
    match name {
        AUTO => Some(Box::new(Auto::default())),
        EXACT => Some(Box::new(Exact::default())),
        "peft" => Some(Box::new(Peft)),
        "lookahead" => Some(Box::new(Lookahead)),
        "sucuri" => Some(Box::new(Sucuri::default())),
        "mite" => Some(Box::new(Mite)),
        "cp" => Some(Box::new(CriticalPath)),
        "icp" => Some(Box::new(Icp)),
        "dfs" => Some(Box::new(Dfs)),
        "batch" => Some(Box::new(Batch)),
        "hash" => Some(Box::new(Hash)),
        "cpu" => Some(Box::new(Single { kind: DeviceKind::Cpu })),
        "gpu" => Some(Box::new(Single { kind: DeviceKind::Gpu })),
        _ => Exact::by_name(name).map(|exact| Box::new(exact) as Box<dyn Placer>),
    }
}

/// Returns the form of names that begin as this one does, for an error about an unknown name: names of `exact` with a
/// time limit, and of [list schedulers that are put together](variants).
pub fn form_of_name(name: &str) -> Option<&'static str> {
    match name.split_once(':')?.0 {
        EXACT => Some("`exact:SECONDS` takes whole seconds from 1 to 4294967295"),
        "list" => Some(
            "`list:` takes at most one each of upward, cpop and topological; of eft, est and quickest; of insertion and \
             append; then path and sufferage",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_listed_strategy_is_known_by_its_own_name() {
        for name in strategy_names() {
            assert_eq!(strategy_by_name(name).map(|strategy| strategy.name()), Some(name));
        }
        for name in ["none", "exact:", "exact:0", "exact:-1", "exact:x", "heft:3"] {
            assert!(strategy_by_name(name).is_none(), "{name}");
        }
        assert_eq!(Exact::by_name("exact:3").and_then(|exact| exact.time_limit), Some(Duration::from_secs(3)));
    }
}
