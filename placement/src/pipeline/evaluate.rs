//! Period and latency of a mapping, by the formulas in the documentation of [`pipeline`](super).

use super::mapping::{Interval, Mapping, MappingError, Sharing};
use super::problem::{Communication, Problem};
use super::processors::Port;
use serde::{Deserialize, Serialize};

/// Period and latency, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Performance {
    /// Time between two results.
    pub period: f64,
    /// Time from entry to exit of an input, if one input enters per period.
    pub latency: f64,
}

/// Verifies a mapping and computes its period and latency. `O(stages × processors + intervals × processors²)`.
///
/// # Errors
/// Returns the first fault of the mapping.
pub fn evaluate(problem: &Problem, mapping: &Mapping) -> Result<Performance, MappingError> {
    mapping.verify(problem)?;
    Ok(performance(problem, mapping))
}

/// Computes the performance of a mapping that is known to be valid.
pub(super) fn performance(problem: &Problem, mapping: &Mapping) -> Performance {
    let model = problem.rules().communication;
    let (mut period, mut latency) = (0.0f64, 0.0);
    for (place, [incoming, compute, outgoing]) in seconds(problem, mapping).enumerate() {
        period = period.max(cycle(model, incoming, compute, outgoing, mapping.intervals[place].replicas()));
        latency += compute + outgoing + if place == 0 { incoming } else { 0.0 };
    }
    Performance { period, latency }
}

/// Returns the period of each interval of a valid mapping.
pub(super) fn periods(problem: &Problem, mapping: &Mapping) -> Vec<f64> {
    let model = problem.rules().communication;
    let cycle = |([incoming, compute, outgoing], interval): ([f64; 3], &Interval)| {
        cycle(model, incoming, compute, outgoing, interval.replicas())
    };
    seconds(problem, mapping).zip(&mapping.intervals).map(cycle).collect()
}

/// Returns the seconds in which each interval receives, computes and sends.
fn seconds(problem: &Problem, mapping: &Mapping) -> impl Iterator<Item = [f64; 3]> {
    let intervals = &mapping.intervals;
    let mut own = End::of(problem, intervals.first());
    let mut incoming = transfer(problem, &End::outside(), &own, 0);
    intervals.iter().enumerate().map(move |(place, interval)| {
        let next = End::of(problem, intervals.get(place + 1));
        let outgoing = transfer(problem, &own, &next, interval.stages.end);
        own = next;
        [std::mem::replace(&mut incoming, outgoing), compute(problem, interval), outgoing]
    })
}

/// Period of an interval: the shortest time between two inputs.
pub(super) fn cycle(model: Communication, incoming: f64, compute: f64, outgoing: f64, replicas: usize) -> f64 {
    let busy = match model {
        Communication::OnePort => incoming + compute + outgoing,
        Communication::Overlapped => incoming.max(compute).max(outgoing),
    };
    busy / replicas as f64
}

/// Seconds of an interval's stages for one input, on its slowest processor or on its whole group; infinite if one
/// cannot run them.
pub(super) fn compute(problem: &Problem, interval: &Interval) -> f64 {
    let stages = || interval.stages.clone();
    let processors = interval.processors.iter().copied();
    match interval.sharing {
        Sharing::Single | Sharing::Replicated => processors.map(|it| problem.seconds(it, stages())).fold(0.0, f64::max),
        Sharing::DataParallel => problem.group_seconds(processors.map(|it| (1, it)), stages()),
    }
}

/// Whether each processor receives a part of a datum: true for groups, except for a group of a team, which has one
/// memory.
pub(super) fn is_parted(problem: &Problem, sharing: Sharing) -> bool {
    sharing == Sharing::DataParallel && problem.processors().teams().is_empty()
}

/// One end of a transfer: ports, with the part of each datum that passes them.
#[derive(Debug, Clone)]
pub(super) struct End {
    ports: Vec<(Port, f64)>,
    grouped: bool,
}

impl End {
    /// Returns the end at an interval of a mapping; `None` is the outside.
    fn of(problem: &Problem, interval: Option<&Interval>) -> Self {
        let Some(interval) = interval else { return Self::outside() };
        if !is_parted(problem, interval.sharing) {
            return Self::equal(problem, &interval.processors, interval.sharing);
        }
        let seconds = |processor: usize| problem.seconds(processor, interval.stages.clone());
        let whole = 1.0 / interval.processors.iter().map(|&processor| 1.0 / seconds(processor)).sum::<f64>();
        // If the stages take no time, all processors have equal parts.
        let equal = 1.0 / interval.processors.len() as f64;
        let part = |processor: usize| if whole == 0.0 { equal } else { whole / seconds(processor) };
        let ports = interval.processors.iter().map(|&processor| (Port::Processor(processor), part(processor)));
        End { ports: ports.collect(), grouped: true }
    }

