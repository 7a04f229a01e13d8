//! What a run did: iterations, workers, messages, and what ran when.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Events that a worker keeps at most: a long stream's are counted, but not kept, after that.
pub(super) const MOST_EVENTS: usize = 1 << 20;

/// What a run of a flow did.
#[derive(Clone, Debug, Serialize)]
pub struct FlowReport {
    /// Iterations that went through.
    pub iterations: u64,
    /// From the start of the first worker to the end of the last.
    #[serde(serialize_with = "seconds", rename = "seconds")]
    pub time: Duration,
    /// By worker.
    pub workers: Vec<WorkerReport>,
    /// By node, in the order in which they were declared.
    pub nodes: Vec<NodeReport>,
    /// What went from one machine to another.
    pub traffic: Traffic,
    /// What went over sockets, of a run whose machines are processes ([`Flow::run_among`](super::Flow::run_among)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
    /// What ran when, by start; empty unless it was asked for.
    #[serde(skip)]
    pub events: Vec<FlowEvent>,
    /// Whether more ran than events were kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// What a worker did.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its machine.
    pub machine: u32,
    /// Nodes that it ran, once for each iteration. Feeders may also run in iterations for which the sources had nothing more.
    pub tasks: u64,
    /// Those of them that another machine was to run.
    pub stolen: u64,
    /// Times that it fell asleep for want of work.
    pub sleeps: u64,
    /// Nanoseconds in functions, where the run was profiled.
    pub busy_ns: u64,
}

/// What was seen of a node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// The machine that it was to run on; none under central schedulers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<u32>,
    /// Operands that it delivered, where the run was profiled.
    pub operands: u64,
    /// Nanoseconds in its function, where the run was profiled.
    pub busy_ns: u64,
}

/// What goes from one machine to another: operands to the machine of their node, and tasks with their operands where the central
/// scheduler of machine 0 hands them out or another machine steals them. Requests for tasks and notices of ends are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// How many messages.
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

/// What processes sent one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Operands and tasks with their operands: what [`FlowReport::traffic`] reckons with.
    pub operands: Traffic,
    /// All frames and their bytes, with heads, beginnings and ends of iterations, and what became of tasks.
    pub all: Traffic,
}

/// A node that ran. Times in nanoseconds since the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEvent {
    /// Number of the node, in the order in which nodes were declared.
    pub node: u32,
    /// The iteration, counted from 0.
    pub iteration: u64,
    /// Who ran it.
    pub worker: u32,
    /// When its function was called.
    pub start: u64,
    /// When it returned and its operand was passed on.
    pub end: u64,
}

impl FlowReport {
    /// All nodes that were run, once for each iteration.
    pub fn tasks(&self) -> u64 {
        self.workers.iter().map(|worker| worker.tasks).sum()
    }
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
