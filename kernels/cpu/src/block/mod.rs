//! Blocks: all members run on one chunk of rows before the next, so that the tensors between them stay in cache.
//!
//! The rows of a call are cut into stripes for the team's threads. Each thread computes its stripe chunk by chunk, in
//! private memory. Members run as they do outside of blocks, for a range of their rows, so a block's results have the
//! bits of its members' results one after the other. The shapes and the block's chunk determine all cuts.

mod arena;
mod compose;
mod row_members;
mod stripe;
#[cfg(test)]
mod tests;

use anabranch_cpu_base::team::with_workspace;
use anabranch_cpu_base::{Call, CpuKernel, Packing};
use anabranch_cpu_data::reduce;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Block, NodeSpec};
use anabranch_op::tensor::{ALIGNMENT, Buffer};
use row_members::{Readable, Reduction, RowMember};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use stripe::Stripe;

/// Maximum stripes of a call: enough to keep a large machine busy.
const MOST_STRIPES: usize = 64;

/// Kernel of a block, ready to run.
struct BlockKernel {
    members: Vec<RowMember>,
    /// Reduction at the end, if there is one.
    reduction: Option<Reduction>,
    rows: usize,
    chunk_rows: usize,
    /// Bytes of each row of each output; 0 for the reduction's output.
    output_rows: Vec<usize>,
    memory: Memory,
}

/// Bytes of a thread's memory: the tensors between members, their scratch, and the unfinished part of a reduction.
#[derive(Clone, Copy, Default)]
struct Memory {
    arena: usize,
    scratch: usize,
    pending: usize,
}

pub(crate) fn prepare(node: &NodeSpec, block: &Block, constants: &[bool]) -> Result<Box<dyn CpuKernel>, KernelError> {
    let block = &compose::composed(block);
    let chunk_rows = block.chunk_rows.min(block.rows);
    let (members, arena) = row_members::members(node, block, chunk_rows, constants)?;
    let reduction = row_members::reduction(node, block)?;
    let output_row = |member: &usize| {
        let whole = reduction.is_some() && member + 1 == block.members.len();
        if whole { 0 } else { block.members[*member].spec.outputs[0].bytes() / block.rows }
    };
    let memory = Memory {
        arena: arena.next_multiple_of(ALIGNMENT),
        scratch: members.iter().map(|m| m.kernel.scratch_bytes()).max().unwrap_or(0).next_multiple_of(ALIGNMENT),
        pending: reduction.as_ref().map_or(0, |reduction| reduction.kernel.part_bytes()),
    };
    let output_rows = block.outputs.iter().map(output_row).collect();
    Ok(Box::new(BlockKernel { members, reduction, rows: block.rows, chunk_rows, output_rows, memory }))
}

impl BlockKernel {
    /// Cuts rows into nearly equal stripes of at most a chunk, if there are not too many. Returns their starts and the
    /// end of the last.
    fn stripes(&self, rows: &Range<usize>) -> Vec<usize> {
        let count = rows.len().div_ceil(self.chunk_rows).min(MOST_STRIPES).min(self.most_stripes(rows.len())).max(1);
        (0..=count).map(|stripe| rows.start + rows.len() * stripe / count).collect()
    }

    /// Returns the number of stripes of which each has at least one part of the reduction: only then do at most two
    /// stripes share a part.
    fn most_stripes(&self, rows: usize) -> usize {
        match &self.reduction {
            Some(reduction) => rows / reduction.kernel.part_bytes().div_ceil(self.reduced_row()).max(1),
            None => usize::MAX,
        }
    }

    /// Returns the bytes of a row of the reduction's input.
    fn reduced_row(&self) -> usize {
        self.reduction.as_ref().map_or(0, |reduction| reduction.kernel.input_bytes() / self.rows)
    }

