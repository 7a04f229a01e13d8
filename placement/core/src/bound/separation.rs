//! Placements that memory or constraints exclude, by refuting makespans (a destructive bound, Klein and Scholl 1999).
//!
//! Suppose that some schedule has a makespan of at most `T`. Then much is known about its placement:
//!
//! 1. A unit is on a device only if its start, time and tail there are together at most `T`.
//! 2. Let a datum of `p` be read by `c`, with `p` on `d` and `c` on another device `e`. Then the makespan is at least
//!    the sum of five times: start and time of `p` on `d`, the transfer, time and tail of `c` on `e`. Suppose that this
//!    exceeds `T` for all pairs of devices that are left. Then both are on one device: their units form a *group*.
//! 3. The demand of a group fits on its device next to the groups that can be nowhere else. The group runs there
//!    between the least start and the least tail of its members, and its times are together at most `T`.
//!
//! These rules are applied until nothing changes. If a group has no device left, no schedule is as short as `T`.
//! Otherwise all groups have to share devices with limited time and memory. Give each device a weight for its time and
//! a weight for its memory, with a sum of 1 over all of them. If each group is where its weighted share of time `T` and
//! of memory is least, and all shares together exceed 1, there is no schedule either: these are multipliers of the
//! linear relaxation. They are found by multiplicative weights (Plotkin, Shmoys and Tardos 1995).
//!
//! Bisection finds the greatest `T` that is refuted. It is a bound whether or not greater values are refuted too.

use super::Paths;
use crate::graph::{DatumId, TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::union_find::UnionFind;

/// Most pairs of devices over all edges, and most units times devices. Beyond this there is no bound.
const MOST_PAIRS: usize = 1_000_000;
const MOST_CELLS: usize = 20_000;
/// Most bisections; each halves the interval between a refuted value and one that is not.
const BISECTIONS: usize = 20;
/// Relative width of the interval at which bisection ends.
const WIDTH: f64 = 1e-4;
/// Multiple of the known bound beyond which no makespan is tried.
const FARTHEST: f64 = 1e9;
/// Most rounds of the rules for one value.
const ROUNDS: usize = 12;
/// Steps of the weights for one value, and their length.
const STEPS: usize = 40;
const LENGTH: f64 = 0.3;

/// Returns the greatest makespan found to be refuted, at least `known`; 0 if the problem is too large. Takes
/// `O(V × devices + E × devices²)` at worst for each of some dozen values.
pub(super) fn bound(problem: &Problem<'_>, paths: &Paths, known: f64) -> f64 {
    let (graph, devices) = (problem.graph(), problem.platform().device_count());
    let (pairs, cells) = (graph.edge_count() * devices * devices, graph.unit_count() * devices);
    if pairs > MOST_PAIRS || cells > MOST_CELLS || known <= 0.0 || !known.is_finite() {
        return 0.0;
    }
    let least = least_makespans(problem, paths);
    let refutes = |makespan: f64| Trial::new(problem, paths, &least, makespan).is_refuted();
    let mut low = known;
    let mut high = known * (1.0 + WIDTH);
    while refutes(high) {
        low = high;
        high *= if high < known * 1.01 { 1.05 } else { 2.0 };
        if high > known * FARTHEST {
            // If every makespan is refuted, nothing has a placement, and there is nothing to bound.
            return if refutes(f64::MAX) { 0.0 } else { low };
        }
    }
    if low <= known {
        return 0.0;
    }
    for _ in 0..BISECTIONS {
        if high - low <= WIDTH * low {
            break;
        }
        let middle = low + (high - low) / 2.0;
        if refutes(middle) { low = middle } else { high = middle }
    }
    low
}

/// Returns the least makespan with each unit on each device; infinite if it cannot be there.
fn least_makespans(problem: &Problem<'_>, paths: &Paths) -> Vec<f64> {
    let least = |unit, device| match problem.is_feasible(unit, device) {
        true => paths.with_unit_on(problem, unit, device),
        false => f64::INFINITY,
    };
    let units = problem.graph().unit_ids();
    units.flat_map(|unit| problem.platform().device_ids().map(move |device| least(unit, device))).collect()
}

/// Set of units that are on one device in every schedule that is short enough.
#[derive(Clone)]
struct Group {
    demand: u64,
    /// Sum of times, least start and least tail, by device; the time is infinite if the group cannot be there.
    on: Vec<[f64; 3]>,
}

impl Group {
    fn admits(&self, device: usize) -> bool {
        self.on[device][0].is_finite()
    }

    fn close(&mut self, device: usize) {
        self.on[device][0] = f64::INFINITY;
    }

    /// Returns the only device that is left, if it is one.
    fn only(&self) -> Option<usize> {
        let mut left = (0..self.on.len()).filter(|&device| self.admits(device));
        left.next().filter(|_| left.next().is_none())
    }

    fn is_impossible(&self) -> bool {
        (0..self.on.len()).all(|device| !self.admits(device))
    }
}

/// Attempt to refute a makespan.
struct Trial<'p> {
    problem: &'p Problem<'p>,
    paths: &'p Paths,
    makespan: f64,
    joined: UnionFind,
    /// Groups by the root of their units.
    groups: Vec<Group>,
}

