//! Turns a lowered program into a plan that fits the machine's memory, checked and predicted.

use super::blocks::{BlockPlanner, PlacedProgram};
use super::constraints::Constraints;
use super::error::PlanningError;
use super::forecast::forecast;
use super::machine::Machine;
use super::placing::{Placed, Placing};
use super::planned::{Lowered, Planned};
use super::repair::Ways;
use super::request::{BlockSource, PlacementRequest, PlanChoice};
use super::strategy::Order;
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::interruption;
use anabranch_ir::program::Program;
use anabranch_placement_core::loaded::LoadedProblem;
use anabranch_placement_core::place::Fixed;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{Forecast, Plan, PlanDevice, PlanError, PlanOptions, Residency};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Plans a program on a machine.
#[derive(Clone, Copy)]
pub struct Planner<'a> {
    /// The program.
    pub lowered: &'a Lowered,
    /// The machine.
    pub machine: &'a Machine,
    /// Constraints on the placement.
    pub constraints: &'a Constraints,
}

impl Planner<'_> {
    /// Plans again with the machine's present costs: same devices, same order, same blocks as `planned`.
    ///
    /// # Errors
    /// If the plan no longer fits the devices.
    pub fn plan_again(&self, planned: &Planned, options: &PlanOptions) -> Result<Planned, PlanningError> {
        let started = Instant::now();
        let placer = Box::new(Fixed::new(planned.device_of.clone()));
        let order = planned.placed.schedule.order.clone();
        let (order, blocks) = match &planned.groups[..] {
            [] => (Some(order), BlockSource::Given { groups: Vec::new(), order: None }),
            groups => (None, BlockSource::Given { groups: groups.to_vec(), order: Some(order) }),
        };
        let options = options.clone().with_streaming(planned.streaming).with_weights(planned.plan.weights().clone());
        let request = PlacementRequest { placer, rule: Order::Pct, order, blocks };
        let planner = self.of(planned);
        let again = planner.fitted(&planner.placing()?, &request, &options);
        still_wanted()?;
        let again = again?.named(planned.plan.strategy());
        let (divided, displaced) = (planned.divided.clone(), planned.displaced.clone());
        Ok(Planned { place_time: started.elapsed(), divided, displaced, ..again })
    }

    /// Predicts the same plan again with the machine's present costs.
    ///
    /// # Errors
    /// If the plan no longer fits the devices.
    pub fn predict_again(&self, planned: &Planned, options: &PlanOptions) -> Result<Planned, PlanningError> {
        let again = self.plan_again(planned, options)?;
        if again.groups != planned.groups || again.device_of != planned.device_of {
            return Err(PlanningError::no_plan());
        }
        let Planned { blocks, placed: Placed { costs, .. }, weights, .. } = again;
        let program = Arc::clone(&planned.program);
        let plan = forecast(&program, Plan::clone(&planned.plan), &costs, self.machine)?;
        let mut placed = planned.placed.clone();
        placed.costs = costs;
        Ok(Planned {
            program,
            blocks,
            placed,
            place_time: planned.place_time,
            // The other candidates' times under these costs are unknown.
            candidates: Vec::new(),
            device_of: planned.device_of.clone(),
            groups: planned.groups.clone(),
            repaired: planned.repaired,
            displaced: planned.displaced.clone(),
            streaming: planned.streaming,
            plan: Arc::new(plan),
            weights,
            rest: planned.rest.clone(),
            divided: planned.divided.clone(),
            choice: planned.choice.clone(),
        })
    }

    /// Returns the problem of placing the program, in seconds, with nothing placed yet.
    ///
    /// # Errors
    /// If some node cannot run on any device.
    pub fn problem(&self) -> Result<LoadedProblem, PlanningError> {
        self.placing()?.problem(&self.machine.memory())
    }

    /// Returns the times that a scheduler at run time uses.
    ///
    /// # Errors
    /// If the constraints cannot be met.
    pub fn forecast(&self) -> Result<Forecast, PlanningError> {
        Ok(self.placing()?.forecast())
    }

    pub(super) fn placing(&self) -> Result<Placing<'_>, PlanningError> {
        Placing::new(&self.lowered.program, self.machine, self.constraints)
    }

    /// Places and plans once.
    ///
    /// # Errors
    /// If the plan does not fit, or there is no placement within the constraints.
    pub(super) fn once(
        &self,
        placing: &Placing<'_>,
        request: &PlacementRequest,
        options: &PlanOptions,
    ) -> Result<Planned, PlanningError> {
        let mut placed = placing.place_roomy(request, &self.machine.room(&options.weights))?;
        placed.placement.strategy = request.placer.name();
        self.planned(PlacedProgram::whole(&self.lowered.program, placed), request, options)
    }

    /// Places and plans once, and looks for another plan if the first does not fit the devices.
    ///
    /// If no plan fits, the shortage of the first plan is the error. If a GPU has too little memory for all weights,
    /// and the options leave that open, a plan with staged weights is preferred if its forecast is shorter.
    pub(super) fn fitted(
        &self,
        placing: &Placing<'_>,
        request: &PlacementRequest,
        options: &PlanOptions,
    ) -> Result<Planned, PlanningError> {
        let ways = Ways { planner: self, placing, request, options };
        let resident = match self.once(placing, request, options) {
            Err(error) if error.kind() == ErrorKind::Memory => ways.least()?.ok_or(error),
            planned => planned,
        };
        if options.weights != Residency::Auto || !self.is_tight(DeviceKind::Gpu) {
            return resident;
        }
        let shorter = |one: &Planned, other: &Planned| one.plan.predicted().makespan < other.plan.predicted().makespan;
        match (resident, ways.staged()?) {
            (Ok(resident), Some(staged)) if shorter(&staged, &resident) => Ok(staged),
            (Err(error), Some(staged)) if error.kind() == ErrorKind::Memory => Ok(staged),
            (resident, _) => resident,
        }
    }

    /// Whether some device of this kind has less memory than all values of the program together.
    pub(super) fn is_tight(&self, kind: DeviceKind) -> bool {
        let values = self.lowered.program.values.iter().map(|value| value.spec.bytes() as u64);
        let bytes = values.fold(0, u64::saturating_add);
        self.machine.devices.iter().any(|device| device.kind == kind && !device.memory.admits(bytes))
    }

    /// Plans a placed program, with its streaming blocks, if that fits the devices.
    pub(super) fn planned(
        &self,
        whole: PlacedProgram,
        request: &PlacementRequest,
        options: &PlanOptions,
    ) -> Result<Planned, PlanningError> {
        let options = &request.options(options, &self.machine.plan_devices());
        let device_of = whole.placed.placement.device_of.clone();
        let blocks = BlockPlanner::new(self.machine, options, self.constraints);
        let made = blocks.contract(&whole, request)?.unwrap_or(whole);
        still_wanted()?;
        self.finished(made, device_of, &self.machine.plan_devices(), options)
    }

    /// Builds, checks and predicts the plan of a placed program. `device_of` are the devices of the lowered program's
    /// tasks, and `devices` are the machine's as the plan sees them.
    pub(super) fn finished(
        &self,
        made: PlacedProgram,
        device_of: Vec<DeviceId>,
        devices: &[PlanDevice],
        options: &PlanOptions,
    ) -> Result<Planned, PlanningError> {
        let plan = self.build(&made, devices, options)?;
        still_wanted()?;
        let PlacedProgram { program, placed, groups, blocks, .. } = made;
        if let Some(violation) = anabranch_plan::check(&program, &plan).first() {
            return Err(PlanningError::invalid(violation));
        }
        still_wanted()?;
        let plan = forecast(&program, plan, &placed.costs, self.machine)?;
        Ok(Planned {
            program,
            blocks,
            placed,
            place_time: Duration::ZERO,
            candidates: Vec::new(),
            device_of,
            groups,
            repaired: false,
            displaced: Vec::new(),
            streaming: options.streaming,
            plan: Arc::new(plan),
            weights: Arc::clone(&self.lowered.weights),
            rest: self.lowered.rest.clone(),
            divided: None,
            choice: PlanChoice::default(),
        })
    }

    /// Builds the plan of a placed program.
    fn build(&self, made: &PlacedProgram, devices: &[PlanDevice], options: &PlanOptions) -> Result<Plan, PlanError> {
        let PlacedProgram { program, placed, reasons, .. } = made;
        let (kernels, placement, schedule) = (self.lowered.kernels(program), &placed.placement, &placed.schedule);
        Plan::build(program, devices, placement, schedule, reasons.clone(), &kernels, options)
    }
}

/// Sees that the caller still wants a plan.
///
/// # Errors
/// If it is interrupted ([`interruption`]).
pub(super) fn still_wanted() -> Result<(), PlanningError> {
    if interruption::is_due() { Err(PlanningError::interrupted()) } else { Ok(()) }
}

impl PlacedProgram {
    /// Wraps a program as it was lowered.
    pub(super) fn whole(program: &Arc<Program>, placed: Placed) -> Self {
        let (reasons, groups, blocks) = (reasons(program, &placed), Vec::new(), Vec::new());
        Self { program: Arc::clone(program), placed, reasons, groups, blocks }
    }
}

/// Explains for each node, in a sentence, why it is on its device.
fn reasons(program: &Program, placed: &Placed) -> Vec<String> {
    let explained = |reason: &anabranch_placement_core::place::Reason| {
        reason.explained(placed.tasks.graph(), &placed.platform).in_seconds().to_string()
    };
    placed.placement.reasons.iter().take(program.nodes.len()).map(explained).collect()
}
