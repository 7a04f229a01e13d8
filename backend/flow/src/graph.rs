//! Declaration of a flow: its nodes, their inputs, and their settings.

use super::body::{Body, Pure, Serial};
use super::engine;
use super::error::FlowError;
use super::inputs::{Inputs, NoInput};
use super::options::FlowOptions;
use super::ports::{Edge, Outlet, Output};
use super::report::FlowReport;
use anabranch_base::lock::lock;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A dataflow graph whose nodes are the user's functions.
///
/// A node reads ports of nodes that were declared before it. A flow therefore has no cycles and no input without a node
/// that delivers to it.
///
/// An *iteration* is one item of each source, or one round if there are no sources. Every node runs once in it, as soon
/// as all its operands of that iteration are there. [`FlowOptions::with_window`] sets how many iterations are in flight
/// at a time.
///
/// Functions and operands may borrow for `'f`.
///
/// ```
/// # mod anabranch { pub use anabranch_flow as flow; }
/// use anabranch::flow::{Flow, FlowOptions};
///
/// let mut flow = Flow::new();
/// let numbers = flow.source("numbers", 0..4);
/// let squares = flow.node("squares", &numbers, |number: i32| number * number);
/// let collected = flow.collect("collected", &squares);
/// flow.run(&FlowOptions::default())?;
/// assert_eq!(collected.take(), [0, 1, 4, 9]);
/// # Ok::<(), anabranch::flow::FlowError>(())
/// ```
#[derive(Default)]
pub struct Flow<'f> {
    pub(super) nodes: Vec<Declared<'f>>,
    identity: Identity,
    /// Number of ports that the node reads which is declared next.
    reads: u32,
    /// Errors of the declaration.
    faults: Vec<FlowError>,
}

/// Most nodes times iterations in flight.
const MOST_SLOTS: usize = 1 << 28;

/// Number that identifies a flow.
struct Identity(u64);

impl Default for Identity {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Identity(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A node as it was declared.
pub(super) struct Declared<'f> {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) settings: Arc<Mutex<Settings>>,
    /// Number of ports that it reads.
    pub(super) inputs: u32,
    /// Nodes that read it, with one entry per port.
    pub(super) readers: Vec<Reader>,
    pub(super) body: Box<dyn Body + 'f>,
}

/// A port that reads a node.
pub(super) struct Reader {
    pub(super) node: usize,
    /// Bytes of each operand that the port reads.
    pub(super) bytes: Arc<AtomicU64>,
}

/// Settings of a node, besides its function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) weight: f64,
    pub(super) worker: Option<u32>,
    pub(super) machine: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its iterations may run at the same time.
    Pure,
    /// Its iterations run one after the other.
    Serial,
    /// It determines the number of iterations.
    Source,
    /// It delivers an equal operand in each iteration.
    Feeder,
}

