//! Local search from a mapping: it moves ends of intervals, adds, removes and exchanges processors, and joins and
//! splits intervals.

use super::evaluate::{Performance, performance};
use super::goal::Goal;
use super::mapping::{Interval, Mapping, Sharing};
use super::problem::Problem;

/// Mapping with its performance and its bytes over the memory limits.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) mapping: Mapping,
    pub(super) performance: Performance,
    pub(super) how: &'static str,
    /// Bytes over the memory limits. Mappings that do not fit are kept, because moves from them can lead to mappings
    /// that fit.
    pub(super) excess: u64,
}

impl Candidate {
    /// Returns `None` for a mapping that is invalid for another reason than memory.
    pub(super) fn new(problem: &Problem, mapping: Mapping, how: &'static str) -> Option<Self> {
        mapping.verify_structure(problem).ok()?;
        Some(Candidate { performance: performance(problem, &mapping), excess: mapping.excess(problem), mapping, how })
    }

    /// Whether the mapping fits into memory and keeps the limits.
    pub(super) fn is_admitted(&self, goal: Goal) -> bool {
        self.excess == 0 && goal.admits(self.performance)
    }

    /// Whether this mapping is nearer to the limits than another, memory first, or equally near and better.
    pub(super) fn beats(&self, other: &Candidate, goal: Goal) -> bool {
        let over = |it: &Candidate| {
            let limits = goal.limits();
            if goal.admits(it.performance) {
                return 0.0;
            }
            (it.performance.period / limits.period).max(it.performance.latency / limits.latency)
        };
        if self.excess != other.excess {
            return self.excess < other.excess;
        }
        let (own, others) = (over(self), over(other));
        own < others || (own == others && goal.prefers(self.performance, other.performance))
    }
}

/// Takes the first move that improves the mapping, until none does or `most` mappings were evaluated.
pub(super) fn improve(problem: &Problem, start: Candidate, goal: Goal, most: usize) -> Candidate {
    let (mut best, mut left) = (start, most);
    loop {
        let neighbours = moves(problem, &best.mapping).take(left).inspect(|_| left -= 1);
        let mut valid = neighbours.filter_map(|mapping| Candidate::new(problem, mapping, "local search"));
        let Some(better) = valid.find(|candidate| candidate.beats(&best, goal)) else { break };
        drop(valid);
        best = better;
    }
    best
}

/// Returns all neighbours, lazily; many are invalid.
fn moves<'a>(problem: &'a Problem, mapping: &'a Mapping) -> impl Iterator<Item = Mapping> + 'a {
    let count = mapping.intervals.len();
    let used: Vec<usize> = mapping.intervals.iter().flat_map(|interval| interval.processors.clone()).collect();
    let free: Vec<usize> = (0..problem.processor_count()).filter(|it| !used.contains(it)).collect();
    let ends = (1..count).flat_map(move |place| {
        let (from, to) = (mapping.intervals[place - 1].stages.start, mapping.intervals[place].stages.end);
        (from + 1..to).map(move |cut| with_cut(mapping, place, cut))
    });
    let (spare, others) = (free.clone(), free.clone());
    let comes =
        (0..count).flat_map(move |place| spare.clone().into_iter().map(move |it| with_more(mapping, place, it)));
    let replaced =
        (0..count).flat_map(move |place| others.clone().into_iter().map(move |it| with_other(mapping, place, it)));
    let goes = (0..count).flat_map(move |place| {
        (0..mapping.intervals[place].processors.len()).flat_map(move |at| {
            std::iter::once(without(mapping, place, at)).chain((0..count).filter(move |&to| to != place).map(
                move |to| {
                    let moved = mapping.intervals[place].processors[at];
                    with_more(&without(mapping, place, at), to, moved)
                },
            ))
        })
    });
    let swapped = (0..count).flat_map(move |a| (a + 1..count).flat_map(move |b| swaps(mapping, a, b)));
    let joined = (1..count).flat_map(move |place| joins(mapping, place));
    let split = (0..count).flat_map(move |place| splits(mapping, place, free.clone()));
    let shared = (0..count).map(move |place| reshared(mapping, place));
    ends.chain(comes).chain(goes).chain(joined).chain(split).chain(replaced).chain(swapped).chain(shared)
}

