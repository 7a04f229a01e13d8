//! Outputs that may lie in the memory of inputs: the caches of models that append to them.

use super::Plan;
use super::uses::{input_device, output_device};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_kernels::TensorSpec;
use anabranch_kernels::op::NodeSpec;
use anabranch_placement_core::platform::DeviceId;
use std::collections::BTreeMap;

/// An input whose memory an output may take, by their places in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// The input.
    pub input: usize,
    /// The output.
    pub output: usize,
    /// The device of both: the host or a GPU.
    pub device: DeviceId,
}

impl InPlace {
    /// All pairs of a plan. One device has the input and keeps the output, and computes one of the other in a kernel
    /// that [can](anabranch_kernels::op::NodeSpec::in_place) do so in place. No other node reads the input. O(n log n)
    /// for n nodes and edges.
    pub fn all(plan: &Plan, program: &Program) -> Vec<Self> {
        Self::among(program, &plan.device_of)
    }

    /// The pairs of a program whose task `t` is on `device_of[t]`.
    pub(super) fn among(program: &Program, device_of: &[DeviceId]) -> Vec<Self> {
        let placed = |(id, input, output): (NodeId, usize, usize)| {
            let device = device_of[id.index()];
            let ends = [input_device(program, device_of, input), output_device(program, device_of, output)];
            (ends == [device; 2]).then_some(Self { input, output, device })
        };
        Self::possible(program).into_iter().filter_map(placed).collect()
    }

    /// The nodes that work in place if one device has them, their input and their output: with the places of both.
    pub fn possible(program: &Program) -> Vec<(NodeId, usize, usize)> {
        let consumers = program.consumers();
        let inputs: BTreeMap<ValueId, usize> = program.inputs.iter().copied().zip(0..).collect();
        let mut outputs: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for (at, output) in program.outputs.iter().enumerate() {
            outputs.entry(output.value).or_default().push(at);
        }
        let pair = |id: NodeId| {
            let node = program.node(id);
            let (read, made) = node.spec.in_place()?;
            let (from, to) = (node.inputs[read], node.outputs[made]);
            let (input, &[output]) = (*inputs.get(&from)?, &outputs.get(&to)?[..]) else { return None };
            let once =
                consumers[from.index()] == [id] && node.inputs.iter().filter(|value| **value == from).count() == 1;
            let alike = node.spec.inputs[read].bytes() == node.spec.outputs[made].bytes();
            (once && !outputs.contains_key(&from) && alike).then_some((id, input, output))
        };
        program.node_ids().filter_map(pair).collect()
    }

    /// Returns a node that costs what `node` costs in place: its cache has room for the new positions alone.
    pub fn written(node: &NodeSpec) -> NodeSpec {
        let mut written = node.clone();
        if let Some((input, output)) = node.in_place() {
            let spec = TensorSpec::new(node.outputs[output].dtype, node.inputs[1].shape.clone());
            (written.inputs[input], written.outputs[output]) = (spec.clone(), spec);
        }
        written
    }
}
