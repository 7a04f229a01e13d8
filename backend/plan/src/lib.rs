//! The plan: what every device and link will do, in which order, and in which memory.
//!
//! A [`Plan`] is made once from a placement and its simulated schedule, and then followed to the letter. It fixes
//!
//! - one **total order** over all inputs, nodes, outputs and transfers, in which everything comes after what it needs;
//!   each device and each link does its part of that order from front to back;
//! - the **transfers**: one for each value and device that wants it, and how each travels ([`Route`]);
//! - the **gangs**: which nodes run at the same time and pass each other chunks ([`Stream`]);
//! - the **memory**: which slot of which device holds which value from where to where in the total order, and so every
//!   device's exact peak. What does not fit is refused here.
//!
//! [`check()`] judges a plan from the definitions alone, without the code that made it. [`PlanFile`](crate::plan_file::PlanFile) is
//! what a person reads and edits.

#![forbid(unsafe_code)]

mod arrival;
pub mod blocks;
mod candidate;
mod channels;
mod check;
mod device;
mod error;
mod exec_error;
mod forecast;
mod gang;
mod holding;
mod in_place;
mod kernels;
mod link;
mod memory;
mod needs;
mod order;
pub mod plan_file;
mod predict;
mod ring;
mod slots;
mod staged;
mod stream;
pub mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod test_programs;
mod traffic;
mod transfer;
mod uses;
mod weights;

pub use candidate::CandidatePlan;
pub use check::{Violation, check};
pub use device::GPU_BATCH;
pub use device::{HOST, MachineDevice, PlanDevice};
pub use error::{MemoryShortage, PlanError};
pub use exec_error::ExecError;
pub use forecast::Forecast;
pub(crate) use gang::common_divisor;
pub use holding::{Held, Holding};
pub use in_place::InPlace;
pub use kernels::Kernels;
pub use link::LinkPlan;
pub use link::STAGING;
pub use memory::{Allocation, DeviceMemory, MemoryPlan, SharedConstant};
pub use needs::{KernelNeeds, Needs, PackedConstant};
pub use ring::Ring;
pub use staged::Residency;
pub use stream::{ChunkRule, Stream, StreamMode};
pub use traffic::{Moved, Traffic};
pub use transfer::{Route, Transfer, TransferId};
pub use weights::Weights;

use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_placement_core::place::Placement;
use anabranch_placement_core::platform::DeviceId;
use anabranch_placement_core::schedule::Schedule;
use arrival::Arrivals;
use gang::{Formed, Former};
use order::Total;
use predict::{Lags, Prediction};
use serde::{Deserialize, Serialize};
use staged::Staged;
use std::collections::BTreeMap;
use std::ops::Range;

/// How a plan is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// What is streamed chunk by chunk.
    pub streaming: StreamMode,
    /// How large the chunks of a stream are.
    pub chunk: ChunkRule,
    /// Chunks of one stream that may be under way at a time, ≥ 2: one is filled while one is read. Where members of a gang
    /// need more so as not to wait for each other, there are more.
    pub capacity: u32,
    /// Which weights stay on GPUs between runs.
    pub weights: Residency,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { streaming: StreamMode::Auto, chunk: ChunkRule::Auto, capacity: 3, weights: Residency::Auto }
    }
}

impl PlanOptions {
    /// The same with so much streamed.
    pub fn with_streaming(self, streaming: StreamMode) -> Self {
        Self { streaming, ..self }
    }

    /// The same with chunks of such a size.
    pub fn with_chunk(self, chunk: ChunkRule) -> Self {
        Self { chunk, ..self }
    }

    /// The same with these weights on GPUs.
    pub fn with_weights(self, weights: Residency) -> Self {
        Self { weights, ..self }
    }
}

/// One place of the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The caller's tensor of this index is there, on [`Plan::input_device`].
    Input(usize),
    /// A node runs.
    Node(NodeId),
    /// A value travels.
    Transfer(TransferId),
    /// The caller's output of this index is set aside, on [`Plan::output_device`].
    Output(usize),
}

