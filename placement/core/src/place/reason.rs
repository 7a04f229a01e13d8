//! Why a task is on its device, as data with a one-line text.

use crate::graph::TaskGraph;
use crate::graph::TaskId;
use crate::platform::{DeviceId, Platform};
use std::fmt;

/// Why a task is on its device. Lists of candidates are best first and hold at most [`Reason::CANDIDATES`] devices.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The assignment was given.
    Given,
    /// The task, or one colocated with it, is pinned there.
    Pinned,
    /// No other device is feasible.
    OnlyFeasible,
    /// It follows a member of its colocation group that was placed first.
    ColocatedWith(TaskId),
    /// It, or all of its colocation group, would finish there first; scores are those finishes.
    EarliestFinish(Vec<ScoreOn>),
    /// What the strategy minimises is smallest there (list schedulers other than HEFT); `what` says what that is.
    Smallest {
        /// What is compared.
        what: &'static str,
        /// The devices.
        candidates: Vec<ScoreOn>,
    },
    /// The product of the factors is smallest there (MITE; DFS, for which memory and importance are 1).
    Mite(Vec<MiteFactors>),
    /// The device has the least to do, before the unit in hand (CP, off the critical path) or with it (ICP); scores are times.
    LeastLoaded(Vec<ScoreOn>),
    /// A rule that compares nothing leads there; the text says which.
    Rule(&'static str),
    /// A strategy had it there, whose placement was taken over (auto).
    Of {
        /// The strategy.
        strategy: &'static str,
        /// Its own reason.
        reason: Box<Reason>,
    },
    /// A search moved it there (auto).
    Moved {
        /// The strategy that the search started from.
        start: &'static str,
        /// The device where that strategy had it.
        from: DeviceId,
        /// The makespan of that strategy's placement, and of the one that the search made of it.
        makespans: [f64; 2],
    },
}

/// What a strategy thinks of a device; smaller is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreOn {
    /// The device.
    pub device: DeviceId,
    /// What the strategy minimises.
    pub score: f64,
}

/// MITE's factors for one device; smaller is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MiteFactors {
    /// The device.
    pub device: DeviceId,
    /// Share of its memory in use (equation 4.14).
    pub memory: f64,
    /// One minus importance times relative speed (equation 4.15).
    pub importance_speed_boost: f64,
    /// Transfers that the choice causes, over the most that a choice would (equation 4.11).
    pub traffic: f64,
    /// Time of all that the device would have to do, over the most that a choice would give (equation 4.13).
    pub execution_time: f64,
}

impl MiteFactors {
    /// The product that MITE minimises (equation 4.6).
    pub fn product(&self) -> f64 {
        self.traffic * self.execution_time * self.memory * self.importance_speed_boost
    }
}

impl Reason {
    /// Most candidates that a reason keeps, so that 36 000 tasks on 100 devices stay small.
    pub const CANDIDATES: usize = 8;

    /// That it is on the critical path, or colocated with a task that is, and this is the path's fastest feasible device.
    pub(crate) const CRITICAL_PATH: Reason = Reason::Rule("on the critical path");

    /// This reason as that of a strategy whose placement another takes over. What constraints leave no choice of stays as it is, and so does
    /// what names its strategy already.
    pub fn credited(self, strategy: &'static str) -> Self {
        match self {
            Self::Pinned | Self::OnlyFeasible | Self::ColocatedWith(_) | Self::Of { .. } | Self::Moved { .. } => self,
            reason => Self::Of { strategy, reason: Box::new(reason) },
        }
    }

    /// This reason in a graph whose tasks have other numbers.
    #[must_use]
    pub fn renumbered(&self, number: impl Fn(TaskId) -> TaskId) -> Self {
        match self {
            Self::ColocatedWith(task) => Self::ColocatedWith(number(*task)),
            reason => reason.clone(),
        }
    }

    /// This reason with the names of tasks and devices instead of their numbers.
    pub fn explained<'a>(&'a self, graph: &'a TaskGraph, platform: &'a Platform) -> Explained<'a> {
        Explained { reason: self, names: Some((graph, platform)), seconds: false }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Explained { reason: self, names: None, seconds: false }.fmt(formatter)
    }
}

/// A [`Reason`] that can be shown with names.
#[derive(Debug, Clone, Copy)]
pub struct Explained<'a> {
    reason: &'a Reason,
    names: Option<(&'a TaskGraph, &'a Platform)>,
    /// Whether times are seconds.
    seconds: bool,
}

impl Explained<'_> {
    /// The same of a problem in seconds: times are shown in milliseconds.
    #[must_use]
    pub fn in_seconds(self) -> Self {
        Explained { seconds: true, ..self }
    }

    fn time(&self, time: f64) -> String {
        // What rounds to nothing has no sign.
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
        }
    }
}

/// The best candidates seen so far, best first, at most [`Reason::CANDIDATES`] of them.
#[derive(Debug, Clone)]
pub(crate) struct Best<T> {
    kept: Vec<T>,
}

impl<T> Best<T> {
    pub(crate) fn new() -> Self {
        Best { kept: Vec::with_capacity(Reason::CANDIDATES) }
    }

    /// Keeps `candidate` if fewer than the limit are `better`; of equals the earlier is kept before the later.
    pub(crate) fn offer(&mut self, candidate: T, better: impl Fn(&T, &T) -> bool) {
        let place = self.kept.iter().rposition(|kept| !better(&candidate, kept)).map_or(0, |last| last + 1);
        if place == Reason::CANDIDATES {
            return;
        }
        if self.kept.len() == Reason::CANDIDATES {
            self.kept.pop();
        }
        self.kept.insert(place, candidate);
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.kept.first()
    }

    pub(crate) fn into_list(self) -> Vec<T> {
        self.kept
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
        assert_eq!(best.into_list(), [(1, 4), (1, 10), (2, 9), (3, 1), (3, 3), (4, 8), (5, 0), (6, 7)]);
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
