//! Allocations: the worker of each node, as a value and as a file.

use super::error::FlowError;
use super::graph::Flow;
use super::options::WorkerConfig;
use anabranch_base::lock::lock;
use anabranch_base::quoted::Line;
use anabranch_placement_core::place::Placement;
use anabranch_placement_core::problem::Problem;
use anabranch_placement_core::schedule::Schedule;
use anabranch_plan::plan_file::{FileError, PlanFile};
use std::fmt::Write;

/// The worker of every node of a flow.
///
/// A run takes the nodes' machines from it: within a machine, any idle worker runs a node that is ready.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// Name of the strategy that placed the nodes.
    strategy: String,
    /// Nodes and workers, in the order in which the nodes were declared.
    nodes: Vec<(String, u32)>,
    placed: Option<PlacementRecord>,
}

/// Further data of an allocation that was made by this process.
#[derive(Clone, Debug, PartialEq)]
struct PlacementRecord {
    /// Prediction for one iteration.
    schedule: Schedule,
    file: PlanFile,
}

/// Reason why an allocation does not fit a flow or its workers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Line(.0))]
pub struct AllocationError(String);

impl From<FileError> for AllocationError {
    fn from(error: FileError) -> Self {
        AllocationError(error.to_string())
    }
}

impl Allocation {
    /// Makes an allocation by hand from nodes and their workers.
    pub fn new(nodes: impl IntoIterator<Item = (impl Into<String>, u32)>) -> Self {
        let nodes = nodes.into_iter().map(|(node, worker)| (node.into(), worker)).collect();
        Allocation { strategy: String::new(), nodes, placed: None }
    }

    pub(super) fn placed(problem: &Problem<'_>, placement: &Placement, schedule: Schedule) -> Self {
        let file = PlanFile::of_tasks(problem, placement, &schedule);
        let nodes = problem.graph().tasks().iter().map(|task| task.name.clone());
        Allocation {
            strategy: placement.strategy.to_owned(),
            nodes: nodes.zip(placement.device_of.iter().map(|device| device.0)).collect(),
            placed: Some(PlacementRecord { schedule, file }),
        }
    }

    /// Returns the name of the strategy that placed the nodes; empty if they were placed by hand.
    pub fn strategy(&self) -> &str {
        &self.strategy
    }

