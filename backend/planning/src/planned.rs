//! A program lowered for one set of input shapes, and its plans: nothing is taken on any device yet.

use super::placing::Placed;
use super::request::PlanChoice;
use anabranch_ir::program::{NodeId, Program};
use anabranch_onnx::lower::Rest;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::blocks::{BlockMembers, BlockSummary};
use anabranch_plan::{CandidatePlan, Kernels, Plan, StreamMode, Weights};
use std::sync::Arc;
use std::time::Duration;

/// A program with its plan: nothing is taken on any device yet.
pub struct Planned {
    /// The lowered program, whose streaming blocks are nodes.
    pub program: Arc<Program>,
    /// Its streaming blocks, by their nodes.
    pub blocks: Vec<BlockSummary>,
    /// The placement, its predicted costs and its predicted schedule.
    pub placed: Placed,
    /// How long placing and planning took.
    pub place_time: Duration,
    /// The plans that this one was chosen from, the shortest first: itself, and others. Empty if there was no choice.
    pub candidates: Vec<CandidatePlan>,
    /// The device of each task of the program before its blocks were made.
    pub(super) device_of: Vec<DeviceId>,
    /// The nodes of that program that are its blocks.
    pub(super) groups: Vec<BlockMembers>,
    /// Whether it is another than was asked for, because that did not fit.
    pub(super) repaired: bool,
    /// What was streamed.
    pub(super) streaming: StreamMode,
    pub(super) plan: Arc<Plan>,
    pub(super) weights: Arc<Weights>,
    #[doc(hidden)]
    pub rest: Option<Arc<Rest>>,
    /// The choice with which this phase was planned, and with which later phases are planned.
    pub choice: PlanChoice,
}

/// A model lowered for one set of input shapes, and the weights that all its plans share with those for other shapes.
pub struct Lowered {
    /// The program.
    pub program: Arc<Program>,
    /// The weights.
    pub weights: Arc<Weights>,
    /// What is left of the model when the program has run; `None` if it is all of it.
    pub rest: Option<Arc<Rest>>,
}

impl Planned {
    /// What every device and link will do.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// What is left of the model when the program has run, because only computed values tell its shapes; `None` if it is all of it.
    pub fn rest(&self) -> Option<&Rest> {
        self.rest.as_deref()
    }

    /// Kernels for the program's nodes, none of them prepared yet.
    pub fn kernels(&self) -> Kernels {
        Kernels::with(Arc::clone(&self.program), Arc::clone(&self.weights))
    }

    /// Whether a run of the other does the same on the same devices in the same order. Plans of later phases are not known: they may differ if the
    /// choices do.
    pub fn is_same_plan(&self, other: &Self) -> bool {
        let nodes = |planned: &Self| planned.program.nodes.len();
        let same = |node: NodeId| {
            let (ours, theirs) = (self.program.node(node), other.program.node(node));
            ours.name == theirs.name
                && ours.spec == theirs.spec
                && self.plan.device_of(node) == other.plan.device_of(node)
        };
        let later = self.rest.is_none() || self.choice == other.choice;
        later
            && nodes(self) == nodes(other)
            && self.program.node_ids().all(same)
            && self.plan.steps() == other.plan.steps()
            && self.plan.transfers() == other.plan.transfers()
    }

    /// The block that a node is, if it is one.
    pub fn block(&self, node: NodeId) -> Option<&BlockSummary> {
        self.blocks.iter().find(|block| block.node == node)
    }
}

impl Lowered {
    /// Kernels for a program that was made of this one, none of them prepared yet.
    pub fn kernels(&self, program: &Arc<Program>) -> Kernels {
        Kernels::with(Arc::clone(program), Arc::clone(&self.weights))
    }
}
