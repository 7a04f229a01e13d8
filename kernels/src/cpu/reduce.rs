//! Reductions over axes.
//!
//! The axes are merged to `outer × reduced × inner` where they lie side by side, and walked one by one where they do
//! not. Long `f32` rows are cut into pieces of fixed length, whose results are joined pairwise.

use super::check::{require, require_copy};
use super::elements::{elements, elements_mut};
use super::number::Number;
use super::{Call, CpuKernel};
use crate::dtype::DType;
use crate::error::KernelError;
use crate::op::{NodeSpec, Reduce, ReduceKind};
use std::marker::PhantomData;

/// Elements read that are worth a hand-over to another thread.
const PIECE: usize = 16_384;

/// A reduction of numbers of one type.
struct ReduceKernel<T> {
    kind: ReduceKind,
    /// For each kept axis, then for each reduced axis: size and distance in elements.
    kept: Vec<(usize, usize)>,
    reduced: Vec<(usize, usize)>,
    count: usize,
    number: PhantomData<T>,
}

/// Prepares a reduction.
pub(crate) fn prepare(node: &NodeSpec, op: &Reduce) -> Result<Box<dyn CpuKernel>, KernelError> {
    require_copy(node)?;
    let (input, output) = (&node.inputs[0].shape, &node.outputs[0].shape);
    let ascending = op.axes.windows(2).all(|pair| pair[0] < pair[1]);
    require(ascending && op.axes.iter().all(|axis| *axis < input.rank()), node, "its axes ascend within its input")?;
    let strides = input.strides();
    let axes = |reduced: bool| {
        let chosen = (0..input.rank()).filter(|axis| op.axes.contains(axis) == reduced && input.dims()[*axis] != 1);
        merged(chosen.map(|axis| (input.dims()[axis], strides[axis])))
    };
    let (kept, reduced) = (axes(false), axes(true));
    let size = |axes: &[(usize, usize)]| axes.iter().map(|(size, _)| size).product::<usize>();
    require(size(&kept) == output.elements(), node, "its output has the kept axes' elements")?;
    let count = size(&reduced);
    let kind = op.kind;
    Ok(match node.inputs[0].dtype {
        DType::F32 => Box::new(ReduceKernel::<f32> { kind, kept, reduced, count, number: PhantomData }),
        DType::F64 => Box::new(ReduceKernel::<f64> { kind, kept, reduced, count, number: PhantomData }),
        DType::I32 => Box::new(ReduceKernel::<i32> { kind, kept, reduced, count, number: PhantomData }),
        DType::I64 => Box::new(ReduceKernel::<i64> { kind, kept, reduced, count, number: PhantomData }),
        other => return Err(super::check::unsupported(node, format!("there is no reduction of {other}"))),
    })
}

/// Neighbouring axes that are one axis in memory become one.
fn merged(axes: impl Iterator<Item = (usize, usize)>) -> Vec<(usize, usize)> {
    let mut merged: Vec<(usize, usize)> = Vec::new();
    for (size, stride) in axes {
        match merged.last_mut() {
            Some(last) if last.1 == stride * size => *last = (last.0 * size, stride),
            _ => merged.push((size, stride)),
        }
    }
    merged
}

/// The element offset of an index over these axes.
fn offset(axes: &[(usize, usize)], mut index: usize) -> usize {
    let mut offset = 0;
    for (size, stride) in axes.iter().rev() {
        offset += index % size * stride;
        index /= size;
    }
    offset
}

impl<T: Number> ReduceKernel<T> {
    /// One output element.
    fn reduce(&self, source: &[T], start: usize) -> T {
        match self.reduced.as_slice() {
            [] => T::finish(self.kind, T::fold(self.kind, &source[start..=start]), 1),
            [(count, 1)] => T::finish(self.kind, T::fold(self.kind, &source[start..start + count]), self.count),
            _ => {
                let elements: Vec<T> = (0..self.count).map(|i| source[start + offset(&self.reduced, i)]).collect();
                T::finish(self.kind, T::fold(self.kind, &elements), self.count)
            }
        }
    }
}