fn with_cut(mapping: &Mapping, place: usize, cut: usize) -> Mapping {
    let mut mapping = mapping.clone();
    mapping.intervals[place - 1].stages.end = cut;
    mapping.intervals[place].stages.start = cut;
    mapping
}

fn share(interval: &mut Interval) {
    interval.sharing = match (interval.sharing, interval.processors.len()) {
        (_, 1) => Sharing::Single,
        (Sharing::DataParallel, _) => Sharing::DataParallel,
        _ => Sharing::Replicated,
    };
}

fn with_more(mapping: &Mapping, place: usize, processor: usize) -> Mapping {
    let mut mapping = mapping.clone();
    mapping.intervals[place].processors.push(processor);
    share(&mut mapping.intervals[place]);
    mapping
}

fn with_other(mapping: &Mapping, place: usize, processor: usize) -> Mapping {
    let mut mapping = mapping.clone();
    mapping.intervals[place].processors[0] = processor;
    mapping
}

fn without(mapping: &Mapping, place: usize, at: usize) -> Mapping {
    let mut mapping = mapping.clone();
    mapping.intervals[place].processors.remove(at);
    share(&mut mapping.intervals[place]);
    mapping
}

fn swaps(mapping: &Mapping, a: usize, b: usize) -> Vec<Mapping> {
    let (first, second) = (&mapping.intervals[a].processors, &mapping.intervals[b].processors);
    let mut swaps = Vec::new();
    for one in 0..first.len() {
        for other in 0..second.len() {
            let mut mapping = mapping.clone();
            mapping.intervals[a].processors[one] = second[other];
            mapping.intervals[b].processors[other] = first[one];
            swaps.push(mapping);
        }
    }
    swaps
}

/// Joins an interval and the one before it, on the processors of the first, of the second, or of both.
fn joins(mapping: &Mapping, place: usize) -> [Mapping; 3] {
    let (before, own) = (&mapping.intervals[place - 1], &mapping.intervals[place]);
    let both: Vec<usize> = before.processors.iter().chain(&own.processors).copied().collect();
    [(before.processors.clone(), before.sharing), (own.processors.clone(), own.sharing), (both, before.sharing)].map(
        |(processors, sharing)| {
            let mut mapping = mapping.clone();
            let stages = before.stages.start..own.stages.end;
            let mut interval = Interval { stages, processors, sharing };
            share(&mut interval);
            mapping.intervals.splice(place - 1..=place, [interval]);
            mapping
        },
    )
}

/// Splits an interval in two: either part runs on a free processor, or the two parts divide its own processors.
fn splits(mapping: &Mapping, place: usize, free: Vec<usize>) -> impl Iterator<Item = Mapping> {
    let interval = mapping.intervals[place].clone();
    let own = &interval.processors;
    let fresh = free.into_iter().map(|processor| (own.clone(), vec![processor]));
    let halves = (1..own.len()).map(|at| (own[..at].to_vec(), own[at..].to_vec()));
    let pairs: Vec<(Vec<usize>, Vec<usize>)> = fresh.chain(halves).collect();
    let range = interval.stages.clone();
    (range.start + 1..range.end).flat_map(move |cut| {
        let (mapping, interval) = (mapping.clone(), interval.clone());
        let ways = pairs.clone().into_iter().flat_map(|(a, b)| [(a.clone(), b.clone()), (b, a)]);
        ways.map(move |(first, second)| {
            let part = |stages, processors| {
                let mut part = Interval { stages, processors, sharing: interval.sharing };
                share(&mut part);
                part
            };
            let parts = [part(interval.stages.start..cut, first), part(cut..interval.stages.end, second)];
            let mut mapping = mapping.clone();
            mapping.intervals.splice(place..=place, parts);
            mapping
        })
    })
}

/// Turns replicas into a data-parallel group and the reverse.
fn reshared(mapping: &Mapping, place: usize) -> Mapping {
    let mut mapping = mapping.clone();
    let interval = &mut mapping.intervals[place];
    interval.sharing = match interval.sharing {
        Sharing::Single => Sharing::Single,
        Sharing::Replicated => Sharing::DataParallel,
        Sharing::DataParallel => Sharing::Replicated,
    };
    mapping
}