    /// Returns the nodes and their workers.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (&str, u32)> {
        self.nodes.iter().map(|(node, worker)| (node.as_str(), *worker))
    }

    /// Returns the predicted schedule of one iteration, in the unit of the weights.
    ///
    /// `None` for an allocation from a file or by hand.
    pub fn predicted(&self) -> Option<&Schedule> {
        self.placed.as_ref().map(|placed| &placed.schedule)
    }

    /// Returns the allocation as a plan file: JSON that a person reads and edits.
    ///
    /// Only the worker of each node counts when the file is read. `None` for an allocation from a file or by hand.
    pub fn plan_file(&self) -> Option<&PlanFile> {
        self.placed.as_ref().map(|placed| &placed.file)
    }

    /// Reads an allocation from a plan file.
    ///
    /// # Errors
    /// If it does not name exactly the nodes of the flow, or workers that the configuration does not have.
    pub fn from_plan_file(
        file: &PlanFile,
        flow: &Flow<'_>,
        worker_config: &WorkerConfig,
    ) -> Result<Self, AllocationError> {
        let names: Vec<&str> = flow.names().collect();
        let workers: Vec<String> = (0..worker_config.worker_count()).map(WorkerConfig::name_of).collect();
        let workers: Vec<&str> = workers.iter().map(String::as_str).collect();
        let assigned = file.assigned(&names, &workers)?;
        Ok(Self::new(names.into_iter().zip(assigned.into_iter().map(|device| device.0))))
    }

    /// Returns the allocation as a list: one line per node, with its number and the number of its worker.
    ///
    /// The numbers are those of Sucuri. Nodes count from 0 in the order in which they are added to the graph, and
    /// workers from 0 over all machines.
    pub fn to_list(&self) -> String {
        let mut text = String::new();
        for (number, (_, worker)) in self.nodes.iter().enumerate() {
            let _ = writeln!(text, "{number} {worker}");
        }
        text
    }

    /// Reads an allocation from a list as [`Self::to_list`] writes it.
    ///
    /// Lines may come in any order. Empty lines and text after a `#` are skipped.
    ///
    /// # Errors
    /// If a line is not two numbers, or names a node that does not exist or comes twice: with the line's number. Also
    /// if a node is missing.
    pub fn from_list(text: &str, flow: &Flow<'_>) -> Result<Self, AllocationError> {
        let names: Vec<&str> = flow.names().collect();
        let mut workers: Vec<Option<u32>> = vec![None; names.len()];
        for (line, text) in (1..).zip(text.lines()) {
            let refuse = |why: String| Err(AllocationError(format!("line {line} of the allocation {why}")));
            let numbers = text.split('#').next().unwrap_or_default();
            let numbers: Vec<&str> = numbers.split_whitespace().collect();
            let (node, worker) = match numbers[..] {
                [] => continue,
                [node, worker] => (node.parse::<usize>(), worker.parse::<u32>()),
                _ => return refuse(format!("has {} words; write a node and a worker", numbers.len())),
            };
            let (Ok(node), Ok(worker)) = (node, worker) else {
                return refuse(format!("is {text:?}; write a node and a worker as numbers, such as `3 0`"));
            };
            match workers.get_mut(node) {
                None => {
                    return refuse(format!(
                        "names node {node}, but the flow has nodes 0 to {}",
                        names.len().saturating_sub(1)
                    ));
                }
                Some(Some(_)) => return refuse(format!("names node {node} a second time")),
                Some(free) => *free = Some(worker),
            }
        }
        match workers.iter().position(Option::is_none) {
            Some(node) => {
                let name = names[node];
                Err(AllocationError(format!("the allocation has no line for node {node}, {name:?}; add one")))
            }
            None => Ok(Self::new(names.into_iter().zip(workers.into_iter().flatten()))),
        }
    }

    /// Checks that it has exactly the nodes of this flow, and only workers of this configuration.
    ///
    /// # Errors
    /// If it does not, with the node.
    pub fn fits(&self, flow: &Flow<'_>, worker_config: &WorkerConfig) -> Result<(), FlowError> {
        self.workers(flow, worker_config).map(drop)
    }

    /// Returns the worker of each node of the flow.
    pub(super) fn workers(&self, flow: &Flow<'_>, worker_config: &WorkerConfig) -> Result<Vec<u32>, FlowError> {
        let (given, there) = (self.nodes.len(), flow.node_count());
        if given != there {
            let why =
                format!("the allocation has {given} nodes, but the flow has {there}; it was made for another flow");
            return Err(AllocationError(why).into());
        }
        let worker = |((name, worker), node): (&(String, u32), &super::graph::Declared<'_>)| {
            let (settings, worker) = (*lock(&node.settings), *worker);
            let last = worker_config.worker_count() - 1;
            let why = match settings.worker {
                _ if worker > last => {
                    format!("puts node {name:?} on worker {worker}, but the workers are 0 to {last}; run it with more")
                }
                _ if *name != node.name => {
                    format!("has node {name:?} at the position of {:?}; it was made for another flow", node.name)
                }
                Some(pin) if pin != worker => {
                    format!(
                        "puts node {name:?} on worker {worker}, but the node is pinned to worker {pin}; change \
                         one of them"
                    )
                }
                _ => return worker_config.admits(name, Some(worker), settings.machine).map(|()| worker),
            };
            Err(AllocationError(format!("the allocation {why}")).into())
        };
        self.nodes.iter().zip(&flow.nodes).map(worker).collect()
    }
}
