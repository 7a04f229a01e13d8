//! The schedule that is to be expected where members of a gang run at the same time.

use super::stream::Gang;
use super::transfer::Transfer;
use super::uses::{origin, output_device};
use crate::program::{NodeId, Program, ValueId};
use anabranch_placement::graph::TaskId;
use anabranch_placement::platform::DeviceId;
use anabranch_placement::schedule::Schedule;
use std::collections::BTreeMap;

/// Seconds from a value's making until it is on another device.
pub(super) struct Lags(BTreeMap<(ValueId, DeviceId), f64>);

impl Lags {
    /// The lags of these transfers, which the schedule has simulated in the same order.
    pub(super) fn of(transfers: &[Transfer], schedule: &Schedule) -> Self {
        let known = transfers.iter().zip(&schedule.transfers);
        let known = known.filter(|(transfer, span)| (transfer.from, transfer.to) == (span.from, span.to));
        Self(known.map(|(transfer, span)| ((transfer.value, transfer.to), span.end - span.send_start)).collect())
    }

    fn get(&self, value: ValueId, to: DeviceId) -> f64 {
        self.0.get(&(value, to)).copied().unwrap_or(0.0)
    }
}

/// When each node runs. Seconds.
#[derive(Clone, Debug)]
pub(super) struct Prediction {
    pub(super) nodes: Vec<(f64, f64)>,
    pub(super) makespan: f64,
}

/// A forecast under way.
struct Clock<'a> {
    program: &'a Program,
    device_of: &'a [DeviceId],
    lags: &'a Lags,
    /// When each device is free.
    free: BTreeMap<DeviceId, f64>,
    /// When each value is where it is made.
    made: Vec<f64>,
}

impl Prediction {
    /// Follows `order` with the schedule's times for nodes and transfers. A gang starts when all its members' devices are
    /// free and all that they read from outside is there; from then on a chunk comes as often as the slowest member or
    /// link lets it. O(edges).
    pub(super) fn of(
        program: &Program,
        device_of: &[DeviceId],
        schedule: &Schedule,
        lags: &Lags,
        order: &[TaskId],
        gangs: &[Gang],
    ) -> Self {
        let mut clock =
            Clock { program, device_of, lags, free: BTreeMap::new(), made: vec![0.0; program.values.len()] };
        let mut gang_of: Vec<Option<&Gang>> = vec![None; program.nodes.len()];
        for gang in gangs {
            gang.members.iter().for_each(|member| gang_of[member.index()] = Some(gang));
        }
        let time = |task: TaskId| schedule.tasks.get(task.index()).map_or(0.0, |span| span.end - span.start);
        let mut forecast = Self { nodes: vec![(0.0, 0.0); program.nodes.len()], makespan: 0.0 };
        for task in order.iter().filter(|task| task.index() < program.nodes.len()) {
            let node = NodeId(task.0);
            match gang_of[node.index()] {
                None => forecast.nodes[node.index()] = clock.run(node, time(*task)),
                Some(gang) if gang.members.first() == Some(&node) => {
                    clock.run_together(gang, |node| time(TaskId(node.0)), &mut forecast.nodes);
                }
                Some(_) => {}
            }
        }
        let outputs = program.outputs.iter().enumerate();
        let outputs =
            outputs.map(|(index, output)| clock.there(output.value, output_device(program, device_of, index)));
        forecast.makespan = forecast.nodes.iter().map(|(_, end)| *end).chain(outputs).fold(0.0, f64::max);
        forecast
    }
}

impl Clock<'_> {
    /// When a value is on a device.
    fn there(&self, value: ValueId, device: DeviceId) -> f64 {
        let Some(from) = origin(self.program, self.device_of, value) else { return 0.0 };
        self.made[value.index()] + if from == device { 0.0 } else { self.lags.get(value, device) }
    }

    /// When the device of a node is free and all of these values are there.
    fn ready<'v>(&self, node: NodeId, values: impl Iterator<Item = &'v ValueId>) -> f64 {
        let device = self.device_of[node.index()];
        let free = self.free.get(&device).copied().unwrap_or(0.0);
        values.map(|value| self.there(*value, device)).fold(free, f64::max)
    }

    fn end(&mut self, node: NodeId, end: f64) {
        self.free.insert(self.device_of[node.index()], end);
        for value in &self.program.node(node).outputs {
            self.made[value.index()] = end;
        }
    }

    fn run(&mut self, node: NodeId, time: f64) -> (f64, f64) {
        let start = self.ready(node, self.program.node(node).inputs.iter());
        self.end(node, start + time);
        (start, start + time)
    }

    fn run_together(&mut self, gang: &Gang, time: impl Fn(NodeId) -> f64, spans: &mut [(f64, f64)]) {
        let chunks = gang.chunks() as f64;
        let passed = |value: &ValueId| gang.streams.iter().any(|(stream, _)| stream == value);
        let ready = |node: &NodeId| {
            let outside = self.program.node(*node).inputs.iter().filter(|value| !passed(value));
            self.ready(*node, outside)
        };
        let begin = gang.members.iter().map(ready).fold(0.0, f64::max);
        let chunk = |node: NodeId| time(node) / chunks + gang.hop;
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
            let start = first.fold(begin, f64::max);
            starts.insert(*node, start);
        }
        for (node, start) in starts {
            let end = start + chunk(node) + (chunks - 1.0) * interval;
            spans[node.index()] = (start, end);
            self.end(node, end);
        }
    }
}
