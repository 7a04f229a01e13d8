//! Time of each node on each processor while the others work, and the time to hand over a data set.
//!
//! If times are to be measured, all processors of a kind run the whole program at the same time, as they would in a
//! pipeline. The times then contain the contention for memory and caches. After that, the cores of each CPU device run
//! the program together, which shows how much of it a group of cores divides. Otherwise the times come from the
//! session's cost model.

use super::channel_capacities::ChannelCapacities;
use super::feedback::Feedback;
use super::handover;
use super::options::PipelineOptions;
use super::part_planner::PartPlanner;
use super::processors::{Processor, processors, whole_devices};
use super::teams::{Team, serial_shares};
use super::wiring::Wiring;
use anabranch_costs::median;
use anabranch_execute::RunOptions;
use anabranch_ir::program::{NodeId, Program};
use anabranch_kernels::Tensor;
use anabranch_placement::pipeline::Link;
use anabranch_placement_core::platform::DeviceKind;
use anabranch_planning::{Constraints, Planned, link};
use anabranch_session::{Inputs, Session, SessionError, ordered};
use std::sync::Arc;

/// Seconds of nodes on processors, for one model and one set of input shapes. Measurements of pipelines can be added.
pub struct StageCosts {
    pub(super) parts: PartPlanner,
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
    measured: bool,
    /// Whether nodes are bound to devices. Only the session's own plan keeps such bindings.
    pub(super) bound: bool,
    /// States that pass from data set to data set.
    pub(super) states: Vec<Feedback>,
}

impl StageCosts {
    /// Returns the costs of a model with inputs like these.
    ///
    /// Measuring takes some ten runs of the model on one core, and as many on all cores of each CPU device together.
    /// The time to hand over a data set is always measured, which takes some milliseconds.
    ///
    /// Only the options `measure` and `state` count. If there is state, `inputs` has its first values, and stages are
    /// on whole devices instead of cores.
    ///
    /// # Errors
    /// If the inputs do not fit the model, it cannot be planned or run, or states cannot stay in a stage.
    pub fn of(session: &Session, inputs: &Inputs, options: &PipelineOptions) -> Result<Self, SessionError> {
        let parts = PartPlanner::of(session, inputs)?;
        let given = ordered(inputs, &parts.lowered.program, |_| true)?;
        let states = Feedback::all(&parts.lowered.program, &options.state, &given)?;
        let (processors, teams) =
            if states.is_empty() { processors(session)? } else { (whole_devices(session), Vec::new()) };
        let planned = session.plan_with(inputs, &session.choice())?;
        if session.options.calibrate {
            processors.iter().try_for_each(|processor| session.calibrate_parts(&processor.devices))?;
        }
        let (machine, has_state) = (session.costs().here().clone(), !states.is_empty());
        let parts = PartPlanner { machine, has_state, ..parts };
        let mut costs = Self {
            serial: vec![0.0; parts.lowered.program.nodes.len()],
            seconds: Vec::new(),
            together: planned.plan().predicted().makespan,
            bound: session.options.constraints != Constraints::default(),
            handover: 0.0,
            measured: false,
            states,
            parts,
            processors,
            teams,
            planned,
        };
        costs.predict()?;
        if options.measure {
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
        let channels = ChannelCapacities::of(&Wiring::whole(self.program(), &self.states), &[1], capacity, 1.0 / rate);
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
        &self.parts.lowered.program
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
            let machine = processor.unwrap_or(&self.processors[0]).machine(&self.parts.machine);
            machine.devices.into_iter().last()
        };
        let half = self.handover / 2.0;
        let is_gpu = |end: Option<usize>| end.is_some_and(|end| !self.processors[end].is_core());
        let from_stage_to_stage = from.is_some() && to.is_some();
        let is_paid = from_stage_to_stage || (!self.measured && (is_gpu(from) || is_gpu(to)));
        match (device(from), device(to)) {
            (Some(a), Some(b)) if a.name != b.name && is_paid => {
                let known = link(&self.parts.machine, &a, &b);
                // Between CPU devices the latency is the latency of a message, and a hand-over is a message.
                let own = if (a.kind, b.kind) == (DeviceKind::Cpu, DeviceKind::Cpu) { 0.0 } else { known.latency };
                Link { latency: own + half, bandwidth: known.rate }
            }
            _ => Link { latency: half, ..Link::FREE },
        }
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
        let column = |processor: &Processor| self.parts.predicted(processor);
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
        let columns = self.parts.by_kind(session, inputs, &self.processors)?;
        for (at, seconds) in columns.iter().enumerate().filter_map(|(at, column)| Some((at, column.as_ref()?))) {
            self.seconds.iter_mut().zip(seconds).for_each(|(times, seconds)| times[at] = *seconds);
        }
        let columns = self.parts.by_kind(session, inputs, &self.wholes())?;
        self.take_shares(&columns);
        let prepared = session.ready(&self.planned)?;
        let times = self.parts.timed(&prepared.executor, inputs, &RunOptions::default())?;
        let times: Vec<f64> = times.iter().map(|run| run.makespan.as_secs_f64()).collect();
        self.together = median(&times).unwrap_or(self.together);
        self.measured = true;
        Ok(())
    }
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
        let mut costs = Self::of(&session, &set, &PipelineOptions::default().with_measuring(false)).expect("costs");
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