    pub(super) fn outside() -> Self {
        End { ports: vec![(Port::Outside, 1.0)], grouped: false }
    }

    /// Returns the end at processors with equal parts, even if they cannot run the same stages.
    pub(super) fn equal(problem: &Problem, processors: &[usize], sharing: Sharing) -> Self {
        let grouped = is_parted(problem, sharing);
        let part = if grouped { 1.0 / processors.len() as f64 } else { 1.0 };
        End { ports: processors.iter().map(|&processor| (Port::Processor(processor), part)).collect(), grouped }
    }
}

/// Seconds of the datum before stage `place` from one end to the other: the slowest pair of replicas. The parts of a
/// group are sent one after the other.
pub(super) fn transfer(problem: &Problem, from: &End, to: &End, place: usize) -> f64 {
    let bytes = problem.stages().data[place] as f64;
    let seconds = |&(from, part): &(Port, f64), &(to, share): &(Port, f64)| {
        problem.processors().link(from, to).seconds(bytes * part * share)
    };
    let fold = |grouped: bool, times: &mut dyn Iterator<Item = f64>| {
        if grouped { times.sum::<f64>() } else { times.fold(0.0, f64::max) }
    };
    let from_one = |sender| fold(to.grouped, &mut to.ports.iter().map(|receiver| seconds(sender, receiver)));
    fold(from.grouped, &mut from.ports.iter().map(from_one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Link, Parallel, Processors, Rules, Stage, StageKind, Stages};

    /// Benoit and Robert, *Working out an example*: every mapping in the slides, with its period and latency.
    #[test]
    fn the_example_of_the_paper_is_valued_as_there() {
        let work = [14.0, 4.0, 2.0, 4.0];
        let stage = |&work| Stage::of_work("stage", work, &[2.0, 1.0, 1.0, 1.0]).with_kind(StageKind::DataParallel);
        let stages = Stages::new(work.iter().map(stage).collect(), vec![0; 5]);
        let processors = Processors::uniform(vec!["P".into(); 4], Link::FREE);
        let rules = Rules { parallel: Parallel::Stage, ..Rules::default() };
        let problem = Problem::new(stages, processors, rules).unwrap();
        let interval =
            |stages, processors: &[usize], sharing| Interval { stages, processors: processors.into(), sharing };
        let value = |intervals: Vec<Interval>| evaluate(&problem, &Mapping { intervals }).unwrap();
        let near = |performance: Performance, period: f64, latency: f64| {
            assert!((performance.period - period).abs() < 1e-12, "{performance:?}");
            assert!((performance.latency - latency).abs() < 1e-12, "{performance:?}");
        };
        let single = |stages, processor| interval(stages, &[processor], Sharing::Single);
        near(value(vec![single(0..1, 0), single(1..3, 1), single(3..4, 2)]), 7.0, 17.0);
        near(value(vec![single(0..4, 0)]), 12.0, 12.0);
        near(value(vec![single(0..3, 0), single(3..4, 1)]), 10.0, 14.0);
        let first = |processors| interval(0..1, processors, Sharing::DataParallel);
        near(value(vec![first(&[0, 1]), interval(1..4, &[2, 3], Sharing::Replicated)]), 5.0, 14.0 / 3.0 + 10.0);
        near(value(vec![first(&[1, 2, 3]), single(1..4, 0)]), 5.0, 14.0 / 3.0 + 5.0);
    }

    /// Amdahl's law for the serial share. A team receives its datum once; processors of no common team form no group.
    #[test]
    fn a_team_divides_what_is_not_serial_and_gets_its_datum_as_one() {
        let stage = Stage::of_work("stage", 8.0, &[1.0; 4]).with_kind(StageKind::DataParallel).with_serial(0.25);
        let problem = |teams: &[&[usize]]| {
            let processors = Processors::uniform(vec!["P".into(); 4], Link { latency: 0.5, bandwidth: 4.0 });
            let processors = teams.iter().fold(processors, |all, team| all.with_team(team.to_vec()));
            let rules = Rules { parallel: Parallel::Interval, ..Rules::default() };
            Problem::new(Stages::new(vec![stage.clone()], vec![4, 4]), processors, rules).unwrap()
        };
        let group = |processors: &[usize]| Mapping::whole(1, processors.into(), Sharing::DataParallel);
        let period = |teams: &[&[usize]], on: &[usize]| evaluate(&problem(teams), &group(on)).map(|found| found.period);
        assert_eq!(period(&[&[0, 1, 2]], &[0, 1, 2]), Ok(1.5 + 8.0 * (0.25 + 0.75 / 3.0) + 1.5));
        assert_eq!(period(&[], &[0, 1, 2]), Ok(2.5 + 8.0 * (0.25 + 0.75 / 3.0) + 2.5));
        assert_eq!(period(&[&[0, 1, 2]], &[2, 3]), Err(MappingError::Team { interval: 0 }));
    }
}
