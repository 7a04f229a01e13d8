//! Chooses the streaming blocks of a placed program, and contracts each into one node.
//!
//! The blocks are those of a plan file, or those that the options select. In automatic mode, blocks with a predicted
//! gain are kept, if the simulated schedule does not get longer.

use super::constraints::Constraints;
use super::error::PlanningError;
use super::machine::Machine;
use super::placing::{Placed, Placing};
use super::request::{BlockSource, PlacementRequest};
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::place::Reason;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::blocks::{
    self, BlockError, BlockGain, BlockMembers, BlockNode, BlockSummary, Contraction, Forming, Readers, block_node,
    contract, form,
};
use anabranch_plan::plan_file::{FileError, PlanFile, Simulation};
use anabranch_plan::{PlanOptions, StreamMode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Forms the streaming blocks of placed programs.
pub(super) struct BlockPlanner<'a> {
    pub(super) machine: &'a Machine,
    pub(super) options: &'a PlanOptions,
    /// Constraints on the caller's tensors; nodes stay on their devices.
    constraints: Constraints,
}

/// A placed program: as it was lowered, or with its streaming blocks contracted.
pub(super) struct PlacedProgram {
    pub(super) program: Arc<Program>,
    pub(super) placed: Placed,
    pub(super) reasons: Vec<String>,
    pub(super) groups: Vec<BlockMembers>,
    pub(super) blocks: Vec<BlockSummary>,
}

/// A program whose blocks are nodes, with its placement.
struct Joined {
    contraction: Contraction,
    /// Device of each node.
    device_of: Vec<DeviceId>,
    blocks: Vec<BlockSummary>,
}

impl<'a> BlockPlanner<'a> {
    pub(super) fn new(machine: &'a Machine, options: &'a PlanOptions, constraints: &Constraints) -> Self {
        Self { machine, options, constraints: constraints.of_tensors() }
    }

    /// Contracts the program's blocks: those of the plan file if it names any, else those that the options select.
    /// `None` if there is no block.
    ///
    /// # Errors
    /// If the file's blocks do not fit the program or the devices, or the checker finds a fault.
    pub(super) fn contract(
        &self,
        whole: &PlacedProgram,
        request: &PlacementRequest,
    ) -> Result<Option<PlacedProgram>, PlanningError> {
        let (program, placed) = (&*whole.program, &whole.placed);
        let device_of = &placed.placement.device_of[..program.nodes.len()];
        let given = match &request.blocks {
            BlockSource::Formed => None,
            BlockSource::Given { groups, .. } => Some(groups.clone()),
            BlockSource::File { path, plan } => {
                let unfit = |error: FileError| PlanningError::plan_file(path, error);
                self.given(program, device_of, plan).map_err(unfit)?
            }
        };
        let judged = given.is_none() && self.options.streaming == StreamMode::Auto;
        let mut groups = match self.options.streaming {
            StreamMode::Off => Vec::new(),
            StreamMode::Auto | StreamMode::Always => given.unwrap_or_else(|| self.choose(program, device_of)),
        };
        while !groups.is_empty() {
            let streamed = self.contracted(whole, &groups, request)?;
            if !judged || streamed.placed.schedule.makespan <= placed.schedule.makespan {
                return Ok(Some(streamed));
            }
            // A block waits for all its inputs at once, and delays the readers of its outputs. Blocks with neighbours
            // on other devices are therefore given up first.
            let all = groups.len();
            let readers = Readers::of(program);
            groups.retain(|group| is_local(program, &readers, group, device_of));
            if groups.len() == all {
                groups.clear();
            }
        }
        Ok(None)
    }

    /// Selects blocks by the options: under [`StreamMode::Auto`] those with a predicted gain.
    fn choose(&self, program: &Program, device_of: &[DeviceId]) -> Vec<BlockMembers> {
        let mut groups = self.formed_on(program, device_of);
        if self.options.streaming == StreamMode::Auto {
            let (readers, devices) = (Readers::of(program), &self.machine.devices);
            groups.retain(|group| {
                let at = device_of[group.members[0].index()].index();
                block_node(program, &readers, &group.members, group.chunk_rows).is_ok_and(|block| {
                    BlockGain::of(program, &block, &devices[at], &self.machine.predictor(&devices[at])).pays()
                })
            });
        }
        groups
    }

