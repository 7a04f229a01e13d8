//! Attention over a key-value cache: one pass over the valid keys and values of a query, in time independent of the
//! cache's capacity.
//!
//! Keys and values pass in tiles that a near cache holds; all queries that share them, of all heads of a group, use a
//! tile before the next is read. The softmax is computed online: scores become exponentials relative to the greatest so
//! far, and the sums are scaled when a greater score comes (Milakov and Gimelshein 2018). Tiles begin at fixed
//! positions and a query's sums depend on its own keys alone, so that neither threads nor neighbours change its bits.

mod block;
mod part;
mod stored;

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{LANES, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Attention, AttentionSizes, NodeSpec};
use anabranch_op::shape::Shape;
use bytemuck::Pod;
use half::{bf16, f16};
use part::Part;
use std::marker::PhantomData;
use std::ops::Range;
use stored::Stored;

/// Queries of a group that pass over keys together, about.
const QUERIES_PER_PASS: usize = 64;

/// Numbers of the keys of a tile, about: 16 KiB.
const TILE: usize = 4096;

/// Multiply-adds that are worth a hand-over to another thread.
const PIECE: usize = 1 << 15;

/// The kernel of an attention.
pub(crate) fn prepare(node: &NodeSpec, op: &Attention) -> Result<Box<dyn CpuKernel>, KernelError> {
    let sizes = node
        .attention_sizes()
        .ok_or_else(|| node.invalid("required: its queries, keys and values have four dimensions"))?;
    let bias = node.inputs.get(5).map(|of| Bias::new(&of.shape, &sizes)).transpose()?;
    Ok(match node.inputs[1].dtype {
        DType::F16 => Box::new(Kernel::<f16>::new(op, sizes, bias)),
        DType::BF16 => Box::new(Kernel::<bf16>::new(op, sizes, bias)),
        _ => Box::new(Kernel::<f32>::new(op, sizes, bias)),
    })
}

/// Where the summands of scores lie: their distances along batch, heads, queries and keys, and the keys that have any.
struct Bias {
    strides: [usize; 4],
    keys: usize,
}

impl Bias {
    fn new(shape: &Shape, sizes: &AttentionSizes) -> Result<Self, KernelError> {
        let keys = shape.dims()[3];
        let own = if keys == 1 { sizes.capacity } else { keys };
        let scores = Shape::new([sizes.batch, sizes.heads, sizes.queries, own])?;
        let strides = shape.broadcast_strides(&scores)?;
        Ok(Self { strides: [0, 1, 2, 3].map(|axis| strides[axis]), keys: own })
    }
}

struct Kernel<S> {
    op: Attention,
    sizes: AttentionSizes,
    bias: Option<Bias>,
    /// Keys of a tile.
    tile: usize,
    /// Positions whose queries pass over keys together.
    rows: usize,
    stored: PhantomData<S>,
}

/// A row of the batch in a call.
#[derive(Clone, Copy)]
struct Row {
    /// The position of its first query.
    first: i64,
    /// Its keys.
    filled: usize,
}

impl<S: Stored> Kernel<S> {
    fn new(op: &Attention, sizes: AttentionSizes, bias: Option<Bias>) -> Self {
        let tile = (TILE / sizes.depth.max(sizes.width).max(1)).clamp(LANES, 8 * LANES) / LANES * LANES;
        let rows = (QUERIES_PER_PASS * sizes.shared / sizes.heads.max(1)).max(1);
        Self { op: op.clone(), sizes, bias, tile, rows, stored: PhantomData }
    }

    /// Heads of queries that share keys.
    fn group(&self) -> usize {
        self.sizes.heads / self.sizes.shared
    }

    /// The keys that a query sees.
    fn seen(&self, row: Row, query: usize) -> Range<usize> {
        let position = row.first.saturating_add(query as i64);
        let reach = |distance: usize| i64::try_from(distance).unwrap_or(i64::MAX);
        let end = self.op.after.map_or(i64::MAX, |after| position.saturating_add(reach(after)).saturating_add(1));
        let start = self.op.before.map_or(0, |before| position.saturating_sub(reach(before)));
        let end = usize::try_from(end.max(0)).unwrap_or(usize::MAX).min(row.filled);
        usize::try_from(start.max(0)).unwrap_or(usize::MAX).min(end)..end
    }

    /// A row of the batch, whose length is sound.
    fn row(&self, first: i64, filled: i64) -> Row {
        let most = self.bias.as_ref().map_or(self.sizes.capacity, |bias| bias.keys.min(self.sizes.capacity));
        Row { first, filled: (filled as usize).min(most) }
    }

    /// Checks the lengths of all rows of the batch.
    fn verify(&self, filled: &[i64]) -> Result<(), KernelError> {
        let is_sound = |keys: i64| usize::try_from(keys).is_ok_and(|keys| keys <= self.sizes.capacity);
        filled.iter().enumerate().try_for_each(|(row, filled)| {
            is_sound(*filled).then_some(()).ok_or_else(|| KernelError::Value {
                op: "attention",
                reason: format!("{filled} keys exceed a capacity of {} (row {row} of the batch)", self.sizes.capacity),
            })
        })
    }

