//! Declaring a flow: nodes, what they read, and what is known of them.

use super::body::{Body, Pure, Serial};
use super::engine;
use super::error::FlowError;
use super::inputs::{Inputs, NoInput};
use super::options::FlowOptions;
use super::ports::{Edge, Line, Outlet, Output};
use super::remote::{self, Peers};
use super::report::FlowReport;
use anabranch_base::lock::lock;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A dataflow graph whose nodes are functions of a user's.
///
/// A node reads ports of nodes that were declared before it, so that no flow has a cycle or an input that nobody feeds. One item of
/// each source, or one round where there are none, is an *iteration*: every node runs once in it, as soon as all its operands of
/// that iteration are there. As many iterations are under way at a time as [`FlowOptions::with_window`] says.
///
/// What functions capture and operands own may be borrowed for `'f`.
#[derive(Default)]
pub struct Flow<'f> {
    pub(super) nodes: Vec<Declared<'f>>,
    identity: Identity,
    /// What the node that is declared next reads.
    reads: Vec<Input<'f>>,
    /// What was declared wrongly.
    faults: Vec<FlowError>,
}

/// Most nodes times iterations under way.
const MOST_SLOTS: usize = 1 << 28;

/// What tells flows apart.
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
    /// What it reads, port by port.
    pub(super) inputs: Vec<Input<'f>>,
    /// The nodes that read it; one entry a port.
    pub(super) readers: Vec<Reader>,
    pub(super) body: Box<dyn Body + 'f>,
}

/// What a port of a node reads.
pub(super) struct Input<'f> {
    pub(super) producer: usize,
    pub(super) line: Arc<dyn Line + 'f>,
}

/// A port that reads a node.
pub(super) struct Reader {
    pub(super) node: usize,
    /// The number of the port among those that the reader has.
    pub(super) port: usize,
    /// What it gets of each operand.
    pub(super) bytes: Arc<AtomicU64>,
}

/// What a user says of a node beside its function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) weight: f64,
    pub(super) worker: Option<u32>,
    pub(super) machine: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Iterations of it may run at the same time.
    Pure,
    /// Iterations of it run one after the other.
    Serial,
    /// It says how many iterations there are.
    Source,
    /// It delivers the same in each iteration.
    Feeder,
}

impl<'f> Flow<'f> {
    /// A flow without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A node that computes an operand of what it reads, once in each iteration; several iterations of it may run at the same time.
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

