//! Functions of nodes: called by many workers at a time, or in the order of iterations.

use super::inputs::Wires;
use super::ports::Outlet;
use anabranch_base::lock::lock;
use std::sync::{Arc, Mutex};

/// Outcome of a node in one iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The node has delivered an operand.
    Delivered,
    /// The node has no operand in this iteration, and neither have the nodes that would read it.
    Dropped,
    /// The node is a source without further items.
    Ended,
}

/// A node's function with its ports.
pub(super) trait Body: Send + Sync {
    /// Makes slots for `window` iterations at a time.
    fn open(&self, window: usize);

    /// Runs the node in the iteration of a slot. All operands of the iteration must be there.
    fn run(&self, slot: usize) -> Outcome;

    /// Drops the operands of an iteration in which an operand was dropped.
    fn discard(&self, slot: usize);
}

/// A function that may be called in several iterations at once.
pub(super) struct Pure<'f, W, F, R> {
    pub(super) wires: W,
    pub(super) function: F,
    pub(super) outlet: Arc<Outlet<'f, R>>,
}

impl<W: Wires, R: Send, F: Fn(W::Values) -> Option<R> + Send + Sync> Body for Pure<'_, W, F, R> {
    fn open(&self, window: usize) {
        self.outlet.open(window);
    }

    fn run(&self, slot: usize) -> Outcome {
        match self.wires.take(slot).and_then(&self.function) {
            Some(operand) => {
                self.outlet.deliver(slot, operand);
                Outcome::Delivered
            }
            None => Outcome::Dropped,
        }
    }

    fn discard(&self, slot: usize) {
        self.wires.take(slot);
    }
}

/// A function with a state of its own. It is called in the order of iterations, and never again once it has ended.
pub(super) struct Serial<'f, W, F, R> {
    pub(super) wires: W,
    /// `None` once a source has ended.
    pub(super) function: Mutex<Option<F>>,
    pub(super) is_source: bool,
    pub(super) outlet: Arc<Outlet<'f, R>>,
}

impl<W: Wires, R: Send, F: FnMut(W::Values) -> Option<R> + Send> Body for Serial<'_, W, F, R> {
    fn open(&self, window: usize) {
        self.outlet.open(window);
    }

    fn run(&self, slot: usize) -> Outcome {
        let mut function = lock(&self.function);
        let made = function.as_mut().and_then(|function| self.wires.take(slot).and_then(function));
        match made {
            Some(operand) => {
                self.outlet.deliver(slot, operand);
                Outcome::Delivered
            }
            None if self.is_source => {
                *function = None;
                Outcome::Ended
            }
            None => Outcome::Dropped,
        }
    }

    fn discard(&self, slot: usize) {
        self.wires.take(slot);
    }
}
