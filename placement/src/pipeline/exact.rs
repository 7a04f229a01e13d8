//! Optimal mapping, by a dynamic programme over positions in the chain and sets of used processors. Interchangeable
//! processors are distinguished only by their number.
//!
//! `B(i, U, a, b)` is the best value for stages `i..` if the processors `U` are taken. The interval that begins with
//! stage `i` runs on a group of *side* `b`, and its data come from a group of side `a`. Transfer times depend on a
//! group only through its side. `B` is the best over ends `j`, groups `g` of side `b` and next sides `c`. It combines
//! the interval's own value with `B(j, U + g, b, c)`: the maximum of the cycles for the period, and the sum of the
//! times for the latency. For the latency, no cycle may exceed the limit.
//!
//! With classes of `n_c` processors there are `Π (n_c + 1)` sets. On identical processors this is the paper's
//! polynomial dynamic programme: `O(n² p)` steps for interval mappings and `O(n² p²)` with replication. On different
//! processors the time is exponential in the number of processors, but polynomial in the number of stages. The search
//! skips ends at which the interval alone exceeds the limit. It also skips sets that leave too few processors for the
//! remaining stages: `Σ_s min_u y_u t_su ≤ K Σ_u y_u` holds for any weights `y_u ≥ 0` and any mapping of period `K`.
//!
//! The slides' recurrence for latency under a period divides by `(j − i)`, although the processors `P_i … P_j` are `j −
//! i + 1` ([`equal`](super::equal)).
//!
//! Memories that intervals share are not part of the state. If the optimum does not fit into them, the search returns
//! no mapping, and nothing is proven.

use super::evaluate::{Performance, cycle, performance};
use super::goal::{Goal, within};
use super::groups::{Group, Groups};
use super::mapping::{Interval, Mapping, Sharing};
use super::problem::{Parallel, Problem};
use super::stages::StageKind;
use super::weights::Weights;

/// Limits of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExactOptions {
    /// Most ends of intervals that the search evaluates, over all passes (default: 200 million).
    pub steps: u64,
}

impl Default for ExactOptions {
    /// Two hundred million: some seconds.
    fn default() -> Self {
        ExactOptions { steps: 200_000_000 }
    }
}

/// Result of the search.
#[derive(Debug, Clone, PartialEq)]
pub enum Exact {
    /// The optimal mapping.
    Optimum(Mapping),
    /// No mapping keeps the limits.
    Infeasible,
    /// No result: too many steps or sets, or memories that several intervals share.
    Unknown,
}

/// Least steps per set of used processors; with fewer, a search does not begin, because numbering the sets takes time
/// too.
const STEPS_A_SET: u64 = 100;
/// Most states that a search stores; a search of fewer steps stores fewer.
const MOST_STATES: u64 = 1 << 25;

/// Searches for the best mapping for `goal`.
///
/// `known` is the period of some mapping within the limits, or infinity; it shortens the search. See [`exact`](self)
/// for the complexity.
pub fn optimum(problem: &Problem, goal: Goal, known: f64, options: ExactOptions) -> Exact {
    let Some(groups) = Groups::new(problem, most_sets(options)) else { return Exact::Unknown };
    let mut search = Search::new(problem, &groups, options.steps);
    let found = match goal {
        Goal::Period => search.least_period(known),
        Goal::Latency => search.least_latency(f64::INFINITY),
        Goal::LatencyWithin { period } => search.least_latency(period),
        Goal::PeriodWithin { latency } => search.least_period_within(latency, known),
    };
    match found {
        _ if search.left == 0 || !groups.complete => Exact::Unknown,
        None => Exact::Infeasible,
        Some(mapping) if mapping.verify(problem).is_ok() => Exact::Optimum(mapping),
        Some(_) => Exact::Unknown,
    }
}