    /// A node that may have nothing to say of an iteration: where its function returns `None`, no node that reads it, or reads what
    /// does, runs in that iteration.
    pub fn filter<I: Inputs<'f>, R: Send + 'f>(
        &mut self,
        name: impl Into<String>,
        inputs: I,
        function: impl Fn(I::Values) -> Option<R> + Send + Sync + 'f,
    ) -> Output<'f, R> {
        self.pure(name.into(), Kind::Pure, inputs, function)
    }

    /// A node whose function has a state: it is called for one iteration after the other, in their order.
    pub fn serializer<I: Inputs<'f>, R: Send + 'f>(
        &mut self,
        name: impl Into<String>,
        inputs: I,
        mut function: impl FnMut(I::Values) -> R + Send + 'f,
    ) -> Output<'f, R> {
        self.serial(name.into(), Kind::Serial, inputs, move |operands| Some(function(operands)))
    }

    /// A node whose items are tagged with their numbers, each an iteration. Where there are several sources, all of them must have
    /// as many items.
    pub fn source<S: IntoIterator + 'f>(&mut self, name: impl Into<String>, items: S) -> Output<'f, S::Item>
    where
        S::IntoIter: Send,
        S::Item: Send,
    {
        let mut items = items.into_iter();
        self.serial(name.into(), Kind::Source, NoInput, move |()| items.next())
    }

    /// A node that delivers the same operand in each iteration.
    pub fn feeder<T: Clone + Send + Sync + 'f>(&mut self, name: impl Into<String>, operand: T) -> Output<'f, T> {
        self.pure(name.into(), Kind::Feeder, NoInput, move |()| Some(operand.clone()))
    }

    /// A node that keeps what it reads, in the order of iterations. It weighs nothing.
    pub fn collect<T: Clone + Send + 'f>(&mut self, name: impl Into<String>, input: &Output<'f, T>) -> Collected<T> {
        let items: Arc<Mutex<Vec<T>>> = Arc::default();
        let kept = Arc::clone(&items);
        let node = self.serializer(name, input, move |operand| lock(&kept).push(operand)).weight(0.0);
        Collected { items, settings: node.settings }
    }

    /// Runs the flow to its end: until the sources have ended and every iteration has gone through.
    ///
    /// The calling thread is the first worker; the others are started for the run. A function that panics ends the run.
    ///
    /// # Errors
    /// Before anything runs, what was declared wrongly and bindings to workers and machines that are not there; later, a panic, named
    /// by node and iteration, a cancellation, or sources that have not as many items.
    pub fn run(self, options: &FlowOptions) -> Result<FlowReport, FlowError> {
        self.verify(options)?;
        engine::run(self, options)
    }

    /// Runs this process's part of a flow of which each machine of the crew is a process, all of them started with the same flow and options: operands
    /// go from one to another as messages. Each process calls this with its own end of [`Peers`]; that of machine 0 leads, gives the other
    /// processes' iterations out, and has the report of them all, the others that of themselves.
    ///
    /// Under a local scheduler a process runs the nodes of its machine, and steals within it alone. Under a central one the ready queue and all
    /// operands are in the process of machine 0, and the workers of the others run what its scheduler sends them, one task at a time; nodes
    /// with a state, which includes sources and what is collected, run on machine 0 unless they are bound to another.
    ///
    /// What a function keeps stays in the process that runs it: [`Collected::machine`] binds what is collected to the machine that wants it. Ports
    /// whose operands can leave their process need [`Output::travels`].
    ///
    /// # Errors
    /// As [`Flow::run`]; a port that cannot travel but would have to; and in machine 0 by the machine's number what fails in another
    /// process, among it that the process hangs up, for which the others then end, too.
    pub fn run_among(self, options: &FlowOptions, peers: Peers) -> Result<FlowReport, FlowError> {
        self.verify(options)?;
        remote::run(self, options, peers)
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The names of all nodes, in the order in which they were declared.
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
                let (port, bytes, edge) = (self.reads.len(), Arc::clone(&outlet.bytes), outlet.connect());
                node.readers.push(Reader { node: next, port, bytes });
                let line: Arc<Edge<T>> = Arc::clone(&edge);
                self.reads.push(Input { producer: output.node, line });
                edge
            }
            None => {
                self.faults.push(FlowError::Foreign { node: next });
                Arc::new(Edge::new())
            }
        }
    }

    /// Whether the flow can run with these options at all.
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
            if node.inputs.is_empty() && !matches!(node.kind, Kind::Source | Kind::Feeder) {
                return Err(FlowError::NoInput { node: named() });
            }
            if !(settings.weight.is_finite() && settings.weight >= 0.0) {
                return Err(FlowError::Weight { node: named(), weight: settings.weight });
            }
            options.crew().admits(&node.name, settings.worker, settings.machine)?;
        }
        let slots = self.nodes.len().checked_mul(options.window());
        match slots.filter(|slots| *slots <= MOST_SLOTS) {
            Some(_) => Ok(()),
            None => Err(FlowError::Options(format!(
                "{} nodes with {} iterations under way are more than {MOST_SLOTS} operands at a time; use a smaller window",
                self.nodes.len(),
                options.window()
            ))),
        }
    }

    /// Iterations under way at most.
    pub(super) fn window(&self, options: &FlowOptions) -> usize {
        let most = if self.has_source() { usize::MAX } else { options.iterations.clamp(1, 1 << 32) as usize };
        options.window().min(most)
    }

    /// Whether some node is a source.
    pub(super) fn has_source(&self) -> bool {
        self.nodes.iter().any(|node| node.kind == Kind::Source)
    }
}

impl fmt::Debug for Flow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("nodes", &self.names().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// What [`Flow::collect`] keeps.
#[derive(Clone, Debug)]
pub struct Collected<T> {
    items: Arc<Mutex<Vec<T>>>,
    settings: Arc<Mutex<Settings>>,
}

impl<T> Collected<T> {
    /// What has been kept until now, in the order of iterations; it is no longer kept then.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut lock(&self.items))
    }

    /// Only workers of this machine keep it, which says where it is after [`Flow::run_among`].
    pub fn machine(self, machine: u32) -> Self {
        lock(&self.settings).machine = Some(machine);
        self
    }
}
