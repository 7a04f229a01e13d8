//! Plans parts of a model on single processors, and predicts or measures the times of its nodes there.

use super::mapping::refused;
use super::processors::Processor;
use anabranch_costs::{MachineCosts, median};
use anabranch_execute::{Activity, DevicePool, ExecError, Executor, RunOptions, RunOutput, placeholder};
use anabranch_ir::program::Program;
use anabranch_kernels::Tensor;
use anabranch_plan::StreamMode;
use anabranch_planning::{Constraints, Lowered, PlanChoice, Planned, Planner, Strategy};
use anabranch_session::{Inputs, Session, SessionError};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Instant;

/// Timed runs, after one that is not timed.
const RUNS: usize = 3;

/// A model lowered for one set of input shapes, and what the session knows of its machine.
pub(super) struct PartPlanner {
    pub(super) lowered: Arc<Lowered>,
    /// Costs of the machine's devices and links.
    pub(super) machine: MachineCosts,
    /// Whether runs go on with states in place, as far as kernels can.
    pub(super) has_state: bool,
}

impl PartPlanner {
    /// Returns the planner of a session's model with inputs like these.
    ///
    /// # Errors
    /// If the inputs do not fit the model, or the model cannot be divided into stages.
    pub(super) fn of(session: &Session, inputs: &Inputs) -> Result<Self, SessionError> {
        if !session.options.constraints.resident.is_empty() {
            let text = "a pipeline cannot use tensors that stay on a device; open a session without them";
            return Err(refused(text.into()));
        }
        let lowered = session.lowered(&session.whole, inputs)?;
        if lowered.rest.is_some() {
            let text = "the shapes of this model depend on computed values, so it runs in phases and cannot be \
                 divided into stages; run the samples one after the other";
            return Err(refused(text.into()));
        }
        Ok(Self { lowered, machine: session.costs().here().clone(), has_state: false })
    }

    /// Plans a part of the program on a processor.
    pub(super) fn plan(
        &self,
        program: &Arc<Program>,
        processor: &Processor,
        choice: PlanChoice,
    ) -> Result<Arc<Planned>, SessionError> {
        let lowered = Lowered { program: Arc::clone(program), weights: Arc::clone(&self.lowered.weights), rest: None };
        let constraints = Constraints::default();
        let machine = processor.machine(&self.machine);
        let name = machine.devices.last().map_or_else(|| processor.name.clone(), |device| device.name.clone());
        let choice = PlanChoice { strategy: Strategy::Device(name), ..choice };
        Ok(Arc::new(Planner { lowered: &lowered, machine: &machine, constraints: &constraints }.plan(&choice)?))
    }

    /// Returns the predicted seconds of each node on a processor. If a GPU has no kernel for a node, the CPU device
    /// that feeds it runs the node.
    pub(super) fn predicted(&self, processor: &Processor) -> Result<Vec<f64>, SessionError> {
        let constraints = Constraints::default();
        let machine = processor.machine(&self.machine);
        let planner = Planner { lowered: &self.lowered, machine: &machine, constraints: &constraints };
        let nodes = planner.forecast()?.nodes;
        Ok(nodes.iter().map(|on| on.iter().rev().find_map(|seconds| *seconds).unwrap_or(0.0)).collect())
    }

    /// Returns the seconds of each node on each of these processors. Processors of one kind run side by side.
    /// Processors whose plans do not fit the memory get `None`.
    pub(super) fn by_kind(
        &self,
        session: &Session,
        inputs: &[&Tensor],
        processors: &[Processor],
    ) -> Result<Vec<Option<Vec<f64>>>, SessionError> {
        let mut columns = vec![None; processors.len()];
        for (first, processor) in processors.iter().enumerate() {
            let equals = || (first..processors.len()).filter(|at| processors[*at].key == processor.key);
            if processors[..first].iter().all(|before| before.key != processor.key) {
                let found =
                    self.side_by_side(session, inputs, &equals().map(|at| &processors[at]).collect::<Vec<_>>())?;
                equals().for_each(|at| columns[at].clone_from(&found));
            }
        }
        Ok(columns)
    }