/// Returns the Pareto front of period and latency, by ascending latency; `None` in the cases of [`Exact::Unknown`].
pub fn front(problem: &Problem, options: ExactOptions) -> Option<Vec<Mapping>> {
    let groups = Groups::new(problem, most_sets(options))?;
    let mut search = Search::new(problem, &groups, options.steps);
    let mut front: Vec<Mapping> = Vec::new();
    let mut next = search.pass(Seek::Latency, f64::INFINITY);
    while let Some(mapping) = next {
        let Performance { period, latency } = performance(problem, &mapping);
        // A mapping with a shorter period and no greater latency replaces the previous one.
        front.pop_if(|last| within(latency, performance(problem, last).latency));
        front.push(mapping);
        next = search.pass(Seek::Latency, below(period));
    }
    let valid = search.left > 0 && groups.complete && front.iter().all(|mapping| mapping.verify(problem).is_ok());
    valid.then_some(front)
}

fn most_sets(options: ExactOptions) -> usize {
    (options.steps / STEPS_A_SET).clamp(32, 1 << 17) as usize
}

/// Returns a limit that excludes `period` and all values that differ from it by rounding only.
fn below(period: f64) -> f64 {
    period * (1.0 - 1e-11)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seek {
    Period,
    Latency,
}

/// Best value of a state, and the choice that reaches it: group, end and next side.
#[derive(Debug, Clone, Copy)]
struct State {
    value: f64,
    group: u32,
    end: u32,
    next: u32,
}

const UNSEEN: State = State { value: f64::NAN, group: 0, end: 0, next: 0 };

struct Search<'a> {
    problem: &'a Problem,
    groups: &'a Groups,
    weights: Weights,
    /// Groups by side.
    by_side: Vec<Vec<usize>>,
    /// Processors left of each class, and the sum of their weights, by set.
    remaining: Vec<(Vec<usize>, f64)>,
    states: Vec<State>,
    left: u64,
    most_states: u64,
    seek: Seek,
    limit: f64,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, groups: &'a Groups, steps: u64) -> Self {
        let weights = Weights::new(problem);
        let by_side = |side| (0..groups.groups.len()).filter(|&group| groups.groups[group].side == side).collect();
        let remaining = |set| {
            let left: Vec<usize> =
                groups.counts(set).iter().zip(&groups.classes).map(|(used, all)| all.len() - used).collect();
            let sum = left.iter().zip(&groups.classes).map(|(&left, all)| left as f64 * weights.of(all[0])).sum();
            (left, sum)
        };
        Search {
            problem,
            groups,
            by_side: (0..groups.sides).map(by_side).collect(),
            remaining: (0..groups.sets).map(remaining).collect(),
            weights,
            states: Vec::new(),
            left: steps,
            most_states: steps.min(MOST_STATES),
            seek: Seek::Period,
            limit: f64::INFINITY,
        }
    }

    fn least_period(&mut self, known: f64) -> Option<Mapping> {
        let fastest = self.pass(Seek::Period, known)?;
        let period = performance(self.problem, &fastest).period;
        self.pass(Seek::Latency, period)
    }

    fn least_latency(&mut self, period: f64) -> Option<Mapping> {
        let quickest = self.pass(Seek::Latency, period)?;
        let performance = performance(self.problem, &quickest);
        self.least_period_within(performance.latency, performance.period)
    }

    /// Bisects between an infeasible period and a feasible one. Each pass that succeeds returns a mapping with its
    /// period.
    fn least_period_within(&mut self, latency: f64, known: f64) -> Option<Mapping> {
        let value = |mapping: &Mapping| performance(self.problem, mapping);
        let mut best = self.pass(Seek::Latency, known).filter(|best| within(value(best).latency, latency))?;
        let mut out_of_reach = 0.0;
        loop {
            let period = value(&best).period;
            // Tests whether any better period exists before it tests the middle.
            for limit in [below(period), (out_of_reach + period) / 2.0] {
                if limit <= out_of_reach {
                    return Some(best);
                }
                match self.pass(Seek::Latency, limit).filter(|found| within(value(found).latency, latency)) {
                    Some(found) => best = found,
                    None if limit == below(period) => return Some(best),
                    None => out_of_reach = limit,
                }
            }
        }
    }

    /// Returns the best mapping in which no cycle exceeds `limit`.
    fn pass(&mut self, seek: Seek, limit: f64) -> Option<Mapping> {
        let (stages, sides) = (self.problem.stage_count(), self.groups.sides);
        let states = stages.checked_mul(self.groups.sets)?.checked_mul(sides * (sides + 1));
        let Some(states) = states.filter(|&states| states as u64 <= self.most_states && self.left > 0) else {
            self.left = 0;
            return None;
        };
        (self.seek, self.limit) = (seek, limit);
        self.states.clear();
        self.states.resize(states, UNSEEN);
        let outside = sides;
        let start = |side| (self.groups.hop(outside, side, 0), side);
        let firsts: Vec<(f64, usize)> = (0..sides).map(start).collect();
        let mut best: Option<(f64, usize)> = None;
        for (incoming, side) in firsts {
            let rest = self.best(0, 0, outside, side);
            let value = if seek == Seek::Latency { incoming + rest } else { rest };
            if value < best.map_or(f64::INFINITY, |best| best.0) {
                best = Some((value, side));
            }
        }
        best.filter(|_| self.left > 0).map(|(_, side)| self.mapping(side))
    }

    fn place(&self, stage: usize, set: usize, from: usize, side: usize) -> usize {
        ((stage * self.groups.sets + set) * (self.groups.sides + 1) + from) * self.groups.sides + side
    }

    fn best(&mut self, stage: usize, set: usize, from: usize, side: usize) -> f64 {
        let place = self.place(stage, set, from, side);
        if self.states[place].value.is_nan() {
            self.states[place] = self.compute(stage, set, from, side);
        }
        self.states[place].value
    }

    fn compute(&mut self, stage: usize, set: usize, from: usize, side: usize) -> State {
        let mut best = State { value: f64::INFINITY, ..UNSEEN };
        // The comparison is false if the limit is infinite and the weights are zero.
        if self.weights.after(stage) > self.limit * self.remaining[set].1 * (1.0 + 1e-9) {
            return best;
        }
        let groups = self.groups;
        let incoming = groups.hop(from, side, stage);
        for at in 0..self.by_side[side].len() {
            let group = self.by_side[side][at];
            let fits =
                groups.groups[group].counts.iter().zip(&self.remaining[set].0).all(|(count, left)| count <= left);
            if fits {
                self.extend(&mut best, (stage, set), incoming, group);
            }
        }
        best
    }

    /// Tries all ends of an interval that begins with `stage` on group `number`.
    fn extend(&mut self, best: &mut State, (stage, set): (usize, usize), incoming: f64, number: usize) {
        let (groups, problem, model) = (self.groups, self.problem, self.problem.rules().communication);
        let group = &groups.groups[number];
        let replicas = group.replicas();
        let mut memory = IntervalMemory::new(problem, groups, group, stage);
        for end in stage + 1..=last_end(problem, group, stage) {
            self.left = self.left.saturating_sub(1);
            let compute = seconds(problem, groups, group, stage, end);
            let least = cycle(model, incoming, compute, 0.0, replicas);
            if self.left == 0 || !compute.is_finite() || !within(least, self.limit) || !memory.grow(end) {
                return;
            }
            if !memory.admits(end) {
                continue;
            }
            let nexts = if end == problem.stage_count() { groups.sides..groups.sides + 1 } else { 0..groups.sides };
            for next in nexts {
                let outgoing = groups.hop(group.side, next, end);
                let own = cycle(model, incoming, compute, outgoing, replicas);
                if !within(own, self.limit) {
                    continue;
                }
                let rest = if next == groups.sides { 0.0 } else { self.best(end, set + group.step, group.side, next) };
                let value = if self.seek == Seek::Period { own.max(rest) } else { compute + outgoing + rest };
                if value < best.value {
                    *best = State { value, group: number as u32, end: end as u32, next: next as u32 };
                }
            }
        }
    }

    /// Follows the choices from the start to build the mapping.
    fn mapping(&self, first: usize) -> Mapping {
        let (mut stage, mut set, mut from, mut side) = (0, 0, self.groups.sides, first);
        let mut free: Vec<std::slice::Iter<'_, usize>> = self.groups.classes.iter().map(|class| class.iter()).collect();
        let mut intervals = Vec::new();
        while stage < self.problem.stage_count() {
            let State { group, end, next, .. } = self.states[self.place(stage, set, from, side)];
            let group = &self.groups.groups[group as usize];
            let take = |(free, &count): (&mut std::slice::Iter<'_, usize>, &usize)| {
                free.by_ref().take(count).copied().collect::<Vec<usize>>()
            };
            let processors = free.iter_mut().zip(&group.counts).flat_map(take).collect();
            intervals.push(Interval { stages: stage..end as usize, processors, sharing: group.sharing });
            (stage, set, from, side) = (end as usize, set + group.step, group.side, next as usize);
        }
        Mapping { intervals }
    }
}

