//! Lowers a model to a program: every shape a number, every operator a few ops of the op set, constants folded, and
//! neighbouring ops fused.
//!
//! Operators are lowered one by one in the model's order. Each gives views: values under shapes; what only reshapes
//! emits nothing. An op whose inputs are all constant is computed at once by the same kernels that will run, so that
//! the shapes which a model computes are numbers by the time they are needed. What an output does not need is left out.

mod bind;
mod builder;
mod compact;
mod compose;
mod control;
mod error;
mod expression;
mod fold;
mod fuse;
mod operator;
mod ops;
mod view;

pub use error::LowerError;

use crate::constant::Constant;
use crate::error_kind::ErrorKind;
use crate::import::error::Name;
use crate::import::{Model, Node, OPSETS, ValueIndex};
use crate::program::{Output, Program};
use anabranch_kernels::{Shape, Tensor, TensorSpec};
use builder::Builder;
use error::{Fault, Unsupported};
use fold::Folding;
use operator::Operator;
use std::collections::{BTreeMap, BTreeSet};
use view::View;

/// What decides how a model is lowered.
#[derive(Clone, Debug)]
pub struct LowerOptions {
    /// Sizes of symbolic dimensions, by the symbols' names.
    pub dims: BTreeMap<String, usize>,
    /// Shapes of the inputs at hand, by the inputs' names. They also say the sizes of the symbols.
    pub input_shapes: BTreeMap<String, Shape>,
    /// Inputs that have these elements in every run, by name: the program is made for them, and the shapes that follow from them.
    pub fixed: BTreeMap<String, Tensor>,
    /// Whether neighbouring ops are fused.
    pub fuse: bool,
    /// Bytes that folding may add in constants, beyond once the bytes of the model's own.
    pub budget: usize,
}

impl Default for LowerOptions {
    /// No sizes given, fusion on, 256 MiB for folded constants.
    fn default() -> Self {
        let (dims, input_shapes, fixed) = Default::default();
        Self { dims, input_shapes, fixed, fuse: true, budget: 256 << 20 }
    }
}

/// Lowers `model` for inputs of known shapes.
///
/// Takes time proportional to the model's nodes plus the bounded work of folding constants; values that the program
/// computes when it runs take no memory here.
///
/// # Errors
/// If a dimension has no size or two, an operator has no lowering (all such are counted), or a node is not what its
/// operator's definition allows.
pub fn lower(model: &Model, options: &LowerOptions) -> Result<Program, LowerError> {
    if !OPSETS.contains(&model.opset()) {
        let (version, first, last) = (model.opset(), OPSETS.start(), OPSETS.end());
        let known = format!("versions {first} to {last} are supported");
        let text = format!("the model uses version {version} of the ONNX operators; {known}");
        return Err(LowerError::new(ErrorKind::Unsupported, text));
    }
    let inputs = bind::bind(model, options)?;
    let mut lowering = Lowering::new(model, options);
    lowering.sources(&inputs, &options.fixed);
    let needed = needed_nodes(model);
    for (index, node) in model.nodes.iter().enumerate().filter(|(index, _)| needed[*index]) {
        lowering.node(index, node)?;
    }
    let (program, mut folding) = lowering.finish()?;
    let program = compact::compact(program);
    let program = if options.fuse { fuse::fuse(program, &mut folding) } else { program };
    folding.fault().map_or(Ok(program), |fault| Err(fault.into()))
}

/// Which nodes an output of the model depends on.
fn needed_nodes(model: &Model) -> Vec<bool> {
    let mut values = vec![false; model.values.len()];
    model.outputs.iter().for_each(|output| values[output.value.index()] = true);
    let mut needed = vec![false; model.nodes.len()];
    for (index, node) in model.nodes.iter().enumerate().rev() {
        needed[index] = node.outputs.iter().flatten().any(|output| values[output.index()]);
        if needed[index] {
            node.all_inputs().for_each(|input| values[input.index()] = true);
        }
    }
    needed
}

/// What became of a value of the model.
#[derive(Clone)]
enum Slot {
    /// Not made yet.
    Empty,
    Made(View),
    /// Never to be made, because it depends on an operator without a lowering.
    Lost,
}

/// The model half-way to a program.
struct Lowering<'a> {
    model: &'a Model,
    builder: Builder,
    slots: Vec<Slot>,
    unsupported: Option<Unsupported>,
    /// Inputs whose elements would have to be known, by name.
    wanted: BTreeSet<String>,
    /// Branches and passes of loops so far.
    passes: usize,
    /// Nodes of all bodies and branches so far, as often as they were lowered.
    unrolled: usize,
}

impl<'a> Lowering<'a> {
    fn new(model: &'a Model, options: &LowerOptions) -> Self {
        let own: usize = model.initializers.values().map(Constant::bytes).fold(0, usize::saturating_add);
        Self {
            model,
            builder: Builder::new(Folding::new(own.saturating_add(options.budget))),
            slots: vec![Slot::Empty; model.values.len()],
            unsupported: None,
            wanted: BTreeSet::new(),
            passes: 0,
            unrolled: 0,
        }
    }

