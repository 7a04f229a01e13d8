//! Products of matrices, in the implementations of the paper's figure 3 (section 3.2.2).
//!
//! For `C = A B` with `rows × depth` and `depth × columns`:
//!
//! * **Columns** (➁): a task for each column of `C`, a downsampler that reads `A` row by row and its column of `B`
//!   again and again: `rows × depth` elements to `rows`. If `depth ≥ columns`, an upsampler takes one element from each
//!   task and streams `C` row by row. Otherwise the columns are stored.
//! * **Rows**: as by columns, with the roles of the matrices exchanged, if there are more rows than columns.
//! * **Depth** (➂): a task for each column of `A` and row of `B`, whose outer product it streams, and a tree of
//!   element-wise sums: `2 depth − 1` tasks of `rows × columns` elements. That is more work, so it is taken only if it
//!   is faster than the others even without streaming.
//!
//! If the number of tasks is limited, each takes several columns, rows or depths, for which both matrices are stored.
//! One task with all columns is the inner product (➀). The matrices of a batch follow each other through the same
//! tasks.

use super::elements::epilogue;
use super::writer::{GraphWriter, Id, ValueSource};
use anabranch_kernels::op::MatMul;

/// Dimension along which the tasks of a product divide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProductKind {
    /// Figure 3 ➁; with one task ➀.
    Columns,
    /// Figure 3 ➁ with rows and columns exchanged.
    Rows,
    /// Figure 3 ➂.
    Depth,
}

/// Returns the implementation with the most parallel tasks.
///
/// Tasks are by columns or by rows, depending on which are more. They are by depth if the outer products and the levels
/// of their sums take less time than either even without streaming.
pub(super) fn product_kind(rows: u64, depth: u64, columns: u64) -> ProductKind {
    let levels = u64::from(depth.next_power_of_two().trailing_zeros());
    // The left side is rows × columns × (1 + levels). The right side is depth × min(rows, columns), the work of one
    // task of the other two.
    if rows.max(columns).saturating_mul(1 + levels) < depth {
        return ProductKind::Depth;
    }
    if columns >= rows { ProductKind::Columns } else { ProductKind::Rows }
}

/// Writes a [`MatMul`], with its epilogue.
pub(super) fn matmul(writer: &mut GraphWriter<'_>, op: &MatMul) -> Option<()> {
    let dims = |place: usize| Some(writer.node().spec.inputs.get(place)?.shape.dims().to_vec());
    let (a, b) = (dims(0)?, dims(1)?);
    let [.., a_outer, a_inner] = a[..] else { return None };
    let [.., b_outer, b_inner] = b[..] else { return None };
    let (rows, depth) = if op.transpose_a { (a_inner, a_outer) } else { (a_outer, a_inner) };
    let columns = if op.transpose_b { b_outer } else { b_inner };
    let (rows, depth, columns) = (rows as u64, depth as u64, columns as u64);
    product(writer, [rows, depth, columns], [!op.transpose_a, op.transpose_b])
}

/// Writes a product with weights of fewer bits. Its tasks read the weights as often as any others.
pub(super) fn narrow(writer: &mut GraphWriter<'_>) -> Option<()> {
    let spec = &writer.node().spec;
    let (&[rows, depth], &[_, columns]) = (spec.inputs.first()?.shape.dims(), spec.outputs.first()?.shape.dims())
    else {
        return None;
    };
    product(writer, [rows as u64, depth as u64, columns as u64], [true, false])
}

/// Writes a product and its epilogue. The last argument says whether A is stored by rows, and B by columns.
fn product(
    writer: &mut GraphWriter<'_>,
    [rows, depth, columns]: [u64; 3],
    [rows_in_order, columns_in_order]: [bool; 2],
) -> Option<()> {
    let batch = writer.written()? / rows.checked_mul(columns)?;
    let (left, right) = (writer.input(0)?, writer.input(1)?);
    let kind = product_kind(rows, depth, columns);
    let result = match kind {
        ProductKind::Depth => by_depth(writer, batch * rows, depth, columns)?,
        ProductKind::Columns | ProductKind::Rows => {
            let by_columns = kind == ProductKind::Columns;
            let (lines, other) = if by_columns { (columns, rows) } else { (rows, columns) };
            let shares = shares(lines, writer.granularity.product_tasks as u64);
            // The operand whose lines all tasks read, and whether it lies in that order, so that it can stream: A by
            // rows, or Bᵀ by columns.
            let (streamed, ordered) = if by_columns { (left, rows_in_order) } else { (right, columns_in_order) };
            let read = batch * other * depth;
            let whole = shares.len() == lines as usize && ordered && writer.elements(streamed) == read;
            let parts: Vec<Id> = shares
                .iter()
                .enumerate()
                .map(|(number, &share)| {
                    let first = if whole { writer.stream(streamed) } else { writer.memory(streamed, read * share) };
                    let second = if by_columns { right } else { left };
                    let second = writer.memory(second, read * share);
                    let role = if by_columns { "columns" } else { "rows" };
                    writer.task(&format!("{role} {number}"), &[first, second], read * share, batch * other * share)
                })
                .collect();
            let total = batch * rows * columns;
            if by_columns && whole && depth >= columns && parts.len() > 1 {
                ValueSource::Stream(writer.task("interleave", &parts, batch * rows, total))
            } else {
                writer.join(parts, total)
            }
        }
    };
    epilogue(writer, result)
}

/// Writes a product by depth: outer products and their sums. `rows` counts the rows of the whole batch.
pub(super) fn by_depth(writer: &mut GraphWriter<'_>, rows: u64, depth: u64, columns: u64) -> Option<ValueSource> {
    let area = rows * columns;
    let (left, right) = (writer.input(0)?, writer.input(1)?);
    let shares = shares(depth, writer.granularity.product_tasks as u64);
    let mut sums: Vec<Id> = Vec::with_capacity(shares.len());
    for (number, share) in shares.into_iter().enumerate() {
        let operands = [writer.memory(left, area * share), writer.memory(right, area * share)];
        sums.push(writer.task(&format!("outer {number}"), &operands, area * share, area));
    }
    let mut level = 0;
    while sums.len() > 1 {
        let sum = |(number, pair): (usize, &[Id])| match pair {
            [one] => *one,
            _ => writer.task(&format!("sum {level}.{number}"), pair, area, area),
        };
        sums = sums.chunks(2).enumerate().map(sum).collect();
        level += 1;
    }
    sums.first().map(|&sum| ValueSource::Stream(sum))
}

/// Divides `lines` into at most `tasks` shares, all but the last equal.
pub(super) fn shares(lines: u64, tasks: u64) -> Vec<u64> {
    let share = lines.div_ceil(tasks.clamp(1, lines.max(1)));
    let whole = lines / share.max(1);
    let rest = lines % share.max(1);
    std::iter::repeat_n(share, whole as usize).chain((rest > 0).then_some(rest)).collect()
}
