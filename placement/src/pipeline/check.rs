//! Independent checker: simulates a mapping input by input. It shares no code with [`evaluate()`](super::evaluate()) or
//! with the methods that choose mappings.
//!
//! Inputs pass every interval in order. Each waits for its datum, for the processor that sends it and for the processor
//! that receives it. A processor does one thing at a time, or three if communication is overlapped. Buffers between
//! intervals are unlimited. The period is simulated with all inputs waiting outside, the latency with one input
//! arriving per period. Results leave in order.
//!
//! A data-parallel group is one processor that receives the parts one after the other. A group of a team receives a
//! datum as a whole, over the slowest of its links.

use super::evaluate::Performance;
use super::mapping::{Interval, Mapping, Sharing};
use super::problem::{Communication, Parallel, Problem};
use super::processors::Port;
use super::stages::StageKind;

/// Fault of a mapping, or of the performance that is claimed for it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum Violation {
    /// A stage that is out of order or does not run exactly once.
    #[error("stage {stage} does not follow the stage before it in exactly one interval")]
    Stage { stage: usize },
    /// A processor that does not exist, or that has two intervals.
    #[error("processor {processor} does not exist, or has two intervals")]
    Processor { processor: usize },
    /// A stage on a processor that cannot run it, or in a sharing that its kind or the rules forbid.
    #[error("stage {stage} cannot run on processor {processor} with this sharing")]
    CannotRun { stage: usize, processor: usize },
    /// A memory that is too small for the mapping.
    #[error("memory {memory} would hold {needed} bytes, but has {limit}")]
    Memory { memory: usize, needed: u128, limit: u64 },
    /// Results leave less often in the simulation than claimed.
    #[error("the period is {played} s, but the mapping states {claimed} s")]
    Period { played: f64, claimed: f64 },
    /// An input takes longer in the simulation than claimed.
    #[error("the latency is {played} s, but the mapping states {claimed} s")]
    Latency { played: f64, claimed: f64 },
}

/// Share of a claim by which rounding may exceed it.
const ROUNDING: f64 = 1e-9;

/// Checks that a mapping is valid and reaches the claimed performance. Returns all faults.
///
/// `O(inputs × intervals × processors)`; the number of inputs is several times the least common multiple of the numbers
/// of replicas.
pub fn check(problem: &Problem, mapping: &Mapping, claimed: Performance) -> Vec<Violation> {
    let mut violations = structure(problem, mapping);
    if violations.is_empty() {
        violations.extend(memories(problem, mapping));
        let played = play(problem, mapping, claimed.period);
        let exceeds = |played: f64, claimed: f64| played > claimed * (1.0 + ROUNDING) + f64::MIN_POSITIVE;
        if exceeds(played.period, claimed.period) {
            violations.push(Violation::Period { played: played.period, claimed: claimed.period });
        }
        if exceeds(played.latency, claimed.latency) {
            violations.push(Violation::Latency { played: played.latency, claimed: claimed.latency });
        }
    }
    violations
}

