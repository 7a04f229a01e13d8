//! The plan: the work of every device and link, its order, and its memory.
//!
//! A [`Plan`] is made once from a placement and its simulated schedule, and then followed exactly. It fixes
//!
//! - one **total order** over all inputs, nodes, outputs and transfers, in which everything comes after its inputs;
//!   each device and each link does its part of that order from front to back;
//! - the **transfers**: one for each value and device that reads it, with its route ([`Route`]);
//! - the **gangs**: groups of nodes that run at the same time and pass each other chunks ([`Stream`]);
//! - the **memory**: the slot of each value on each device, with the range of the total order in which it holds the
//!   value, and thus every device's exact peak. A plan that does not fit is rejected here.
//!
//! [`check()`] checks a plan from the definitions alone, without the code that made it.
//! [`PlanFile`](crate::plan_file::PlanFile) is the form that people read and edit.

#![forbid(unsafe_code)]

mod arrival;
pub mod blocks;
mod candidate;
mod channels;
mod check;
mod device;
mod displaced;
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
mod ring;
mod slots;
mod staged;
mod stream;
pub mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod test_programs;
mod timeline;
mod traffic;
mod transfer;
mod uses;
mod weights;

pub use candidate::CandidatePlan;
pub use check::{Violation, check};
pub use device::{GPU_BATCH, gpu_batch};
pub use device::{HOST, MachineDevice, PlanDevice};
pub use displaced::Displaced;
pub use error::{MemoryShortage, PlanError};
pub use exec_error::ExecError;
pub use forecast::Forecast;
pub(crate) use gang::common_divisor;
pub use holding::{Holding, MemoryItem};
pub use in_place::InPlace;
pub use kernels::Kernels;
pub use link::LinkPlan;
pub use link::{ROUND, STAGING};
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
use gang::{Former, Gangs};
use order::Total;
use serde::{Deserialize, Serialize};
use staged::Staged;
use std::collections::BTreeMap;
use std::ops::Range;
use timeline::Lags;

/// Options of making a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// Mode of streaming in chunks.
    pub streaming: StreamMode,
    /// Rule for the size of a stream's chunks.
    pub chunk: ChunkRule,
    /// Least number of chunks of one stream in flight, ≥ 2: one is filled while one is read. If members of a gang would
    /// otherwise wait for each other, there are more.
    pub capacity: u32,
    /// Weights that stay on GPUs between runs.
    pub weights: Residency,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { streaming: StreamMode::Auto, chunk: ChunkRule::Auto, capacity: 3, weights: Residency::Auto }
    }
}

impl PlanOptions {
    /// Sets the mode of streaming (default: [`StreamMode::Auto`]).
    pub fn with_streaming(self, streaming: StreamMode) -> Self {
        Self { streaming, ..self }
    }

    /// Sets the rule for the size of chunks (default: [`ChunkRule::Auto`]).
    pub fn with_chunk(self, chunk: ChunkRule) -> Self {
        Self { chunk, ..self }
    }

    /// Sets the weights that stay on GPUs (default: [`Residency::Auto`]).
    pub fn with_weights(self, weights: Residency) -> Self {
        Self { weights, ..self }
    }
}

/// A step of the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The caller's input of this index is present, on [`Plan::input_device`].
    Input(usize),
    /// A node runs.
    Node(NodeId),
    /// A value is transferred.
    Transfer(TransferId),
    /// The caller's output of this index is set aside, on [`Plan::output_device`].
    Output(usize),
}

impl Step {
    /// Returns the node, if the step runs a node.
    pub fn node(self) -> Option<NodeId> {
        match self {
            Self::Node(node) => Some(node),
            Self::Input(_) | Self::Transfer(_) | Self::Output(_) => None,
        }
    }
}

/// Forecast of a plan. Times are in seconds from the run's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicted {
    /// Start and end of each node.
    pub nodes: Vec<(f64, f64)>,
    /// Start and end of each transfer.
    pub transfers: Vec<(f64, f64)>,
    /// Seconds that each node works: in a gang less than from start to end, if other members are slower.
    pub busy: Vec<f64>,
    /// Time at which the last output is present.
    pub makespan: f64,
    /// 90 % prediction interval of the makespan; `None` if the uncertainty of a node's cost is unknown.
    pub interval: Option<(f64, f64)>,
}