    fn sources(&mut self, inputs: &[Option<TensorSpec>], fixed: &BTreeMap<String, Tensor>) {
        for (value, constant) in &self.model.initializers {
            let view = self.builder.constant(self.model.value_name(*value), constant.clone());
            self.slots[value.index()] = Slot::Made(view);
        }
        for (input, spec) in self.model.inputs.iter().zip(inputs) {
            if let Some(spec) = spec {
                let given = self.builder.input(&input.name, spec.clone());
                // A tensor of another type or shape is refused when it is given to a run.
                let view = match fixed.get(&input.name).filter(|tensor| tensor.spec() == spec) {
                    Some(tensor) => self.builder.fixed(&input.name, tensor.clone()),
                    None => given,
                };
                self.slots[input.value.index()] = Slot::Made(view);
            }
        }
    }

    /// One operator. One without a lowering is counted, and what depends on it passed over.
    fn node(&mut self, index: usize, node: &'a Node) -> Result<(), LowerError> {
        let name = self.builder.begin(&node.name, &node.op_type, index);
        let inputs: Vec<_> = node.inputs.iter().map(|input| input.map(|value| self.slot(value))).collect();
        let lost = inputs.iter().any(|slot| matches!(slot, Some(Slot::Lost)));
        let view = |slot: Option<Slot>| if let Some(Slot::Made(view)) = slot { Some(view) } else { None };
        let views = || inputs.into_iter().map(view).collect();
        let result = match ops::lowering(&node.domain, &node.op_type) {
            _ if control::is_control(node) && lost => {
                self.lose(node);
                return Ok(());
            }
            _ if control::is_control(node) => {
                let operator = Operator::new(node, self.opset(node), views());
                let outputs = self.control(node, &operator)?;
                // The graph's operators have come in between: what is named now is none of theirs.
                self.builder.begin(&node.name, &node.op_type, index);
                outputs
            }
            Ok(_) if lost => {
                self.lose(node);
                return Ok(());
            }
            Ok(lowering) => lowering(&Operator::new(node, self.opset(node), views()), &mut self.builder),
            Err(fault) => Err(fault),
        };
        match result {
            Ok(views) => self.made(node, views).map_err(|fault| self.failed(&name, node, fault)),
            Err(fault) if fault.is_unsupported => {
                self.want(&fault);
                self.count(name, node, fault.to_string());
                self.lose(node);
                Ok(())
            }
            Err(fault) => Err(self.failed(&name, node, fault)),
        }
    }

    fn made(&mut self, node: &Node, views: Vec<View>) -> Result<(), Fault> {
        let wanted = node.outputs.iter().enumerate().filter_map(|(index, output)| Some((index, (*output)?)));
        let mut named = Vec::new();
        for (index, value) in wanted {
            let view = views.get(index).cloned();
            let view = view.ok_or_else(|| Fault::invalid(format!("it has no output {index}")))?;
            named.push((self.model.value_name(value), view.clone()));
            self.slots[value.index()] = Slot::Made(view);
        }
        self.builder.end(&named);
        Ok(())
    }

    fn finish(mut self) -> Result<(Program, Folding), LowerError> {
        if let Some(fault) = self.builder.fault() {
            return Err(fault.into());
        }
        if let Some(unsupported) = &self.unsupported {
            return Err(self.refused(unsupported));
        }
        for output in &self.model.outputs {
            let Slot::Made(view) = &self.slots[output.value.index()] else {
                let text = format!("the model's output {} is made by no node", Name(&output.name));
                return Err(LowerError::new(ErrorKind::Model, text));
            };
            let output = Output { name: output.name.clone(), value: view.value, spec: view.spec.clone() };
            self.builder.program_mut().outputs.push(output);
        }
        Ok(self.builder.finish())
    }

    fn slot(&self, value: ValueIndex) -> Slot {
        self.slots[value.index()].clone()
    }

    /// The version of the operators of the node's domain.
    fn opset(&self, node: &Node) -> i64 {
        match &node.domain[..] {
            "" | "ai.onnx" => self.model.opset(),
            domain => self.model.opsets.get(domain).copied().unwrap_or(1),
        }
    }

    fn lose(&mut self, node: &Node) {
        node.outputs.iter().flatten().for_each(|value| self.slots[value.index()] = Slot::Lost);
    }

    /// Notes the inputs whose elements the lowering of a node would have needed.
    fn want(&mut self, fault: &Fault) {
        if let Some(value) = fault.needs {
            self.wanted.extend(self.builder.inputs_of(value));
        }
    }

    fn count(&mut self, name: String, node: &Node, reason: String) {
        let operator = node.op_type.clone();
        let first = || Unsupported { node: name, operator: operator.clone(), reason, counts: BTreeMap::new() };
        let unsupported = self.unsupported.get_or_insert_with(first);
        *unsupported.counts.entry(operator.clone()).or_default() += 1;
    }

    fn refused(&self, unsupported: &Unsupported) -> LowerError {
        LowerError { wanted: self.wanted.iter().cloned().collect(), ..unsupported.into() }
    }

    /// A node that is wrong, unless others before it have no lowering, which is the greater obstacle.
    fn failed(&self, name: &str, node: &Node, fault: Fault) -> LowerError {
        if let Some(fault) = self.builder.fault() {
            return fault.into();
        }
        match &self.unsupported {
            Some(unsupported) => self.refused(unsupported),
            None => LowerError::of_node(ErrorKind::Model, name, &node.op_type, format!(": {fault}")),
        }
    }
}
