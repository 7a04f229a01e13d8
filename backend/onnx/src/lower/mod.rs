//! Lowers a model to a program: shapes become numbers, operators become a few ops each, constants are folded, and
//! neighbouring ops are fused.
//!
//! Operators are lowered one by one in the model's order. Each returns views: values under shapes. Operators that only
//! reshape emit nothing. An op whose inputs are all constant is computed at once by the kernels of the run, so that
//! shapes that a model computes are known when they are needed. Nodes that no output needs are left out. Models whose
//! shapes depend on values that only a run computes are lowered in phases.

mod arity;
mod attributes;
mod bind;
mod builder;
mod compact;
mod compose;
mod control;
mod deciding;
mod error;
mod expression;
mod flexible;
mod fold;
mod fuse;
mod narrow;
mod operator;
mod ops;
mod phase;
mod sizes;
mod view;

pub use deciding::is_small;
pub use error::{LowerError, Obstacle};
pub use fuse::{Rewrite, Rewrites, UnknownRewrite};
pub use phase::Continuation;
pub use phase::Phase;
pub use sizes::Sizes;

use crate::control::{CONTROL, Wrong, is_control};
use crate::host_operators::{self, Fault};
use crate::import::error::Name;
use crate::import::{Model, Node, OPSETS, ValueIndex};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::interruption;
use anabranch_ir::constant::Constant;
use anabranch_ir::program::{Output, Program, ValueId};
use anabranch_kernels::op::{Op, Precision};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use builder::Builder;
use error::Refusal;
use fold::Folding;
use operator::Operator;
use std::collections::{BTreeMap, BTreeSet};
use view::View;

/// Options of lowering a model.
#[derive(Clone, Debug)]
pub struct LowerOptions {
    /// Sizes of open dimensions, by symbol or by input and axis (`x[1]`).
    pub dims: BTreeMap<String, usize>,
    /// Shapes of the given inputs, by name. They also determine the sizes of the symbols.
    pub input_shapes: BTreeMap<String, Shape>,
    /// Inputs with equal elements in every run, by name: the program is lowered for them, and for the shapes that they
    /// imply.
    pub fixed: BTreeMap<String, Tensor>,
    /// Rewrites that fuse neighbouring ops.
    pub fuse: Rewrites,
    /// Bytes that folding may add in constants, beyond the bytes of the model's own constants.
    pub budget: usize,
    /// Positions that costs take caches of keys and values to hold; their capacity if `None`. A run may have any other
    /// number.
    pub cached: Option<usize>,
    /// Whether convolutions between QuantizeLinear and DequantizeLinear are computed in integers, for which only CPUs
    /// have a kernel; else in floats.
    pub integer_convolutions: bool,
    /// Arithmetic of matrix products on GPUs with matrix units.
    pub precision: Precision,
}

impl Default for LowerOptions {
    /// No sizes given, fusion on, 256 MiB for folded constants, full caches, integer convolutions, products in `f32`.
    fn default() -> Self {
        let (dims, input_shapes, fixed) = Default::default();
        Self {
            dims,
            input_shapes,
            fixed,
            fuse: Rewrites::ALL,
            budget: 256 << 20,
            cached: None,
            integer_convolutions: true,
            precision: Precision::F32,
        }
    }
}

/// Lowers `model` for inputs of known shapes.
///
/// Takes time proportional to the model's nodes plus the bounded work of folding constants; values that are computed at
/// run time take no memory here.
///
/// # Errors
/// If a dimension has no size or two, an operator has no lowering, or a node is not what its operator's definition
/// allows: all such nodes are told ([`LowerError::obstacles`]), or, if there are none, those that depend on computed
/// values. If the caller is interrupted.
pub fn lower(model: &Model, options: &LowerOptions) -> Result<Program, LowerError> {
    let mut lowering = Lowering::new(model, &model.initializers, options)?;
    lowering.inputs(options)?;
    lowering.nodes(&needed_nodes(model))?;
    let (program, folding) = lowering.finish()?;
    finished(program, folding, options)
}

