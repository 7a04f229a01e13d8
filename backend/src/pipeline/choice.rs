//! Which mapping a pipeline gets: the best, by prediction, of all devices together, a whole copy on every core, and what the theory of
//! pipelines finds between.

use super::costs::StageCosts;
use super::interval::Cut;
use super::mapping::{Stages, refused};
use super::options::{Among, PipelineOptions};
use crate::error_kind::ErrorKind;
use crate::execute::ExecError;
use crate::program::{NodeId, Origin, Program};
use crate::session::SessionError;
use anabranch_placement::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use anabranch_placement::pipeline::cut::{CutOptions, cut};
use anabranch_placement::pipeline::{
    self, Goal, Performance, Port, Problem, Processors, Rules, Stage, choose, evaluate,
};

/// Stages that intervals are made of, at most: so many are mapped in milliseconds.
const CUTS: usize = 60;

/// A mapping that may be taken.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// How it was found.
    pub(super) how: String,
    /// `None` for all devices together.
    pub(super) stages: Option<Stages>,
    /// As predicted.
    pub(super) performance: Performance,
}

impl Candidate {
    /// Whether it puts the same stages on the same devices; the order within a stage is no matter.
    fn is_as(&self, other: &Self) -> bool {
        match (&self.stages, &other.stages) {
            (Some(own), Some(other)) => {
                own.on == other.on && own.sizes == other.sizes && own.on.len() == 1 || own == other
            }
            (own, other) => own == other,
        }
    }
}

/// All mappings that the options allow, the best for their goal first; those that miss its bounds are last.
///
/// # Errors
/// If there is none.
pub(super) fn candidates(costs: &StageCosts, options: &PipelineOptions) -> Result<Vec<Candidate>, SessionError> {
    if costs.bound && !matches!(options.among, Among::All | Among::Together) {
        let text =
            "nodes that are bound to devices are kept there by all devices together alone; leave out one or the other";
        return Err(refused(text.into()));
    }
    let mut found = Vec::new();
    let all = options.among == Among::All;
    if all || options.among == Among::Together {
        found.push(together(costs));
    }
    match &options.among {
        Among::Given(mapping) => found.push(match mapping.stages(costs)? {
            Some(stages) => judged(costs, "given", stages)?,
            None => together(costs),
        }),
        Among::Replicated(count) => found.extend(replicated(costs, count.map(usize::from))?),
        Among::Pipelined => found.extend(searched(costs, options.goal, false)?),
        Among::All if costs.bound => {}
        Among::All => {
            found.extend(replicated(costs, None)?);
            found.extend(searched(costs, options.goal, true)?);
            found.extend(searched(costs, options.goal, false)?);
        }
        Among::Together => {}
    }
    judge(found, options.goal)
}

/// Those within the goal's bounds, the best first.
fn judge(mut found: Vec<Candidate>, goal: Goal) -> Result<Vec<Candidate>, SessionError> {
    let by = |candidate: &Candidate| goal.key(candidate.performance);
    found.sort_by(|a, b| by(a).0.total_cmp(&by(b).0).then(by(a).1.total_cmp(&by(b).1)));
    let nearest = found.first().map(|candidate| candidate.performance);
    let mut kept: Vec<Candidate> = Vec::new();
    for candidate in found {
        if goal.admits(candidate.performance) && !kept.iter().any(|other| other.is_as(&candidate)) {
            kept.push(candidate);
        }
    }
    match (kept.is_empty(), nearest) {
        (false, _) => Ok(kept),
        (true, None) => Err(refused("there is no such mapping; name fewer restrictions".into())),
        (true, Some(Performance { period, latency })) => {
            let text = format!(
                "no mapping is predicted to keep the bound; the nearest has a period of {:.4} ms and a latency of {:.4} ms: allow more, \
                 or add devices",
                1e3 * period,
                1e3 * latency
            );
            Err(ExecError::new(ErrorKind::Infeasible, text).into())
        }
    }
}

fn together(costs: &StageCosts) -> Candidate {
    let performance = Performance { period: costs.together, latency: costs.together };
    Candidate { how: "all devices together".into(), stages: None, performance }
}