/// Seconds of an interval on the slowest processor of a group, or on the whole group if it is data-parallel.
fn seconds(problem: &Problem, groups: &Groups, group: &Group, start: usize, end: usize) -> f64 {
    let used = group.counts.iter().zip(&groups.classes).filter(|(count, _)| **count > 0);
    let mut used = used.map(|(&count, class)| (count, class[0]));
    match group.sharing {
        Sharing::DataParallel => problem.group_seconds(used, start..end),
        Sharing::Single | Sharing::Replicated => {
            used.by_ref().fold(0.0, |most, (_, processor)| problem.seconds(processor, start..end).max(most))
        }
    }
}

/// Last end of an interval that a group may share.
fn last_end(problem: &Problem, group: &Group, stage: usize) -> usize {
    let stages = &problem.stages().stages;
    let run = |least| stage + stages[stage..].iter().take_while(|stage| stage.kind >= least).count();
    match group.sharing {
        Sharing::Single => stages.len(),
        Sharing::Replicated => run(StageKind::Replicable),
        Sharing::DataParallel if problem.rules().parallel == Parallel::Stage => {
            run(StageKind::DataParallel).min(stage + 1)
        }
        Sharing::DataParallel => run(StageKind::DataParallel),
    }
}

/// Memory use of a growing interval, as if no other interval existed.
struct IntervalMemory<'a> {
    problem: &'a Problem,
    /// Limit of each memory, and the number of copies of the activations that the group keeps in it.
    memories: Vec<(u64, u64)>,
    start: usize,
    weights: u64,
    activations: u64,
}

