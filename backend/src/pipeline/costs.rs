//! What each node takes on each processor while the others are at work, too.
//!
//! Where measuring is wanted, every processor runs the whole program at the same time as its equals, as it would in a pipeline: what they
//! take from each other's memory and caches is then in the times. Else the session's cost model says.

use super::mapping::refused;
use super::processors::{Processor, processors};
use crate::execute::{Activity, DevicePool, ExecError, Executor, RunOptions, RunOutput};
use crate::plan::StreamMode;
use crate::planning::{Constraints, Lowered, PlanChoice, Planned, Planner, Strategy, link};
use crate::profile::{MachineCosts, median};
use crate::program::{NodeId, Program};
use crate::session::{Inputs, Session, SessionError, ordered};
use anabranch_kernels::Tensor;
use anabranch_placement::pipeline::Link;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Instant;

/// Runs that are timed, after one that is not.
const RUNS: usize = 3;

/// Seconds of nodes on processors, for one model and one set of input shapes. What pipelines measure can be added.
pub struct StageCosts {
    pub(super) lowered: Arc<Lowered>,
    pub(super) processors: Vec<Processor>,
    /// By node, by processor.
    pub(super) seconds: Vec<Vec<f64>>,
    /// Of a run on all devices of the session together.
    pub(super) together: f64,
    /// The session's own plan.
    pub(super) planned: Arc<Planned>,
    /// What else the session knows of the machine.
    machine: MachineCosts,
    measured: bool,
    /// Whether nodes are bound to devices: then only the session's own plan keeps that.
    pub(super) bound: bool,
}

impl StageCosts {
    /// The costs of a model with inputs like these. Measuring takes some ten runs of the model on one core.
    ///
    /// # Errors
    /// If the inputs do not fit the model, or it cannot be planned or run.
    pub fn of(session: &Session, inputs: &Inputs, measure: bool) -> Result<Self, SessionError> {
        let constraints = &session.options.constraints;
        if !constraints.resident.is_empty() {
            let text = "tensors that stay on a device cannot go through a pipeline; open a session without them";
            return Err(refused(text.into()));
        }
        let lowered = session.lowered(&session.whole, inputs)?;
        if lowered.rest.is_some() {
            let text = "shapes of this model follow from computed values, so that it runs in phases, which cannot be stages of a \
                        pipeline; run the data sets one after the other";
            return Err(refused(text.into()));
        }
        let given = ordered(inputs, &lowered.program, |_| true)?;
        let processors = processors(session)?;
        let planned = session.plan_with(inputs, &session.choice())?;
        if session.options.calibrate {
            processors.iter().try_for_each(|processor| session.calibrate_parts(&processor.devices))?;
        }
        let machine = session.costs().here().clone();
        let (seconds, together) = (Vec::new(), planned.plan().predicted().makespan);
        let bound = *constraints != Constraints::default();
        let mut costs = Self { lowered, processors, seconds, together, planned, machine, measured: false, bound };
        costs.seconds = costs.predicted()?;
        if measure {
            costs.measure(session, &given)?;
        }
        Ok(costs)
    }

    /// What the processors are called, cores first.
    pub fn processors(&self) -> impl Iterator<Item = &str> {
        self.processors.iter().map(|processor| processor.name.as_str())
    }

    /// Whether the times were measured.
    pub fn are_measured(&self) -> bool {
        self.measured
    }

    pub(super) fn program(&self) -> &Program {
        &self.lowered.program
    }

    /// Seconds of some nodes on a processor.
    pub(super) fn sum(&self, nodes: &[NodeId], processor: usize) -> f64 {
        nodes.iter().map(|node| self.seconds[node.index()][processor]).sum()
    }

    /// The way from one processor's memory to another's; `None` for the host's, where data sets come from and go to.
    pub(super) fn link(&self, from: Option<usize>, to: Option<usize>) -> Link {
        let device = |end: Option<usize>| {
            let processor = end.map(|end| &self.processors[end]);
            let machine = processor.unwrap_or(&self.processors[0]).machine(&self.machine);
            machine.devices.into_iter().last()
        };
        match (device(from), device(to)) {
            (Some(a), Some(b)) if a.name != b.name && from.is_some() && to.is_some() => {
                let known = link(&self.machine, &a, &b);
                Link { latency: known.latency, bandwidth: known.rate }
            }
            _ => Link::FREE,
        }
    }

