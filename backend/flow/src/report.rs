//! Report of a run: iterations, workers, messages, and times of nodes.

use serde::Serialize;
use std::time::Duration;

/// Most events that a worker keeps. Further events are counted, but not kept.
pub(super) const MOST_EVENTS: usize = 1 << 20;

/// Report of a flow's run.
#[derive(Clone, Debug, Serialize)]
pub struct FlowReport {
    /// Number of iterations that went through.
    pub iterations: u64,
    /// Time from the start of the first worker to the end of the last.
    #[serde(serialize_with = "seconds", rename = "seconds")]
    pub time: Duration,
    /// Reports of the workers, by number.
    pub workers: Vec<WorkerReport>,
    /// Reports of the nodes, in the order in which they were declared.
    pub nodes: Vec<NodeReport>,
    /// Messages from one machine to another.
    pub traffic: Traffic,
    /// Events of nodes by start; empty unless the run was profiled.
    #[serde(skip)]
    pub events: Vec<FlowEvent>,
    /// Whether events were left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Report of a worker.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct WorkerReport {
    /// Machine of the worker.
    pub machine: u32,
    /// Number of nodes that it ran, counted once per iteration. Feeders may also run in iterations for which the
    /// sources had no more items.
    pub tasks: u64,
    /// Number of these that belonged to another machine.
    pub stolen: u64,
    /// Number of times that it fell asleep for lack of work.
    pub sleeps: u64,
    /// Nanoseconds in functions, if the run was profiled.
    pub busy_ns: u64,
}

/// Report of a node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeReport {
    /// Name of the node.
    pub name: String,
    /// Machine that it belongs to; `None` under central schedulers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<u32>,
    /// Number of operands that it delivered, if the run was profiled.
    pub operands: u64,
    /// Nanoseconds in its function, if the run was profiled.
    pub busy_ns: u64,
}

/// Messages from one machine to another.
///
/// These are operands sent to the machine of their node. They are also tasks with their operands, if the central
/// scheduler of machine 0 hands them out or another machine steals them. Requests for tasks and notices of ends are not
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of the operands in them.
    pub bytes: u64,
}

impl Traffic {
    pub(super) fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    pub(super) fn join(&mut self, other: Self) {
        self.messages = self.messages.saturating_add(other.messages);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Run of a node. Times in nanoseconds since the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FlowEvent {
    /// Number of the node, in the order in which nodes were declared.
    pub node: u32,
    /// Number of the iteration, from 0.
    pub iteration: u64,
    /// Number of the worker that ran it.
    pub worker: u32,
    /// Time at which its function was called.
    pub start: u64,
    /// Time at which it had returned and its operand was delivered.
    pub end: u64,
}

impl FlowReport {
    /// Number of nodes that were run, counted once per iteration.
    pub fn tasks(&self) -> u64 {
        self.workers.iter().map(|worker| worker.tasks).sum()
    }
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
