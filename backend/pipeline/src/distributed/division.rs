//! Divides a model into stages on the devices of several machines, by the theory of pipelines.
//!
//! For the least latency, parts that run at the same time may replace the chain ([`Branches`]).
//!
//! The program is cut into a [`Chain`] of intervals with few bytes between them. [`choose()`] maps the chain to the
//! devices, under their memory limits. A device receives, computes or sends at a time, because a stage reads and writes
//! the engine's memory itself.

use super::super::chain::Chain;
use super::super::feedback::{Feedback, stages_of};
use super::super::mapping::refused;
use super::super::part_planner::PartPlanner;
use super::branches::Branches;
use super::stage::DividedState;
use super::times::{MachineTimes, digest};
use anabranch_base::bytes::format_bytes;
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::quoted::Name;
use anabranch_execute::ExecError;
use anabranch_ir::program::{NodeId, Program};
use anabranch_placement::pipeline::{
    self, ChooseError, Communication, Goal, Link, Parallel, Port, Problem, Processors, Rules, Sharing, choose,
};
use anabranch_session::{Inputs, Session, SessionError, ordered};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the process that gives inputs and takes results, at the end of a link.
pub(super) const OUTSIDE: &str = "outside";

/// Least share of a chain's latency that stages which run at the same time must save.
const GAIN: f64 = 0.01;

/// Machines with their times for one model, and the links between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machines {
    /// Times by the names of machines.
    pub machines: BTreeMap<String, MachineTimes>,
    /// Links between machines, within machines, and from and to `outside`.
    pub links: Vec<MachineLink>,
}

/// A link in one direction: `n` bytes take `latency + n / rate` seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineLink {
    /// Machine that sends, or `outside`.
    pub from: String,
    /// Machine that receives, or `outside`.
    pub to: String,
    /// Seconds before the first byte arrives.
    pub latency: f64,
    /// Bytes per second.
    pub rate: f64,
}

/// Options of a division.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DivisionOptions {
    /// Goal of the choice.
    pub goal: Goal,
    /// Whether several devices may each do the whole work of a stage without state, for different data sets.
    pub replication: bool,
    /// Whether stages may run at the same time for one data set. This needs [`Goal::Latency`], and no state.
    pub branches: bool,
}

/// Stages of a model on devices of several machines, with predictions. Times in seconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Division {
    /// Description of how the mapping was found.
    pub how: String,
    /// The stages. In a chain, data pass all of them in this order. Otherwise each comes after those that it reads.
    pub stages: Vec<DivisionStage>,
    /// Whether all values pass from each stage to the next. Otherwise a stage sends each value to its readers, and a
    /// device may have several stages.
    pub chain: bool,
    /// Messages of a data set, if the stages are no chain.
    pub messages: Vec<DivisionMessage>,
    /// Predicted time between results.
    pub period: f64,
    /// Predicted time from a data set's start to its result.
    pub latency: f64,
    /// Lower bound of all divisions for the goal.
    pub lower_bound: f64,
    /// Bytes of a result.
    pub bytes_out: u64,
    /// Bound outputs and inputs.
    pub state: Vec<(String, String)>,
}

/// A stage of a [`Division`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DivisionStage {
    /// Devices, as in `node1/cpu0`. Each does the whole work of the stage for some of the data sets.
    pub devices: Vec<String>,
    /// Names of the nodes, in an order in which each comes after the nodes that it reads.
    pub nodes: Vec<String>,
    /// Seconds of a data set on each of the devices, without transfers.
    pub seconds: Vec<f64>,
    /// Bytes of a data set before the stage.
    pub bytes_in: u64,
    /// Bytes of the stage's constants.
    pub weights: u64,
    /// Bytes of the states that the stage keeps, of all sequences.
    pub state: u64,
}

/// Values of a data set that one device sends to another at a time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DivisionMessage {
    /// Device that sends, or `outside`.
    pub from: String,
    /// Device that receives, or `outside`.
    pub to: String,
    /// Bytes of the values.
    pub bytes: u64,
    /// Predicted seconds.
    pub seconds: f64,
}

