//! Time of each node on each processor while the others work, and the time to hand over a data set.
//!
//! If times are to be measured, all processors of a kind run the whole program at the same time, as they would in a
//! pipeline. The times then contain the contention for memory and caches. After that, the cores of each CPU device run
//! the program together, which shows how much of it a group of cores divides. Otherwise the times come from the
//! session's cost model.

use super::channel_capacities::ChannelCapacities;
use super::handover;
use super::mapping::refused;
use super::options::PipelineOptions;
use super::processors::{Processor, processors};
use super::teams::{Team, serial_shares};
use super::wiring::Wiring;
use anabranch_costs::{MachineCosts, median};
use anabranch_execute::{Activity, DevicePool, ExecError, Executor, RunOptions, RunOutput};
use anabranch_ir::program::{NodeId, Program};
use anabranch_kernels::Tensor;
use anabranch_placement::pipeline::Link;
use anabranch_placement_core::platform::DeviceKind;
use anabranch_plan::StreamMode;
use anabranch_planning::{Constraints, Lowered, PlanChoice, Planned, Planner, Strategy, link};
use anabranch_session::{Inputs, Session, SessionError, ordered};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Instant;

/// Timed runs, after one that is not timed.
const RUNS: usize = 3;

/// Seconds of nodes on processors, for one model and one set of input shapes. Measurements of pipelines can be added.
pub struct StageCosts {
    pub(super) lowered: Arc<Lowered>,
    pub(super) processors: Vec<Processor>,
    /// Groups of processors that are cores of one device.
    pub(super) teams: Vec<Team>,
    /// Seconds, by node and processor.
    pub(super) seconds: Vec<Vec<f64>>,
    /// Share of each node's time that a group of cores does not divide. If CPU devices differ, the greatest share.
    pub(super) serial: Vec<f64>,
    /// Seconds to hand over a data set, per stage.
    pub(super) handover: f64,
    /// Seconds of a run on all devices of the session together.
    pub(super) together: f64,
    /// The session's own plan.
    pub(super) planned: Arc<Planned>,
    /// All other costs that the session knows of the machine.
    machine: MachineCosts,
    measured: bool,
    /// Whether nodes are bound to devices. Only the session's own plan keeps such bindings.
    pub(super) bound: bool,
}

impl StageCosts {
    /// Returns the costs of a model with inputs like these.
    ///
    /// Measuring takes some ten runs of the model on one core, and as many on all cores of each CPU device together.
    /// The time to hand over a data set is always measured, which takes some milliseconds.
    ///
    /// # Errors
    /// If the inputs do not fit the model, or it cannot be planned or run.
    pub fn of(session: &Session, inputs: &Inputs, measure: bool) -> Result<Self, SessionError> {
        let constraints = &session.options.constraints;
        if !constraints.resident.is_empty() {
            let text = "a pipeline cannot use tensors that stay on a device; open a session without them";
            return Err(refused(text.into()));
        }
        let lowered = session.lowered(&session.whole, inputs)?;
        if lowered.rest.is_some() {
            let text = "the shapes of this model depend on computed values, so it runs in phases and cannot be \
                 divided into stages; run the samples one after the other";
            return Err(refused(text.into()));
        }
        let given = ordered(inputs, &lowered.program, |_| true)?;
        let (processors, teams) = processors(session)?;
        let planned = session.plan_with(inputs, &session.choice())?;
        if session.options.calibrate {
            processors.iter().try_for_each(|processor| session.calibrate_parts(&processor.devices))?;
        }
        let machine = session.costs().here().clone();
        let mut costs = Self {
            serial: vec![0.0; lowered.program.nodes.len()],
            seconds: Vec::new(),
            together: planned.plan().predicted().makespan,
            bound: *constraints != Constraints::default(),
            handover: 0.0,
            measured: false,
            lowered,
            processors,
            teams,
            planned,
            machine,
        };
        costs.predict()?;
        if measure {
            costs.measure(session, &given)?;
        }
        costs.handover = costs.handed_over(session, inputs)?;
        Ok(costs)
    }

