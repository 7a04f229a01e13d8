//! Nodes and devices of each stage, as a pipeline file holds them and people edit them.

use super::costs::StageCosts;
use super::feedback::{Feedback, stages_of};
use super::teams::group_name;
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::files;
use anabranch_execute::ExecError;
use anabranch_ir::program::{NodeId, Origin, Program};
use anabranch_placement::pipeline::{Interval, Mapping, Sharing};
use anabranch_session::SessionError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The stages of a pipeline, in the order in which data passes them.
///
/// If there are none, each data set runs on all devices together, as in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StageMapping {
    /// The stages.
    pub stages: Vec<StageDevices>,
}

/// Devices and nodes of one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StageDevices {
    /// The devices, each of which does the whole work of the stage for some of the data sets. Or one group of cores of
    /// one CPU device, joined as in `cpu0.0+cpu0.1`, which work at each data set together.
    pub devices: Vec<String>,
    /// Names of the stage's nodes, in an order in which each comes after the nodes that it reads.
    pub nodes: Vec<String>,
}

/// A mapping of this program to these processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stages {
    /// All nodes, in a topological order.
    pub(super) order: Vec<NodeId>,
    /// Number of nodes of each stage.
    pub(super) sizes: Vec<usize>,
    /// Processors of each stage.
    pub(super) on: Vec<On>,
}

/// Processors of a stage, and how they share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct On {
    pub(super) processors: Vec<usize>,
    pub(super) sharing: Sharing,
}

impl On {
    /// Returns one processor, or several that each work at another data set.
    pub(super) fn each(processors: Vec<usize>) -> Self {
        let sharing = if processors.len() == 1 { Sharing::Single } else { Sharing::Replicated };
        Self { processors, sharing }
    }

    /// Returns cores that work at each data set together.
    pub(super) fn group(cores: Vec<usize>) -> Self {
        let sharing = if cores.len() == 1 { Sharing::Single } else { Sharing::DataParallel };
        Self { processors: cores, sharing }
    }

    /// Groups of processors that take data sets: each processor, or all of them as one.
    pub(super) fn takers(&self) -> impl ExactSizeIterator<Item = &[usize]> {
        let size = if self.sharing == Sharing::DataParallel { self.processors.len() } else { 1 };
        self.processors.chunks(size.max(1))
    }
}

impl StageMapping {
    /// Reads a mapping from a file.
    ///
    /// # Errors
    /// If it cannot be read, or is not a mapping.
    pub fn read(path: &Path) -> Result<Self, SessionError> {
        let refused = |error: String| refused(format!("{}: {error}", path.display()));
        let text = files::read(path, files::MOST_BYTES).map_err(|error| refused(error.to_string()))?;
        let wrong = |error| refused(format!("{error}; `anabranch formats stages` shows an example"));
        serde_json::from_slice(&text).map_err(wrong)
    }

    pub(super) fn of(stages: &Stages, costs: &StageCosts) -> Self {
        let stage = |(at, on): (usize, &On)| StageDevices {
            devices: on.takers().map(|taker| group_name(taker, &costs.processors)).collect(),
            nodes: stages.nodes(at).iter().map(|node| costs.program().node(*node).name.clone()).collect(),
        };
        Self { stages: stages.on.iter().enumerate().map(stage).collect() }
    }

    /// Resolves the mapping for a program and the processors of this machine; `None` for all devices together.
    pub(super) fn stages(&self, costs: &StageCosts) -> Result<Option<Stages>, SessionError> {
        if self.stages.is_empty() {
            return Ok(None);
        }
        let lists: Vec<&[String]> = self.stages.iter().map(|stage| stage.nodes.as_slice()).collect();
        let (order, sizes) = resolved(costs.program(), &lists)?;
        let on = self.stages.iter().map(|stage| stage.on(costs)).collect::<Result<_, _>>()?;
        let stages = Stages { order, sizes, on };
        stages.verify(costs)?;
        Ok(Some(stages))
    }
}

impl StageDevices {
    fn on(&self, costs: &StageCosts) -> Result<On, SessionError> {
        let processor = |name: &str| {
            let known = || costs.processors().collect::<Vec<_>>().join(", ");
            let unknown = || refused(format!("a stage is on {name:?}, but the devices of stages are {}", known()));
            costs.processors().position(|known| known == name).ok_or_else(unknown)
        };
        let group = |name: &String| name.split('+').map(processor).collect::<Result<Vec<_>, _>>();
        let mut takers = self.devices.iter().map(group).collect::<Result<Vec<_>, _>>()?;
        match &mut takers[..] {
            [only] => Ok(On::group(std::mem::take(only))),
            several if several.iter().all(|taker| taker.len() == 1) => Ok(On::each(takers.concat())),
            _ => Err(refused(format!(
                "a stage is on {}; use either one group of cores, or devices that take turns",
                self.devices.join(", ")
            ))),
        }
    }
}

