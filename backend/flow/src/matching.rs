//! Matching: which nodes have all their operands of an iteration, whose turn it is, and which iterations are under way.
//!
//! Every iteration has a slot. A slot is used again when all nodes that nobody reads (sinks) are done in it: every node leads to a sink,
//! and a sink runs only when all that leads to it has run, so nothing of the iteration is left then.

use super::graph::{Declared, Kind};
use anabranch_base::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, lock};
use std::sync::atomic::Ordering;

pub(super) struct Matching {
    window: usize,
    /// By node.
    inputs: Vec<u32>,
    /// Nodes that begin an iteration.
    roots: Vec<u32>,
    /// By node and slot: operands that are missing.
    missing: Vec<AtomicU32>,
    /// By node and slot: whether an operand was dropped.
    dropped: Vec<AtomicBool>,
    /// By node, of those that keep the order of iterations.
    turns: Vec<Option<Mutex<Turns>>>,
    sinks: u32,
    /// By slot: sinks that are not done.
    unfinished: Vec<AtomicU32>,
    /// By slot: the number of its iteration.
    iterations: Vec<AtomicU64>,
    next: AtomicU64,
    /// How many iterations there are, as far as is known.
    total: AtomicU64,
    under_way: AtomicUsize,
}

/// Whose turn it is at a node that keeps the order of iterations.
#[derive(Default)]
struct Turns {
    next: u64,
    /// Iterations and slots that came too early.
    early: Vec<(u64, u32)>,
}

impl Matching {
    /// For these nodes with so many iterations under way at most, of `total` if there are no sources. Where other processes run some of
    /// them only those that are this one's begin and end iterations here; `others` are the processes that this one waits for, each as for a sink.
    pub(super) fn new(
        nodes: &[Declared<'_>],
        window: usize,
        total: Option<u64>,
        is_own: impl Fn(usize) -> bool,
        others: u32,
    ) -> Self {
        let inputs: Vec<u32> = nodes.iter().map(|node| node.inputs.len() as u32).collect();
        let of_all =
            |value: fn(u32) -> u32| inputs.iter().flat_map(move |count| std::iter::repeat_n(value(*count), window));
        let sinks = nodes.iter().enumerate().filter(|(node, declared)| declared.readers.is_empty() && is_own(*node));
        let sinks = sinks.count() as u32 + others;
        let turns = nodes.iter().map(|node| matches!(node.kind, Kind::Serial | Kind::Source).then(Mutex::default));
        let roots = (0..).zip(&inputs).filter(|(node, count)| **count == 0 && is_own(*node as usize));
        let roots = roots.map(|(node, _)| node);
        Matching {
            window,
            roots: roots.collect(),
            missing: of_all(|count| count).map(AtomicU32::new).collect(),
            dropped: of_all(|_| 0).map(|_| AtomicBool::new(false)).collect(),
            turns: turns.collect(),
            sinks,
            unfinished: (0..window).map(|_| AtomicU32::new(sinks)).collect(),
            iterations: (0..window).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicU64::new(0),
            total: AtomicU64::new(total.unwrap_or(u64::MAX)),
            under_way: AtomicUsize::new(window),
            inputs,
        }
    }

    /// Number of slots.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// The nodes that begin an iteration.
    pub(super) fn roots(&self) -> &[u32] {
        &self.roots
    }

    /// The number of the iteration in a slot.
    pub(super) fn iteration(&self, slot: u32) -> u64 {
        self.iterations[slot as usize].load(Ordering::Relaxed)
    }

    /// An iteration is in a slot, as the process says that leads.
    pub(super) fn note(&self, slot: u32, iteration: u64) {
        self.iterations[slot as usize].store(iteration, Ordering::Relaxed);
    }

    /// Begins the next iteration in a slot that is free; otherwise there are no more, and the slot stays free: whether all are
    /// free then.
    pub(super) fn admit(&self, slot: u32) -> Admission {
        let iteration = self.next.load(Ordering::Relaxed);
        if iteration < self.total.load(Ordering::Relaxed) {
            let iteration = self.next.fetch_add(1, Ordering::Relaxed);
            if iteration < self.total.load(Ordering::Relaxed) {
                self.iterations[slot as usize].store(iteration, Ordering::Relaxed);
                return Admission::Begun;
            }
        }
        // What the iterations did happens before what follows the end of the last.
        match self.under_way.fetch_sub(1, Ordering::AcqRel) {
            1 => Admission::AllDone,
            _ => Admission::NoMore,
        }
    }

    /// A source had nothing for this iteration: those that are not yet under way do not begin.
    pub(super) fn end(&self, iteration: u64) {
        self.total.fetch_min(iteration, Ordering::Relaxed);
    }

    /// How many iterations there are, once all are done.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// A node's operand is there, or will never be: whether it was the last that was missing. Only one of those who bring them sees that,
    /// and sees all that the others did before.
    pub(super) fn arrive(&self, node: u32, slot: u32, is_dropped: bool) -> bool {
        let place = self.place(node, slot);
        if is_dropped {
            self.dropped[place].store(true, Ordering::Relaxed);
        }
        let inputs = self.inputs[node as usize];
        if inputs == 1 {
            return true;
        }
        let is_last = self.missing[place].fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            // Nobody else comes before the slot is used again, which happens after this.
            self.missing[place].store(inputs, Ordering::Relaxed);
        }
        is_last
    }

    /// Whether an operand of the node was dropped in the iteration of a slot; tells it once.
    pub(super) fn was_dropped(&self, node: u32, slot: u32) -> bool {
        let dropped = &self.dropped[self.place(node, slot)];
        let was = dropped.load(Ordering::Relaxed);
        if was {
            dropped.store(false, Ordering::Relaxed);
        }
        was
    }

    /// A node has all its operands of the iteration in a slot: whether it may run at once. If not, [`Self::leave`] will name the slot.
    pub(super) fn may_begin(&self, node: u32, slot: u32) -> bool {
        let Some(turns) = &self.turns[node as usize] else { return true };
        let iteration = self.iteration(slot);
        let mut turns = lock(turns);
        let is_next = turns.next == iteration;
        if !is_next {
            turns.early.push((iteration, slot));
        }
        is_next
    }

    /// A node has run: of one that keeps the order of iterations the slot whose turn is next, if it has come already.
    pub(super) fn leave(&self, node: u32) -> Option<u32> {
        let mut turns = lock(self.turns[node as usize].as_ref()?);
        turns.next += 1;
        let next = turns.next;
        let place = turns.early.iter().position(|(iteration, _)| *iteration == next)?;
        Some(turns.early.swap_remove(place).1)
    }

    /// A sink is done in the iteration of a slot: whether all are.
    pub(super) fn finish(&self, slot: u32) -> bool {
        let unfinished = &self.unfinished[slot as usize];
        let is_last = self.sinks == 1 || unfinished.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            unfinished.store(self.sinks, Ordering::Relaxed);
        }
        is_last
    }

    fn place(&self, node: u32, slot: u32) -> usize {
        node as usize * self.window + slot as usize
    }
}

/// What becomes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// An iteration begins.
    Begun,
    /// There is none left to begin.
    NoMore,
    /// There is none left to begin, and none under way.
    AllDone,
}
