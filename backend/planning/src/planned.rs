//! A program lowered for one set of input shapes, and its plans. Nothing is allocated on any device yet.

use super::placing::Placed;
use super::request::PlanChoice;
use super::split::DividedBatch;
use anabranch_ir::program::{NodeId, Program};
use anabranch_onnx::lower::Continuation;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::blocks::{BlockMembers, BlockSummary};
use anabranch_plan::{CandidatePlan, Displaced, Kernels, Plan, StreamMode, Weights};
use std::sync::Arc;
use std::time::Duration;

/// A program with its plan. Nothing is allocated on any device yet.
pub struct Planned {
    /// Lowered program, with its streaming blocks as nodes.
    pub program: Arc<Program>,
    /// Streaming blocks of the program, by their nodes.
    pub blocks: Vec<BlockSummary>,
    /// Placement with its predicted costs and schedule.
    pub placed: Placed,
    /// Time taken by placing and planning.
    pub place_time: Duration,
    /// Plans from which this plan was chosen, including itself, the shortest first. Empty if there was no choice.
    pub candidates: Vec<CandidatePlan>,
    /// Device of each task of the program before its blocks were formed.
    pub(super) device_of: Vec<DeviceId>,
    /// Nodes of that program that form its blocks.
    pub(super) groups: Vec<BlockMembers>,
    /// Whether the plan differs from the requested plan, because that did not fit.
    pub(super) repaired: bool,
    /// Nodes that left the devices of the request because memory is short, in the order of the devices.
    pub displaced: Vec<Displaced>,
    /// Mode of streaming that the plan used.
    pub(super) streaming: StreamMode,
    pub(super) plan: Arc<Plan>,
    pub(super) weights: Arc<Weights>,
    #[doc(hidden)]
    pub rest: Option<Arc<Continuation>>,
    /// The program with the rows of its batch divided, if they are.
    pub divided: Option<Arc<DividedBatch>>,
    /// Choice with which this phase was planned, and with which later phases are planned.
    pub choice: PlanChoice,
}

/// A model lowered for one set of input shapes, and the weights that its plans share with plans for other shapes.
pub struct Lowered {
    /// The program.
    pub program: Arc<Program>,
    /// The weights.
    pub weights: Arc<Weights>,
    /// Rest of the model after this program; `None` if the program is the whole model.
    pub rest: Option<Arc<Continuation>>,
}

impl Planned {
    /// Returns the same plan under the name of the strategy that made it, as users know it.
    pub fn named(mut self, strategy: &str) -> Self {
        Arc::make_mut(&mut self.plan).set_strategy(strategy);
        self
    }

    /// Returns the plan of every device and link.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the rest of the model after this program, whose shapes depend on computed values; `None` if the program
    /// is the whole model.
    pub fn rest(&self) -> Option<&Continuation> {
        self.rest.as_deref()
    }

    /// Returns kernels for the program's nodes, none of them prepared yet.
    pub fn kernels(&self) -> Kernels {
        Kernels::with(Arc::clone(&self.program), Arc::clone(&self.weights))
    }

    /// Whether both plans do the same work on the same devices in the same order.
    ///
    /// Plans of later phases are unknown: they may differ if the choices do.
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

    /// Returns the node's block, if the node is a block.
    pub fn block(&self, node: NodeId) -> Option<&BlockSummary> {
        self.blocks.iter().find(|block| block.node == node)
    }
}

impl Lowered {
    /// Returns kernels for a program derived from this one, none of them prepared yet.
    pub fn kernels(&self, program: &Arc<Program>) -> Kernels {
        Kernels::with(Arc::clone(program), Arc::clone(&self.weights))
    }
}