    /// Returns the parts of the output: whole groups of heads, as many as pay together.
    fn grid(&self, rows: impl Iterator<Item = Row>) -> Grid {
        let AttentionSizes { batch, heads, queries, depth, width, .. } = self.sizes;
        let last = queries.saturating_sub(1);
        let keys = rows.map(|row| self.seen(row, last).len()).max().unwrap_or(0);
        let work = keys * self.rows.min(queries) * self.group() * (depth + width);
        let groups = (PIECE / work.max(1)).clamp(1, self.sizes.shared);
        let tile_columns = groups * self.group() * width;
        Grid { batch, rows: queries, columns: heads * width, tile_rows: self.rows, tile_columns }
    }

    /// One tile of the output: some positions of some groups of heads.
    fn compute(&self, mut tile: Tile<'_, f32>, row: Row, call: &Inputs<'_, S>) {
        let (item, left, width) = (tile.matrix, tile.columns.start, self.sizes.width);
        let wide = self.group() * width;
        for shared in left / wide..tile.columns.end / wide {
            let members = Members { kernel: self, call, row, item, shared, queries: tile.rows.clone() };
            with_workspace(Part::<S>::workspace_len(members.count(), self), |workspace| {
                let made = vectorised(Part { members: &members, workspace });
                for (at, made) in made.chunks_exact(width).enumerate() {
                    let (head, query) = members.place(at);
                    let out = &mut tile.row(query - members.queries.start)[head * width - left..];
                    out[..width].copy_from_slice(made);
                }
            });
        }
    }
}

/// Queries that use the same keys and values: those of some positions, of all heads of a group, head by head.
struct Members<'a, S> {
    kernel: &'a Kernel<S>,
    call: &'a Inputs<'a, S>,
    row: Row,
    /// The row's number.
    item: usize,
    /// The head of keys and values.
    shared: usize,
    queries: Range<usize>,
}

impl<S: Stored> Members<'_, S> {
    fn count(&self) -> usize {
        self.kernel.group() * self.queries.len()
    }

    /// Head and position of a query.
    #[inline(always)]
    fn place(&self, at: usize) -> (usize, usize) {
        let (head, query) = (at / self.queries.len(), at % self.queries.len());
        (self.shared * self.kernel.group() + head, self.queries.start + query)
    }

    /// Its features.
    #[inline(always)]
    fn query(&self, at: usize) -> &[f32] {
        let AttentionSizes { heads, queries, depth, .. } = self.kernel.sizes;
        let (head, query) = self.place(at);
        &self.call.queries[((self.item * heads + head) * queries + query) * depth..][..depth]
    }

    /// The keys that it sees.
    #[inline(always)]
    fn seen(&self, at: usize) -> Range<usize> {
        self.kernel.seen(self.row, self.place(at).1)
    }

    /// The summands of its scores, and their distance.
    #[inline(always)]
    fn summands(&self, at: usize) -> Option<(&[f32], usize)> {
        let [item, of_head, of_query, of_key] = self.kernel.bias.as_ref()?.strides;
        let (head, query) = self.place(at);
        Some((&self.call.bias[self.item * item + head * of_head + query * of_query..], of_key))
    }

    /// Some keys, and their values.
    #[inline(always)]
    fn cached(&self, keys: Range<usize>) -> [&[S]; 2] {
        let AttentionSizes { shared, capacity, depth, width, .. } = self.kernel.sizes;
        let list = (self.item * shared + self.shared) * capacity;
        let of = |all: usize| (list + keys.start) * all..(list + keys.end) * all;
        [&self.call.keys[of(depth)], &self.call.values[of(width)]]
    }
}

/// The tensors of a call.
struct Inputs<'a, S> {
    queries: &'a [f32],
    keys: &'a [S],
    values: &'a [S],
    bias: &'a [f32],
}

impl<S: Stored + Pod> CpuKernel for Kernel<S> {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let [queries, keys, values, first, filled, bias @ ..] = call.inputs else {
            unreachable!("five inputs at least, as was checked")
        };
        let (first, filled) = (elements::<i64>(first), elements::<i64>(filled));
        self.verify(filled)?;
        let rows = first.iter().zip(filled).map(|(first, filled)| self.row(*first, *filled));
        let bias = bias.first().map_or(&[][..], |bias| elements(bias));
        let inputs = Inputs::<S> { queries: elements(queries), keys: elements(keys), values: elements(values), bias };
        let out: &mut [f32] = elements_mut(call.outputs[0]);
        call.team.run_tiles(out, self.grid(rows), &|tile| {
            let row = self.row(first[tile.matrix], filled[tile.matrix]);
            self.compute(tile, row, &inputs);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
