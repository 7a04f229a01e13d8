//! Models whose shapes depend on computed values: lowered in phases, each as far as shapes are known by then.
//!
//! A phase is lowered like a model, but nodes that would have to know a computed value are skipped, with all nodes that
//! depend on them. The rest belongs to the next phase, whose inputs are the values computed so far. Small values that
//! decide shapes are then fixed like small inputs of a model. Some operators run on the host in between: those
//! whose results alone determine their shapes, and branches and loops that depend on values. Their graphs run in phases
//! of their own.

use super::deciding::Deciding;
use super::error::{LowerError, Refusal};
use super::{LowerOptions, Lowering, Slot, finished, needed_nodes};
use crate::control::is_control;
use crate::host_operators;
use crate::host_operators::Fault;
use crate::import::{Input, Model, Node, ValueIndex};
use crate::part::Part;
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::lock::lock;
use anabranch_ir::constant::Constant;
use anabranch_ir::program::{Origin, Output, Program};
use anabranch_kernels::TensorSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Nodes of a graph that are lowered together, as far as possible.
pub struct Phase {
    /// Number of the phase, unique in the process.
    pub id: u64,
    #[doc(hidden)]
    pub model: Arc<Model>,
    /// Inputs that were found to decide shapes.
    pub deciding: Deciding,
    /// Positions of the nodes, ascending.
    nodes: Vec<u32>,
    /// Constants that it reads, unless it is a whole model.
    known: BTreeMap<ValueIndex, Constant>,
    reads: BTreeSet<ValueIndex>,
    /// Whether it is a whole model, whose inputs are a caller's.
    whole: bool,
    /// Whether some of its inputs are sequences or optionals.
    has_parts: bool,
    /// Graphs of nodes that are host operators, by node and attribute.
    bodies: Mutex<BTreeMap<(u32, &'static str), Arc<Phase>>>,
}

/// Rest of a phase after its program.
pub struct Continuation {
    /// Values of the program's outputs.
    pub made: Vec<ValueIndex>,
    /// Positions of the nodes that are then computed one by one on the host.
    pub host_operators: Vec<u32>,
    /// Phase after these host operators.
    pub next: Arc<Phase>,
    /// Inputs, by name, whose elements some node would have to know.
    pub wanted: Vec<Vec<String>>,
}

impl Phase {
    /// Creates the phase of a whole model.
    pub fn whole(model: Arc<Model>) -> Arc<Self> {
        let nodes = needed_nodes(&model);
        Arc::new(Self { whole: true, ..Self::of(model, nodes, BTreeMap::new()) })
    }

    fn of(model: Arc<Model>, nodes: Vec<u32>, known: BTreeMap<ValueIndex, Constant>) -> Self {
        static PHASES: AtomicU64 = AtomicU64::new(0);
        let id = PHASES.fetch_add(1, Ordering::Relaxed);
        let reads = reads(&model, &nodes, &known);
        let (deciding, bodies) = (Deciding::default(), Mutex::default());
        let has_parts = model.inputs.iter().any(|input| !input.kind.is_tensor());
        Self { id, model, deciding, nodes, known, reads, whole: false, has_parts, bodies }
    }

    /// Whether a name is that of a sequence or optional input, or of a part of one: its program has none of these.
    pub fn is_part(&self, name: &str) -> bool {
        let is_name = |input: &Input| name == input.name || Part::of(name).is_some_and(|(of, _)| of == input.name);
        self.has_parts && self.model.inputs.iter().any(|input| !input.kind.is_tensor() && is_name(input))
    }

