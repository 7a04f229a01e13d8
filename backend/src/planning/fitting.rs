//! From a lowered program and a machine to a plan that fits the devices' memory, checked and predicted.

use super::blocks::{BlockPlanner, PlacedProgram};
use super::constraints::Constraints;
use super::error::PlanningError;
use super::forecast::forecast;
use super::machine::Machine;
use super::placing::{Placed, Placing};
use super::planned::{Lowered, Planned};
use super::request::{BlockSource, PlacementRequest, PlanChoice};
use super::strategy::Order;
use crate::execute::Forecast;
use crate::plan::{Plan, PlanError, PlanOptions};
use crate::program::Program;
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::place::Fixed;
use anabranch_placement::platform::DeviceId;
use std::sync::Arc;
use std::time::Instant;

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
    /// Places and plans as `choice` says, and readies no device.
    ///
    /// # Errors
    /// If there is no plan within the constraints, or the choice names what is not there.
    pub fn plan(&self, choice: &PlanChoice) -> Result<Planned, PlanningError> {
        let request = PlacementRequest::of(self.lowered.program(), self.machine, choice)?;
        self.plan_request(&request, &choice.plan)
    }

    /// Plans what `planned` does anew with the machine's costs: same devices, same order, same blocks.
    ///
    /// # Errors
    /// If the plan does not fit the devices any more.
    pub fn plan_again(&self, planned: &Planned, options: &PlanOptions) -> Result<Planned, PlanningError> {
        let placer = Box::new(Fixed::new(planned.device_of.clone()));
        let order = planned.placed.schedule.order.clone();
        let (order, blocks) = match &planned.groups[..] {
            [] => (Some(order), BlockSource::Given { groups: Vec::new(), order: Vec::new() }),
            groups => (None, BlockSource::Given { groups: groups.to_vec(), order }),
        };
        self.plan_request(&PlacementRequest { placer, rule: Order::Pct, order, blocks }, options)
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

    fn placing(&self) -> Result<Placing<'_>, PlanningError> {
        Placing::new(self.lowered.program(), self.machine, self.constraints)
    }

    fn plan_request(&self, request: &PlacementRequest, options: &PlanOptions) -> Result<Planned, PlanningError> {
        let started = Instant::now();
        let planner = BlockPlanner::new(self.machine, options, self.constraints);
        let fitting = Fitting { planner: *self, placing: self.placing()?, request, blocks: planner, options };
        let Fitted { made, device_of, plan } = fitting.fit()?;
        let PlacedProgram { program, placed, groups, blocks, .. } = made;
        if let Some(violation) = crate::plan::check(&program, &plan).first() {
            return Err(PlanningError::invalid(violation));
        }
        let place_time = started.elapsed();
        let (plan, weights) = (Arc::new(plan), Arc::clone(self.lowered.weights()));
        Ok(Planned { program, blocks, placed, place_time, device_of, groups, plan, weights })
    }
}

/// All that decides a plan.
struct Fitting<'a> {
    planner: Planner<'a>,
    placing: Placing<'a>,
    request: &'a PlacementRequest,
    blocks: BlockPlanner<'a>,
    options: &'a PlanOptions,
}

/// A plan with its program, and the devices of the tasks before blocks were made.
struct Fitted {
    made: PlacedProgram,
    device_of: Vec<DeviceId>,
    plan: Plan,
}

impl Fitting<'_> {
    /// Places until the plan fits every device: where one is over its limit, the next attempt gets that much less for what
    /// stays there. If nothing fits, the first shortage is the error.
    fn fit(&self) -> Result<Fitted, PlanningError> {
        let Planner { lowered, machine, .. } = self.planner;
        let devices = machine.plan_devices();
        let mut budgets = machine.memory();
        let mut first = None;
        for _ in 0..ATTEMPTS {
            let placed = match self.placing.place(self.request, &budgets) {
                Ok(placed) => placed,
                Err(error) => return Err(first.unwrap_or(error)),
            };
            let device_of = placed.placement.device_of.clone();
            let made = self.with_blocks(placed, &budgets)?;
            let kernels = lowered.kernels(&made.program);
            let PlacedProgram { program, placed, reasons, .. } = &made;
            let (placement, schedule, reasons) = (&placed.placement, &placed.schedule, reasons.clone());
            let result = Plan::build(program, &devices, placement, schedule, reasons, &kernels, self.options);
            let shortage = match result {
                Ok(plan) => {
                    let predicted = forecast(program, &plan, &placed.costs, machine);
                    return Ok(Fitted { plan: plan.with_prediction(predicted), made, device_of });
                }
                Err(PlanError::Memory(shortage)) => shortage,
                Err(error) => return Err(error.into()),
            };
            let Some(short) = devices.iter().position(|device| device.name == shortage.device) else { break };
            let resident = placed.resident(short);
            budgets[short] = resident.min(budgets[short]).saturating_sub(shortage.needed - shortage.available);
            first.get_or_insert(PlanError::Memory(shortage).into());
        }
        Err(first.unwrap_or_else(PlanningError::no_plan))
    }

    /// The placed program with its blocks contracted, or as it is.
    fn with_blocks(&self, placed: Placed, budgets: &[u64]) -> Result<PlacedProgram, PlanningError> {
        let program = self.planner.lowered.program();
        let reasons = reasons(program, &placed);
        let (groups, blocks) = (Vec::new(), Vec::new());
        let whole = PlacedProgram { program: Arc::clone(program), placed, reasons, groups, blocks };
        Ok(self.blocks.contract(&whole, budgets, self.request)?.unwrap_or(whole))
    }
}

/// A sentence for each node on why it is where it is.
fn reasons(program: &Program, placed: &Placed) -> Vec<String> {
    let explained = |reason: &anabranch_placement::place::Reason| {
        reason.explained(placed.tasks.graph(), &placed.platform).to_string()
    };
    placed.placement.reasons.iter().take(program.nodes.len()).map(explained).collect()
}