/// Divides a session's model into stages for inputs like these, which contain the first state.
///
/// O(nodes × (devices + degree) + cuts²), and then the bounded search of [`choose()`].
///
/// # Errors
/// If a machine's model differs from this one, or a time or a link is missing or is not a valid number. If no mapping
/// fits the memory or keeps the goal's limit.
pub fn divide(
    session: &Session,
    inputs: &Inputs,
    machines: &Machines,
    state: &DividedState,
    options: DivisionOptions,
) -> Result<Division, SessionError> {
    let parts = PartPlanner::of(session, inputs)?;
    let program = &*parts.lowered.program;
    if program.nodes.is_empty() {
        return Err(refused(nothing_to_divide(session)));
    }
    let devices = Devices::of(program, machines)?;
    let states = Feedback::all(program, &state.pairs, &ordered(inputs, program, |_| true)?)?;
    let seconds = |node: NodeId, device: usize| devices.seconds[device][node.index()];
    let Chain { order, sizes, mut stages } = Chain::of(program, &states, devices.names.len(), seconds)?;
    let weights: Vec<u64> = stages.stages.iter().map(|stage| stage.weights).collect();
    let (stage_of, mut kept) = (stages_of(&order, &sizes), vec![0u64; sizes.len()]);
    for own in &states {
        let home = own.home(|node| stage_of[node.index()]);
        kept[home] = kept[home].saturating_add(Feedback::total([own], state.sequences.get()));
    }
    for (stage, kept) in stages.stages.iter_mut().zip(&kept) {
        stage.weights = stage.weights.saturating_add(*kept);
    }
    let rules =
        Rules { communication: Communication::OnePort, replication: options.replication, parallel: Parallel::Never };
    let problem = Problem::new(stages, devices.processors(machines)?, rules);
    let problem = problem.map_err(|error| refused(error.to_string()))?;
    let chosen = choose(&problem, options.goal).map_err(|error| infeasible(&error, &problem, &devices))?;
    let wide = options.branches && options.goal == Goal::Latency && states.is_empty();
    let pipeline::Stages { stages, data } = problem.stages();
    let alive = stages.iter().map(|stage| stage.activations).max().unwrap_or(0);
    let values = alive.saturating_add(data[0]).saturating_add(data[sizes.len()]);
    let hand_over = devices.hand_over(machines);
    let branches = match wide {
        true => Branches::of(program, &devices, problem.processors(), &hand_over, values)?,
        false => None,
    };
    let lower_bound = branches.as_ref().map_or(chosen.lower_bound, |found| found.lower_bound.min(chosen.lower_bound));
    let bytes_out = problem.stages().data[sizes.len()];
    if let Some(found) = branches.filter(|found| found.latency < chosen.performance.latency * (1.0 - GAIN)) {
        return Ok(found.division(lower_bound, bytes_out));
    }
    let homes: Vec<usize> = states.iter().map(|own| own.home(|node| stage_of[node.index()])).collect();
    let shares_state = |interval: &&pipeline::Interval| {
        interval.processors.len() > 1 && homes.iter().any(|home| interval.stages.contains(home))
    };
    if chosen.mapping.intervals.iter().any(|interval| shares_state(&interval)) {
        return Err(ExecError::internal("several devices were to keep one state").into());
    }
    let stage = |interval: &pipeline::Interval| {
        let before: usize = sizes[..interval.stages.start].iter().sum();
        let count: usize = sizes[interval.stages.clone()].iter().sum();
        let nodes = &order[before..before + count];
        let name = |node: &NodeId| program.node(*node).name.clone();
        let time = |device: &usize| nodes.iter().map(|node| devices.seconds[*device][node.index()]).sum();
        let bytes = |of: &[u64]| of[interval.stages.clone()].iter().copied().fold(0, u64::saturating_add);
        debug_assert!(interval.sharing != Sharing::DataParallel, "the rules forbid it");
        DivisionStage {
            devices: interval.processors.iter().map(|device| devices.names[*device].clone()).collect(),
            nodes: nodes.iter().map(name).collect(),
            seconds: interval.processors.iter().map(time).collect(),
            bytes_in: problem.stages().data[interval.stages.start],
            weights: bytes(&weights),
            state: bytes(&kept),
        }
    };
    Ok(Division {
        how: chosen.how.to_owned(),
        stages: chosen.mapping.intervals.iter().map(stage).collect(),
        chain: true,
        messages: Vec::new(),
        period: chosen.performance.period,
        latency: chosen.performance.latency,
        lower_bound,
        bytes_out,
        state: state.pairs.iter().map(|pair| (pair.output.clone(), pair.input.clone())).collect(),
    })
}

/// Returns the reason that a program is empty.
fn nothing_to_divide(session: &Session) -> String {
    let deciding = session.deciding_inputs();
    if deciding.is_empty() {
        return "the model has no nodes to divide: its outputs are inputs or constants; run it in a session".into();
    }
    format!(
        "the model cannot be divided: its shapes depend on the elements of {}, so that each input needs a \
         division of its own; run it in a session",
        deciding.iter().map(|input| Name(input).to_string()).collect::<Vec<_>>().join(", ")
    )
}