impl<'p> Trial<'p> {
    fn new(problem: &'p Problem<'p>, paths: &'p Paths, least: &[f64], makespan: f64) -> Self {
        let (graph, platform) = (problem.graph(), problem.platform());
        let group = |unit: UnitId| {
            let on = |device: DeviceId| {
                if least[unit.index() * platform.device_count() + device.index()] > makespan {
                    return [f64::INFINITY; 3];
                }
                let members = || graph.members(unit).iter();
                let start = members().map(|&task| paths.start(task, device)).fold(f64::INFINITY, f64::min);
                let tail = members().map(|&task| paths.tail(task, device)).fold(f64::INFINITY, f64::min);
                [problem.unit_time(unit, device), start, tail]
            };
            Group { demand: problem.demand(unit), on: platform.device_ids().map(on).collect() }
        };
        let groups = graph.unit_ids().map(group).collect();
        Trial { problem, paths, makespan, joined: UnionFind::new(graph.unit_count()), groups }
    }

    fn is_refuted(&mut self) -> bool {
        for _ in 0..ROUNDS {
            match self.round() {
                None => return true,
                Some(false) => break,
                Some(true) => {}
            }
        }
        self.shares_exceed()
    }

    /// Applies all rules once; returns whether anything changed, and `None` for a contradiction.
    fn round(&mut self) -> Option<bool> {
        let joined = self.join_groups();
        let closed = self.close_devices()?;
        Some(joined || closed)
    }

    /// Joins the groups at both ends of each edge that cannot be cut.
    fn join_groups(&mut self) -> bool {
        let graph = self.problem.graph();
        let mut any = false;
        for datum in graph.datum_ids() {
            let producer = graph.producer(datum);
            for &consumer in graph.consumers(datum) {
                let ends = [producer, consumer].map(|task| self.joined.root(graph.unit(task).index()));
                if ends[0] != ends[1] && !self.can_cut(datum, consumer, ends) {
                    self.join(ends);
                    any = true;
                }
            }
        }
        any
    }

    /// Whether `datum` can be sent to `consumer` within the makespan.
    fn can_cut(&self, datum: DatumId, consumer: TaskId, [one, other]: [usize; 2]) -> bool {
        let (problem, graph) = (self.problem, self.problem.graph());
        let (producer, bytes) = (graph.producer(datum), graph.bytes(datum));
        let devices = || problem.platform().device_ids();
        devices().filter(|from| self.groups[one].admits(from.index())).any(|from| {
            let head = self.paths.start(producer, from) + problem.time(producer, from);
            let fits = |to: DeviceId| {
                let rest = problem.time(consumer, to) + self.paths.tail(consumer, to);
                head + problem.transfer_time(bytes, from, to) + rest <= self.makespan
            };
            head <= self.makespan && devices().any(|to| to != from && self.groups[other].admits(to.index()) && fits(to))
        })
    }

    fn join(&mut self, [one, other]: [usize; 2]) {
        self.joined.join(one, other);
        let root = self.joined.root(one);
        let from = self.groups[one + other - root].clone();
        let into = &mut self.groups[root];
        into.demand = into.demand.saturating_add(from.demand);
        for (into, from) in into.on.iter_mut().zip(&from.on) {
            *into = [into[0] + from[0], into[1].min(from[1]), into[2].min(from[2])];
        }
    }

    fn roots(&mut self) -> Vec<usize> {
        (0..self.groups.len()).filter(|&unit| self.joined.root(unit) == unit).collect()
    }

    /// Closes devices that are too small or too slow for a group next to the groups that can be nowhere else. Returns
    /// whether any was closed, and `None` if some group has no device.
    fn close_devices(&mut self) -> Option<bool> {
        let roots = self.roots();
        let platform = self.problem.platform();
        let mut settled = vec![(0u128, 0.0); platform.device_count()];
        for &root in &roots {
            if let Some(device) = self.groups[root].only() {
                settled[device].0 += u128::from(self.groups[root].demand);
                settled[device].1 += self.groups[root].on[device][0];
            }
        }
        let mut any = false;
        for &root in &roots {
            let group = &mut self.groups[root];
            let only = group.only();
            for (device, &(bytes, work)) in settled.iter().enumerate() {
                if !group.admits(device) {
                    continue;
                }
                let [time, start, tail] = group.on[device];
                let (bytes, work) = match only {
                    Some(_) => (bytes, work),
                    None => (bytes + u128::from(group.demand), work + time),
                };
                let memory = platform.devices()[device].memory.map_or(u128::MAX, u128::from);
                // Rounding of the sum of times must not refute anything.
                if bytes > memory || work.max(start + time + tail) > self.makespan * (1.0 + 1e-12) {
                    group.close(device);
                    any = true;
                }
            }
            if group.is_impossible() {
                return None;
            }
        }
        Some(any)
    }

