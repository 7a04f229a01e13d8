//! Removes the parts of a program that no output needs, and numbers the rest again.

use anabranch_ir::program::{Node, NodeId, Origin, Program, Value, ValueId};

/// Removes nodes on which no output depends, and unused values. All inputs stay, in their order. O(nodes + edges).
pub(super) fn compact(program: Program) -> Program {
    let live = live_nodes(&program);
    let used = used_values(&program, &live);
    let mut new_ids: Vec<Option<ValueId>> = vec![None; program.values.len()];
    let mut kept = 0;
    for (index, used) in used.iter().enumerate() {
        if *used {
            new_ids[index] = Some(ValueId(kept));
            kept += 1;
        }
    }
    let id = |old: ValueId| new_ids[old.index()].expect("what a live node or the caller touches is kept");
    let renumbered = |node: Node| Node {
        inputs: node.inputs.iter().map(|value| id(*value)).collect(),
        outputs: node.outputs.iter().map(|value| id(*value)).collect(),
        ..node
    };
    let nodes: Vec<_> =
        program.nodes.into_iter().zip(&live).filter(|(_, live)| **live).map(|(node, _)| renumbered(node)).collect();
    let mut values: Vec<Value> =
        program.values.into_iter().zip(&used).filter(|(_, used)| **used).map(|(value, _)| value).collect();
    for (index, node) in nodes.iter().enumerate() {
        for output in &node.outputs {
            values[output.index()].origin = Origin::Node(NodeId(index as u32));
        }
    }
    let mut outputs = program.outputs;
    outputs.iter_mut().for_each(|output| output.value = id(output.value));
    let inputs = program.inputs.iter().map(|value| id(*value)).collect();
    Program { values, nodes, inputs, outputs, fixed: program.fixed }
}

fn live_nodes(program: &Program) -> Vec<bool> {
    let mut needed = vec![false; program.values.len()];
    program.outputs.iter().for_each(|output| needed[output.value.index()] = true);
    let mut live = vec![false; program.nodes.len()];
    for (index, node) in program.nodes.iter().enumerate().rev() {
        live[index] = node.outputs.iter().any(|output| needed[output.index()]);
        if live[index] {
            node.inputs.iter().for_each(|input| needed[input.index()] = true);
        }
    }
    live
}

/// Marks the values that a live node or the caller reads or makes.
fn used_values(program: &Program, live: &[bool]) -> Vec<bool> {
    let mut used = vec![false; program.values.len()];
    let touched = program.nodes.iter().zip(live).filter(|(_, live)| **live);
    let touched = touched.flat_map(|(node, _)| node.inputs.iter().chain(&node.outputs));
    for value in touched.chain(&program.inputs).chain(program.outputs.iter().map(|output| &output.value)) {
        used[value.index()] = true;
    }
    used
}