fn structure(problem: &Problem, mapping: &Mapping) -> Vec<Violation> {
    let stages = &problem.stages().stages;
    let order: Vec<usize> = mapping.intervals.iter().flat_map(|interval| interval.stages.clone()).collect();
    let mut violations = Vec::new();
    for stage in 0..stages.len().max(order.len()) {
        if order.get(stage) != Some(&stage) || stage >= stages.len() {
            return vec![Violation::Stage { stage }];
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for interval in &mapping.intervals {
        let several = interval.processors.len() > 1;
        if interval.processors.is_empty() || interval.stages.is_empty() {
            violations.push(Violation::Stage { stage: interval.stages.start });
        }
        for &processor in &interval.processors {
            if processor >= problem.processor_count() || !seen.insert(processor) {
                violations.push(Violation::Processor { processor });
                continue;
            }
            for stage in interval.stages.clone() {
                let shared = match (interval.sharing, stages[stage].kind) {
                    _ if !several => true,
                    (Sharing::Single, _) | (_, StageKind::Monolithic) => false,
                    (Sharing::Replicated, _) => problem.rules().replication,
                    (Sharing::DataParallel, StageKind::Replicable) => false,
                    (Sharing::DataParallel, StageKind::DataParallel) => match problem.rules().parallel {
                        Parallel::Never => false,
                        Parallel::Stage => interval.stages.len() == 1,
                        Parallel::Interval => true,
                    },
                };
                let teams = problem.processors().teams();
                let parted = several && interval.sharing == Sharing::DataParallel && !teams.is_empty();
                let own = teams.iter().find(|team| team.contains(&processor));
                let apart =
                    parted && own.is_none_or(|team| interval.processors.iter().any(|other| !team.contains(other)));
                if !shared || apart || stages[stage].times[processor].is_none() {
                    violations.push(Violation::CannotRun { stage, processor });
                }
            }
        }
    }
    violations
}

fn memories(problem: &Problem, mapping: &Mapping) -> Vec<Violation> {
    let (stages, data) = (&problem.stages().stages, &problem.stages().data);
    let twice = if problem.rules().communication == Communication::Overlapped { 2u128 } else { 1 };
    let mut violations = Vec::new();
    for (memory, &(limit, ref members)) in problem.processors().memories().iter().enumerate() {
        let mut needed = 0u128;
        for interval in &mapping.intervals {
            let mut runners =
                interval.processors.iter().filter(|processor| members.contains(processor)).count() as u128;
            if interval.sharing == Sharing::DataParallel {
                runners = runners.min(1);
            }
            if runners > 0 {
                let weights: u128 = interval.stages.clone().map(|stage| u128::from(stages[stage].weights)).sum();
                let most = interval.stages.clone().map(|stage| stages[stage].activations).max().unwrap_or(0);
                let passing = u128::from(data[interval.stages.start]) + u128::from(data[interval.stages.end]);
                needed += weights + runners * (u128::from(most) + twice * passing);
            }
        }
        if needed > u128::from(limit) {
            violations.push(Violation::Memory { memory, needed, limit });
        }
    }
    violations
}

/// Unit that works on one input at a time: a processor or a data-parallel group. It records when it is free to receive,
/// compute and send.
#[derive(Debug, Clone)]
struct Unit {
    /// Processors, each with its part of every input.
    parts: Vec<(usize, f64)>,
    /// Whether the group receives a datum as a whole instead of part by part.
    as_one: bool,
    seconds: f64,
    free: [f64; 3],
}

const RECEIVE: usize = 0;
const COMPUTE: usize = 1;
const SEND: usize = 2;

/// Simulates a valid mapping: the period with all inputs waiting, the latency with one input every `pace` seconds.
pub fn play(problem: &Problem, mapping: &Mapping, pace: f64) -> Performance {
    let turns = mapping.intervals.iter().map(|interval| units(problem, interval).len());
    let cycle = turns.fold(1usize, |all, turns| all / greatest_divisor(all, turns) * turns);
    let window = cycle * 40_usize.div_ceil(cycle).max(2);
    let waiting = results(problem, mapping, 0.0, 3 * window);
    let period = (waiting[3 * window - 1].1 - waiting[2 * window - 1].1) / window as f64;
    let paced = results(problem, mapping, pace, 2 * window);
    let latency = paced.iter().map(|(came, left)| left - came).fold(0.0, f64::max);
    Performance { period, latency }
}

fn greatest_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

fn units(problem: &Problem, interval: &Interval) -> Vec<Unit> {
    let stages = &problem.stages().stages[interval.stages.clone()];
    let seconds =
        |processor: usize| stages.iter().map(|stage| stage.times[processor].unwrap_or(f64::INFINITY)).sum::<f64>();
    let as_one = !problem.processors().teams().is_empty();
    let unit = |parts, seconds| Unit { parts, as_one, seconds, free: [0.0; 3] };
    if interval.sharing != Sharing::DataParallel {
        return interval.processors.iter().map(|&processor| unit(vec![(processor, 1.0)], seconds(processor))).collect();
    }
    let undivided =
        |processor: usize| stages.iter().map(|it| it.times[processor].unwrap_or(0.0) * it.serial).sum::<f64>();
    let divided = |processor: usize| {
        let times = stages.iter().map(|it| it.times[processor].unwrap_or(f64::INFINITY) * (1.0 - it.serial));
        times.sum::<f64>()
    };
    // The serial part comes first. Then all finish together: a processor's part of the input is its rate over the sum
    // of rates.
    let serial = interval.processors.iter().map(|&processor| undivided(processor)).fold(0.0, f64::max);
    let parallel = 1.0 / interval.processors.iter().map(|&processor| 1.0 / divided(processor)).sum::<f64>();
    let idle = interval.processors.iter().any(|&processor| seconds(processor) == 0.0);
    let rates: f64 = interval.processors.iter().map(|&processor| 1.0 / seconds(processor)).sum();
    let equal = 1.0 / interval.processors.len() as f64;
    let part = |&processor: &usize| (processor, if idle { equal } else { 1.0 / seconds(processor) / rates });
    vec![unit(interval.processors.iter().map(part).collect(), serial + parallel)]
}

/// Times at which each input enters and leaves.
fn results(problem: &Problem, mapping: &Mapping, pace: f64, count: usize) -> Vec<(f64, f64)> {
    let mut intervals: Vec<Vec<Unit>> = mapping.intervals.iter().map(|interval| units(problem, interval)).collect();
    let one_port = problem.rules().communication == Communication::OnePort;
    let mut results: Vec<(f64, f64)> = Vec::with_capacity(count);
    for number in 0..count {
        let came = number as f64 * pace;
        let mut ready = came;
        for place in 0..=intervals.len() {
            let datum = if place == 0 { 0 } else { mapping.intervals[place - 1].stages.end };
            let turn = |units: &Vec<Unit>| number % units.len();
            let sender = place.checked_sub(1).map(|before| (before, turn(&intervals[before])));
            let receiver = (place < intervals.len()).then(|| (place, turn(&intervals[place])));
            let unit = |at: Option<(usize, usize)>| at.map(|(place, turn)| &intervals[place][turn]);
            let seconds = message_seconds(problem, unit(sender), unit(receiver), datum);
            let mut start = ready;
            if let Some((place, turn)) = sender {
                start = start.max(intervals[place][turn].free[SEND]);
            }
            if let Some((place, turn)) = receiver {
                let free = &intervals[place][turn].free;
                start = start.max(if one_port { free[SEND].max(free[RECEIVE]) } else { free[RECEIVE] });
            }
            ready = start + seconds;
            if let Some((place, turn)) = sender {
                intervals[place][turn].free[SEND] = ready;
            }
            if let Some((place, turn)) = receiver {
                let unit = &mut intervals[place][turn];
                unit.free[RECEIVE] = ready;
                ready = ready.max(unit.free[COMPUTE]) + unit.seconds;
                unit.free[COMPUTE] = ready;
            }
        }
        let before = results.last().map_or(0.0, |result| result.1);
        results.push((came, ready.max(before)));
    }
    results
}

/// Seconds of all messages of one datum, one after the other; seconds of the slowest message if the datum is sent as a
/// whole. `None` is the outside.
fn message_seconds(problem: &Problem, from: Option<&Unit>, to: Option<&Unit>, datum: usize) -> f64 {
    let ports = |unit: Option<&Unit>| match unit {
        Some(Unit { parts, as_one, .. }) => {
            let part =
                |&(processor, part): &(usize, f64)| (Port::Processor(processor), if *as_one { 1.0 } else { part });
            parts.iter().map(part).collect()
        }
        None => vec![(Port::Outside, 1.0)],
    };
    let together = |as_one: bool, seconds: f64, next: f64| if as_one { seconds.max(next) } else { seconds + next };
    let is_one = |unit: Option<&Unit>| unit.is_some_and(|unit| unit.as_one);
    let mut seconds = 0.0;
    for (sender, sent) in ports(from) {
        let mut own = 0.0;
        for (receiver, taken) in ports(to) {
            let link = problem.processors().link(sender, receiver);
            let bytes = problem.stages().data[datum] as f64 * sent * taken;
            own = together(is_one(to), own, link.latency + bytes / link.bandwidth);
        }
        seconds = together(is_one(from), seconds, own);
    }
    seconds
}
