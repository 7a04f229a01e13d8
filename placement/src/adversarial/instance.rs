//! Scheduling problem taken apart into plain lists, which the steps of the [adversarial search](super) mutate.
//!
//! A step changes one number or one edge of an [`Instance`], and puts the lists together to a problem again.

use super::Ranges;
use crate::format::{Costs, LoadedProblem, TimeTable};
use crate::graph::{GraphBuilder, Task, TaskId};
use crate::platform::{Device, DeviceId, Platform};

/// A datum of an instance; it has at least one consumer.
#[derive(Debug, Clone)]
pub(super) struct Datum {
    pub(super) producer: TaskId,
    pub(super) bytes: u64,
    pub(super) consumers: Vec<TaskId>,
}

/// Parts of a problem that changes edit, and the rest of it.
#[derive(Debug, Clone)]
pub(super) struct Instance<'a> {
    pub(super) tasks: Vec<Task>,
    pub(super) data: Vec<Datum>,
    pub(super) devices: Vec<Device>,
    /// Rates by sender, then receiver.
    pub(super) rates: Vec<f64>,
    /// Whether each link has the same rate in both directions, and keeps it so.
    pub(super) symmetric: bool,
    /// Times by task, then device; empty if times are operations over speed.
    pub(super) times: Vec<Option<f64>>,
    rest: &'a LoadedProblem,
}

impl<'a> Instance<'a> {
    /// Takes a problem apart.
    pub(super) fn of(problem: &'a LoadedProblem) -> Self {
        let (graph, platform) = (&problem.graph, &problem.platform);
        let data = graph.datum_ids().map(|datum| Datum {
            producer: graph.producer(datum),
            bytes: graph.bytes(datum),
            consumers: graph.consumers(datum).to_vec(),
        });
        let rate = |from| platform.device_ids().map(move |to| platform.rate(from, to));
        let rates = platform.device_ids().flat_map(rate).collect();
        let pairs = || platform.device_ids().flat_map(|from| platform.device_ids().map(move |to| (from, to)));
        let times = match &problem.costs {
            Costs::OperationsOverSpeed => Vec::new(),
            Costs::Times(table) => graph
                .task_ids()
                .flat_map(|task| platform.device_ids().map(move |device| table.time(task, device)))
                .collect(),
        };
        Instance {
            tasks: graph.tasks().to_vec(),
            data: data.collect(),
            devices: platform.devices().to_vec(),
            rates,
            symmetric: pairs().all(|(from, to)| platform.rate(from, to) == platform.rate(to, from)),
            times,
            rest: problem,
        }
    }

    /// Returns the greatest values that occur.
    pub(super) fn ranges(&self) -> Ranges {
        let greatest = |values: &mut dyn Iterator<Item = f64>| values.filter(|v| v.is_finite()).fold(0.0, f64::max);
        let work = match self.times.is_empty() {
            true => greatest(&mut self.tasks.iter().map(|task| task.operations)),
            false => greatest(&mut self.times.iter().filter_map(|time| *time)),
        };
        Ranges {
            work,
            bytes: self.data.iter().map(|datum| datum.bytes).max().unwrap_or(0),
            speed: greatest(&mut self.devices.iter().map(|device| device.speed)),
            rate: greatest(&mut self.rates.iter().copied()),
        }
    }

    /// Whether changes may give links other rates. A network of links keeps them.
    pub(super) fn has_own_links(&self) -> bool {
        self.rest.platform.network().is_none()
    }

    /// Puts the parts together; `None` if they do not form a problem.
    pub(super) fn problem(&self) -> Option<LoadedProblem> {
        let mut builder = GraphBuilder::new();
        self.tasks.iter().for_each(|task| _ = builder.task(task.clone()));
        for Datum { producer, bytes, consumers } in &self.data {
            let datum = builder.datum(*producer, *bytes);
            consumers.iter().for_each(|consumer| builder.consume(datum, *consumer));
        }
        let old = &self.rest.graph;
        for unit in old.unit_ids() {
            old.members(unit).windows(2).for_each(|pair| builder.colocate(pair[0], pair[1]));
        }
        let count = self.devices.len();
        let link = |from: DeviceId, to: DeviceId| {
            (self.rest.platform.latency(from, to), self.rates[from.index() * count + to.index()])
        };
        let platform = match self.rest.platform.network() {
            None => Platform::new(self.devices.clone(), link).ok()?,
            Some(network) => Platform::networked(self.devices.clone(), network.clone()).ok()?,
        };
        let time = |task: TaskId, device: DeviceId| self.times[task.index() * count + device.index()];
        let costs = match self.times.is_empty() {
            true => Costs::OperationsOverSpeed,
            false => Costs::Times(TimeTable::from_fn(self.tasks.len(), count, time).ok()?),
        };
        let LoadedProblem { name, only_on, memory_rule, facts, .. } = self.rest;
        let (name, only_on, facts) = (name.clone(), only_on.clone(), facts.clone());
        Some(LoadedProblem {
            name,
            graph: builder.build().ok()?,
            platform,
            costs,
            only_on,
            memory_rule: *memory_rule,
            facts,
        })
    }
}
