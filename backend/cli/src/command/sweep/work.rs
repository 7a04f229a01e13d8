//! Work of a sweep, distributed among threads.

use super::super::CliError;
use super::super::interrupt::look_at;
use super::super::rules::{RuleArgs, SearchArgs};
use super::cases::Case;
use super::results::{Key, Row};
use anabranch::execute::CancelToken;
use anabranch::interruption::under;
use anabranch_placement::evaluate::{Baseline, Metrics};
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::place::Auto;
use anabranch_placement::problem::Problem;
use anabranch_placement::schedule::Schedule;
use anabranch_report::trial::{TrialError, TrialPlacement, strategy};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
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

/// A problem while any thread works on it, with the baseline of all its schedules.
struct Shared {
    loaded: LoadedProblem,
    /// The baseline, or the reason why the problem has no solution.
    baseline: Result<Baseline, String>,
}

/// Takes a result.
pub(super) type Take<'a> = dyn FnMut(Row) -> Result<(), CliError> + Send + 'a;

/// The problems that threads work on. A slot is locked while its problem is made, so that it is made once.
type Slots = BTreeMap<(usize, u64), Mutex<Weak<Shared>>>;

impl Work<'_> {
    /// Does the work on `threads` threads and passes each result to `take` as soon as it is there. Ends early if it is
    /// cancelled.
    ///
    /// # Errors
    /// If a case cannot be made, or a strategy gave an invalid result. Also the error of `take`.
    pub(super) fn run(&self, threads: usize, take: &mut Take<'_>) -> Result<(), CliError> {
        let slots: Slots = self.units.iter().map(|unit| ((unit.case, unit.keys[0].seed), Mutex::default())).collect();
        let (next, results) = (AtomicUsize::new(0), Mutex::new((take, Ok(()))));
        let work = || under(Some(look_at(self.cancel)), || self.work(&slots, &next, &results));
        thread::scope(|scope| {
            // If the system gives no more threads, the existing ones do the work.
            (1..threads.min(self.units.len())).for_each(|_| _ = thread::Builder::new().spawn_scoped(scope, work));
            work();
        });
        results.into_inner().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Does units until there are no more, or any thread has failed.
    fn work(&self, slots: &Slots, next: &AtomicUsize, results: &Mutex<(&mut Take<'_>, Result<(), CliError>)>) {
        // Keeps the problem of the last unit alive, because the next unit usually has the same.
        let mut last: Option<Arc<Shared>> = None;
        while let Some(unit) = self.units.get(next.fetch_add(1, Ordering::Relaxed)) {
            if self.cancel.is_cancelled() {
                return;
            }
            let rows = self.shared(slots, unit).and_then(|shared| self.rows(unit, last.insert(shared)));
            // An interrupted unit has no result.
            if self.cancel.is_cancelled() {
                return;
            }
            let (take, result) = &mut *results.lock().unwrap_or_else(PoisonError::into_inner);
            *result =
                std::mem::replace(result, Ok(())).and(rows).and_then(|rows| rows.into_iter().try_for_each(&mut **take));
            if result.is_err() {
                return;
            }
        }
    }

    /// Returns the unit's problem: from another thread, or made now.
    fn shared(&self, slots: &Slots, unit: &Unit) -> Result<Arc<Shared>, CliError> {
        let seed = unit.keys[0].seed;
        let slot = slots.get(&(unit.case, seed)).ok_or_else(|| CliError::internal("a unit of work has no slot"))?;
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = slot.upgrade() {
            return Ok(shared);
        }
        let mut loaded = self.cases[unit.case].problem(seed)?;
        self.rules.apply(&mut loaded);
        let baseline = loaded.problem().map(|problem| Baseline::of(&problem)).map_err(|error| error.to_string());
        let shared = Arc::new(Shared { loaded, baseline });
        *slot = Arc::downgrade(&shared);
        Ok(shared)
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