    /// Whether weights of time and memory show that the groups together need more than there is.
    fn shares_exceed(&mut self) -> bool {
        let roots = self.roots();
        let platform = self.problem.platform();
        let devices = platform.device_count();
        let memory = |device: usize| platform.devices()[device].memory.map(|memory| memory as f64);
        // Weights of times, then of memories.
        let mut weights: Vec<f64> =
            (0..2 * devices).map(|at| if at < devices || memory(at - devices).is_some() { 1.0 } else { 0.0 }).collect();
        for _ in 0..STEPS {
            let sum: f64 = weights.iter().sum::<f64>() * (1.0 + 1e-12);
            weights.iter_mut().for_each(|weight| *weight /= sum);
            let mut loads = vec![0.0; 2 * devices];
            let mut shares = 0.0;
            for &root in &roots {
                let group = &self.groups[root];
                let need = |device: usize| {
                    let bytes = memory(device).map_or(0.0, |memory| group.demand as f64 / memory.max(1.0));
                    (group.on[device][0] / self.makespan, bytes)
                };
                let share = |device: usize| {
                    let (time, bytes) = need(device);
                    weights[device] * time + weights[devices + device] * bytes
                };
                let open = (0..devices).filter(|&device| group.admits(device));
                let best = open.map(|device| (share(device), device)).min_by(|one, other| one.0.total_cmp(&other.0));
                if let Some((share, device)) = best {
                    let (time, bytes) = need(device);
                    shares += share;
                    loads[device] += time;
                    loads[devices + device] += bytes;
                }
            }
            if shares > 1.0 + 1e-9 {
                return true;
            }
            let farthest = loads.iter().map(|load| (load - shares).abs()).fold(1e-300, f64::max);
            for (weight, load) in weights.iter_mut().zip(&loads) {
                *weight *= 1.0 + LENGTH * (load - shares) / farthest;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task, TaskGraph};
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// A chain of four tasks of 6 bytes with time 1 and transfers of 30, 20 and 40; and an isolated task.
    fn chain() -> TaskGraph {
        let mut builder = GraphBuilder::new();
        let tasks = [(); 5].map(|()| builder.task(Task::new("t").with_memory(6).with_operations(1.0)));
        for (pair, bytes) in tasks[..4].windows(2).zip([300, 200, 400]) {
            builder.edge(pair[0], pair[1], bytes);
        }
        builder.build().unwrap()
    }

    fn bound_with(memory: [u64; 2]) -> f64 {
        let devices = memory.map(|memory| Device::new("d", DeviceKind::Cpu).with_memory(memory));
        let loaded = sample::on(chain(), devices, MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        let paths = Paths::new(&problem);
        paths.bound(&problem).max(bound(&problem, &paths, 1.0))
    }

    #[test]
    fn a_chain_that_does_not_fit_is_cut_where_it_costs_least() {
        let near = |found: f64, expected: f64| found <= expected * (1.0 + 1e-9) && found >= expected * 0.999;
        assert!(near(bound_with([24, 6]), 4.0), "all four fit on the first: {}", bound_with([24, 6]));
        assert!(
            near(bound_with([23, 12]), 24.0),
            "one does not: a transfer of 20, four tasks: {}",
            bound_with([23, 12])
        );
    }

    fn bound_apart(bytes: u64) -> f64 {
        let mut builder = GraphBuilder::new();
        let [a, b] = [0, 1].map(|device| builder.task(Task::new("t").with_operations(1.0).with_pin(DeviceId(device))));
        builder.edge(a, b, bytes);
        let loaded = sample::problem(builder.build().unwrap(), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        bound(&problem, &Paths::new(&problem), 1.0)
    }

    #[test]
    fn what_must_be_apart_sends() {
        let found = bound_apart(55);
        assert!(found <= 7.5 && found > 7.49, "{found}");
    }

    #[test]
    fn a_refutation_far_beyond_the_known_bound_counts() {
        let found = bound_apart(100_000_000_000_000);
        assert!(found > 1e8 && found <= 1e13 + 2.0, "{found}");
    }

    #[test]
    fn what_fits_nowhere_has_no_bound() {
        let devices = [6; 2].map(|memory| Device::new("d", DeviceKind::Cpu).with_memory(memory));
        let loaded = sample::on(chain(), devices, MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        assert_eq!(bound(&problem, &Paths::new(&problem), 1.0), 0.0);
    }
}
