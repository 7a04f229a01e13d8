//! Outputs that may lie in the memory of inputs: the caches of models that append to them.

use super::{HOST, Plan};
use anabranch_ir::program::{NodeId, Program, ValueId};
use std::collections::BTreeMap;

/// An input whose memory an output may take, by their places in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// The input.
    pub input: usize,
    /// The output.
    pub output: usize,
}

impl InPlace {
    /// All pairs of a plan: the host computes the output of the input, in a kernel that
    /// [can](anabranch_kernels::op::NodeSpec::in_place) do so in place, and no other node reads the input. O(n log n)
    /// for n nodes and edges.
    pub fn all(plan: &Plan, program: &Program) -> Vec<Self> {
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
            let devices = [plan.device_of(id), plan.input_device(input), plan.output_device(output)];
            (once && !outputs.contains_key(&from) && alike && devices == [HOST; 3]).then_some(Self { input, output })
        };
        program.node_ids().filter_map(pair).collect()
    }
}