/// Removes nodes that no output needs, and fuses.
fn finished(program: Program, mut folding: Folding, options: &LowerOptions) -> Result<Program, LowerError> {
    let program = compact::compact(program);
    let mut program = fuse::fuse(program, options.fuse, &mut folding);
    for node in &mut program.nodes {
        let is_f32 = node.spec.outputs[0].dtype == DType::F32;
        match &mut node.spec.op {
            Op::Attention(op) => op.expected = options.cached.map_or(op.expected, |cached| cached.min(op.expected)),
            Op::MatMul(op) if is_f32 => op.precision = options.precision,
            _ => {}
        }
    }
    match folding.fault() {
        // Fusion may have been left half done.
        _ if interruption::is_due() => Err(LowerError::interrupted()),
        Some(fault) => Err(fault.into()),
        None => Ok(program),
    }
}

/// Returns the names of a domain's operators (`ai.onnx`, `ai.onnx.ml`, `ai.onnx.preview` or `com.microsoft`) that can
/// be lowered, at least in some uses.
pub fn operators(domain: &str) -> BTreeSet<&'static str> {
    let control = CONTROL.into_iter().filter(|_| domain == "ai.onnx");
    let flexible = (domain == "ai.onnx.preview").then_some(flexible::FLEXIBLE);
    ops::names(domain).chain(control).chain(flexible).collect()
}

/// Whether the host can compute a node between two programs.
pub fn is_host_operator(node: &Node) -> bool {
    host_operators::is_host_operator(node) || is_control(node)
}

/// Positions of the nodes on which an output of the model depends.
fn needed_nodes(model: &Model) -> Vec<u32> {
    let mut values = vec![false; model.values.len()];
    model.outputs.iter().for_each(|output| values[output.value.index()] = true);
    let mut needed = vec![false; model.nodes.len()];
    for (index, node) in model.nodes.iter().enumerate().rev() {
        needed[index] = node.outputs.iter().flatten().any(|output| values[output.index()]);
        if needed[index] {
            node.all_inputs().for_each(|input| values[input.index()] = true);
        }
    }
    (0..).zip(needed).filter(|(_, needed)| *needed).map(|(index, _)| index).collect()
}

/// Returns, for each value of a model, whether only QuantizeLinear reads it.
fn quantised_values(model: &Model) -> Vec<bool> {
    let mut quantised = vec![false; model.values.len()];
    let is_quantiser = |node: &Node| node.op_type == "QuantizeLinear";
    for value in model.nodes.iter().filter(|node| is_quantiser(node)).filter_map(|node| node.input(0)) {
        quantised[value.index()] = true;
    }
    for node in &model.nodes {
        let own = is_quantiser(node).then(|| node.input(0)).flatten();
        node.all_inputs().filter(|input| Some(*input) != own).for_each(|input| quantised[input.index()] = false);
    }
    model.outputs.iter().for_each(|output| quantised[output.value.index()] = false);
    quantised
}

/// State of a value of the model.
#[derive(Clone)]
enum Slot {
    /// The value is not made yet.
    Empty,
    Made(View),
    /// The value is not made here: it is a sequence or an optional, or depends on a node that is rejected or can be
    /// lowered only in a later phase.
    Lost,
}

/// A model that is being lowered.
struct Lowering<'a> {
    model: &'a Model,
    builder: Builder,
    slots: Vec<Slot>,
    /// Values that are read by QuantizeLinear alone.
    quantised: Vec<bool>,
    /// Nodes that can never be lowered.
    refusal: Refusal,
    /// Nodes that can be lowered in a later phase.
    late: Refusal,
    /// Inputs whose elements would have to be known for a node, by name.
    wanted: BTreeSet<Vec<String>>,
    /// Inputs on which values depend, as far as they were requested.
    inputs_of: BTreeMap<ValueId, Vec<String>>,
    /// Whether inputs may be computed values, which differ in each run.
    later: bool,
    /// Outputs of nodes that cannot be lowered, but can be host operators between programs.
    host_operator_outputs: BTreeSet<ValueIndex>,
    /// Number of branches and iterations so far.
    passes: usize,
    /// Number of nodes of all bodies and branches so far, counted each time they were lowered.
    unrolled: usize,
}

