//! Simulation of a schedule's blocks with bounded channels, element by element: the proof that they end.
//!
//! A task starts when its processing element is free and all its inputs from memory are available. This may be before
//! the preceding block has ended. In a unit of time a task reads one element from each input, writes one to each
//! output, or both. Its `j`-th output needs `⌈j I/O⌉` inputs. It reads from all inputs at once and writes to all
//! outputs at once, when all have an element or space (blocking after service). Memory can be read once it is full.
//!
//! Tasks communicate through channels only, so the result does not depend on the order in which the simulator processes
//! them (Kahn 1974). Each task has its own clock and runs until a channel stops it. Channels carry the times of their
//! elements and of their free slots. This takes a few nanoseconds per element and no event queue. If nothing can run
//! and a task has not ended, the block deadlocks, and the tasks that wait for each other form a cycle.

use super::{BufferSizes, CanonicalGraph, EdgeId, NodeId, StreamingSchedule};
use std::collections::VecDeque;
use std::fmt;

/// Result of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simulation {
    /// End of each node.
    pub ends: Vec<u64>,
    /// End of the last task.
    pub makespan: u64,
}

/// One step of a cycle of tasks that wait for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The task that waits.
    pub task: String,
    /// The task that it waits for.
    pub on: String,
    /// Reason for the wait.
    pub reason: WaitReason,
}

/// Reason why a task waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// The channel from the other task is empty.
    Empty,
    /// The channel to the other task is full.
    Full {
        /// The channel's edge.
        edge: EdgeId,
        /// Capacity of the channel in elements.
        size: u64,
    },
    /// Memory that the other task fills is not full.
    Memory,
}

impl fmt::Display for Wait {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wait { task, on, reason } = self;
        match reason {
            WaitReason::Empty => write!(formatter, "{task:?} waits for an element of {on:?}"),
            WaitReason::Full { size, .. } => {
                write!(formatter, "{task:?} waits for {on:?} to take one of {size} elements")
            }
            WaitReason::Memory => write!(formatter, "{task:?} waits for {on:?} to fill memory"),
        }
    }
}

/// Reason why a simulation did not reach its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum SimulationError {
    /// Tasks that wait for each other.
    #[error("block {block} deadlocks: {}; give its channels more capacity", joined(cycle))]
    Deadlock {
        block: usize,
        /// Each task waits for the next, the last for the first.
        cycle: Vec<Wait>,
    },
    /// More work than allowed.
    #[error("the tasks take {work} steps, but the limit of the simulation is {limit}")]
    TooLong { work: u64, limit: u64 },
}

fn joined(cycle: &[Wait]) -> String {
    cycle.iter().map(Wait::to_string).collect::<Vec<_>>().join(", ")
}

/// Simulates the blocks of `schedule` with channels of `sizes`, and returns the end of each task.
///
/// A task runs on the processing element with the number of its position in its block. A size of 0 counts as 1. `O(work
/// × degree)` time, and memory for the contents of the channels.
///
/// # Errors
/// Returns a deadlock with its cycle, or an error if the graph's work exceeds `limit` steps.
pub fn simulate_streaming(
    graph: &CanonicalGraph,
    schedule: &StreamingSchedule,
    sizes: &BufferSizes,
    limit: u64,
) -> Result<Simulation, SimulationError> {
    let work = graph.work();
    if work > limit {
        return Err(SimulationError::TooLong { work, limit });
    }
    let mut machine = Machine::new(graph, schedule, sizes);
    machine.run();
    // Later blocks only wait for the first block that is stuck.
    let stuck = graph.task_ids().filter(|task| !machine.ended[task.index()]);
    if let Some(first) = stuck.min_by_key(|&task| schedule.blocks().of(task)) {
        return Err(SimulationError::Deadlock { block: schedule.blocks().of(first), cycle: machine.cycle(first) });
    }
    let makespan = machine.clocks.iter().copied().max().unwrap_or(0);
    Ok(Simulation { ends: machine.clocks, makespan })
}

/// Channel: arrival times of its elements, and times at which its used slots became free.
#[derive(Default)]
struct Channel {
    elements: VecDeque<u64>,
    room: VecDeque<u64>,
    unused: u64,
}

