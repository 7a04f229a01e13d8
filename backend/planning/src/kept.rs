//! A plan as it is stored on disk: the decisions behind it, from which it is rebuilt bit for bit without a search.
//!
//! Placement, order, times, blocks and options decide a plan. Transfers, streams and memory follow from them by
//! [`Plan::build`], which does not trust its input. A stored plan is therefore small, and is checked like any plan.
//! Predictions are made again with the present costs.

use super::blocks::{BlockPlanner, PlacedProgram};
use super::error::PlanningError;
use super::fitting::Planner;
use super::forecast::forecast;
use super::placing::{Placed, Placing};
use super::planned::Planned;
use super::request::PlanChoice;
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::program::Program;
use anabranch_placement_core::place::{Placement, Reason, strategy_names};
use anabranch_placement_core::platform::DeviceId;
use anabranch_placement_core::schedule::Schedule;
use anabranch_plan::blocks::BlockMembers;
use anabranch_plan::{CandidatePlan, Plan, PlanDevice, PlanOptions};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// Seconds that no schedule exceeds.
const ENDLESS: f64 = 1e9;

/// Number of chunks of one stream in flight that no plan exceeds.
const CHUNKS: u32 = 1 << 16;

/// Name of the strategy of a given assignment.
const GIVEN: &str = "fixed";

/// Decisions behind a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptPlan {
    /// Devices as the plan sees them.
    devices: Vec<PlanDevice>,
    /// Device of each task of the lowered program.
    whole: Vec<DeviceId>,
    /// Nodes of the lowered program that form blocks.
    groups: Vec<BlockMembers>,
    /// Device of each task of the program with these blocks as nodes; its times and order follow.
    device_of: Vec<DeviceId>,
    schedule: Schedule,
    /// Options of the plan.
    options: PlanOptions,
    /// Strategy that placed the nodes, and the reason for each node's device; for blocks, those of each member.
    strategy: String,
    reasons: Vec<String>,
    members: Vec<Vec<String>>,
    candidates: Vec<CandidatePlan>,
    repaired: bool,
}

impl KeptPlan {
    /// Stores the decisions behind this plan, which was made with these options.
    pub fn of(planned: &Planned, options: &PlanOptions) -> Self {
        let (program, plan, placed) = (&planned.program, &planned.plan, &planned.placed);
        let options = options.clone().with_streaming(planned.streaming).with_weights(plan.weights().clone());
        Self {
            devices: plan.devices().to_vec(),
            whole: planned.device_of.clone(),
            groups: planned.groups.clone(),
            device_of: placed.placement.device_of.clone(),
            schedule: placed.schedule.clone(),
            options,
            strategy: plan.strategy().to_owned(),
            reasons: program.node_ids().map(|node| plan.reason(node).to_owned()).collect(),
            members: planned.blocks.iter().map(|block| block.reasons.clone()).collect(),
            candidates: planned.candidates.clone(),
            repaired: planned.repaired,
        }
    }

    pub(super) fn groups(&self) -> &[BlockMembers] {
        &self.groups
    }

    pub(super) fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// Restores placement and schedule of a program: the lowered program, or the program with blocks.
    ///
    /// # Errors
    /// If they do not belong to this program.
    pub(super) fn placed(&self, placing: &Placing<'_>, program: &Program) -> Result<Placed, PlanningError> {
        let Schedule { tasks, transfers, .. } = &self.schedule;
        let count = tasks_of(program);
        let spans = tasks.iter().zip(&self.device_of).all(|(span, device)| {
            span.device == *device && is_span(span.start, span.end) && device.index() < self.devices.len()
        });
        require(self.device_of.len() == count && tasks.len() == count && spans, "has other tasks")?;
        let data = placing.tasks().graph().datum_count();
        let sound = transfers.iter().all(|sent| {
            let known = [sent.from, sent.to].iter().all(|end| end.index() < self.devices.len());
            known && sent.datum.index() < data && is_span(sent.send_start, sent.end)
        });
        require(sound, "has other transfers")?;
        require(self.reasons.len() == program.nodes.len(), "has other nodes")?;
        let memory: Vec<u64> = self.devices.iter().map(|device| device.limit.or_all()).collect();
        Ok(placing.given(self.placement(&self.device_of), self.schedule.clone(), placing.platform(&memory)?))
    }

    fn placement(&self, device_of: &[DeviceId]) -> Placement {
        let strategy = strategy_names().into_iter().find(|name| *name == self.strategy).unwrap_or(GIVEN);
        let reasons = vec![Reason::Given; device_of.len()];
        Placement { strategy, device_of: device_of.to_vec(), reasons, planned: None }
    }

