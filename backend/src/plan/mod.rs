//! The plan: what every device and link will do, in which order, and in which memory.
//!
//! A [`Plan`] is made once from a placement and its simulated schedule, and then followed to the letter. It fixes
//!
//! - one **total order** over all inputs, nodes, outputs and transfers, in which everything comes after what it needs;
//!   each device and each link does its part of that order from front to back;
//! - the **transfers**: one for each value and device that wants it, and how each travels ([`Route`]);
//! - the **memory**: which slot of which device holds which value from where to where in the total order, and so every
//!   device's exact peak. What does not fit is refused here.
//!
//! [`check()`] judges a plan from the definitions alone, without the code that made it. [`PlanFile`] is what a person reads
//! and edits.

#![forbid(unsafe_code)]

mod check;
mod error;
mod file;
mod lifetime;
mod link;
mod memory;
mod needs;
mod order;
mod slots;
mod stream;
#[cfg(test)]
pub(crate) mod test_programs;
mod transfer;

pub use check::{Violation, check};
pub use error::{MemoryShortage, PlanError};
pub use file::{FileError, ListedBlock, PlanFile};
pub use link::LinkPlan;
pub use memory::{DeviceMemory, MemoryPlan, Tenancy};
pub use needs::{KernelNeeds, Needs};
pub use stream::{ChunkRule, Stream, StreamMode};
pub use transfer::{Route, Transfer, TransferId};

use crate::program::{NodeId, Program, ValueId};
use anabranch_placement::place::Placement;
use anabranch_placement::platform::{DeviceId, DeviceKind};
use anabranch_placement::schedule::Schedule;

/// A device as a plan sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanDevice {
    /// Its name, unique among the devices.
    pub name: String,
    /// Its kind. CPU devices share one memory: tensors pass between them without a copy.
    pub kind: DeviceKind,
    /// The most bytes that the plan may take of its memory.
    pub limit: Option<u64>,
}

/// How a plan is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// What is streamed chunk by chunk.
    pub streaming: StreamMode,
    /// How large the chunks of a stream are.
    pub chunk: ChunkRule,
    /// Chunks of one stream that may be under way at a time, ≥ 2: one is filled while one is read.
    pub capacity: u32,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { streaming: StreamMode::Auto, chunk: ChunkRule::Auto, capacity: 3 }
    }
}

/// One place of the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The caller's tensor of this index is there, on the host.
    Input(usize),
    /// A node runs.
    Node(NodeId),
    /// A value travels.
    Transfer(TransferId),
    /// The caller's output of this index is set aside, on the host.
    Output(usize),
}

/// What the simulation predicted. Times in seconds from the run's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicted {
    /// Start and end of each node.
    pub nodes: Vec<(f64, f64)>,
    /// When the last output is there.
    pub makespan: f64,
    /// Bytes of all transfers.
    pub traffic: u64,
}

/// What every device and link will do. Immutable; made by [`Plan::build`].
#[derive(Clone, Debug)]
pub struct Plan {
    devices: Vec<PlanDevice>,
    device_of: Vec<DeviceId>,
    steps: Vec<Step>,
    transfers: Vec<Transfer>,
    links: Vec<LinkPlan>,
    memory: MemoryPlan,
    predicted: Predicted,
    reasons: Vec<String>,
    strategy: String,
}

impl Plan {
    /// Plans `program` on `devices`: node `n` on `placement.device_of[n]`, everything in the order of `schedule.order`.
    /// Tasks are numbered as [`ProgramTasks`](crate::tasks::ProgramTasks) numbers them. `reasons` holds a sentence for
    /// each node, or is empty.
    ///
    /// O(s log s + t²) for s steps and t values that are alive at the same time.
    ///
    /// # Errors
    /// If placement or schedule do not belong to the program, a node has no kernel on its device, or a device's memory does
    /// not hold what the plan puts there.
    pub fn build(
        program: &Program,
        devices: &[PlanDevice],
        (placement, schedule): (&Placement, &Schedule),
        reasons: Vec<String>,
        needs: &dyn Needs,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        let device_of = order::verified(program, devices, &placement.device_of, &schedule.order)?;
        let uses = lifetime::Uses::of(program, &device_of);
        let transfers = transfer::all(program, devices, &device_of, &uses, (schedule, options));
        let (steps, transfers) = order::total(program, &schedule.order, transfers);
        let links = link::all(devices, &transfers);
        let memory = memory::plan(&memory::Frame {
            program,
            devices,
            device_of: &device_of,
            uses: &uses,
            steps: &steps,
            transfers: &transfers,
            links: &links,
            needs,
        })?;
        let span = |node: usize| schedule.tasks.get(node).map_or((0.0, 0.0), |span| (span.start, span.end));
        let predicted = Predicted {
            nodes: (0..program.nodes.len()).map(span).collect(),
            makespan: schedule.makespan,
            traffic: schedule.traffic,
        };
        let strategy = placement.strategy.to_owned();
        let devices = devices.to_vec();
        Ok(Self { devices, device_of, steps, transfers, links, memory, predicted, reasons, strategy })
    }

    /// The devices; the first is the host, which holds inputs and outputs.
    pub fn devices(&self) -> &[PlanDevice] {
        &self.devices
    }

    /// A device.
    pub fn device(&self, id: DeviceId) -> &PlanDevice {
        &self.devices[id.index()]
    }

    /// The device of a node.
    pub fn device_of(&self, node: NodeId) -> DeviceId {
        self.device_of[node.index()]
    }

    /// Everything that happens, in the total order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The transfers, by their place in the total order.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// A transfer.
    pub fn transfer(&self, id: TransferId) -> &Transfer {
        &self.transfers[id.index()]
    }

    /// The links over which bytes are moved.
    pub fn links(&self) -> &[LinkPlan] {
        &self.links
    }

    /// Who is where in memory.
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }

    /// What the simulation predicted.
    pub fn predicted(&self) -> &Predicted {
        &self.predicted
    }

    /// Why a node is where it is, in a sentence; empty if nobody said.
    pub fn reason(&self, node: NodeId) -> &str {
        self.reasons.get(node.index()).map_or("", String::as_str)
    }

    /// The strategy that placed the nodes.
    pub fn strategy(&self) -> &str {
        &self.strategy
    }

    /// The value's device of origin: its node's, or the host for an input. `None` for a constant.
    pub fn origin(&self, program: &Program, value: ValueId) -> Option<DeviceId> {
        lifetime::origin(program, &self.device_of, value)
    }
}