impl<'a> IntervalMemory<'a> {
    fn new(problem: &'a Problem, groups: &Groups, group: &Group, start: usize) -> Self {
        let mut memories = Vec::new();
        for (limit, members) in problem.processors().memories() {
            let classes = groups.classes.iter().zip(&group.counts).filter(|(class, _)| members.contains(&class[0]));
            // Processors of one class either have a memory each or share one.
            let here: usize = classes.map(|(_, &count)| if members.len() == 1 { count.min(1) } else { count }).sum();
            if here > 0 {
                memories.push((*limit, if group.sharing == Sharing::DataParallel { 1 } else { here as u64 }));
            }
        }
        IntervalMemory { problem, memories, start, weights: 0, activations: 0 }
    }

    /// Adds the stage before `end`, which is one more than in the last call. Returns whether any end from here on can
    /// fit.
    fn grow(&mut self, end: usize) -> bool {
        let stage = &self.problem.stages().stages[end - 1];
        self.weights = self.weights.saturating_add(stage.weights);
        self.activations = self.activations.max(stage.activations);
        self.fit(0)
    }

    /// Whether the interval up to `end` fits together with its inputs and outputs.
    fn admits(&self, end: usize) -> bool {
        let data = &self.problem.stages().data;
        let buffers = self.problem.rules().communication.buffers();
        self.memories.is_empty() || self.fit(data[self.start].saturating_add(data[end]).saturating_mul(buffers))
    }

    fn fit(&self, passing: u64) -> bool {
        let each = self.activations.saturating_add(passing);
        let taken = |copies: u64| self.weights.saturating_add(each.saturating_mul(copies));
        self.memories.iter().all(|&(limit, copies)| taken(copies) <= limit)
    }
}
