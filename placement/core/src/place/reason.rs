//! Reasons for the device of a task, as data with a one-line text.

use super::Proof;
use crate::graph::{TaskGraph, TaskId};
use crate::platform::{DeviceId, Platform};
use std::fmt;

/// Reason for the device of a task. Lists of candidates are best first and hold at most [`Reason::CANDIDATES`] devices.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The assignment was given.
    Given,
    /// The task, or a task colocated with it, is pinned to the device.
    Pinned,
    /// No other device is feasible.
    OnlyFeasible,
    /// The task follows a member of its colocation group that was placed first.
    ColocatedWith(TaskId),
    /// The task, or all of its colocation group, would finish first there; scores are the finish times.
    EarliestFinish(Vec<ScoreOn>),
    /// The strategy's score is smallest there (list schedulers other than HEFT).
    Smallest {
        /// Name of the score.
        what: &'static str,
        /// Devices with their scores.
        candidates: Vec<ScoreOn>,
    },
    /// The product of the factors is smallest there (MITE; DFS, for which memory and importance are 1).
    Mite(Vec<MiteFactors>),
    /// The device has the least load, before the current unit (CP, off the critical path) or with it (ICP); scores are
    /// times.
    LeastLoaded(Vec<ScoreOn>),
    /// A rule without comparison chose the device; the text names the rule.
    Rule(&'static str),
    /// Another strategy chose the device, and its placement was adopted (auto).
    Of {
        /// The strategy.
        strategy: &'static str,
        /// Reason of that strategy.
        reason: Box<Reason>,
    },
    /// A search moved the task there (auto).
    Moved {
        /// The strategy that the search started from.
        start: &'static str,
        /// Device in the placement of that strategy.
        from: DeviceId,
        /// Makespan of that strategy's placement, and of the placement after the search.
        makespans: [f64; 2],
    },
    /// The exact search found the whole schedule (exact).
    Exact(Proof),
}

/// Score of a device; smaller is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreOn {
    /// The device.
    pub device: DeviceId,
    /// Value that the strategy minimises.
    pub score: f64,
}

/// MITE's factors for one device; smaller is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MiteFactors {
    /// The device.
    pub device: DeviceId,
    /// Share of the device's memory in use (equation 4.14).
    pub memory: f64,
    /// One minus importance times relative speed (equation 4.15).
    pub importance_speed_boost: f64,
    /// Transfers that the choice causes, over the most that any choice would cause (equation 4.11).
    pub traffic: f64,
    /// Time of everything on the device after the choice, over the greatest such time of any choice (equation 4.13).
    pub execution_time: f64,
}

impl MiteFactors {
    /// Returns the product that MITE minimises (equation 4.6).
    pub fn product(&self) -> f64 {
        self.traffic * self.execution_time * self.memory * self.importance_speed_boost
    }
}

impl Reason {
    /// Most candidates that a reason keeps, so that 36 000 tasks on 100 devices stay small.
    pub const CANDIDATES: usize = 8;

    /// The task is on the critical path, or colocated with a task on it, and the device is the path's fastest feasible
    /// one.
    pub(crate) const CRITICAL_PATH: Reason = Reason::Rule("on the critical path");

    /// Wraps the reason as the reason of `strategy`, whose placement another strategy adopts. Reasons that constraints
    /// dictate stay, and so do reasons that already name their strategy.
    pub fn credited(self, strategy: &'static str) -> Self {
        match self {
            Self::Pinned | Self::OnlyFeasible | Self::ColocatedWith(_) => self,
            Self::Of { .. } | Self::Moved { .. } | Self::Exact(_) => self,
            reason => Self::Of { strategy, reason: Box::new(reason) },
        }
    }

    /// Returns the reason for a graph whose tasks have other numbers.
    #[must_use]
    pub fn renumbered(&self, number: impl Fn(TaskId) -> TaskId) -> Self {
        match self {
            Self::ColocatedWith(task) => Self::ColocatedWith(number(*task)),
            reason => reason.clone(),
        }
    }

