//! Matching of operands: nodes whose operands of an iteration are complete, turns of nodes, and iterations in flight.
//!
//! Every iteration has a slot. A slot is used again when all nodes without readers (sinks) are done in it. Every node
//! leads to a sink, and a sink runs only after all nodes that lead to it. So nothing of the iteration is left then.

use super::graph::{Declared, Kind};
use anabranch_base::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, lock};
use std::sync::atomic::Ordering;

pub(super) struct Matching {
    window: usize,
    /// Number of inputs, by node.
    inputs: Vec<u32>,
    /// Nodes that begin an iteration.
    roots: Vec<u32>,
    /// By node and slot: number of operands that are missing.
    missing: Vec<AtomicU32>,
    /// By node and slot: whether an operand was dropped.
    dropped: Vec<AtomicBool>,
    /// By node: turns, for nodes that keep the order of iterations.
    turns: Vec<Option<Mutex<Turns>>>,
    sinks: u32,
    /// By slot: number of sinks that are not done.
    unfinished: Vec<AtomicU32>,
    /// By slot: number of its iteration.
    iterations: Vec<AtomicU64>,
    next: AtomicU64,
    /// Number of iterations, as far as it is known.
    total: AtomicU64,
    under_way: AtomicUsize,
}

/// Turns at a node that keeps the order of iterations.
#[derive(Default)]
struct Turns {
    next: u64,
    /// Iterations and slots that came too early.
    early: Vec<(u64, u32)>,
}

impl Matching {
    /// Makes the matching of these nodes, with at most `window` iterations in flight, and `total` iterations if there
    /// are no sources.
    pub(super) fn new(nodes: &[Declared<'_>], window: usize, total: Option<u64>) -> Self {
        let inputs: Vec<u32> = nodes.iter().map(|node| node.inputs).collect();
        let of_all =
            |value: fn(u32) -> u32| inputs.iter().flat_map(move |count| std::iter::repeat_n(value(*count), window));
        let sinks = nodes.iter().filter(|node| node.readers.is_empty()).count() as u32;
        let turns = nodes.iter().map(|node| matches!(node.kind, Kind::Serial | Kind::Source).then(Mutex::default));
        let roots = (0..).zip(&inputs).filter(|(_, count)| **count == 0).map(|(node, _)| node);
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

    /// Nodes that begin an iteration.
    pub(super) fn roots(&self) -> &[u32] {
        &self.roots
    }

    /// Number of the iteration in a slot.
    pub(super) fn iteration(&self, slot: u32) -> u64 {
        self.iterations[slot as usize].load(Ordering::Relaxed)
    }

    /// Begins the next iteration in a free slot. If there is none, the slot stays free, and the result says whether all
    /// slots are free.
    pub(super) fn admit(&self, slot: u32) -> Admission {
        let iteration = self.next.load(Ordering::Relaxed);
        if iteration < self.total.load(Ordering::Relaxed) {
            let iteration = self.next.fetch_add(1, Ordering::Relaxed);
            if iteration < self.total.load(Ordering::Relaxed) {
                self.iterations[slot as usize].store(iteration, Ordering::Relaxed);
                return Admission::Begun;
            }
        }
        // Everything that the iterations did happens before anything after the end of the last.
        match self.under_way.fetch_sub(1, Ordering::AcqRel) {
            1 => Admission::AllDone,
            _ => Admission::NoMore,
        }
    }

    /// Notes that a source had no item for this iteration: later iterations do not begin.
    pub(super) fn end(&self, iteration: u64) {
        self.total.fetch_min(iteration, Ordering::Relaxed);
    }

    /// Number of iterations, once all are done.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Notes that a node's operand is there or will not come, and returns whether it was the last missing operand.
    ///
    /// Only one of the threads that bring operands gets `true`, and it sees all earlier writes of the others.
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
            // No other operand arrives before the slot is used again, which happens after this.
            self.missing[place].store(inputs, Ordering::Relaxed);
        }
        is_last
    }

    /// Whether an operand of the node was dropped in the iteration of a slot. Resets the flag.
    pub(super) fn was_dropped(&self, node: u32, slot: u32) -> bool {
        let dropped = &self.dropped[self.place(node, slot)];
        let was = dropped.load(Ordering::Relaxed);
        if was {
            dropped.store(false, Ordering::Relaxed);
        }
        was
    }

    /// Whether a node may run at once, which has all its operands of the iteration in a slot. If it may not,
    /// [`Self::leave`] returns the slot later.
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

    /// Notes that a node has run. If it keeps the order of iterations, returns the slot whose turn is next, if its
    /// operands are there.
    pub(super) fn leave(&self, node: u32) -> Option<u32> {
        let mut turns = lock(self.turns[node as usize].as_ref()?);
        turns.next += 1;
        let next = turns.next;
        let place = turns.early.iter().position(|(iteration, _)| *iteration == next)?;
        Some(turns.early.swap_remove(place).1)
    }

    /// Notes that a sink is done in the iteration of a slot, and returns whether all sinks are.
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

/// Result of [`Matching::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// An iteration begins.
    Begun,
    /// No iteration is left to begin.
    NoMore,
    /// No iteration is left to begin, and none is in flight.
    AllDone,
}
