//! Matrix products of 32-bit and 64-bit integers, exact modulo 2³² or 2⁶⁴; signed and unsigned products have the same
//! bits.
//!
//! Each row of the result is a sum of B's rows, or of products with them if B is stored transposed. The order of
//! integer sums does not matter, so the bits are the same for every division of the work.

use super::{Batches, Sizes, sizes};
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::{DType, Element};
use anabranch_op::error::KernelError;
use anabranch_op::op::{MatMul, NodeSpec};
use std::marker::PhantomData;

/// Products that are worth a hand-over to another thread.
const PIECE: usize = 1 << 16;

/// Unsigned integers, whose arithmetic wraps.
trait Modular: Element + Default {
    /// Returns `self + a · b`.
    fn plus(self, a: Self, b: Self) -> Self;
}

impl Modular for u32 {
    #[inline(always)]
    fn plus(self, a: Self, b: Self) -> Self {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

impl Modular for u64 {
    #[inline(always)]
    fn plus(self, a: Self, b: Self) -> Self {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

/// Whether the node's tensors all have one integer type that has a kernel.
pub(crate) fn fits(node: &NodeSpec) -> bool {
    let dtype = node.outputs[0].dtype;
    let wide = matches!(dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64);
    wide && node.inputs.iter().all(|input| input.dtype == dtype)
}

/// Prepares the kernel of a product whose tensors [fit](fits).
pub(crate) fn prepare(op: &MatMul, node: &NodeSpec) -> Result<Box<dyn CpuKernel>, KernelError> {
    if op.epilogue.is_some() {
        return Err(node.unsupported("a product of integers has no epilogue"));
    }
    match node.outputs[0].dtype.size() {
        4 => Ok(Box::new(Kernel::<u32>::new(op, node)?)),
        _ => Ok(Box::new(Kernel::<u64>::new(op, node)?)),
    }
}

struct Kernel<T> {
    sizes: Sizes,
    transpose_a: bool,
    transpose_b: bool,
    batches: Batches,
    number: PhantomData<T>,
}

impl<T: Modular> Kernel<T> {
    fn new(op: &MatMul, node: &NodeSpec) -> Result<Self, KernelError> {
        let (sizes, batches) = sizes(op, node)?;
        let MatMul { transpose_a, transpose_b, .. } = *op;
        Ok(Self { sizes, transpose_a, transpose_b, batches, number: PhantomData })
    }

    /// Computes the elements of C from `start` on, row by row.
    fn piece(&self, start: usize, c: &mut [T], a: &[T], b: &[T]) {
        let Sizes { m, n, k } = self.sizes;
        let mut done = 0;
        while done < c.len() {
            let (row, column) = ((start + done) / n, (start + done) % n);
            let length = (n - column).min(c.len() - done);
            let (left, right) = self.batches.operands(row / m);
            let (a, b) = (&a[left * m * k..][..m * k], &b[right * k * n..][..k * n]);
            self.row(row % m, column, a, b, &mut c[done..done + length]);
            done += length;
        }
    }

    /// Computes a part of row `row` of one product, from `column` on.
    fn row(&self, row: usize, column: usize, a: &[T], b: &[T], c: &mut [T]) {
        let Sizes { m, n, k } = self.sizes;
        let left = |depth: usize| if self.transpose_a { a[depth * m + row] } else { a[row * k + depth] };
        if self.transpose_b {
            for (at, c) in c.iter_mut().enumerate() {
                let right = &b[(column + at) * k..][..k];
                *c = right.iter().enumerate().fold(T::default(), |sum, (depth, b)| sum.plus(left(depth), *b));
            }
            return;
        }
        c.fill(T::default());
        for depth in 0..k {
            let factor = left(depth);
            let right = &b[depth * n + column..][..c.len()];
            c.iter_mut().zip(right).for_each(|(c, b)| *c = c.plus(factor, *b));
        }
    }
}

impl<T: Modular> CpuKernel for Kernel<T> {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (a, b) = (elements::<T>(call.inputs[0]), elements::<T>(call.inputs[1]));
        let length = (PIECE / self.sizes.k.max(1)).max(1);
        // Windowed operands begin with the products at hand; for other operands, the first product does not matter.
        call.team.run_pieces(elements_mut::<T>(call.outputs[0]), length, &|index, c| {
            self.piece(index * length, c, a, b);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{run_all_ways, shape};
    use anabranch_op::op::{MatMul, NodeSpec, Op};
    use anabranch_op::{DType, Tensor, TensorSpec};
    use arbtest::arbitrary::Result as Arbitrary;

    /// Returns a tensor of these bits.
    fn of(dtype: DType, dims: &[usize], bits: &[u64]) -> Tensor {
        match dtype.size() {
            4 => {
                let low: Vec<u8> = bits.iter().flat_map(|bits| (*bits as u32).to_ne_bytes()).collect();
                let buffer = std::sync::Arc::new(anabranch_op::Buffer::copied(&low));
                Tensor::new(TensorSpec::new(dtype, shape(dims)), buffer).expect("as many")
            }
            _ => {
                let buffer = std::sync::Arc::new(anabranch_op::Buffer::copied(bytemuck::cast_slice(bits)));
                Tensor::new(TensorSpec::new(dtype, shape(dims)), buffer).expect("as many")
            }
        }
    }

    #[test]
    fn products_of_integers_are_exact_modulo_their_width() {
        const ENDS: [u64; 9] =
            [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, (1 << 53) + 1, 1 << 31, (1 << 31) - 1, u32::MAX as u64];
        arbtest::arbtest(|u| {
            let dtype = *u.choose(&[DType::I32, DType::U32, DType::I64, DType::U64])?;
            let [m, k, n] = [u.int_in_range(1..=9)?, u.int_in_range(0..=11)?, u.int_in_range(1..=40)?];
            let batch: &[usize] = u.choose(&[&[][..], &[3], &[2, 2]])?;
            let shared: bool = u.arbitrary()?;
            let (transpose_a, transpose_b) = (u.arbitrary()?, u.arbitrary()?);
            let count: usize = batch.iter().product();
            let right = if shared { 1 } else { count };
            let mut bits = |count: usize| -> Arbitrary<Vec<u64>> {
                (0..count).map(|_| Ok(u.choose(&ENDS)?.wrapping_add(u.int_in_range(0..=3)?))).collect()
            };
            let (a, b) = (bits(count * m * k)?, bits(right * k * n)?);
            let side = |rows, columns, turned| if turned { [columns, rows] } else { [rows, columns] };
            let stack = |batch: &[usize], matrix: [usize; 2]| [batch, &matrix].concat();
            let b_batch = if shared { &[][..] } else { batch };
            let inputs = [
                of(dtype, &stack(batch, side(m, k, transpose_a)), &a),
                of(dtype, &stack(b_batch, side(k, n, transpose_b)), &b),
            ];
            let want: Vec<u64> = (0..count * m * n)
                .map(|at| {
                    let (matrix, i, j) = (at / (m * n), at / n % m, at % n);
                    let (a, b) = (&a[matrix * m * k..], &b[if shared { 0 } else { matrix * k * n }..]);
                    let of_a = |l| if transpose_a { a[l * m + i] } else { a[i * k + l] };
                    let of_b = |l| if transpose_b { b[j * k + l] } else { b[l * n + j] };
                    (0..k).fold(0u128, |sum, l| sum.wrapping_add(u128::from(of_a(l)) * u128::from(of_b(l)))) as u64
                })
                .collect();
            let dims = stack(batch, [m, n]);
            let node = NodeSpec {
                op: Op::MatMul(MatMul { transpose_a, transpose_b, epilogue: None, ..MatMul::default() }),
                inputs: inputs.iter().map(|input| input.spec().clone()).collect(),
                outputs: vec![TensorSpec::new(dtype, shape(&dims))],
            };
            let found = run_all_ways(&node, &inputs).remove(0);
            assert!(found.same_bits(&of(dtype, &dims, &want)), "{node:?}");
            Ok(())
        })
        .budget_ms(400);
    }
}
