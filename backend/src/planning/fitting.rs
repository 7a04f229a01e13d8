//! From a lowered program and a machine to a plan that fits the devices' memory, checked and predicted.

use super::blocks::{BlockPlanner, PlacedProgram};
use super::constraints::Constraints;
use super::error::PlanningError;
use super::forecast::forecast;
use super::machine::Machine;
use super::placing::{Placed, Placing};
use super::planned::{Lowered, Planned};
use super::request::{BlockSource, PlacementRequest, PlanChoice};
use super::strategy::{Order, Strategy};
use crate::execute::Forecast;
use crate::plan::{Plan, PlanError, PlanOptions};
use crate::program::Program;
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::place::Fixed;
use anabranch_placement::platform::DeviceId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a plan that is too large for a device is placed again with a smaller budget there.
const ATTEMPTS: usize = 8;

/// A program to be placed on a machine.
#[derive(Clone, Copy)]
pub struct Planner<'a> {
    /// The program.
    pub lowered: &'a Lowered,
    /// The machine.
    pub machine: &'a Machine,
    /// What a placement must respect.
    pub constraints: &'a Constraints,
}

impl Planner<'_> {
    /// Places and plans as `choice` says, and readies no device. [`Strategy::AUTO`] takes of several plans the one that is forecast to
    /// be the shortest.
    ///
    /// # Errors
    /// If there is no plan within the constraints, or the choice names what is not there.
    pub fn plan(&self, choice: &PlanChoice) -> Result<Planned, PlanningError> {
        let started = Instant::now();
        let planned = if choice.strategy == Strategy::AUTO {
            self.shortest(choice)
        } else {
            self.streamed_if_shorter(&PlacementRequest::of(&self.lowered.program, self.machine, choice)?, &choice.plan)
        };
        Ok(Planned { place_time: started.elapsed(), ..planned? })
    }

    /// Plans what `planned` does anew with the machine's costs: same devices, same order, same blocks.
    ///
    /// # Errors
    /// If the plan does not fit the devices any more.
    pub fn plan_again(&self, planned: &Planned, options: &PlanOptions) -> Result<Planned, PlanningError> {
        let started = Instant::now();
        let placer = Box::new(Fixed::new(planned.device_of.clone()));
        let order = planned.placed.schedule.order.clone();
        let (order, blocks) = match &planned.groups[..] {
            [] => (Some(order), BlockSource::Given { groups: Vec::new(), order: None }),
            groups => (None, BlockSource::Given { groups: groups.to_vec(), order: Some(order) }),
        };
        let again = self.fitted(&PlacementRequest { placer, rule: Order::Pct, order, blocks }, options)?;
        Ok(Planned { place_time: started.elapsed(), ..again })
    }

    /// The same plan with what the machine's costs now say of it.
    ///
    /// # Errors
    /// If the plan does not fit the devices any more.
    pub fn predict_again(&self, planned: &Planned, options: &PlanOptions) -> Result<Planned, PlanningError> {
        let Planned { blocks, placed: Placed { costs, .. }, weights, .. } = self.plan_again(planned, options)?;
        let (program, plan) = (Arc::clone(&planned.program), Plan::clone(&planned.plan));
        let predicted = forecast(&program, &plan, &costs, self.machine)?;
        let mut placed = planned.placed.clone();
        placed.costs = costs;
        Ok(Planned {
            program,
            blocks,
            placed,
            place_time: planned.place_time,
            candidates: planned.candidates.clone(),
            device_of: planned.device_of.clone(),
            groups: planned.groups.clone(),
            plan: Arc::new(plan.with_prediction(predicted)),
            weights,
        })
    }

    /// The problem of placing the program, in seconds, with nothing placed yet.
    ///
    /// # Errors
    /// If some node can run nowhere.
    pub fn problem(&self) -> Result<LoadedProblem, PlanningError> {
        self.placing()?.problem(&self.machine.memory())
    }

    /// What a scheduler at run time goes by.
    ///
    /// # Errors
    /// If the constraints cannot be met.
    pub fn forecast(&self) -> Result<Forecast, PlanningError> {
        Ok(self.placing()?.forecast())
    }

    pub(super) fn placing(&self) -> Result<Placing<'_>, PlanningError> {
        Placing::new(&self.lowered.program, self.machine, self.constraints)
    }

    /// Places until the plan fits every device: where one is over its limit, the next attempt gets that much less for what
    /// stays there. If nothing fits, the first shortage is the error.
    pub(super) fn fitted(&self, request: &PlacementRequest, options: &PlanOptions) -> Result<Planned, PlanningError> {
        let placing = self.placing()?;
        let blocks = BlockPlanner::new(self.machine, options, self.constraints);
        let mut budgets = self.machine.memory();
        let mut first = None;
        for _ in 0..ATTEMPTS {
            let placed = match placing.place(request, &budgets) {
                Ok(placed) => placed,
                Err(error) => return Err(first.unwrap_or(error)),
            };
            let device_of = placed.placement.device_of.clone();
            let whole = PlacedProgram::whole(&self.lowered.program, placed);
            let made = blocks.contract(&whole, &budgets, request)?.unwrap_or(whole);
            let shortage = match self.build(&made, options) {
                Ok(plan) => return self.predicted(made, plan, device_of),
                Err(PlanError::Memory(shortage)) => shortage,
                Err(error) => return Err(error.into()),
            };
            let short = self.machine.devices.iter().position(|device| device.name == shortage.device);
            let Some(short) = short else { break };
            let resident = made.placed.resident(short);
            budgets[short] = resident.min(budgets[short]).saturating_sub(shortage.needed - shortage.available);
            first.get_or_insert(PlanError::Memory(shortage).into());
        }
        Err(first.unwrap_or_else(PlanningError::no_plan))
    }

    /// The plan of a placed program.
    fn build(&self, made: &PlacedProgram, options: &PlanOptions) -> Result<Plan, PlanError> {
        let PlacedProgram { program, placed, reasons, .. } = made;
        let (devices, kernels) = (self.machine.plan_devices(), self.lowered.kernels(program));
        let (placement, schedule) = (&placed.placement, &placed.schedule);
        Plan::build(program, &devices, placement, schedule, reasons.clone(), &kernels, options)
    }

    /// A plan that fits, checked, with what it will take. `device_of` is that of the program before its blocks were made.
    fn predicted(&self, made: PlacedProgram, plan: Plan, device_of: Vec<DeviceId>) -> Result<Planned, PlanningError> {
        let PlacedProgram { program, placed, groups, blocks, .. } = made;
        if let Some(violation) = crate::plan::check(&program, &plan).first() {
            return Err(PlanningError::invalid(violation));
        }
        let predicted = forecast(&program, &plan, &placed.costs, self.machine)?;
        let (plan, weights) = (Arc::new(plan.with_prediction(predicted)), Arc::clone(&self.lowered.weights));
        let (place_time, candidates) = (Duration::ZERO, Vec::new());
        Ok(Planned { program, blocks, placed, place_time, candidates, device_of, groups, plan, weights })
    }
}

impl PlacedProgram {
    /// A program as it was lowered.
    fn whole(program: &Arc<Program>, placed: Placed) -> Self {
        let (reasons, groups, blocks) = (reasons(program, &placed), Vec::new(), Vec::new());
        Self { program: Arc::clone(program), placed, reasons, groups, blocks }
    }
}

/// A sentence for each node on why it is where it is.
fn reasons(program: &Program, placed: &Placed) -> Vec<String> {
    let explained = |reason: &anabranch_placement::place::Reason| {
        reason.explained(placed.tasks.graph(), &placed.platform).in_seconds().to_string()
    };
    placed.placement.reasons.iter().take(program.nodes.len()).map(explained).collect()
}
