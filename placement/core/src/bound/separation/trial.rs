//! Attempt to refute a makespan by rules, as [`separation`](super) states them.

use super::shares::Shares;
use crate::bound::Paths;
use crate::graph::{DatumId, TaskGraph, TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::union_find::UnionFind;
use std::cmp::Reverse;

/// Most rounds of the rules for one value.
const ROUNDS: usize = 12;
/// Relative tolerance of sums of times, whose rounding must not refute anything.
const ROUNDING: f64 = 1e-12;

/// Facts that all attempts share.
pub(super) struct Scene<'p> {
    problem: &'p Problem<'p>,
    paths: &'p Paths,
    devices: usize,
    /// Least makespan with each unit on each device; infinite if it cannot be there.
    least: Vec<f64>,
    /// Time of each datum between each two devices.
    transfers: Vec<f64>,
}

impl<'p> Scene<'p> {
    pub(super) fn new(problem: &'p Problem<'p>, paths: &'p Paths) -> Self {
        let (graph, platform) = (problem.graph(), problem.platform());
        let least = |unit, device| match problem.is_feasible(unit, device) {
            true => paths.with_unit_on(problem, unit, device),
            false => f64::INFINITY,
        };
        let mut transfers = Vec::new();
        for datum in graph.datum_ids() {
            for from in platform.device_ids() {
                transfers.extend(platform.device_ids().map(|to| problem.transfer_time(graph.bytes(datum), from, to)));
            }
        }
        Scene {
            problem,
            paths,
            devices: platform.device_count(),
            least: graph.unit_ids().flat_map(|unit| platform.device_ids().map(move |d| least(unit, d))).collect(),
            transfers,
        }
    }

    fn graph(&self) -> &'p TaskGraph {
        self.problem.graph()
    }

    /// Returns the number of steps of one round of the rules.
    pub(super) fn steps(&self) -> usize {
        let graph = self.graph();
        3 * graph.edge_count() * self.devices * self.devices + 4 * graph.task_count() * self.devices
    }

    /// Returns the times of `datum` from `from` to each device.
    fn transfers(&self, datum: DatumId, from: usize) -> &[f64] {
        &self.transfers[(datum.index() * self.devices + from) * self.devices..][..self.devices]
    }
}

/// Set of units that are on one device in every schedule that is short enough.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) demand: u64,
    /// Sum of times, least start and least tail, by device; the time is infinite if the group cannot be there.
    pub(super) on: Vec<[f64; 3]>,
}

impl Group {
    pub(super) fn admits(&self, device: usize) -> bool {
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

/// Groups that can be on one device only: the sums of their demands and times, and their least start and tail.
#[derive(Debug, Clone, Copy)]
struct Settled {
    bytes: u128,
    work: f64,
    start: f64,
    tail: f64,
}

impl Default for Settled {
    fn default() -> Self {
        Settled { bytes: 0, work: 0.0, start: f64::INFINITY, tail: f64::INFINITY }
    }
}

impl Settled {
    /// Returns the sums with `group` too.
    fn with(self, group: &Group, device: usize) -> Self {
        let [time, start, tail] = group.on[device];
        Settled {
            bytes: self.bytes + u128::from(group.demand),
            work: self.work + time,
            start: self.start.min(start),
            tail: self.tail.min(tail),
        }
    }
}

/// Attempt to refute a makespan.
#[derive(Clone)]
pub(super) struct Trial<'s> {
    pub(super) scene: &'s Scene<'s>,
    /// The makespan with a tolerance.
    limit: f64,
    joined: UnionFind,
    /// Groups by the root of their units.
    groups: Vec<Group>,
    /// Starts and tails of each task on each device.
    starts: Vec<f64>,
    tails: Vec<f64>,
    shares: Shares,
}

impl<'s> Trial<'s> {
    pub(super) fn new(scene: &'s Scene<'s>, makespan: f64) -> Self {
        let (graph, problem) = (scene.graph(), scene.problem);
        let devices = || problem.platform().device_ids();
        let group = |unit: UnitId| {
            let on = |device: DeviceId| {
                if scene.least[unit.index() * scene.devices + device.index()] > makespan {
                    return [f64::INFINITY; 3];
                }
                [problem.unit_time(unit, device), 0.0, 0.0]
            };
            Group { demand: problem.demand(unit), on: devices().map(on).collect() }
        };
        let pairs = || graph.task_ids().flat_map(|task| devices().map(move |device| (task, device)));
        Trial {
            scene,
            limit: (makespan * (1.0 + ROUNDING)).min(f64::MAX),
            joined: UnionFind::new(graph.unit_count()),
            groups: graph.unit_ids().map(group).collect(),
            starts: pairs().map(|(task, device)| scene.paths.start(task, device)).collect(),
            tails: pairs().map(|(task, device)| scene.paths.tail(task, device)).collect(),
            shares: Shares::new(problem.platform()),
        }
    }

