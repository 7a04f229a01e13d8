//! Current placement of the search, with its schedule: starts, successors and causes of each item.

use crate::place::evaluator::Evaluator;
use crate::platform::DeviceId;
use crate::random::Random;

/// Time of an item on its device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Busy {
    pub(super) item: usize,
    pub(super) start: f64,
    pub(super) end: f64,
    /// Longest path from `end` to the end of the schedule, if every device keeps its order.
    pub(super) tail: f64,
}

/// Schedule of the last evaluation of an [`Evaluator`].
#[derive(Debug, Default)]
pub(super) struct Current {
    pub(super) makespan: f64,
    /// Items of each device, in order.
    busy: Vec<Vec<Busy>>,
    /// Position of each item on its device.
    place: Vec<u32>,
    /// [`Busy::tail`] of each item.
    tail: Vec<f64>,
}

impl Current {
    /// Reads the schedule of `evaluator`, whose last evaluation must have been complete. `O(V + E)`.
    pub(super) fn read(&mut self, evaluator: &Evaluator<'_>) {
        let placed = evaluator.placed();
        self.find_tails(evaluator);
        self.busy.resize(placed.problem().platform().device_count(), Vec::new());
        self.busy.iter_mut().for_each(Vec::clear);
        self.place.clear();
        self.place.resize(placed.item_count(), 0);
        self.makespan = 0.0;
        for &item in evaluator.sequence() {
            let (start, end) = (evaluator.starts()[item], evaluator.end(item));
            let busy = &mut self.busy[placed.device(item).index()];
            self.place[item] = busy.len() as u32;
            busy.push(Busy { item, start, end, tail: self.tail[item] });
            self.makespan = self.makespan.max(end);
        }
    }

    fn find_tails(&mut self, evaluator: &Evaluator<'_>) {
        let placed = evaluator.placed();
        let graph = placed.problem().graph();
        let mut tail = std::mem::take(&mut self.tail);
        tail.clear();
        tail.resize(placed.item_count(), 0.0);
        // For each device, the time from the start of the item after the current one to the end of the schedule.
        let mut next = vec![0.0f64; placed.problem().platform().device_count()];
        let from_start = |tail: &[f64], task| {
            let item = placed.item(task);
            placed.time(item) + tail[item]
        };
        let after_send = |tail: &[f64], send| {
            let receivers = placed.sends().receivers(send).iter().map(|&task| from_start(tail, task));
            placed.transfer_time(send) + receivers.fold(0.0, f64::max)
        };
        for &item in evaluator.sequence().iter().rev() {
            let device = placed.device(item).index();
            let mut longest = next[device];
            match placed.task(item) {
                None => longest = longest.max(after_send(&tail, item)),
                Some(task) => {
                    for &datum in graph.outputs(task) {
                        for &consumer in placed.sends().local_consumers(datum) {
                            longest = longest.max(from_start(&tail, consumer));
                        }
                        for send in placed.sends().of_datum(datum) {
                            longest = longest.max(placed.time(send) + after_send(&tail, send));
                        }
                    }
                }
            }
            tail[item] = longest;
            next[device] = longest + placed.time(item);
        }
        self.tail = tail;
    }

    /// Returns the items of `device`, in order.
    pub(super) fn busy(&self, device: DeviceId) -> &[Busy] {
        &self.busy[device.index()]
    }

    pub(super) fn tail(&self, item: usize) -> f64 {
        self.tail[item]
    }

    /// Returns the delay that `item` could have without a longer makespan, if every device keeps its order.
    pub(super) fn slack(&self, evaluator: &Evaluator<'_>, item: usize) -> f64 {
        self.makespan - evaluator.end(item) - self.tail[item]
    }

    /// Returns a critical path: items that could not start earlier, from the last to the first. It always goes to the
    /// item's cause; of several causes one is drawn.
    pub(super) fn critical_path(&self, evaluator: &Evaluator<'_>, random: &mut Random) -> Vec<usize> {
        let placed = evaluator.placed();
        let tolerance = 1e-12 * self.makespan;
        let tasks = placed.problem().graph().task_ids().map(|task| placed.item(task));
        let last: Vec<usize> = tasks.filter(|&item| evaluator.end(item) >= self.makespan - tolerance).collect();
        let mut path = Vec::new();
        let mut causes = Vec::new();
        let mut next = last.get(random.below(last.len() as u64) as usize).copied();
        while let Some(item) = next {
            path.push(item);
            self.causes(evaluator, item, &mut causes);
            let latest = causes.iter().map(|&(_, time)| time).fold(0.0, f64::max);
            causes.retain(|&(_, time)| time >= latest - tolerance);
            next = causes.get(random.below(causes.len() as u64) as usize).map(|&(cause, _)| cause);
        }
        path
    }

