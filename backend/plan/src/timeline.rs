//! Expected times of nodes if members of a gang run at the same time, and the effect of one more gang.
//!
//! Gangs are formed before there is a plan, so that no forecast of a plan can judge them. Many gangs are tried, and
//! each is judged in the time of its part of the order alone. These times form gangs and pass slots of memory on;
//! planning's forecast predicts the finished plan.
//!
//! A gang changes the order only between the positions of its first and its last member, so that only this part is
//! computed again. The effect on the rest follows from the longest path from each later node to the end, which is found
//! once for all gangs of a round. A gang gains if the longest path through its part of the order is among the longest
//! of all, and becomes shorter.

use super::order;
use super::stream::Gang;
use super::transfer::Transfer;
use super::uses::{origin, output_device};
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::platform::DeviceId;
use anabranch_placement_core::schedule::Schedule;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Most positions between the first and the last member of a gang that is judged by its gain.
const MOST_PLACES: usize = 1 << 11;

/// Paths are equally long if they differ by less than this share of their length.
const EQUAL: f64 = 1e-9;

/// Seconds from the end of a value's node until the value is on another device.
pub(super) struct Lags(BTreeMap<(ValueId, DeviceId), f64>);

impl Lags {
    /// Collects the lags of these transfers, which the schedule has simulated in the same order.
    pub(super) fn of(transfers: &[Transfer], schedule: &Schedule) -> Self {
        let known = transfers.iter().zip(&schedule.transfers);
        let known = known.filter(|(transfer, span)| (transfer.from, transfer.to) == (span.from, span.to));
        Self(known.map(|(transfer, span)| ((transfer.value, transfer.to), span.end - span.send_start)).collect())
    }

    fn get(&self, value: ValueId, to: DeviceId) -> f64 {
        self.0.get(&(value, to)).copied().unwrap_or(0.0)
    }
}

/// Times of each node, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Prediction {
    pub(super) nodes: Vec<(f64, f64)>,
    pub(super) makespan: f64,
}

/// Data that determine the times of an order: the times of its nodes and transfers in the schedule.
pub(super) struct Times<'a> {
    pub(super) program: &'a Program,
    pub(super) device_of: &'a [DeviceId],
    pub(super) devices: usize,
    pub(super) schedule: &'a Schedule,
    pub(super) lags: &'a Lags,
}

/// An order with its gangs, and the expected times of its nodes.
pub(super) struct Timeline<'a> {
    times: Times<'a>,
    /// Nodes that read each value.
    consumers: Vec<Vec<NodeId>>,
    /// Devices on which the caller receives each value.
    received: Vec<Vec<DeviceId>>,
    order: Vec<TaskId>,
    /// Position of each task in the order.
    places: Vec<usize>,
    gangs: Vec<Option<Gang>>,
    gang_of: Vec<Option<usize>>,
    nodes: Vec<Expected>,
    /// Times of nodes at positions before this one belong to the present order.
    known: usize,
    /// Time at which each device is free at that position.
    free: Vec<f64>,
    /// Longest path from the first node to the last, as far as it is known.
    longest: f64,
}

/// Expected times of a node, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    start: f64,
    end: f64,
    /// Time at which its device is free for it.
    free: f64,
    /// Seconds from its earliest start to the end of the run.
    rest: f64,
    /// Seconds from its device's next free time to the end of the run.
    next: f64,
}

impl<'a> Timeline<'a> {
    /// Creates the order of the schedule, without gangs.
    pub(super) fn new(times: Times<'a>) -> Self {
        let program = times.program;
        let order = times.schedule.order.clone();
        let mut received = vec![Vec::new(); program.values.len()];
        for (index, output) in program.outputs.iter().enumerate() {
            received[output.value.index()].push(output_device(program, times.device_of, index));
        }
        Self {
            consumers: program.consumers(),
            received,
            places: order::places(&order),
            order,
            gangs: Vec::new(),
            gang_of: vec![None; program.nodes.len()],
            nodes: vec![Expected::default(); program.nodes.len()],
            known: 0,
            free: vec![0.0; times.devices],
            longest: 0.0,
            times,
        }
    }