    /// Forms all possible blocks on the devices of the nodes.
    pub(super) fn formed_on(&self, program: &Program, device_of: &[DeviceId]) -> Vec<BlockMembers> {
        form(&Forming {
            program,
            device_of,
            devices: &self.machine.devices,
            mode: self.options.streaming,
            chunk: self.options.chunk,
            supports: &|device, spec, constant| self.machine.supports(device, spec, constant),
        })
    }

    /// Returns the blocks that a plan file names, if it has a list of blocks.
    pub(super) fn given(
        &self,
        program: &Program,
        device_of: &[DeviceId],
        file: &PlanFile,
    ) -> Result<Option<Vec<BlockMembers>>, FileError> {
        let Some(listed) = file.blocks(program, &self.machine.plan_devices(), device_of)? else {
            return Ok(None);
        };
        let readers = Readers::of(program);
        let mut groups = Vec::new();
        for listed in listed {
            let device = device_of[listed.members[0].index()];
            let refuse = |error: BlockError| FileError::block(&listed.name, error);
            let rows = listed.chunk_rows.unwrap_or(usize::MAX);
            let mut block = block_node(program, &readers, &listed.members, rows).map_err(refuse)?;
            if listed.chunk_rows.is_none() {
                block.set_chunk_rows(blocks::chunk_rows(
                    &block,
                    self.options.chunk,
                    &self.machine.devices[device.index()],
                ));
            }
            if !self.machine.supports(device, &block.spec, &constants(program, &block.inputs)) {
                let name = &self.machine.devices[device.index()].name;
                let problem = format!("{name:?} has no kernel for it; leave out the nodes that {name:?} cannot stream");
                return Err(refuse(BlockError::new(problem)));
            }
            groups.push((listed.name, BlockMembers { chunk_rows: block.chunk_rows(), members: block.members }));
        }
        let (names, groups): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
        match contract(program, &groups) {
            Ok(_) => Ok(Some(groups)),
            Err((at, error)) => Err(FileError::block(&names[at], error)),
        }
    }

    /// Contracts `groups` and carries the placement over: every node keeps its device, and a block gets its members'
    /// device.
    ///
    /// A plan file's order is kept if it still fits.
    fn contracted(
        &self,
        whole: &PlacedProgram,
        groups: &[BlockMembers],
        request: &PlacementRequest,
    ) -> Result<PlacedProgram, PlanningError> {
        let PlacedProgram { placed, reasons, .. } = whole;
        let Joined { contraction, device_of, blocks } = self.joined(whole, groups)?;
        let made = &contraction.program;
        let order = match &request.blocks {
            BlockSource::Formed => None,
            BlockSource::Given { order, .. } => order.clone(),
            BlockSource::File { plan, .. } => plan.order(made, &self.machine.plan_devices(), &device_of),
        };
        let placing = self.placing(made, &device_of, &blocks)?;
        let fixed = PlacementRequest { order, ..PlacementRequest::fixed(device_of, request.rule) };
        let mut again = placing.place_roomy(&fixed, &self.machine.room(&self.options.weights))?;
        again.placement.strategy = placed.placement.strategy;
        carry_reasons(&placed.placement.reasons, &contraction.members, &mut again.placement.reasons);
        let reasons = joined_reasons(&contraction.members, reasons);
        let (program, groups) = (Arc::new(contraction.program), groups.to_vec());
        Ok(PlacedProgram { program, placed: again, reasons, groups, blocks })
    }

    /// Restores the blocks of a stored plan with their placement.
    ///
    /// # Errors
    /// If the groups are not blocks, or do not fit the stored placement.
    pub(super) fn restored(
        &self,
        whole: &PlacedProgram,
        groups: &[BlockMembers],
        simulation: &Simulation,
    ) -> Result<PlacedProgram, PlanningError> {
        let Joined { contraction, device_of, blocks } = self.joined(whole, groups)?;
        let placing = self.placing(&contraction.program, &device_of, &blocks)?;
        let placed = placing.restored(device_of, whole.placed.placement.strategy, simulation)?;
        let reasons = joined_reasons(&contraction.members, &whole.reasons);
        let (program, groups) = (Arc::new(contraction.program), groups.to_vec());
        Ok(PlacedProgram { program, placed, reasons, groups, blocks })
    }

