//! List scheduling of tasks that use several cores. Of the ready tasks of a device, the one with the longest path to
//! the end goes first. If a task does not find enough free cores, tasks behind it may pass it.
//!
//! For tasks of one core without transfers, Graham's bound holds: at most twice the optimum (Graham 1966). `O((V + E)
//! log V)`, plus the ready tasks of a device once for each moment when some of its cores become free.

use super::problem::Problem;
use crate::graph::TaskId;
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Device and start of each task, on identical devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Timetable {
    /// Device of each task, from 0.
    pub device_of: Vec<u32>,
    /// Start of each task. Its end is the start plus its time.
    pub starts: Vec<f64>,
    /// End of the last task; 0 for an empty graph.
    pub makespan: f64,
}

/// Schedules task `t` on device `device_of[t]`. Each device has `cores` cores, at least as many as every task uses.
pub fn timetable(problem: &Problem<'_>, device_of: &[u32], cores: u64) -> Timetable {
    let mut run = Run::new(problem, device_of, cores);
    while let Some(Reverse((Total(now), _, _))) = run.events.peek().copied() {
        run.happen(now);
        run.start(now);
    }
    let ends = problem.graph().task_ids().map(|task| run.starts[task.index()] + problem.time(task));
    Timetable { device_of: device_of.to_vec(), makespan: ends.fold(0.0, f64::max), starts: run.starts }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End,
    Ready,
}

struct Run<'p> {
    problem: &'p Problem<'p>,
    device_of: &'p [u32],
    /// Longest path from each task's start to the end.
    ranks: Vec<f64>,
    /// For each task, the number of producers that have not ended, and the arrival of the latest datum.
    open: Vec<(usize, f64)>,
    starts: Vec<f64>,
    /// Free cores of each device.
    free: Vec<u64>,
    ready: Vec<BTreeSet<(Reverse<Total>, TaskId)>>,
    /// Devices whose free cores or ready tasks have changed.
    changed: BTreeSet<u32>,
    events: BinaryHeap<Reverse<(Total, Event, TaskId)>>,
}

impl<'p> Run<'p> {
    fn new(problem: &'p Problem<'p>, device_of: &'p [u32], cores: u64) -> Self {
        let (graph, devices) = (problem.graph(), device_of.iter().max().map_or(0, |&most| most as usize + 1));
        let sources = graph.task_ids().filter(|&task| graph.predecessors(task).is_empty());
        Run {
            ranks: ranks(problem, device_of),
            open: graph.task_ids().map(|task| (graph.predecessors(task).len(), 0.0)).collect(),
            starts: vec![0.0; graph.task_count()],
            free: vec![cores; devices],
            ready: vec![BTreeSet::new(); devices],
            changed: BTreeSet::new(),
            events: sources.map(|task| Reverse((Total(0.0), Event::Ready, task))).collect(),
            problem,
            device_of,
        }
    }

    /// Processes all events of this moment.
    fn happen(&mut self, now: f64) {
        while let Some(Reverse((Total(time), event, task))) = self.events.peek().copied()
            && time <= now
        {
            self.events.pop();
            let device = self.device_of[task.index()];
            self.changed.insert(device);
            match event {
                // A task without cores waits for none.
                Event::Ready if self.problem.cores(task) == 0 => self.begin(task, now),
                Event::Ready => {
                    self.ready[device as usize].insert((Reverse(Total(self.ranks[task.index()])), task));
                }
                Event::End => {
                    self.free[device as usize] += self.problem.cores(task);
                    self.deliver(task, now);
                }
            }
        }
    }

    fn begin(&mut self, task: TaskId, now: f64) {
        self.starts[task.index()] = now;
        self.events.push(Reverse((Total(now + self.problem.time(task)), Event::End, task)));
    }

    /// Updates the successors of a task that has ended.
    fn deliver(&mut self, task: TaskId, now: f64) {
        let graph = self.problem.graph();
        for &datum in graph.outputs(task) {
            for &to in graph.consumers(datum) {
                let stays = self.device_of[to.index()] == self.device_of[task.index()];
                let there = now + if stays { 0.0 } else { self.problem.transfer(datum) };
                self.open[to.index()].1 = self.open[to.index()].1.max(there);
            }
        }
        for &to in graph.successors(task) {
            let (open, there) = &mut self.open[to.index()];
            *open -= 1;
            if *open == 0 {
                self.events.push(Reverse((Total(*there), Event::Ready, to)));
            }
        }
    }

    /// Starts the tasks for which there are enough free cores.
    fn start(&mut self, now: f64) {
        for device in std::mem::take(&mut self.changed) {
            let (mut free, mut begun) = (self.free[device as usize], Vec::new());
            for &(rank, task) in &self.ready[device as usize] {
                let cores = self.problem.cores(task);
                if cores <= free {
                    free -= cores;
                    begun.push((rank, task));
                }
                if free == 0 {
                    break;
                }
            }
            self.free[device as usize] = free;
            for entry in begun {
                self.ready[device as usize].remove(&entry);
                self.begin(entry.1, now);
            }
        }
    }
}

/// Returns the longest path from each task's start to the end, with the transfers between devices.
fn ranks(problem: &Problem<'_>, device_of: &[u32]) -> Vec<f64> {
    let graph = problem.graph();
    let mut ranks = vec![0.0f64; graph.task_count()];
    for &task in graph.topological().iter().rev() {
        let mut after = 0.0f64;
        for &datum in graph.outputs(task) {
            for &to in graph.consumers(datum) {
                let stays = device_of[to.index()] == device_of[task.index()];
                after = after.max(ranks[to.index()] + if stays { 0.0 } else { problem.transfer(datum) });
            }
        }
        ranks[task.index()] = problem.time(task) + after;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::problem::Capacity;
    use crate::pipeline::Link;
    use crate::sample;

    /// The long task of two cores goes first; next to it only the short task of one core fits.
    #[test]
    fn a_task_that_does_not_fit_lets_others_past() {
        let graph = sample::graph(&[0.0; 4], &[(0, 3, 6)]);
        let capacity = Capacity { cores: 3, memory: None };
        let link = Link { latency: 0.0, bandwidth: 2.0 };
        let problem = Problem::new(&graph, vec![2, 2, 1, 1], vec![4.0, 3.0, 1.0, 2.0], capacity, link).unwrap();
        let together = timetable(&problem, &[0; 4], 3);
        assert_eq!((together.starts, together.makespan), (vec![0.0, 4.0, 0.0, 4.0], 7.0));
        let apart = timetable(&problem, &[0, 0, 0, 1], 3);
        assert_eq!((apart.starts[3], apart.makespan), (7.0, 9.0));
        let wide = timetable(&problem, &[0; 4], 5);
        assert_eq!(wide.makespan, 6.0);
        // Two tasks of one core; the successor of the first uses no core.
        let graph = sample::graph(&[0.0; 4], &[(0, 2, 0), (2, 3, 0)]);
        let problem = Problem::new(&graph, vec![1, 1, 0, 1], vec![2.0, 9.0, 3.0, 1.0], capacity, link).unwrap();
        let one = timetable(&problem, &[0; 4], 1);
        assert_eq!((one.starts, one.makespan), (vec![9.0, 0.0, 11.0, 14.0], 15.0));
    }
}