impl Channel {
    /// Returns the time since which one slot is free; `None` if the channel is full.
    fn free_since(&self) -> Option<u64> {
        if self.unused > 0 { Some(0) } else { self.room.front().copied() }
    }
}

struct Machine<'a> {
    graph: &'a CanonicalGraph,
    schedule: &'a StreamingSchedule,
    sizes: &'a BufferSizes,
    channels: Vec<Channel>,
    /// Streaming edges of each task.
    inputs: Vec<Vec<EdgeId>>,
    outputs: Vec<Vec<EdgeId>>,
    clocks: Vec<u64>,
    read: Vec<u64>,
    written: Vec<u64>,
    phase: Vec<Phase>,
    ended: Vec<bool>,
    /// For each node, the number of conditions before its start: inputs from memory, and the task before it on its
    /// element.
    waiting: Vec<usize>,
    /// Next task on the processing element of each task.
    next: Vec<Option<NodeId>>,
    queue: VecDeque<NodeId>,
    queued: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Chooses the next action.
    Ready,
    /// Takes one element from each input.
    Reading,
    /// Gives one element to each output.
    Writing,
}

impl<'a> Machine<'a> {
    fn new(graph: &'a CanonicalGraph, schedule: &'a StreamingSchedule, sizes: &'a BufferSizes) -> Self {
        let count = graph.node_count();
        let channel = |edge| Channel { unused: sizes.of(edge).max(1), ..Channel::default() };
        let streaming = |edges: &[EdgeId]| -> Vec<EdgeId> {
            edges.iter().copied().filter(|&edge| schedule.streams(graph, edge)).collect()
        };
        let inputs: Vec<Vec<EdgeId>> = graph.node_ids().map(|node| streaming(graph.incoming(node))).collect();
        let mut waiting: Vec<usize> =
            graph.node_ids().map(|node| graph.incoming(node).len() - inputs[node.index()].len()).collect();
        let next = successions(graph, schedule);
        next.iter().flatten().for_each(|next| waiting[next.index()] += 1);
        Machine {
            channels: graph.edge_ids().map(channel).collect(),
            inputs,
            outputs: graph.node_ids().map(|node| streaming(graph.outgoing(node))).collect(),
            clocks: vec![0; count],
            read: vec![0; count],
            written: vec![0; count],
            phase: vec![Phase::Ready; count],
            ended: vec![false; count],
            waiting,
            next,
            queue: VecDeque::new(),
            queued: vec![false; count],
            graph,
            schedule,
            sizes,
        }
    }

    fn run(&mut self) {
        for node in self.graph.node_ids().filter(|node| self.waiting[node.index()] == 0).collect::<Vec<_>>() {
            self.start(node);
        }
        while let Some(node) = self.queue.pop_front() {
            self.queued[node.index()] = false;
            if self.waiting[node.index()] == 0 && !self.ended[node.index()] {
                self.advance(node);
            }
        }
    }

    /// Starts a node whose conditions are met: memory is full, a task may run.
    fn start(&mut self, node: NodeId) {
        if self.graph.node(node).is_memory() { self.end(node) } else { self.wake(node) }
    }

    fn wake(&mut self, node: NodeId) {
        if !self.queued[node.index()] {
            self.queued[node.index()] = true;
            self.queue.push_back(node);
        }
    }

    /// Runs a task until a channel stops it or it ends.
    fn advance(&mut self, task: NodeId) {
        let (id, node) = (task.index(), self.graph.node(task));
        let (input, output) = (node.input(), node.output());
        loop {
            if self.phase[id] == Phase::Ready {
                if self.read[id] == input && self.written[id] == output {
                    return self.end(task);
                }
                let needs_input = self.read[id] < needed(self.written[id], input, output);
                self.phase[id] = Phase::Reading;
                if !needs_input {
                    self.clocks[id] += 1;
                    self.phase[id] = Phase::Writing;
                }
            }
            if self.phase[id] == Phase::Reading {
                if !self.take_all(task) {
                    return;
                }
                self.read[id] += 1;
                self.clocks[id] += 1;
                let writes = output > 0 && self.read[id] >= needed(self.written[id], input, output);
                self.phase[id] = if writes { Phase::Writing } else { Phase::Ready };
            }
            if self.phase[id] == Phase::Writing {
                if !self.give_all(task) {
                    return;
                }
                self.written[id] += 1;
                self.phase[id] = Phase::Ready;
            }
        }
    }

