//! Collects the nodes and values of a program while its model's operators are lowered one by one.

use super::fold::Folding;
use super::fuse::both;
use super::narrow::Narrow;
use super::view::View;
use crate::host_operators::Fault;
use anabranch_ir::constant::{Constant, ConstantError};
use anabranch_ir::names::Names;
use anabranch_ir::program::{ModelOperator, Node, NodeId, Origin, Program, ValueId};
use anabranch_kernels::op::{NodeSpec, Op};
use anabranch_kernels::{Tensor, TensorSpec};
use std::collections::BTreeSet;

/// Most parts of one operator that become nodes of their own, some dozen each: time steps, planes of a window, points.
const MOST_PARTS: usize = 1 << 10;

/// Most ops that one operator may become, including folded ops: a limit for operators that count no parts.
const MOST_OPS: usize = 1 << 16;

/// Ops that an operator may become before they count against the model's limit.
const FREE_OPS: usize = 1 << 6;

/// Most ops of all operators of a model, beyond the first [`FREE_OPS`] of each: a limit for many operators of many
/// parts.
const MOST_OPS_OF_MODEL: usize = 1 << 20;

/// The program under construction. A node whose inputs are all constant is computed at once if that is cheap, so that
/// later operators know shapes that the model computes.
pub(crate) struct Builder {
    program: Program,
    folding: Folding,
    /// Names of operators and nodes.
    names: Names,
    /// Operator whose nodes are being emitted.
    operator: ModelOperator,
    first_node: usize,
    narrow: Narrow,
    /// Whether convolutions of numbers on grids of 8-bit integers become convolutions of integers.
    pub(crate) integer_convolutions: bool,
    /// Whether all outputs of the operator are read by QuantizeLinear alone.
    pub(crate) is_quantised: bool,
    /// Ops of the present operator so far.
    ops: usize,
    /// Ops of all operators so far, without the first [`FREE_OPS`] of each.
    ops_of_model: usize,
}

impl Builder {
    /// Creates a program without nodes; `folding` limits the bytes of constants.
    pub(crate) fn new(folding: Folding) -> Self {
        let (program, operator) = (Program::default(), ModelOperator::new("", ""));
        let (names, narrow) = (Names::default(), Narrow::default());
        Self {
            program,
            folding,
            names,
            operator,
            first_node: 0,
            narrow,
            integer_convolutions: true,
            is_quantised: false,
            ops: 0,
            ops_of_model: 0,
        }
    }

    /// Rejects more than [`MOST_PARTS`] parts of an operator.
    ///
    /// # Errors
    /// If the parts are too many.
    pub(crate) fn require_few(parts: usize, what: &str) -> Result<(), Fault> {
        Self::require_at_most(MOST_PARTS, parts, what)
    }

    /// Rejects too many parts that would become nodes of their own, before any node is made: a few bytes of a file can
    /// require many.
    ///
    /// # Errors
    /// If the parts are too many.
    pub(crate) fn require_at_most(most: usize, parts: usize, what: &str) -> Result<(), Fault> {
        if parts <= most {
            return Ok(());
        }
        let text = format!("{parts} {what} would become separate nodes, but the limit per operator is {most}");
        Err(Fault::unsupported(format!("{text}; ask for fewer, or split the operator into several")))
    }

    /// Counts an op of the present operator.
    fn count_op(&mut self) -> Result<(), Fault> {
        self.ops += 1;
        self.ops_of_model += usize::from(self.ops > FREE_OPS);
        if self.ops > MOST_OPS {
            let text = format!("it would become more than {MOST_OPS} nodes; split it into several operators");
            return Err(Fault::unsupported(text));
        }
        if self.ops > FREE_OPS && self.ops_of_model > MOST_OPS_OF_MODEL {
            let text = format!("the model's operators of many parts would become more than {MOST_OPS_OF_MODEL} nodes");
            return Err(Fault::unsupported(format!("{text}; give shorter inputs, or split the model into several")));
        }
        Ok(())
    }

    pub(crate) fn input(&mut self, name: &str, spec: TensorSpec) -> View {
        View { value: self.program.add_input(name, spec.clone()), spec }
    }

    /// Fixes the elements of the input of this name.
    pub(crate) fn fixed(&mut self, name: &str, tensor: Tensor) -> View {
        self.program.fixed.insert(name.to_owned(), tensor.clone());
        self.constant(name, tensor)
    }

