//! Makespans of many placements of one problem, one after the other, each as simulated under PCT.
//!
//! An evaluation ends as soon as the makespan is known to exceed a limit: when a device or a contended link has more to
//! do, or when an item starts or becomes ready so late that its remaining path ends after the limit.

use crate::order::{PlacedGraph, Rule, path_computation_times, remaining_times};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::rules::LinkContention;
use crate::simulate::{Engine, Scene};

/// Relative tolerance of the limit: sums of the same times in another order differ by rounding.
const ROUNDING: f64 = 1e-9;

/// Simulation of the last evaluated placement.
pub(super) struct Evaluator<'p> {
    placed: PlacedGraph<'p>,
    /// Rule by path computation times.
    rule: Rule,
    /// For each item, the time from its start to the end of everything that depends on it, without waiting for devices.
    rest: Vec<f64>,
    /// Time of all items of each device, then of all transfers of each contended link.
    loads: Vec<f64>,
    engine: Engine,
}

/// Sums of times, and the greatest of them.
struct Loads<'a> {
    sums: &'a mut Vec<f64>,
    greatest: f64,
}

impl<'a> Loads<'a> {
    /// Creates so many sums of 0 in the memory of `sums`.
    fn new(sums: &'a mut Vec<f64>, count: usize) -> Self {
        sums.clear();
        sums.resize(count, 0.0);
        Self { sums, greatest: 0.0 }
    }

    fn add(&mut self, at: usize, time: f64) {
        self.sums[at] += time;
        self.greatest = self.greatest.max(self.sums[at]);
    }
}

impl<'p> Evaluator<'p> {
    pub(super) fn new(problem: &'p Problem<'p>) -> Self {
        Evaluator {
            placed: PlacedGraph::unplaced(problem),
            rule: Rule::Greatest(Vec::new()),
            rest: Vec::new(),
            loads: Vec::new(),
            engine: Engine::default(),
        }
    }

    /// Returns the makespan under PCT with task `t` on `device_of[t]`, which must be able to run it; `None` if it
    /// exceeds `limit`.
    pub(super) fn evaluate(&mut self, device_of: &[DeviceId], limit: f64) -> Option<f64> {
        let most = limit * (1.0 + ROUNDING);
        if self.greatest_load(device_of) > most {
            return None;
        }
        self.placed.fill(device_of);
        self.rule = Rule::Greatest(path_computation_times(&self.placed));
        self.rest = remaining_times(&self.placed);
        let scene = Scene::new(&self.placed, &self.rule);
        let within = self.engine.run(&Scene { limit: Some((most, &self.rest)), ..scene });
        (within && self.engine.makespan() <= limit).then_some(self.engine.makespan())
    }

    /// Returns the most time that a device or a contended link needs for all that it has to do. No makespan is shorter,
    /// apart from rounding. `O(V + E)`.
    pub(super) fn greatest_load(&mut self, device_of: &[DeviceId]) -> f64 {
        let (placed, problem) = (&self.placed, self.placed.problem());
        let (graph, devices) = (problem.graph(), problem.platform().device_count());
        let contended = problem.rules().contention != LinkContention::None;
        let network = problem.platform().network().filter(|_| contended);
        let links = network.map_or(if contended { devices * devices } else { 0 }, |network| network.links().len());
        let mut loads = Loads::new(&mut self.loads, devices + links);
        for task in graph.task_ids() {
            let device = device_of[task.index()];
            loads.add(device.index(), problem.time(task, device));
        }
        // The last datum that has been sent to each device.
        let mut sent = vec![None; devices];
        for datum in graph.datum_ids() {
            let from = device_of[graph.producer(datum).index()];
            for consumer in graph.consumers(datum) {
                let to = device_of[consumer.index()];
                if to == from || sent[to.index()].replace(datum) == Some(datum) {
                    continue;
                }
                loads.add(from.index(), placed.send_time(from));
                if !problem.is_serial(from, to) {
                    continue;
                }
                let time = problem.transfer_time(graph.bytes(datum), from, to) - problem.rules().delays.time(from, to);
                match network {
                    Some(network) => {
                        let route = network.route(from, to).iter();
                        route.for_each(|link| loads.add(devices + *link as usize, time.max(0.0)));
                    }
                    None => loads.add(devices + from.index() * devices + to.index(), time.max(0.0)),
                }
            }
        }
        loads.greatest
    }

