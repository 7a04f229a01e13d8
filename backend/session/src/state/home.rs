//! Chooses the device that keeps a state between runs: the GPU whose nodes read and make it, if a plan is then
//! predicted to be shorter.

use super::{Inputs, Session, SessionError, StatePair, Stateful};
use anabranch_ir::program::Origin;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_planning::{Constraints, Machine, Planned, PlatformFile};

impl Session {
    /// Runs from now on follow these constraints. Plans so far were made without them, and are forgotten.
    pub(super) fn follow(&mut self, constraints: Constraints) {
        self.options.constraints = constraints;
        while self.prepared.forget_one(|_| true).is_some() {}
    }
}

impl Stateful {
    /// Decides where the state stays from now on, by the shortest predicted time of runs with such inputs. The caller's
    /// own choice of resident values stays.
    ///
    /// The first run decides if no earlier call did. A later call decides again: a state that has grown may not fit
    /// where it was.
    ///
    /// # Errors
    /// If there is no plan.
    pub fn settle(&mut self, inputs: &Inputs) -> Result<(), SessionError> {
        let is_free = self.own_home || self.session.options.constraints.resident.is_empty();
        if is_free && !self.session.inventory.gpus.is_empty() {
            let (_, home) = self.at_home(inputs, &self.session.machine_here()?)?;
            if self.session.options.constraints.resident != home.resident {
                self.session.follow(home);
            }
            self.own_home = true;
        }
        self.settled = true;
        Ok(())
    }

    /// Plans a run with such inputs, without preparing any device. Returns the constraints that keep the state where it
    /// is, too: where the predicted time is shortest if it `moves`, else on the host.
    ///
    /// The devices are those of `platform`, else those of the session's platform file, else the present ones.
    ///
    /// # Errors
    /// As [`Session::plan`](crate::Session::plan).
    pub fn forecast(
        &self,
        inputs: &Inputs,
        platform: Option<&PlatformFile>,
        moves: bool,
    ) -> Result<(Planned, Constraints), SessionError> {
        match moves {
            true => self.at_home(inputs, &self.forecast_machine(platform)?),
            false => {
                let home = self.session.options.constraints.clone();
                Ok((self.forecast_under(inputs, platform, &home)?, home))
            }
        }
    }

    /// [`Self::forecast`] with the state where these constraints keep it.
    ///
    /// # Errors
    /// As [`Self::forecast`].
    pub fn forecast_under(
        &self,
        inputs: &Inputs,
        platform: Option<&PlatformFile>,
        constraints: &Constraints,
    ) -> Result<Planned, SessionError> {
        let inputs = self.with_first(self.filled(inputs))?;
        self.planned(&inputs, &self.forecast_machine(platform)?, constraints)
    }

    fn forecast_machine(&self, platform: Option<&PlatformFile>) -> Result<Machine, SessionError> {
        match platform {
            None => self.session.machine(),
            Some(file) => Ok(Machine::described(file, &self.session.inventory, self.session.costs().here())?),
        }
    }

    /// The plan with the state where the predicted time is shortest, and the constraints that keep the state there.
    ///
    /// Candidates are the host and, for each GPU, the greatest number of the state's first tensors with a plan, and
    /// half and three quarters of that number. Another candidate are those of the greatest number that the GPU's nodes
    /// both read and make. Makes up to 1 + (4 + ⌈log₂ tensors⌉) · GPUs plans.
    fn at_home(&self, inputs: &Inputs, machine: &Machine) -> Result<(Planned, Constraints), SessionError> {
        let inputs = self.with_first(self.filled(inputs))?;
        let mut on_host = self.session.options.constraints.clone();
        if self.own_home {
            on_host.resident.clear();
        }
        let planned = |home: Constraints| Ok::<_, SessionError>((self.planned(&inputs, machine, &home)?, home));
        let gpus = machine.devices.iter().filter(|device| device.kind == DeviceKind::Gpu);
        if !on_host.resident.is_empty() || gpus.clone().next().is_none() {
            return planned(on_host);
        }
        // An input whose elements decide shapes has to be on the host.
        let deciding = self.session.whole.deciding.known();
        let movable: Vec<&StatePair> = self.pairs.iter().filter(|pair| !deciding.contains(&pair.input)).collect();
        let mut found = Vec::from_iter(if_feasible(planned(on_host.clone()))?);
        for gpu in gpus {
            let with = |pairs: &[&StatePair]| if_feasible(planned(kept(&on_host, pairs, &gpu.name)));
            let Some((many, all)) = most(movable.len(), |count| with(&movable[..count]))? else { continue };
            let there = |pair: &&&StatePair| is_there(&all.0, pair, &gpu.name);
            let some: Vec<&StatePair> = movable[..many].iter().filter(there).copied().collect();
            found.push(all);
            if some.len() < many {
                found.extend(with(&some)?);
            }
            // Fewer caches leave memory for weights.
            let fewer = [many / 2, many * 3 / 4].into_iter().filter(|count| many < movable.len() && *count > 0);
            for count in fewer {
                found.extend(with(&movable[..count])?);
            }
        }
        // Without any plan, the error is that of the host.
        found.into_iter().reduce(shorter).map_or_else(|| planned(on_host), Ok)
    }

    /// Leaves the state on the host, unless options say otherwise: for callers that change it between runs.
    pub fn stay_on_host(&mut self) {
        if std::mem::take(&mut self.own_home) {
            let mut home = self.session.options.constraints.clone();
            home.resident.clear();
            self.session.follow(home);
        }
        self.settled = true;
    }

    /// Whether a part of the state stays on a GPU.
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
fn if_feasible<T>(planned: Result<T, SessionError>) -> Result<Option<T>, SessionError> {
    match planned {
        Err(error) if error.is_infeasible() => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the greatest number from 1 to `count` that is possible, and what it makes, if smaller numbers are possible,
/// too. Tries up to 1 + ⌈log₂ `count`⌉ numbers.
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