    /// Plans a part of the program on a processor.
    pub(super) fn plan(
        &self,
        program: &Arc<Program>,
        processor: usize,
        choice: PlanChoice,
    ) -> Result<Arc<Planned>, SessionError> {
        let lowered = Lowered { program: Arc::clone(program), weights: Arc::clone(&self.lowered.weights), rest: None };
        let (processor, constraints) = (&self.processors[processor], Constraints::default());
        let machine = processor.machine(&self.machine);
        let name = machine.devices.last().map_or_else(|| processor.name.clone(), |device| device.name.clone());
        let choice = PlanChoice { strategy: Strategy::Device(name), ..choice };
        Ok(Arc::new(Planner { lowered: &lowered, machine: &machine, constraints: &constraints }.plan(&choice)?))
    }

    /// Takes what a stage was measured to take on a processor as the truth of its nodes there and on its equals.
    pub(super) fn learn(&mut self, nodes: &[NodeId], processor: usize, seconds: f64) {
        let known = self.sum(nodes, processor);
        let equal = |other: &usize| self.processors[*other].key == self.processors[processor].key;
        let equals: Vec<usize> = (0..self.processors.len()).filter(equal).collect();
        let factor = seconds / known;
        if factor.is_finite() && factor > 0.0 {
            for node in nodes {
                equals.iter().for_each(|other| self.seconds[node.index()][*other] *= factor);
            }
        }
    }

    /// What the cost model says. What a GPU has no kernel for, the core does that feeds it.
    fn predicted(&self) -> Result<Vec<Vec<f64>>, SessionError> {
        let constraints = Constraints::default();
        let column = |processor: &Processor| {
            let machine = processor.machine(&self.machine);
            let planner = Planner { lowered: &self.lowered, machine: &machine, constraints: &constraints };
            let nodes = planner.forecast()?.nodes;
            Ok(nodes.iter().map(|on| on.iter().rev().find_map(|seconds| *seconds).unwrap_or(0.0)).collect())
        };
        let columns: Vec<Vec<f64>> = self.processors.iter().map(column).collect::<Result<_, SessionError>>()?;
        Ok((0..self.program().nodes.len()).map(|node| columns.iter().map(|times| times[node]).collect()).collect())
    }

    /// Runs the program on all processors of each kind at a time, and on all devices together.
    fn measure(&mut self, session: &Session, inputs: &[&Tensor]) -> Result<(), SessionError> {
        let keys: Vec<String> = self.processors.iter().map(|processor| processor.key.clone()).collect();
        for (first, key) in keys.iter().enumerate().filter(|(at, key)| !keys[..*at].contains(key)) {
            let equals: Vec<usize> = (first..keys.len()).filter(|at| keys[*at] == *key).collect();
            let Some(times) = self.side_by_side(session, inputs, &equals)? else { continue };
            for (node, seconds) in times.into_iter().enumerate() {
                equals.iter().for_each(|at| self.seconds[node][*at] = seconds);
            }
        }
        let prepared = session.ready(&self.planned)?;
        let times = timed(&prepared.executor, inputs, &RunOptions::default())?;
        let times: Vec<f64> = times.iter().map(|run| run.makespan.as_secs_f64()).collect();
        self.together = median(&times).unwrap_or(self.together);
        self.measured = true;
        Ok(())
    }

    /// Seconds of each node on equal processors that all run the program at a time; nothing where that does not fit the memory.
    fn side_by_side(
        &self,
        session: &Session,
        inputs: &[&Tensor],
        equals: &[usize],
    ) -> Result<Option<Vec<f64>>, SessionError> {
        let whole = &self.lowered.program;
        let usual = session.choice();
        // In a plan without blocks every node has a time of its own.
        let unstreamed = PlanChoice { plan: usual.plan.clone().with_streaming(StreamMode::Off), ..session.choice() };
        let mut plans = Vec::new();
        for at in equals {
            for choice in [&unstreamed, &usual] {
                plans.push((self.plan(whole, *at, choice.clone())?, self.processors[*at].homes.clone()));
            }
        }
        let Ok(_held) = session.hold(&plans, 0) else { return Ok(None) };
        let mut executors = Vec::new();
        for (at, pair) in equals.iter().zip(plans.chunks(2)) {
            let pool = self.processors[*at].pool(session);
            let ready = |(planned, _): &(Arc<Planned>, Vec<usize>)| {
                Executor::new(Arc::clone(planned.plan()), Arc::new(planned.kernels()), &pool)
            };
            let name = self.processors[*at].name.clone();
            executors.push((name, (Arc::clone(&pool), ready(&pair[0])?, ready(&pair[1])?)));
        }
        let run = |(pool, unstreamed, usual): &(Arc<DevicePool>, Executor, Executor)| {
            let _pinned = pool.pin_caller();
            let profiled = timed(unstreamed, inputs, &RunOptions::default().with_profile(true))?;
            Ok((profiled, timed(usual, inputs, &RunOptions::default())?))
        };
        Ok(Some(node_seconds(whole, &at_once(&executors, run)?)))
    }
}

