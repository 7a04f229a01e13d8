//! Host operators of a run between plans: operators whose results alone determine their shapes, and branches and loops
//! that depend on values. The graphs of the latter run in phases of their own.

use super::error::{InputError, SessionError};
use super::phases::{PhasedRun, Values, constant};
use anabranch_kernels::cpu::Team;
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use anabranch_onnx::control::{self, Graphs, no_condition};
use anabranch_onnx::host_operators::{
    Call, Fault, MAP, TENSOR, Work, axis_of, host_operator, integers, side_by_side, slices,
};
use anabranch_onnx::import::{Dim, Node, Output, ValueIndex};
use anabranch_onnx::item::Item;
use anabranch_onnx::lower::{Continuation, LowerError, Phase};
use std::sync::Arc;
use std::time::Instant;

impl PhasedRun<'_> {
    /// Returns the outputs of the node at a position.
    pub(super) fn host_operator(
        &mut self,
        rest: &Continuation,
        at: u32,
        values: &Values,
    ) -> Result<Vec<Item>, SessionError> {
        self.look()?;
        let begun = (Instant::now(), self.later.in_plans + self.later.in_host_operators + self.later.planning);
        let phase = &rest.next;
        let node = &phase.model.nodes[at as usize];
        let inputs = node.inputs.iter().map(|value| value.map(|value| found(phase, values, value)).transpose());
        let inputs: Vec<Option<Item>> = inputs.collect::<Result<_, _>>()?;
        let result = match host_operator(node) {
            Some(operator) => self.on_host(|work| Call { node, inputs: &inputs, work }.made_by(operator)),
            None => Body { run: self, phase, at, node, values, collected: 0 }.outputs(&inputs),
        };
        let within = self.later.in_plans + self.later.in_host_operators + self.later.planning - begun.1;
        self.later.in_host_operators += begun.0.elapsed().saturating_sub(within);
        self.later.host_operator_count += 1;
        let items = result.map_err(|wrong| match wrong {
            Wrong::Fault(fault) => LowerError::of_host_operator(&node.name, &node.op_type, &fault).into(),
            Wrong::Within(error) => error,
        })?;
        // A sequence may grow with each iteration of a loop.
        let bytes = items.iter().map(Item::bytes).fold(0, u64::saturating_add);
        if host_operator(node).is_some() {
            self.keep_host_operator(phase, node, begun.0, bytes);
        }
        self.session.check_bytes(&node.name, bytes)?;
        Ok(items)
    }
}

impl PhasedRun<'_> {
    /// Runs a step on the host's team, within the host's memory limit. If the run was interrupted, the result is the
    /// interruption, even if the step failed.
    fn on_host<R>(&self, step: impl FnOnce(&Work<'_>) -> Result<R, Fault>) -> Result<R, Wrong> {
        let limit = self.session.inventory.devices().next().map_or(u64::MAX, |host| host.memory());
        let run = |team: &Team, interrupt: Option<&_>| step(&Work::new(team, interrupt, limit));
        let made = self.session.pool.on_host(self.options, run);
        let made = made.map_err(|error| Wrong::Within(error.into()))?;
        self.look().map_err(Wrong::Within)?;
        Ok(made?)
    }
}

/// Returns a value that must exist.
fn found(phase: &Phase, values: &Values, value: ValueIndex) -> Result<Item, SessionError> {
    let name = || phase.model.value_name(value).to_owned();
    let item = values.get(&value).cloned().or(constant(phase, value)?);
    item.ok_or_else(|| InputError::Unmade { name: name() }.into())
}

/// Error of a host operator: a fault of its own, or an error of a graph within it.
type Wrong = control::Wrong<SessionError>;

/// A branch or a loop in progress.
struct Body<'b, 'c> {
    run: &'b mut PhasedRun<'c>,
    phase: &'b Arc<Phase>,
    at: u32,
    node: &'b Node,
    values: &'b Values,
    /// Bytes of the tensors that iterations have added so far.
    collected: u64,
}

impl Body<'_, '_> {
    fn outputs(&mut self, inputs: &[Option<Item>]) -> Result<Vec<Item>, Wrong> {
        if self.node.op_type == MAP { self.mapped(inputs) } else { control::control(self.node, inputs, self) }
    }

    /// Runs `SequenceMap`. Inputs: a sequence, for whose elements the graph is run in turn, then sequences of the same
    /// length, and tensors that go to each run.
    fn mapped(&mut self, inputs: &[Option<Item>]) -> Result<Vec<Item>, Wrong> {
        let inputs = control::given(inputs, 0)?;
        let Some(Item::Sequence(first)) = inputs.first() else {
            return Err(Fault::invalid("input 0 is not a sequence; its graph runs once per element").into());
        };
        let lengths = inputs.iter().map(|item| if let Item::Sequence(list) = item { list.len() } else { first.len() });
        if let Some((index, length)) = lengths.enumerate().find(|(_, length)| *length != first.len()) {
            let text = format!("input {index} is a sequence of {length} tensors, but input 0 has {}", first.len());
            return Err(Fault::invalid(text).into());
        }
        let mut made = vec![Vec::new(); self.node.graph("body")?.outputs.len()];
        let mut bytes = 0u64;
        for at in 0..first.len() {
            let item = |item: &Item| {
                if let Item::Sequence(list) = item { Item::Tensor(list[at].clone()) } else { item.clone() }
            };
            let outputs = self.graph("body", inputs.iter().map(item).collect())?;
            for (list, item) in made.iter_mut().zip(outputs) {
                let Item::Tensor(tensor) = item else {
                    return Err(Fault::invalid(format!(
                        "its graph produces {}; it must produce tensors",
                        item.about()
                    ))
                    .into());
                };
                bytes = bytes.saturating_add(Item::Tensor(tensor.clone()).bytes());
                list.push(tensor);
            }
            self.run.session.check_bytes(&self.node.name, bytes).map_err(Wrong::Within)?;
        }
        Ok(made.into_iter().map(|list| Item::Sequence(Arc::new(list))).collect())
    }
}