    /// Takes an element from each input at once, if all have one.
    fn take_all(&mut self, task: NodeId) -> bool {
        let id = task.index();
        let mut clock = self.clocks[id];
        for edge in &self.inputs[id] {
            match self.channels[edge.index()].elements.front() {
                Some(&came) => clock = clock.max(came),
                None => return false,
            }
        }
        self.clocks[id] = clock;
        for place in 0..self.inputs[id].len() {
            let edge = self.inputs[id][place];
            let channel = &mut self.channels[edge.index()];
            channel.elements.pop_front();
            channel.room.push_back(clock);
            self.wake(self.graph.edge(edge).0);
        }
        true
    }

    /// Gives an element to each output at once, if all have a free slot.
    fn give_all(&mut self, task: NodeId) -> bool {
        let id = task.index();
        let mut clock = self.clocks[id];
        for edge in &self.outputs[id] {
            match self.channels[edge.index()].free_since() {
                Some(since) => clock = clock.max(since),
                None => return false,
            }
        }
        self.clocks[id] = clock;
        for place in 0..self.outputs[id].len() {
            let edge = self.outputs[id][place];
            let channel = &mut self.channels[edge.index()];
            match channel.unused.checked_sub(1) {
                Some(unused) => channel.unused = unused,
                None => _ = channel.room.pop_front(),
            }
            channel.elements.push_back(clock);
            self.wake(self.graph.edge(edge).1);
        }
        true
    }

    /// Ends a node, and starts the nodes for which this was the last condition.
    fn end(&mut self, node: NodeId) {
        self.ended[node.index()] = true;
        let mut behind: Vec<NodeId> = self.next[node.index()].into_iter().collect();
        let held = self.graph.outgoing(node).iter().filter(|&&edge| !self.schedule.streams(self.graph, edge));
        behind.extend(held.map(|&edge| self.graph.edge(edge).1));
        for next in behind {
            self.clocks[next.index()] = self.clocks[next.index()].max(self.clocks[node.index()]);
            self.waiting[next.index()] -= 1;
            if self.waiting[next.index()] == 0 {
                self.start(next);
            }
        }
    }

    /// Returns a cycle of tasks that wait for each other, reached from a task that has not ended.
    fn cycle(&self, task: NodeId) -> Vec<Wait> {
        let mut path: Vec<(NodeId, WaitReason)> = Vec::new();
        let mut task = task;
        loop {
            if let Some(place) = path.iter().position(|&(before, _)| before == task) {
                let name = |node: NodeId| self.graph.node(node).name().to_string();
                let ring = &path[place..];
                let next = ring.iter().skip(1).chain(ring.first()).map(|&(node, _)| name(node));
                let wait = |(&(task, reason), on)| Wait { task: name(task), on, reason };
                return ring.iter().zip(next).map(wait).collect();
            }
            let Some((on, reason)) = self.waits_for(task) else { return Vec::new() };
            path.push((task, reason));
            task = on;
        }
    }

    /// Returns the task that a task waits for, and the reason.
    fn waits_for(&self, task: NodeId) -> Option<(NodeId, WaitReason)> {
        if self.waiting[task.index()] > 0 {
            // In the first block that is stuck, this can only be memory.
            let mut behind = vec![task];
            while let Some(node) = behind.pop() {
                let held = self.graph.incoming(node).iter().filter(|&&edge| !self.schedule.streams(self.graph, edge));
                for before in held.map(|&edge| self.graph.edge(edge).0).filter(|before| !self.ended[before.index()]) {
                    if !self.graph.node(before).is_memory() {
                        return Some((before, WaitReason::Memory));
                    }
                    behind.push(before);
                }
            }
        }
        let edge_of = |edges: &[EdgeId], waits: &dyn Fn(&Channel) -> bool| {
            edges.iter().copied().find(|edge| waits(&self.channels[edge.index()]))
        };
        if self.phase[task.index()] == Phase::Reading {
            let edge = edge_of(&self.inputs[task.index()], &|channel| channel.elements.is_empty())?;
            return Some((self.graph.edge(edge).0, WaitReason::Empty));
        }
        let edge = edge_of(&self.outputs[task.index()], &|channel| channel.free_since().is_none())?;
        Some((self.graph.edge(edge).1, WaitReason::Full { edge, size: self.sizes.of(edge).max(1) }))
    }
}