    /// Returns a display of the reason with the names of tasks and devices instead of their numbers.
    pub fn explained<'a>(&'a self, graph: &'a TaskGraph, platform: &'a Platform) -> Explained<'a> {
        Explained { reason: self, names: Some((graph, platform)), seconds: false }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Explained { reason: self, names: None, seconds: false }.fmt(formatter)
    }
}

/// Display of a [`Reason`] with names.
#[derive(Debug, Clone, Copy)]
pub struct Explained<'a> {
    reason: &'a Reason,
    names: Option<(&'a TaskGraph, &'a Platform)>,
    /// Whether times are in seconds.
    seconds: bool,
}

impl Explained<'_> {
    /// Shows times in milliseconds, for a problem in seconds (default: times without a unit).
    #[must_use]
    pub fn in_seconds(self) -> Self {
        Explained { seconds: true, ..self }
    }

    fn time(&self, time: f64) -> String {
        // Adding 0.0 turns a negative zero from rounding into zero.
        if self.seconds { format!("{:.4} ms", (time * 1e7).round() / 1e4 + 0.0) } else { format!("{time:.4e}") }
    }

    fn device(&self, device: DeviceId) -> String {
        match self.names {
            Some((_, platform)) if platform.contains(device) => platform.device(device).name.clone(),
            _ => device.to_string(),
        }
    }

    fn task(&self, task: TaskId) -> String {
        match self.names {
            Some((graph, _)) if task.index() < graph.task_count() => graph.task(task).name.clone(),
            _ => task.to_string(),
        }
    }

    fn list<T>(&self, candidates: &[T], show: impl Fn(&T) -> String) -> String {
        let listed: Vec<String> = candidates.iter().map(show).collect();
        listed.join(", ")
    }
}

impl fmt::Display for Explained<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let score = |on: &ScoreOn| format!("{} {}", self.device(on.device), self.time(on.score));
        let scores = |candidates: &[ScoreOn]| self.list(candidates, score);
        match self.reason {
            Reason::Given => formatter.write_str("given"),
            Reason::Pinned => formatter.write_str("pinned"),
            Reason::OnlyFeasible => formatter.write_str("only feasible device"),
            Reason::ColocatedWith(task) => write!(formatter, "colocated with {}", self.task(*task)),
            Reason::EarliestFinish(candidates) => write!(formatter, "earliest finish: {}", scores(candidates)),
            Reason::LeastLoaded(candidates) => write!(formatter, "least loaded: {}", scores(candidates)),
            Reason::Smallest { what, candidates } => write!(formatter, "smallest {what}: {}", scores(candidates)),
            Reason::Mite(candidates) => {
                let show = |on: &MiteFactors| {
                    format!(
                        "{} {:.3e} (memory {:.3e}, importance {:.3e}, traffic {:.3e}, execution {:.3e})",
                        self.device(on.device),
                        on.product(),
                        on.memory,
                        on.importance_speed_boost,
                        on.traffic,
                        on.execution_time
                    )
                };
                write!(formatter, "smallest product: {}", self.list(candidates, show))
            }
            Reason::Rule(rule) => formatter.write_str(rule),
            Reason::Of { strategy, reason } => {
                let own = Explained { reason, ..*self };
                write!(formatter, "as {strategy} had it: {own}")
            }
            Reason::Moved { start, from, makespans: [before, after] } => {
                let (device, before, after) = (self.device(*from), self.time(*before), self.time(*after));
                write!(
                    formatter,
                    "moved by the search from {device}, where {start} had it: makespan {before} → {after}"
                )
            }
            Reason::Exact(proof) => {
                let (time, least) = (self.time(proof.makespan), self.time(proof.bound));
                let gap = 100.0 * (proof.makespan / proof.bound - 1.0);
                match proof.nodes {
                    _ if proof.is_optimal() => write!(formatter, "in an optimal schedule: {time}"),
                    Some(nodes) => write!(
                        formatter,
                        "in the best of {nodes} partial schedules: {time}; no schedule is shorter than {least} \
                         (gap {gap:.1} %)"
                    ),
                    None => write!(
                        formatter,
                        "too large for the exact search, so as auto had it: {time}; no schedule is shorter than \
                         {least} (gap {gap:.1} %)"
                    ),
                }
            }
        }
    }
}

