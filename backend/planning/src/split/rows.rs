//! Proof that a program computes each row of a batch by itself, node by node.

use super::layout::Layout;
use super::rules::rule;
use anabranch_ir::program::{Program, ValueId};
use std::collections::BTreeMap;

/// Positions of the rows of a batch in all values of a program, each of whose rows depends on the same row of the
/// inputs only.
pub(super) struct Rows {
    /// Number of rows, at least 2.
    pub(super) batch: usize,
    /// For each value, where its rows are; `None` if it is the same for all rows.
    pub(super) values: Vec<Option<Layout>>,
    /// For each node that computes rows, where the rows are that it reads of each input; `None` for a node that is the
    /// same for all rows.
    pub(super) nodes: Vec<Option<Vec<Option<Layout>>>>,
}

/// Node whose rows depend on each other, and the reason.
#[derive(Debug)]
pub(super) struct Dependent {
    pub(super) node: String,
    pub(super) reason: String,
}

impl Rows {
    /// Follows the rows of the inputs through all nodes. O(edges × rank).
    ///
    /// # Errors
    /// The first node whose rows depend on each other, or for which there is no rule.
    pub(super) fn of(program: &Program, batch: usize, inputs: &BTreeMap<ValueId, Layout>) -> Result<Self, Dependent> {
        let mut values = vec![None; program.values.len()];
        inputs.iter().for_each(|(value, layout)| values[value.index()] = Some(*layout));
        let mut nodes = Vec::with_capacity(program.nodes.len());
        for node in &program.nodes {
            let given: Vec<_> = node.inputs.iter().map(|input| values[input.index()]).collect();
            if given.iter().all(Option::is_none) {
                nodes.push(None);
                continue;
            }
            let found = rule(&node.spec, &given, batch);
            let found = found.map_err(|reason| Dependent { node: node.model_name().to_owned(), reason })?;
            node.outputs.iter().zip(&found.outputs).for_each(|(value, rows)| values[value.index()] = Some(*rows));
            nodes.push(Some(found.reads));
        }
        Ok(Self { batch, values, nodes })
    }
}
