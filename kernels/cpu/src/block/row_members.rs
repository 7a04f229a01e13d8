//! Members of a block with their kernels, and the positions of their data.

use super::arena::{self, Lifetime};
use anabranch_cpu_base::{Call, CpuKernel, Packing, Team};
use anabranch_cpu_data::reduce::{self, Streamed};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Block, NodeSpec, Op, Operand};
use anabranch_op::tensor::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Position of a member's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// Output of the block with this index.
    Output(usize),
    /// The thread's memory, from this byte on.
    Arena(usize),
}

/// Source of one input of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    from: From,
    /// Bytes of each of the block's rows; `None` for an input that is read whole.
    row: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum From {
    /// Input of the block; if it is windowed, a call has only its own rows of it.
    Input { index: usize, windowed: bool },
    /// Output of an earlier member.
    Member(Destination),
}

/// Data that can be read while a chunk is computed.
pub(super) struct Readable<'a> {
    /// Rows of the chunk.
    pub(super) rows: &'a Range<usize>,
    /// First row of the call, with which windowed inputs begin.
    pub(super) first_row: usize,
    pub(super) inputs: &'a [&'a [u8]],
    /// First row of the stripe, with which outputs begin.
    pub(super) stripe_row: usize,
    pub(super) outputs: &'a [&'a mut [u8]],
    /// The thread's memory, without the part between these two.
    pub(super) below: &'a [u8],
    pub(super) above: (usize, &'a [u8]),
}

impl Source {
    /// Returns the index of the block's input, if the source is one.
    pub(super) fn input(&self) -> Option<usize> {
        match self.from {
            From::Input { index, .. } => Some(index),
            From::Member(_) => None,
        }
    }

    /// Returns the bytes that a member reads of it.
    pub(super) fn bytes<'a>(&self, readable: &Readable<'a>) -> &'a [u8] {
        let rows = |bytes: &'a [u8], first: usize, row: usize| {
            &bytes[(readable.rows.start - first) * row..(readable.rows.end - first) * row]
        };
        match (self.from, self.row) {
            (From::Input { index, .. }, None) => readable.inputs[index],
            (From::Input { index, windowed }, Some(row)) => {
                rows(readable.inputs[index], if windowed { readable.first_row } else { 0 }, row)
            }
            (From::Member(Destination::Output(output)), row) => {
                rows(&*readable.outputs[output], readable.stripe_row, row.unwrap_or(0))
            }
            (From::Member(Destination::Arena(place)), row) => {
                let length = row.unwrap_or(0) * readable.rows.len();
                match place.checked_sub(readable.above.0) {
                    Some(place) => &readable.above.1[place..place + length],
                    None => &readable.below[place..place + length],
                }
            }
        }
    }
}

/// Member that divides into rows.
pub(super) struct RowMember {
    pub(super) kernel: Box<dyn CpuKernel>,
    sources: Vec<Source>,
    target: Destination,
    /// Bytes of its output in each of the block's rows.
    row: usize,
    /// Number of its own rows in each of the block's rows.
    rows: usize,
}

/// Prepares the members that divide into rows. Also returns the bytes that pass between them at a time.
pub(super) fn members(
    node: &NodeSpec,
    block: &Block,
    chunk_rows: usize,
    constants: &[bool],
) -> Result<(Vec<RowMember>, usize), KernelError> {
    let (places, arena) = places(block, chunk_rows);
    let mut members = Vec::new();
    for (at, member) in block.members.iter().enumerate() {
        let Some(plan) = member.spec.row_plan() else { break };
        let constant = |operand: &Operand| match operand {
            Operand::Input(input) => constants.get(*input) == Some(&true),
            Operand::Member(_) => false,
        };
        let constants: Vec<_> = member.inputs.iter().map(constant).collect();
        let kernel = crate::prepare(&member.spec, &constants)?;
        let mut sources = sources(node, block, at, &places);
        // A call may pass nothing for inputs that the member keeps packed, so no rows of them are looked up.
        let kept = sources.iter_mut().enumerate().filter(|(input, _)| !kernel.reads(*input));
        kept.for_each(|(_, source)| source.row = None);
        members.push(RowMember {
            kernel,
            sources,
            target: places[at],
            row: member.spec.outputs[0].bytes() / block.rows,
            rows: plan.rows / block.rows,
        });
    }
    Ok((members, arena))
}

/// Reduction at the end of a block.
pub(super) struct Reduction {
    pub(super) kernel: Box<dyn Streamed>,
    /// Source of its input.
    pub(super) source: Source,
}

