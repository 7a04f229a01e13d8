//! Checks that a block fits its definition, on which the kernels of all devices rely.

use super::{Block, Operand};
use crate::error::KernelError;
use crate::op::{NodeSpec, Op};
use crate::tensor::TensorSpec;

impl Block {
    /// Checks that `node`, whose op is this block, fits the definition. Operands exist and agree in type and size. Each
    /// member has one output, which is read. All members except a final reduction divide into the block's rows.
    /// O(members · inputs).
    ///
    /// # Errors
    /// The first condition that does not hold, and the member that violates it.
    pub(crate) fn check(&self, node: &NodeSpec) -> Result<(), KernelError> {
        if self.members.is_empty() || self.rows < 2 || self.chunk_rows == 0 {
            let reason = "it has at least one member, two rows, and one row a chunk";
            return Err(node.invalid(format!(
                "{reason}; here {}, {}, {}",
                self.members.len(),
                self.rows,
                self.chunk_rows
            )));
        }
        (0..self.members.len()).try_for_each(|at| {
            self.check_member(node, at)
                .map_err(|reason| node.invalid(format!("member {at} ({}) {reason}", self.members[at].spec.op.name())))
        })?;
        self.check_outputs(node).map_err(|reason| node.invalid(reason))
    }

    fn check_member(&self, node: &NodeSpec, at: usize) -> Result<(), String> {
        let member = &self.members[at];
        let spec = &member.spec;
        if matches!(spec.op, Op::Block(_)) {
            return Err("is a block itself".into());
        }
        if member.inputs.len() != spec.inputs.len() || spec.outputs.len() != 1 {
            let (operands, inputs) = (member.inputs.len(), spec.inputs.len());
            return Err(format!("has {operands} operands for {inputs} inputs and {} outputs", spec.outputs.len()));
        }
        for (input, (operand, wanted)) in member.inputs.iter().zip(&spec.inputs).enumerate() {
            let given =
                self.operand(node, at, *operand).ok_or_else(|| format!("reads {operand:?}, which does not exist"))?;
            if !same_data(given, wanted) {
                return Err(format!("reads {given} as {wanted} at input {input}"));
            }
        }
        self.check_rows(at)?;
        spec.check().map_err(|error| error.to_string())
    }

    fn check_rows(&self, at: usize) -> Result<(), String> {
        let member = &self.members[at];
        let windowed = match member.spec.row_plan() {
            Some(plan) if plan.rows.is_multiple_of(self.rows) => plan.windowed,
            Some(plan) => {
                return Err(format!("has {} rows, which is not a multiple of the block's {}", plan.rows, self.rows));
            }
            None if at + 1 < self.members.len() => {
                return Err("cannot be divided into rows, and is not the last".into());
            }
            None if member.spec.accumulated_rows().is_none() => {
                return Err("cannot be divided into rows, and does not reduce row by row".into());
            }
            None if !member.spec.inputs[0].shape.elements().is_multiple_of(self.rows) => {
                return Err(format!(
                    "reduces {}, which cannot be divided into {} rows",
                    member.spec.inputs[0], self.rows
                ));
            }
            None => vec![true],
        };
        let whole = |(operand, windowed): (&Operand, &bool)| matches!(operand, Operand::Member(_)) && !windowed;
        match member.inputs.iter().zip(&windowed).position(whole) {
            Some(input) => Err(format!("reads the whole of another member's output at input {input}")),
            None => Ok(()),
        }
    }

    fn check_outputs(&self, node: &NodeSpec) -> Result<(), String> {
        if !self.outputs.windows(2).all(|pair| pair[0] < pair[1]) || self.outputs.len() != node.outputs.len() {
            return Err(format!("its outputs {:?} are not {} members, ascending", self.outputs, node.outputs.len()));
        }
        for (member, wanted) in self.outputs.iter().zip(&node.outputs) {
            let made = self.members.get(*member).map(|member| &member.spec.outputs[0]);
            let made = made.ok_or_else(|| format!("output {member} of {} members", self.members.len()))?;
            if !same_data(made, wanted) {
                return Err(format!("member {member} produces {made}, not {wanted}"));
            }
        }
        let read = |at| self.members.iter().any(|member| member.inputs.contains(&Operand::Member(at)));
        match (0..self.members.len()).find(|at| !self.outputs.contains(at) && !read(*at)) {
            Some(at) => Err(format!("nothing reads the output of member {at}")),
            None => Ok(()),
        }
    }

    /// Returns the tensor that an operand of member `at` refers to.
    fn operand<'a>(&'a self, node: &'a NodeSpec, at: usize, operand: Operand) -> Option<&'a TensorSpec> {
        match operand {
            Operand::Input(input) => node.inputs.get(input),
            Operand::Member(member) if member < at => self.members[member].spec.outputs.first(),
            Operand::Member(_) => None,
        }
    }
}

/// Whether the data of one tensor can be read as the other tensor: shapes may differ, but the number of elements may
/// not.
fn same_data(a: &TensorSpec, b: &TensorSpec) -> bool {
    a.dtype == b.dtype && a.shape.elements() == b.shape.elements()
}
