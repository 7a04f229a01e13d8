//! Where a state stays: on the GPU whose nodes read and make it, if a plan is predicted to be shorter so.

use super::{Inputs, SessionError, StatePair, Stateful};
use anabranch_ir::program::Origin;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_planning::{Constraints, Machine, Planned, PlatformFile};

impl Stateful {
    /// Decides where the state stays from now on, by the shortest predicted time of runs with such inputs.
    ///
    /// The first run decides if no earlier call did.
    ///
    /// # Errors
    /// If there is no plan with the state on the host.
    pub fn settle(&mut self, inputs: &Inputs) -> Result<(), SessionError> {
        if !self.session.inventory.gpus.is_empty() {
            let (_, home) = self.at_home(inputs, &self.session.machine_here()?)?;
            if self.session.options.constraints.resident != home.resident {
                self.session.options.constraints = home;
                // Plans so far were made without these constraints.
                while self.session.prepared.forget_one(|_| true).is_some() {}
            }
        }
        self.settled = true;
        Ok(())
    }

    /// Plans a run with such inputs, without preparing any device, and with the state where the predicted time is
    /// shortest. The devices are those of `platform`, else those of the session's platform file, else the present ones.
    ///
    /// # Errors
    /// As [`Session::plan`](crate::Session::plan).
    pub fn forecast(&self, inputs: &Inputs, platform: Option<&PlatformFile>) -> Result<Planned, SessionError> {
        let session = &self.session;
        let machine = match platform {
            None => session.machine()?,
            Some(file) => Machine::described(file, &session.inventory, session.costs().here())?,
        };
        Ok(self.at_home(inputs, &machine)?.0)
    }

    /// The plan with the state where the predicted time is shortest, and the constraints that keep the state there.
    ///
    /// The candidates are the host, and for each GPU the whole state, or as many of its first tensors as have a plan;
    /// and of these the tensors that the GPU's nodes both read and make. Makes up to 1 + (2 + log₂ tensors) · GPUs
    /// plans. The caller's choice of resident values stays.
    fn at_home(&self, inputs: &Inputs, machine: &Machine) -> Result<(Planned, Constraints), SessionError> {
        let inputs = self.with_first(self.filled(inputs))?;
        let on_host = self.session.options.constraints.clone();
        let planned = self.planned(&inputs, machine, &on_host)?;
        let mut best = (planned, on_host.clone());
        if !on_host.resident.is_empty() {
            return Ok(best);
        }
        // An input whose elements decide shapes has to be on the host.
        let deciding = self.session.whole.deciding.known();
        let movable: Vec<&StatePair> = self.pairs.iter().filter(|pair| !deciding.contains(&pair.input)).collect();
        for gpu in machine.devices.iter().filter(|device| device.kind == DeviceKind::Gpu) {
            let with = |pairs: &[&StatePair]| -> Result<_, SessionError> {
                let home = kept(&on_host, pairs, &gpu.name);
                Ok(if_feasible(self.planned(&inputs, machine, &home))?.map(|planned| (planned, home)))
            };
            let Some((many, all)) = most(movable.len(), |count| with(&movable[..count]))? else { continue };
            let there = |pair: &&&StatePair| is_there(&all.0, pair, &gpu.name);
            let some: Vec<&StatePair> = movable[..many].iter().filter(there).copied().collect();
            best = shorter(best, all);
            if some.len() < many
                && let Some(part) = with(&some)?
            {
                best = shorter(best, part);
            }
        }
        Ok(best)
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

    fn planned(&self, inputs: &Inputs, machine: &Machine, constraints: &Constraints) -> Result<Planned, SessionError> {
        let session = &self.session;
        let lowered = session.lowered(&session.whole, inputs)?;
        let mut planner = session.planner(&lowered, machine);
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

/// Returns the greatest number from 1 to `count` that is possible, and what it makes, if smaller numbers are possible,
/// too. Tries up to 1 + log₂ `count` numbers.
fn most<T, E>(count: usize, mut made: impl FnMut(usize) -> Result<Option<T>, E>) -> Result<Option<(usize, T)>, E> {
    let (mut possible, mut impossible, mut next) = (None, count + 1, count);
    while next > 0 {
        match made(next)? {
            Some(found) => possible = Some((next, found)),
            None => impossible = next,
        }
        let least = possible.as_ref().map_or(0, |(number, _)| *number);
        next = if impossible - least > 1 { least + (impossible - least) / 2 } else { 0 };
    }
    Ok(possible)
}

/// Constraints that keep these pairs on a device.
fn kept(constraints: &Constraints, pairs: &[&StatePair], device: &str) -> Constraints {
    pairs.iter().fold(constraints.clone(), |all, pair| {
        all.with_resident(&pair.input, device).with_resident(&pair.output, device)
    })
}

fn shorter(one: (Planned, Constraints), other: (Planned, Constraints)) -> (Planned, Constraints) {
    if makespan(&other.0) < makespan(&one.0) { other } else { one }
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

#[cfg(test)]
mod tests {
    use super::most;

    #[test]
    fn the_greatest_possible_number_is_found_in_few_tries() {
        for count in 0..70usize {
            for limit in 0..=count {
                let mut tries = 0;
                let made = |number: usize| {
                    tries += 1;
                    Ok::<_, ()>((number <= limit).then_some(number))
                };
                let found = most(count, made).expect("no failure");
                assert_eq!(found, (limit > 0).then_some((limit, limit)), "{limit} of {count}");
                assert!(tries <= 2 + count.checked_ilog2().unwrap_or(0), "{tries} for {limit} of {count}");
            }
        }
    }
}
