//! Search: depth first, the most promising child first.

use super::ExactOptions;
use super::partial_bound::PartialBound;
use super::state::State;
use super::twins::first_twins;
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Span;
use anabranch_base::interruption;
use std::time::Instant;

/// Least relative improvement of a schedule that the search looks for.
const PRECISION: f64 = 1e-12;
/// Nodes between two looks at the clock and for an interruption.
const PAUSE: u64 = 256;

/// Reason why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing is left to search.
    Complete,
    /// The allowed nodes are used up.
    Nodes,
    /// The allowed time is used up.
    Time,
    /// The caller wants no result any more.
    Interrupted,
}

pub(super) struct Search<'p> {
    problem: &'p Problem<'p>,
    state: State<'p>,
    bound: PartialBound<'p>,
    firsts: Vec<DeviceId>,
    best: Option<Vec<Span>>,
    makespan: f64,
    nodes: u64,
    allowed: ExactOptions,
    end: End,
    /// Least bound of the nodes that were left open.
    open: f64,
}

/// One child of a node.
#[derive(Debug, Clone, Copy)]
struct Append {
    bound: f64,
    start: f64,
    task: TaskId,
    device: DeviceId,
}

impl<'p> Search<'p> {
    pub(super) fn new(problem: &'p Problem<'p>, allowed: ExactOptions) -> Self {
        Search {
            problem,
            state: State::new(problem),
            bound: PartialBound::new(problem),
            firsts: first_twins(problem),
            best: None,
            makespan: f64::INFINITY,
            nodes: 0,
            allowed,
            end: End::Complete,
            open: f64::INFINITY,
        }
    }

    /// Keeps the schedule of these appends, if it is valid and the best so far.
    pub(super) fn offer(&mut self, sequence: &[(TaskId, DeviceId)]) {
        let mut appended = 0;
        for &(task, device) in sequence {
            if !self.state.is_ready(task) || !self.state.admits(self.problem.graph().unit(task), device) {
                break;
            }
            self.state.append(task, device, self.state.start(task, device));
            appended += 1;
        }
        if self.state.is_complete() {
            self.keep();
        }
        (0..appended).for_each(|_| self.state.take_back());
    }

    /// Searches until no better schedule can exist, or until the allowed nodes are used up.
    pub(super) fn run(&mut self) {
        let bound = self.bound.bound(&self.state);
        if bound < self.limit() {
            self.visit(bound);
        }
    }

    /// Returns the reason why the search ended.
    pub(super) fn end(&self) -> End {
        self.end
    }

    /// Returns a lower bound of all schedules that the search did not refute; infinite if it refuted all.
    pub(super) fn open_bound(&self) -> f64 {
        self.open
    }

    pub(super) fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Returns the spans of the best schedule.
    pub(super) fn into_best(self) -> Option<Vec<Span>> {
        self.best
    }

    /// Returns the makespan at or above which a bound prunes a node.
    fn limit(&self) -> f64 {
        self.makespan * (1.0 - PRECISION)
    }

    /// Whether the search has to end; looks at the clock from time to time.
    fn is_over(&mut self) -> bool {
        if self.end == End::Complete {
            let pause = self.nodes.is_multiple_of(PAUSE);
            if self.nodes >= self.allowed.nodes {
                self.end = End::Nodes;
            } else if pause && self.allowed.until.is_some_and(|until| Instant::now() >= until) {
                self.end = End::Time;
            } else if pause && interruption::is_due() {
                self.end = End::Interrupted;
            }
        }
        self.end != End::Complete
    }

    /// Searches below the current node, whose bound is `bound`.
    fn visit(&mut self, bound: f64) {
        if self.state.is_complete() {
            return self.keep();
        }
        if self.is_over() {
            self.open = self.open.min(bound);
            return;
        }
        self.nodes += 1;
        for child in self.children() {
            // The limit may have decreased since the children were listed.
            if child.bound >= self.limit() {
                return;
            }
            if self.end != End::Complete {
                self.open = self.open.min(child.bound.max(bound));
                return;
            }
            self.state.append(child.task, child.device, child.start);
            let bound = self.bound.bound(&self.state).max(child.bound);
            if bound < self.limit() {
                self.visit(bound);
            }
            self.state.take_back();
        }
    }

    fn keep(&mut self) {
        if let Some(spans) = self.state.spans() {
            let makespan = spans.iter().map(|span| span.end).fold(0.0, f64::max);
            if self.best.is_none() || makespan < self.makespan {
                (self.makespan, self.best) = (makespan, Some(spans));
            }
        }
    }

    /// Returns the appends to try from here, the least bound first.
    fn children(&self) -> Vec<Append> {
        let graph = self.problem.graph();
        let mut children = Vec::new();
        for task in graph.task_ids().filter(|&task| self.state.is_ready(task)) {
            for device in self.problem.platform().device_ids() {
                if !self.state.admits(graph.unit(task), device) || self.has_unused_twin(device) {
                    continue;
                }
                let start = self.state.start(task, device);
                if self.is_in_order(task, device, start) {
                    let bound = start + self.problem.time(task, device) + self.bound.tail(task, device);
                    children.push(Append { bound, start, task, device });
                }
            }
        }
        children.sort_by(|one, other| {
            one.bound
                .total_cmp(&other.bound)
                .then(one.start.total_cmp(&other.start))
                .then((one.task, one.device).cmp(&(other.task, other.device)))
        });
        children
    }

    /// Whether `device` is unused and an earlier twin is unused too.
    fn has_unused_twin(&self, device: DeviceId) -> bool {
        let first = self.firsts[device.index()];
        let unused = |device: u32| self.state.device(DeviceId(device)).tasks == 0;
        unused(device.0) && (first.0..device.0).any(|other| self.firsts[other as usize] == first && unused(other))
    }

    /// Whether this append may come after the last one: not earlier in time, and in the order of ids if the two could
    /// be exchanged.
    fn is_in_order(&self, task: TaskId, device: DeviceId, start: f64) -> bool {
        let Some((last, span)) = self.state.last() else { return true };
        let exchangeable =
            start == span.start && device != span.device && !self.problem.graph().successors(last).contains(&task);
        start >= span.start && !(exchangeable && task < last)
    }
}