impl Graphs for Body<'_, '_> {
    type Value = Item;
    type Error = SessionError;

    fn graph(&mut self, name: &'static str, items: Vec<Item>) -> Result<Vec<Item>, Wrong> {
        self.run.look().map_err(Wrong::Within)?;
        let graph = self.node.graph(name)?;
        if graph.inputs.len() != items.len() {
            let (wanted, given) = (graph.inputs.len(), items.len());
            return Err(Fault::invalid(format!("its graph has {wanted} inputs, but receives {given}")).into());
        }
        let captured = graph.captured.iter().filter_map(|value| Some((*value, self.values.get(value)?.clone())));
        let values: Values = captured.chain(graph.inputs.iter().copied().zip(items)).collect();
        let body = self.phase.body(self.at, name)?;
        self.run.finish(body, values).map_err(Wrong::Within)
    }

    fn value(&mut self, tensor: Tensor) -> Result<Item, Fault> {
        Ok(Item::Tensor(tensor))
    }

    fn most(&self, item: &Item) -> Result<i64, Fault> {
        let tensor = tensor(item)?;
        let most = only(tensor).filter(|_| tensor.dtype() == DType::I64);
        most.ok_or_else(|| Fault::invalid(format!("input 0 (M) is {}, not one i64", tensor.spec())))
    }

    fn holds(&self, condition: &Item, input: Option<usize>) -> Result<bool, Fault> {
        let tensor = tensor(condition)?;
        let truth = only(tensor).filter(|_| tensor.dtype() == DType::Bool);
        truth.map(|truth| truth != 0).ok_or_else(|| no_condition(input, tensor.spec()))
    }

    fn dtype(&self, item: &Item) -> Option<DType> {
        if let Item::Tensor(tensor) = item { Some(tensor.dtype()) } else { None }
    }

    fn dims(&self, item: &Item) -> Result<Vec<usize>, Fault> {
        Ok(tensor(item)?.shape().dims().to_vec())
    }

    fn slice(&mut self, item: &Item, axis: usize, at: usize) -> Result<Item, Wrong> {
        let tensor = tensor(item)?;
        let slice = self.run.on_host(|work| slices(work, tensor, axis, 1, |_| at))?;
        let mut dims = slice.shape().dims().to_vec();
        dims.remove(axis);
        Ok(Item::Tensor(slice.reshaped(Shape::new(dims)?).expect("an axis of one slice holds no elements")))
    }

    fn stack(&mut self, items: Vec<Item>, axis: usize) -> Result<Item, Wrong> {
        let tensors = items.iter().map(|item| tensor(item).cloned()).collect::<Result<Vec<_>, _>>()?;
        Ok(Item::Tensor(self.run.on_host(|work| side_by_side(work, &tensors, axis, true))?))
    }

    fn accept(&mut self, item: &Item) -> Result<(), Wrong> {
        let Item::Tensor(tensor) = item else {
            return Err(Fault::invalid(format!("it collects {}; it must collect tensors", item.about())).into());
        };
        // Tensors of 0 bytes take memory, too.
        self.collected = self.collected.saturating_add((tensor.spec().bytes() + TENSOR) as u64);
        self.run.session.check_bytes(&self.node.name, self.collected).map_err(Wrong::Within)
    }

    /// Returns a tensor of the declared type. Sizes that the graph does not declare are 0, too.
    fn empty(&mut self, output: &Output, axis: i64) -> Result<Item, Fault> {
        let (Some(dtype), Some(dims)) = (output.dtype, &output.dims) else {
            let name = &output.name;
            let text = format!(
                "the loop made no pass, and the graph does not declare the type and shape of its output `{name}`"
            );
            return Err(Fault::unsupported(text));
        };
        let size = |dim: &Dim| if let Dim::Known(size) = dim { *size } else { 0 };
        let mut dims: Vec<usize> = dims.iter().map(size).collect();
        dims.insert(axis_of(axis, dims.len() + 1)?, 0);
        Ok(Item::Tensor(Tensor::zeroed(TensorSpec::new(dtype, Shape::new(dims)?))))
    }
}

/// Returns the only integer or bool of a tensor.
fn only(tensor: &Tensor) -> Option<i64> {
    let value = if tensor.shape().elements() == 1 { integers(tensor) } else { None };
    value.and_then(|values| values.first().copied())
}

/// Returns the tensor of an item.
fn tensor(item: &Item) -> Result<&Tensor, Fault> {
    match item {
        Item::Tensor(tensor) => Ok(tensor),
        _ => Err(Fault::invalid(format!("it receives {}; it needs tensors", item.about()))),
    }
}
