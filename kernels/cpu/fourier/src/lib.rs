//! Discrete Fourier transforms of lines, by the fast transforms of `rustfft`, which take O(n log n) for any length.
//!
//! Lines of either type are transformed in `f64` and rounded once. Each part of the lines has its own section of the
//! scratch memory, so that the amount of memory does not depend on the number of threads.
//!
//! This crate is a part of `anabranch-kernels`, not a public interface. It is apart from other kernels because the
//! generic code of `rustfft` takes longer to compile than all kernels that move and reduce data.

#![forbid(unsafe_code)]

use anabranch_cpu_base::convert::{from_f64, to_f64};
use anabranch_cpu_base::elements::elements_mut;
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Fourier, NodeSpec};
use num_complex::Complex;
use rustfft::{Fft, FftDirection, FftPlanner};
use std::sync::Arc;

/// Maximum parts into which lines are cut.
const PARTS: usize = 16;

struct FourierKernel {
    op: Fourier,
    /// Number of lines.
    count: usize,
    /// Elements of a line that is read, and of a line that is made; and whether they have imaginary parts.
    read: (usize, bool),
    made: (usize, bool),
    dtype: DType,
    transform: Arc<dyn Fft<f64>>,
}

/// Builds the kernel for a node that fits its op's definition.
///
/// # Errors
/// If the tables of the transform take too much memory.
pub fn prepare(node: &NodeSpec, op: &Fourier) -> Result<Box<dyn CpuKernel>, KernelError> {
    let [(count, read), (_, made)] = [&node.inputs[0], &node.outputs[0]].map(|spec| match *spec.shape.dims() {
        [count, elements, parts] => (count, (elements, parts == 2)),
        _ => unreachable!("lines, as was checked"),
    });
    node.require_table("tables of sines", table_bytes(op.length))?;
    let direction = if op.inverse { FftDirection::Inverse } else { FftDirection::Forward };
    let transform = FftPlanner::new().plan_fft(op.length, direction);
    Ok(Box::new(FourierKernel { op: op.clone(), count, read, made, dtype: node.inputs[0].dtype, transform }))
}

/// Returns the maximum bytes of a transform's tables. Each level of small factors has as many numbers as positions, at
/// most three times the length in all. The rest of the length becomes a convolution (Bluestein 1970) up to four times
/// as long, with its own tables.
fn table_bytes(length: usize) -> usize {
    let mut rest = length.max(1);
    for factor in [2, 3, 5, 7, 11] {
        while rest.is_multiple_of(factor) {
            rest /= factor;
        }
    }
    let rest = if rest == 1 { 0 } else { rest };
    length.saturating_mul(3).saturating_add(rest.saturating_mul(12)).saturating_mul(size_of::<Complex<f64>>())
}

impl FourierKernel {
    /// Returns the lines of a part, and the complex numbers of its memory: a line, and the transform's own scratch.
    fn parts(&self) -> (usize, usize) {
        (self.count.div_ceil(PARTS).max(1), self.op.length + self.transform.get_inplace_scratch_len())
    }

    /// Transforms a line in `memory`.
    fn line(&self, source: &[u8], target: &mut [u8], memory: &mut [Complex<f64>]) {
        let (line, scratch) = memory.split_at_mut(self.op.length);
        self.load(source, line);
        self.transform.process_with_scratch(line, scratch);
        let scale = if self.op.inverse { 1.0 / self.op.length as f64 } else { 1.0 };
        let numbers: &mut [f64] = bytemuck::cast_slice_mut(line);
        numbers.iter_mut().for_each(|number| *number *= scale);
        let (made, complex) = self.made;
        if complex {
            from_f64(&numbers[..2 * made], self.dtype, target);
        } else {
            (0..made).for_each(|at| numbers[at] = numbers[2 * at]);
            from_f64(&numbers[..made], self.dtype, target);
        }
    }

    /// Loads the elements of a line, followed by zeros. A real result comes from half a spectrum; the other half is its
    /// mirror image.
    fn load(&self, source: &[u8], line: &mut [Complex<f64>]) {
        let (read, complex) = self.read;
        let numbers: &mut [f64] = bytemuck::cast_slice_mut(line);
        if complex {
            to_f64(self.dtype, source, &mut numbers[..2 * read]);
        } else {
            to_f64(self.dtype, source, &mut numbers[..read]);
            for at in (0..read).rev() {
                (numbers[2 * at], numbers[2 * at + 1]) = (numbers[at], 0.0);
            }
        }
        numbers[2 * read..].fill(0.0);
        if !self.made.1 {
            for at in self.op.length / 2 + 1..self.op.length {
                line[at] = line[self.op.length - at].conj();
            }
        }
    }
}

impl CpuKernel for FourierKernel {
    fn scratch_bytes(&self) -> usize {
        let (each, memory) = self.parts();
        self.count.div_ceil(each) * memory * size_of::<Complex<f64>>()
    }

