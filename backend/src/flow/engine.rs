//! The workers of a run: each finds a task, runs it, passes its operand on, and shares what that has made ready.

use super::body::{Body, Outcome};
use super::error::FlowError;
use super::graph::{Declared, Flow, Kind, Settings};
use super::hand::Hand;
use super::matching::{Admission, Matching};
use super::options::FlowOptions;
use super::placing;
use super::queues::{Home, Queues, Task};
use super::report::{FlowEvent, FlowReport, NodeReport, Traffic};
use super::traffic::TrafficCount;
use crate::device::affinity;
use crate::execute::CancelToken;
use crate::execute::sync::{AtomicBool, AtomicU64, AtomicUsize, start_scoped, thread};
use crate::execute::wait::Waiter;
use crate::lock::lock;
use anabranch_kernels::panic_text;
use crossbeam_deque::Worker;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{self, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often a worker that waits looks whether its run is cancelled.
const TICK: Duration = Duration::from_millis(2);

/// How long it looks for work at most before it does so: while it looks for work it does not see that its run is cancelled.
const LONGEST_SPIN: Duration = Duration::from_millis(1);

/// Runs a flow that was verified.
pub(super) fn run(flow: Flow<'_>, options: &FlowOptions) -> Result<FlowReport, FlowError> {
    let machines = placing::machines(&flow, options)?;
    let (engine, deques) = Engine::new(flow, options, machines);
    let hands = deques
        .into_iter()
        .enumerate()
        .map(|(worker, deque)| Hand::new(worker, deque, options, engine.nodes.len()))
        .collect();
    let hands = engine.run(hands);
    engine.report(hands)
}

struct Engine<'e, 'f> {
    nodes: Vec<Node<'f>>,
    matching: Matching,
    queues: Queues,
    options: &'e FlowOptions,
    traffic: Option<TrafficCount>,
    /// By worker.
    waiters: Vec<Waiter>,
    asleep: AtomicUsize,
    is_over: AtomicBool,
    failure: Mutex<Option<FlowError>>,
    since: Instant,
}

/// A node as the run needs it.
struct Node<'f> {
    name: String,
    body: Box<dyn Body + 'f>,
    /// With the bytes that each gets.
    readers: Box<[(u32, u64)]>,
    home: Home,
    /// The machine that it belongs to as far as messages are concerned.
    machine: u32,
    /// Of a source: what it has delivered.
    items: Option<AtomicU64>,
}

impl<'e, 'f> Engine<'e, 'f> {
    /// An engine, and each worker's deque. `machines` are the nodes' under a local scheduler.
    fn new(flow: Flow<'f>, options: &'e FlowOptions, machines: Option<Vec<u32>>) -> (Self, Vec<Worker<Task>>) {
        let total = (!flow.has_source()).then_some(options.iterations);
        let window = options.window().min(total.map_or(usize::MAX, |total| total.clamp(1, 1 << 32) as usize));
        let matching = Matching::new(&flow.nodes, window, total);
        let (queues, deques) = Queues::new(options.crew(), options.scheduler);
        let node = |(number, declared): (usize, Declared<'f>)| {
            declared.body.open(window);
            let settings = *lock(&declared.settings);
            let near = machines.as_ref().map(|machines| machines[number]);
            let bytes =
                |(reader, bytes): &(usize, Arc<atomic::AtomicU64>)| (*reader as u32, bytes.load(Ordering::Relaxed));
            let home = home(settings, near);
            Node {
                name: declared.name,
                readers: declared.readers.iter().map(bytes).collect(),
                home,
                machine: match home {
                    Home::Worker(worker) => options.crew().machine_of(worker),
                    Home::Machine(machine) | Home::Near(machine) => machine,
                    Home::Anywhere => 0,
                },
                items: (declared.kind == Kind::Source).then(AtomicU64::default),
                body: declared.body,
            }
        };
        let nodes: Vec<Node<'f>> = flow.nodes.into_iter().enumerate().map(node).collect();
        let engine = Engine {
            traffic: (options.crew().machine_count() > 1).then(|| TrafficCount::new(nodes.len(), window, options)),
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
        (engine, deques)
    }

    /// Lets all workers work, the first of them on the calling thread, until nothing is left to do.
    fn run(&self, hands: Vec<Hand>) -> Vec<Hand> {
        let (sender, finished) = crossbeam_channel::unbounded();
        thread::scope(|scope| {
            let mut hands = hands.into_iter();
            let first = hands.next();
            for hand in hands {
                let (sender, worker) = (sender.clone(), hand.worker as u32);
                let work = move || drop(sender.send(self.work(hand)));
                if let Err(error) = start_scoped(scope, format!("flow worker {worker}"), work) {
                    self.fail(FlowError::NoThread { worker, reason: error.to_string() });
                }
            }
            first.into_iter().for_each(|hand| drop(sender.send(self.work(hand))));
        });
        drop(sender);
        finished.into_iter().collect()
    }

    /// A worker's run.
    fn work(&self, mut hand: Hand) -> Hand {
        self.waiters[hand.worker].enter();
        // Where the system does not let it stay there the worker runs elsewhere.
        let unit = self.options.crew().unit_of(hand.worker as u32);
        let _pinned = unit.and_then(|unit| affinity::pin_current_thread(&[unit]).ok());
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.follow(&mut hand))) {
            let Task { node, slot } = hand.task;
            self.fail(FlowError::Panicked {
                node: self.nodes[node as usize].name.clone(),
                iteration: self.matching.iteration(slot),
                message: panic_text(&*payload).unwrap_or("without a message").to_owned(),
            });
        }
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

