//! Work of a sweep: placements, each simulated under all orders.

use super::super::CliError;
use super::super::cases::Case;
use super::super::rules::{RuleArgs, SearchArgs};
use super::jobs;
use super::results::{Key, Row};
use anabranch::execute::CancelToken;
use anabranch_placement::evaluate::{Baseline, Metrics};
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::place::Auto;
use anabranch_placement::problem::Problem;
use anabranch_placement::schedule::Schedule;
use anabranch_report::trial::{TrialError, TrialPlacement, strategy};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// One placement, and the orders to simulate it under: at least one key, and keys that differ only in the order.
pub(super) struct Unit {
    pub(super) case: usize,
    pub(super) keys: Vec<Key>,
}

pub(super) struct Work<'a> {
    pub(super) cases: &'a [Case],
    pub(super) rules: &'a RuleArgs,
    pub(super) search: SearchArgs,
    pub(super) units: Vec<Unit>,
    pub(super) cancel: &'a CancelToken,
}

/// A problem until its last unit is done, with the baseline of all its schedules.
struct Shared {
    loaded: LoadedProblem,
    /// The baseline, or the reason why the problem has no solution.
    baseline: Result<Baseline, String>,
}

/// The shared problem of some units, and the number of units that have not taken it yet.
struct Slot {
    left: usize,
    shared: Option<Arc<Shared>>,
}

/// Slots by case and seed. A slot is locked while its problem is made, so that it is made once.
type Slots = BTreeMap<(usize, u64), Mutex<Slot>>;

impl Unit {
    fn slot(&self) -> (usize, u64) {
        (self.case, self.keys[0].seed)
    }
}

impl Work<'_> {
    /// Does the work on `threads` threads and passes each result to `take` as soon as it is there. Ends early if it is
    /// cancelled.
    ///
    /// # Errors
    /// If a case cannot be made, or a strategy gave an invalid result. Also the error of `take`.
    pub(super) fn run(
        &self,
        threads: usize,
        mut take: impl FnMut(Row) -> Result<(), CliError> + Send,
    ) -> Result<(), CliError> {
        let mut uses: BTreeMap<(usize, u64), usize> = BTreeMap::new();
        self.units.iter().for_each(|unit| *uses.entry(unit.slot()).or_default() += 1);
        let slots = uses.into_iter().map(|(key, left)| (key, Mutex::new(Slot { left, shared: None }))).collect();
        let job = |number: usize| {
            let unit = &self.units[number];
            let rows = self.shared(&slots, unit).and_then(|shared| self.rows(unit, &shared));
            // An interrupted unit has no result.
            if self.cancel.is_cancelled() { Ok(Vec::new()) } else { rows }
        };
        jobs::run(threads, self.units.len(), self.cancel, job, |_, rows| rows.into_iter().try_for_each(&mut take))
    }

    /// Returns the unit's problem: as another unit left it, or made now.
    fn shared(&self, slots: &Slots, unit: &Unit) -> Result<Arc<Shared>, CliError> {
        let slot = slots.get(&unit.slot()).ok_or_else(|| CliError::internal("a unit of work has no slot"))?;
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = match slot.shared.take() {
            Some(shared) => shared,
            None => Arc::new(self.make(unit)?),
        };
        slot.left -= 1;
        slot.shared = (slot.left > 0).then(|| Arc::clone(&shared));
        Ok(shared)
    }

    fn make(&self, unit: &Unit) -> Result<Shared, CliError> {
        let mut loaded = self.cases[unit.case].problem(unit.keys[0].seed)?;
        self.rules.apply(&mut loaded);
        let baseline = loaded.problem().map(|problem| Baseline::of(&problem)).map_err(|error| error.to_string());
        Ok(Shared { loaded, baseline })
    }

    fn rows(&self, unit: &Unit, shared: &Shared) -> Result<Vec<Row>, CliError> {
        let Shared { loaded, baseline } = shared;
        let row = |key: &Key| Row {
            tasks: loaded.graph.task_count(),
            edges: loaded.graph.edge_count(),
            device_count: loaded.platform.device_count(),
            ..Row::of(key.clone())
        };
        let refused = |error: &str| unit.keys.iter().map(|key| row(key).refused(error.to_owned())).collect();
        let baseline = match baseline {
            Ok(baseline) => baseline,
            Err(error) => return Ok(refused(error)),
        };
        let problem = self.rules.problem(loaded)?;
        let Key { seed, strategy: name, .. } = &unit.keys[0];
        let SearchArgs { evaluations } = self.search;
        let placer = strategy(name, Auto { evaluations, seed: *seed })?;
        let placed = match TrialPlacement::by(placer.as_ref(), &problem) {
            Err(TrialError::Input(said)) => return Ok(refused(&said)),
            Err(fault) => return Err(fault.into()),
            Ok(placed) => placed,
        };
        let measured = |key: &Key| match self.simulated(&problem, &placed, key) {
            Err(TrialError::Input(said)) => Ok(row(key).refused(said)),
            Err(fault) => Err(fault.into()),
            Ok((schedule, seconds)) => {
                let metrics = Metrics::of(&problem, baseline, &schedule);
                let row = row(key).measured(&metrics, loaded.facts.bytes_a_unit);
                let place_seconds = Some(placed.time.as_secs_f64());
                Ok(Row { place_seconds, simulate_seconds: Some(seconds), ..row })
            }
        };
        unit.keys.iter().map(measured).collect()
    }

    /// Returns the schedule in the key's order, and the seconds of its simulation.
    fn simulated(
        &self,
        problem: &Problem<'_>,
        placed: &TrialPlacement,
        key: &Key,
    ) -> Result<(Schedule, f64), TrialError> {
        let started = Instant::now();
        let schedule = placed.schedule(problem, key.order)?;
        Ok((schedule, started.elapsed().as_secs_f64()))
    }
}