impl<T: Number> CpuKernel for ReduceKernel<T> {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[T] = elements(call.inputs[0]);
        let target: &mut [T] = elements_mut(call.outputs[0]);
        if target.is_empty() {
            return Ok(());
        }
        if self.count == 0 {
            target.fill(T::finish(self.kind, T::fold(self.kind, &[]), 0));
            return Ok(());
        }
        let piece = (PIECE / self.count).max(1);
        call.team.run_pieces(target, piece, &|index, target| {
            for (at, target) in target.iter_mut().enumerate() {
                *target = self.reduce(source, offset(&self.kept, index * piece + at));
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::testing::{run_all_ways, shape, tensor};
    use crate::op::{NodeSpec, Op, Reduce, ReduceKind};
    use crate::{DType, TensorSpec};

    fn reduced(dtype: DType, kind: ReduceKind, dims: &[usize], axes: &[usize]) -> Vec<f64> {
        let input = tensor(dtype, dims, |i| ((i * 7) % 5) as f64 - 1.0);
        let kept: Vec<_> = (0..dims.len()).filter(|axis| !axes.contains(axis)).map(|axis| dims[axis]).collect();
        let node = NodeSpec {
            op: Op::Reduce(Reduce { kind, axes: axes.to_vec() }),
            inputs: vec![input.spec().clone()],
            outputs: vec![TensorSpec::new(dtype, shape(&kept))],
        };
        let got = run_all_ways(&node, &[input]).remove(0);
        match dtype {
            DType::F32 => got.elements::<f32>().expect("f32").iter().map(|v| f64::from(*v)).collect(),
            DType::F64 => got.elements::<f64>().expect("f64").to_vec(),
            DType::I32 => got.elements::<i32>().expect("i32").iter().map(|v| f64::from(*v)).collect(),
            _ => got.elements::<i64>().expect("i64").iter().map(|v| *v as f64).collect(),
        }
    }

    /// By the definition.
    fn naive(kind: ReduceKind, dims: &[usize], axes: &[usize]) -> Vec<f64> {
        let strides = shape(dims).strides();
        let kept: Vec<_> = (0..dims.len()).filter(|axis| !axes.contains(axis)).collect();
        let size = |axes: &[usize]| axes.iter().map(|axis| dims[*axis]).product::<usize>();
        let place = |axes: &[usize], mut index: usize| {
            axes.iter().rev().fold(0, |sum, axis| {
                let here = index % dims[*axis] * strides[*axis];
                index /= dims[*axis];
                sum + here
            })
        };
        let value = |flat: usize| ((flat * 7) % 5) as f64 - 1.0;
        (0..size(&kept))
            .map(|k| {
                let values: Vec<f64> = (0..size(axes)).map(|r| value(place(&kept, k) + place(axes, r))).collect();
                let sum = |f: fn(f64) -> f64| values.iter().map(|v| f(*v)).sum::<f64>();
                match kind {
                    ReduceKind::Sum => sum(|v| v),
                    ReduceKind::Mean => sum(|v| v) / values.len() as f64,
                    ReduceKind::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    ReduceKind::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
                    ReduceKind::Product => values.iter().product(),
                    ReduceKind::SumOfSquares => sum(|v| v * v),
                    ReduceKind::SumOfMagnitudes => sum(f64::abs),
                    ReduceKind::LogSumExp => sum(f64::exp).ln(),
                }
            })
            .collect()
    }

    #[test]
    fn every_kind_over_any_axes() {
        use ReduceKind::{LogSumExp, Max, Mean, Min, Product, Sum, SumOfMagnitudes, SumOfSquares};
        for (dims, axes) in [
            (vec![3, 4], vec![1]),
            (vec![3, 4], vec![0]),
            (vec![2, 3, 4, 5], vec![2, 3]),
            (vec![2, 3, 4, 5], vec![1]),
            (vec![2, 3, 4, 5], vec![0, 2]),
            (vec![2, 1, 3], vec![0, 1, 2]),
            (vec![40_000], vec![0]),
            (vec![3], vec![]),
        ] {
            for kind in [Sum, Mean, Max, Min, SumOfSquares, SumOfMagnitudes, LogSumExp, Product] {
                for dtype in [DType::F32, DType::F64, DType::I32, DType::I64] {
                    let is_float = dtype.is_float();
                    if (kind == LogSumExp || kind == Mean) && !is_float || kind == Product && dims[0] > 100 {
                        continue;
                    }
                    let (got, want) = (reduced(dtype, kind, &dims, &axes), naive(kind, &dims, &axes));
                    assert_eq!(got.len(), want.len());
                    let close = |g: f64, w: f64| (g - w).abs() <= 1e-5 * w.abs().max(1.0);
                    assert!(got.iter().zip(&want).all(|(g, w)| close(*g, *w)), "{kind:?} {dtype} {dims:?} {axes:?}");
                }
            }
        }
    }
}
