//! Estimate of the longest path through the schedule after a move, from the current schedule alone.
//!
//! The tasks that move are removed and then inserted on their new device one by one. Each goes to the position with the
//! least estimate: the longest path through the task, or through the tasks that it delays there. The idea is that of
//! Mastrolilli and Gambardella 2000 for job shops with several machines. Other items are assumed to keep their times.
//! So the estimate of a single task is exact except for the gap that it leaves; otherwise it is a guess.

use super::current::{Busy, Current};
use crate::graph::TaskId;
use crate::place::evaluator::Evaluator;
use crate::platform::DeviceId;

/// Number of positions on the new device to compare for each task.
const PLACES: usize = 6;

/// Scratch memory of estimates, kept between them.
pub(super) struct Estimator {
    /// Estimated end of each task that moves.
    ends: Vec<Option<f64>>,
}

impl Estimator {
    pub(super) fn new(tasks: usize) -> Self {
        Estimator { ends: vec![None; tasks] }
    }

    /// Returns the longest path through any of `tasks` if they are on `to`. `tasks` must be in the order of their
    /// starts.
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

    /// Returns the time when all inputs of `task` would be on `to`.
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

    /// Returns the longest path from the end of `task` on `to`, over tasks that do not move.
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

    /// Finds the best position among `busy` for a task: returns its start, and the longest path through it or the items
    /// that it delays.
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

    /// A chain of three between two devices, and an independent task of 9 on device 1 that can wait.
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
        // Task 1 is on device 0 from 2 to 6. On device 1 its data arrive at 3, and it is better to delay the
        // independent task than task 2. If task 2 moves too, it is better to wait.
        let cases =
            [(&[1][..], 0, 9.0), (&[1], 1, 3.0 + 2.0 + 5.0), (&[1, 2], 1, 4.5 + 2.0 + 1.5), (&[0, 1, 2], 2, 9.0)];
        for (tasks, to, way) in cases {
            let tasks: Vec<TaskId> = tasks.iter().copied().map(TaskId).collect();
            assert_eq!(estimator.estimate(&evaluator, &current, &tasks, DeviceId(to)), way, "{tasks:?} to {to}");
        }
    }
}