    /// Whether the rules and the shares find a contradiction.
    pub(super) fn is_refuted(&mut self) -> bool {
        for _ in 0..ROUNDS {
            if self.is_contradictory() {
                return true;
            }
            match self.share_out() {
                None => return true,
                Some(false) => break,
                Some(true) => {}
            }
        }
        false
    }

    /// Closes devices where the shares leave no place for a group. Returns whether any was closed, and `None` if the
    /// groups together exceed all shares.
    fn share_out(&mut self) -> Option<bool> {
        let roots = self.roots();
        let groups = || roots.iter().map(|&root| &self.groups[root]);
        let closed = self.shares.divide(self.scene.problem.platform(), groups, self.limit)?;
        closed.iter().for_each(|&(place, device)| self.groups[roots[place]].close(device));
        Some(!closed.is_empty())
    }

    /// Whether the rules find a contradiction.
    pub(super) fn is_contradictory(&mut self) -> bool {
        for _ in 0..ROUNDS {
            match self.round() {
                None => return true,
                Some(false) => break,
                Some(true) => {}
            }
        }
        false
    }

    /// Returns the groups that can be on several devices, as their roots: fewest devices first, then greatest demand.
    pub(super) fn open_groups(&mut self) -> Vec<usize> {
        let mut roots = self.roots();
        roots.retain(|&root| self.groups[root].only().is_none());
        roots.sort_by_key(|&root| (self.open_devices(root).len(), Reverse(self.groups[root].demand)));
        roots
    }

    /// Returns the devices that a group can be on.
    pub(super) fn open_devices(&self, root: usize) -> Vec<usize> {
        (0..self.scene.devices).filter(|&device| self.groups[root].admits(device)).collect()
    }

    /// Excludes a group from a device.
    pub(super) fn close(&mut self, root: usize, device: usize) {
        self.groups[root].close(device);
    }

    /// Returns this attempt with a group on one device.
    pub(super) fn with(&self, root: usize, device: usize) -> Self {
        let mut trial = self.clone();
        (0..self.scene.devices).filter(|&other| other != device).for_each(|other| trial.close(root, other));
        trial
    }

    /// Applies all rules once; returns whether anything changed, and `None` for a contradiction.
    fn round(&mut self) -> Option<bool> {
        let tightened = self.tighten();
        let joined = self.join_groups();
        let closed = self.close_devices()?;
        Some(tightened || joined || closed)
    }

