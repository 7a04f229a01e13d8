//! Lower bounds of period and latency.
//!
//! *Period*: the greater of two bounds. The first is the weighted work of all stages over the weights of all processors
//! (`weights`). The second is a relaxation: every interval may use the best processors for it with the best of their
//! links, even if other intervals use them.
//!
//! *Latency*: the shortest path through the stages. Each stage runs on any processor, or data-parallel on the best team
//! (on all processors without teams) if its kind allows it. The path includes the transfers between processors.

use super::evaluate::cycle;
use super::goal::Goal;
use super::problem::{Parallel, Problem};
use super::processors::Port;
use super::stages::StageKind;
use super::weights::Weights;
use std::ops::Range;

/// Most steps of the full bound. Above it, the period is bounded by weights alone, and the latency without transfers.
const STEPS: usize = 20_000_000;

/// Returns a lower bound of the period or the latency, as the goal has it, over all mappings, in seconds.
///
/// `O(stages² × processors log processors + stages × processors²)`. If a problem needs more than 20 million steps, the
/// bound is weaker and cheaper.
pub fn lower_bound(problem: &Problem, goal: Goal) -> f64 {
    match goal {
        Goal::Period | Goal::PeriodWithin { .. } => period(problem),
        Goal::Latency | Goal::LatencyWithin { .. } => latency(problem),
    }
}

fn period(problem: &Problem) -> f64 {
    let (stages, processors) = (problem.stage_count(), problem.processor_count());
    let work = Weights::new(problem).bound();
    if stages * stages * processors > STEPS {
        return work;
    }
    let links = Links::new(problem);
    let mut rest = vec![0.0; stages + 1];
    for start in (0..stages).rev() {
        let of = |end: usize| f64::max(shortest_cycle(problem, &links, start, end), rest[end]);
        rest[start] = (start + 1..=stages).map(of).fold(f64::INFINITY, f64::min);
    }
    // Rounding must not lift the bound above a value that a mapping reaches.
    work.max(rest[0]) * (1.0 - 1e-12)
}

/// Shortest transfer in and out, in seconds, by processor and position in the chain.
struct Links(Vec<Vec<(f64, f64)>>);

impl Links {
    fn new(problem: &Problem) -> Self {
        let count = problem.processor_count();
        let shortest = |processor: usize, place: usize| {
            let bytes = problem.stages().data[place] as f64;
            let own = Port::Processor(processor);
            let outside = place == 0 || place == problem.stage_count();
            let others = (0..count).filter(|&other| other != processor).map(Port::Processor);
            let ports: Vec<Port> = if outside { vec![Port::Outside] } else { others.collect() };
            let least = |from_own: bool| {
                let link = |&port: &Port| if from_own { (own, port) } else { (port, own) };
                let seconds = |(from, to)| problem.processors().link(from, to).seconds(bytes);
                ports.iter().map(link).map(seconds).fold(f64::INFINITY, f64::min)
            };
            (least(false), least(true))
        };
        Links((0..count).map(|it| (0..=problem.stage_count()).map(|place| shortest(it, place)).collect()).collect())
    }
}

/// Shortest period of an interval, on the processors that suit it best.
fn shortest_cycle(problem: &Problem, links: &Links, start: usize, end: usize) -> f64 {
    let rules = problem.rules();
    let kind = problem.stages().stages[start..end].iter().map(|stage| stage.kind).min().unwrap_or_default();
    let replicas = if rules.replication && kind >= StageKind::Replicable { problem.processor_count() } else { 1 };
    let each = |processor: usize| {
        let (incoming, outgoing) = (links.0[processor][start].0, links.0[processor][end].1);
        cycle(rules.communication, incoming, problem.seconds(processor, start..end), outgoing, 1)
    };
    let mut cycles: Vec<f64> = (0..problem.processor_count()).map(each).collect();
    cycles.sort_by(f64::total_cmp);
    let replicated = cycles[..replicas].iter().enumerate().map(|(place, own)| own / (place + 1) as f64);
    let least = replicated.fold(f64::INFINITY, f64::min);
    let parallel = match rules.parallel {
        Parallel::Never => false,
        Parallel::Stage => end == start + 1,
        Parallel::Interval => true,
    };
    if !parallel || kind < StageKind::DataParallel {
        return least;
    }
    let shortest = |out: bool| {
        let of = |processor: &Vec<(f64, f64)>| if out { processor[end].1 } else { processor[start].0 };
        links.0.iter().map(of).fold(f64::INFINITY, f64::min)
    };
    least.min(cycle(rules.communication, shortest(false), together(problem, start..end), shortest(true), 1))
}

/// Lower bound of the time of some stages on a data-parallel group: a whole team, with the shortest serial part of its
/// members.
fn together(problem: &Problem, stages: Range<usize>) -> f64 {
    let of = |team: &[usize]| {
        let serial = team.iter().map(|&it| problem.serial_seconds(it, stages.clone())).fold(f64::INFINITY, f64::min);
        let own = |&it: &usize| problem.seconds(it, stages.clone()) - problem.serial_seconds(it, stages.clone());
        serial + 1.0 / team.iter().map(|it| 1.0 / own(it).max(0.0)).sum::<f64>()
    };
    match problem.processors().teams() {
        [] => of(&(0..problem.processor_count()).collect::<Vec<_>>()),
        teams => teams.iter().map(|team| of(team)).fold(f64::INFINITY, f64::min),
    }
}

fn latency(problem: &Problem) -> f64 {
    let (stages, processors) = (problem.stage_count(), problem.processor_count());
    let data = &problem.stages().data;
    let link = |from, to, place: usize| problem.processors().link(from, to).seconds(data[place] as f64);
    let transfers = stages * processors * processors <= STEPS;
    let group = |stage: usize| {
        let can = problem.rules().parallel != Parallel::Never
            && problem.stages().stages[stage].kind == StageKind::DataParallel;
        if can { together(problem, stage..stage + 1) } else { f64::INFINITY }
    };
    // Earliest times at which the datum before a stage is on each processor. The last entry is the data-parallel group,
    // whose transfers are free.
    let mut there: Vec<f64> = (0..processors).map(|it| link(Port::Outside, Port::Processor(it), 0)).collect();
    let anywhere = |there: &[f64]| there.iter().copied().fold(f64::INFINITY, f64::min);
    there.push(0.0);
    for stage in 0..stages {
        let mut done: Vec<f64> = (0..processors).map(|it| there[it] + problem.seconds(it, stage..stage + 1)).collect();
        done.push(there[processors] + group(stage));
        let least = anywhere(&done);
        if stage + 1 == stages {
            let out = |it: usize| done[it] + link(Port::Processor(it), Port::Outside, stages);
            let last = (0..processors).map(out).fold(done[processors], f64::min);
            return last * (1.0 - 1e-12);
        }
        let arrive = |to: usize| {
            let way = |from: usize| {
                let paid = if from == to || !transfers {
                    0.0
                } else {
                    link(Port::Processor(from), Port::Processor(to), stage + 1)
                };
                done[from] + paid
            };
            (0..processors).map(way).fold(done[processors], f64::min)
        };
        there = if transfers { (0..processors).map(arrive).collect() } else { vec![least; processors] };
        there.push(least);
    }
    0.0
}