    /// Checks that all names and indices exist in the lowered program and the machine.
    fn fits(&self, planner: &Planner<'_>) -> Result<(), PlanningError> {
        let program = &planner.lowered.program;
        let here = &planner.machine.devices;
        let same = |(kept, here): (&PlanDevice, &anabranch_plan::MachineDevice)| {
            (&kept.name, kept.kind) == (&here.name, here.kind)
        };
        let devices = self.devices.len() == here.len() && self.devices.iter().zip(here).all(same);
        require(devices, "is for other devices")?;
        let sound = is_span(0.0, self.schedule.makespan) && self.options.capacity < CHUNKS;
        require(sound, "has invalid times or streams")?;
        let placed = self.whole.len() == tasks_of(program) && self.whole.iter().all(|on| on.index() < here.len());
        require(placed, "has other tasks")?;
        let nodes = || self.groups.iter().flat_map(|group| &group.members);
        require(nodes().all(|node| node.index() < program.nodes.len()), "has other nodes")
    }
}

impl Planner<'_> {
    /// Restores the plan stored for this choice, and predicts it with the machine's present costs.
    ///
    /// Devices, order, streams and memory are those of the stored plan. No strategy runs, and only the forecast is
    /// simulated. O(s log s) for s steps.
    ///
    /// # Errors
    /// If the stored plan does not belong to this program and these devices, or needs more than their present memory
    /// ([`ErrorKind::Memory`]).
    pub fn restore(&self, kept: &KeptPlan, choice: &PlanChoice) -> Result<Planned, PlanningError> {
        let started = Instant::now();
        kept.fits(self)?;
        let made = self.placed_as(kept)?;
        let PlacedProgram { program, placed, reasons, groups, mut blocks } = made;
        require(blocks.len() == kept.members.len(), "has other blocks")?;
        for (block, reasons) in blocks.iter_mut().zip(&kept.members) {
            require(block.members.len() == reasons.len(), "has other blocks")?;
            block.reasons.clone_from(reasons);
        }
        let kernels = self.lowered.kernels(&program);
        let (placement, schedule) = (&placed.placement, &placed.schedule);
        let plan = Plan::build(&program, &kept.devices, placement, schedule, reasons, &kernels, &kept.options)?;
        if let Some(violation) = anabranch_plan::check(&program, &plan).first() {
            return Err(unfit(&violation.to_string()));
        }
        let mut held = plan.memory().devices().iter().zip(&self.machine.devices);
        if held.any(|(plan, device)| !device.memory.admits(plan.peak())) {
            return Err(PlanningError::no_plan());
        }
        let plan = forecast(&program, plan, &placed.costs, self.machine)?;
        Ok(Planned {
            program,
            blocks,
            placed,
            place_time: started.elapsed(),
            candidates: kept.candidates.clone(),
            device_of: kept.whole.clone(),
            groups,
            repaired: kept.repaired,
            streaming: kept.options.streaming,
            plan: Arc::new(plan),
            weights: Arc::clone(&self.lowered.weights),
            rest: self.lowered.rest.clone(),
            choice: choice.clone(),
        })
    }

    /// Returns the program with the stored blocks, placed and scheduled as stored.
    fn placed_as(&self, kept: &KeptPlan) -> Result<PlacedProgram, PlanningError> {
        let (placing, program) = (self.placing()?, &self.lowered.program);
        if kept.groups.is_empty() {
            let placed = kept.placed(&placing, program)?;
            return Ok(PlacedProgram { reasons: kept.reasons.clone(), ..PlacedProgram::whole(program, placed) });
        }
        let platform = placing.platform(&self.machine.memory())?;
        let placed = placing.given(kept.placement(&kept.whole), Schedule::default(), platform);
        let whole = PlacedProgram::whole(program, placed);
        BlockPlanner::new(self.machine, &kept.options, self.constraints).restored(&whole, kept)
    }
}

/// Number of tasks of a program: its nodes, inputs and outputs.
fn tasks_of(program: &Program) -> usize {
    program.nodes.len() + program.inputs.len() + program.outputs.len()
}

fn is_span(start: f64, end: f64) -> bool {
    0.0 <= start && start <= end && end < ENDLESS
}

fn require(holds: bool, problem: &str) -> Result<(), PlanningError> {
    if holds { Ok(()) } else { Err(unfit(problem)) }
}

fn unfit(problem: &str) -> PlanningError {
    PlanningError::new(ErrorKind::PlanFile, format!("the stored plan does not match: it {problem}"))
}
