//! The plan as a file that people read and edit (in the manner of Sucuri's allocation file).
//!
//! A file that is read back decides three things: the device of each node, the bytes of weights that stay on a GPU and,
//! if it still fits, the order of each device. All else is for information, and is made again: transfers, memory,
//! figures. A compiled model keeps its plan in the same form, with the simulation ([`Simulation`]) from which transfers
//! and memory follow bit for bit.

mod simulation;
mod tasks;

pub use simulation::Simulation;

use crate::blocks::{BlockError, BlockSummary};
use crate::{CandidatePlan, Plan, PlanDevice, Residency, Route, Step, Stream, Transfer};
use anabranch_base::quoted::Line;
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Version of the format that this build writes.
const VERSION: u32 = 1;

/// A plan as readable data.
///
/// A file that is read back decides the device of each node, the blocks, and the bytes of weights that stay on a GPU.
/// It also decides the order of each device if the order still fits. All else is for information, and is made again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanFile {
    /// Version of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    version: u32,
    /// The strategy that placed the nodes.
    #[serde(default)]
    pub strategy: String,
    /// Nodes with their devices: each node of the model once.
    nodes: Vec<NodeEntry>,
    /// Devices, each with its nodes in the order in which they run.
    #[serde(default)]
    devices: Vec<DeviceEntry>,
    /// Nodes that are computed together, chunk by chunk. Without this field, blocks are formed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blocks: Option<Vec<BlockEntry>>,
    /// Transfers of the plan.
    #[serde(default)]
    transfers: Vec<TransferEntry>,
    /// Time of the last output in the simulation, in microseconds.
    #[serde(default)]
    makespan_us: f64,
    /// Bytes that are copied or streamed.
    #[serde(default)]
    traffic_bytes: u64,
    /// Plans from which this plan was chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<CandidatePlan>,
    /// Simulation from which the plan was made. Only the plans of compiled models have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub simulation: Option<Simulation>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct NodeEntry {
    /// Name in the lowered model.
    node: String,
    /// Device that runs it.
    device: String,
    /// Reason for this device, as the strategy gives it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    /// Predicted start in microseconds.
    #[serde(default)]
    start_us: f64,
    /// Predicted end in microseconds.
    #[serde(default)]
    end_us: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct BlockEntry {
    /// Name of the block.
    block: String,
    /// Device that runs it.
    device: String,
    /// Nodes that are computed together.
    members: Vec<String>,
    /// Rows in total.
    #[serde(default)]
    rows: usize,
    /// Rows per chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chunk_rows: Option<usize>,
}