/// Profiled runs, and others.
type Runs = (Vec<RunOutput>, Vec<RunOutput>);

/// Runs this on each of them, which have names, at the same time. No run begins before each has its thread, and none at all where the
/// system does not give so many.
fn at_once<T: Sync, R: Send>(
    all: &[(String, T)],
    run: impl Fn(&T) -> Result<R, SessionError> + Sync,
) -> Result<Vec<R>, SessionError> {
    let gate = RwLock::new(false);
    let begin = |one: &T| match gate.read().is_ok_and(|open| *open) {
        true => run(one),
        false => Err(ExecError::internal("a measurement was given up").into()),
    };
    let runs: Vec<Result<R, SessionError>> = thread::scope(|scope| {
        // Held while threads are made: whichever way it goes, nobody waits at the gate any more, and only this way it opens.
        let mut held = gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut threads = Vec::new();
        for (name, one) in all {
            let thread = thread::Builder::new().name(format!("measure {name}")).spawn_scoped(scope, || begin(one));
            threads.push(thread.map_err(|error| ExecError::no_thread(name, &error))?);
        }
        *held = true;
        drop(held);
        let failed = || Err(ExecError::internal("a measurement panicked").into());
        Ok::<_, SessionError>(threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| failed())).collect())
    })?;
    runs.into_iter().collect()
}

/// Runs once, and then some times more.
fn timed(executor: &Executor, inputs: &[&Tensor], options: &RunOptions) -> Result<Vec<RunOutput>, SessionError> {
    let mut outputs = RunOutput::default();
    let mut runs = Vec::new();
    for at in 0..=RUNS {
        let begun = Instant::now();
        executor.run_into(inputs, options, &mut outputs)?;
        if at > 0 {
            let (events, makespan) = (std::mem::take(&mut outputs.events), begun.elapsed());
            runs.push(RunOutput { events, makespan, ..RunOutput::default() });
        }
    }
    Ok(runs)
}

/// The median time of each node in the profiled runs, stretched so that all together take what the others took.
fn node_seconds(program: &Program, runs: &[Runs]) -> Vec<f64> {
    let mut samples = vec![Vec::new(); program.nodes.len()];
    for event in runs.iter().flat_map(|(profiled, _)| profiled).flat_map(|run| &run.events) {
        if let Activity::Node(node) = event.what {
            samples[node.index()].push((event.end - event.start) as f64 * 1e-9);
        }
    }
    let seconds: Vec<f64> = samples.iter().map(|samples| median(samples).unwrap_or(0.0)).collect();
    let plain: Vec<f64> = runs.iter().flat_map(|(_, plain)| plain).map(|run| run.makespan.as_secs_f64()).collect();
    let (sum, whole) = (seconds.iter().sum::<f64>(), median(&plain).unwrap_or(0.0));
    let stretch = if sum > 0.0 { whole / sum } else { 1.0 };
    seconds.iter().map(|seconds| seconds * stretch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_at_once_all_end_whatever_one_does() {
        let all: Vec<(String, usize)> = (0..4).map(|at| (format!("core{at}"), at)).collect();
        assert_eq!(at_once(&all, |at| Ok(at * 2)).expect("threads"), [0, 2, 4, 6]);
        let panics = |at: &usize| match at {
            2 => std::panic::resume_unwind(Box::new("a bad measurement")),
            at => Ok(*at),
        };
        assert!(at_once(&all, panics).is_err_and(|error| error.to_string().contains("panicked")));
        // A name that no thread can have is refused before the others begin.
        let begun = std::sync::atomic::AtomicBool::new(false);
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let all = [("core0".to_owned(), ()), ("core\0".to_owned(), ())];
            at_once(&all, |()| {
                begun.store(true, std::sync::atomic::Ordering::SeqCst);
                Ok(())
            })
        }));
        assert!(refused.is_err() && !begun.into_inner());
    }
}
