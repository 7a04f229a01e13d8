//! Host operators of a run between plans: operators whose results alone determine their shapes, and branches and loops
//! that depend on values. The graphs of the latter run in phases of their own.

use super::error::{InputError, SessionError};
use super::phases::{PhasedRun, Values, constant};
use anabranch_kernels::cpu::Team;
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
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
            None => Body { run: self, phase, at, node, values }.outputs(&inputs),
        };
        let within = self.later.in_plans + self.later.in_host_operators + self.later.planning - begun.1;
        self.later.in_host_operators += begun.0.elapsed().saturating_sub(within);
        self.later.host_operator_count += 1;
        let items = result.map_err(|wrong| match wrong {
            Wrong::Fault(fault) => LowerError::of_host_operator(&node.name, &node.op_type, &fault).into(),
            Wrong::Session(error) => error,
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
        let made = made.map_err(|error| Wrong::Session(error.into()))?;
        self.look().map_err(Wrong::Session)?;
        Ok(made?)
    }
}

/// Returns a value that must exist.
fn found(phase: &Phase, values: &Values, value: ValueIndex) -> Result<Item, SessionError> {
    let name = || phase.model.value_name(value).to_owned();
    let item = values.get(&value).cloned().or(constant(phase, value)?);
    item.ok_or_else(|| InputError::Unmade { name: name() }.into())
}

/// Error of a step: a fault of its own, or an error of a graph within it.
enum Wrong {
    Fault(Fault),
    Session(SessionError),
}

impl<F: Into<Fault>> From<F> for Wrong {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

/// A branch or a loop in progress.
struct Body<'b, 'c> {
    run: &'b mut PhasedRun<'c>,
    phase: &'b Arc<Phase>,
    at: u32,
    node: &'b Node,
    values: &'b Values,
}

impl Body<'_, '_> {
    fn outputs(&mut self, inputs: &[Option<Item>]) -> Result<Vec<Item>, Wrong> {
        match &self.node.op_type[..] {
            "If" => {
                let taken = truth(inputs.first())?.ok_or_else(|| Fault::missing(0))?;
                self.graph(if taken { "then_branch" } else { "else_branch" }, Vec::new())
            }
            "Loop" => self.repeated(inputs),
            MAP => self.mapped(inputs),
            _ => self.scanned(inputs),
        }
    }

    /// Runs `SequenceMap`. Inputs: a sequence, for whose elements the graph is run in turn, then sequences of the same
    /// length, and tensors that go to each run.
    fn mapped(&mut self, inputs: &[Option<Item>]) -> Result<Vec<Item>, Wrong> {
        let inputs = given(inputs, 0)?;
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
            self.run.session.check_bytes(&self.node.name, bytes).map_err(Wrong::Session)?;
        }
        Ok(made.into_iter().map(|list| Item::Sequence(Arc::new(list))).collect())
    }

    /// Runs `Loop`. Inputs: the most iterations, whether to start, then values that go from one iteration to the next.
    fn repeated(&mut self, inputs: &[Option<Item>]) -> Result<Vec<Item>, Wrong> {
        let most = match inputs.first() {
            Some(Some(Item::Tensor(most))) => one(most, 0)?,
            _ => i64::MAX,
        };
        let mut goes_on = truth(inputs.get(1))?.unwrap_or(true);
        let mut carried = given(inputs, 2)?;
        let mut collected = Collected::default();
        let mut pass = 0i64;
        while pass < most && goes_on {
            let mut items = vec![Item::Tensor(number(pass)), Item::Tensor(truth_value(true))];
            let states = carried.len();
            items.append(&mut carried);
            let mut outputs = self.graph("body", items)?;
            if outputs.len() <= states {
                return Err(Fault::invalid("its body has too few outputs").into());
            }
            goes_on = truth(Some(&Some(outputs.remove(0))))?.unwrap_or(true);
            let scans = outputs.split_off(states);
            carried = outputs;
            collected.add(self, scans)?;
            pass += 1;
        }
        if pass == 0 {
            let declared = self.node.graph("body")?.outputs.iter().skip(1 + carried.len());
            carried.extend(declared.map(|output| nothing(output, 0)).collect::<Result<Vec<_>, _>>()?);
        }
        carried.extend(collected.stacked(self.run, |_| Ok((0, false)))?);
        Ok(carried)
    }