    /// Collects the possible causes of the start of `item`, with their ends.
    fn causes(&self, evaluator: &Evaluator<'_>, item: usize, causes: &mut Vec<(usize, f64)>) {
        let placed = evaluator.placed();
        causes.clear();
        if let Some(place) = self.place[item].checked_sub(1) {
            let before = self.busy(placed.device(item))[place as usize];
            causes.push((before.item, before.end));
        }
        let graph = placed.problem().graph();
        let Some(task) = placed.task(item) else {
            let producer = placed.item(graph.producer(placed.sends().all()[item].datum));
            causes.push((producer, evaluator.end(producer)));
            return;
        };
        let device = placed.device_of(task);
        for &datum in graph.inputs(task) {
            let producer = placed.item(graph.producer(datum));
            if placed.device(producer) == device {
                causes.push((producer, evaluator.end(producer)));
            } else if let Some(send) = placed.sends().to(datum, device) {
                let takes_time = placed.time(send) > 0.0;
                causes.push((if takes_time { send } else { producer }, evaluator.arrival(send)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TaskId;
    use crate::rules::Rules;
    use crate::sample;

    /// Task 0 sends to 1, which has to wait for 2 on its device; 3 has slack.
    #[test]
    fn tails_and_causes_of_a_small_schedule() {
        let loaded = sample::problem(sample::graph(&[2.0, 4.0, 6.0, 1.0], &[(0, 1, 10), (0, 3, 0)]), &[1.0, 1.0]);
        let problem = loaded.problem().unwrap();
        let mut evaluator = Evaluator::new(&problem);
        let makespan = evaluator.evaluate(&[0, 1, 1, 0].map(DeviceId), f64::INFINITY);
        let mut current = Current::default();
        current.read(&evaluator);
        assert_eq!((makespan, current.makespan), (Some(10.0), 10.0));
        let item = |task| evaluator.placed().item(TaskId(task));
        assert_eq!([0, 1, 2, 3].map(|task| current.tail(item(task))), [5.0, 0.0, 4.0, 0.0]);
        assert_eq!(current.busy(DeviceId(1)).iter().map(|busy| busy.end).collect::<Vec<_>>(), [6.0, 10.0]);
        let path = current.critical_path(&evaluator, &mut Random::new(0));
        assert_eq!(path, [item(1), item(2)]);
    }

    #[test]
    fn nothing_on_a_critical_path_could_start_earlier_or_end_later() {
        let mut drawn = Random::new(1);
        let works: Vec<f64> = (0..60).map(|_| drawn.below(90) as f64 + 1.0).collect();
        let later = |from: u32, drawn: &mut Random| from + 1 + drawn.below(8) as u32;
        let edges: Vec<_> = (0..51).flat_map(|from| [from; 2]).map(|from| (from, later(from, &mut drawn), 9)).collect();
        let loaded = sample::problem(sample::graph(&works, &edges), &[1.0, 2.0, 3.0]);
        let problem = loaded.problem().unwrap().under(Rules::THESIS).unwrap();
        let devices = problem.platform().device_count() as u64;
        let mut random = Random::new(7);
        let mut evaluator = Evaluator::new(&problem);
        let mut current = Current::default();
        for _ in 0..20 {
            let device_of: Vec<DeviceId> =
                problem.graph().task_ids().map(|_| DeviceId(random.below(devices) as u32)).collect();
            let makespan = evaluator.evaluate(&device_of, f64::INFINITY).unwrap();
            current.read(&evaluator);
            let path = current.critical_path(&evaluator, &mut random);
            for &item in &path {
                assert!(current.slack(&evaluator, item).abs() <= 1e-9 * makespan);
            }
            assert_eq!(path.last().map(|&first| evaluator.starts()[first]), Some(0.0));
            for item in 0..evaluator.placed().item_count() {
                assert!(current.slack(&evaluator, item) >= -1e-9 * makespan);
            }
        }
    }
}
