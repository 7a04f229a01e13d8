//! Iteration spaces of several operands, with as few dimensions as their strides allow, and their indices as WGSL.

use anabranch_op::shape::{Shape, merged};
use std::fmt::Write;

/// Dimensions of a loop nest, and the strides of each operand along them, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// Sizes, outermost first; none is 1.
    pub(crate) dims: Vec<usize>,
    /// Strides of each operand; negative ones step backwards.
    pub(crate) strides: Vec<Vec<isize>>,
}

impl Space {
    /// Creates the space of `dims`; neighbouring dimensions are merged if every operand runs through both in one
    /// stride.
    pub(crate) fn collapsed(dims: &[usize], strides: &[Vec<isize>]) -> Self {
        let axes = dims.iter().enumerate().map(|(axis, dim)| (*dim, strides.iter().map(|s| s[axis]).collect()));
        let steps = |outer: &Vec<isize>, inner: &Vec<isize>, size: usize| {
            outer.iter().zip(inner).all(|(outer, inner)| Some(*outer) == inner.checked_mul(size as isize))
        };
        let kept: Vec<(usize, Vec<isize>)> = merged(axes, steps);
        let strides = (0..strides.len()).map(|operand| kept.iter().map(|(_, s)| s[operand]).collect()).collect();
        Self { dims: kept.iter().map(|(dim, _)| *dim).collect(), strides }
    }

    /// Returns WGSL statements that split `index` into the coordinates `c0`, `c1`, … of this space.
    pub(crate) fn coordinates(&self, index: &str) -> String {
        split(index, "c", &self.dims)
    }

    /// Returns a WGSL expression of the operand's offset at the coordinates.
    pub(crate) fn offset(&self, operand: usize) -> String {
        offset("c", &self.strides[operand])
    }

    /// Whether the operand is read in order: its offset is the index itself.
    pub(crate) fn is_dense(&self, operand: usize) -> bool {
        let mut expected = 1;
        self.dims.iter().zip(&self.strides[operand]).rev().all(|(dim, stride)| {
            let dense = *stride == expected;
            expected = expected.saturating_mul(*dim as isize);
            dense
        })
    }
}

/// Returns the strides with which an operand of `shape` is read at every element of `target`, if it can be broadcast to
/// it.
pub(crate) fn broadcast_strides(shape: &Shape, target: &Shape) -> Result<Vec<isize>, anabranch_op::shape::ShapeError> {
    Ok(shape.broadcast_strides(target)?.into_iter().map(|stride| stride as isize).collect())
}

/// Returns WGSL statements `let prefix0 = …;` that split a row-major `index` over `dims`.
pub(crate) fn split(index: &str, prefix: &str, dims: &[usize]) -> String {
    let mut text = String::new();
    let mut inner: usize = dims.iter().product();
    for (axis, dim) in dims.iter().enumerate() {
        inner /= (*dim).max(1);
        let quotient = if inner == 1 { index.to_string() } else { format!("({index} / {inner}u)") };
        let value = if axis == 0 { quotient } else { format!("{quotient} % {dim}u") };
        let _ = writeln!(text, "    let {prefix}{axis} = {value};");
    }
    text
}

/// Returns a WGSL expression `prefix0 * stride + …`. Negative strides wrap around, as do all sums of `u32`.
pub(crate) fn offset(prefix: &str, strides: &[isize]) -> String {
    let terms: Vec<_> = strides
        .iter()
        .enumerate()
        .filter(|(_, stride)| **stride != 0)
        .map(|(axis, stride)| match stride {
            1 => format!("{prefix}{axis}"),
            _ => format!("{prefix}{axis} * {}u", *stride as i32 as u32),
        })
        .collect();
    if terms.is_empty() { "0u".into() } else { terms.join(" + ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_merge_where_all_operands_allow() {
        let dense = vec![60, 20, 5, 1];
        for (dims, strides, want) in [
            (vec![2, 3, 4, 5], vec![dense.clone()], vec![120]),
            (vec![2, 3, 4, 5], vec![dense.clone(), vec![0, 0, 0, 0]], vec![120]),
            (vec![2, 3, 4, 5], vec![dense.clone(), vec![0, 1, 0, 0]], vec![2, 3, 20]),
            (vec![2, 1, 4, 5], vec![vec![20, 7, 5, 1]], vec![40]),
            (vec![1, 1], vec![vec![1, 1]], vec![]),
        ] {
            assert_eq!(Space::collapsed(&dims, &strides).dims, want, "{dims:?} {strides:?}");
        }
    }

    #[test]
    fn indices_are_written_as_wgsl() {
        let space = Space { dims: vec![2, 3, 4], strides: vec![vec![12, 4, 1], vec![-1, 0, 2]] };
        assert!(space.is_dense(0) && !space.is_dense(1));
        assert_eq!(space.offset(1), "c0 * 4294967295u + c2 * 2u");
        let text = "    let c0 = (i / 12u);\n    let c1 = (i / 4u) % 3u;\n    let c2 = i % 4u;\n";
        assert_eq!(space.coordinates("i"), text);
    }
}