    /// Runs `Scan`. Inputs: values that go from one iteration to the next, then values of which each iteration reads a
    /// slice.
    fn scanned(&mut self, inputs: &[Option<Item>]) -> Result<Vec<Item>, Wrong> {
        if self.node.version < 9 {
            return Err(Fault::unsupported("its versions before 9").into());
        }
        let count = self.node.int("num_scan_inputs")?.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let states = inputs.len().checked_sub(count).filter(|_| count > 0);
        let states =
            states.ok_or_else(|| Fault::attribute("num_scan_inputs", count, "the number of inputs at most"))?;
        let mut carried = given(&inputs[..states], 0)?;
        let mut scans = Vec::with_capacity(count);
        for (index, item) in inputs[states..].iter().enumerate() {
            let Some(Item::Tensor(tensor)) = item else { return Err(Fault::missing(states + index).into()) };
            let axis = axis_of(self.entry("scan_input_axes", index)?, tensor.shape().rank())?;
            scans.push((tensor, axis, self.entry("scan_input_directions", index)? == 1));
        }
        let passes = scans.first().map_or(0, |(tensor, axis, _)| tensor.shape().dims()[*axis]);
        if scans.iter().any(|(tensor, axis, _)| tensor.shape().dims()[*axis] != passes) {
            return Err(Fault::invalid("the scanned inputs differ in length").into());
        }
        let mut collected = Collected::default();
        for pass in 0..passes {
            let mut items = carried;
            for (tensor, axis, backwards) in &scans {
                let at = if *backwards { passes - 1 - pass } else { pass };
                let slice = self.run.on_host(|work| slices(work, tensor, *axis, 1, |_| at))?;
                let mut dims = slice.shape().dims().to_vec();
                dims.remove(*axis);
                items.push(Item::Tensor(slice.reshaped(Shape::new(dims)?).expect("an axis of one slice says nothing")));
            }
            let mut outputs = self.graph("body", items)?;
            if outputs.len() < states {
                return Err(Fault::invalid("its body has too few outputs").into());
            }
            let scanned = outputs.split_off(states);
            carried = outputs;
            collected.add(self, scanned)?;
        }
        if passes == 0 {
            let declared = self.node.graph("body")?.outputs.iter().skip(states).enumerate();
            let empty = declared.map(|(index, output)| nothing(output, self.entry("scan_output_axes", index)?));
            carried.extend(empty.collect::<Result<Vec<_>, _>>()?);
        }
        let along =
            |index| Ok((self.entry("scan_output_axes", index)?, self.entry("scan_output_directions", index)? == 1));
        carried.extend(collected.stacked(self.run, along)?);
        Ok(carried)
    }

    /// Entry of an optional list of integers; 0 if it is missing.
    fn entry(&self, name: &str, index: usize) -> Result<i64, Fault> {
        Ok(self.node.ints(name)?.and_then(|values| values.get(index)).copied().unwrap_or(0))
    }

    /// Outputs of a graph with these inputs.
    fn graph(&mut self, name: &'static str, items: Vec<Item>) -> Result<Vec<Item>, Wrong> {
        self.run.look().map_err(Wrong::Session)?;
        let graph = self.node.graph(name)?;
        if graph.inputs.len() != items.len() {
            let (wanted, given) = (graph.inputs.len(), items.len());
            return Err(Fault::invalid(format!("its graph has {wanted} inputs, but receives {given}")).into());
        }
        let captured = graph.captured.iter().filter_map(|value| Some((*value, self.values.get(value)?.clone())));
        let values: Values = captured.chain(graph.inputs.iter().copied().zip(items)).collect();
        let body = self.phase.body(self.at, name)?;
        self.run.finish(body, values).map_err(Wrong::Session)
    }
}

/// Outputs of iterations, to be stacked.
#[derive(Default)]
struct Collected {
    tensors: Vec<Vec<Tensor>>,
    bytes: u64,
}

