//! Streaming blocks: nodes that are computed together, chunk of rows by chunk of rows.

mod check;

use super::{NodeSpec, RowPlan};
use serde::{Deserialize, Serialize};

/// Nodes of one device that stream into each other (a spatial block of De Matteis 2023, section 4, carried to a device that
/// is not spatial): each chunk of rows goes through all members before the next, so that what passes between members
/// stays in cache and never exists whole.
///
/// The node's inputs are what members read from outside. Every tensor that passes between members is cut into `rows` equal
/// rows, and so is every input that a member reads row by row. A last member that does not divide into rows is a reduction
/// over everything, which takes the chunks one after the other: its output is there after the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The nodes, in topological order; each has one output.
    pub members: Vec<Member>,
    /// For each output of the node, the member whose output it is; ascending.
    pub outputs: Vec<usize>,
    /// Rows in all, ≥ 2: a divisor of the rows of every member that divides into rows.
    pub rows: usize,
    /// Rows that are computed at a time.
    pub chunk_rows: usize,
}

/// One node of a [`Block`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// What is computed.
    pub spec: NodeSpec,
    /// Where each of its inputs comes from.
    pub inputs: Vec<Operand>,
}

/// Where a member's input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operand {
    /// The node's input of this index.
    Input(usize),
    /// The output of an earlier member.
    Member(usize),
}

impl Block {
    /// How the block divides into rows, for `inputs` inputs: as its members do. An input is windowed if every member that
    /// reads it reads it row by row.
    pub(crate) fn row_plan(&self, inputs: usize) -> RowPlan {
        let mut windowed = vec![true; inputs];
        for member in &self.members {
            let plan = member.spec.row_plan();
            for (at, operand) in member.inputs.iter().enumerate() {
                if let Operand::Input(input) = operand
                    && let Some(windowed) = windowed.get_mut(*input)
                {
                    *windowed &= plan.as_ref().is_none_or(|plan| plan.windowed.get(at).copied().unwrap_or(false));
                }
            }
        }
        RowPlan { rows: self.rows, windowed }
    }

    /// Whether the last member reduces everything, so that its output is whole only after the last chunk.
    pub fn ends_in_reduction(&self) -> bool {
        self.members.last().is_some_and(|member| member.spec.row_plan().is_none())
    }
}
