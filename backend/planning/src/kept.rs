//! Restores the plan of a compiled model: the plan file, with the simulation behind it, gives the plan bit for bit.
//!
//! Placement, blocks, order, times and options decide a plan. Transfers, streams and memory follow from them by
//! [`Plan::build`](anabranch_plan::Plan::build), which does not trust its input. A stored plan is checked like any
//! plan. Predictions are made again with the present costs.

use super::blocks::{BlockPlanner, PlacedProgram};
use super::error::PlanningError;
use super::fitting::Planner;
use super::placing::{Placed, Placing};
use super::planned::Planned;
use super::request::PlanChoice;
use anabranch_base::error_kind::ErrorKind;
use anabranch_placement_core::place::{Placement, Reason, strategy_by_name};
use anabranch_placement_core::platform::DeviceId;
use anabranch_placement_core::schedule::Schedule;
use anabranch_plan::plan_file::{PlanFile, Simulation};
use anabranch_plan::{HOST, PlanDevice, PlanOptions, Residency};
use std::fmt::Display;
use std::time::Instant;

/// Name of the strategy of a given assignment.
const GIVEN: &str = "fixed";

impl Planned {
    /// Returns the plan as a file, with the candidates that it was chosen from.
    pub fn plan_file(&self) -> PlanFile {
        let mut file = PlanFile::of(&self.plan, &self.program, &self.blocks);
        file.candidates.clone_from(&self.candidates);
        file
    }

    /// Returns the plan as a file from which [`Planner::restore`] makes the same plan. `options` are those of the plan.
    pub fn kept(&self, options: &PlanOptions) -> PlanFile {
        let simulation = Simulation {
            devices: self.plan.devices().to_vec(),
            options: options.clone().with_streaming(self.streaming).with_weights(Residency::Auto),
            schedule: self.placed.schedule.clone(),
            repaired: self.repaired,
            displaced: self.displaced.clone(),
        };
        let mut file = self.plan_file();
        file.simulation = Some(simulation);
        file
    }
}

impl Planner<'_> {
    /// Restores the plan that [`Planned::kept`] stored for this choice, and predicts it with the machine's present
    /// costs.
    ///
    /// Devices, order, streams and memory are those of the stored plan. No strategy runs, and only the forecast is
    /// simulated. O(s log s) for s steps.
    ///
    /// # Errors
    /// If the stored plan does not belong to this program and these devices, or needs more than their present memory
    /// ([`ErrorKind::Memory`]).
    pub fn restore(&self, kept: &PlanFile, choice: &PlanChoice) -> Result<Planned, PlanningError> {
        let started = Instant::now();
        let simulation = kept.simulation.as_ref().ok_or_else(|| unfit("has no simulation"))?;
        let here = &self.machine.devices;
        let same = |(kept, here): (&PlanDevice, &anabranch_plan::MachineDevice)| {
            (&kept.name, kept.kind) == (&here.name, here.kind)
        };
        if simulation.devices.len() != here.len() || !simulation.devices.iter().zip(here).all(same) {
            return Err(unfit("is for other devices"));
        }
        let (whole, made) = self.restored(kept, simulation)?;
        let mut options = simulation.options.clone();
        options.weights = kept.weights(&simulation.devices).unwrap_or_default();
        let planned =
            self.finished(made, whole, &simulation.devices, &options).map_err(|error| match error.kind() {
                ErrorKind::Internal => unfit(error),
                _ => error,
            })?;
        let mut held = planned.plan.memory().devices().iter().zip(here);
        if held.any(|(plan, device)| !device.memory.admits(plan.peak())) {
            return Err(PlanningError::no_plan());
        }
        Ok(Planned {
            place_time: started.elapsed(),
            candidates: kept.candidates.clone(),
            repaired: simulation.repaired,
            displaced: simulation.displaced.clone(),
            choice: choice.clone(),
            ..planned.named(&kept.strategy)
        })
    }

    /// Returns the device of each task of the lowered program, and the program with the stored blocks, placed and
    /// scheduled as stored.
    fn restored(
        &self,
        kept: &PlanFile,
        simulation: &Simulation,
    ) -> Result<(Vec<DeviceId>, PlacedProgram), PlanningError> {
        let (placing, program) = (self.placing()?, &self.lowered.program);
        let nodes = kept.assignment(program, &simulation.devices).map_err(unfit)?;
        let blocks = BlockPlanner::new(self.machine, &simulation.options, self.constraints);
        let groups = blocks.given(program, &nodes, kept).map_err(unfit)?.unwrap_or_default();
        let reasons = kept.reasons(program);
        if groups.is_empty() {
            let placed = placing.restored(nodes, &kept.strategy, simulation)?;
            let whole = placed.placement.device_of.clone();
            return Ok((whole, PlacedProgram { reasons, ..PlacedProgram::whole(program, placed) }));
        }
        let placement = placing.placement(nodes, &kept.strategy);
        let whole = placement.device_of.clone();
        let placed = placing.given(placement, Schedule::default(), placing.platform(&self.machine.memory())?);
        let lowered = PlacedProgram { reasons, ..PlacedProgram::whole(program, placed) };
        Ok((whole, blocks.restored(&lowered, &groups, simulation)?))
    }
}

impl Placing<'_> {
    /// Restores the placement and the schedule of the program, whose nodes are on these devices.
    ///
    /// # Errors
    /// If the simulation does not belong to this program.
    pub(super) fn restored(
        &self,
        nodes: Vec<DeviceId>,
        strategy: &str,
        simulation: &Simulation,
    ) -> Result<Placed, PlanningError> {
        let placement = self.placement(nodes, strategy);
        simulation.verify(&placement.device_of, self.tasks().graph().datum_count()).map_err(unfit)?;
        let memory: Vec<u64> = simulation.devices.iter().map(|device| device.limit.or_all()).collect();
        Ok(self.given(placement, simulation.schedule.clone(), self.platform(&memory)?))
    }

    /// Placement of nodes on these devices, and of inputs and outputs where they are pinned.
    fn placement(&self, mut device_of: Vec<DeviceId>, strategy: &str) -> Placement {
        let strategy = strategy_by_name(strategy).map_or(GIVEN, |strategy| strategy.name());
        let callers = self.tasks().graph().tasks().iter().skip(device_of.len());
        device_of.extend(callers.map(|task| task.pinned.unwrap_or(HOST)));
        Placement { strategy, reasons: vec![Reason::Given; device_of.len()], device_of, planned: None }
    }
}

fn unfit(problem: impl Display) -> PlanningError {
    PlanningError::new(ErrorKind::PlanFile, format!("the stored plan does not match: it {problem}"))
}
