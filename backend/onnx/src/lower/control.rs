//! Branches and loops that can be resolved while the model is lowered: the taken branch, or the repeated body, replaces
//! the operator.

use super::error::LowerError;
use super::operator::Operator;
use super::view::View;
use super::{Lowering, Slot};
use crate::host_operators::Fault;
use crate::host_operators::{axis_of, integers};
use crate::import::{Node, Subgraph};
use anabranch_kernels::{DType, Shape, Tensor};

/// Most times that bodies and branches replace their operators, over a whole model.
const MOST_PASSES: usize = 4096;

/// Most nodes of these bodies and branches together, over a whole model.
const MOST_NODES: usize = 1 << 18;

/// Result of an operator: its own fault, or an error of its graphs' operators.
pub(super) type Lowered = Result<Result<Vec<View>, Fault>, LowerError>;

/// Returns early with a fault of the operator itself.
macro_rules! sound {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(fault) => return Ok(Err(fault.into())),
        }
    };
}
pub(super) use sound;

/// Operators with graphs that decide on the computation.
pub(super) const CONTROL: [&str; 3] = ["If", "Loop", "Scan"];

/// Whether an operator of the standard domain has graphs that decide on the computation.
pub(super) fn is_control(node: &Node) -> bool {
    matches!(&node.domain[..], "" | "ai.onnx") && CONTROL.contains(&&node.op_type[..])
}

impl<'a> Lowering<'a> {
    /// Lowers such an operator and returns its outputs.
    pub(super) fn control(&mut self, node: &'a Node, operator: &Operator<'a>) -> Lowered {
        match &node.op_type[..] {
            "If" => self.branch(node, operator),
            "Loop" => self.repeated(node, operator),
            _ => self.scanned(node, operator),
        }
    }

    fn branch(&mut self, node: &'a Node, operator: &Operator<'a>) -> Lowered {
        let condition = sound!(operator.typed(0, DType::Bool));
        let known = self.builder.tensor(condition).and_then(|tensor| integers(&tensor));
        let taken = match known.as_deref() {
            Some(&[truth]) => truth != 0,
            Some(_) => return Ok(Err(Fault::invalid("the condition is not one bool"))),
            None => return Ok(Err(Fault::run_time(condition.value, 0, "cond"))),
        };
        let graph = sound!(node.graph(if taken { "then_branch" } else { "else_branch" }));
        self.graph(graph, Vec::new())
    }

    /// Unrolls a loop. Inputs: the most iterations, whether to start, then values that go from one iteration to the
    /// next.
    fn repeated(&mut self, node: &'a Node, operator: &Operator<'a>) -> Lowered {
        let graph = sound!(node.graph("body"));
        let most = match operator.optional(0) {
            Some(_) => sound!(operator.known_int(&self.builder, 0, "M")),
            None => i64::MAX,
        };
        let mut condition = match operator.optional(1) {
            Some(view) => view.clone(),
            None => sound!(self.builder.scalar(DType::Bool, 1.0)),
        };
        let mut carried: Vec<View> =
            sound!((2..operator.count()).map(|index| operator.input(index).cloned()).collect());
        let mut collected: Vec<Vec<View>> = Vec::new();
        let mut pass = 0i64;
        while pass < most {
            let known = self.builder.tensor(&condition).and_then(|tensor| integers(&tensor));
            match known.as_deref() {
                Some([0]) => break,
                Some([_]) => {}
                Some(_) => return Ok(Err(Fault::invalid("the condition is not one bool"))),
                None if pass == 0 => return Ok(Err(Fault::run_time(condition.value, 1, "cond"))),
                None => return Ok(Err(Fault::unsupported("its condition is computed from the model's inputs"))),
            }
            let number = Tensor::from_i64s(&[pass]).reshaped(Shape::scalar()).expect("one element is a scalar");
            let number = sound!(self.builder.made(number));
            let mut outputs = sound!(self.graph(graph, [vec![number, condition], carried].concat())?);
            let states = operator.count().saturating_sub(2);
            if outputs.len() <= states {
                return Ok(Err(Fault::invalid("its body has too few outputs")));
            }
            condition = outputs.remove(0);
            let scans = outputs.split_off(states);
            carried = outputs;
            collect(&mut collected, scans);
            pass += 1;
        }
        let wanted = operator.output_count().saturating_sub(carried.len());
        if pass == 0 && wanted > 0 {
            return Ok(Err(Fault::unsupported(
                "the loop makes no pass, so the shape of a collected output is unknown",
            )));
        }
        for views in collected {
            carried.push(sound!(self.stacked(&views, 0, false)));
        }
        Ok(Ok(carried))
    }