/// A block as a plan file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBlock {
    /// Name of the block in the file.
    pub name: String,
    /// Nodes of the block, at least one, all on one device.
    pub members: Vec<NodeId>,
    /// Rows that go through at a time, if the file has them.
    pub chunk_rows: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct DeviceEntry {
    /// Name of the device.
    device: String,
    /// Kind of the device.
    #[serde(default)]
    kind: Option<DeviceKind>,
    /// Bytes that it may hold.
    #[serde(default)]
    limit_bytes: Option<u64>,
    /// Most bytes that the plan needs there.
    #[serde(default)]
    peak_bytes: u64,
    /// Bytes that stay there between runs.
    #[serde(default)]
    resident_bytes: u64,
    /// Bytes of weights that stay there between runs; the others are sent in each run. Without this field, all stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    staying_bytes: Option<u64>,
    /// Its nodes, in the order in which they run.
    #[serde(default)]
    order: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct TransferEntry {
    /// Value that is transferred.
    value: String,
    /// Sending device.
    from: String,
    /// Receiving device.
    to: String,
    /// Size in bytes.
    bytes: u64,
    /// Kind of the transfer: `shared`, `copied` or `streamed`.
    route: String,
    /// Bytes per chunk of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chunk_bytes: Option<u64>,
    /// Number of chunks of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chunks: Option<usize>,
}

/// Reason that a plan file does not fit the program or the machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Line(.0))]
pub struct FileError(String);

impl FileError {
    /// Creates the error of a block whose nodes do not form one.
    pub fn block(block: &str, error: BlockError) -> Self {
        Self(format!("the plan's block {block:?}: {error}"))
    }
}

impl PlanFile {
    /// Returns the file of a plan. `blocks` are the streaming blocks of `program`.
    ///
    /// Their nodes are listed one by one, so that a block can be changed or left out without other edits.
    pub fn of(plan: &Plan, program: &Program, blocks: &[BlockSummary]) -> Self {
        Self {
            version: VERSION,
            strategy: plan.strategy().to_owned(),
            nodes: program.node_ids().flat_map(|node| NodeEntry::all_of(plan, program, node, blocks)).collect(),
            blocks: Some(blocks.iter().map(|block| BlockEntry::of(plan, program, block)).collect()),
            devices: (0..plan.devices().len()).map(|at| DeviceEntry::of(plan, program, at)).collect(),
            transfers: plan.transfers().iter().map(|transfer| TransferEntry::of(plan, program, transfer)).collect(),
            makespan_us: plan.predicted().makespan * 1e6,
            traffic_bytes: plan.traffic().moved().bytes,
            candidates: Vec::new(),
            simulation: None,
        }
    }

    /// Returns the reason for the device of each node of `program`; empty for nodes that the file does not name.
    pub fn reasons(&self, program: &Program) -> Vec<String> {
        let reasons: BTreeMap<&str, &String> = self.nodes.iter().map(|entry| (&*entry.node, &entry.reason)).collect();
        program.nodes.iter().map(|node| reasons.get(&*node.name).copied().cloned().unwrap_or_default()).collect()
    }

    /// Returns the device of each node of `program`.
    ///
    /// # Errors
    /// If the file does not name exactly the program's nodes, or names unknown devices.
    pub fn assignment(&self, program: &Program, devices: &[PlanDevice]) -> Result<Vec<DeviceId>, FileError> {
        let nodes: Vec<&str> = program.nodes.iter().map(|node| &*node.name).collect();
        let devices: Vec<&str> = devices.iter().map(|device| &*device.name).collect();
        self.assigned(&nodes, &devices)
    }

    /// Returns the blocks that the file names, if it has a list of blocks. Only checks that their nodes exist and are
    /// on their device.
    ///
    /// # Errors
    /// If a block names unknown nodes, or nodes of several devices.
    pub fn blocks(
        &self,
        program: &Program,
        devices: &[PlanDevice],
        device_of: &[DeviceId],
    ) -> Result<Option<Vec<ListedBlock>>, FileError> {
        let Some(blocks) = &self.blocks else { return Ok(None) };
        let ids: BTreeMap<&str, NodeId> = program.node_ids().map(|id| (&*program.node(id).name, id)).collect();
        let listed = |entry: &BlockEntry| {
            let member = |name: &String| {
                let BlockEntry { block, device, .. } = entry;
                let node = *ids.get(&**name).ok_or_else(|| {
                    let why = "which the model does not have; the names are listed under \"nodes\"";
                    FileError(format!("the plan's block {block:?} has a node {name:?}, {why}"))
                })?;
                let other = &devices[device_of[node.index()].index()].name;
                match other == device {
                    true => Ok(node),
                    false => Err(FileError(format!(
                        "the plan's block {block:?} is on {device:?}, but its node {name:?} is on {other:?}; put \
                         all its nodes on one device, or remove that node"
                    ))),
                }
            };
            let members = entry.members.iter().map(member).collect::<Result<Vec<_>, _>>()?;
            match members.len() {
                0 => Err(FileError::block(&entry.block, BlockError::few())),
                _ => Ok(ListedBlock { name: entry.block.clone(), members, chunk_rows: entry.chunk_rows }),
            }
        };
        blocks.iter().map(listed).collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// Returns the weights that stay on GPUs, if the file limits them on some GPU.
    pub fn weights(&self, devices: &[PlanDevice]) -> Option<Residency> {
        let device = |name: &str| devices.iter().position(|device| device.name == name).map(|at| DeviceId(at as u32));
        let limit = |entry: &DeviceEntry| device(&entry.device).zip(entry.staying_bytes);
        let limits: BTreeMap<DeviceId, u64> = self.devices.iter().filter_map(limit).collect();
        (!limits.is_empty()).then_some(Residency::Within(limits))
    }

    /// Returns an order of all tasks, numbered as by [`ProgramTasks`](crate::tasks::ProgramTasks), that keeps the
    /// file's order on every device and replaces the simulated order.
    ///
    /// `None` if the file's orders do not list each device's nodes exactly, as after an edit, or if no run could follow
    /// them. O((nodes + edges) · log).
    pub fn order(&self, program: &Program, devices: &[PlanDevice], device_of: &[DeviceId]) -> Option<Vec<TaskId>> {
        let ids: BTreeMap<&str, NodeId> = program.node_ids().map(|id| (&*program.node(id).name, id)).collect();
        let mut before: Vec<Option<NodeId>> = vec![None; program.nodes.len()];
        let mut listed = BTreeSet::new();
        for entry in &self.devices {
            let device = DeviceId(devices.iter().position(|device| device.name == entry.device)? as u32);
            let mut last = None;
            for name in &entry.order {
                let node = *ids.get(&**name)?;
                if device_of.get(node.index()) != Some(&device) || !listed.insert(node) {
                    return None;
                }
                before[node.index()] = last.replace(node);
            }
        }
        if listed.len() != program.nodes.len() {
            return None;
        }
        merged(program, &before)
    }
}

/// Topological order of the nodes in which each comes behind its predecessor `before` it on its device, with the inputs
/// first and the outputs last. `None` if there is a cycle.
fn merged(program: &Program, before: &[Option<NodeId>]) -> Option<Vec<TaskId>> {
    let producers = |node: NodeId| {
        program.node(node).inputs.iter().filter_map(|value: &ValueId| match program.value(*value).origin {
            anabranch_ir::program::Origin::Node(producer) => Some(producer),
            _ => None,
        })
    };
    let mut waits = vec![0usize; before.len()];
    let mut followers: Vec<Vec<NodeId>> = vec![Vec::new(); before.len()];
    for node in program.node_ids() {
        for earlier in producers(node).chain(before[node.index()]) {
            waits[node.index()] += 1;
            followers[earlier.index()].push(node);
        }
    }
    let mut ready: BTreeSet<NodeId> = program.node_ids().filter(|node| waits[node.index()] == 0).collect();
    let count = |from: usize, number: usize| (from as u32..(from + number) as u32).map(TaskId);
    let (nodes, inputs) = (program.nodes.len(), program.inputs.len());
    let mut order: Vec<TaskId> = count(nodes, inputs).collect();
    while let Some(node) = ready.pop_first() {
        order.push(TaskId(node.0));
        for follower in &followers[node.index()] {
            waits[follower.index()] -= 1;
            if waits[follower.index()] == 0 {
                ready.insert(*follower);
            }
        }
    }
    order.extend(count(nodes + inputs, program.outputs.len()));
    (order.len() == nodes + inputs + program.outputs.len()).then_some(order)
}

impl NodeEntry {
    /// Entry of a node; for a block, those of its members, which start and end with it.
    fn all_of(plan: &Plan, program: &Program, id: NodeId, blocks: &[BlockSummary]) -> Vec<Self> {
        let (start, end) = plan.predicted().nodes.get(id.index()).copied().unwrap_or_default();
        let entry = |node: &String, reason: &str| Self {
            node: node.clone(),
            device: plan.device(plan.device_of(id)).name.clone(),
            reason: reason.to_owned(),
            start_us: start * 1e6,
            end_us: end * 1e6,
        };
        match blocks.iter().find(|block| block.node == id) {
            Some(block) => block.members.iter().zip(&block.reasons).map(|(node, reason)| entry(node, reason)).collect(),
            None => vec![entry(&program.node(id).name, plan.reason(id))],
        }
    }
}

impl BlockEntry {
    fn of(plan: &Plan, program: &Program, block: &BlockSummary) -> Self {
        Self {
            block: program.node(block.node).name.clone(),
            device: plan.device(plan.device_of(block.node)).name.clone(),
            members: block.members.clone(),
            rows: block.rows,
            chunk_rows: Some(block.chunk_rows),
        }
    }
}

impl DeviceEntry {
    fn of(plan: &Plan, program: &Program, at: usize) -> Self {
        let (device, memory) = (&plan.devices()[at], &plan.memory().devices()[at]);
        let own = |step: &Step| match step {
            Step::Node(node) if plan.device_of(*node).index() == at => Some(program.node(*node).name.clone()),
            _ => None,
        };
        Self {
            device: device.name.clone(),
            kind: Some(device.kind),
            limit_bytes: device.limit.bytes(),
            peak_bytes: memory.peak(),
            resident_bytes: memory.resident(),
            staying_bytes: plan.weights().limit(DeviceId(at as u32)),
            order: plan.steps().iter().filter_map(own).collect(),
        }
    }
}

impl TransferEntry {
    fn of(plan: &Plan, program: &Program, transfer: &Transfer) -> Self {
        let route = match transfer.route {
            Route::Shared => "shared",
            Route::Copied => "copied",
            Route::Streamed(_) => "streamed",
        };
        Self {
            value: program.value(transfer.value).name.clone(),
            from: plan.device(transfer.from).name.clone(),
            to: plan.device(transfer.to).name.clone(),
            bytes: transfer.bytes,
            route: route.to_owned(),
            chunk_bytes: transfer.stream().map(Stream::chunk_bytes),
            chunks: transfer.stream().map(Stream::chunks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlanOptions;
    use crate::test_programs::{Maker, PlacedProgram, add, relu};

    fn placed() -> PlacedProgram {
        let mut maker = Maker::new();
        let x = maker.input(&[8, 16]);
        let a = maker.node(relu(), &[x], &[8, 16]);
        let b = maker.node(relu(), &[x], &[8, 16]);
        let c = maker.node(add(), &[a, b], &[8, 16]);
        PlacedProgram::new(maker.finish(&[c]), &["cpu", "gpu"], &[0, 1, 0])
    }

    fn written(placed: &PlacedProgram) -> PlanFile {
        let plan = placed.plan(&PlanOptions::default()).expect("feasible");
        let text = serde_json::to_string(&PlanFile::of(&plan, &placed.program, &[])).expect("serialisable");
        serde_json::from_str(&text).expect("what was written")
    }

    #[test]
    fn assignment_and_order_come_back() {
        let placed = placed();
        let file = written(&placed);
        let device_of = file.assignment(&placed.program, &placed.devices).expect("unchanged");
        assert_eq!(device_of, placed.placement.device_of[..3]);
        let order = file.order(&placed.program, &placed.devices, &device_of).expect("unchanged");
        let schedule = anabranch_placement_core::schedule::Schedule { order, ..placed.schedule.clone() };
        let again = PlacedProgram { schedule, ..placed };
        let plan = again.plan(&PlanOptions::default()).expect("the order is sound");
        assert_eq!(PlanFile::of(&plan, &again.program, &[]), file);
    }

    #[test]
    fn edits_are_taken_and_slips_are_named() {
        let placed = placed();
        let mut file = written(&placed);
        file.nodes[0].device = "gpu1".into();
        let device_of = file.assignment(&placed.program, &placed.devices).expect("a device that is there");
        assert_eq!(device_of, [1, 1, 0].map(DeviceId));
        assert_eq!(file.order(&placed.program, &placed.devices, &device_of), None, "the lists are of the old places");
        let slip = |edit: &dyn Fn(&mut PlanFile)| {
            let mut file = file.clone();
            edit(&mut file);
            file.assignment(&placed.program, &placed.devices).expect_err("a slip").to_string()
        };
        type Slip<'a> = (&'a dyn Fn(&mut PlanFile), &'a str);
        let cases: [Slip<'_>; 5] = [
            (&|f| f.nodes[1].device = "gpu7".into(), "puts node \"node1\" on \"gpu7\", but the devices are cpu0, gpu1"),
            (&|f| f.nodes[1].node = "nodeX".into(), "names a node \"nodeX\", which the model does not have"),
            (&|f| f.nodes[1].node = "node0".into(), "names node \"node0\" twice"),
            (&|f| f.nodes.truncate(2), "no device for node \"node2\""),
            (&|f| f.version = 99, "format 99 is newer"),
        ];
        for (edit, text) in cases {
            assert!(slip(edit).contains(text), "{} should contain: {text}", slip(edit));
        }
    }

    #[test]
    fn orders_that_cannot_be_followed_are_left() {
        let placed = placed();
        let mut file = written(&placed);
        let device_of = file.assignment(&placed.program, &placed.devices).expect("unchanged");
        file.devices[0].order.reverse();
        assert_eq!(file.order(&placed.program, &placed.devices, &device_of), None);
    }
}