    pub(super) fn placed(&self) -> &PlacedGraph<'p> {
        &self.placed
    }

    /// Returns the start of each item.
    pub(super) fn starts(&self) -> &[f64] {
        self.engine.starts()
    }

    /// Returns the end of an item.
    pub(super) fn end(&self, item: usize) -> f64 {
        self.engine.ends()[item]
    }

    /// Returns the time when the datum of `send` is at its target, without contention of its link.
    pub(super) fn arrival(&self, send: usize) -> f64 {
        self.end(send) + self.placed.transfer_time(send)
    }

    /// Returns the path computation time of an item.
    pub(super) fn rank(&self, item: usize) -> f64 {
        self.rule.rank(item)
    }

    /// Returns the time from an item's start to the end of everything that depends on it, without waiting for devices.
    pub(super) fn rest(&self, item: usize) -> f64 {
        self.rest[item]
    }

    /// Returns tasks, and sends if they take time, by start; each after the items that it waits for.
    pub(super) fn sequence(&self) -> &[usize] {
        self.engine.sequence()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check_schedule;
    use crate::cost::CostTable;
    use crate::graph::{GraphBuilder, Task, TaskId};
    use crate::order::{Order, Pct};
    use crate::platform::{Device, DeviceKind, Platform};
    use crate::problem::MemoryRule;
    use crate::rules::{Delays, Rules, SendCosts, Slowdowns};
    use crate::schedule::Schedule;
    use crate::simulate::simulate;
    use arbtest::arbitrary::{Result, Unstructured};

    fn all_rules() -> [Rules; 6] {
        let sends = |send_operations, receive_operations| SendCosts { send_operations, receive_operations };
        [
            Rules::default(),
            Rules::default().with_send_costs(sends(2.0, 1.0)),
            Rules::THESIS,
            Rules::default().with_send_costs(sends(1.0, 0.0)).with_contention(LinkContention::Serial),
            Rules::default().with_contention(LinkContention::SerialCopies),
            Rules::default().with_send_costs(sends(0.5, 0.0)),
        ]
    }

    /// A small problem with many ties, including times of zero, and a placement of it.
    fn with_placement(random: &mut Unstructured<'_>, check: impl FnOnce(&Problem<'_>, &[DeviceId])) -> Result<()> {
        let tasks = random.int_in_range(1..=14u32)?;
        let devices = random.int_in_range(1..=4u32)?;
        let mut builder = GraphBuilder::new();
        let ids: Vec<TaskId> = (0..tasks).map(|_| builder.task(Task::new("t"))).collect();
        for &producer in &ids {
            for _ in 0..random.int_in_range(0..=2u8)? {
                let datum = builder.datum(producer, random.int_in_range(0..=3u64)?);
                for &consumer in &ids[producer.index() + 1..] {
                    if random.ratio(1, 4)? {
                        builder.consume(datum, consumer);
                    }
                }
            }
        }
        let graph = builder.build().unwrap();
        let device = |_| Device::new("d", DeviceKind::Cpu);
        let platform = Platform::uniform((0..devices).map(device).collect(), 0.0, 1.0).unwrap();
        let mut times = Vec::new();
        for _ in 0..tasks * devices {
            times.push(f64::from(random.int_in_range(0..=3u8)?));
        }
        let time = |task: TaskId, device: DeviceId| Some(times[task.index() * devices as usize + device.index()]);
        let costs = CostTable::from_fn(&graph, &platform, time).unwrap();
        let mut device_of = Vec::new();
        for _ in 0..tasks {
            device_of.push(DeviceId(random.int_in_range(0..=devices - 1)?));
        }
        check(&Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap(), &device_of);
        Ok(())
    }

    /// Simulates with an event for each transfer and without a limit.
    fn transfer_by_transfer(problem: &Problem<'_>, device_of: &[DeviceId]) -> Schedule {
        let placed = PlacedGraph::new(problem, device_of);
        let (rule, mut engine) = (Pct.rule(&placed), Engine::default());
        engine.run(&Scene { foresight: false, ..Scene::new(&placed, &rule) });
        assert_eq!(simulate(problem, device_of, &Pct), Ok(engine.schedule(&placed)));
        engine.schedule(&placed)
    }

    #[test]
    fn evaluations_are_simulations() {
        arbtest::arbtest(|random| {
            with_placement(random, |problem, device_of| {
                let devices = problem.platform().device_count();
                for (number, rules) in all_rules().into_iter().enumerate() {
                    let factor = |a: DeviceId, b: DeviceId| 1.0 + 0.5 * f64::from(a.0 + b.0);
                    let slowdowns = Slowdowns::from_fn(if number < 4 { 0 } else { devices }, factor);
                    let delays = Delays::from_fn(devices, |from, to| f64::from(from.0 + to.0) / 2.0);
                    let rules = rules.with_slowdowns(slowdowns).with_delays(delays);
                    let problem = problem.clone().under(rules).unwrap();
                    let mut evaluator = Evaluator::new(&problem);
                    let schedule = transfer_by_transfer(&problem, device_of);
                    assert_eq!(check_schedule(&problem, device_of, &schedule), []);
                    assert!(evaluator.greatest_load(device_of) <= schedule.makespan * (1.0 + ROUNDING));
                    assert_eq!(evaluator.evaluate(device_of, f64::INFINITY), Some(schedule.makespan));
                    let placed = evaluator.placed();
                    for (task, span) in problem.graph().task_ids().zip(&schedule.tasks) {
                        let item = placed.item(task);
                        assert_eq!((evaluator.starts()[item], evaluator.end(item)), (span.start, span.end), "{number}");
                    }
                    for (send, span) in schedule.transfers.iter().enumerate() {
                        assert_eq!(evaluator.starts()[send], span.send_start);
                        assert!((placed.transfer_time(send) - (span.end - span.start)).abs() < 1e-9);
                    }
                    assert_eq!(evaluator.evaluate(device_of, schedule.makespan), Some(schedule.makespan));
                    assert_eq!(evaluator.evaluate(device_of, schedule.makespan - 0.01), None);
                }
            })
        })
        .budget_ms(800);
    }

    /// One evaluation does not affect the next.
    #[test]
    fn an_evaluation_that_ended_early_changes_nothing_later() {
        arbtest::arbtest(|random| {
            with_placement(random, |problem, device_of| {
                let problem = problem.clone().under(Rules::THESIS).unwrap();
                let mut evaluator = Evaluator::new(&problem);
                let makespan = evaluator.evaluate(device_of, f64::INFINITY);
                for limit in [0.0, makespan.unwrap_or(0.0) / 2.0] {
                    evaluator.evaluate(device_of, limit);
                    assert_eq!(evaluator.evaluate(device_of, f64::INFINITY), makespan);
                }
            })
        })
        .budget_ms(200);
    }
}
