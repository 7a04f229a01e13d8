//! Ready queues: where workers find tasks under each scheduler.
//!
//! A task that is bound to a worker or machine waits in a queue of its own, from which no other worker takes tasks.
//! Every other task waits in the queue of its scheduler: the only queue, or its machine's. If idle workers steal, tasks
//! that a worker makes ready for itself wait in its deque. The worker takes the newest task, and thieves take the
//! oldest.

use super::options::{Scheduler, WorkerConfig};
use crossbeam_deque::{Injector, Steal, Stealer, Worker};

/// A node that can run in the iteration of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) node: u32,
    pub(super) slot: u32,
}

/// Workers to which the tasks of a node go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// Any worker.
    Anywhere,
    /// Workers of this machine, and thieves.
    Near(u32),
    /// Only workers of this machine.
    Machine(u32),
    /// Only this worker.
    Worker(u32),
}

impl Home {
    /// Returns the machine that tasks go to; 0 if they go to any worker.
    pub(super) fn machine(self, worker_config: &WorkerConfig) -> u32 {
        match self {
            Home::Worker(worker) => worker_config.machine_of(worker),
            Home::Machine(machine) | Home::Near(machine) => machine,
            Home::Anywhere => 0,
        }
    }
}

pub(super) struct Queues {
    scheduler: Scheduler,
    /// Machine of each worker.
    machine_of: Vec<u32>,
    /// One queue, or one per machine.
    shared: Vec<Injector<Task>>,
    /// By machine: tasks that are bound to it.
    bound: Vec<Injector<Task>>,
    /// By worker: tasks that are bound to it.
    pinned: Vec<Injector<Task>>,
    /// By worker: the end of its deque that thieves use.
    stealers: Vec<Stealer<Task>>,
    /// By worker: workers that it steals from, those of its machine first.
    victims: Vec<Vec<usize>>,
}

impl Queues {
    /// Makes empty queues, and each worker's end of its deque.
    pub(super) fn new(worker_config: &WorkerConfig, scheduler: Scheduler) -> (Self, Vec<Worker<Task>>) {
        let machine_of = worker_config.machine_of_all().to_vec();
        let deques: Vec<Worker<Task>> = machine_of.iter().map(|_| Worker::new_lifo()).collect();
        let empty = |count: usize| (0..count).map(|_| Injector::new()).collect();
        let machines = worker_config.machine_count() as usize;
        let queues = Queues {
            scheduler,
            shared: empty(if scheduler.is_local() { machines } else { 1 }),
            bound: empty(machines),
            pinned: empty(machine_of.len()),
            stealers: deques.iter().map(Worker::stealer).collect(),
            victims: (0..machine_of.len()).map(|own| victims(own, &machine_of)).collect(),
            machine_of,
        };
        (queues, deques)
    }

    /// Whether a worker may run a task of this home next that it has made ready.
    pub(super) fn may_keep(&self, worker: usize, home: Home) -> bool {
        // The paper's central scheduler hands out every task.
        self.scheduler != Scheduler::Central && self.is_for(worker, home)
    }

    /// Whether a worker can run a task of this home without stealing it.
    pub(super) fn is_for(&self, worker: usize, home: Home) -> bool {
        match home {
            Home::Anywhere => true,
            Home::Near(machine) | Home::Machine(machine) => machine == self.machine_of[worker],
            Home::Worker(own) => own as usize == worker,
        }
    }

    /// Whether a worker can run a task of this home at all.
    pub(super) fn can_run(&self, worker: usize, home: Home) -> bool {
        self.is_for(worker, home) || self.scheduler.steals() && matches!(home, Home::Near(_))
    }

    /// Whether a worker has tasks that are bound to it or its machine.
    pub(super) fn has_bound(&self, worker: usize) -> bool {
        !self.pinned[worker].is_empty() || !self.bound[self.machine_of[worker] as usize].is_empty()
    }

    /// Puts a task, which `worker` has made ready, into the queue of its home.
    pub(super) fn push(&self, task: Task, home: Home, worker: usize, deque: &Worker<Task>) {
        match home {
            Home::Near(_) | Home::Anywhere if self.scheduler.steals() && self.is_for(worker, home) => deque.push(task),
            _ => self.push_shared(task, home),
        }
    }

    /// Puts a task into the shared queue of its home.
    fn push_shared(&self, task: Task, home: Home) {
        match home {
            Home::Worker(own) => self.pinned[own as usize].push(task),
            Home::Machine(machine) => self.bound[machine as usize].push(task),
            Home::Near(machine) => self.shared[machine as usize].push(task),
            Home::Anywhere => self.shared[0].push(task),
        }
    }

    /// Returns the next task of a worker.
    pub(super) fn find(&self, worker: usize, deque: &Worker<Task>) -> Option<Task> {
        deque
            .pop()
            .or_else(|| until(|| self.pinned[worker].steal()))
            .or_else(|| until(|| self.bound[self.machine_of[worker] as usize].steal()))
            .or_else(|| until(|| self.own_shared(worker).steal()))
            .or_else(|| self.scheduler.steals().then(|| self.steal(worker, deque)).flatten())
    }

    fn steal(&self, worker: usize, deque: &Worker<Task>) -> Option<Task> {
        let mut victims = self.victims[worker].iter();
        let kept = victims.find_map(|victim| until(|| self.stealers[*victim].steal_batch_and_pop(deque)));
        kept.or_else(|| self.shared.iter().find_map(|queue| until(|| queue.steal())))
    }

    /// Whether a worker whose deque is empty would find a task.
    pub(super) fn has_work(&self, worker: usize) -> bool {
        self.has_bound(worker)
            || !self.own_shared(worker).is_empty()
            || self.scheduler.steals()
                && (self.victims[worker].iter().any(|victim| !self.stealers[*victim].is_empty())
                    || self.shared.iter().any(|queue| !queue.is_empty()))
    }

    fn own_shared(&self, worker: usize) -> &Injector<Task> {
        &self.shared[if self.scheduler.is_local() { self.machine_of[worker] as usize } else { 0 }]
    }
}

/// Returns all other workers, from the next one on, those of the same machine first.
fn victims(own: usize, machine_of: &[u32]) -> Vec<usize> {
    let count = machine_of.len();
    let mut victims: Vec<usize> = (1..count).map(|step| (own + step) % count).collect();
    victims.sort_by_key(|victim| machine_of[*victim] != machine_of[own]);
    victims
}

/// Tries again while other threads interfere.
fn until(mut attempt: impl FnMut() -> Steal<Task>) -> Option<Task> {
    loop {
        match attempt() {
            Steal::Success(task) => return Some(task),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}