/// Returns the reduction at the block's end, if there is one.
pub(super) fn reduction(node: &NodeSpec, block: &Block) -> Result<Option<Reduction>, KernelError> {
    let Some(last) = block.members.last().filter(|_| block.ends_in_reduction()) else { return Ok(None) };
    let Op::Reduce(op) = &last.spec.op else { return Ok(None) };
    let (places, _) = places(block, block.chunk_rows.min(block.rows));
    let source = sources(node, block, block.members.len() - 1, &places)[0];
    Ok(Some(Reduction { kernel: reduce::prepare(&last.spec, op)?, source }))
}

/// Returns the position of each member's output, for chunks of `chunk_rows` rows, and the bytes of the thread's memory.
fn places(block: &Block, chunk_rows: usize) -> (Vec<Destination>, usize) {
    let output = |at: usize| block.outputs.iter().position(|output| *output == at);
    let last_read = |at: usize| {
        let reads = |member: &anabranch_op::op::Member| member.inputs.contains(&Operand::Member(at));
        block.members.iter().rposition(reads).unwrap_or(at)
    };
    let kept: Vec<usize> = (0..block.members.len()).filter(|at| output(*at).is_none()).collect();
    let lifetime = |at: &usize| {
        let bytes = block.members[*at].spec.outputs[0].bytes() / block.rows * chunk_rows;
        Lifetime { written: *at, read: last_read(*at), bytes }
    };
    let (kept_places, arena) = arena::places(&kept.iter().map(lifetime).collect::<Vec<_>>());
    let mut kept_places = kept_places.into_iter();
    let place =
        |at| output(at).map_or_else(|| Destination::Arena(kept_places.next().unwrap_or(0)), Destination::Output);
    ((0..block.members.len()).map(place).collect(), arena)
}

fn sources(node: &NodeSpec, block: &Block, at: usize, places: &[Destination]) -> Vec<Source> {
    let member = &block.members[at];
    let plan = member.spec.row_plan();
    let given = block.row_plan(node.inputs.len());
    let source = |(input, operand): (usize, &Operand)| {
        let windowed = plan.as_ref().is_none_or(|plan| plan.windowed[input]);
        let row = windowed.then(|| member.spec.inputs[input].bytes() / block.rows);
        let from = match operand {
            Operand::Input(index) => From::Input { index: *index, windowed: given.windowed[*index] },
            Operand::Member(of) => From::Member(places[*of]),
        };
        Source { from, row }
    };
    member.inputs.iter().enumerate().map(source).collect()
}

impl RowMember {
    /// Returns the block's input that is the member's input, if there is one.
    fn given(&self, input: usize) -> Option<usize> {
        self.sources.get(input)?.input()
    }

    /// Returns the block's constants that the member needs packed.
    pub(super) fn packings(&self) -> impl Iterator<Item = Packing> {
        let of_block = |packing: Packing| Some(Packing { input: self.given(packing.input)?, ..packing });
        self.kernel.packings().into_iter().filter_map(of_block)
    }

    /// Takes its packed constants from the front of `packed`.
    pub(super) fn keep(&mut self, packed: &mut &[Arc<Buffer>]) {
        let (own, rest) = packed.split_at(self.packings().count().min(packed.len()));
        self.kernel.keep(own);
        *packed = rest;
    }

    /// Whether the member reads an input of the block unpacked.
    pub(super) fn reads(&self, input: usize) -> bool {
        (0..self.sources.len()).any(|own| self.given(own) == Some(input) && self.kernel.reads(own))
    }

    /// Computes the member's rows in the chunk `rows`. `stripe_row` and `outputs` belong to the stripe, `first_row` and
    /// `inputs` to the call.
    pub(super) fn run(
        &self,
        rows: &Range<usize>,
        (first_row, inputs): (usize, &[&[u8]]),
        (stripe_row, outputs): (usize, &mut [&mut [u8]]),
        arena: &mut [u8],
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let (start, length) = ((rows.start - stripe_row) * self.row, rows.len() * self.row);
        let mut taken: &mut [u8] = &mut [];
        let (below, target, above) = match self.target {
            Destination::Output(output) => {
                // Taken out while it is written: the member reads other outputs.
                taken = std::mem::take(&mut outputs[output]);
                (&*arena, &mut taken[start..start + length], (usize::MAX, &[][..]))
            }
            Destination::Arena(place) => {
                let (below, rest) = arena.split_at_mut(place);
                let (target, above) = rest.split_at_mut(length);
                (&*below, target, (place + length, &*above))
            }
        };
        let readable = Readable { rows, first_row, inputs, stripe_row, outputs, below, above };
        let inputs: Vec<&[u8]> = self.sources.iter().map(|source| source.bytes(&readable)).collect();
        let rows = rows.start * self.rows..rows.end * self.rows;
        let done =
            self.kernel.run(Call { inputs: &inputs, outputs: &mut [target], rows, scratch, team: &Team::solo() });
        if let Destination::Output(output) = self.target {
            outputs[output] = taken;
        }
        done
    }
}
