//! An independent checker of programs: whether a program keeps the promises of [`Program`], from the definitions alone.
//!
//! Lowering makes only valid programs; a file may hold any program.

use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_kernels::op::Op;
use anabranch_kernels::{TensorSpec, cpu};
use std::collections::{BTreeMap, BTreeSet};

/// Upper limit of the bytes of all values together: more than any machine has, and small enough that sums of sizes do
/// not overflow.
const MOST: u64 = 1 << 46;

/// Returns the fault of a program, if it has one.
///
/// Prepares each node's kernel, which checks the node itself. O(nodes + edges), plus the work for the kernels' tables.
pub(super) fn fault(program: &Program) -> Option<String> {
    ids(program).or_else(|| values(program)).or_else(|| callers(program)).or_else(|| nodes(program))
}

/// Checks that all ids exist.
fn ids(program: &Program) -> Option<String> {
    let read = program.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs));
    let values = read.chain(&program.inputs).chain(program.outputs.iter().map(|output| &output.value));
    let missing = values.into_iter().find(|value| value.index() >= program.values.len());
    missing.map(|value| format!("there is no value {value}"))
}

/// Checks that each value comes from its stated origin only.
fn values(program: &Program) -> Option<String> {
    let bytes = program.values.iter().map(|value| value.spec.bytes() as u64).fold(0, u64::saturating_add);
    if bytes >= MOST {
        return Some("its values are larger than any machine".into());
    }
    // Number of times that each value is made, and its last maker; `None` for inputs.
    let mut made = vec![(0usize, None); program.values.len()];
    let outputs = program.node_ids().flat_map(|id| program.node(id).outputs.iter().map(move |value| (value, Some(id))));
    for (value, maker) in outputs.chain(program.inputs.iter().map(|input| (input, None))) {
        made[value.index()] = (made[value.index()].0 + 1, maker);
    }
    let sound = |at: usize| {
        let value = &program.values[at];
        match &value.origin {
            Origin::Constant(constant) => made[at].0 == 0 && *constant.spec() == value.spec,
            Origin::Input => made[at] == (1, None),
            Origin::Node(node) => made[at] == (1, Some(*node)),
        }
    };
    let wrong = (0..program.values.len()).find(|at| !sound(*at));
    wrong.map(|at| format!("value {:?} has another origin than stated", program.values[at].name))
}

/// Checks that the names of inputs and outputs are unique, and that their types are as stated.
fn callers(program: &Program) -> Option<String> {
    let mut specs = BTreeMap::new();
    let inputs = program.inputs.iter().map(|input| program.value(*input));
    if let Some(again) = inputs.into_iter().find(|input| specs.insert(&input.name, &input.spec).is_some()) {
        return Some(format!("it has two inputs {:?}", again.name));
    }
    let fits = |(name, spec): (&String, &TensorSpec)| specs.get(name) == Some(&spec);
    if let Some((name, _)) = program.fixed.iter().find(|(name, tensor)| !fits((name, tensor.spec()))) {
        return Some(format!("its input {name:?} has elements of another type"));
    }
    let wrong = program.outputs.iter().find(|output| !is_view(&output.spec, &program.value(output.value).spec));
    wrong.map(|output| format!("output {:?} is another value than stated", output.name))
}

/// Checks that each node reads only values that exist by then, under possible shapes, and has a kernel.
fn nodes(program: &Program) -> Option<String> {
    let mut names = BTreeSet::new();
    program.node_ids().find_map(|id| {
        let node = program.node(id);
        let problem = if !names.insert(&node.name) {
            Some("there are two nodes of its name".to_owned())
        } else if !reads(program, id) {
            Some("it reads a value that does not exist yet, or has another type".to_owned())
        } else {
            unsound(program, id)
        };
        problem.map(|problem| format!("node {:?}: {problem}", node.name))
    })
}

fn reads(program: &Program, id: NodeId) -> bool {
    let node = program.node(id);
    let is_there = |value: &ValueId| match program.value(*value).origin {
        Origin::Node(maker) => maker < id,
        Origin::Input | Origin::Constant(_) => true,
    };
    let specs = |values: &[ValueId], specs: &[TensorSpec], fits: fn(&TensorSpec, &TensorSpec) -> bool| {
        let all = values.iter().zip(specs).all(|(value, spec)| fits(spec, &program.value(*value).spec));
        values.len() == specs.len() && all
    };
    node.inputs.iter().all(is_there)
        && specs(&node.inputs, &node.spec.inputs, is_view)
        && specs(&node.outputs, &node.spec.outputs, |made, value| made == value)
}

/// Returns the reason that there is no kernel for a node.
fn unsound(program: &Program, id: NodeId) -> Option<String> {
    let node = program.node(id);
    if let Op::Pool(pool) = &node.spec.op
        && pool.window[0].checked_mul(pool.window[1]).is_none()
    {
        return Some("its window is too large".into());
    }
    let constants: Vec<bool> = node.inputs.iter().map(|input| program.constant(*input).is_some()).collect();
    cpu::prepare(&node.spec, &constants).err().map(|error| error.to_string())
}

/// Whether elements of the spec `made` can be read under the spec `read`.
fn is_view(read: &TensorSpec, made: &TensorSpec) -> bool {
    (read.dtype, read.shape.elements()) == (made.dtype, made.shape.elements())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_ir::program::ModelOperator;
    use anabranch_kernels::{Shape, Tensor};
    use anabranch_plan::test_programs::{Maker, add, relu};

    /// The program `y = relu(x) + x`.
    fn program() -> Program {
        let mut maker = Maker::new();
        let x = maker.input(&[2, 3]);
        let a = maker.node(relu(), &[x], &[2, 3]);
        let y = maker.node(add(), &[a, x], &[2, 3]);
        maker.finish(&[y])
    }

    #[test]
    fn each_wrong_reference_type_and_name_is_found() {
        assert_eq!(fault(&program()), None);
        type Change = fn(&mut Program);
        let changes: [(&str, Change); 12] = [
            ("no value v9", |program| program.nodes[0].inputs[0] = ValueId(9)),
            ("no value v7", |program| program.outputs[0].value = ValueId(7)),
            ("has another origin", |program| program.values[1].origin = Origin::Node(NodeId(9))),
            ("has another origin", |program| program.values[1].origin = Origin::Input),
            ("has another origin", |program| program.values[0].spec.dtype = anabranch_kernels::DType::I64),
            ("has another origin", |program| program.inputs.push(ValueId(0))),
            ("it reads", |program| program.nodes.swap(0, 1)),
            ("it reads", |program| program.nodes[0].inputs.clear()),
            ("two nodes of its name", |program| program.nodes[1].name = program.nodes[0].name.clone()),
            ("is another value", |program| program.outputs[0].spec.shape = Shape::scalar()),
            ("has elements of", |program| drop(program.fixed.insert("none".into(), Tensor::from_i64s(&[1])))),
            ("node", |program| program.nodes[1].spec.op = relu()),
        ];
        for (expected, change) in changes {
            let mut program = program();
            change(&mut program);
            program.nodes[0].operators.push(ModelOperator::new("more", "Relu"));
            let found = fault(&program).unwrap_or_default();
            let swapped = expected == "it reads" && found.contains("has another origin");
            let typed = expected == "has another origin" && found.contains("it reads");
            assert!(found.contains(expected) || swapped || typed, "{expected}: {found}");
        }
    }
}