    /// Computes all times.
    ///
    /// A node starts when its device is free and all its inputs are present. A gang starts when that holds for all its
    /// members; from then on chunks come at the rate of the slowest member or link. O(edges).
    pub(super) fn predict(&mut self) -> Prediction {
        self.free.fill(0.0);
        self.known = 0;
        self.advance(self.order.len());
        self.find_rests();
        let ends = self.nodes.iter().map(|node| node.end);
        let received = self.received.iter().enumerate();
        let outputs = received.flat_map(|(value, on)| on.iter().map(move |device| (ValueId(value as u32), *device)));
        let outputs = outputs.map(|(value, device)| self.arrival(value, device));
        self.longest = ends.chain(outputs).fold(0.0, f64::max);
        Prediction { nodes: self.nodes.iter().map(|node| (node.start, node.end)).collect(), makespan: self.longest }
    }

    /// Returns the gangs, and the order in which the members of each stand together.
    pub(super) fn gangs(&self) -> (Vec<Gang>, Vec<TaskId>) {
        (self.gangs.iter().flatten().cloned().collect(), self.order.clone())
    }

    /// Returns the gang of a node.
    pub(super) fn gang(&self, node: NodeId) -> Option<&Gang> {
        self.gangs[self.gang_of[node.index()]?].as_ref()
    }

    /// Replaces the gangs of the new gang's members by it, if it can stand in the order and, with `gaining`, gains
    /// time.
    pub(super) fn join(&mut self, gang: Gang, gaining: bool) -> bool {
        let places = gang.members.iter().map(|member| self.places[member.index()]);
        let Some((first, last)) = places.clone().min().zip(places.max()) else { return false };
        let part = first..last + 1;
        if gaining && part.len() > MOST_PLACES {
            return false;
        }
        let old = self.order[part.clone()].to_vec();
        let Some(new) = self.contracted(&gang, first, &old) else { return false };
        if !gaining {
            self.install(gang, part, &new);
            return true;
        }
        self.advance(part.end);
        let (ready, next) = self.edges(&old);
        let before = self.through(&old, part.end, &next);
        if before < (1.0 - EQUAL) * self.longest {
            return false;
        }
        let times: Vec<(NodeId, Expected)> = self.nodes_of(&old).map(|node| (node, self.nodes[node.index()])).collect();
        let replaced = self.install(gang, part.clone(), &new);
        let mut free = ready;
        self.run(part.clone(), &mut free);
        let after = self.through(&new, part.end, &next);
        if after >= (1.0 - EQUAL) * before {
            self.restore(part, &old, replaced);
            times.into_iter().for_each(|(node, known)| self.nodes[node.index()] = known);
            return false;
        }
        self.longest = after;
        self.forget(part.end, &free, &new);
        for node in self.nodes_of(&new).collect::<Vec<_>>() {
            self.nodes[node.index()].next = next[self.device(node)].unwrap_or(0.0);
        }
        true
    }

    /// Order of a part in which the gang stands together.
    fn contracted(&self, gang: &Gang, first: usize, part: &[TaskId]) -> Option<Vec<TaskId>> {
        let others: BTreeSet<usize> = self.nodes_of(part).filter_map(|node| self.gang_of[node.index()]).collect();
        let others = others.into_iter().filter_map(|at| self.gangs[at].as_ref());
        let others = others.filter(|other| !gang.members.contains(&other.members[0]));
        let groups: Vec<&[NodeId]> = others.chain([gang]).map(|gang| &*gang.members).collect();
        order::contracted(self.times.program, part, first, &self.places, &groups)
    }

    /// Puts the gang into the part; returns the gangs that it replaces.
    fn install(&mut self, gang: Gang, part: Range<usize>, order: &[TaskId]) -> Vec<(usize, Gang)> {
        let touched: BTreeSet<usize> = gang.members.iter().filter_map(|node| self.gang_of[node.index()]).collect();
        let replaced = touched.into_iter().filter_map(|at| Some((at, self.gangs[at].take()?))).collect();
        gang.members.iter().for_each(|node| self.gang_of[node.index()] = Some(self.gangs.len()));
        self.gangs.push(Some(gang));
        self.set_order(part, order);
        replaced
    }

    /// Removes the gang that was inserted last.
    fn restore(&mut self, part: Range<usize>, order: &[TaskId], replaced: Vec<(usize, Gang)>) {
        let last = self.gangs.pop().flatten();
        last.iter().flat_map(|gang| &gang.members).for_each(|node| self.gang_of[node.index()] = None);
        for (at, gang) in replaced {
            gang.members.iter().for_each(|node| self.gang_of[node.index()] = Some(at));
            self.gangs[at] = Some(gang);
        }
        self.set_order(part, order);
    }