impl<'a> Lowering<'a> {
    /// Starts a lowering. Folding may add as many bytes as `constants` have.
    fn new(
        model: &'a Model,
        constants: &BTreeMap<ValueIndex, Constant>,
        options: &LowerOptions,
    ) -> Result<Self, LowerError> {
        if !OPSETS.contains(&model.opset()) {
            let (version, first, last) = (model.opset(), OPSETS.start(), OPSETS.end());
            let known = format!("versions {first} to {last} are supported");
            let text = format!("the model uses version {version} of the ONNX operators, but {known}");
            return Err(LowerError::new(ErrorKind::Unsupported, text));
        }
        let own: usize = constants.values().map(Constant::bytes).fold(0, usize::saturating_add);
        let mut builder = Builder::new(Folding::new(own.saturating_add(options.budget)));
        builder.integer_convolutions = options.integer_convolutions;
        Ok(Self {
            model,
            builder,
            slots: vec![Slot::Empty; model.values.len()],
            quantised: quantised_values(model),
            refusal: Refusal::default(),
            late: Refusal::default(),
            wanted: BTreeSet::new(),
            inputs_of: BTreeMap::new(),
            later: false,
            host_operator_outputs: BTreeSet::new(),
            passes: 0,
            unrolled: 0,
        })
    }

    /// Adds the model's own inputs.
    fn inputs(&mut self, options: &LowerOptions) -> Result<(), LowerError> {
        let specs = bind::bind(self.model, options)?;
        self.constants(&self.model.initializers);
        for (input, spec) in self.model.inputs.iter().zip(specs) {
            if let Some(spec) = spec {
                self.given(input.value, &input.name, spec, &options.fixed);
            } else if !input.kind.is_tensor() {
                self.slots[input.value.index()] = Slot::Lost;
            }
        }
        Ok(())
    }

    fn constants(&mut self, constants: &BTreeMap<ValueIndex, Constant>) {
        for (value, constant) in constants {
            let view = self.builder.constant(self.model.value_name(*value), constant.clone());
            self.slots[value.index()] = Slot::Made(view);
        }
    }

    /// Adds a value that is given to each run.
    fn given(&mut self, value: ValueIndex, name: &str, spec: TensorSpec, fixed: &BTreeMap<String, Tensor>) {
        let given = self.builder.input(name, spec.clone());
        // A tensor of another type or shape is rejected when it is given to a run.
        let view = match fixed.get(name).filter(|tensor| *tensor.spec() == spec) {
            Some(tensor) => self.builder.fixed(name, tensor.clone()),
            None => given,
        };
        self.slots[value.index()] = Slot::Made(view);
    }

    /// Lowers the nodes at these positions.
    fn nodes(&mut self, positions: &[u32]) -> Result<(), LowerError> {
        let model = self.model;
        positions.iter().try_for_each(|at| self.node(*at as usize, &model.nodes[*at as usize]))
    }

