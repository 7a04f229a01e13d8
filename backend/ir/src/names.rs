//! Names of nodes that compute several operators of the model, and uniqueness of names.

use crate::program::{ModelOperator, Program};
use std::collections::BTreeMap;

/// Most kinds of operators that a name spells out; the name counts the rest.
const MOST_KINDS: usize = 3;

/// Returns the name of a node that computes these operators.
///
/// The first operator's name places the node in the model; the kinds of the other operators follow, as in
/// `/layer1/conv1/Conv+Add+Relu`. After the first few kinds, the rest are counted: `Conv+Add+Relu+6`. Fully folded
/// operators are left out. If the first operator's name does not contain its kind, the kind is added:
/// `node_17/Conv+Relu`.
pub fn fused(operators: &[ModelOperator]) -> String {
    let mut computed = operators.iter().filter(|operator| !operator.folded).peekable();
    let Some(first) = computed.next().or(operators.first()) else { return String::new() };
    let mut name = first.name.clone();
    let says_kind = name.to_ascii_lowercase().contains(&first.kind.to_ascii_lowercase());
    if computed.peek().is_some() && !says_kind {
        name = format!("{name}/{}", first.kind);
    }
    for operator in computed.by_ref().take(MOST_KINDS - 1) {
        name = format!("{name}+{}", operator.kind);
    }
    match computed.count() {
        0 => name,
        more => format!("{name}+{more}"),
    }
}

/// Names all nodes of several operators after their operators. Other nodes keep their names.
pub fn name_fused(program: &mut Program) {
    let mut names = Names::default();
    let (fused_nodes, plain): (Vec<_>, Vec<_>) = program.nodes.iter_mut().partition(|node| node.operators.len() > 1);
    plain.into_iter().for_each(|node| node.name = names.unique(std::mem::take(&mut node.name)));
    fused_nodes.into_iter().for_each(|node| node.name = names.unique(fused(&node.operators)));
}

/// Names in use, each with the number to try next for a duplicate.
#[derive(Default)]
pub struct Names(BTreeMap<String, usize>);

impl Names {
    /// Returns `wanted`, with a number if the name is in use.
    pub fn unique(&mut self, wanted: String) -> String {
        let mut name = wanted.clone();
        while self.0.contains_key(&name) {
            let number = self.0.entry(wanted.clone()).or_insert(1);
            *number += 1;
            name = format!("{wanted}#{number}");
        }
        self.0.insert(name.clone(), 1);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Maker, relu};

    fn operator(name: &str, kind: &str) -> ModelOperator {
        ModelOperator::new(name, kind)
    }

    #[test]
    fn names_say_what_is_computed_and_stay_short() {
        let conv = operator("/layer1/conv1/Conv", "Conv");
        let norm = ModelOperator { folded: true, ..operator("/layer1/bn1/BatchNormalization", "BatchNormalization") };
        let (add, relu) = (operator("/layer1/Add", "Add"), operator("/layer1/relu/Relu", "Relu"));
        let cases: [(Vec<&ModelOperator>, &str); 5] = [
            (vec![&conv, &norm], "/layer1/conv1/Conv"),
            (vec![&conv, &norm, &relu], "/layer1/conv1/Conv+Relu"),
            (vec![&conv, &add, &relu], "/layer1/conv1/Conv+Add+Relu"),
            (vec![&conv, &add, &relu, &add, &relu], "/layer1/conv1/Conv+Add+Relu+2"),
            (vec![&norm], "/layer1/bn1/BatchNormalization"),
        ];
        for (operators, want) in cases {
            assert_eq!(fused(&operators.into_iter().cloned().collect::<Vec<_>>()), want);
        }
        assert_eq!(fused(&[operator("node_17", "Conv"), relu.clone()]), "node_17/Conv+Relu");
        assert_eq!(fused(&[operator("conv_17", "Conv"), relu]), "conv_17+Relu");
    }

    #[test]
    fn fused_names_are_unique_and_leave_others_alone() {
        let mut maker = Maker::new();
        let x = maker.input(&[4]);
        let values: Vec<_> = (0..3).map(|_| maker.node(relu(), &[x], &[4])).collect();
        let mut program = maker.finish(&values);
        for node in [0, 2] {
            program.nodes[node].operators = vec![operator("a/Add", "Add"), operator("a/Relu", "Relu")];
        }
        program.nodes[1].name = "a/Add+Relu".into();
        name_fused(&mut program);
        let names: Vec<_> = program.nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["a/Add+Relu#2", "a/Add+Relu", "a/Add+Relu#3"]);
    }
}