/// Work of every device and link. Immutable; made by [`Plan::build`].
#[derive(Clone, Debug)]
pub struct Plan {
    devices: Vec<PlanDevice>,
    /// Device of each task.
    device_of: Vec<DeviceId>,
    /// Numbers of nodes and of inputs among the tasks, which precede the next kind of task.
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
    ///
    /// Tasks are numbered as by [`ProgramTasks`](crate::tasks::ProgramTasks). `reasons` holds a sentence for each node,
    /// or is empty.
    ///
    /// O(s log s + t²) for s steps and t values that are alive at the same time. Streaming adds O(c s log s) for c
    /// nodes that might stream between each other.
    ///
    /// # Errors
    /// If placement or schedule do not belong to the program, a node has no kernel on its device, or a device's memory
    /// is too small for the plan.
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
        let Gangs { gangs, order, expected } = former.form();
        transfer::stream(program, &uses, schedule, options, &gangs, &mut transfers);
        let arrivals = Arrivals::new(&uses, &order, &gangs);
        let planned = |early: bool, piece: u64| {
            let (mut transfers, mut ahead) = (transfers.clone(), staged.transfers(program, &arrivals, early));
            if !early {
                arrivals.delay(&mut transfers, &mut ahead);
            }
            let total = order::total(program, &order, transfers, ahead, &gangs);
            let links = link::all(program, devices, &total.transfers, piece);
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
                expected: &expected,
            })?;
            Ok((total, links, memory))
        };
        // If memory is short, staging buffers become smaller, and then copies wait until their reader's turn.
        let mut made = planned(true, STAGING.bytes);
        for early in [true, false] {
            made = match made {
                Err(short @ PlanError::Memory(_)) => {
                    planned(early, link::SMALL_STAGING).map_err(|error| memory::nearer(short, error))
                }
                made => made,
            };
        }
        let (Total { steps, transfers, gangs }, links, memory) = made?;
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
            predicted: Predicted::default(),
            reasons,
            strategy,
            weights: staged.residency(),
        })
    }

    /// Sets the number of buffers in each ring, regardless of the proof, to test faults that the checker prevents.
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

    /// Sets the forecast of the plan (default: none). Planning makes it.
    pub fn with_prediction(self, predicted: Predicted) -> Self {
        Self { predicted, ..self }
    }

    /// Takes the times of the schedule that the plan was built from as its forecast: for tests and benches, which do
    /// not predict. Transfers take no time.
    pub fn with_times_of(self, schedule: &Schedule) -> Self {
        let nodes: Vec<_> = schedule.tasks[..self.nodes].iter().map(|span| (span.start, span.end)).collect();
        let busy = nodes.iter().map(|(start, end)| end - start).collect();
        let (transfers, makespan) = (vec![(0.0, 0.0); self.transfers.len()], schedule.makespan);
        self.with_prediction(Predicted { nodes, transfers, busy, makespan, interval: None })
    }

    /// Returns the devices; the first is the host, which holds inputs and outputs that no GPU keeps.
    pub fn devices(&self) -> &[PlanDevice] {
        &self.devices
    }

    /// Returns a device.
    pub fn device(&self, id: DeviceId) -> &PlanDevice {
        &self.devices[id.index()]
    }

    /// Returns the device of a node.
    pub fn device_of(&self, node: NodeId) -> DeviceId {
        self.device_of[node.index()]
    }

    /// Returns the device on which the caller gives an input: the host, or a GPU that keeps it from run to run.
    pub fn input_device(&self, index: usize) -> DeviceId {
        self.device_of[self.nodes + index]
    }

    /// Returns the device on which the caller receives an output: the host, or a GPU that keeps it from run to run.
    pub fn output_device(&self, index: usize) -> DeviceId {
        self.device_of[self.nodes + self.inputs + index]
    }

    /// Returns all steps, in the total order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the transfers, in the total order.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// Returns a transfer.
    pub fn transfer(&self, id: TransferId) -> &Transfer {
        &self.transfers[id.index()]
    }

    /// Returns the traffic between devices.
    pub fn traffic(&self) -> Traffic {
        self.transfers.iter().collect()
    }

    /// Returns the ranges of steps that happen at the same time: nodes with the streams between them, and each stream
    /// over a link with its only reader.
    ///
    /// Within a range, steps wait only for chunks, or for buffers for them.
    pub fn gangs(&self) -> &[Range<usize>] {
        &self.gangs
    }

    /// Returns the links over which bytes are moved.
    pub fn links(&self) -> &[LinkPlan] {
        &self.links
    }

    /// Returns the weights that each GPU is sent in a run, for GPUs that are sent any.
    pub fn staged(&self, program: &Program) -> BTreeMap<DeviceId, Moved> {
        let mut staged: BTreeMap<DeviceId, Moved> = BTreeMap::new();
        for transfer in self.transfers.iter().filter(|transfer| program.constant(transfer.value).is_some()) {
            let moved = staged.entry(transfer.to).or_default();
            (moved.transfers, moved.bytes) = (moved.transfers + 1, moved.bytes + transfer.bytes);
        }
        staged
    }

    /// Returns the weights that stay on GPUs between runs: all, or a number of bytes on GPUs that are sent the rest.
    pub fn weights(&self) -> &Residency {
        &self.weights
    }

    /// Returns the memory of the plan.
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }

    /// Returns the forecast of the plan; nothing for a plan that was never forecast.
    pub fn predicted(&self) -> &Predicted {
        &self.predicted
    }

    /// Returns the reason of a node's device, in a sentence; empty if there is none.
    pub fn reason(&self, node: NodeId) -> &str {
        self.reasons.get(node.index()).map_or("", String::as_str)
    }

    /// Sets the name of the strategy that placed the nodes.
    pub fn set_strategy(&mut self, name: &str) {
        name.clone_into(&mut self.strategy);
    }

    /// Returns the strategy that placed the nodes.
    pub fn strategy(&self) -> &str {
        &self.strategy
    }

    /// Returns the value's device of origin: its node's, or the device on which the caller gives it. `None` for a
    /// constant.
    pub fn origin(&self, program: &Program, value: ValueId) -> Option<DeviceId> {
        uses::origin(program, &self.device_of, value)
    }
}