/// A whole copy on each of so many cores of the kind that there are most of.
fn replicated(costs: &StageCosts, count: Option<usize>) -> Result<Option<Candidate>, SessionError> {
    let cores: Vec<usize> = (0..costs.processors.len()).filter(|at| costs.processors[*at].is_core()).collect();
    let count = count.unwrap_or(cores.len());
    if count > cores.len() {
        let text = format!("{count} copies are wanted on {} cores; there is one copy a core at most", cores.len());
        return Err(refused(text));
    }
    let order: Vec<NodeId> = costs.program().node_ids().collect();
    if order.is_empty() {
        return Ok(None);
    }
    let stages = Stages { sizes: vec![order.len()], order, on: vec![cores[..count].to_vec()] };
    judged(costs, "a copy on each core", stages).map(Some)
}

/// What the search for intervals finds.
fn searched(costs: &StageCosts, goal: Goal, replication: bool) -> Result<Option<Candidate>, SessionError> {
    if costs.program().nodes.is_empty() {
        return Ok(None);
    }
    let bytes = |at: usize, live: &[u64]| live.get(at).copied().unwrap_or(0);
    let all: Vec<NodeId> = costs.program().node_ids().collect();
    let live = Cut::new(costs.program(), &all, &[all.len()]).live;
    let options = CutOptions { stages: CUTS, input: bytes(0, &live), output: bytes(1, &live) };
    let seconds = |task: TaskId, processor: usize| Some(costs.seconds[task.index()][processor]);
    let found = cut(&graph(costs.program())?, costs.processors.len(), seconds, options);
    let order: Vec<NodeId> = found.order.iter().map(|task| NodeId(task.0)).collect();
    let sizes: Vec<usize> = found.starts.windows(2).map(|ends| ends[1] - ends[0]).collect();
    let problem = problem(costs, &order, &sizes, Rules { replication, ..Rules::default() })?;
    // What comes nearest to a bound that cannot be kept is among the others.
    let Ok(chosen) = choose(&problem, goal) else { return Ok(None) };
    let stages = Stages::of(&chosen.mapping, &order, &sizes);
    stages.verify(costs)?;
    let kind = if replication { "stages, replicated where it pays" } else { "stages on one device each" };
    Ok(Some(Candidate { how: kind.into(), stages: Some(stages), performance: chosen.performance }))
}

/// The nodes and what passes between them.
fn graph(program: &Program) -> Result<TaskGraph, SessionError> {
    let mut builder = GraphBuilder::new();
    program.nodes.iter().for_each(|node| _ = builder.task(Task::new(&node.name)));
    for (value, consumers) in program.values.iter().zip(program.consumers()) {
        if let Origin::Node(maker) = value.origin {
            let datum = builder.datum(TaskId(maker.0), value.spec.bytes() as u64);
            consumers.iter().for_each(|reader| builder.consume(datum, TaskId(reader.0)));
        }
    }
    builder.build().map_err(|error| refused(error.to_string()))
}

/// A mapping with what the theory says of it.
fn judged(costs: &StageCosts, how: &str, stages: Stages) -> Result<Candidate, SessionError> {
    let problem = problem(costs, &stages.order, &stages.sizes, Rules::default())?;
    let performance = evaluate(&problem, &stages.mapping()).map_err(|error| refused(error.to_string()))?;
    Ok(Candidate { how: how.into(), stages: Some(stages), performance })
}

/// The problem of mapping these intervals of nodes.
fn problem(costs: &StageCosts, order: &[NodeId], sizes: &[usize], rules: Rules) -> Result<Problem, SessionError> {
    let data = Cut::new(costs.program(), order, sizes).live;
    let (mut stages, mut from) = (Vec::new(), 0);
    for size in sizes {
        let nodes = &order[from..from + size];
        let times = (0..costs.processors.len()).map(|processor| Some(costs.sum(nodes, processor))).collect();
        stages.push(Stage::new(format!("stage {}", stages.len()), times));
        from += size;
    }
    let end = |port| match port {
        Port::Outside => None,
        Port::Processor(place) => Some(place),
    };
    let names = costs.processors().map(str::to_owned).collect();
    let processors = Processors::new(names, |from, to| costs.link(end(from), end(to)));
    let stages = pipeline::Stages::new(stages, data);
    Problem::new(stages, processors, rules).map_err(|error| refused(error.to_string()))
}
