//! Graphs within nodes: the branches of `If`, the bodies of `Loop` and `Scan`. Their values get indices of their own;
//! values of the surrounding graphs keep their indices.

use super::declared::{Declared, declared_output};
use super::error::{ImportError, Result};
use super::graph::{Builder, Maker, given_twice};
use super::model::{Node, Output, Subgraph, ValueIndex};
use super::proto::GraphProto;
use super::tensor::TensorReader;
use anabranch_base::count::count;
use anabranch_ir::constant::Constant;
use std::collections::{BTreeMap, BTreeSet};

impl<'p> Builder<'p> {
    /// Builds the graph that `proto` describes. Its names hide those of the surrounding graphs, which apply again after
    /// it.
    pub(super) fn subgraph(&mut self, proto: &'p GraphProto, tensors: &mut TensorReader<'_>) -> Result<Subgraph> {
        self.functions.enter();
        let (mut own, mut hidden) = (BTreeSet::new(), Vec::new());
        let outer = std::mem::take(&mut self.nodes);
        let given = proto.initializer.iter().map(|tensor| tensor.name.as_str());
        let given = given.chain(proto.input.iter().map(|input| input.name.as_str()));
        let made = proto.node.iter().flat_map(|node| node.output.iter().map(String::as_str));
        for name in given.chain(made).filter(|name| !name.is_empty()) {
            if self.index.get(name).is_some_and(|value| own.contains(value)) {
                continue;
            }
            let value = self.new_value(name);
            own.insert(value);
            hidden.push((name, self.index.insert(name, value)));
        }
        let outer_own = std::mem::replace(&mut self.own, own);
        let graph = self.contents(proto, tensors);
        self.own = outer_own;
        for (name, value) in hidden.into_iter().rev() {
            match value {
                Some(value) => self.index.insert(name, value),
                None => self.index.remove(name),
            };
        }
        self.nodes = outer;
        self.functions.leave();
        graph
    }

    fn contents(&mut self, proto: &'p GraphProto, tensors: &mut TensorReader<'_>) -> Result<Subgraph> {
        let mut initializers: BTreeMap<ValueIndex, Constant> = BTreeMap::new();
        for tensor in &proto.initializer {
            let value = self
                .make(&tensor.name, Maker::Initializer)
                .map_err(|_| given_twice().of("initializer", &tensor.name))?;
            initializers.insert(value, tensors.read_constant(tensor)?);
        }
        let mut inputs = Vec::with_capacity(proto.input.len());
        for input in &proto.input {
            inputs.push(self.make(&input.name, Maker::Input).map_err(|_| given_twice().of("input", &input.name))?);
        }
        for node in &proto.node {
            self.node(node, tensors)?;
        }
        // Values that calls of functions added are the graph's own, too.
        let mut own = std::mem::take(&mut self.own);
        self.order(|value| own.contains(&value))?;
        let nodes = std::mem::take(&mut self.nodes);
        let mut outputs = Vec::with_capacity(proto.output.len());
        for output in &proto.output {
            let Declared { kind, dtype, dims } = declared_output(output).unwrap_or_default();
            let known = self.read(&output.name).map_err(|error| error.of("output", &output.name))?;
            // An input that the call of a function leaves out is a value without a maker, which matters only if this
            // graph is run.
            let value = known.unwrap_or_else(|| {
                let nothing = self.new_value(&output.name);
                own.insert(nothing);
                nothing
            });
            outputs.push(Output { name: output.name.clone(), value, kind, dtype, dims, labels: None });
        }
        let read = nodes.iter().flat_map(Node::all_inputs).chain(outputs.iter().map(|output| output.value));
        let captured: BTreeSet<_> = read.filter(|value| !own.contains(value)).collect();
        let captured = captured.into_iter().collect();
        let height = Subgraph::height_over(&nodes);
        Ok(Subgraph { inputs, outputs, nodes, initializers, captured, height })
    }
}

/// Checks that both branches of an `If` give as many outputs, and all that the node has.
pub(super) fn check_branches(node: &Node) -> Result<()> {
    if !(node.op_type == "If" && node.domain.is_empty()) {
        return Ok(());
    }
    let [then, other] = ["then_branch", "else_branch"].map(|branch| (branch, node.graph(branch).ok()));
    for (branch, graph) in [then, other] {
        if let Some(given) = graph.map(|graph| graph.outputs.len()).filter(|given| *given < node.outputs.len()) {
            let text = format!(
                "its {branch} gives {}, but the node has {}; give the branch the missing outputs",
                count(given, "output"),
                node.outputs.len()
            );
            return Err(ImportError::malformed(text));
        }
    }
    match (then.1, other.1) {
        (Some(then), Some(other)) if then.outputs.len() != other.outputs.len() => {
            let (then, other) = (count(then.outputs.len(), "output"), other.outputs.len());
            let text = format!("its then_branch gives {then}, but its else_branch {other}; give both the same outputs");
            Err(ImportError::malformed(text))
        }
        _ => Ok(()),
    }
}
