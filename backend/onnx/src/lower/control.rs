//! Unrolling: the taken branch, or the repeated body, replaces a branch or a loop that is resolved while the model is
//! lowered.

use super::error::LowerError;
use super::operator::Operator;
use super::view::View;
use super::{Lowering, Slot};
use crate::control::{Graphs, Wrong, control, no_condition};
use crate::host_operators::{Fault, integers};
use crate::import::{Node, Output, Subgraph};
use anabranch_kernels::{DType, Tensor};

/// Most times that bodies and branches replace their operators, over a whole model.
const MOST_PASSES: usize = 4096;

/// Most nodes of these bodies and branches together, over a whole model.
const MOST_NODES: usize = 1 << 18;

/// Outputs of an operator with graphs.
pub(super) type Lowered = Result<Vec<View>, Wrong<LowerError>>;

/// An operator whose graphs are unrolled.
struct Unrolled<'l, 'a> {
    lowering: &'l mut Lowering<'a>,
    node: &'a Node,
}

impl Graphs for Unrolled<'_, '_> {
    type Value = View;
    type Error = LowerError;

    fn graph(&mut self, name: &'static str, inputs: Vec<View>) -> Lowered {
        self.lowering.graph(self.node.graph(name)?, inputs)
    }

    fn value(&mut self, tensor: Tensor) -> Result<View, Fault> {
        self.lowering.builder.made(tensor)
    }

    fn most(&self, value: &View) -> Result<i64, Fault> {
        let tensor = self.lowering.builder.tensor(value).ok_or_else(|| Fault::run_time(value.value, 0, "M"))?;
        match integers(&tensor).as_deref() {
            Some(&[most]) if value.dtype() == DType::I64 => Ok(most),
            _ => Err(Fault::invalid(format!("input 0 (M) is {}, not one i64", tensor.spec()))),
        }
    }

    fn holds(&self, condition: &View, input: Option<usize>) -> Result<bool, Fault> {
        if condition.dtype() != DType::Bool {
            return Err(no_condition(input, &condition.spec));
        }
        let known = self.lowering.builder.tensor(condition).and_then(|tensor| integers(&tensor));
        match (known.as_deref(), input) {
            (Some(&[truth]), _) => Ok(truth != 0),
            (Some(_), _) => Err(no_condition(input, &condition.spec)),
            (None, Some(input)) => Err(Fault::run_time(condition.value, input, "cond")),
            (None, None) => Err(Fault::unsupported("its condition is computed from the model's inputs")),
        }
    }

    fn dtype(&self, value: &View) -> Option<DType> {
        Some(value.dtype())
    }

    fn dims(&self, value: &View) -> Result<Vec<usize>, Fault> {
        Ok(value.dims().to_vec())
    }

    fn slice(&mut self, value: &View, axis: usize, at: usize) -> Result<View, Wrong<LowerError>> {
        let mut dims = value.dims().to_vec();
        dims.remove(axis);
        Ok(self.lowering.builder.part(value, axis, at, 1)?.reshaped(dims)?)
    }

    fn stack(&mut self, values: Vec<View>, axis: usize) -> Result<View, Wrong<LowerError>> {
        let single = |view: &View| {
            let mut dims = view.dims().to_vec();
            dims.insert(axis, 1);
            view.reshaped(dims)
        };
        let singles = values.iter().map(single).collect::<Result<Vec<_>, _>>()?;
        if singles.iter().any(|view| view.spec != singles[0].spec) {
            return Err(Fault::unsupported("iterations that collect different shapes").into());
        }
        Ok(self.lowering.builder.concatenated(&singles, axis)?)
    }

    fn accept(&mut self, _: &View) -> Result<(), Wrong<LowerError>> {
        Ok(())
    }

    fn empty(&mut self, _: &Output, _: i64) -> Result<View, Fault> {
        Err(Fault::unsupported("the loop makes no pass, so the shape of a collected output is unknown"))
    }
}

impl<'a> Lowering<'a> {
    /// Lowers a branch or a loop and returns its outputs.
    pub(super) fn control(&mut self, node: &'a Node, operator: &Operator<'a>) -> Lowered {
        control(node, operator.optionals(), &mut Unrolled { lowering: self, node })
    }

    /// Lowers a graph with these inputs and returns its outputs.
    pub(super) fn graph(&mut self, graph: &'a Subgraph, inputs: Vec<View>) -> Lowered {
        if graph.inputs.len() != inputs.len() {
            let (wanted, given) = (graph.inputs.len(), inputs.len());
            return Err(Fault::invalid(format!("its graph has {wanted} inputs, but receives {given}")).into());
        }
        self.passes += 1;
        if self.passes > MOST_PASSES {
            return Err(Fault::unsupported(format!("more than {MOST_PASSES} branches and passes of loops")).into());
        }
        self.unrolled = self.unrolled.saturating_add(graph.nodes.len());
        if self.unrolled > MOST_NODES {
            return Err(Fault::unsupported(format!("more than {MOST_NODES} nodes from branches and loops")).into());
        }
        for (value, constant) in &graph.initializers {
            let view = self.builder.constant(self.model.value_name(*value), constant.clone());
            self.slots[value.index()] = Slot::Made(view);
        }
        for (value, view) in graph.inputs.iter().zip(inputs) {
            self.slots[value.index()] = Slot::Made(view);
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            self.node(index, node).map_err(Wrong::Within)?;
        }
        let output = |output: &Output| match self.slot(output.value) {
            Slot::Made(view) => Ok(view),
            Slot::Lost => Err(Fault::unsupported("operators of its graph are not supported")),
            Slot::Empty => Err(Fault::invalid("no node produces an output of its graph")),
        };
        Ok(graph.outputs.iter().map(output).collect::<Result<_, Fault>>()?)
    }
}
