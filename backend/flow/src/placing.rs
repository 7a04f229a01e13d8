//! Placement of a flow: its nodes as tasks, its workers as devices, with any strategy of the placement crate.

use super::allocation::Allocation;
use super::error::FlowError;
use super::graph::{Flow, Settings};
use super::options::{FlowOptions, WorkerConfig};
use super::queues::Home;
use anabranch_base::lock::lock;
use anabranch_placement_core::check::{check_placement, check_schedule};
use anabranch_placement_core::cost::CostTable;
use anabranch_placement_core::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use anabranch_placement_core::order::Pct;
use anabranch_placement_core::place::{PlaceError, Placement, Placer, Sucuri, strategy_by_name, strategy_names};
use anabranch_placement_core::platform::{Device, DeviceId, DeviceKind, Platform};
use anabranch_placement_core::problem::{MemoryRule, Problem};
use anabranch_placement_core::simulate::{SimulateError, simulate};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Strategy of Sucuri: the default of local schedulers without an allocation.
const SUCURI: &str = "sucuri";

/// Returns the machine of every node under a local scheduler; `None` under a central scheduler.
pub(super) fn machines(flow: &Flow<'_>, options: &FlowOptions) -> Result<Option<Vec<u32>>, FlowError> {
    let worker_config = options.worker_config();
    if let Some(allocation) = &options.allocation {
        let workers = allocation.workers(flow, worker_config)?;
        let machines = workers.iter().map(|worker| worker_config.machine_of(*worker)).collect();
        return Ok(options.scheduler.is_local().then_some(machines));
    }
    if !options.scheduler.is_local() {
        return Ok(None);
    }
    if worker_config.machine_count() == 1 {
        return Ok(Some(vec![0; flow.node_count()]));
    }
    flow.placed(SUCURI, worker_config, |_, placement| {
        Ok(Some(placement.device_of.iter().map(|worker| worker_config.machine_of(worker.0)).collect()))
    })
}

/// Returns the home of each node's tasks. `machines` holds the nodes' machines under a local scheduler.
pub(super) fn homes(flow: &Flow<'_>, machines: Option<&[u32]>) -> Vec<Home> {
    let nodes = flow.nodes.iter().enumerate();
    nodes.map(|(number, node)| home(*lock(&node.settings), machines.map(|machines| machines[number]))).collect()
}

/// Returns the home of a node's tasks.
fn home(settings: Settings, near: Option<u32>) -> Home {
    match (settings.worker, settings.machine, near) {
        (Some(worker), ..) => Home::Worker(worker),
        (None, Some(machine), _) => Home::Machine(machine),
        (None, None, Some(machine)) => Home::Near(machine),
        (None, None, None) => Home::Anywhere,
    }
}

impl Flow<'_> {
    /// Returns one iteration of the flow as a graph of tasks.
    ///
    /// It has one task per node, in the order in which they were declared, and one datum per pair of a node and a port
    /// that it reads. The pin of a node becomes the pin of its task to the device of the worker.
    pub fn task_graph(&self) -> Result<TaskGraph, FlowError> {
        let mut builder = GraphBuilder::new();
        for node in &self.nodes {
            let settings = *lock(&node.settings);
            let task = Task::new(&node.name).with_operations(settings.weight);
            builder.task(match settings.worker {
                Some(worker) => task.with_pin(DeviceId(worker)),
                None => task,
            });
        }
        for (producer, node) in (0..).zip(&self.nodes) {
            for reader in &node.readers {
                builder.edge(TaskId(producer), TaskId(reader.node as u32), reader.bytes.load(Ordering::Relaxed));
            }
        }
        builder.build().map_err(|error| FlowError::Options(error.to_string()))
    }

    /// Places every node on a worker, by the strategy of this name. The result is checked before it is returned.
    ///
    /// Places one iteration. A strategy that weighs transfers against nodes uses the configured links, so weights must
    /// be in seconds.
    ///
    /// # Errors
    /// As [`Flow::run`] before it runs anything. Also if no strategy has this name, or the strategy cannot place the
    /// flow.
    pub fn place(&self, strategy: &str, worker_config: &WorkerConfig) -> Result<Allocation, FlowError> {
        self.verify(&FlowOptions::default().with_workers(worker_config.clone()).with_window(1))?;
        self.placed(strategy, worker_config, |problem, placement| {
            let schedule = simulate(problem, &placement.device_of, &Pct).map_err(|error| match error {
                SimulateError::Interrupted => PlaceError::Interrupted.into(),
                error => FlowError::Options(error.to_string()),
            })?;
            match check_schedule(problem, &placement.device_of, &schedule).into_iter().next() {
                Some(violation) => Err(PlaceError::Violation(violation).into()),
                None => Ok(Allocation::placed(problem, placement, schedule)),
            }
        })
    }

    /// Places every node of a flow that was verified, checks the placement, and returns the result of `then`.
    fn placed<T>(
        &self,
        strategy: &str,
        worker_config: &WorkerConfig,
        then: impl FnOnce(&Problem<'_>, &Placement) -> Result<T, FlowError>,
    ) -> Result<T, FlowError> {
        let ranks = self.machines_wanted();
        let placer: Box<dyn Placer> = match strategy {
            SUCURI => {
                let machines = Sucuri::default().with_machines(worker_config.machine_of_all().to_vec());
                Box::new(machines.with_manual_ranks(ranks.iter().map(|(task, machine)| (*task, *machine)).collect()))
            }
            name => strategy_by_name(name).ok_or_else(|| {
                FlowError::Options(format!(
                    "there is no strategy {name:?}; the strategies are {}",
                    strategy_names().join(", ")
                ))
            })?,
        };
        let graph = self.task_graph()?;
        let platform = platform(worker_config)?;
        let weight = |task: TaskId| graph.task(task).operations;
        let here = |task: TaskId, device: DeviceId| {
            ranks.get(&task).is_none_or(|machine| worker_config.machine_of(device.0) == *machine)
        };
        let costs = CostTable::from_fn(&graph, &platform, |task, device| here(task, device).then(|| weight(task)))
            .map_err(|error| FlowError::Options(error.to_string()))?;
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore)?;
        let placement = placer.place(&problem)?;
        match check_placement(&problem, &placement.device_of).into_iter().next() {
            Some(violation) => Err(PlaceError::Violation(violation).into()),
            None => then(&problem, &placement),
        }
    }

    /// Returns the nodes that are bound to machines, with their machines.
    fn machines_wanted(&self) -> BTreeMap<TaskId, u32> {
        let bound = (0..)
            .zip(&self.nodes)
            .filter_map(|(node, declared)| Some((TaskId(node), lock(&declared.settings).machine?)));
        bound.collect()
    }
}

/// Returns workers as devices.
fn platform(worker_config: &WorkerConfig) -> Result<Platform, FlowError> {
    let devices = (0..worker_config.worker_count())
        .map(|worker| Device::new(WorkerConfig::name_of(worker), DeviceKind::Cpu))
        .collect();
    let platform = Platform::new(devices, |from, to| worker_config.link(from.0, to.0));
    platform.map_err(|error| FlowError::Options(error.to_string()))
}
