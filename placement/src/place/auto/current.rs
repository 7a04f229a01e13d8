//! The placement that is being improved, with its schedule: when everything starts, what follows it, and why it starts then.

use super::evaluate::Evaluator;
use super::network::Network;
use crate::generate::Random;
use crate::graph::TaskId;
use crate::platform::DeviceId;

/// A stay on a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Busy {
    pub(super) item: u32,
    pub(super) start: f64,
    pub(super) end: f64,
    /// The longest way from `end` to the end of everything, if every device keeps its order.
    pub(super) tail: f64,
}

/// What can be read off the last evaluation of an [`Evaluator`].
#[derive(Debug, Default)]
pub(super) struct Current {
    pub(super) makespan: f64,
    /// By device, in order.
    busy: Vec<Vec<Busy>>,
    /// By item: its place on its device.
    place: Vec<u32>,
    /// By item: as [`Busy::tail`].
    tail: Vec<f64>,
}

impl Current {
    /// Reads the schedule of `evaluator`, whose last evaluation must have gone to the end. `O(V + E)`.
    pub(super) fn read(&mut self, evaluator: &Evaluator<'_>) {
        let network = evaluator.network();
        let starts = evaluator.starts();
        self.find_tails(evaluator);
        self.busy.resize(network.problem().platform().device_count(), Vec::new());
        self.busy.iter_mut().for_each(Vec::clear);
        self.place.clear();
        self.place.resize(network.item_count(), 0);
        self.makespan = 0.0;
        for &item in evaluator.sequence() {
            let start = starts[item as usize];
            let end = start + network.time(item as usize);
            let busy = &mut self.busy[network.device(item as usize).index()];
            self.place[item as usize] = busy.len() as u32;
            busy.push(Busy { item, start, end, tail: self.tail[item as usize] });
            self.makespan = self.makespan.max(end);
        }
    }

    fn find_tails(&mut self, evaluator: &Evaluator<'_>) {
        let network = evaluator.network();
        let graph = network.problem().graph();
        let mut tail = std::mem::take(&mut self.tail);
        tail.clear();
        tail.resize(network.item_count(), 0.0);
        // By device: the time from the start of the item after the one in hand.
        let mut next = vec![0.0f64; network.problem().platform().device_count()];
        let from_start = |tail: &[f64], task| {
            let item = network.item(task);
            network.time(item) + tail[item]
        };
        let after_send = |tail: &[f64], send| {
            let receivers = network.receivers(send).iter().map(|&task| from_start(tail, task));
            network.sends()[send].transfer + receivers.fold(0.0, f64::max)
        };
        for &item in evaluator.sequence().iter().rev() {
            let item = item as usize;
            let device = network.device(item).index();
            let mut longest = next[device];
            match network.task(item) {
                None => longest = longest.max(after_send(&tail, item)),
                Some(task) => {
                    for &datum in graph.outputs(task) {
                        for &consumer in network.local_consumers(datum) {
                            longest = longest.max(from_start(&tail, consumer));
                        }
                        for send in network.sends_of(datum) {
                            longest = longest.max(network.time(send) + after_send(&tail, send));
                        }
                    }
                }
            }
            tail[item] = longest;
            next[device] = longest + network.time(item);
        }
        self.tail = tail;
    }

    /// What `device` does, in order.
    pub(super) fn busy(&self, device: DeviceId) -> &[Busy] {
        &self.busy[device.index()]
    }

    pub(super) fn tail(&self, item: usize) -> f64 {
        self.tail[item]
    }

    /// How much later `item` could start without a longer makespan, if every device keeps its order.
    pub(super) fn slack(&self, evaluator: &Evaluator<'_>, item: usize) -> f64 {
        let end = evaluator.starts()[item] + evaluator.network().time(item);
        self.makespan - end - self.tail[item]
    }

    /// A way through the schedule on which nothing could start earlier, from its last item to its first: each time to what the
    /// item waited for, drawn where that is several.
    pub(super) fn critical_path(&self, evaluator: &Evaluator<'_>, random: &mut Random) -> Vec<u32> {
        let network = evaluator.network();
        let tolerance = 1e-12 * self.makespan;
        let ends = |task: &TaskId| {
            let item = network.item(*task);
            evaluator.starts()[item] + network.time(item) >= self.makespan - tolerance
        };
        let last: Vec<TaskId> = network.problem().graph().task_ids().filter(ends).collect();
        let mut path = Vec::new();
        let mut causes = Vec::new();
        let mut next = last.get(random.below(last.len() as u64) as usize).map(|&task| network.item(task));
        while let Some(item) = next {
            path.push(item as u32);
            self.causes(evaluator, item, &mut causes);
            let latest = causes.iter().map(|&(_, time)| time).fold(0.0, f64::max);
            causes.retain(|&(_, time)| time >= latest - tolerance);
            next = causes.get(random.below(causes.len() as u64) as usize).map(|&(cause, _)| cause);
        }
        path
    }