/// Returns the next task on the processing element of each task: a task's element is its position in its block.
fn successions(graph: &CanonicalGraph, schedule: &StreamingSchedule) -> Vec<Option<NodeId>> {
    let mut next = vec![None; graph.node_count()];
    let mut last: Vec<NodeId> = Vec::new();
    for list in schedule.blocks().lists() {
        for (&before, &task) in last.iter().zip(list) {
            next[before.index()] = Some(task);
        }
        let kept = last.iter().skip(list.len()).copied();
        last = list.iter().copied().chain(kept.collect::<Vec<_>>()).collect();
    }
    next
}

/// Returns the number of inputs before output number `written`, from 0: `⌈(written + 1) I/O⌉`; all inputs for a sink.
fn needed(written: u64, input: u64, output: u64) -> u64 {
    if written >= output {
        return input;
    }
    match (written + 1).checked_mul(input) {
        Some(product) => product.div_ceil(output),
        None => (u128::from(written + 1) * u128::from(input)).div_ceil(u128::from(output)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::streaming::{Blocks, Node};

    fn simulate(nodes: &[Node], edges: &[(u32, u32)], size: Option<u64>) -> Result<Vec<u64>, String> {
        let graph = sample::canonical(nodes, edges);
        let schedule = StreamingSchedule::new(&graph, Blocks::one(&graph));
        let sizes = size
            .map_or_else(|| BufferSizes::new(&graph, &schedule), |size| BufferSizes::uniform(&graph, &schedule, size));
        let result = simulate_streaming(&graph, &schedule, &sizes, 1000);
        result.map(|simulation| simulation.ends).map_err(|error| error.to_string())
    }

    fn task(name: &str, input: u64, output: u64) -> Node {
        Node::task(name, input, output)
    }

    #[test]
    fn figure_8_ends_as_scheduled() {
        let nodes = [Node::source("0", 16), task("1", 16, 4), task("2", 4, 4), task("3", 16, 32), task("4", 32, 8)];
        assert_eq!(simulate(&nodes, &[(0, 1), (1, 2), (0, 3), (3, 4)], None).unwrap()[4], 34);
    }

    #[test]
    fn figure_9_deadlocks_without_room_and_names_the_cycle() {
        let nodes = [Node::source("0", 32), task("1", 32, 4), task("2", 4, 2), task("3", 2, 32), task("4", 32, 32)];
        let edges = [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)];
        assert_eq!(simulate(&nodes, &edges, None).unwrap()[4], 51);
        let message = simulate(&nodes, &edges, Some(1)).unwrap_err();
        assert!(
            message.starts_with(r#"block 0 deadlocks: "0" waits for "4" to take one of 1 elements, "#),
            "{message}"
        );
        assert!(message.contains(r#""4" waits for an element of "3", "3" waits for an element of "2""#), "{message}");
    }

    #[test]
    fn memory_of_the_block_is_waited_for() {
        let nodes = [task("x", 8, 8), task("sum", 8, 1), Node::buffer("mean", 1, 8), task("minus", 8, 8)];
        let edges = [(0, 1), (1, 2), (2, 3), (0, 3)];
        assert_eq!(simulate(&nodes, &edges, None).unwrap(), [8, 9, 9, 17]);
        let message = simulate(&nodes, &edges, Some(2)).unwrap_err();
        let expected =
            r#""x" waits for "minus" to take one of 2 elements, "minus" waits for "sum" to fill memory, "sum""#;
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn rates_that_are_no_whole_numbers_take_the_larger_volume() {
        assert_eq!(simulate(&[task("a", 3, 2)], &[], None).unwrap(), [3]);
        assert_eq!(simulate(&[task("a", 2, 3)], &[], None).unwrap(), [3]);
        assert_eq!(needed(1, 3, 2), 3);
        assert_eq!(needed(u64::MAX / 4, 1 << 40, 1 << 63), 1 << 39);
    }

    #[test]
    fn more_work_than_allowed_is_refused() {
        assert!(simulate(&[task("a", 1001, 1)], &[], None).unwrap_err().contains("take 1001 steps, but"));
    }
}
