//! What a move would do to the longest way through the schedule, told from the current schedule without evaluating the move.
//!
//! The tasks that move are taken out; each goes back at the place on its new device where the longest way through it, or through
//! what it pushes back there, is shortest (the idea of Mastrolilli and Gambardella 2000 for job shops with several machines). All
//! else is taken to stay when it is, so that the estimate is right for a single task up to what it leaves behind, and a guess
//! beyond.

use super::current::{Busy, Current};
use super::evaluate::Evaluator;
use crate::graph::TaskId;
use crate::platform::DeviceId;

/// Places on the new device that are compared for each task.
const PLACES: usize = 6;

/// Room for estimates, kept from one to the next.
pub(super) struct Estimator {
    /// By task: when it would end, if it is one of those that move.
    ends: Vec<Option<f64>>,
}

impl Estimator {
    pub(super) fn new(tasks: usize) -> Self {
        Estimator { ends: vec![None; tasks] }
    }

    /// The longest way through any of `tasks`, which are in the order of their starts, once they are on `to`.
    pub(super) fn estimate(
        &mut self,
        evaluator: &Evaluator<'_>,
        current: &Current,
        tasks: &[TaskId],
        to: DeviceId,
    ) -> f64 {
        let (mut longest, mut free): (f64, f64) = (0.0, 0.0);
        for &task in tasks {
            self.ends[task.index()] = Some(f64::INFINITY);
        }
        for &task in tasks {
            let ready = self.ready(evaluator, task, to).max(free);
            let time = evaluator.placed().problem().time(task, to);
            let after = self.after(evaluator, current, task, to);
            let (start, way) = self.insert(evaluator, current.busy(to), ready, time, after);
            free = start + time;
            self.ends[task.index()] = Some(free);
            longest = longest.max(way);
        }
        for &task in tasks {
            self.ends[task.index()] = None;
        }
        longest
    }

    /// When all inputs of `task` would be on `to`.
    fn ready(&self, evaluator: &Evaluator<'_>, task: TaskId, to: DeviceId) -> f64 {
        let placed = evaluator.placed();
        let graph = placed.problem().graph();
        let there = |&datum: &_| {
            let producer = graph.producer(datum);
            if let Some(end) = self.ends[producer.index()] {
                return end;
            }
            let end = evaluator.end(placed.item(producer));
            let from = placed.device_of(producer);
            if from == to {
                return end;
            }
            match placed.sends().to(datum, to) {
                Some(send) => evaluator.arrival(send),
                None => end + placed.crossing_time(graph.bytes(datum), from, to),
            }
        };
        graph.inputs(task).iter().map(there).fold(0.0, f64::max)
    }

    /// The longest way from the end of `task` on `to`, over what does not move.
    fn after(&self, evaluator: &Evaluator<'_>, current: &Current, task: TaskId, to: DeviceId) -> f64 {
        let placed = evaluator.placed();
        let graph = placed.problem().graph();
        let mut longest: f64 = 0.0;
        for &datum in graph.outputs(task) {
            let mut last = (to, 0.0);
            for &consumer in graph.consumers(datum) {
                if self.ends[consumer.index()].is_some() {
                    continue;
                }
                let item = placed.item(consumer);
                let device = placed.device_of(consumer);
                if device != last.0 {
                    last = (device, placed.crossing_time(graph.bytes(datum), to, device));
                }
                longest = longest.max(last.1 + placed.time(item) + current.tail(item));
            }
        }
        longest
    }

    /// Where among `busy` a task is best inserted: its start, and the longest way through it or what it pushes back.
    fn insert(&self, evaluator: &Evaluator<'_>, busy: &[Busy], ready: f64, time: f64, after: f64) -> (f64, f64) {
        let stays =
            |busy: &&Busy| evaluator.placed().task(busy.item).is_none_or(|task| self.ends[task.index()].is_none());
        let first = busy.partition_point(|busy| busy.end <= ready);
        let mut start = ready;
        let mut best = (ready, f64::INFINITY);
        let mut offer = |start: f64, way: f64| {
            if way < best.1 {
                best = (start, way);
            }
        };
        for next in busy[first..].iter().filter(stays).take(PLACES) {
            if next.start >= start + time {
                offer(start, start + time + after);
                return best;
            }
            let pushed = next.end - next.start + next.tail;
            offer(start, start + time + after.max(pushed));
            start = next.end.max(ready);
        }
        offer(start, start + time + after);
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// A chain of three between two devices, and a lone task of 9 on device 1 that can wait.
    #[test]
    fn an_estimate_of_a_chain_is_exact() {
        let loaded = sample::problem(sample::graph(&[2.0, 4.0, 3.0, 9.0], &[(0, 1, 10), (1, 2, 20)]), &[1.0, 2.0, 1.0]);
        let problem = loaded.problem().unwrap();
        let mut evaluator = Evaluator::new(&problem);
        let device_of = [0, 2, 0, 1].map(DeviceId);
        assert_eq!(evaluator.evaluate(&device_of, f64::INFINITY), Some(12.0));
        let mut current = Current::default();
        current.read(&evaluator);
        let mut estimator = Estimator::new(4);
        // Task 1 is on device 0 from 2 to 6; on device 1 it comes at 3 and rather pushes the lone task
        // back than to delay what follows it; together with that it rather waits.
        let cases =
            [(&[1][..], 0, 9.0), (&[1], 1, 3.0 + 2.0 + 5.0), (&[1, 2], 1, 4.5 + 2.0 + 1.5), (&[0, 1, 2], 2, 9.0)];
        for (tasks, to, way) in cases {
            let tasks: Vec<TaskId> = tasks.iter().copied().map(TaskId).collect();
            assert_eq!(estimator.estimate(&evaluator, &current, &tasks, DeviceId(to)), way, "{tasks:?} to {to}");
        }
    }
}