    /// Returns the names of the inputs from which a value is computed. O(nodes + edges).
    pub(crate) fn inputs_of(&self, value: ValueId) -> Vec<String> {
        let (mut seen, mut open, mut names) = (BTreeSet::from([value]), vec![value], Vec::new());
        while let Some(value) = open.pop() {
            let value = self.program.value(value);
            match &value.origin {
                Origin::Input => names.push(value.name.clone()),
                Origin::Constant(_) => {}
                Origin::Node(node) => {
                    let inputs = self.program.node(*node).inputs.iter().copied();
                    open.extend(inputs.filter(|input| seen.insert(*input)));
                }
            }
        }
        names
    }

    pub(crate) fn constant(&mut self, name: impl Into<String>, constant: impl Into<Constant>) -> View {
        let constant = constant.into();
        self.value(name.into(), constant.spec().clone(), Origin::Constant(constant))
    }

    /// Adds a constant made by the present operator.
    ///
    /// # Errors
    /// If the limit of constants does not allow this many bytes.
    pub(crate) fn made(&mut self, tensor: Tensor) -> Result<View, Fault> {
        self.reserve(tensor.spec().bytes())?;
        Ok(self.constant(format!("{}:constant", self.operator.name), tensor))
    }

    /// Reserves bytes of the limit of constants, before the caller allocates them.
    ///
    /// # Errors
    /// If the limit of constants does not allow this many bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<(), Fault> {
        let budget = self.folding.bytes_left();
        if self.folding.take(bytes) { Ok(()) } else { Err(Fault::budget(bytes, budget)) }
    }

    /// Checks that the limit of constants allows this many bytes, without reserving them.
    pub(crate) fn afford(&self, bytes: usize) -> Result<(), Fault> {
        let budget = self.folding.bytes_left();
        if bytes <= budget { Ok(()) } else { Err(Fault::budget(bytes, budget)) }
    }

    pub(crate) fn is_constant(&self, view: &View) -> bool {
        self.program.constant(view.value).is_some()
    }

    /// Returns the view's data, under its shape, if it is constant. If the data cannot be read, lowering fails at its
    /// end.
    pub(crate) fn tensor(&self, view: &View) -> Option<Tensor> {
        self.folding.loaded(&self.view_constant(view)?)
    }

    /// Returns the error of a constant that could not be read, if any.
    pub(crate) fn fault(&self) -> Option<ConstantError> {
        self.folding.fault()
    }

    /// Returns the constant of a view, under its shape.
    pub(crate) fn view_constant(&self, view: &View) -> Option<Constant> {
        let constant = self.program.constant(view.value)?;
        Some(constant.reshaped(view.shape().clone()).expect("a view has as many elements as its value"))
    }

    /// Applies an op to views. The results are constants if they can be computed now, else the outputs of a new node.
    ///
    /// # Errors
    /// If a constant node does not fit its op's definition, or the operator becomes too many ops.
    pub(crate) fn emit(&mut self, op: Op, inputs: &[View], outputs: Vec<TensorSpec>) -> Result<Vec<View>, Fault> {
        self.count_op()?;
        let spec = NodeSpec { op, inputs: inputs.iter().map(|view| view.spec.clone()).collect(), outputs };
        if spec.outputs.iter().all(|output| output.shape.elements() == 0) {
            let empty = spec.outputs.into_iter().map(Tensor::zeroed);
            return Ok(empty.map(|tensor| self.constant(format!("{}:empty", self.operator.name), tensor)).collect());
        }
        let constants: Option<Vec<_>> = inputs.iter().map(|view| self.view_constant(view)).collect();
        if let Some(constants) = constants
            && let Some(folded) = self.folding.fold(&spec, constants)?
        {
            let name = format!("{}:folded", self.operator.name);
            return Ok(folded.into_iter().map(|constant| self.constant(name.clone(), constant)).collect());
        }
        Ok(self.push(spec, inputs))
    }

    /// Applies an op of one output, as [`Self::emit`] does.
    pub(crate) fn emit_one(&mut self, op: Op, inputs: &[View], output: TensorSpec) -> Result<View, Fault> {
        let mut views = self.emit(op, inputs, vec![output])?;
        Ok(views.swap_remove(0))
    }

    /// Starts the operator whose nodes are emitted next, and returns its final name. `name` may be empty or in use
    /// already.
    pub(crate) fn begin(&mut self, name: &str, kind: &str, index: usize) -> String {
        let wanted = if name.is_empty() { format!("{kind}_{index}") } else { name.to_owned() };
        self.operator = ModelOperator::new(self.names.unique(wanted), kind);
        self.first_node = self.program.nodes.len();
        self.ops = 0;
        self.operator.name.clone()
    }

    /// Returns the operator whose nodes are being emitted.
    pub(crate) fn operator(&self) -> &ModelOperator {
        &self.operator
    }

    /// Adds operators to the node that makes `view`, which does their work, too.
    pub(crate) fn join(&mut self, view: &View, operators: &[ModelOperator]) {
        if let Origin::Node(node) = self.program.value(view.value).origin {
            let node = &mut self.program.nodes[node.index()];
            node.operators = both(&node.operators, operators);
        }
    }

    /// Ends the operator: its last node takes its name, and its values take the names of its outputs.
    pub(crate) fn end(&mut self, outputs: &[(&str, View)]) {
        let count = self.program.nodes.len() - self.first_node;
        for offset in 0..count {
            let name = match offset + 1 {
                last if last == count => self.operator.name.clone(),
                step => self.names.unique(format!("{}:{step}", self.operator.name)),
            };
            let node = &mut self.program.nodes[self.first_node + offset];
            node.name = name;
            node.operators = both(&node.operators, std::slice::from_ref(&self.operator));
        }
        for (name, view) in outputs {
            let value = &mut self.program.values[view.value.index()];
            let fresh = matches!(value.origin, Origin::Node(id) if id.index() >= self.first_node);
            if fresh {
                value.name = (*name).to_owned();
            }
        }
    }

    /// Returns the program, and the remaining limits of folding.
    pub(crate) fn finish(self) -> (Program, Folding) {
        (self.program, self.folding)
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the sources of widened constants.
    pub(super) fn narrow(&mut self) -> &mut Narrow {
        &mut self.narrow
    }

    pub(crate) fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }

    fn push(&mut self, spec: NodeSpec, inputs: &[View]) -> Vec<View> {
        let node = NodeId(self.program.nodes.len() as u32);
        let name = format!("{}:value", self.operator.name);
        let outputs: Vec<_> =
            spec.outputs.clone().into_iter().map(|spec| self.value(name.clone(), spec, Origin::Node(node))).collect();
        self.program.nodes.push(Node {
            name: String::new(),
            operators: Vec::new(),
            spec,
            inputs: inputs.iter().map(|view| view.value).collect(),
            outputs: outputs.iter().map(|view| view.value).collect(),
        });
        outputs
    }

    fn value(&mut self, name: String, spec: TensorSpec, origin: Origin) -> View {
        View { value: self.program.add_value(name, spec.clone(), origin), spec }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::op::Transpose;
    use anabranch_kernels::{DType, Shape};

    #[test]
    fn operators_of_many_ops_share_what_a_model_has() {
        let mut builder = Builder::new(Folding::new(1 << 20));
        let x = builder.input("x", TensorSpec::new(DType::F32, Shape::new([2, 3]).expect("small")));
        let op = || Op::Transpose(Transpose { permutation: vec![1, 0] });
        let output = TensorSpec::new(DType::F32, Shape::new([3, 2]).expect("small"));
        let emitted = |builder: &mut Builder| builder.emit_one(op(), std::slice::from_ref(&x), output.clone());
        for at in 0..3 {
            builder.begin("", "Small", at);
            assert!((0..FREE_OPS).all(|_| emitted(&mut builder).is_ok()));
        }
        assert_eq!(builder.ops_of_model, 0, "operators of few ops take nothing");
        builder.ops_of_model = MOST_OPS_OF_MODEL - 1;
        assert!(emitted(&mut builder).is_ok());
        let error = emitted(&mut builder).expect_err("one more").to_string();
        assert!(error.contains("more than 1048576 nodes; give shorter inputs"), "{error}");
        builder.begin("", "Small", 3);
        assert!(emitted(&mut builder).is_ok(), "a small operator is still lowered");
    }
}
