//! Inputs of a node: one port, several of different types, or any number of one type.

use super::graph::Flow;
use super::ports::{Edge, Output};
use std::sync::Arc;

/// The ports that a node reads: a port, a tuple of up to six ports of any types, or a slice of ports of one type.
///
/// [`Flow::node`] takes them. The node's function gets their operands: an operand, a tuple, or a vector.
///
/// If several nodes read one port, each gets a copy of the operand. Wrap operands that are expensive to copy in an
/// [`Arc`]. No other crate can implement this trait, which ensures that every input has a source and that there are no
/// cycles.
pub trait Inputs<'f>: sealed::Sealed {
    /// Argument of the node's function.
    type Values;
    /// The connected ports.
    #[doc(hidden)]
    type Wires: Wires<Values = Self::Values> + 'f;

    /// Connects all ports to the node that is declared next.
    #[doc(hidden)]
    fn connect(self, flow: &mut Flow<'f>) -> Self::Wires;
}

mod sealed {
    pub trait Sealed {}
}

/// The connected input ports of a node.
pub trait Wires: Send + Sync {
    /// Operands of one iteration.
    type Values;

    /// Takes the operands of the iteration in a slot; `None` if one of them was dropped. All are taken in any case.
    fn take(&self, slot: usize) -> Option<Self::Values>;
}

/// No inputs, as for sources and feeders.
pub(super) struct NoInput;

impl sealed::Sealed for NoInput {}

impl Inputs<'_> for NoInput {
    type Values = ();
    type Wires = NoInput;

    fn connect(self, _: &mut Flow<'_>) -> NoInput {
        self
    }
}

impl Wires for NoInput {
    type Values = ();

    fn take(&self, _: usize) -> Option<()> {
        Some(())
    }
}

/// One connected port.
pub struct Wire<T>(Arc<Edge<T>>);

impl<T: Send> Wires for Wire<T> {
    type Values = T;

    fn take(&self, slot: usize) -> Option<T> {
        self.0.take(slot)
    }
}

impl<T> sealed::Sealed for &Output<'_, T> {}

impl<'f, T: Clone + Send + 'f> Inputs<'f> for &Output<'f, T> {
    type Values = T;
    type Wires = Wire<T>;

    fn connect(self, flow: &mut Flow<'f>) -> Wire<T> {
        Wire(flow.link(self))
    }
}

/// Several connected ports.
pub struct Several<W>(W);

impl<T: Send> Wires for Several<Vec<Wire<T>>> {
    type Values = Vec<T>;

    fn take(&self, slot: usize) -> Option<Vec<T>> {
        let mut operands = Vec::with_capacity(self.0.len());
        operands.extend(self.0.iter().filter_map(|wire| wire.take(slot)));
        (operands.len() == self.0.len()).then_some(operands)
    }
}

impl<T> sealed::Sealed for &[Output<'_, T>] {}

impl<'f, T: Clone + Send + 'f> Inputs<'f> for &[Output<'f, T>] {
    type Values = Vec<T>;
    type Wires = Several<Vec<Wire<T>>>;

    fn connect(self, flow: &mut Flow<'f>) -> Self::Wires {
        Several(self.iter().map(|output| output.connect(flow)).collect())
    }
}

macro_rules! tuples {
    ($($port:ident),+) => {
        impl<$($port),+> sealed::Sealed for ($(&Output<'_, $port>,)+) {}

        #[expect(non_snake_case, reason = "a name for each type")]
        impl<'f, $($port: Clone + Send + 'f),+> Inputs<'f> for ($(&Output<'f, $port>,)+) {
            type Values = ($($port,)+);
            type Wires = Several<($(Wire<$port>,)+)>;

            fn connect(self, flow: &mut Flow<'f>) -> Self::Wires {
                let ($($port,)+) = self;
                Several(($($port.connect(flow),)+))
            }
        }

        #[expect(non_snake_case, reason = "a name for each type")]
        impl<$($port: Send),+> Wires for Several<($(Wire<$port>,)+)> {
            type Values = ($($port,)+);

            fn take(&self, slot: usize) -> Option<Self::Values> {
                let ($($port,)+) = &self.0;
                let ($($port,)+) = ($($port.take(slot),)+);
                Some(($($port?,)+))
            }
        }
    };
}

tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);
tuples!(A, B, C, D, E);
tuples!(A, B, C, D, E, G);
