//! Operators that move elements without changing them: permuted axes, and blocks between channels and space.

use super::{Builder, Entry, Fault, Operator, View, axes_in_order};

pub(super) const TABLE: &[Entry] =
    &[("Transpose", transpose), ("DepthToSpace", depth_to_space), ("SpaceToDepth", space_to_depth)];

fn transpose(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let permutation = match operator.node.ints("perm")? {
        None => (0..x.rank()).rev().collect(),
        Some(axes) => {
            let permutation = axes_in_order(Some(axes), x.rank()).ok().filter(|axes| axes.len() == x.rank());
            let expected = || format!("a permutation of the axes of shape {}", x.shape());
            permutation.ok_or_else(|| Fault::attribute("perm", axes, expected()))?
        }
    };
    Ok(vec![builder.transposed(x, &permutation)?])
}

/// Returns `[n, c, h, w]` and the block size.
fn blocks(operator: &Operator<'_>) -> Result<([usize; 4], usize), Fault> {
    let x = operator.input(0)?;
    let block = operator.size("blocksize", 1, 0)?;
    if block == 0 {
        return Err(Fault::attribute("blocksize", 0, "at least 1"));
    }
    let dims = <[usize; 4]>::try_from(x.dims())
        .map_err(|_| Fault::invalid(format!("the input has shape {}, but needs four dimensions", x.shape())))?;
    Ok((dims, block))
}

fn depth_to_space(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let ([n, c, h, w], block) = blocks(operator)?;
    let square = block.checked_mul(block).filter(|square| c.is_multiple_of(*square));
    let depth = c / square.ok_or_else(|| Fault::invalid(format!("{c} channels are not a multiple of {block}²")))?;
    let x = operator.input(0)?;
    let (split, permutation) = match operator.string("mode", "DCR")? {
        "DCR" => ([n, block, block, depth, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([n, depth, block, block, h, w], [0, 1, 4, 2, 5, 3]),
        other => return Err(Fault::attribute("mode", other, "DCR or CRD")),
    };
    let moved = builder.transposed(&x.reshaped(split)?, &permutation)?;
    Ok(vec![moved.reshaped(vec![n, depth, h.saturating_mul(block), w.saturating_mul(block)])?])
}

fn space_to_depth(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let ([n, c, h, w], block) = blocks(operator)?;
    if !h.is_multiple_of(block) || !w.is_multiple_of(block) {
        return Err(Fault::invalid(format!("{h}×{w} elements cannot be divided into blocks of {block}")));
    }
    let x = operator.input(0)?;
    let (rows, columns) = (h / block, w / block);
    let permutation = match operator.string("mode", "DCR")? {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        other => return Err(Fault::attribute("mode", other, "DCR or CRD")),
    };
    let moved = builder.transposed(&x.reshaped(vec![n, c, rows, block, columns, block])?, &permutation)?;
    let depth = c.saturating_mul(block).saturating_mul(block);
    Ok(vec![moved.reshaped(vec![n, depth, rows, columns])?])
}