    fn resident_bytes(&self) -> usize {
        table_bytes(self.op.length)
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let bytes = |(elements, complex): (usize, bool)| elements * (1 + usize::from(complex)) * self.dtype.size();
        let (from, to, (each, memory)) = (bytes(self.read), bytes(self.made), self.parts());
        if call.outputs[0].is_empty() {
            return Ok(());
        }
        let scratch: &mut [Complex<f64>] = elements_mut(&mut call.scratch[..self.scratch_bytes()]);
        let mut parts: Vec<_> = call.outputs[0].chunks_mut(each * to).zip(scratch.chunks_mut(memory)).collect();
        call.team.run_pieces(&mut parts, 1, &|part, piece| {
            let (target, memory) = &mut piece[0];
            for (at, target) in target.chunks_exact_mut(to).enumerate() {
                self.line(&call.inputs[0][(part * each + at) * from..][..from], target, memory);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernel_testing::{numbers, tensor};
    use anabranch_op::Tensor;
    use anabranch_op::dtype::Element;
    use anabranch_op::op::Op;
    use std::f64::consts::PI;

    fn prepare_node(node: &NodeSpec, _: &[bool]) -> Result<Box<dyn CpuKernel>, KernelError> {
        let Op::Fourier(op) = &node.op else { panic!("a transform") };
        node.check()?;
        prepare(node, op)
    }

    fn computed<T: Element>(op: Op, inputs: &[Tensor], output: &[usize]) -> Vec<T> {
        anabranch_kernel_testing::computed(prepare_node, op, inputs, output)
    }

    /// Computes the definition, for lines of pairs.
    fn naive(line: &[[f64; 2]], length: usize, inverse: bool) -> Vec<[f64; 2]> {
        let sign = if inverse { 1.0 } else { -1.0 };
        let term = |at: usize, to: usize| {
            let (sin, cos) = (sign * 2.0 * PI * (at * to % length) as f64 / length as f64).sin_cos();
            let [re, im] = line[at];
            [re * cos - im * sin, re * sin + im * cos]
        };
        let scale = if inverse { 1.0 / length as f64 } else { 1.0 };
        let sum = |to: usize| {
            (0..line.len()).map(|at| term(at, to)).fold([0.0; 2], |sum, term| [sum[0] + term[0], sum[1] + term[1]])
        };
        (0..length).map(|to| sum(to).map(|part| part * scale)).collect()
    }

    fn lines(x: &Tensor, read: usize, parts: usize) -> Vec<Vec<[f64; 2]>> {
        let number = |element: &[f64]| [element[0], element.get(1).copied().unwrap_or(0.0)];
        numbers(x).chunks(read * parts).map(|line| line.chunks(parts).map(number).collect()).collect()
    }

    fn require_near(got: &[f32], want: &[f64], size: f64, what: &str) {
        assert_eq!(got.len(), want.len(), "{what}");
        for (got, want) in got.iter().zip(want) {
            assert!((f64::from(*got) - want).abs() <= 1e-7 * size, "{what}: {got} {want}");
        }
    }

    #[test]
    fn every_length_is_transformed_as_the_definition_says() {
        for (length, read) in [(1, 1), (2, 2), (8, 8), (12, 7), (97, 97), (128, 100), (210, 210), (331, 5)] {
            for (parts, inverse, half) in [(1, false, false), (2, false, true), (2, true, false), (1, true, false)] {
                let x = tensor(DType::F32, &[3, read, parts], |i| ((i * 37) % 101) as f64 / 50.0 - 1.0);
                let made = if half { length / 2 + 1 } else { length };
                let op = Op::Fourier(Fourier { length, inverse });
                let got: Vec<f32> = computed(op, std::slice::from_ref(&x), &[3, made, 2]);
                let want =
                    lines(&x, read, parts).into_iter().flat_map(|line| naive(&line, length, inverse)[..made].to_vec());
                let size = if inverse { 2.0 } else { 2.0 * read as f64 };
                require_near(
                    &got,
                    want.collect::<Vec<_>>().as_flattened(),
                    size,
                    &format!("{length} {parts} {inverse}"),
                );
            }
        }
    }

    #[test]
    fn half_a_spectrum_becomes_the_signal_that_it_is_of() {
        for length in [1, 2, 5, 8, 49, 64] {
            let signal = tensor(DType::F64, &[2, length, 1], |i| ((i * 37) % 101) as f64 / 50.0 - 1.0);
            let half = length / 2 + 1;
            let forward = Op::Fourier(Fourier { length, inverse: false });
            let spectrum: Vec<f64> = computed(forward, std::slice::from_ref(&signal), &[2, half, 2]);
            let spectrum = tensor(DType::F64, &[2, half, 2], |i| spectrum[i]);
            let back: Vec<f64> = computed(Op::Fourier(Fourier { length, inverse: true }), &[spectrum], &[2, length, 1]);
            let near = back.iter().zip(numbers(&signal)).all(|(got, want)| (got - want).abs() < 1e-14 * length as f64);
            assert!(near, "{length}: {back:?}");
        }
    }
}
