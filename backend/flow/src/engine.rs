//! Workers of a run: each finds a task, runs it, delivers its operand, and shares the tasks that this has made ready.

use super::body::{Body, Outcome};
use super::error::FlowError;
use super::graph::{self, Declared, Flow, Kind};
use super::hand::Hand;
use super::log::Log;
use super::matching::{Admission, Matching};
use super::options::FlowOptions;
use super::placing;
use super::queues::{Home, Queues, Task};
use super::report::FlowReport;
use super::traffic::TrafficCount;
use anabranch_base::cancel::CancelToken;
use anabranch_base::lock::lock;
use anabranch_base::sync::{AtomicBool, AtomicU64, AtomicUsize, start_scoped, thread};
use anabranch_base::wait::Waiter;
use anabranch_device::affinity;
use anabranch_kernels::panic_text;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// Time between two checks for cancellation by a worker that waits.
const TICK: Duration = Duration::from_millis(2);

/// Longest time that a worker spins for work before it waits: it does not check for cancellation while it spins.
const LONGEST_SPIN: Duration = Duration::from_millis(1);

thread_local! {
    /// Worker of the run that this thread works for.
    static WORKER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Returns the number of the worker that calls the function of a node; `None` outside of such a call.
///
/// For functions that let another process do their work, one per worker.
pub fn current_worker() -> Option<u32> {
    WORKER.get()
}

/// Runs a flow that was verified.
pub(super) fn run(flow: Flow<'_>, options: &FlowOptions) -> Result<FlowReport, FlowError> {
    let homes = placing::homes(&flow, placing::machines(&flow, options)?.as_deref());
    let (engine, hands) = Engine::new(flow, options, homes);
    let logs = engine.run(hands);
    engine.report(logs, engine.since.elapsed())
}

/// A run.
pub(super) struct Engine<'e, 'f> {
    pub(super) nodes: Vec<Node<'f>>,
    pub(super) matching: Matching,
    queues: Queues,
    pub(super) options: &'e FlowOptions,
    traffic: Option<TrafficCount>,
    /// By worker.
    waiters: Vec<Waiter>,
    asleep: AtomicUsize,
    is_over: AtomicBool,
    pub(super) failure: Mutex<Option<FlowError>>,
    pub(super) since: Instant,
}

/// A node in the form that the run needs.
pub(super) struct Node<'f> {
    pub(super) name: String,
    pub(super) body: Box<dyn Body + 'f>,
    pub(super) readers: Box<[Reader]>,
    home: Home,
    /// Machine of the node for counting and sending messages.
    pub(super) machine: u32,
    /// For a source: number of items that it has delivered.
    pub(super) items: Option<AtomicU64>,
}

/// An input port that reads a node.
pub(super) struct Reader {
    pub(super) node: u32,
    /// Bytes of each operand that the port reads.
    pub(super) bytes: u64,
}

