//! Allocations: which worker a node is for, as a value and as a file.

use super::error::FlowError;
use super::graph::Flow;
use super::options::Crew;
use anabranch_base::lock::lock;
use anabranch_base::quoted::Line;
use anabranch_placement_core::place::Placement;
use anabranch_placement_core::problem::Problem;
use anabranch_placement_core::schedule::Schedule;
use anabranch_plan::plan_file::{FileError, PlanFile};
use std::fmt::Write;

/// The worker of every node of a flow. A run takes from it the nodes' machines: within a machine, whoever is idle runs what is ready.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// What placed the nodes.
    strategy: String,
    /// Nodes and workers, in the order in which the nodes were declared.
    nodes: Vec<(String, u32)>,
    placed: Option<Placed>,
}

/// What is known of an allocation that was made here.
#[derive(Clone, Debug, PartialEq)]
struct Placed {
    /// The prediction for one iteration.
    schedule: Schedule,
    file: PlanFile,
}

/// Why an allocation does not fit a flow or its workers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Line(.0))]
pub struct AllocationError(String);

impl From<FileError> for AllocationError {
    fn from(error: FileError) -> Self {
        AllocationError(error.to_string())
    }
}

impl Allocation {
    /// An allocation by hand: nodes and their workers.
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
            placed: Some(Placed { schedule, file }),
        }
    }

    /// What placed the nodes; empty where it was done by hand.
    pub fn strategy(&self) -> &str {
        &self.strategy
    }

    /// Nodes and their workers.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (&str, u32)> {
        self.nodes.iter().map(|(node, worker)| (node.as_str(), *worker))
    }

    /// The predicted schedule of one iteration, in the unit of the weights; none of an allocation from a file or by hand.
    pub fn predicted(&self) -> Option<&Schedule> {
        self.placed.as_ref().map(|placed| &placed.schedule)
    }

    /// The allocation as a plan file: JSON that a person reads and edits, in which the worker of each node counts. None of an allocation
    /// from a file or by hand.
    pub fn plan_file(&self) -> Option<&PlanFile> {
        self.placed.as_ref().map(|placed| &placed.file)
    }

    /// The allocation that a plan file holds.
    ///
    /// # Errors
    /// If it does not name exactly the nodes of the flow, or workers that the crew does not have.
    pub fn from_plan_file(file: &PlanFile, flow: &Flow<'_>, crew: &Crew) -> Result<Self, AllocationError> {
        let names: Vec<&str> = flow.names().collect();
        let workers: Vec<String> = (0..crew.worker_count()).map(Crew::name_of).collect();
        let workers: Vec<&str> = workers.iter().map(String::as_str).collect();
        let assigned = file.assigned(&names, &workers)?;
        Ok(Self::new(names.into_iter().zip(assigned.into_iter().map(|device| device.0))))
    }

    /// The allocation as a list: a line a node with its number and the number of its worker, as Sucuri numbers both, from 0 in the order in
    /// which nodes are added to the graph and over all machines.
    pub fn to_list(&self) -> String {
        let mut text = String::new();
        for (number, (_, worker)) in self.nodes.iter().enumerate() {
            let _ = writeln!(text, "{number} {worker}");
        }
        text
    }

    /// The allocation that a list holds, as [`Self::to_list`] writes it. Lines may come in any order; empty ones, and what follows a `#`, are
    /// skipped.
    ///
    /// # Errors
    /// With its number, a line that is not two numbers or names a node that is not there or comes twice; also if a node is missing.
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
                _ => return refuse(format!("has {} words; it has a node and a worker", numbers.len())),
            };
            let (Ok(node), Ok(worker)) = (node, worker) else {
                return refuse(format!("is {text:?}; a node and a worker are two numbers, such as `3 0`"));
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
                Err(AllocationError(format!("the allocation has no line for node {node}, {name:?}; each node has one")))
            }
            None => Ok(Self::new(names.into_iter().zip(workers.into_iter().flatten()))),
        }
    }

    /// Whether it is of the nodes of this flow, and of workers that these are.
    ///
    /// # Errors
    /// If it is not, with the node.
    pub fn fits(&self, flow: &Flow<'_>, crew: &Crew) -> Result<(), FlowError> {
        self.workers(flow, crew).map(drop)
    }

    /// The worker of each node of the flow.
    pub(super) fn workers(&self, flow: &Flow<'_>, crew: &Crew) -> Result<Vec<u32>, FlowError> {
        let (given, there) = (self.nodes.len(), flow.node_count());
        if given != there {
            let why =
                format!("the allocation has {given} nodes, but the flow has {there}; it was made for another flow");
            return Err(AllocationError(why).into());
        }
        let worker = |((name, worker), node): (&(String, u32), &super::graph::Declared<'_>)| {
            let (settings, worker) = (*lock(&node.settings), *worker);
            let last = crew.worker_count() - 1;
            let why = match settings.worker {
                _ if worker > last => {
                    format!("puts node {name:?} on worker {worker}, but the workers are 0 to {last}; run it with more")
                }
                _ if *name != node.name => {
                    format!("has node {name:?} where the flow has {:?}; it was made for another flow", node.name)
                }
                Some(pin) if pin != worker => {
                    format!(
                        "puts node {name:?} on worker {worker}, but it is pinned to worker {pin}; change one of both"
                    )
                }
                _ => return crew.admits(name, Some(worker), settings.machine).map(|()| worker),
            };
            Err(AllocationError(format!("the allocation {why}")).into())
        };
        self.nodes.iter().zip(&flow.nodes).map(worker).collect()
    }
}