    /// Joins each group into one node, at the position of its first member.
    fn joined(&self, whole: &PlacedProgram, groups: &[BlockMembers]) -> Result<Joined, PlanningError> {
        let PlacedProgram { program, placed, .. } = whole;
        let contraction = contract(program, groups).map_err(|(_, error)| PlanningError::invalid(error))?;
        if let Some(fault) = blocks::check(program, &contraction).first() {
            return Err(PlanningError::invalid(fault));
        }
        let device = |nodes: &Vec<NodeId>| placed.placement.device_of[nodes[0].index()];
        let device_of: Vec<DeviceId> = contraction.members.iter().map(device).collect();
        let described =
            |(node, block): &(NodeId, BlockNode)| self.described(whole, *node, block, device_of[node.index()]);
        let blocks = contraction.blocks.iter().map(described).collect();
        Ok(Joined { contraction, device_of, blocks })
    }

    /// Prepares the placing of a contracted program with the predicted costs of its blocks on their devices.
    fn placing<'p>(
        &'p self,
        made: &'p Program,
        device_of: &[DeviceId],
        blocks: &[BlockSummary],
    ) -> Result<Placing<'p>, PlanningError> {
        let mut placing = Placing::new(made, self.machine, &self.constraints)?;
        for block in blocks {
            placing.assume(block.node, device_of[block.node.index()], Some(block.gain.with));
        }
        Ok(placing)
    }

    /// Returns the gain of a block with the best chunks on a device; `None` if the device has no kernel for it.
    pub(super) fn gain_on(&self, program: &Program, block: &BlockNode, device: DeviceId) -> Option<BlockGain> {
        let at = &self.machine.devices[device.index()];
        let mut block = block.clone();
        block.set_chunk_rows(blocks::chunk_rows(&block, self.options.chunk, at));
        let supported = self.machine.supports(device, &block.spec, &constants(program, &block.inputs));
        supported.then(|| BlockGain::of(program, &block, at, &self.machine.predictor(at)))
    }

    /// Describes a block of the contracted program, by its node there.
    fn described(&self, whole: &PlacedProgram, node: NodeId, block: &BlockNode, device: DeviceId) -> BlockSummary {
        let PlacedProgram { program, reasons, .. } = whole;
        let on = &self.machine.devices[device.index()];
        BlockSummary {
            node,
            members: block.members.iter().map(|member| program.node(*member).name.clone()).collect(),
            reasons: block.members.iter().map(|member| reasons[member.index()].clone()).collect(),
            rows: block.rows(),
            chunk_rows: block.chunk_rows(),
            chunk_bytes: block.row_bytes() * block.chunk_rows() as u64,
            kept_bytes: block.kept_bytes(program),
            gain: BlockGain::of(program, block, on, &self.machine.predictor(on)),
        }
    }
}

/// Gives each node of a contracted program the reason of its first member, unless that reason is only that it was
/// given. `members` are indexed by node.
fn carry_reasons(reasons: &[Reason], members: &[Vec<NodeId>], carried: &mut [Reason]) {
    let numbers: BTreeMap<NodeId, usize> =
        members.iter().enumerate().flat_map(|(at, nodes)| nodes.iter().map(move |node| (*node, at))).collect();
    let number = |task: TaskId| numbers.get(&NodeId(task.0)).map_or(task, |at| TaskId(*at as u32));
    for (nodes, carried) in members.iter().zip(carried) {
        *carried = reasons[nodes[0].index()].renumbered(number);
    }
}

/// Explains for each node of a contracted program, in a sentence, why it is on its device. `members` are indexed by
/// node.
fn joined_reasons(members: &[Vec<NodeId>], reasons: &[String]) -> Vec<String> {
    let reason = |nodes: &Vec<NodeId>| match &nodes[..] {
        [node] => reasons[node.index()].clone(),
        nodes => format!("{} nodes that stream; the first: {}", nodes.len(), reasons[nodes[0].index()]),
    };
    members.iter().map(reason).collect()
}

/// Whether a group's nodes read from and make for nodes of their own device alone.
fn is_local(program: &Program, readers: &Readers, group: &BlockMembers, device_of: &[DeviceId]) -> bool {
    let device = device_of[group.members[0].index()];
    let made = |value: &ValueId| match program.value(*value).origin {
        Origin::Node(node) => Some(node),
        Origin::Input | Origin::Constant(_) => None,
    };
    let is_here = |node: NodeId| device_of[node.index()] == device;
    group.members.iter().map(|member| program.node(*member)).all(|member| {
        let read = |value: &ValueId| readers.nodes(*value).iter().all(|reader| is_here(*reader));
        member.inputs.iter().filter_map(made).all(is_here) && member.outputs.iter().all(read)
    })
}

/// For each value, whether it is constant.
fn constants(program: &Program, values: &[ValueId]) -> Vec<bool> {
    values.iter().map(|value| program.constant(*value).is_some()).collect()
}
