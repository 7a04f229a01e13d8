//! Chooses the mapping of a pipeline. Candidates are all devices together, a whole copy on every core, and mappings
//! from the theory of pipelines: intervals of nodes on one device each, on replicas, and on groups of cores. The best
//! by prediction wins.

use super::chain::Chain;
use super::costs::StageCosts;
use super::interval::Cut;
use super::mapping::{On, Stages, refused};
use super::options::{Among, PipelineOptions};
use anabranch_base::error_kind::ErrorKind;
use anabranch_execute::ExecError;
use anabranch_ir::program::NodeId;
use anabranch_placement::pipeline::{
    self, Communication, Goal, Parallel, Performance, Port, Problem, Processors, Rules, Stage, StageKind, choose,
    evaluate,
};
use anabranch_session::SessionError;

/// Rules for sharing a stage.
const SINGLE: Rules = Rules { communication: Communication::OnePort, replication: false, parallel: Parallel::Never };
const REPLICATED: Rules = Rules { replication: true, ..SINGLE };
const SHARED: Rules = Rules { parallel: Parallel::Interval, ..REPLICATED };

/// A mapping that may be taken.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Description of how it was found.
    pub(super) how: String,
    /// `None` for all devices together.
    pub(super) stages: Option<Stages>,
    /// Predicted period and latency.
    pub(super) performance: Performance,
}

impl Candidate {
    /// Whether it puts the same stages on the same devices. The order within a stage does not matter.
    fn is_as(&self, other: &Self) -> bool {
        match (&self.stages, &other.stages) {
            (Some(own), Some(other)) => {
                own.on == other.on && own.sizes == other.sizes && own.on.len() == 1 || own == other
            }
            (own, other) => own == other,
        }
    }
}

/// Returns all mappings that the options allow, the best for their goal first. Mappings that miss its bounds come last.
///
/// # Errors
/// If there is no mapping.
pub(super) fn candidates(costs: &StageCosts, options: &PipelineOptions) -> Result<Vec<Candidate>, SessionError> {
    if costs.bound && !matches!(options.among, Among::All | Among::Together) {
        let text = "only the mapping to all devices together keeps pins, colocations and a split of the batch; leave \
             them out, or the other mapping";
        return Err(refused(text.into()));
    }
    let is_shared = matches!(options.among, Among::Replicated(_) | Among::DataParallel(_));
    if !costs.states.is_empty() && is_shared {
        let text = "a model with state has one device per stage; leave out the number of copies or cores";
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
        Among::DataParallel(count) => found.extend(data_parallel(costs, count.map(usize::from))?),
        Among::Pipelined => found.extend(searched(costs, options.goal, SINGLE)?),
        Among::All if costs.bound => {}
        Among::All => {
            if costs.states.is_empty() {
                found.extend(replicated(costs, None)?);
            }
            if options.data_parallel && !costs.teams.is_empty() {
                found.extend(searched(costs, options.goal, SHARED)?);
            }
            found.extend(searched(costs, options.goal, REPLICATED)?);
            found.extend(searched(costs, options.goal, SINGLE)?);
        }
        Among::Together => {}
    }
    judge(found, options.goal)
}

/// Returns the candidates within the goal's bounds, the best first.
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
        (true, None) => Err(refused("no mapping satisfies all restrictions; give fewer".into())),
        (true, Some(Performance { period, latency })) => {
            let text = format!(
                "no mapping is predicted to meet the limit; the nearest has a period of {:.4} ms and a latency \
                 of {:.4} ms: raise the limit, or add devices",
                1e3 * period,
                1e3 * latency
            );
            Err(ExecError::new(ErrorKind::Infeasible, text).into())
        }
    }
}

fn together(costs: &StageCosts) -> Candidate {
    let seconds = costs.together + costs.handover;
    let performance = Performance { period: seconds, latency: seconds };
    Candidate { how: "all devices together".into(), stages: None, performance }
}

/// Returns a whole copy on each of `count` cores, of the kind that has most cores.
fn replicated(costs: &StageCosts, count: Option<usize>) -> Result<Option<Candidate>, SessionError> {
    let cores: Vec<usize> = (0..costs.processors.len()).filter(|at| costs.processors[*at].is_core()).collect();
    let count = count.unwrap_or(cores.len());
    if count > cores.len() {
        let text = format!("copies: {count}, but cores: {}; use at most one copy per core", cores.len());
        return Err(refused(text));
    }
    whole(costs, "a copy on each core", On::each(cores[..count].to_vec()))
}

/// Returns the whole model on a group of `count` cores, of the device that has most cores.
fn data_parallel(costs: &StageCosts, count: Option<usize>) -> Result<Option<Candidate>, SessionError> {
    let of_one = |cores: usize| costs.teams.iter().find(|team| team.cores.len() == cores);
    let most = costs.teams.iter().map(|team| team.cores.len()).max();
    match (most.and_then(of_one), count.or(most)) {
        (Some(team), Some(count)) if count <= team.cores.len() => {
            whole(costs, "each sample on a group of cores", On::group(team.cores[..count].to_vec()))
        }
        (_, count) => {
            let text = format!(
                "no CPU device has the {} cores that share each sample; the largest has {}",
                count.unwrap_or(2),
                most.unwrap_or(1)
            );
            Err(refused(text))
        }
    }
}

/// Returns all nodes as one stage.
fn whole(costs: &StageCosts, how: &str, on: On) -> Result<Option<Candidate>, SessionError> {
    let order: Vec<NodeId> = costs.program().node_ids().collect();
    if order.is_empty() {
        return Ok(None);
    }
    judged(costs, how, Stages { sizes: vec![order.len()], order, on: vec![on] }).map(Some)
}

