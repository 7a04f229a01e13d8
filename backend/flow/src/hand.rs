//! State of one worker thread of a run: its queue of ready tasks, its current task, and its log.

use super::body::Outcome;
use super::log::Log;
use super::options::FlowOptions;
use super::queues::Task;
use super::report::{FlowEvent, MOST_EVENTS, WorkerReport};
use crossbeam_deque::Worker;

pub(super) struct Hand {
    pub(super) worker: usize,
    pub(super) machine: u32,
    pub(super) deque: Worker<Task>,
    /// Tasks that it has made ready and not yet shared.
    pub(super) ready: Vec<Task>,
    /// Task that it runs.
    pub(super) task: Task,
    pub(super) log: Log,
}

impl Hand {
    pub(super) fn new(worker: usize, deque: Worker<Task>, options: &FlowOptions, nodes: usize) -> Self {
        let machine = options.worker_config().machine_of(worker as u32);
        Hand {
            worker,
            machine,
            deque,
            ready: Vec::new(),
            task: Task { node: 0, slot: 0 },
            log: Log {
                worker: worker as u32,
                tally: WorkerReport { machine, ..WorkerReport::default() },
                times: if options.profile { vec![(0, 0); nodes] } else { Vec::new() },
                ..Log::default()
            },
        }
    }

    /// Records the times of the current task, in a profiled run.
    pub(super) fn record(&mut self, start: u64, end: u64, iteration: u64, outcome: Outcome) {
        let Task { node, .. } = self.task;
        let log = &mut self.log;
        let time = end.saturating_sub(start);
        log.tally.busy_ns = log.tally.busy_ns.saturating_add(time);
        if outcome == Outcome::Delivered {
            let (operands, busy) = &mut log.times[node as usize];
            (*operands, *busy) = (*operands + 1, busy.saturating_add(time));
        }
        if log.events.len() < MOST_EVENTS {
            log.events.push(FlowEvent { node, iteration, worker: self.worker as u32, start, end });
        } else {
            log.is_cut = true;
        }
    }
}