    fn set_order(&mut self, part: Range<usize>, order: &[TaskId]) {
        for (place, task) in part.zip(order) {
            self.order[place] = *task;
            self.places[task.index()] = place;
        }
    }

    /// Nodes among tasks.
    fn nodes_of<'t>(&self, tasks: &'t [TaskId]) -> impl Iterator<Item = NodeId> + use<'t> {
        let count = self.nodes.len();
        tasks.iter().filter(move |task| task.index() < count).map(|task| NodeId(task.0))
    }

    fn device(&self, node: NodeId) -> usize {
        self.times.device_of[node.index()].index()
    }

    /// For each device with a node in a part of the order: the time at which it is free before the part, and the
    /// seconds from its free time after the part to the end of the run.
    fn edges(&self, part: &[TaskId]) -> (Vec<f64>, Vec<Option<f64>>) {
        let (mut ready, mut next) = (vec![0.0; self.times.devices], vec![None; self.times.devices]);
        for node in self.nodes_of(part) {
            let (device, expected) = (self.device(node), &self.nodes[node.index()]);
            if next[device].replace(expected.next).is_none() {
                ready[device] = expected.free;
            }
        }
        (ready, next)
    }

    /// Longest path to the end of the run from the nodes in a part of the order that ends before the position `end`.
    fn through(&self, part: &[TaskId], end: usize, next: &[Option<f64>]) -> f64 {
        let after = |node: NodeId| {
            let device = next[self.device(node)].unwrap_or(0.0);
            self.nodes[node.index()].end + self.beyond(node, |reader| self.places[reader.index()] >= end).max(device)
        };
        self.nodes_of(part).map(after).fold(0.0, f64::max)
    }

    /// Longest path to the end of the run over the readers of a node's outputs, from its end on.
    fn beyond(&self, node: NodeId, counts: impl Fn(NodeId) -> bool) -> f64 {
        let mut longest = 0.0f64;
        let device = self.times.device_of[node.index()];
        let lag = |value: ValueId, to: DeviceId| if to == device { 0.0 } else { self.times.lags.get(value, to) };
        for value in &self.times.program.node(node).outputs {
            for reader in self.consumers[value.index()].iter().filter(|reader| counts(**reader)) {
                let arrival = lag(*value, self.times.device_of[reader.index()]);
                longest = longest.max(arrival + self.nodes[reader.index()].rest);
            }
            for device in &self.received[value.index()] {
                longest = longest.max(lag(*value, *device));
            }
        }
        longest
    }

    /// Marks times as known only up to the position `end`, at which devices of the part are free as in `free`.
    fn forget(&mut self, end: usize, free: &[f64], part: &[TaskId]) {
        let mut at_end: Vec<Option<f64>> = vec![None; free.len()];
        self.nodes_of(part).for_each(|node| at_end[self.device(node)] = Some(free[self.device(node)]));
        for node in self.nodes_of(&self.order[end..self.known]) {
            at_end[self.device(node)].get_or_insert(self.nodes[node.index()].free);
        }
        at_end.iter().zip(&mut self.free).for_each(|(at_end, free)| *free = at_end.unwrap_or(*free));
        self.known = end;
    }

    /// Computes the times up to the position `end`.
    fn advance(&mut self, end: usize) {
        if self.known < end {
            let mut free = std::mem::take(&mut self.free);
            self.run(self.known..end, &mut free);
            (self.free, self.known) = (free, end);
        }
    }

    /// Runs the nodes at these positions, and updates the times `free` at which devices are free.
    fn run(&mut self, places: Range<usize>, free: &mut [f64]) {
        for place in places {
            let node = NodeId(self.order[place].0);
            if node.index() >= self.nodes.len() {
                continue;
            }
            match self.gang_of[node.index()].and_then(|at| self.gangs[at].take().map(|gang| (at, gang))) {
                None => {
                    let start = self.ready(node, free, |_| true);
                    let expected = &mut self.nodes[node.index()];
                    (expected.free, expected.start) = (free[self.times.device_of[node.index()].index()], start);
                    expected.end = start + self.times.time(node);
                    free[self.times.device_of[node.index()].index()] = expected.end;
                }
                Some((at, gang)) => {
                    if gang.members[0] == node {
                        self.run_together(&gang, free);
                    }
                    self.gangs[at] = Some(gang);
                }
            }
        }
    }

    fn run_together(&mut self, gang: &Gang, free: &mut [f64]) {
        let outside = |value: &ValueId| !gang.streams.iter().any(|(stream, _)| stream == value);
        let begin = gang.members.iter().map(|node| self.ready(*node, free, outside)).fold(0.0, f64::max);
        for (node, (start, end)) in self.times.spans(gang) {
            let device = self.device(node);
            let expected = &mut self.nodes[node.index()];
            *expected = Expected { start: begin + start, end: begin + end, free: free[device], ..*expected };
            free[device] = begin + end;
        }
    }

    /// Time at which the device of a node is free and those of its values that `counts` selects are present.
    fn ready(&self, node: NodeId, free: &[f64], counts: impl Fn(&ValueId) -> bool) -> f64 {
        let device = self.times.device_of[node.index()];
        let values = self.times.program.node(node).inputs.iter().filter(|value| counts(value));
        values.map(|value| self.arrival(*value, device)).fold(free[device.index()], f64::max)
    }

    /// Time at which a value is on a device.
    fn arrival(&self, value: ValueId, device: DeviceId) -> f64 {
        let Times { program, device_of, .. } = self.times;
        let Some(from) = origin(program, device_of, value) else { return 0.0 };
        let made = match program.value(value).origin {
            Origin::Node(node) => self.nodes[node.index()].end,
            Origin::Input | Origin::Constant(_) => 0.0,
        };
        made + if from == device { 0.0 } else { self.times.lags.get(value, device) }
    }

    /// Computes, from the last node to the first, the seconds from each to the end of the run.
    fn find_rests(&mut self) {
        let mut next = vec![0.0; self.times.devices];
        self.nodes.iter_mut().for_each(|node| node.rest = 0.0);
        for place in (0..self.order.len()).rev() {
            let node = NodeId(self.order[place].0);
            if node.index() >= self.nodes.len() {
                continue;
            }
            let together = match self.gang(node) {
                // A gang is handled with its first member.
                Some(gang) if gang.members[0] != node => continue,
                Some(gang) => self.times.spans(gang),
                None => vec![(node, (0.0, self.times.time(node)))],
            };
            let inside = |reader: NodeId| together.iter().any(|(member, _)| *member == reader);
            let after = |(node, (_, end)): &(NodeId, (f64, f64))| {
                end + self.beyond(*node, |reader| !inside(reader)).max(next[self.device(*node)])
            };
            let rest = together.iter().map(after).fold(0.0, f64::max);
            for (node, _) in &together {
                let device = self.device(*node);
                let expected = &mut self.nodes[node.index()];
                (expected.rest, expected.next) = (rest, next[device]);
                next[device] = rest;
            }
        }
    }
}

