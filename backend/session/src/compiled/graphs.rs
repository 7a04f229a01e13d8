//! An independent checker of the rest of a model: whether its nodes form a graph, from the definitions alone.
//!
//! The import makes only such graphs; a file may hold any nodes.

use anabranch_ir::constant::Constant;
use anabranch_onnx::import::{Model, Node, Subgraph, ValueIndex};
use anabranch_onnx::lower::is_host_operator;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the first fault of a graph whose nodes read the model's inputs, the values that are `made` before them and
/// constants.
///
/// `steps` are the nodes that the host computes first. O((nodes + edges) · log values); recurses as deep as graphs are
/// nested.
pub(super) fn fault(
    model: &Model,
    made: &[ValueIndex],
    steps: &[u32],
    known: &BTreeMap<ValueIndex, Constant>,
) -> Option<String> {
    let mut names = BTreeSet::new();
    if let Some(again) = model.values.iter().find(|name| !names.insert(*name)) {
        return Some(format!("there are two values {again:?}"));
    }
    let ascend = steps.windows(2).all(|pair| pair[0] < pair[1]);
    if !ascend || !steps.iter().all(|at| model.nodes.get(*at as usize).is_some_and(is_host_operator)) {
        return Some("a first operator is not computed by the host".into());
    }
    let given: BTreeSet<_> = model.inputs.iter().map(|input| input.value).chain(made.iter().copied()).collect();
    if given.len() != model.inputs.len() + made.len() {
        return Some("a value is defined twice".into());
    }
    let mut judge = Judge { free: vec![true; model.values.len()], names: BTreeSet::new() };
    let mut seen = given.into_iter().chain(known.keys().copied()).collect::<BTreeSet<_>>();
    let judged = seen.iter().try_for_each(|value| judge.make(*value));
    let judged = judged.and_then(|()| judge.nodes(&model.nodes, &mut seen));
    let unmade = || model.outputs.iter().find(|output| !seen.contains(&output.value));
    judged.err().or_else(|| unmade().map(|output| format!("no operator produces output {:?}", output.name)))
}

struct Judge<'m> {
    /// For each value, whether no node has made it yet.
    free: Vec<bool>,
    names: BTreeSet<&'m str>,
}

impl<'m> Judge<'m> {
    /// Records that a node makes a value.
    fn make(&mut self, value: ValueIndex) -> Result<(), String> {
        match self.free.get_mut(value.index()) {
            Some(free) if *free => *free = false,
            Some(_) => return Err(format!("value {} is produced twice", value.0)),
            None => return Err(format!("there is no value {}", value.0)),
        }
        Ok(())
    }

    /// Checks nodes of a graph in which these values exist; adds their outputs.
    fn nodes(&mut self, nodes: &'m [Node], seen: &mut BTreeSet<ValueIndex>) -> Result<(), String> {
        nodes.iter().try_for_each(|node| {
            let wrong = |why: &str| Err(format!("node {:?}: {why}", node.name));
            if !self.names.insert(&node.name) {
                return wrong("there are two operators of its name");
            }
            if [&node.inputs, &node.outputs].iter().any(|values| values.last() == Some(&None)) {
                return wrong("its last input or output is left out");
            }
            if node.all_inputs().any(|value| !seen.contains(&value)) {
                return wrong("it reads a value that does not exist yet");
            }
            node.graphs().try_for_each(|graph| self.graph(graph))?;
            let mut outputs = node.outputs.iter().flatten();
            outputs.try_for_each(|value| {
                seen.insert(*value);
                self.make(*value)
            })
        })
    }

    fn graph(&mut self, graph: &'m Subgraph) -> Result<(), String> {
        let own: Vec<_> = graph.inputs.iter().chain(graph.initializers.keys()).copied().collect();
        own.iter().try_for_each(|value| self.make(*value))?;
        let mut seen = graph.captured.iter().copied().chain(own).collect();
        self.nodes(&graph.nodes, &mut seen)?;
        // An output that a function's caller left out is not made.
        let mut unmade = graph.outputs.iter().map(|output| output.value).filter(|value| !seen.contains(value));
        unmade.try_for_each(|value| self.make(value))
    }
}