    /// Lifts starts and tails to those that follow from the devices that are left. Returns whether devices were closed.
    fn tighten(&mut self) -> bool {
        let (graph, devices) = (self.scene.graph(), self.scene.devices);
        let roots: Vec<usize> = graph.task_ids().map(|task| self.joined.root(graph.unit(task).index())).collect();
        for &task in graph.topological() {
            for &datum in graph.inputs(task) {
                let producer = graph.producer(datum);
                let mut arrival = vec![f64::INFINITY; devices];
                for from in self.open_devices(roots[producer.index()]) {
                    let end = self.start(producer, from) + self.time(producer, from);
                    let transfers = self.scene.transfers(datum, from);
                    for (to, arrival) in arrival.iter_mut().enumerate() {
                        if from == to || roots[producer.index()] != roots[task.index()] {
                            *arrival = arrival.min(end + transfers[to]);
                        }
                    }
                }
                let starts = &mut self.starts[task.index() * devices..][..devices];
                starts.iter_mut().zip(arrival).for_each(|(start, arrival)| *start = start.max(arrival));
            }
        }
        for &task in graph.topological().iter().rev() {
            for &datum in graph.outputs(task) {
                for &consumer in graph.consumers(datum) {
                    let open = self.open_devices(roots[consumer.index()]);
                    for from in 0..devices {
                        let transfers = self.scene.transfers(datum, from);
                        let may_be = |to: &&usize| from == **to || roots[consumer.index()] != roots[task.index()];
                        let rest = |&to: &usize| transfers[to] + self.time(consumer, to) + self.tail(consumer, to);
                        let least = open.iter().filter(may_be).map(rest).fold(f64::INFINITY, f64::min);
                        let tail = &mut self.tails[task.index() * devices + from];
                        *tail = tail.max(least);
                    }
                }
            }
        }
        self.collect_ends(&roots)
    }

    /// Gives each group the least start and the least tail of its members. Closes devices where a member is too late,
    /// and returns whether there was one.
    fn collect_ends(&mut self, roots: &[usize]) -> bool {
        let mut any = false;
        for group in &mut self.groups {
            group.on.iter_mut().for_each(|on| (on[1], on[2]) = (f64::INFINITY, f64::INFINITY));
        }
        for task in self.scene.graph().task_ids() {
            for device in 0..self.scene.devices {
                let (start, tail) = (self.start(task, device), self.tail(task, device));
                let [_, first, last] = &mut self.groups[roots[task.index()]].on[device];
                (*first, *last) = (first.min(start), last.min(tail));
                let late = start + self.time(task, device) + tail > self.limit;
                let group = &mut self.groups[roots[task.index()]];
                if late && group.admits(device) {
                    group.close(device);
                    any = true;
                }
            }
        }
        any
    }

    fn start(&self, task: TaskId, device: usize) -> f64 {
        self.starts[task.index() * self.scene.devices + device]
    }

    fn tail(&self, task: TaskId, device: usize) -> f64 {
        self.tails[task.index() * self.scene.devices + device]
    }

    fn time(&self, task: TaskId, device: usize) -> f64 {
        self.scene.problem.time(task, DeviceId(device as u32))
    }

    /// Joins the groups at both ends of each edge that cannot be cut.
    fn join_groups(&mut self) -> bool {
        let graph = self.scene.graph();
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
        let (producer, limit) = (self.scene.graph().producer(datum), self.limit);
        let devices = 0..self.scene.devices;
        devices.clone().filter(|&from| self.groups[one].admits(from)).any(|from| {
            let head = self.start(producer, from) + self.time(producer, from);
            let transfers = self.scene.transfers(datum, from);
            let fits = |to: usize| head + transfers[to] + self.time(consumer, to) + self.tail(consumer, to) <= limit;
            head <= limit && devices.clone().any(|to| to != from && self.groups[other].admits(to) && fits(to))
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
        let platform = self.scene.problem.platform();
        let mut settled = vec![Settled::default(); platform.device_count()];
        for &root in &roots {
            if let Some(device) = self.groups[root].only() {
                settled[device] = settled[device].with(&self.groups[root], device);
            }
        }
        let mut any = false;
        for &root in &roots {
            let group = &mut self.groups[root];
            let only = group.only();
            for (device, &settled) in settled.iter().enumerate() {
                if !group.admits(device) {
                    continue;
                }
                let [time, start, tail] = group.on[device];
                let all = if only.is_some() { settled } else { settled.with(group, device) };
                let memory = platform.devices()[device].memory.map_or(u128::MAX, u128::from);
                let longest = (start + time + tail).max(all.start + all.work + all.tail);
                if all.bytes > memory || longest > self.limit {
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
}