    /// Unrolls a scan. Inputs: values that go from one iteration to the next, then values of which each iteration reads
    /// a slice.
    fn scanned(&mut self, node: &'a Node, operator: &Operator<'a>) -> Lowered {
        if operator.opset < 9 {
            return Ok(Err(Fault::unsupported("its versions before 9")));
        }
        let graph = sound!(node.graph("body"));
        let count = sound!(operator.size("num_scan_inputs", 1, 0));
        let states = match operator.count().checked_sub(count).filter(|_| count > 0) {
            Some(states) if graph.outputs.len() >= states => states,
            _ => return Ok(Err(Fault::attribute("num_scan_inputs", count, "the number of inputs at most"))),
        };
        let list = |name: &str, index: usize| {
            Ok::<_, Fault>(node.ints(name)?.and_then(|values| values.get(index)).copied().unwrap_or(0))
        };
        let mut scans = Vec::with_capacity(count);
        let mut passes = None;
        for index in 0..count {
            let view = sound!(operator.ranked(states + index, 1)).clone();
            let axis = sound!(axis_of(sound!(list("scan_input_axes", index)), view.rank()));
            let backwards = sound!(list("scan_input_directions", index)) == 1;
            if passes.is_some_and(|passes| passes != view.dims()[axis]) {
                return Ok(Err(Fault::invalid("the scanned inputs differ in length")));
            }
            passes = Some(view.dims()[axis]);
            scans.push((view, axis, backwards));
        }
        let passes = passes.unwrap_or(0);
        if passes == 0 {
            return Ok(Err(Fault::unsupported(
                "the loop makes no pass, so the shape of a collected output is unknown",
            )));
        }
        let mut carried: Vec<View> = sound!((0..states).map(|index| operator.input(index).cloned()).collect());
        let mut collected: Vec<Vec<View>> = Vec::new();
        for pass in 0..passes {
            let mut inputs = carried;
            for (view, axis, backwards) in &scans {
                let at = if *backwards { passes - 1 - pass } else { pass };
                let mut dims = view.dims().to_vec();
                dims.remove(*axis);
                let slice = sound!(self.builder.part(view, *axis, at, 1));
                inputs.push(sound!(slice.reshaped(dims)));
            }
            let mut outputs = sound!(self.graph(graph, inputs)?);
            let scanned = outputs.split_off(states);
            carried = outputs;
            collect(&mut collected, scanned);
        }
        for (index, views) in collected.into_iter().enumerate() {
            let rank = views.first().map_or(0, View::rank) + 1;
            let axis = sound!(axis_of(sound!(list("scan_output_axes", index)), rank));
            let backwards = sound!(list("scan_output_directions", index)) == 1;
            carried.push(sound!(self.stacked(&views, axis, backwards)));
        }
        Ok(Ok(carried))
    }

    /// Stacks views along a new axis.
    fn stacked(&mut self, views: &[View], axis: usize, backwards: bool) -> Result<View, Fault> {
        let single = |view: &View| {
            let mut dims = view.dims().to_vec();
            dims.insert(axis, 1);
            view.reshaped(dims)
        };
        let mut singles = views.iter().map(single).collect::<Result<Vec<_>, _>>()?;
        if backwards {
            singles.reverse();
        }
        let same = |view: &View| view.spec == singles[0].spec;
        if !singles.iter().all(same) {
            return Err(Fault::unsupported("passes that collect different shapes"));
        }
        self.builder.concatenated(&singles, axis)
    }

    /// Lowers a graph with these inputs and returns its outputs.
    pub(super) fn graph(&mut self, graph: &'a Subgraph, inputs: Vec<View>) -> Lowered {
        if graph.inputs.len() != inputs.len() {
            let (wanted, given) = (graph.inputs.len(), inputs.len());
            return Ok(Err(Fault::invalid(format!("its graph has {wanted} inputs, but receives {given}"))));
        }
        self.passes += 1;
        if self.passes > MOST_PASSES {
            return Ok(Err(Fault::unsupported(format!("more than {MOST_PASSES} branches and passes of loops"))));
        }
        self.unrolled = self.unrolled.saturating_add(graph.nodes.len());
        if self.unrolled > MOST_NODES {
            return Ok(Err(Fault::unsupported(format!("more than {MOST_NODES} nodes from branches and loops"))));
        }
        for (value, constant) in &graph.initializers {
            let view = self.builder.constant(self.model.value_name(*value), constant.clone());
            self.slots[value.index()] = Slot::Made(view);
        }
        for (value, view) in graph.inputs.iter().zip(inputs) {
            self.slots[value.index()] = Slot::Made(view);
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            self.node(index, node)?;
        }
        let output = |output: &crate::import::Output| match self.slot(output.value) {
            Slot::Made(view) => Ok(view),
            Slot::Lost => Err(Fault::unsupported("operators of its graph are not supported")),
            Slot::Empty => Err(Fault::invalid("no node produces an output of its graph")),
        };
        Ok(graph.outputs.iter().map(output).collect())
    }
}

/// Adds the results of one iteration to those of earlier iterations.
fn collect(collected: &mut Vec<Vec<View>>, views: Vec<View>) {
    collected.resize_with(views.len(), Vec::new);
    collected.iter_mut().zip(views).for_each(|(all, view)| all.push(view));
}
