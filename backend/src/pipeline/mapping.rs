//! Which nodes are a stage, and which devices do its work: what a pipeline file holds and people edit.

use super::costs::StageCosts;
use crate::error_kind::ErrorKind;
use crate::execute::ExecError;
use crate::files;
use crate::program::{NodeId, Origin};
use crate::session::SessionError;
use anabranch_placement::pipeline::{Interval, Mapping, Sharing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The stages of a pipeline, in the order of the data's way. None at all: each data set is run on all devices together, as a session
/// runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageMapping {
    /// The stages.
    pub stages: Vec<StageDevices>,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageDevices {
    /// The devices, each of which does the whole work of the stage for some of the data sets.
    pub devices: Vec<String>,
    /// The names of the stage's nodes, in an order in which each comes after those that it reads.
    pub nodes: Vec<String>,
}

/// A mapping of this program to these processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stages {
    /// All nodes, in a topological order.
    pub(super) order: Vec<NodeId>,
    /// How many nodes each stage has.
    pub(super) sizes: Vec<usize>,
    /// The processors of each stage.
    pub(super) on: Vec<Vec<usize>>,
}

impl StageMapping {
    /// Reads a mapping from a file.
    ///
    /// # Errors
    /// If it cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Self, SessionError> {
        let refused = |error: String| refused(format!("{}: {error}", path.display()));
        let text = files::read(path, files::MOST_BYTES).map_err(|error| refused(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| refused(error.to_string()))
    }

    pub(super) fn of(stages: &Stages, costs: &StageCosts) -> Self {
        let stage = |(at, on): (usize, &Vec<usize>)| StageDevices {
            devices: on.iter().map(|processor| costs.processors[*processor].name.clone()).collect(),
            nodes: stages.nodes(at).iter().map(|node| costs.program().node(*node).name.clone()).collect(),
        };
        Self { stages: stages.on.iter().enumerate().map(stage).collect() }
    }

    /// What it means for a program and the processors that there are; `None` for all devices together.
    pub(super) fn stages(&self, costs: &StageCosts) -> Result<Option<Stages>, SessionError> {
        if self.stages.is_empty() {
            return Ok(None);
        }
        let program = costs.program();
        let nodes: BTreeMap<&str, NodeId> =
            program.node_ids().map(|node| (program.node(node).name.as_str(), node)).collect();
        let mut stages = Stages { order: Vec::new(), sizes: Vec::new(), on: Vec::new() };
        for stage in &self.stages {
            for name in &stage.nodes {
                let unknown = || refused(format!("a stage has the node {name:?}, which is not in the model"));
                stages.order.push(*nodes.get(name.as_str()).ok_or_else(unknown)?);
            }
            let processor = |name: &String| {
                let known = || costs.processors().collect::<Vec<_>>().join(", ");
                let unknown = || refused(format!("a stage is on {name:?}, but the devices of stages are {}", known()));
                costs.processors().position(|known| known == name).ok_or_else(unknown)
            };
            stages.on.push(stage.devices.iter().map(processor).collect::<Result<_, _>>()?);
            stages.sizes.push(stage.nodes.len());
        }
        stages.verify(costs)?;
        Ok(Some(stages))
    }
}

impl Stages {
    /// What a mapping over cuts of the program means: `sizes` are the nodes of each of its stages.
    pub(super) fn of(mapping: &Mapping, order: &[NodeId], sizes: &[usize]) -> Self {
        let size = |interval: &Interval| sizes[interval.stages.clone()].iter().sum();
        Self {
            order: order.to_vec(),
            sizes: mapping.intervals.iter().map(size).collect(),
            on: mapping.intervals.iter().map(|interval| interval.processors.clone()).collect(),
        }
    }

    /// The nodes of a stage.
    pub(super) fn nodes(&self, stage: usize) -> &[NodeId] {
        let before: usize = self.sizes[..stage].iter().sum();
        &self.order[before..before + self.sizes[stage]]
    }

    /// The same over stages that are these themselves.
    pub(super) fn mapping(&self) -> Mapping {
        let sharing = |on: &Vec<usize>| if on.len() == 1 { Sharing::Single } else { Sharing::Replicated };
        let interval = |(at, on): (usize, &Vec<usize>)| Interval {
            stages: at..at + 1,
            processors: on.clone(),
            sharing: sharing(on),
        };
        Mapping { intervals: self.on.iter().enumerate().map(interval).collect() }
    }

    /// Sees that all nodes are there once, each after what it reads, and each processor in one stage at most.
    pub(super) fn verify(&self, costs: &StageCosts) -> Result<(), SessionError> {
        let program = costs.program();
        let name = |node: NodeId| &program.node(node).name;
        let mut seen = vec![false; program.nodes.len()];
        for node in &self.order {
            for input in &program.node(*node).inputs {
                if let Origin::Node(maker) = program.value(*input).origin
                    && !seen[maker.index()]
                {
                    let text = format!("node {:?} comes before {:?}, which it reads", name(*node), name(maker));
                    return Err(refused(text));
                }
            }
            if std::mem::replace(&mut seen[node.index()], true) {
                return Err(refused(format!("node {:?} is in two places", name(*node))));
            }
        }
        if let Some(left) = program.node_ids().find(|node| !seen[node.index()]) {
            return Err(refused(format!("node {:?} is in no stage", name(left))));
        }
        let mut taken = vec![false; costs.processors.len()];
        for processor in self.on.iter().flatten() {
            if std::mem::replace(&mut taken[*processor], true) {
                let name = &costs.processors[*processor].name;
                return Err(refused(format!("{name} is named twice; a device does the work of one stage")));
            }
        }
        match (self.on.iter().position(Vec::is_empty), self.sizes.iter().position(|size| *size == 0)) {
            (Some(at), _) => Err(refused(format!("stage {at} has no device"))),
            (_, Some(at)) => Err(refused(format!("stage {at} has no node"))),
            _ => Ok(()),
        }
    }
}

/// A mapping that cannot be followed.
pub(super) fn refused(text: String) -> SessionError {
    ExecError::new(ErrorKind::PlanFile, text).into()
}