impl Collected {
    fn add(&mut self, body: &Body<'_, '_>, items: Vec<Item>) -> Result<(), Wrong> {
        self.tensors.resize_with(items.len(), Vec::new);
        for (tensors, item) in self.tensors.iter_mut().zip(items) {
            let Item::Tensor(tensor) = item else {
                return Err(Fault::invalid(format!("it collects {}; it must collect tensors", item.about())).into());
            };
            // Tensors of 0 bytes take memory, too.
            self.bytes = self.bytes.saturating_add((tensor.spec().bytes() + TENSOR) as u64);
            tensors.push(tensor);
        }
        body.run.session.check_bytes(&body.node.name, self.bytes).map_err(Wrong::Session)
    }

    /// Stacks the tensors of all iterations along new axes; `along` gives their positions and whether they run
    /// backwards.
    fn stacked(
        self,
        run: &PhasedRun<'_>,
        along: impl Fn(usize) -> Result<(i64, bool), Fault>,
    ) -> Result<Vec<Item>, Wrong> {
        let stack = |(index, mut tensors): (usize, Vec<Tensor>)| {
            let (axis, backwards) = along(index)?;
            if backwards {
                tensors.reverse();
            }
            let axis = axis_of(axis, tensors.first().map_or(0, |tensor| tensor.shape().rank()) + 1)?;
            Ok(Item::Tensor(run.on_host(|work| side_by_side(work, &tensors, axis, true))?))
        };
        self.tensors.into_iter().enumerate().map(stack).collect()
    }
}

/// Output of a loop without an iteration, which collected nothing along a new axis. Sizes that the graph does not
/// declare are 0, too.
///
/// # Errors
/// If the graph does not declare its type, or its number of dimensions.
fn nothing(output: &Output, axis: i64) -> Result<Item, Fault> {
    let (Some(dtype), Some(dims)) = (output.dtype, &output.dims) else {
        let name = &output.name;
        let text =
            format!("the loop made no pass, and the graph does not declare the type and shape of its output `{name}`");
        return Err(Fault::unsupported(text));
    };
    let size = |dim: &Dim| if let Dim::Known(size) = dim { *size } else { 0 };
    let mut dims: Vec<usize> = dims.iter().map(size).collect();
    dims.insert(axis_of(axis, dims.len() + 1)?, 0);
    Ok(Item::Tensor(Tensor::zeroed(TensorSpec::new(dtype, Shape::new(dims)?))))
}

/// Returns items that must be present, from the index `first` on.
fn given(inputs: &[Option<Item>], first: usize) -> Result<Vec<Item>, Fault> {
    let items = inputs.iter().enumerate().skip(first);
    items.map(|(index, item)| item.clone().ok_or_else(|| Fault::missing(index))).collect()
}

/// Returns the bool of an item, if the item is given.
fn truth(item: Option<&Option<Item>>) -> Result<Option<bool>, Fault> {
    match item {
        Some(Some(Item::Tensor(tensor))) if tensor.dtype() == DType::Bool => Ok(Some(one(tensor, 0)? != 0)),
        Some(Some(_)) => Err(Fault::invalid("the condition is not one bool")),
        _ => Ok(None),
    }
}

/// Returns the only integer in a tensor.
fn one(tensor: &Tensor, index: usize) -> Result<i64, Fault> {
    let value = if tensor.shape().elements() == 1 { integers(tensor) } else { None };
    match value.as_deref() {
        Some(&[value]) => Ok(value),
        _ => Err(Fault::invalid(format!("input {index} has shape {}, not one integer", tensor.shape()))),
    }
}

fn number(value: i64) -> Tensor {
    Tensor::from_i64s(&[value]).reshaped(Shape::scalar()).expect("one element is a scalar")
}

fn truth_value(truth: bool) -> Tensor {
    let byte = Tensor::from_elements(Shape::scalar(), &[u8::from(truth)]).expect("one element");
    Tensor::new(TensorSpec::new(DType::Bool, Shape::scalar()), Arc::clone(byte.buffer())).expect("one byte")
}