impl Step {
    /// The node, if it is one.
    pub fn node(self) -> Option<NodeId> {
        match self {
            Self::Node(node) => Some(node),
            Self::Input(_) | Self::Transfer(_) | Self::Output(_) => None,
        }
    }
}

/// What the simulation predicted. Times in seconds from the run's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicted {
    /// Start and end of each node.
    pub nodes: Vec<(f64, f64)>,
    /// Start and end of each transfer.
    pub transfers: Vec<(f64, f64)>,
    /// How long each node works beside what others do then: in a gang less than from start to end, if others are slower.
    pub busy: Vec<f64>,
    /// When the last output is there.
    pub makespan: f64,
    /// Between which makespans a run lies in nine of ten cases; `None` where nobody knows how far to trust a node's cost.
    pub interval: Option<(f64, f64)>,
}

impl Predicted {
    /// The schedule, or what is to be expected of its gangs.
    fn of(program: &Program, schedule: &Schedule, forecast: Option<&Prediction>, transfers: usize) -> Self {
        let span = |node: usize| schedule.tasks.get(node).map_or((0.0, 0.0), |span| (span.start, span.end));
        let (nodes, makespan) = match forecast {
            Some(forecast) => (forecast.nodes.clone(), forecast.makespan),
            None => ((0..program.nodes.len()).map(span).collect(), schedule.makespan),
        };
        let busy = (0..program.nodes.len()).map(span).map(|(start, end)| end - start).collect();
        Self { nodes, transfers: vec![(0.0, 0.0); transfers], busy, makespan, interval: None }
    }
}

/// What every device and link will do. Immutable; made by [`Plan::build`].
#[derive(Clone, Debug)]
pub struct Plan {
    devices: Vec<PlanDevice>,
    /// By task.
    device_of: Vec<DeviceId>,
    /// Of these, nodes and inputs: where the next begin.
    nodes: usize,
    inputs: usize,
    steps: Vec<Step>,
    transfers: Vec<Transfer>,
    gangs: Vec<Range<usize>>,
    links: Vec<LinkPlan>,
    memory: MemoryPlan,
    predicted: Predicted,
    reasons: Vec<String>,
    strategy: String,
    weights: Residency,
}

impl Plan {
    /// Plans `program` on `devices`: task `t` on `placement.device_of[t]`, everything in the order of `schedule.order`.
    /// Tasks are numbered as [`ProgramTasks`](crate::tasks::ProgramTasks) numbers them. `reasons` holds a sentence for
    /// each node, or is empty.
    ///
    /// O(s log s + t²) for s steps and t values that are alive at the same time, and O(c s log s) for c nodes between which
    /// something might be streamed.
    ///
    /// # Errors
    /// If placement or schedule do not belong to the program, a node has no kernel on its device, or a device's memory does
    /// not hold what the plan puts there.
    pub fn build(
        program: &Program,
        devices: &[PlanDevice],
        placement: &Placement,
        schedule: &Schedule,
        reasons: Vec<String>,
        needs: &dyn Needs,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        let device_of = order::verified(program, devices, &placement.device_of, &schedule.order)?;
        let needs = needs::all(program, devices, &device_of, needs)?;
        let staged = Staged::of(program, devices, &device_of, &needs, &options.weights);
        let uses = uses::Uses::of(program, &device_of, &staged);
        let mut transfers = transfer::all(program, devices, &device_of, &uses);
        let lags = Lags::of(&transfers, schedule);
        let places = order::places(&schedule.order);
        let former =
            Former { program, devices, device_of: &device_of, uses: &uses, schedule, lags: &lags, options, places };
        let Formed { gangs, order, forecast } = former.form();
        transfer::stream(program, &uses, schedule, options, &gangs, &mut transfers);
        let arrivals = Arrivals::new(&uses, &order, &gangs);
        let planned = |early: bool, piece: u64| {
            let (mut transfers, mut ahead) = (transfers.clone(), staged.transfers(program, &arrivals, early));
            if !early {
                arrivals.delay(&mut transfers, &mut ahead);
            }
            let total = order::total(program, &order, transfers, ahead, &gangs);
            let predicted = Predicted::of(program, schedule, forecast.as_ref(), total.transfers.len());
            let links = link::all(devices, &total.transfers, piece);
            let memory = memory::plan(&memory::Frame {
                program,
                devices,
                device_of: &device_of,
                uses: &uses,
                steps: &total.steps,
                gangs: &total.gangs,
                transfers: &total.transfers,
                links: &links,
                staged: &staged,
                needs: &needs,
                expected: &predicted.nodes,
            })?;
            Ok((total, predicted, links, memory))
        };
        // Where memory is short, smaller staging buffers, and then what is copied goes only when its reader's turn comes.
        let mut made = planned(true, STAGING.bytes);
        for early in [true, false] {
            made = match made {
                Err(short @ PlanError::Memory(_)) => {
                    planned(early, link::SMALL_STAGING).map_err(|error| memory::nearer(short, error))
                }
                made => made,
            };
        }
        let (Total { steps, transfers, gangs }, predicted, links, memory) = made?;
        let strategy = placement.strategy.to_owned();
        let devices = devices.to_vec();
        let (nodes, inputs) = (program.nodes.len(), program.inputs.len());
        Ok(Self {
            devices,
            device_of,
            nodes,
            inputs,
            steps,
            transfers,
            gangs,
            links,
            memory,
            predicted,
            reasons,
            strategy,
            weights: staged.residency(),
        })
    }