impl Stages {
    /// Resolves a mapping over cuts of the program. `sizes` holds the number of nodes of each cut.
    pub(super) fn of(mapping: &Mapping, order: &[NodeId], sizes: &[usize]) -> Self {
        let size = |interval: &Interval| sizes[interval.stages.clone()].iter().sum();
        let on = |interval: &Interval| match interval.sharing {
            Sharing::Single | Sharing::Replicated => On::each(interval.processors.clone()),
            Sharing::DataParallel => On::group(interval.processors.clone()),
        };
        Self {
            order: order.to_vec(),
            sizes: mapping.intervals.iter().map(size).collect(),
            on: mapping.intervals.iter().map(on).collect(),
        }
    }

    /// Returns the nodes of a stage.
    pub(super) fn nodes(&self, stage: usize) -> &[NodeId] {
        let before: usize = self.sizes[..stage].iter().sum();
        &self.order[before..before + self.sizes[stage]]
    }

    /// Returns the mapping of these stages, each of which is an interval of its own.
    pub(super) fn mapping(&self) -> Mapping {
        let interval = |(at, on): (usize, &On)| Interval {
            stages: at..at + 1,
            processors: on.processors.clone(),
            sharing: on.sharing,
        };
        Mapping { intervals: self.on.iter().enumerate().map(interval).collect() }
    }

    /// Verifies that each node is there once and after the nodes that it reads, that no processor is in two stages, and
    /// that groups are possible.
    pub(super) fn verify(&self, costs: &StageCosts) -> Result<(), SessionError> {
        verify_order(costs.program(), &self.order)?;
        self.verify_states(costs)?;
        let mut taken = vec![false; costs.processors.len()];
        for processor in self.on.iter().flat_map(|on| &on.processors) {
            if std::mem::replace(&mut taken[*processor], true) {
                let name = &costs.processors[*processor].name;
                return Err(refused(format!("{name} is named twice; use each device in one stage")));
            }
        }
        if let Some(at) = self.on.iter().position(|on| on.processors.is_empty()) {
            return Err(refused(format!("stage {at} has no device")));
        }
        self.on.iter().flat_map(On::takers).try_for_each(|taker| costs.taker(taker).map(drop))
    }
}

impl Stages {
    /// Verifies that each state stays in one stage, and that such a stage has one device.
    fn verify_states(&self, costs: &StageCosts) -> Result<(), SessionError> {
        Feedback::verify(&costs.states, costs.program(), &self.order, &self.sizes)?;
        let stage_of = stages_of(&self.order, &self.sizes);
        let stage = |node: NodeId| stage_of[node.index()];
        let shared = |state: &&Feedback| self.on[state.home(stage)].takers().len() > 1;
        match costs.states.iter().find(shared) {
            Some(state) => Err(refused(format!(
                "stage {} keeps the state {:?}, so that one device does all its work; leave out the others",
                state.home(stage),
                costs.program().value(state.input).name
            ))),
            None => Ok(()),
        }
    }
}

/// Returns the nodes of all stages in one order, and the number of nodes of each stage, of stages given as the names of
/// their nodes.
///
/// # Errors
/// If a stage is empty, or the nodes are not all nodes of the program in a topological order.
pub(super) fn resolved(
    program: &Program,
    stages: &[impl AsRef<[String]>],
) -> Result<(Vec<NodeId>, Vec<usize>), SessionError> {
    let nodes: BTreeMap<&str, NodeId> =
        program.node_ids().map(|node| (program.node(node).name.as_str(), node)).collect();
    let (mut order, mut sizes) = (Vec::new(), Vec::new());
    for (at, names) in stages.iter().map(AsRef::as_ref).enumerate() {
        if names.is_empty() {
            return Err(refused(format!("stage {at} has no node")));
        }
        for name in names {
            let unknown = || refused(format!("a stage has the node {name:?}, but the model does not"));
            order.push(*nodes.get(name.as_str()).ok_or_else(unknown)?);
        }
        sizes.push(names.len());
    }
    verify_order(program, &order)?;
    Ok((order, sizes))
}

/// Verifies that each node is there once and after the nodes that it reads.
fn verify_order(program: &Program, order: &[NodeId]) -> Result<(), SessionError> {
    let name = |node: NodeId| &program.node(node).name;
    let mut seen = vec![false; program.nodes.len()];
    for node in order {
        for input in &program.node(*node).inputs {
            if let Origin::Node(maker) = program.value(*input).origin
                && !seen[maker.index()]
            {
                let text = format!("node {:?} comes before {:?}, which it reads", name(*node), name(maker));
                return Err(refused(text));
            }
        }
        if std::mem::replace(&mut seen[node.index()], true) {
            return Err(refused(format!("node {:?} is in two stages", name(*node))));
        }
    }
    match program.node_ids().find(|node| !seen[node.index()]) {
        Some(left) => Err(refused(format!("node {:?} is in no stage", name(left)))),
        None => Ok(()),
    }
}

/// Returns the error of a mapping that cannot be followed.
pub(super) fn refused(text: String) -> SessionError {
    ExecError::new(ErrorKind::PlanFile, text).into()
}