    /// Lowers one operator. A rejected operator is recorded, and nodes that depend on it are skipped.
    fn node(&mut self, index: usize, node: &'a Node) -> Result<(), LowerError> {
        if interruption::is_due() {
            return Err(LowerError::interrupted());
        }
        let name = self.builder.begin(&node.name, &node.op_type, index);
        self.builder.is_quantised = node.outputs.iter().flatten().all(|output| self.quantised[output.index()]);
        let inputs: Vec<_> = node.inputs.iter().map(|input| input.map(|value| self.slot(value))).collect();
        let mut lost = inputs.iter().any(|slot| matches!(slot, Some(Slot::Lost | Slot::Empty)));
        let (control, flexible) = (is_control(node), flexible::is_flexible(node));
        if flexible {
            lost |= node.all_inputs().any(|value| !matches!(self.slots[value.index()], Slot::Made(_)));
        }
        let view = |slot: Option<Slot>| if let Some(Slot::Made(view)) = slot { Some(view) } else { None };
        let views = || inputs.into_iter().map(view).collect();
        let result = match ops::lowering(&node.domain, &node.op_type) {
            _ if (control || flexible) && lost => {
                self.lose(node);
                return Ok(());
            }
            _ if control || flexible => {
                let operator = Operator::new(node, node.version, views());
                let outputs = if control { self.control(node, &operator) } else { self.flexible(node, &operator) };
                // The graph's operators came in between: new names must not be theirs.
                self.builder.begin(&node.name, &node.op_type, index);
                match outputs {
                    Ok(views) => Ok(views),
                    Err(Wrong::Fault(fault)) => Err(fault),
                    Err(Wrong::Within(error)) => return Err(error),
                }
            }
            Ok(_) if lost => {
                self.lose(node);
                return Ok(());
            }
            Ok(lowering) => arity::no_more_inputs(node)
                .and_then(|()| attributes::only_known(node))
                .and_then(|()| ops::lowered(&Operator::new(node, node.version, views()), &mut self.builder, lowering)),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = result.and_then(|views| self.made(node, views)) {
            if let Some(unread) = self.builder.fault() {
                return Err(unread.into());
            }
            // Losses within its graphs have been recorded there.
            let mut within = node.graphs().filter(|_| flexible).flat_map(|graph| &graph.outputs);
            if !within.any(|output| matches!(self.slots[output.value.index()], Slot::Lost)) {
                self.refuse(name, node, &fault);
            }
            self.lose(node);
        }
        Ok(())
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
        self.verdict()?;
        for output in &self.model.outputs {
            let name = Name(&output.name);
            let view = match &self.slots[output.value.index()] {
                Slot::Made(view) => view,
                Slot::Empty => {
                    let text = format!("no node produces the model's output {name}");
                    return Err(LowerError::new(ErrorKind::Model, text));
                }
                Slot::Lost => {
                    let text = format!("the model's output {name} depends on a sequence or an optional; use a session");
                    return Err(LowerError::new(ErrorKind::Unsupported, text));
                }
            };
            let output = Output { name: output.name.clone(), value: view.value, spec: view.spec.clone() };
            self.builder.program_mut().outputs.push(output);
        }
        Ok(self.builder.finish())
    }

    /// Checks that everything was lowered.
    fn verdict(&self) -> Result<(), LowerError> {
        if let Some(fault) = self.builder.fault() {
            return Err(fault.into());
        }
        match [&self.refusal, &self.late].into_iter().find(|refusal| !refusal.is_empty()) {
            Some(refusal) => Err(Refusal { wanted: self.wanted.iter().cloned().collect(), ..refusal.clone() }.into()),
            None => self.verify_output_types(),
        }
    }

    /// Checks that outputs that were made have the types that the model declares for them.
    fn verify_output_types(&self) -> Result<(), LowerError> {
        for output in &self.model.outputs {
            let (Some(declared), Slot::Made(view)) = (output.dtype, &self.slots[output.value.index()]) else {
                continue;
            };
            if view.dtype() != declared {
                let maker = self.model.nodes.iter().find(|node| node.outputs.contains(&Some(output.value)));
                let (name, found) = (Name(&output.name), view.dtype());
                let text = format!("output {name} is declared as {declared}, but has elements of {found}");
                let text = format!("{text}; correct the declared type, or convert the output with Cast");
                return Err(match maker {
                    Some(node) => LowerError::of_node(ErrorKind::Model, &node.name, &node.op_type, format!(": {text}")),
                    None => LowerError::new(ErrorKind::Model, text),
                });
            }
        }
        Ok(())
    }

    fn slot(&self, value: ValueIndex) -> Slot {
        self.slots[value.index()].clone()
    }

    fn lose(&mut self, node: &Node) {
        node.outputs.iter().flatten().for_each(|value| self.slots[value.index()] = Slot::Lost);
    }

    /// Records a node that cannot be lowered, and the inputs whose elements it would need.
    fn refuse(&mut self, name: String, node: &Node, fault: &Fault) {
        let builder = &self.builder;
        let inputs_of = |value| self.inputs_of.entry(value).or_insert_with(|| builder.inputs_of(value)).clone();
        let wanted = fault.needs().map_or_else(Vec::new, inputs_of);
        let hopeless = !fault.is_unsupported() || self.cannot(node, fault, &wanted);
        let all = if hopeless { &mut self.refusal } else { &mut self.late };
        all.add(Obstacle {
            node: name,
            operator: node.op_type.clone(),
            reason: fault.to_string(),
            is_unsupported: fault.is_unsupported(),
            is_late: !hopeless,
            wanted,
        });
    }

    /// Records remedies for a node that cannot be lowered: inputs with known elements, or being a host operator.
    /// Returns whether there is none.
    fn cannot(&mut self, node: &Node, fault: &Fault, wanted: &[String]) -> bool {
        let repeats = matches!(&node.op_type[..], "Loop" | "Scan");
        let is_host_operator =
            host_operators::is_host_operator(node) || is_control(node) && (repeats || fault.needs().is_none());
        if fault.needs().is_some() && !(is_host_operator && self.later) {
            self.wanted.insert(wanted.to_vec());
        }
        if is_host_operator {
            self.host_operator_outputs.extend(node.outputs.iter().flatten());
        }
        !is_host_operator && fault.needs().is_none()
    }
}
