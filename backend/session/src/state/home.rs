//! Where a state stays: on the GPU whose nodes read and make it, if a plan is predicted to be shorter so.

use super::{Inputs, SessionError, StatePair, Stateful};
use anabranch_ir::program::Origin;
use anabranch_placement_core::platform::DeviceId;
use anabranch_planning::{Constraints, Planned};

impl Stateful {
    /// Decides where the state stays from now on, by the shortest predicted time of runs with such inputs.
    ///
    /// The candidates are the host, each GPU for the whole state, and each GPU for the state that its nodes both read
    /// and make. The first run decides if no earlier call did. Makes up to 1 + 2 · GPUs plans.
    ///
    /// # Errors
    /// If there is no plan with the state on the host.
    pub fn settle(&mut self, inputs: &Inputs) -> Result<(), SessionError> {
        // The caller's choice of resident values stays, and a lost GPU has no plan.
        if self.session.inventory.gpus.is_empty() || !self.session.options.constraints.resident.is_empty() {
            self.settled = true;
            return Ok(());
        }
        let inputs = self.with_first(self.filled(inputs))?;
        let on_host = self.session.options.constraints.clone();
        let mut best = (makespan(&self.planned(&inputs, &on_host)?), on_host.clone());
        // An input whose elements decide shapes has to be on the host.
        let deciding = self.session.whole.deciding.known();
        let movable = || self.pairs.iter().filter(|pair| !deciding.contains(&pair.input));
        let gpus: Vec<String> = self.session.inventory.gpus.iter().map(|gpu| gpu.name.clone()).collect();
        for name in gpus {
            let all = kept(&on_host, movable(), &name);
            let Some(planned) = if_feasible(self.planned(&inputs, &all))? else { continue };
            let there = |pair: &&StatePair| is_there(&planned, pair, &name);
            let some = kept(&on_host, movable().filter(there), &name);
            let is_all = some.resident.len() == all.resident.len();
            best = shorter(best, (makespan(&planned), all));
            if !is_all && let Some(planned) = if_feasible(self.planned(&inputs, &some))? {
                best = shorter(best, (makespan(&planned), some));
            }
        }
        self.session.options.constraints = best.1;
        // Plans so far were made without these constraints.
        while self.session.prepared.forget_one(|_| true).is_some() {}
        self.settled = true;
        Ok(())
    }

    /// Leaves the state on the host, unless options say otherwise: for callers that change it between runs.
    pub fn stay_on_host(&mut self) {
        self.settled = true;
    }

    /// Whether something of the state stays on a GPU.
    pub fn is_on_gpu(&self) -> bool {
        self.pairs
            .iter()
            .any(|pair| self.session.options.constraints.resident.iter().any(|kept| kept.name == pair.input))
    }

    /// The last inputs, with these.
    fn filled(&self, inputs: &Inputs) -> Inputs {
        let mut all = self.inputs.clone();
        all.take_over(inputs);
        all
    }

    fn planned(&self, inputs: &Inputs, constraints: &Constraints) -> Result<Planned, SessionError> {
        let (session, machine) = (&self.session, self.session.machine_here()?);
        let lowered = session.lowered(&session.whole, inputs)?;
        let mut planner = session.planner(&lowered, &machine);
        if lowered.rest.is_none() {
            planner.constraints = constraints;
        }
        Ok(planner.plan(&session.choice())?)
    }
}

/// Returns the plan, or `None` if there is none within memory and constraints.
///
/// # Errors
/// If planning failed for another reason, such as an interruption.
fn if_feasible(planned: Result<Planned, SessionError>) -> Result<Option<Planned>, SessionError> {
    match planned {
        Err(error) if error.is_infeasible() => Ok(None),
        other => other.map(Some),
    }
}

/// Constraints that keep these pairs on a device.
fn kept<'p>(constraints: &Constraints, pairs: impl Iterator<Item = &'p StatePair>, device: &str) -> Constraints {
    pairs.fold(constraints.clone(), |all, pair| {
        all.with_resident(&pair.input, device).with_resident(&pair.output, device)
    })
}

fn shorter(one: (f64, Constraints), other: (f64, Constraints)) -> (f64, Constraints) {
    if other.0 < one.0 { other } else { one }
}

/// The predicted makespan; without end if the model runs in phases, between which all is on the host.
fn makespan(planned: &Planned) -> f64 {
    if planned.rest.is_some() { f64::INFINITY } else { planned.plan().predicted().makespan }
}

/// Whether a plan both reads and makes a state on a device.
fn is_there(planned: &Planned, pair: &StatePair, device: &str) -> bool {
    let (program, plan) = (&planned.program, planned.plan());
    let is_it = |at: DeviceId| plan.device(at).name == device;
    let input = program.inputs.iter().find(|input| program.value(**input).name == pair.input);
    let output = program.outputs.iter().find(|output| output.name == pair.output);
    let reads = |value| program.node_ids().filter(move |node| program.node(*node).inputs.contains(&value));
    let is_read = input.is_some_and(|input| reads(*input).any(|node| is_it(plan.device_of(node))));
    let is_made = output.is_some_and(|output| match program.value(output.value).origin {
        Origin::Node(node) => is_it(plan.device_of(node)),
        _ => false,
    });
    is_read && is_made
}
