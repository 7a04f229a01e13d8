//! Typed ports: output ports of nodes, and the slots in which operands wait for the nodes that read them.

use super::graph::Settings;
use anabranch_base::lock::lock;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The output port of a node, to be given to the nodes that read it.
///
/// A clone is the same port. Settings made here apply to the node. If a node has several ports ([`Output::port`]), only
/// [`Output::bytes`] applies to the port.
pub struct Output<'f, T> {
    pub(super) node: usize,
    /// Identity of the flow that the node belongs to.
    pub(super) flow: u64,
    pub(super) settings: Arc<Mutex<Settings>>,
    /// Owned by the flow: borrowed values are free once the flow is gone, even if ports remain.
    pub(super) outlet: Weak<Outlet<'f, T>>,
}

impl<'f, T> Output<'f, T> {
    /// Sets the cost of the node (default: 1), in seconds or in any other unit that all nodes of the flow share.
    pub fn weight(self, weight: f64) -> Self {
        lock(&self.settings).weight = weight;
        self
    }

    /// Lets only this worker run the node (Sucuri's `pin`).
    pub fn pin(self, worker: u32) -> Self {
        lock(&self.settings).worker = Some(worker);
        self
    }

    /// Lets only workers of this machine run the node (Sucuri's `manual_rank`).
    pub fn machine(self, machine: u32) -> Self {
        lock(&self.settings).machine = Some(machine);
        self
    }

    /// Sets the bytes of one operand, for placements and the count of messages. Default: the size of `T`, without
    /// memory that it owns.
    pub fn bytes(self, bytes: u64) -> Self {
        if let Some(outlet) = self.outlet.upgrade() {
            outlet.bytes.store(bytes, Ordering::Relaxed);
        }
        self
    }

    /// Adds a port to the same node, which delivers a part of the node's operand.
    ///
    /// `part` is called once per operand, by the worker that has made the operand.
    pub fn port<U: Send + 'f>(&self, part: impl Fn(&T) -> U + Send + Sync + 'f) -> Output<'f, U> {
        let target = Arc::new(Outlet::new());
        let outlet = Arc::downgrade(&target);
        if let Some(whole) = self.outlet.upgrade() {
            lock(&whole.declared).parts.push(Box::new(move |whole, step| match (step, whole) {
                (Step::Open(window), _) => target.open(window),
                (Step::Deliver(slot), Some(whole)) => target.deliver(slot, part(whole)),
                (Step::Deliver(_), None) => {}
            }));
        }
        Output { node: self.node, flow: self.flow, settings: Arc::clone(&self.settings), outlet }
    }
}

impl<T> Clone for Output<'_, T> {
    fn clone(&self) -> Self {
        Output {
            node: self.node,
            flow: self.flow,
            settings: Arc::clone(&self.settings),
            outlet: Weak::clone(&self.outlet),
        }
    }
}

impl<T> fmt::Debug for Output<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Readers of a node's operands.
pub(super) struct Outlet<'f, T> {
    declared: Mutex<Ends<'f, T>>,
    /// Copy of `declared` once the run has begun: no reader is added after that.
    ends: OnceLock<Ends<'f, T>>,
    pub(super) bytes: Arc<AtomicU64>,
}

struct Ends<'f, T> {
    edges: Vec<Arc<Edge<T>>>,
    /// Copies an operand, for all readers but the last.
    copy: Option<fn(&T) -> T>,
    parts: Vec<Box<Part<'f, T>>>,
}

/// Handles one operand at a further port.
type Part<'f, T> = dyn Fn(Option<&T>, Step) + Send + Sync + 'f;

#[derive(Clone, Copy)]
enum Step {
    Open(usize),
    Deliver(usize),
}

impl<T> Outlet<'_, T> {
    pub(super) fn new() -> Self {
        let ends = Ends { edges: Vec::new(), copy: None, parts: Vec::new() };
        Outlet {
            declared: Mutex::new(ends),
            ends: OnceLock::new(),
            bytes: Arc::new(AtomicU64::new(size_of::<T>() as u64)),
        }
    }

    /// Adds a reader.
    pub(super) fn connect(&self) -> Arc<Edge<T>>
    where
        T: Clone,
    {
        let edge = Arc::new(Edge::new());
        let mut declared = lock(&self.declared);
        declared.edges.push(Arc::clone(&edge));
        declared.copy = Some(T::clone);
        edge
    }

    /// Makes the slots for `window` iterations at a time. No reader may be added after that.
    pub(super) fn open(&self, window: usize) {
        let empty = Ends { edges: Vec::new(), copy: None, parts: Vec::new() };
        let ends = std::mem::replace(&mut *lock(&self.declared), empty);
        ends.edges.iter().for_each(|edge| edge.open(window));
        ends.parts.iter().for_each(|part| part(None, Step::Open(window)));
        self.ends.get_or_init(|| ends);
    }

    /// Delivers one operand to all readers.
    pub(super) fn deliver(&self, slot: usize, operand: T) {
        let ends = self.ends.get().expect("outlets are opened before any node runs");
        ends.parts.iter().for_each(|part| part(Some(&operand), Step::Deliver(slot)));
        if let Some((last, others)) = ends.edges.split_last() {
            let copies = others.iter().zip(ends.copy.iter().cycle());
            copies.for_each(|(edge, copy)| edge.put(slot, copy(&operand)));
            last.put(slot, operand);
        }
    }
}

/// Connection from one output port to one input port: a slot for each iteration in flight.
///
/// A slot is filled by the one node that delivers to it and emptied by the one node that reads it, which begins after
/// that. The lock only proves this to the compiler; no thread ever waits for it.
pub(super) struct Edge<T> {
    slots: OnceLock<Box<[Mutex<Option<T>>]>>,
}

impl<T> Edge<T> {
    pub(super) fn new() -> Self {
        Edge { slots: OnceLock::new() }
    }

    fn open(&self, window: usize) {
        self.slots.get_or_init(|| (0..window).map(|_| Mutex::new(None)).collect());
    }

    fn slot(&self, slot: usize) -> &Mutex<Option<T>> {
        &self.slots.get().expect("edges are opened before any node runs")[slot]
    }

    fn put(&self, slot: usize, operand: T) {
        *lock(self.slot(slot)) = Some(operand);
    }

    /// Takes the operand of an iteration; `None` if the node that makes it has dropped it.
    pub(super) fn take(&self, slot: usize) -> Option<T> {
        lock(self.slot(slot)).take()
    }
}