    /// What `item` could have waited for, and until when.
    fn causes(&self, evaluator: &Evaluator<'_>, item: usize, causes: &mut Vec<(usize, f64)>) {
        let network = evaluator.network();
        let end = |item: usize| evaluator.starts()[item] + network.time(item);
        causes.clear();
        if let Some(place) = self.place[item].checked_sub(1) {
            let before = self.busy(network.device(item))[place as usize];
            causes.push((before.item as usize, before.end));
        }
        let Some(task) = network.task(item) else {
            let producer = network.item(network.sends()[item].producer);
            causes.push((producer, end(producer)));
            return;
        };
        let graph = network.problem().graph();
        let device = network.device_of(task);
        for &datum in graph.inputs(task) {
            let producer = network.item(graph.producer(datum));
            if network.device(producer) == device {
                causes.push((producer, end(producer)));
            } else if let Some(send) = network.send_to(datum, device) {
                let arrival = end(send) + network.sends()[send].transfer;
                let takes_time = network.time(send) > 0.0;
                causes.push((if takes_time { send } else { producer }, arrival));
            }
        }
    }
}

/// When the datum of `send` is at its target.
pub(super) fn arrival(evaluator: &Evaluator<'_>, network: &Network<'_>, send: usize) -> f64 {
    evaluator.starts()[send] + network.time(send) + network.sends()[send].transfer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::OperationsOverSpeed;
    use crate::generate::{Grain, Shape, Sweep};
    use crate::problem::{MemoryRule, Problem};
    use crate::sample;
    use crate::simulate::SimulateOptions;

    /// Task 0 sends to 1, which has to wait for 2 on its device; 3 has time.
    #[test]
    fn tails_and_causes_of_a_small_schedule() {
        let graph = sample::graph(&[2.0, 4.0, 6.0, 1.0], &[(0, 1, 10), (0, 3, 0)]);
        let platform = sample::platform(&[1.0, 1.0]);
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let mut evaluator = Evaluator::new(&problem, SimulateOptions::default());
        let makespan = evaluator.evaluate(&[0, 1, 1, 0].map(DeviceId), f64::INFINITY);
        let mut current = Current::default();
        current.read(&evaluator);
        assert_eq!((makespan, current.makespan), (Some(10.0), 10.0));
        let item = |task| evaluator.network().item(TaskId(task));
        assert_eq!([0, 1, 2, 3].map(|task| current.tail(item(task))), [5.0, 0.0, 4.0, 0.0]);
        assert_eq!(current.busy(DeviceId(1)).iter().map(|busy| busy.end).collect::<Vec<_>>(), [6.0, 10.0]);
        let path = current.critical_path(&evaluator, &mut Random::new(0));
        assert_eq!(path, [item(1), item(2)].map(|item| item as u32));
    }

    #[test]
    fn nothing_on_a_critical_path_could_start_earlier_or_end_later() {
        let graph = Shape::Cholesky { tiles: 6 }.generate(&Grain::default()).unwrap();
        let loaded = Sweep::default().problem("cholesky", graph, 1).unwrap();
        let problem = loaded.problem().unwrap();
        let devices = problem.platform().device_count() as u64;
        let mut random = Random::new(7);
        let mut evaluator = Evaluator::new(&problem, SimulateOptions::THESIS);
        let mut current = Current::default();
        for _ in 0..20 {
            let device_of: Vec<DeviceId> =
                problem.graph().task_ids().map(|_| DeviceId(random.below(devices) as u32)).collect();
            let makespan = evaluator.evaluate(&device_of, f64::INFINITY).unwrap();
            current.read(&evaluator);
            let path = current.critical_path(&evaluator, &mut random);
            let network = evaluator.network();
            for &item in &path {
                let item = item as usize;
                assert!(current.slack(&evaluator, item).abs() <= 1e-9 * makespan);
            }
            assert_eq!(path.last().map(|&first| evaluator.starts()[first as usize]), Some(0.0));
            for item in 0..network.item_count() {
                assert!(current.slack(&evaluator, item) >= -1e-9 * makespan);
            }
        }
    }
}