    /// Measures the time to hand over a data set, with as many at a time as the fastest mapping would hand over.
    fn handed_over(&self, session: &Session, inputs: &Inputs) -> Result<f64, SessionError> {
        let Some(core) = self.processors.first() else { return Ok(0.0) };
        let nodes: Vec<NodeId> = self.program().node_ids().collect();
        let rate: f64 = (0..self.processors.len()).map(|processor| 1.0 / self.sum(&nodes, processor)).sum();
        let capacity = PipelineOptions::default().capacity.get();
        let channels = ChannelCapacities::of(&Wiring::whole(self.program()), &[1], capacity, 1.0 / rate);
        handover::measured(self.program(), inputs, &core.pool(session), &channels)
    }

    /// Names of the processors, cores first.
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

    /// Returns the link from one processor's memory to another's. `None` stands for the host's memory, where data sets
    /// come from and go to; measured times contain the transfers from and to it.
    ///
    /// Half of a hand-over is the latency of every link: a stage pays one half when it takes a data set, and the other
    /// half when it passes the data set on.
    pub(super) fn link(&self, from: Option<usize>, to: Option<usize>) -> Link {
        let device = |end: Option<usize>| {
            let processor = end.map(|end| &self.processors[end]);
            let machine = processor.unwrap_or(&self.processors[0]).machine(&self.machine);
            machine.devices.into_iter().last()
        };
        let half = self.handover / 2.0;
        let is_gpu = |end: Option<usize>| end.is_some_and(|end| !self.processors[end].is_core());
        let from_stage_to_stage = from.is_some() && to.is_some();
        let is_paid = from_stage_to_stage || (!self.measured && (is_gpu(from) || is_gpu(to)));
        match (device(from), device(to)) {
            (Some(a), Some(b)) if a.name != b.name && is_paid => {
                let known = link(&self.machine, &a, &b);
                // Between CPU devices the latency is the latency of a message, and a hand-over is a message.
                let own = if (a.kind, b.kind) == (DeviceKind::Cpu, DeviceKind::Cpu) { 0.0 } else { known.latency };
                Link { latency: own + half, bandwidth: known.rate }
            }
            _ => Link { latency: half, ..Link::FREE },
        }
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

    /// Takes the measured seconds of a stage on a processor, or on several cores as one, as the time of its nodes there
    /// and on processors of the same kind.
    pub(super) fn learn(&mut self, nodes: &[NodeId], taker: &[usize], seconds: f64) {
        let Some(processor) = taker.first() else { return };
        if taker.len() > 1 {
            self.learn_shares(nodes, taker, seconds);
        }
        let equal = |other: &usize| self.processors[*other].key == self.processors[*processor].key;
        let equals: Vec<usize> = (0..self.processors.len()).filter(equal).collect();
        let factor = seconds / self.seconds_on(nodes, taker);
        if factor.is_finite() && factor > 0.0 {
            for node in nodes {
                equals.iter().for_each(|other| self.seconds[node.index()][*other] *= factor);
            }
        }
    }

    /// Takes times from the cost model. If a GPU has no kernel for a node, the core that feeds it runs the node.
    fn predict(&mut self) -> Result<(), SessionError> {
        let constraints = Constraints::default();
        let column = |processor: &Processor| {
            let machine = processor.machine(&self.machine);
            let planner = Planner { lowered: &self.lowered, machine: &machine, constraints: &constraints };
            let nodes = planner.forecast()?.nodes;
            Ok(nodes.iter().map(|on| on.iter().rev().find_map(|seconds| *seconds).unwrap_or(0.0)).collect())
        };
        let columns: Vec<Vec<f64>> = self.processors.iter().map(column).collect::<Result<_, SessionError>>()?;
        let of_node = |node: usize| columns.iter().map(|times| times[node]).collect();
        self.seconds = (0..self.program().nodes.len()).map(of_node).collect();
        let wholes = self.wholes();
        let columns = wholes.iter().map(|whole| column(whole).map(Some)).collect::<Result<Vec<_>, SessionError>>()?;
        self.take_shares(&columns);
        Ok(())
    }

    /// Returns the cores of each CPU device as one processor.
    fn wholes(&self) -> Vec<Processor> {
        self.teams.iter().map(|team| team.whole(&self.processors)).collect()
    }

    /// Derives each node's indivisible share from its seconds on all cores of each device, if these are known.
    fn take_shares(&mut self, on_all: &[Option<Vec<f64>>]) {
        let shares = |(team, all): (&Team, &Option<Vec<f64>>)| {
            let one: Vec<f64> = self.seconds.iter().map(|times| times[team.cores[0]]).collect();
            all.as_ref().map(|all| serial_shares(&one, all, team.cores.len()))
        };
        let shares: Vec<Vec<f64>> = self.teams.iter().zip(on_all).filter_map(shares).collect();
        if shares.is_empty() {
            return;
        }
        let greatest = |node: usize| shares.iter().map(|shares| shares[node]).fold(0.0, f64::max);
        self.serial = (0..self.serial.len()).map(greatest).collect();
    }

    /// Measures runs of the program on all processors of each kind at a time, on the cores of each CPU device together,
    /// and on all devices together.
    fn measure(&mut self, session: &Session, inputs: &[&Tensor]) -> Result<(), SessionError> {
        let columns = self.by_kind(session, inputs, &self.processors)?;
        for (at, seconds) in columns.iter().enumerate().filter_map(|(at, column)| Some((at, column.as_ref()?))) {
            self.seconds.iter_mut().zip(seconds).for_each(|(times, seconds)| times[at] = *seconds);
        }
        let columns = self.by_kind(session, inputs, &self.wholes())?;
        self.take_shares(&columns);
        let prepared = session.ready(&self.planned)?;
        let times = timed(&prepared.executor, inputs, &RunOptions::default())?;
        let times: Vec<f64> = times.iter().map(|run| run.makespan.as_secs_f64()).collect();
        self.together = median(&times).unwrap_or(self.together);
        self.measured = true;
        Ok(())
    }

    /// Returns the seconds of each node on each of these processors. Processors of one kind run side by side.
    /// Processors whose plans do not fit the memory get `None`.
    fn by_kind(
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
            let profiled = timed(unstreamed, inputs, &RunOptions::default().with_profile(true))?;
            Ok((profiled, timed(usual, inputs, &RunOptions::default())?))
        };
        Ok(Some(node_seconds(whole, &at_once(&executors, run)?)))
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

/// Runs once untimed, then [`RUNS`] more times.
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
impl StageCosts {
    /// Returns the costs of a small model. Each node takes a second on each of `cores` equal cores of one device, which
    /// divide all but the share `serial`.
    pub(super) fn made_up(cores: usize, serial: f64) -> Self {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/layer.onnx");
        let devices = anabranch_device::DetectOptions::default().without_gpu();
        let options = anabranch_session::SessionConfig::default().with_devices(devices).with_dim("batch", 2);
        let session = Session::open(model, options).expect("a model");
        let set = session.fill_random(Inputs::new(), 0).expect("small");
        let mut costs = Self::of(&session, &set, false).expect("costs");
        let nodes = costs.program().nodes.len();
        let named = |at: usize| Processor { name: format!("cpu0.{at}"), ..costs.processors[0].clone() };
        let device = session.inventory().cpus[0].clone();
        costs.teams = vec![Team { device, home: 0, cores: (0..cores).collect() }];
        costs.processors = (0..cores).map(named).collect();
        (costs.seconds, costs.serial) = (vec![vec![1.0; cores]; nodes], vec![serial; nodes]);
        (costs.together, costs.handover) = (100.0 * nodes as f64, 0.0);
        costs
    }
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