    /// Whether its inputs are those of a caller.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether nothing is left to compute.
    pub fn is_over(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the constant of a value, if the value was found to be constant.
    pub fn constant(&self, value: ValueIndex) -> Option<&Constant> {
        self.known.get(&value)
    }

    /// Returns the values that its nodes need as inputs.
    pub fn reads(&self) -> &BTreeSet<ValueIndex> {
        &self.reads
    }

    /// Whether a value must be kept for it: its inputs, and outputs.
    pub fn keeps(&self, value: ValueIndex) -> bool {
        self.reads.contains(&value) || self.model.outputs.iter().any(|output| output.value == value)
    }

    /// Returns the graph in an attribute of a node as a model, whose inputs are the graph's and the values that it
    /// reads from the surrounding graphs.
    ///
    /// # Errors
    /// If there is no such graph.
    pub fn body(&self, node: u32, name: &'static str) -> Result<Arc<Self>, Fault> {
        let mut bodies = lock(&self.bodies);
        if let Some(body) = bodies.get(&(node, name)) {
            return Ok(Arc::clone(body));
        }
        let graph = self.model.nodes[node as usize].graph(name)?;
        let model = Model {
            name: self.model.name.clone(),
            producer: String::new(),
            opsets: self.model.opsets.clone(),
            values: Arc::clone(&self.model.values),
            inputs: Vec::new(),
            outputs: graph.outputs.clone(),
            nodes: graph.nodes.clone(),
            initializers: graph.initializers.clone(),
        };
        let captured = graph.captured.iter().filter_map(|value| Some((*value, self.constant(*value)?.clone())));
        let known = captured.chain(graph.initializers.clone()).collect();
        let nodes = needed_nodes(&model);
        let body = Arc::new(Self::of(Arc::new(model), nodes, known));
        bodies.insert((node, name), Arc::clone(&body));
        Ok(body)
    }

    /// Returns the program of the nodes that can be lowered, and the rest; `None` if a whole model was lowered.
    ///
    /// `given` are the values that are tensors by now, unless it is a whole model.
    ///
    /// # Errors
    ///
    /// As [`super::lower`]; also if no node can be lowered, or some node can never be lowered.
    pub fn lower(
        self: &Arc<Self>,
        options: &LowerOptions,
        given: &[(ValueIndex, TensorSpec)],
    ) -> Result<(Program, Option<Continuation>), LowerError> {
        let constants = if self.whole { &self.model.initializers } else { &self.known };
        let mut lowering = Lowering::new(&self.model, constants, options)?;
        if self.whole {
            lowering.inputs(options)?;
        } else {
            lowering.later = true;
            lowering.constants(constants);
            for (value, spec) in given {
                lowering.given(*value, self.model.value_name(*value), spec.clone(), &options.fixed);
            }
            self.sequences(&mut lowering);
        }
        lowering.nodes(&self.nodes)?;
        let is_lost = |output: &crate::import::Output| matches!(lowering.slots[output.value.index()], Slot::Lost);
        let is_done = self.whole && lowering.late.is_empty() && !self.model.outputs.iter().any(is_lost);
        if !lowering.refusal.is_empty() || is_done {
            let (program, folding) = lowering.finish()?;
            return Ok((finished(program, folding, options)?, None));
        }
        let rest = self.cut(&lowering);
        let is_stuck =
            rest.made.is_empty() && rest.host_operators.is_empty() && rest.next.nodes.len() == self.nodes.len();
        if is_stuck && !self.nodes.is_empty() {
            lowering.verdict()?;
            return Err(self.stuck());
        }
        lowering.late = Refusal::default();
        let outputs = rest.made.iter().filter_map(|value| match lowering.slot(*value) {
            Slot::Made(view) => {
                let name = self.model.value_name(*value).to_owned();
                Some(Output { name, value: view.value, spec: view.spec })
            }
            Slot::Empty | Slot::Lost => None,
        });
        let outputs = outputs.collect();
        lowering.verdict()?;
        let (mut program, folding) = lowering.builder.finish();
        program.outputs = outputs;
        Ok((finished(program, folding, options)?, Some(rest)))
    }

    /// Creates the error of a phase without obstacles that makes no progress: the rest reads values that are not
    /// tensors.
    fn stuck(&self) -> LowerError {
        let node = self.nodes.first().map(|at| &self.model.nodes[*at as usize]);
        let (name, operator) = node.map_or(("", ""), |node| (&node.name, &node.op_type));
        let text = ": its input is a sequence or an optional, which is not supported here";
        LowerError::of_node(ErrorKind::Unsupported, name, operator, text)
    }

    /// Marks given values that are not tensors: only host operators can read them.
    fn sequences(&self, lowering: &mut Lowering<'_>) {
        for value in &self.reads {
            let slot = &mut lowering.slots[value.index()];
            if matches!(slot, Slot::Empty) {
                *slot = Slot::Lost;
            }
        }
    }

    /// Divides the nodes into lowered nodes, host operators right after them, and the rest.
    fn cut(&self, lowering: &Lowering<'_>) -> Continuation {
        let lost = |value: &ValueIndex| !matches!(lowering.slots[value.index()], Slot::Made(_));
        let sequences: BTreeSet<_> = self.reads.iter().copied().filter(lost).collect();
        let mut held = sequences.clone();
        let (mut host_operators, mut left) = (Vec::new(), Vec::new());
        for at in self.nodes.iter().copied() {
            let node = &self.model.nodes[at as usize];
            if !node.outputs.iter().flatten().any(lost) {
                continue;
            }
            let ready = node.all_inputs().all(|value| !lost(&value) || held.contains(&value));
            let tried = node.outputs.iter().flatten().any(|value| lowering.host_operator_outputs.contains(value));
            let is_host_operator = || host_operators::is_host_operator(node) || tried || self.is_led(node, &sequences);
            if ready && is_host_operator() {
                held.extend(node.outputs.iter().flatten());
                host_operators.push(at);
            } else {
                left.push(at);
            }
        }
        let (made, known) = self.crossing(lowering, host_operators.iter().chain(&left));
        let next = Arc::new(Self::of(Arc::clone(&self.model), left, known));
        Continuation { made, host_operators, next, wanted: lowering.wanted.iter().cloned().collect() }
    }

    /// Whether a node has graphs and an input that is not a tensor, so that it cannot be lowered.
    fn is_led(&self, node: &Node, sequences: &BTreeSet<ValueIndex>) -> bool {
        is_control(node) && node.all_inputs().any(|value| sequences.contains(&value))
    }

    /// Returns the lowered values that these nodes and the caller read: outputs of the program, and constants.
    fn crossing<'n>(
        &self,
        lowering: &Lowering<'_>,
        nodes: impl Iterator<Item = &'n u32>,
    ) -> (Vec<ValueIndex>, BTreeMap<ValueIndex, Constant>) {
        let read = nodes.flat_map(|at| self.model.nodes[*at as usize].all_inputs());
        let read: BTreeSet<_> = read.chain(self.model.outputs.iter().map(|output| output.value)).collect();
        let program = lowering.builder.program();
        let (mut made, mut known) = (Vec::new(), BTreeMap::new());
        for value in read {
            let Slot::Made(view) = &lowering.slots[value.index()] else { continue };
            match (lowering.builder.view_constant(view), &program.value(view.value).origin) {
                (Some(constant), _) => {
                    known.insert(value, constant);
                }
                // The value is an input itself.
                (None, Origin::Input) if program.value(view.value).name == self.model.value_name(value) => {}
                (None, _) => made.push(value),
            }
        }
        (made, known)
    }
}

/// Returns the values that nodes read, and that neither they make nor `known` holds. O(edges · log edges).
fn reads(model: &Model, nodes: &[u32], known: &BTreeMap<ValueIndex, Constant>) -> BTreeSet<ValueIndex> {
    let nodes = || nodes.iter().map(|at| &model.nodes[*at as usize]);
    let made: BTreeSet<_> = nodes().flat_map(|node| node.outputs.iter().flatten()).collect();
    let read = nodes().flat_map(Node::all_inputs);
    read.filter(|value| !made.contains(value) && !known.contains_key(value)).collect()
}

impl Continuation {
    /// Creates the rest of a model whose nodes wait for the values `made`. The nodes at `host_operators`, ascending,
    /// are computed first; `known` are its constants.
    pub fn of(
        model: Model,
        made: Vec<ValueIndex>,
        host_operators: Vec<u32>,
        known: BTreeMap<ValueIndex, Constant>,
    ) -> Self {
        let left = (0..model.nodes.len() as u32).filter(|at| host_operators.binary_search(at).is_err()).collect();
        Self { made, host_operators, next: Arc::new(Phase::of(Arc::new(model), left, known)), wanted: Vec::new() }
    }