impl Times<'_> {
    /// Seconds of a node alone.
    fn time(&self, node: NodeId) -> f64 {
        self.schedule.tasks.get(node.index()).map_or(0.0, |span| span.end - span.start)
    }

    /// Start and end of the members of a gang, relative to the gang's start.
    fn spans(&self, gang: &Gang) -> Vec<(NodeId, (f64, f64))> {
        let chunks = gang.chunks() as f64;
        let chunk = |node: NodeId| self.time(node) / chunks + gang.hop;
        let link = |value: ValueId, node: NodeId| self.lags.get(value, self.device_of[node.index()]) / chunks;
        let steps = gang.members.iter().map(|node| chunk(*node));
        let links = gang.streams.iter().map(|(value, stream)| link(*value, stream.node));
        let interval = steps.chain(links).fold(0.0, f64::max);
        let mut starts: BTreeMap<NodeId, f64> = BTreeMap::new();
        for node in &gang.members {
            let streams = gang.streams.iter().filter(|(_, stream)| stream.node == *node);
            let first = streams.filter_map(|(value, stream)| {
                let producer = stream.producer?;
                Some(starts.get(&producer)? + chunk(producer) + link(*value, *node))
            });
            let start = first.fold(0.0, f64::max);
            starts.insert(*node, start);
        }
        let span = |(node, start): (NodeId, f64)| (node, (start, start + chunk(node) + (chunks - 1.0) * interval));
        starts.into_iter().map(span).collect()
    }
}