impl<'f> Flow<'f> {
    /// Makes a flow without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node that computes an operand from its inputs, once in each iteration.
    ///
    /// Several of its iterations may run at the same time.
    ///
    /// ```
    /// # mod anabranch { pub use anabranch_flow as flow; }
    /// use anabranch::flow::{Flow, FlowOptions};
    ///
    /// let mut flow = Flow::new();
    /// let sides = flow.source("sides", [3.0, 5.0, 8.0].into_iter().zip([4.0, 12.0, 15.0]));
    /// let squares = flow.node("squares", &sides, |(a, b): (f64, f64)| a * a + b * b);
    /// let roots = flow.node("roots", &squares, f64::sqrt);
    /// let sums = flow.node("sums", (&sides, &roots), |((a, b), c)| a + b + c);
    /// let perimeters = flow.collect("perimeters", &sums);
    /// flow.run(&FlowOptions::default())?;
    /// assert_eq!(perimeters.take(), [12.0, 30.0, 40.0]);
    /// # Ok::<(), anabranch::flow::FlowError>(())
    /// ```
    pub fn node<I: Inputs<'f>, R: Send + 'f>(
        &mut self,
        name: impl Into<String>,
        inputs: I,
        function: impl Fn(I::Values) -> R + Send + Sync + 'f,
    ) -> Output<'f, R> {
        self.pure(name.into(), Kind::Pure, inputs, move |operands| Some(function(operands)))
    }

    /// Adds a node that may deliver nothing in an iteration. If its function returns `None`, no node that depends on it
    /// runs in that iteration.
    pub fn filter<I: Inputs<'f>, R: Send + 'f>(
        &mut self,
        name: impl Into<String>,
        inputs: I,
        function: impl Fn(I::Values) -> Option<R> + Send + Sync + 'f,
    ) -> Output<'f, R> {
        self.pure(name.into(), Kind::Pure, inputs, function)
    }

    /// Adds a node whose function has a state: it is called for the iterations in their order.
    pub fn serializer<I: Inputs<'f>, R: Send + 'f>(
        &mut self,
        name: impl Into<String>,
        inputs: I,
        mut function: impl FnMut(I::Values) -> R + Send + 'f,
    ) -> Output<'f, R> {
        self.serial(name.into(), Kind::Serial, inputs, move |operands| Some(function(operands)))
    }

    /// Adds a source. Each of its items begins an iteration.
    ///
    /// If there are several sources, all of them must have the same number of items.
    pub fn source<S: IntoIterator + 'f>(&mut self, name: impl Into<String>, items: S) -> Output<'f, S::Item>
    where
        S::IntoIter: Send,
        S::Item: Send,
    {
        let mut items = items.into_iter();
        self.serial(name.into(), Kind::Source, NoInput, move |()| items.next())
    }

    /// Adds a node that delivers a copy of the operand in each iteration.
    pub fn feeder<T: Clone + Send + Sync + 'f>(&mut self, name: impl Into<String>, operand: T) -> Output<'f, T> {
        self.pure(name.into(), Kind::Feeder, NoInput, move |()| Some(operand.clone()))
    }

    /// Adds a node that keeps its inputs, in the order of iterations. Its weight is 0.
    pub fn collect<T: Clone + Send + 'f>(&mut self, name: impl Into<String>, input: &Output<'f, T>) -> Collected<T> {
        let items: Arc<Mutex<Vec<T>>> = Arc::default();
        let kept = Arc::clone(&items);
        self.serializer(name, input, move |operand| lock(&kept).push(operand)).weight(0.0);
        Collected { items }
    }

    /// Runs the flow until the sources have ended and every iteration has gone through.
    ///
    /// The calling thread is the first worker; the other workers are started for the run. A function that panics ends
    /// the run.
    ///
    /// # Errors
    /// Before anything runs: errors of the declaration, and bindings to workers and machines that do not exist. Later:
    /// a panic, with node and iteration, a cancellation, or sources with different numbers of items.
    pub fn run(self, options: &FlowOptions) -> Result<FlowReport, FlowError> {
        self.verify(options)?;
        engine::run(self, options)
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Names of all nodes, in the order in which they were declared.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    fn pure<I: Inputs<'f>, R: Send + 'f>(
        &mut self,
        name: String,
        kind: Kind,
        inputs: I,
        function: impl Fn(I::Values) -> Option<R> + Send + Sync + 'f,
    ) -> Output<'f, R> {
        let wires = inputs.connect(self);
        let outlet = Arc::new(Outlet::new());
        let body = Pure { wires, function, outlet: Arc::clone(&outlet) };
        self.declare(name, kind, Box::new(body), &outlet)
    }

    fn serial<I: Inputs<'f>, R: Send + 'f>(
        &mut self,
        name: String,
        kind: Kind,
        inputs: I,
        function: impl FnMut(I::Values) -> Option<R> + Send + 'f,
    ) -> Output<'f, R> {
        let wires = inputs.connect(self);
        let outlet = Arc::new(Outlet::new());
        let (function, is_source) = (Mutex::new(Some(function)), kind == Kind::Source);
        let body = Serial { wires, function, is_source, outlet: Arc::clone(&outlet) };
        self.declare(name, kind, Box::new(body), &outlet)
    }

    fn declare<R>(
        &mut self,
        name: String,
        kind: Kind,
        body: Box<dyn Body + 'f>,
        outlet: &Arc<Outlet<'f, R>>,
    ) -> Output<'f, R> {
        let inputs = std::mem::take(&mut self.reads);
        let settings = Arc::new(Mutex::new(Settings { weight: 1.0, worker: None, machine: None }));
        let (node, flow) = (self.nodes.len(), self.identity.0);
        let output = Output { node, flow, settings: Arc::clone(&settings), outlet: Arc::downgrade(outlet) };
        self.nodes.push(Declared { name, kind, settings, inputs, readers: Vec::new(), body });
        output
    }

    /// Lets the node that is declared next read a port.
    pub(super) fn link<T: Clone + Send + 'f>(&mut self, output: &Output<'f, T>) -> Arc<Edge<T>> {
        let next = self.nodes.len();
        let outlet = output.outlet.upgrade().filter(|_| output.flow == self.identity.0);
        match outlet.zip(self.nodes.get_mut(output.node)) {
            Some((outlet, node)) => {
                node.readers.push(Reader { node: next, bytes: Arc::clone(&outlet.bytes) });
                self.reads += 1;
                outlet.connect()
            }
            None => {
                self.faults.push(FlowError::Foreign { node: next });
                Arc::new(Edge::new())
            }
        }
    }

    /// Checks that the flow can run with these options.
    pub(super) fn verify(&self, options: &FlowOptions) -> Result<(), FlowError> {
        if let Some(fault) = self.faults.first() {
            return Err(fault.clone());
        }
        if self.nodes.is_empty() {
            return Err(FlowError::Options("the flow has no nodes; declare one".to_owned()));
        }
        let mut names = BTreeSet::new();
        for node in &self.nodes {
            let named = || node.name.clone();
            let settings = *lock(&node.settings);
            if !names.insert(&node.name) {
                return Err(FlowError::TwoOfOneName { node: named() });
            }
            if node.inputs == 0 && !matches!(node.kind, Kind::Source | Kind::Feeder) {
                return Err(FlowError::NoInput { node: named() });
            }
            if !(settings.weight.is_finite() && settings.weight >= 0.0) {
                return Err(FlowError::Weight { node: named(), weight: settings.weight });
            }
            options.worker_config().admits(&node.name, settings.worker, settings.machine)?;
        }
        let slots = self.nodes.len().checked_mul(options.window());
        match slots.filter(|slots| *slots <= MOST_SLOTS) {
            Some(_) => Ok(()),
            None => Err(FlowError::Options(format!(
                "{} nodes with {} unfinished iterations need more than {MOST_SLOTS} operands at a time; use a \
                 smaller window",
                self.nodes.len(),
                options.window()
            ))),
        }
    }

    /// Most iterations in flight.
    pub(super) fn window(&self, options: &FlowOptions) -> usize {
        let most = if self.has_source() { usize::MAX } else { options.iterations.clamp(1, 1 << 32) as usize };
        options.window().min(most)
    }

    /// Whether the flow has a source.
    pub(super) fn has_source(&self) -> bool {
        self.nodes.iter().any(|node| node.kind == Kind::Source)
    }
}

impl fmt::Debug for Flow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("nodes", &self.names().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// Values that [`Flow::collect`] keeps.
#[derive(Clone, Debug)]
pub struct Collected<T> {
    items: Arc<Mutex<Vec<T>>>,
}

impl<T> Collected<T> {
    /// Takes the values kept so far, in the order of iterations.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut lock(&self.items))
    }
}