    /// Begins as many iterations as may be under way.
    fn begin(&self, hand: &mut Hand) -> Option<Task> {
        (0..self.matching.window()).for_each(|slot| self.admit(slot as u32, hand));
        self.share(hand)
    }

    /// Waits for a task; none if the run is over.
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
                // Between this worker's saying that it sleeps and its look: see `share`.
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
                hand.tally.sleeps += 1;
            }
        }
    }

    /// Runs a task; the task to go on with, if there is one for this worker.
    fn step(&self, task: Task, hand: &mut Hand) -> Option<Task> {
        hand.task = task;
        let node = &self.nodes[task.node as usize];
        if let Some(traffic) = &self.traffic {
            traffic.take(task, node.machine, hand);
        }
        let start = self.options.profile.then(|| self.now());
        let is_dropped = self.matching.was_dropped(task.node, task.slot);
        let outcome = if is_dropped {
            node.body.discard(task.slot as usize);
            Outcome::Dropped
        } else {
            node.body.run(task.slot as usize)
        };
        if !is_dropped && outcome != Outcome::Ended {
            hand.tally.tasks += 1;
            if let Some(start) = start {
                hand.record(start, self.now(), self.matching.iteration(task.slot), outcome);
            }
        }
        self.pass_on(task, node, outcome, hand);
        self.share(hand)
    }

    /// Says to all who read a node that its operand is there, or will not be.
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
        for &(reader, bytes) in &node.readers {
            if let Some(traffic) = self.traffic.as_ref().filter(|_| !is_dropped) {
                traffic.put(Task { node: reader, ..task }, self.nodes[reader as usize].machine, bytes, hand);
            }
            if self.matching.arrive(reader, task.slot, is_dropped) && self.matching.may_begin(reader, task.slot) {
                hand.ready.push(Task { node: reader, ..task });
            }
        }
        if node.readers.is_empty() && self.matching.finish(task.slot) {
            self.admit(task.slot, hand);
        }
    }

    /// Begins the next iteration in a slot, if there is one.
    fn admit(&self, slot: u32, hand: &mut Hand) {
        match self.matching.admit(slot) {
            Admission::Begun => {
                let begun = self.matching.roots().iter().filter(|node| self.matching.may_begin(**node, slot));
                hand.ready.extend(begun.map(|node| Task { node: *node, slot }));
            }
            Admission::NoMore => {}
            Admission::AllDone => self.end(),
        }
    }

    /// Shares what is ready, but for one task that this worker goes on with.
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
        // Either who falls asleep counts as asleep here, or it sees what was pushed: both sides have a fence between what they
        // say and what they look at.
        fence(Ordering::SeqCst);
        // This worker finds one of them itself, if nothing is to be done before that.
        let mut finds = kept.is_none() && !self.queues.has_bound(hand.worker);
        for task in hand.ready.drain(..) {
            let home = home(&task);
            if finds && self.queues.is_for(hand.worker, home) {
                finds = false;
            } else if self.asleep.load(Ordering::SeqCst) > 0 {
                self.wake_for(home, hand.worker);
            }
        }
        kept
    }

    /// Wakes somebody else for a task of this home, if there is one asleep; thieves only where nobody sleeps whose task it is.
    fn wake_for(&self, home: Home, worker: usize) {
        let others = || (1..self.waiters.len()).map(|step| (worker + step) % self.waiters.len());
        let is_woken =
            others().filter(|other| self.queues.is_for(*other, home)).any(|other| self.waiters[other].wake());
        if !is_woken {
            others().filter(|other| self.queues.can_run(*other, home)).any(|other| self.waiters[other].wake());
        }
    }

    /// Wakes one that sleeps beside work for it: who woke this worker may have meant another task than the one that it found.
    fn wake_one_more(&self, worker: usize) {
        // As in `share`: either it counts as asleep here, or it sees what is in the queues.
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

    /// Ends the run; the first failure counts.
    fn fail(&self, failure: FlowError) {
        lock(&self.failure).get_or_insert(failure);
        self.end();
    }

    /// Nothing is left to do.
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        for waiter in &self.waiters {
            waiter.wake();
        }
    }

    fn now(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    fn report(self, mut hands: Vec<Hand>) -> Result<FlowReport, FlowError> {
        let time = self.since.elapsed();
        if let Some(failure) = lock(&self.failure).take() {
            return Err(failure);
        }
        self.verify_sources()?;
        hands.sort_by_key(|hand| hand.worker);
        let is_local = self.options.scheduler.is_local();
        let times = |number: usize| hands.iter().filter_map(move |hand| hand.times.get(number)).copied();
        let node = |(number, node): (usize, &Node<'_>)| NodeReport {
            name: node.name.clone(),
            machine: is_local.then_some(node.machine),
            operands: times(number).map(|(operands, _)| operands).sum(),
            busy_ns: times(number).map(|(_, busy)| busy).sum(),
        };
        let mut events: Vec<FlowEvent> = hands.iter().flat_map(|hand| hand.events.iter().copied()).collect();
        events.sort_by_key(|event| (event.start, event.worker));
        Ok(FlowReport {
            iterations: self.matching.total(),
            time,
            workers: hands.iter().map(|hand| hand.tally).collect(),
            nodes: self.nodes.iter().enumerate().map(node).collect(),
            traffic: Traffic {
                messages: hands.iter().map(|hand| hand.traffic.messages).sum(),
                bytes: hands.iter().map(|hand| hand.traffic.bytes).sum(),
            },
            events,
            is_cut: hands.iter().any(|hand| hand.is_cut),
        })
    }

    /// Whether all sources had as many items.
    fn verify_sources(&self) -> Result<(), FlowError> {
        let counts = || self.nodes.iter().filter_map(|node| Some((node, node.items.as_ref()?.load(Ordering::Relaxed))));
        let (Some((first, items)), Some((other, more))) =
            (counts().min_by_key(|(_, items)| *items), counts().max_by_key(|(_, items)| *items))
        else {
            return Ok(());
        };
        match items == more {
            true => Ok(()),
            false => Err(FlowError::Uneven { ended: first.name.clone(), items, other: other.name.clone(), more }),
        }
    }
}

/// Where the tasks of a node go.
fn home(settings: Settings, near: Option<u32>) -> Home {
    match (settings.worker, settings.machine, near) {
        (Some(worker), ..) => Home::Worker(worker),
        (None, Some(machine), _) => Home::Machine(machine),
        (None, None, Some(machine)) => Home::Near(machine),
        (None, None, None) => Home::Anywhere,
    }
}