    /// Returns the seconds of each node on equal processors that all run the program at a time, or `None` if that does
    /// not fit the memory.
    fn side_by_side(
        &self,
        session: &Session,
        inputs: &[&Tensor],
        equals: &[&Processor],
    ) -> Result<Option<Vec<f64>>, SessionError> {
        let whole = &self.lowered.program;
        let usual = session.choice();
        // In a plan without blocks every node has a time of its own.
        let unstreamed = PlanChoice { plan: usual.plan.clone().with_streaming(StreamMode::Off), ..session.choice() };
        let mut plans = Vec::new();
        for processor in equals {
            for choice in [&unstreamed, &usual] {
                plans.push((self.plan(whole, processor, choice.clone())?, processor.homes.clone()));
            }
        }
        let Ok(_held) = session.hold(&plans, 0) else { return Ok(None) };
        let mut executors = Vec::new();
        for (processor, pair) in equals.iter().zip(plans.chunks(2)) {
            let pool = processor.pool(session);
            let ready = |(planned, _): &(Arc<Planned>, Vec<usize>)| {
                Executor::new(Arc::clone(planned.plan()), Arc::new(planned.kernels()), &pool)
            };
            executors.push((processor.name.clone(), (Arc::clone(&pool), ready(&pair[0])?, ready(&pair[1])?)));
        }
        let run = |(pool, unstreamed, usual): &(Arc<DevicePool>, Executor, Executor)| {
            let _pinned = pool.pin_caller();
            let profiled = self.timed(unstreamed, inputs, &RunOptions::default().with_profile(true))?;
            Ok((profiled, self.timed(usual, inputs, &RunOptions::default())?))
        };
        Ok(Some(node_seconds(whole, &at_once(&executors, run)?)))
    }

    /// Runs once untimed, then [`RUNS`] more times.
    pub(super) fn timed(
        &self,
        executor: &Executor,
        inputs: &[&Tensor],
        options: &RunOptions,
    ) -> Result<Vec<RunOutput>, SessionError> {
        let mut outputs = RunOutput::default();
        let mut runs = Vec::new();
        let in_place = if self.has_state { executor.in_place() } else { &[] };
        let former: Vec<Tensor> = in_place.iter().map(|pair| placeholder(inputs[pair.input].dtype())).collect();
        let mut later = inputs.to_vec();
        in_place.iter().zip(&former).for_each(|(pair, former)| later[pair.input] = former);
        for at in 0..=RUNS {
            let begun = Instant::now();
            executor.run_into(if at == 0 { inputs } else { &later }, options, &mut outputs)?;
            if at > 0 {
                let (events, makespan) = (std::mem::take(&mut outputs.events), begun.elapsed());
                runs.push(RunOutput { events, makespan, ..RunOutput::default() });
            }
        }
        Ok(runs)
    }
}

/// Profiled runs, and runs without profiling.
type Runs = (Vec<RunOutput>, Vec<RunOutput>);

/// Calls `run` for each of the named items at the same time. No run begins before each has its thread. If the system
/// does not give enough threads, none begins.
fn at_once<T: Sync, R: Send>(
    all: &[(String, T)],
    run: impl Fn(&T) -> Result<R, SessionError> + Sync,
) -> Result<Vec<R>, SessionError> {
    let gate = RwLock::new(false);
    let begin = |one: &T| match gate.read().is_ok_and(|open| *open) {
        true => run(one),
        false => Err(ExecError::internal("a measurement was abandoned").into()),
    };
    let runs: Vec<Result<R, SessionError>> = thread::scope(|scope| {
        // Locked while threads are made. However this function ends, the lock is released and no thread waits at the
        // gate. Runs begin only if it was set to true.
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

/// Returns the median time of each node in the profiled runs, scaled so that they add up to the time of runs without
/// profiling.
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
        // A name that no thread can have is rejected before any run begins.
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