impl<'e, 'f> Engine<'e, 'f> {
    /// Makes an engine, and its workers. `homes` holds the home of each node.
    fn new(flow: Flow<'f>, options: &'e FlowOptions, homes: Vec<Home>) -> (Self, Vec<Hand>) {
        let total = (!flow.has_source()).then_some(options.iterations);
        let window = flow.window(options);
        let worker_config = options.worker_config();
        let machines: Vec<u32> = homes.iter().map(|home| home.machine(worker_config)).collect();
        let matching = Matching::new(&flow.nodes, window, total);
        let (queues, deques) = Queues::new(worker_config, options.scheduler);
        let node = |((declared, home), machine): ((Declared<'f>, Home), u32)| {
            declared.body.open(window);
            let reader = |reader: &graph::Reader| Reader {
                node: reader.node as u32,
                bytes: reader.bytes.load(Ordering::Relaxed),
            };
            Node {
                name: declared.name,
                readers: declared.readers.iter().map(reader).collect(),
                home,
                machine,
                items: (declared.kind == Kind::Source).then(AtomicU64::default),
                body: declared.body,
            }
        };
        let nodes: Vec<Node<'f>> = flow.nodes.into_iter().zip(homes).zip(machines).map(node).collect();
        let engine = Engine {
            traffic: (worker_config.machine_count() > 1).then(|| TrafficCount::new(nodes.len(), window, options)),
            nodes,
            matching,
            queues,
            options,
            waiters: deques.iter().map(|_| Waiter::default()).collect(),
            asleep: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            failure: Mutex::new(None),
            since: Instant::now(),
        };
        let hands = deques.into_iter().enumerate();
        let hands = hands.map(|(worker, deque)| Hand::new(worker, deque, options, engine.nodes.len())).collect();
        (engine, hands)
    }

    /// Runs all workers, the first on the calling thread, until nothing is left to do.
    fn run(&self, hands: Vec<Hand>) -> Vec<Log> {
        let (sender, finished) = crossbeam_channel::unbounded();
        thread::scope(|scope| {
            let mut hands = hands.into_iter();
            let first = hands.next();
            for hand in hands {
                let (sender, worker) = (sender.clone(), hand.worker as u32);
                let work = move || drop(sender.send(self.work(hand).log));
                if let Err(error) = start_scoped(scope, format!("flow worker {worker}"), work) {
                    self.fail(FlowError::NoThread { worker, reason: error.to_string() });
                }
            }
            first.into_iter().for_each(|hand| drop(sender.send(self.work(hand).log)));
        });
        drop(sender);
        finished.into_iter().collect()
    }

    /// Runs a worker.
    fn work(&self, mut hand: Hand) -> Hand {
        self.waiters[hand.worker].enter();
        // A function may run a flow of its own on this thread.
        let outer = WORKER.replace(Some(hand.worker as u32));
        // If the system does not allow pinning, the worker runs anywhere.
        let unit = self.options.worker_config().unit_of(hand.worker as u32);
        let _pinned = unit.and_then(|unit| affinity::pin_current_thread(&[unit]).ok());
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.follow(&mut hand))) {
            let Task { node, slot } = hand.task;
            self.fail(FlowError::Panicked {
                node: self.nodes[node as usize].name.clone(),
                iteration: self.matching.iteration(slot),
                message: panic_text(&*payload).unwrap_or("without a message").to_owned(),
            });
        }
        WORKER.set(outer);
        hand
    }

    fn follow(&self, hand: &mut Hand) {
        let mut task = if hand.worker == 0 { self.begin(hand) } else { None };
        loop {
            while let Some(current) = task {
                if self.is_over.load(Ordering::Relaxed) || self.is_cancelled() {
                    return;
                }
                task = self.step(current, hand);
            }
            task = self.next(hand);
            if task.is_none() {
                return;
            }
        }
    }

    /// Begins as many iterations as may be in flight.
    fn begin(&self, hand: &mut Hand) -> Option<Task> {
        (0..self.matching.window()).for_each(|slot| self.admit(slot as u32, &mut hand.ready));
        self.share(hand)
    }

    /// Waits for a task; `None` if the run is over.
    fn next(&self, hand: &mut Hand) -> Option<Task> {
        let is_over = || self.is_over.load(Ordering::SeqCst);
        let spin = self.options.cancel.as_ref().map_or(self.options.spin, |_| self.options.spin.min(LONGEST_SPIN));
        let mut has_waited = false;
        loop {
            if is_over() || self.is_cancelled() {
                return None;
            }
            if let Some(task) = self.queues.find(hand.worker, &hand.deque) {
                if has_waited {
                    self.wake_one_more(hand.worker);
                }
                return Some(task);
            }
            has_waited = true;
            let is_asleep = Cell::new(false);
            let ready = || {
                // Between the worker's announcement that it sleeps and its check for work: see `share`.
                fence(Ordering::SeqCst);
                is_over() || self.queues.has_work(hand.worker)
            };
            let before = || {
                if !is_asleep.replace(true) {
                    self.asleep.fetch_add(1, Ordering::SeqCst);
                }
                self.is_cancelled();
                self.options.cancel.as_ref().map(|_| TICK)
            };
            self.waiters[hand.worker].wait(spin, ready, before);
            if is_asleep.get() {
                self.asleep.fetch_sub(1, Ordering::SeqCst);
                hand.log.tally.sleeps += 1;
            }
        }
    }

    /// Runs a task, and returns the next task of this worker, if there is one.
    fn step(&self, task: Task, hand: &mut Hand) -> Option<Task> {
        hand.task = task;
        let node = &self.nodes[task.node as usize];
        let is_dropped = self.matching.was_dropped(task.node, task.slot);
        if let Some(traffic) = &self.traffic {
            traffic.take(task, node.machine, is_dropped, hand);
        }
        let (outcome, times) = if is_dropped {
            node.body.discard(task.slot as usize);
            (Outcome::Dropped, None)
        } else {
            self.perform(node, task.slot)
        };
        if !is_dropped && outcome != Outcome::Ended {
            hand.log.tally.tasks += 1;
            if let Some((start, end)) = times {
                hand.record(start, end, self.matching.iteration(task.slot), outcome);
            }
        }
        self.pass_on(task, node, outcome, hand);
        self.share(hand)
    }

    /// Runs a node in the iteration of a slot. Returns the outcome and, in a profiled run, the times.
    fn perform(&self, node: &Node<'_>, slot: u32) -> (Outcome, Option<(u64, u64)>) {
        let start = self.options.profile.then(|| self.now());
        let outcome = node.body.run(slot as usize);
        (outcome, start.map(|start| (start, self.now())))
    }

    /// Reports to all readers of a node that its operand is there or will not come.
    fn pass_on(&self, task: Task, node: &Node<'_>, outcome: Outcome, hand: &mut Hand) {
        if let Some(items) = &node.items {
            match outcome {
                Outcome::Delivered => drop(items.fetch_add(1, Ordering::Relaxed)),
                _ => self.matching.end(self.matching.iteration(task.slot)),
            }
        }
        if let Some(slot) = self.matching.leave(task.node) {
            hand.ready.push(Task { slot, ..task });
        }
        let is_dropped = outcome != Outcome::Delivered;
        for reader in &node.readers {
            let (to, machine) = (Task { node: reader.node, ..task }, self.nodes[reader.node as usize].machine);
            if let Some(traffic) = self.traffic.as_ref().filter(|_| !is_dropped) {
                traffic.put(to, machine, reader.bytes, hand);
            }
            self.arrive(to, is_dropped, &mut hand.ready);
        }
        if node.readers.is_empty() {
            self.finish(task.slot, &mut hand.ready);
        }
    }

    /// Notes that an operand of a task is there or will not come.
    fn arrive(&self, task: Task, is_dropped: bool, ready: &mut Vec<Task>) {
        if self.matching.arrive(task.node, task.slot, is_dropped) && self.matching.may_begin(task.node, task.slot) {
            ready.push(task);
        }
    }

    /// Notes that a sink is done in the iteration of a slot.
    fn finish(&self, slot: u32, ready: &mut Vec<Task>) {
        if self.matching.finish(slot) {
            self.admit(slot, ready);
        }
    }

    /// Begins the next iteration in a slot, if there is one.
    fn admit(&self, slot: u32, ready: &mut Vec<Task>) {
        match self.matching.admit(slot) {
            Admission::Begun => self.begin_roots(slot, ready),
            Admission::NoMore => {}
            Admission::AllDone => self.end(),
        }
    }

    /// Makes the nodes ready that begin an iteration, which is in a slot.
    fn begin_roots(&self, slot: u32, ready: &mut Vec<Task>) {
        let begun = self.matching.roots().iter().filter(|node| self.matching.may_begin(**node, slot));
        ready.extend(begun.map(|node| Task { node: *node, slot }));
    }

    /// Shares tasks that are ready, except one that this worker runs next.
    fn share(&self, hand: &mut Hand) -> Option<Task> {
        let home = |task: &Task| self.nodes[task.node as usize].home;
        let kept = hand.ready.iter().rposition(|task| self.queues.may_keep(hand.worker, home(task)));
        let kept = kept.map(|place| hand.ready.swap_remove(place));
        if hand.ready.is_empty() {
            return kept;
        }
        for task in &hand.ready {
            self.queues.push(*task, home(task), hand.worker, &hand.deque);
        }
        // Either this thread sees that a worker falls asleep, or the worker sees the pushed tasks: both sides have a
        // fence between their write and their read.
        fence(Ordering::SeqCst);
        // This worker finds one of the tasks itself, if it has nothing to do before that.
        let mut finds = kept.is_none() && !self.queues.has_bound(hand.worker);
        for task in hand.ready.drain(..) {
            let home = home(&task);
            if finds && self.queues.is_for(hand.worker, home) {
                finds = false;
            } else if self.asleep.load(Ordering::SeqCst) > 0 {
                self.wake_for(home, Some(hand.worker));
            }
        }
        kept
    }

    /// Wakes another worker for a task of this home, if one sleeps. Wakes a thief only if no worker sleeps to which the
    /// task belongs.
    fn wake_for(&self, home: Home, worker: Option<usize>) {
        let (first, count) = (worker.map_or(0, |worker| worker + 1), self.waiters.len());
        let others = || (0..count - usize::from(worker.is_some())).map(|step| (first + step) % count);
        let is_woken =
            others().filter(|other| self.queues.is_for(*other, home)).any(|other| self.waiters[other].wake());
        if !is_woken {
            others().filter(|other| self.queues.can_run(*other, home)).any(|other| self.waiters[other].wake());
        }
    }

    /// Wakes another sleeping worker if there is work for it. The thread that woke this worker may have meant a task
    /// that this worker did not take.
    fn wake_one_more(&self, worker: usize) {
        // As in `share`: either the worker counts as asleep here, or it sees the tasks in the queues.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut others = (1..self.waiters.len()).map(|step| (worker + step) % self.waiters.len());
        others.any(|other| self.queues.has_work(other) && self.waiters[other].wake());
    }

    fn is_cancelled(&self) -> bool {
        let is_cancelled = self.options.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        if is_cancelled {
            self.fail(FlowError::Cancelled);
        }
        is_cancelled
    }

    /// Ends the run with a failure. Only the first failure is kept.
    fn fail(&self, failure: FlowError) {
        lock(&self.failure).get_or_insert(failure);
        self.end();
    }

    /// Ends the run.
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        for waiter in &self.waiters {
            waiter.wake();
        }
    }

    /// Nanoseconds since the run's start.
    fn now(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }
}