/// Returns the best mapping that the search for intervals finds.
fn searched(costs: &StageCosts, goal: Goal, rules: Rules) -> Result<Option<Candidate>, SessionError> {
    if costs.program().nodes.is_empty() {
        return Ok(None);
    }
    let seconds = |node: NodeId, processor: usize| costs.seconds[node.index()][processor];
    let Chain { order, sizes, .. } = Chain::of(costs.program(), &costs.states, costs.processors.len(), seconds)?;
    let problem = problem(costs, &order, &sizes, rules)?;
    // If no mapping keeps the bound, the nearest is among the other candidates.
    let Ok(chosen) = choose(&problem, goal) else { return Ok(None) };
    let stages = Stages::of(&chosen.mapping, &order, &sizes);
    stages.verify(costs)?;
    let how = match rules {
        Rules { parallel: Parallel::Interval, .. } => "stages, replicated or data-parallel where it pays",
        Rules { replication: true, .. } => "stages, replicated where it pays",
        _ => "stages on one device each",
    };
    Ok(Some(Candidate { how: how.into(), stages: Some(stages), performance: chosen.performance }))
}

/// Returns a mapping with its predicted performance.
fn judged(costs: &StageCosts, how: &str, stages: Stages) -> Result<Candidate, SessionError> {
    let problem = problem(costs, &stages.order, &stages.sizes, SHARED)?;
    let performance = evaluate(&problem, &stages.mapping()).map_err(|error| refused(error.to_string()))?;
    Ok(Candidate { how: how.into(), stages: Some(stages), performance })
}

/// Returns the problem of mapping these intervals of nodes.
fn problem(costs: &StageCosts, order: &[NodeId], sizes: &[usize], rules: Rules) -> Result<Problem, SessionError> {
    let Cut { parts, live: data, .. } = Cut::new(costs.program(), order, sizes, &costs.states);
    let (mut stages, mut from) = (Vec::new(), 0);
    for (size, part) in sizes.iter().zip(parts) {
        let nodes = &order[from..from + size];
        let times = (0..costs.processors.len()).map(|processor| Some(costs.sum(nodes, processor))).collect();
        let kind = if part.states.is_empty() { StageKind::DataParallel } else { StageKind::Monolithic };
        let stage = Stage::new(format!("stage {}", stages.len()), times).with_kind(kind);
        let serial = costs.teams.first().map_or(0.0, |team| costs.serial_share(nodes, team.cores[0]));
        stages.push(stage.with_serial(serial));
        from += size;
    }
    let end = |port| match port {
        Port::Outside => None,
        Port::Processor(place) => Some(place),
    };
    let names = costs.processors().map(str::to_owned).collect();
    let processors = Processors::new(names, |from, to| costs.link(end(from), end(to)));
    let processors = costs.teams.iter().fold(processors, |all, team| all.with_team(team.cores.clone()));
    let stages = pipeline::Stages::new(stages, data);
    Problem::new(stages, processors, rules).map_err(|error| refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the performance of the best mapping, and how many cores share a data set at each of its stages. Each
    /// node takes a second on each of four cores.
    fn best(serial: f64, options: &PipelineOptions) -> (Performance, Vec<usize>) {
        let costs = StageCosts::made_up(4, serial);
        let first = candidates(&costs, options).expect("there is one").remove(0);
        let stages = first.stages.expect("all devices together take longest");
        (first.performance, stages.on.iter().flat_map(On::takers).map(<[usize]>::len).collect())
    }

    #[test]
    fn a_group_is_taken_where_nothing_else_is_as_short() {
        let nodes = StageCosts::made_up(4, 0.0).program().nodes.len() as f64;
        let latency =
            |data_parallel: bool| PipelineOptions::default().with_goal(Goal::Latency).with_data_parallel(data_parallel);
        let (found, groups) = best(0.0, &latency(true));
        assert!((found.latency - nodes / 4.0).abs() < 1e-9 && groups == [4], "{found:?} {groups:?}");
        let (found, groups) = best(0.0, &latency(false));
        assert!((found.latency - nodes).abs() < 1e-9 && groups.iter().all(|cores| *cores == 1), "{found:?} {groups:?}");
        // If a group divides nothing, it gains nothing.
        let (found, groups) = best(1.0, &latency(true));
        assert!((found.latency - nodes).abs() < 1e-9 && groups.iter().all(|cores| *cores == 1), "{found:?} {groups:?}");
        // Copies give results equally often, but each data set takes too long.
        let bound = PipelineOptions::default().with_goal(Goal::PeriodWithin { latency: 0.6 * nodes });
        let (found, groups) = best(0.0, &bound);
        assert!(
            (found.period - nodes / 4.0).abs() < 1e-9 && groups.iter().any(|cores| *cores > 1),
            "{found:?} {groups:?}"
        );
    }

    #[test]
    fn a_hand_over_is_paid_once_at_each_stage_whoever_shares_it() {
        let mut costs = StageCosts::made_up(3, 0.5);
        costs.handover = 0.25;
        let nodes = costs.program().nodes.len() as f64;
        let period = |among: Among| {
            let options = PipelineOptions::default().with_among(among);
            candidates(&costs, &options).expect("it is possible")[0].performance.period
        };
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found} {wanted}");
        near(period(Among::Replicated(None)), (nodes + 0.25) / 3.0);
        near(period(Among::DataParallel(None)), nodes * (0.5 + 0.5 / 3.0) + 0.25);
        near(period(Among::Together), 100.0 * nodes + 0.25);
        let too_many = PipelineOptions::default().with_among(Among::DataParallel(std::num::NonZeroUsize::new(4)));
        let error = candidates(&costs, &too_many).expect_err("there are three").to_string();
        assert!(error.contains("4 cores") && error.contains("the largest has 3"), "{error}");
    }
}
