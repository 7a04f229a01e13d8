//! Opens a pipeline: tries the possible mappings, best first, and starts the first one that fits the devices' memory.

use super::channel_capacities::ChannelCapacities;
use super::choice::{Candidate, candidates};
use super::costs::StageCosts;
use super::face::{Parts, Pipeline};
use super::feedback::Feedback;
use super::interval::{Cut, Part};
use super::kept::Kept;
use super::line::{Line, Replica, Stage, Work};
use super::mapping::{On, StageMapping, Stages, refused};
use super::options::PipelineOptions;
use super::packet::{Packet, work};
use super::plan::{PipelinePlan, StagePlan, Tried};
use super::processors::Processor;
use super::wiring::{Route, Wiring};
use anabranch_execute::Executor;
use anabranch_placement::pipeline::Goal;
use anabranch_planning::Planned;
use anabranch_session::{Inputs, Session, SessionError};
use std::sync::Arc;

impl Pipeline {
    /// Opens a pipeline for inputs of these shapes, with the best mapping that fits the devices' memory next to the
    /// session's own.
    ///
    /// # Errors
    /// If the inputs do not fit the model, none of the mappings to choose from fits, or a device cannot be used.
    pub fn open(session: &Session, inputs: &Inputs, options: &PipelineOptions) -> Result<Self, SessionError> {
        Self::with_costs(session, &StageCosts::of(session, inputs, options)?, options)
    }

    /// Opens a pipeline as [`Self::open`] does, with costs that are already known.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with_costs(session: &Session, costs: &StageCosts, options: &PipelineOptions) -> Result<Self, SessionError> {
        let found = candidates(costs, options)?;
        let (mut tried, mut short) = (Vec::new(), None);
        let opening = Opening { session, costs, options };
        for candidate in &found {
            match opening.open(candidate) {
                Ok(mut parts) => {
                    tried.extend(found[tried.len()..].iter().map(|other| Tried::of(other, costs, None)));
                    parts.plan.candidates = tried;
                    return Ok(Self::new(parts));
                }
                Err(error) if error.is_infeasible() => {
                    tried.push(Tried::of(candidate, costs, Some(error.to_string())));
                    short.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(short.unwrap_or_else(|| refused("no mapping exists".into())))
    }
}

/// Session, costs and options that a pipeline is opened with.
struct Opening<'a> {
    session: &'a Session,
    costs: &'a StageCosts,
    options: &'a PipelineOptions,
}

impl Opening<'_> {
    fn open(&self, candidate: &Candidate) -> Result<Parts, SessionError> {
        match &candidate.stages {
            Some(stages) => self.in_stages(candidate, stages),
            None => self.together(candidate),
        }
    }

    /// Returns the parts of a pipeline of one stage, which is the session's own plan.
    fn together(&self, candidate: &Candidate) -> Result<Parts, SessionError> {
        let program = &self.costs.parts.lowered.program;
        let wiring = Wiring::whole(program, &self.costs.states);
        let channels = ChannelCapacities::of(&wiring, &[1], self.options.capacity.get(), self.stride(candidate));
        let prepared = self.session.ready(&self.costs.planned)?;
        let (charge, mut held) = self.session.hold(&[], channels.bytes.saturating_add(self.state_bytes()))?;
        for (bytes, memory) in held.iter_mut().zip(prepared.plan().memory().devices()) {
            *bytes += memory.peak();
        }
        let device = self.session.inventory().devices().map(|device| device.name()).collect::<Vec<_>>().join("+");
        let (route, options, kept) = (wiring.routes[0].clone(), self.options.run.clone(), channels.kept[0]);
        let states = self.kept(&route, &prepared.executor);
        let start = move || -> Work<Packet> {
            let run =
                move |inputs: &[&_], options: &_, output: &mut _| prepared.executor.run_into(inputs, options, output);
            work(run, route, states, kept, options)
        };
        let replica = Replica { device: device.clone(), start: Box::new(start) };
        let stage = StagePlan {
            devices: vec![device],
            nodes: program.nodes.iter().map(|node| node.name.clone()).collect(),
            seconds: vec![self.costs.together],
            in_turn: false,
            bytes_in: wiring.live[0],
            state: self.state_bytes(),
        };
        let (capacity, gather) = (channels.capacities[0], channels.gather);
        let stages = vec![Stage { replicas: vec![replica], in_turn: false, capacity, gather }];
        let plan = self.plan(candidate, vec![stage], held, channels.bytes);
        let line = Line::start(stages, channels.capacities[1], channels.gather)?;
        Ok(Parts { line, plan, wiring, program: Arc::clone(program), charge })
    }