    /// The same with so many buffers in each ring, whatever was proven: to test what the checker keeps out.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_capacity(mut self, capacity: u32) -> Self {
        for transfer in &mut self.transfers {
            if let Route::Streamed(stream) = &mut transfer.route {
                stream.capacity = capacity;
            }
        }
        self.links.iter_mut().for_each(|link| link.ring.depth = u64::from(capacity));
        self.memory = self.memory.with_ring_depth(u64::from(capacity));
        self
    }

    /// The same plan with another prediction of it.
    pub fn with_prediction(self, predicted: Predicted) -> Self {
        Self { predicted, ..self }
    }

    /// The devices; the first is the host, which holds inputs and outputs that no GPU keeps.
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

    /// The device on which the caller gives an input: the host, or a GPU that keeps it from run to run.
    pub fn input_device(&self, index: usize) -> DeviceId {
        self.device_of[self.nodes + index]
    }

    /// The device on which the caller receives an output, likewise.
    pub fn output_device(&self, index: usize) -> DeviceId {
        self.device_of[self.nodes + self.inputs + index]
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

    /// What passes between devices.
    pub fn traffic(&self) -> Traffic {
        self.transfers.iter().collect()
    }

    /// What happens at the same time: places of nodes and of the streams between them, and of each stream over a link with
    /// its one reader. Within such a range nobody waits but for chunks, or for room for them.
    pub fn gangs(&self) -> &[Range<usize>] {
        &self.gangs
    }

    /// The links over which bytes are moved.
    pub fn links(&self) -> &[LinkPlan] {
        &self.links
    }

    /// The weights that each GPU is sent in a run, where it is sent any.
    pub fn staged(&self, program: &Program) -> BTreeMap<DeviceId, Moved> {
        let mut staged: BTreeMap<DeviceId, Moved> = BTreeMap::new();
        for transfer in self.transfers.iter().filter(|transfer| program.constant(transfer.value).is_some()) {
            let moved = staged.entry(transfer.to).or_default();
            (moved.transfers, moved.bytes) = (moved.transfers + 1, moved.bytes + transfer.bytes);
        }
        staged
    }

    /// Which weights stay on GPUs between runs: all, or so many bytes on those to which others are sent.
    pub fn weights(&self) -> &Residency {
        &self.weights
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

    /// The value's device of origin: its node's, or that on which the caller gives it. `None` for a constant.
    pub fn origin(&self, program: &Program, value: ValueId) -> Option<DeviceId> {
        uses::origin(program, &self.device_of, value)
    }
}