    /// Returns a copy whose plans other runs do not share.
    pub fn apart(&self) -> Self {
        let Phase { model, nodes, known, .. } = &*self.next;
        let next = Arc::new(Phase::of(Arc::clone(model), nodes.clone(), known.clone()));
        Self { made: self.made.clone(), host_operators: self.host_operators.clone(), next, wanted: self.wanted.clone() }
    }

    /// Returns the model of the nodes.
    pub fn model(&self) -> &Model {
        &self.next.model
    }

    /// Returns the positions of all remaining nodes, ascending.
    pub fn positions(&self) -> BTreeSet<u32> {
        self.host_operators.iter().chain(&self.next.nodes).copied().collect()
    }

    /// Returns the constants that the nodes read.
    pub fn known(&self) -> &BTreeMap<ValueIndex, Constant> {
        &self.next.known
    }

    /// Returns the number of operators that are left for later phases, without those of graphs within nodes.
    pub fn operators(&self) -> usize {
        self.host_operators.len() + self.next.nodes.len()
    }

    /// Returns the names of the first operators that are computed on the host, because their results determine the
    /// following shapes.
    pub fn host_operators(&self) -> impl Iterator<Item = &str> {
        self.host_operators.iter().map(|at| self.model().nodes[*at as usize].name.as_str())
    }
}