/// Best candidates so far, best first, at most [`Reason::CANDIDATES`] of them.
#[derive(Debug, Clone)]
pub(crate) struct Best<T> {
    kept: [Option<T>; Reason::CANDIDATES],
    count: usize,
}

impl<T: Copy> Best<T> {
    pub(crate) fn new() -> Self {
        Best { kept: [None; Reason::CANDIDATES], count: 0 }
    }

    /// Keeps `candidate` if fewer than the limit are `better`; of equal candidates the earlier one comes first.
    pub(crate) fn offer(&mut self, candidate: T, better: impl Fn(&T, &T) -> bool) {
        let mut place = self.count;
        while let Some(before) = place.checked_sub(1)
            && self.kept[before].as_ref().is_some_and(|kept| better(&candidate, kept))
        {
            let moved = self.kept[before];
            if let Some(after) = self.kept.get_mut(place) {
                *after = moved;
            }
            place = before;
        }
        if let Some(kept) = self.kept.get_mut(place) {
            *kept = Some(candidate);
            self.count = (self.count + 1).min(Reason::CANDIDATES);
        }
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.kept[0].as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.kept.iter().flatten()
    }

    pub(crate) fn into_list<U>(self, make: impl FnMut(T) -> U) -> Vec<U> {
        let mut list = Vec::with_capacity(self.count);
        list.extend(self.kept.into_iter().flatten().map(make));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind};

    #[test]
    fn the_best_candidates_are_kept_in_order_and_the_first_of_equals_leads() {
        let mut best = Best::new();
        for (place, value) in [5, 3, 9, 3, 1, 7, 8, 6, 4, 2, 1].into_iter().enumerate() {
            best.offer((value, place), |one, other| one.0 < other.0);
        }
        assert_eq!(best.into_list(|kept| kept), [(1, 4), (1, 10), (2, 9), (3, 1), (3, 3), (4, 8), (5, 0), (6, 7)]);
    }

    #[test]
    fn reasons_show_numbers_or_names() {
        let mut builder = GraphBuilder::new();
        builder.task(Task::new("conv"));
        let graph = builder.build().unwrap();
        let platform = Platform::uniform(vec![Device::new("cpu0", DeviceKind::Cpu)], 0.0, 1.0).unwrap();
        let reason = Reason::EarliestFinish(vec![ScoreOn { device: DeviceId(0), score: 1.5 }]);
        assert_eq!(reason.to_string(), "earliest finish: device 0 1.5000e0");
        assert_eq!(reason.explained(&graph, &platform).to_string(), "earliest finish: cpu0 1.5000e0");
        let milliseconds = reason.explained(&graph, &platform).in_seconds().to_string();
        assert_eq!(milliseconds, "earliest finish: cpu0 1500.0000 ms");
        let nothing = Reason::LeastLoaded(vec![ScoreOn { device: DeviceId(0), score: -1e-9 }]);
        assert_eq!(nothing.explained(&graph, &platform).in_seconds().to_string(), "least loaded: cpu0 0.0000 ms");
        assert_eq!(Reason::ColocatedWith(TaskId(0)).explained(&graph, &platform).to_string(), "colocated with conv");
        let credited = reason.credited("heft");
        assert_eq!(credited.to_string(), "as heft had it: earliest finish: device 0 1.5000e0");
        assert_eq!(credited.clone().credited("mite"), credited);
        assert_eq!(Reason::Pinned.credited("heft"), Reason::Pinned);
        let moved = Reason::Moved { start: "heft", from: DeviceId(0), makespans: [2.0, 1.0] };
        let text = "moved by the search from cpu0, where heft had it: makespan 2000.0000 ms → 1000.0000 ms";
        assert_eq!(moved.explained(&graph, &platform).in_seconds().to_string(), text);
    }
}