    /// Returns the parts of a pipeline whose stages are on devices of their own.
    fn in_stages(&self, candidate: &Candidate, stages: &Stages) -> Result<Parts, SessionError> {
        let program = &self.costs.parts.lowered.program;
        let states = &self.costs.states;
        let cut = Cut::new(program, &stages.order, &stages.sizes, states);
        let wiring = Wiring::of(&cut, program, states)?;
        let takers = |on: &On| on.takers().map(|taker| self.costs.taker(taker)).collect::<Result<Vec<_>, _>>();
        let takers = stages.on.iter().map(takers).collect::<Result<Vec<_>, _>>()?;
        let counts: Vec<usize> = takers.iter().map(Vec::len).collect();
        let channels = ChannelCapacities::of(&wiring, &counts, self.options.capacity.get(), self.stride(candidate));
        let plans = self.plans(&cut, &takers)?;
        let of_all: Vec<_> = plans.iter().flatten().cloned().collect();
        let (charge, held) = self.session.hold(&of_all, channels.bytes.saturating_add(self.state_bytes()))?;
        let (mut line, mut described) = (Vec::new(), Vec::new());
        for (at, plans) in plans.into_iter().enumerate() {
            let on = &takers[at];
            // Devices of different kinds round differently. In turn, the device of a data set does not depend on
            // timing.
            let in_turn = on.iter().any(|processor| processor.key != on[0].key);
            let replicas = plans
                .iter()
                .zip(on)
                .map(|((planned, _), processor)| self.replica(planned, processor, &wiring, at, channels.kept[at]));
            let replicas = replicas.collect::<Result<Vec<_>, _>>()?;
            let taken = stages.on[at].takers();
            let seconds = taken.map(|taker| self.costs.seconds_on(stages.nodes(at), taker)).collect();
            described.push(StagePlan {
                devices: replicas.iter().map(|replica| replica.device.clone()).collect(),
                nodes: stages.nodes(at).iter().map(|node| program.node(*node).name.clone()).collect(),
                seconds,
                in_turn,
                bytes_in: wiring.live[at],
                state: self.bytes_of(&wiring.routes[at]),
            });
            // If replicas take turns, gathering would only delay: no other replica may take the data set.
            let gather = if in_turn { 1 } else { channels.gather };
            line.push(Stage { replicas, in_turn, capacity: channels.capacities[at], gather });
        }
        let plan = self.plan(candidate, described, held, channels.bytes);
        let line = Line::start(line, channels.capacities[stages.on.len()], channels.gather)?;
        Ok(Parts { line, plan, wiring, program: Arc::clone(program), charge })
    }

    /// Returns the first states of a stage.
    fn kept(&self, route: &Route, executor: &Executor) -> Kept {
        Kept::new(route, &self.costs.states, self.options.sequences.get(), executor)
    }

    /// Returns the bytes of a stage's states.
    fn bytes_of(&self, route: &Route) -> u64 {
        let states = route.states.iter().map(|(number, ..)| &self.costs.states[*number]);
        Feedback::total(states, self.options.sequences.get())
    }

    /// Returns the bytes of all states.
    fn state_bytes(&self) -> u64 {
        Feedback::total(&self.costs.states, self.options.sequences.get())
    }

    /// Returns the seconds between data sets that may be gathered, or infinity if latency counts.
    fn stride(&self, candidate: &Candidate) -> f64 {
        if self.options.goal == Goal::Period { candidate.performance.period } else { f64::INFINITY }
    }

    /// Returns the plans of all replicas by stage, with the session's devices that they use.
    #[expect(clippy::type_complexity, reason = "what the session charges")]
    fn plans(
        &self,
        cut: &Cut,
        takers: &[Vec<Processor>],
    ) -> Result<Vec<Vec<(Arc<Planned>, Vec<usize>)>>, SessionError> {
        let planned = |part: &Part, processor: &Processor| {
            let planned = self.costs.parts.plan(&part.program, processor, self.session.choice())?;
            Ok((planned, processor.homes.clone()))
        };
        let stage = |(part, on): (_, &Vec<Processor>)| on.iter().map(|processor| planned(part, processor)).collect();
        cut.parts.iter().zip(takers).map(stage).collect()
    }

    fn replica(
        &self,
        planned: &Arc<Planned>,
        processor: &Processor,
        wiring: &Wiring,
        stage: usize,
        kept: usize,
    ) -> Result<Replica<Packet>, SessionError> {
        let pool = processor.pool(self.session);
        let executor = Executor::new(Arc::clone(planned.plan()), Arc::new(planned.kernels()), &pool)?;
        let (route, options) = (wiring.routes[stage].clone(), self.options.run.clone());
        let states = self.kept(&route, &executor);
        let start = move || -> Work<Packet> {
            let pinned = pool.pin_caller();
            let run = move |inputs: &[&_], options: &_, output: &mut _| {
                let _on_its_core = &pinned;
                executor.run_into(inputs, options, output)
            };
            work(run, route, states, kept, options)
        };
        Ok(Replica { device: processor.name.clone(), start: Box::new(start) })
    }

    fn plan(&self, candidate: &Candidate, stages: Vec<StagePlan>, held: Vec<u64>, in_flight: u64) -> PipelinePlan {
        let mapping = candidate.stages.as_ref().map(|stages| StageMapping::of(stages, self.costs));
        let names = self.session.inventory().devices().map(|device| device.name().to_owned());
        PipelinePlan {
            how: candidate.how.clone(),
            stages,
            period: candidate.performance.period,
            latency: candidate.performance.latency,
            handover: self.costs.handover,
            held: names.zip(held).collect(),
            in_flight,
            candidates: Vec::new(),
            mapping: mapping.unwrap_or_default(),
        }
    }
}
