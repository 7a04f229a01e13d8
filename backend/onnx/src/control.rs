//! Branches and loops of the standard: `If`, `Loop` and `Scan`.
//!
//! This file has their rules, for any kind of values. The lowering unrolls graphs over values of a program, and a run
//! computes graphs over tensors: both implement [`Graphs`].

use crate::host_operators::{Fault, axis_of};
use crate::import::{Node, Output};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// Names of the operators, in the domain `ai.onnx`.
pub(crate) const CONTROL: [&str; 3] = ["If", "Loop", "Scan"];

/// Whether a node is one of these operators.
pub(crate) fn is_control(node: &Node) -> bool {
    matches!(&node.domain[..], "" | "ai.onnx") && CONTROL.contains(&&node.op_type[..])
}

/// Error of an operator with graphs: a fault of its own, or an error of the operators in its graphs.
pub enum Wrong<E> {
    /// A fault of the operator itself.
    Fault(Fault),
    /// An error within its graphs.
    Within(E),
}

impl<E, F: Into<Fault>> From<F> for Wrong<E> {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

/// Computes the graphs of an operator, on its kind of values.
pub trait Graphs {
    /// A value that goes into graphs and comes out of them.
    type Value: Clone;
    /// Error of an operator within a graph.
    type Error;

    /// Returns the outputs of the graph of this attribute.
    fn graph(&mut self, name: &'static str, inputs: Vec<Self::Value>) -> Result<Vec<Self::Value>, Wrong<Self::Error>>;

    /// Returns the value of a tensor.
    fn value(&mut self, tensor: Tensor) -> Result<Self::Value, Fault>;

    /// Returns the only element of the most iterations (`M`, input 0 of a loop).
    fn most(&self, value: &Self::Value) -> Result<i64, Fault>;

    /// Returns whether a condition holds. `input` is the condition's index; without one, an iteration has made it.
    fn holds(&self, condition: &Self::Value, input: Option<usize>) -> Result<bool, Fault>;

    /// Returns the type of a tensor's elements; `None` for other values.
    fn dtype(&self, value: &Self::Value) -> Option<DType>;

    /// Returns the sizes of a value along its axes.
    ///
    /// # Errors
    /// If the value is not a tensor.
    fn dims(&self, value: &Self::Value) -> Result<Vec<usize>, Fault>;

    /// Returns the elements at an index of an axis, without that axis.
    fn slice(&mut self, value: &Self::Value, axis: usize, at: usize) -> Result<Self::Value, Wrong<Self::Error>>;

    /// Stacks at least one value along a new axis.
    fn stack(&mut self, values: Vec<Self::Value>, axis: usize) -> Result<Self::Value, Wrong<Self::Error>>;

    /// Checks a value that an iteration adds to the values to stack.
    fn accept(&mut self, value: &Self::Value) -> Result<(), Wrong<Self::Error>>;

    /// Returns the output of a loop without iterations, which has no elements along `axis`.
    fn empty(&mut self, output: &Output, axis: i64) -> Result<Self::Value, Fault>;
}

/// Returns the outputs of a node that is one of these operators.
///
/// # Errors
/// If the node or its inputs violate the operator's definition, or a graph fails.
pub fn control<G: Graphs>(
    node: &Node,
    inputs: &[Option<G::Value>],
    graphs: &mut G,
) -> Result<Vec<G::Value>, Wrong<G::Error>> {
    match &node.op_type[..] {
        "If" => {
            let condition = inputs.first().and_then(Option::as_ref).ok_or_else(|| Fault::missing(0))?;
            let taken = graphs.holds(condition, Some(0))?;
            // A model is wrong without one of its branches, even if the other is taken.
            let [then, other] = [node.graph("then_branch")?, node.graph("else_branch")?];
            for (index, (then, other)) in then.outputs.iter().zip(&other.outputs).enumerate() {
                if let (Some(then), Some(other)) = (then.dtype, other.dtype)
                    && then != other
                {
                    let text = format!("output {index} is {then} in its then_branch, but {other} in its else_branch");
                    return Err(Fault::invalid(text).into());
                }
            }
            computed(node, if taken { "then_branch" } else { "else_branch" }, Vec::new(), graphs)
        }
        "Loop" => repeated(node, inputs, graphs),
        _ => scanned(node, inputs, graphs),
    }
}

/// Runs a loop. Inputs: the most iterations, whether to start, then values that go from one iteration to the next.
fn repeated<G: Graphs>(
    node: &Node,
    inputs: &[Option<G::Value>],
    graphs: &mut G,
) -> Result<Vec<G::Value>, Wrong<G::Error>> {
    let most = match inputs.first() {
        Some(Some(most)) => graphs.most(most)?,
        _ => i64::MAX,
    };
    let mut condition = match inputs.get(1) {
        Some(Some(condition)) => condition.clone(),
        _ => graphs.value(yes())?,
    };
    let mut carried = given(inputs, 2)?;
    let (states, types) = (carried.len(), types_of(&carried, graphs));
    if node.graph("body")?.outputs.len() <= states {
        return Err(Fault::invalid("its body has too few outputs").into());
    }
    let mut collected = Vec::new();
    let mut pass = 0i64;
    while pass < most && graphs.holds(&condition, (pass == 0).then_some(1))? {
        let number = Tensor::from_i64s(&[pass]).reshaped(Shape::scalar()).expect("one element is a scalar");
        let mut items = vec![graphs.value(number)?, graphs.value(yes())?];
        items.append(&mut carried);
        let mut outputs = computed(node, "body", items, graphs)?;
        condition = outputs.remove(0);
        collect(&mut collected, outputs.split_off(states), graphs)?;
        same_types(&types, &outputs, graphs)?;
        carried = outputs;
        pass += 1;
    }
    if pass == 0 {
        for output in node.graph("body")?.outputs.iter().skip(1 + states).take(wanted(node, states)) {
            carried.push(graphs.empty(output, 0)?);
        }
    }
    for values in collected {
        carried.push(graphs.stack(values, 0)?);
    }
    Ok(carried)
}

/// Runs a scan. Inputs: values that go from one iteration to the next, then values of which each iteration reads a
/// slice.
fn scanned<G: Graphs>(
    node: &Node,
    inputs: &[Option<G::Value>],
    graphs: &mut G,
) -> Result<Vec<G::Value>, Wrong<G::Error>> {
    if node.version < 9 {
        return Err(Fault::unsupported("its versions before 9").into());
    }
    let entry = |name: &str, index: usize| {
        Ok::<_, Fault>(node.ints(name)?.and_then(|values| values.get(index)).copied().unwrap_or(0))
    };
    let count = node.int("num_scan_inputs")?.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let states = inputs.len().checked_sub(count).filter(|_| count > 0);
    let states = states.ok_or_else(|| Fault::attribute("num_scan_inputs", count, "from 1 to the number of inputs"))?;
    if node.graph("body")?.outputs.len() < states {
        return Err(Fault::invalid("its body has too few outputs").into());
    }
    let backwards = |name: &'static str, index: usize| match entry(name, index)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Fault::attribute(name, other, "0 or 1 for each value")),
    };
    let mut carried = given(&inputs[..states], 0)?;
    let types = types_of(&carried, graphs);
    let mut scans = Vec::with_capacity(count);
    let mut passes = None;
    for (index, value) in given(inputs, states)?.into_iter().enumerate() {
        let dims = graphs.dims(&value)?;
        let axis = axis_of(entry("scan_input_axes", index)?, dims.len())?;
        if passes.is_some_and(|passes| passes != dims[axis]) {
            return Err(Fault::invalid("the scanned inputs differ in length").into());
        }
        passes = Some(dims[axis]);
        scans.push((value, axis, backwards("scan_input_directions", index)?));
    }
    let passes = passes.unwrap_or(0);
    let mut collected = Vec::new();
    for pass in 0..passes {
        let mut items = carried;
        for (value, axis, backwards) in &scans {
            let at = if *backwards { passes - 1 - pass } else { pass };
            items.push(graphs.slice(value, *axis, at)?);
        }
        let mut outputs = computed(node, "body", items, graphs)?;
        collect(&mut collected, outputs.split_off(states), graphs)?;
        same_types(&types, &outputs, graphs)?;
        carried = outputs;
    }
    if passes == 0 {
        for (index, output) in node.graph("body")?.outputs.iter().skip(states).take(wanted(node, states)).enumerate() {
            carried.push(graphs.empty(output, entry("scan_output_axes", index)?)?);
        }
    }
    for (index, mut values) in collected.into_iter().enumerate() {
        if backwards("scan_output_directions", index)? {
            values.reverse();
        }
        let rank = values.first().map_or(Ok(0), |value| graphs.dims(value).map(|dims| dims.len()))?;
        let axis = axis_of(entry("scan_output_axes", index)?, rank + 1)?;
        carried.push(graphs.stack(values, axis)?);
    }
    Ok(carried)
}

/// Returns the outputs of the graph of this attribute, which have the types that it declares.
fn computed<G: Graphs>(
    node: &Node,
    name: &'static str,
    inputs: Vec<G::Value>,
    graphs: &mut G,
) -> Result<Vec<G::Value>, Wrong<G::Error>> {
    let values = graphs.graph(name, inputs)?;
    for (index, (output, value)) in node.graph(name)?.outputs.iter().zip(&values).enumerate() {
        if let (Some(declared), Some(made)) = (output.dtype, graphs.dtype(value))
            && declared != made
        {
            let text = format!("output {index} of its {name} is declared as {declared}, but computed as {made}");
            return Err(Fault::invalid(text).into());
        }
    }
    Ok(values)
}

/// Returns the types of values, which stay while the values go into a graph: it may reuse their memory.
fn types_of<G: Graphs>(values: &[G::Value], graphs: &G) -> Vec<Option<DType>> {
    values.iter().map(|value| graphs.dtype(value)).collect()
}

/// Checks that the states of a loop have the types with which it began.
fn same_types<G: Graphs>(before: &[Option<DType>], after: &[G::Value], graphs: &G) -> Result<(), Fault> {
    for (index, (before, after)) in before.iter().zip(after).enumerate() {
        if let (Some(before), Some(after)) = (*before, graphs.dtype(after))
            && before != after
        {
            return Err(Fault::invalid(format!("its body changes the type of state {index} from {before} to {after}")));
        }
    }
    Ok(())
}

/// Adds the values that one iteration collects to those of earlier iterations, output by output.
fn collect<G: Graphs>(
    collected: &mut Vec<Vec<G::Value>>,
    values: Vec<G::Value>,
    graphs: &mut G,
) -> Result<(), Wrong<G::Error>> {
    collected.resize_with(values.len(), Vec::new);
    for (all, value) in collected.iter_mut().zip(values) {
        graphs.accept(&value)?;
        all.push(value);
    }
    Ok(())
}

/// Returns the number of outputs that collect values, up to the last that is used.
fn wanted(node: &Node, states: usize) -> usize {
    node.outputs.len().saturating_sub(states)
}

/// Returns the fault of a condition of another type or shape. `input` is the condition's index; without one, an
/// iteration has made it.
pub fn no_condition(input: Option<usize>, spec: &TensorSpec) -> Fault {
    let what = input.map_or("its body's condition".into(), |input| format!("input {input} (cond)"));
    Fault::invalid(format!("{what} is {spec}, not one bool"))
}

/// Returns inputs that must be present, from the index `first` on.
///
/// # Errors
/// If one is left out.
pub fn given<V: Clone>(inputs: &[Option<V>], first: usize) -> Result<Vec<V>, Fault> {
    let inputs = inputs.iter().enumerate().skip(first);
    inputs.map(|(index, value)| value.clone().ok_or_else(|| Fault::missing(index))).collect()
}

fn yes() -> Tensor {
    let byte = Tensor::from_elements(Shape::scalar(), &[1u8]).expect("one element");
    Tensor::new(TensorSpec::new(DType::Bool, Shape::scalar()), Arc::clone(byte.buffer())).expect("one byte")
}
