//! Streaming blocks: nodes that are computed together, chunk of rows by chunk of rows.

mod check;

use super::{NodeSpec, RowPlan};
use serde::{Deserialize, Serialize};

/// Nodes of one device that stream into each other, chunk by chunk.
///
/// Each chunk of rows goes through all members before the next chunk starts. The tensors between members therefore stay
/// in cache and never exist whole. This is a spatial block (De Matteis 2023, section 4) on a device that is not
/// spatial.
///
/// The node's inputs are the tensors that members read from outside. Every tensor that passes between members is cut
/// into `rows` equal rows, and so is every input that a member reads row by row. If the last member does not divide
/// into rows, it is a reduction over everything. It takes the chunks one after the other, and its output is complete
/// after the last chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Nodes in topological order; each has one output.
    pub members: Vec<Member>,
    /// Member that makes each output of the node; ascending.
    pub outputs: Vec<usize>,
    /// Total number of rows, ≥ 2: a divisor of the rows of every member that divides into rows.
    pub rows: usize,
    /// Number of rows computed at a time.
    pub chunk_rows: usize,
}

/// One node of a [`Block`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Op and tensors of the member.
    pub spec: NodeSpec,
    /// Source of each of its inputs.
    pub inputs: Vec<Operand>,
}

/// Source of a member's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operand {
    /// Input of the node with this index.
    Input(usize),
    /// Output of an earlier member.
    Member(usize),
}

impl Block {
    /// Division of the block into rows, which is that of its members, for `inputs` inputs. An input is windowed if
    /// every member that reads it reads it row by row.
    #[doc(hidden)]
    pub fn row_plan(&self, inputs: usize) -> RowPlan {
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

    /// Whether the last member reduces everything, so that its output is complete only after the last chunk.
    pub fn ends_in_reduction(&self) -> bool {
        self.members.last().is_some_and(|member| member.spec.row_plan().is_none())
    }
}