/// Returns the error of a choice. If memory is short, it says what the model needs and what the devices have.
fn infeasible(error: &ChooseError, problem: &Problem, devices: &Devices<'_>) -> SessionError {
    let text = match error {
        ChooseError::NoMapping => {
            let needs = |stage: &pipeline::Stage| stage.weights.saturating_add(stage.activations);
            let stages = &problem.stages().stages;
            let weights = stages.iter().fold(0u64, |sum, stage| sum.saturating_add(stage.weights));
            let largest = stages.iter().map(needs).max().unwrap_or(0);
            let has = |(name, memory): (&String, &Option<u64>)| {
                format!("{name} {}", memory.map_or("without a limit".to_owned(), format_bytes))
            };
            let have: Vec<_> = devices.names.iter().zip(&devices.memory).map(has).collect();
            format!(
                "the model does not fit the memory of the nodes: its weights take {}, its largest part {} with its \
                 values, and the devices have: {}; give them more memory, or use more nodes",
                format_bytes(weights),
                format_bytes(largest),
                have.join(", ")
            )
        }
        error => error.to_string(),
    };
    ExecError::new(ErrorKind::Infeasible, text).into()
}

/// Devices of all machines, by number.
pub(super) struct Devices<'a> {
    pub(super) names: Vec<String>,
    machines: Vec<&'a str>,
    pub(super) memory: Vec<Option<u64>>,
    /// Seconds by device and node.
    pub(super) seconds: Vec<&'a [f64]>,
}

impl<'a> Devices<'a> {
    fn of(program: &Program, machines: &'a Machines) -> Result<Self, SessionError> {
        let constants = &digest(program)?;
        let mut all = Self { names: Vec::new(), machines: Vec::new(), memory: Vec::new(), seconds: Vec::new() };
        for (machine, times) in &machines.machines {
            if !times.nodes.iter().eq(program.nodes.iter().map(|node| &node.name)) {
                let text = format!(
                    "`{machine}` has another model: {} nodes instead of {}, or other names; give all machines the same \
                     file and the same version of this package",
                    times.nodes.len(),
                    program.nodes.len()
                );
                return Err(refused(text));
            }
            if times.constants != *constants {
                return Err(refused(format!(
                    "`{machine}` has other weights in files beside the model; copy these files again, so that all \
                     nodes have the same"
                )));
            }
            for device in &times.devices {
                let name = format!("{machine}/{}", device.name);
                if device.seconds.len() != program.nodes.len() {
                    let (found, wanted) = (device.seconds.len(), program.nodes.len());
                    return Err(refused(format!("`{name}` has times of {found} nodes, but the model has {wanted}")));
                }
                all.names.push(name);
                all.machines.push(machine);
                all.memory.push(device.memory);
                all.seconds.push(&device.seconds);
            }
        }
        Ok(all)
    }

    /// Returns the time in which a process on each device passes a value to another one of its machine; 0 if unknown.
    fn hand_over(&self, machines: &Machines) -> Vec<f64> {
        let within = |machine: &str| {
            let link = machines.links.iter().find(|link| link.from == machine && link.to == machine);
            link.map_or(0.0, |link| link.latency)
        };
        self.machines.iter().map(|machine| within(machine)).collect()
    }

    /// Returns the processors with links and memory limits.
    fn processors(&self, machines: &Machines) -> Result<Processors, SessionError> {
        let links: BTreeMap<(&str, &str), &MachineLink> =
            machines.links.iter().map(|link| ((link.from.as_str(), link.to.as_str()), link)).collect();
        let machine = |port| match port {
            Port::Outside => OUTSIDE,
            Port::Processor(device) => self.machines[device],
        };
        let mut missing = None;
        let link = |from, to| {
            let ends = (machine(from), machine(to));
            match links.get(&ends) {
                Some(link) => Link { latency: link.latency, bandwidth: link.rate },
                None => {
                    missing.get_or_insert(ends);
                    Link::FREE
                }
            }
        };
        let mut processors = Processors::new(self.names.clone(), link);
        if let Some((from, to)) = missing {
            return Err(refused(format!("there is no link from `{from}` to `{to}`; measure it, or write it down")));
        }
        for (device, bytes) in self.memory.iter().enumerate() {
            if let Some(bytes) = bytes {
                processors = processors.with_memory(*bytes, vec![device]);
            }
        }
        Ok(processors)
    }
}