    /// Runs all members on a stripe, chunk by chunk.
    fn run_stripe(&self, stripe: &mut Stripe<'_>, first_row: usize, inputs: &[&[u8]]) -> Result<(), KernelError> {
        let Memory { arena, scratch, pending } = self.memory;
        let floats = (arena + scratch + pending).div_ceil(size_of::<f32>());
        with_workspace(floats, |memory| {
            let (arena, rest) = bytemuck::cast_slice_mut::<f32, u8>(memory).split_at_mut(arena);
            let (scratch, pending) = rest.split_at_mut(scratch);
            let chunks = stripe.rows.len().div_ceil(self.chunk_rows);
            for chunk in 0..chunks {
                let bound = |chunk: usize| stripe.rows.start + stripe.rows.len() * chunk / chunks;
                let rows = bound(chunk)..bound(chunk + 1);
                let (stripe_row, outputs) = (stripe.rows.start, &mut stripe.outputs[..]);
                for member in &self.members {
                    member.run(&rows, (first_row, inputs), (stripe_row, outputs), arena, scratch)?;
                }
                if let (Some(reduction), Some(piece)) = (&self.reduction, &mut stripe.piece) {
                    let (below, above) = (&*arena, (usize::MAX, &[][..]));
                    let readable = Readable { rows: &rows, first_row, inputs, stripe_row, outputs, below, above };
                    piece.take(reduction.source.bytes(&readable), pending);
                }
            }
            if let Some(piece) = stripe.piece.take() {
                piece.end(pending);
            }
            Ok(())
        })
    }
}

impl CpuKernel for BlockKernel {
    fn scratch_bytes(&self) -> usize {
        let boundaries = self.stripes(&(0..self.rows)).len();
        self.reduction.as_ref().map_or(0, |reduction| reduce::scratch_bytes(reduction.kernel.as_ref(), boundaries))
    }

    fn resident_bytes(&self) -> usize {
        self.members.iter().map(|member| member.kernel.resident_bytes()).sum()
    }

    fn packings(&self) -> Vec<Packing> {
        self.members.iter().flat_map(RowMember::packings).collect()
    }

    fn keep(&mut self, mut packed: &[Arc<Buffer>]) {
        self.members.iter_mut().for_each(|member| member.keep(&mut packed));
    }

    fn reads(&self, input: usize) -> bool {
        let reduced = self.reduction.as_ref().is_some_and(|reduction| reduction.source.input() == Some(input));
        reduced || self.members.iter().any(|member| member.reads(input))
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        if call.rows.is_empty() {
            return Ok(());
        }
        let bounds = self.stripes(&call.rows);
        let bytes: Vec<usize> = bounds.iter().map(|row| row * self.reduced_row()).collect();
        let (result, outputs) = (self.reduction.is_some(), &mut *call.outputs);
        let (rest, reduced) = if result { split_last(outputs) } else { (outputs, None) };
        let pieces =
            self.reduction.as_ref().map(|reduction| reduce::cut(reduction.kernel.as_ref(), &bytes, call.scratch));
        let stripes = stripe::cut(&bounds, rest, &self.output_rows, pieces.unwrap_or_default());
        let outcomes: Vec<_> = stripes.into_iter().map(|stripe| Mutex::new((stripe, Ok(())))).collect();
        call.team.run(outcomes.len(), &|index| {
            let mut stripe = outcomes[index].lock().unwrap_or_else(PoisonError::into_inner);
            stripe.1 = self.run_stripe(&mut stripe.0, call.rows.start, call.inputs);
        });
        // Returns the first undefined value by rows, independent of the thread that found it.
        outcomes.into_iter().try_for_each(|o| o.into_inner().unwrap_or_else(PoisonError::into_inner).1)?;
        if let (Some(reduction), Some(output)) = (&self.reduction, reduced) {
            reduce::close(reduction.kernel.as_ref(), &bytes, call.scratch, output);
        }
        Ok(())
    }
}

/// Returns the windowed outputs, and the reduction's output.
fn split_last<'a, 'b>(outputs: &'a mut [&'b mut [u8]]) -> (&'a mut [&'b mut [u8]], Option<&'a mut &'b mut [u8]>) {
    match outputs.split_last_mut() {
        Some((last, rest)) => (rest, Some(last)),
        None => (&mut [], None),
    }
}
