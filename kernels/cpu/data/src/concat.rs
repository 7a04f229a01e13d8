//! Concat: for every index of the axes before, a run of each input in order.

use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Concat, NodeSpec};

/// Bytes of the output that one part of a parallel run writes.
const PIECE: usize = 256 << 10;

/// Kernel of a concatenation: the start of each input's run within one period of the output, all in bytes.
struct ConcatKernel {
    starts: Vec<usize>,
    period: usize,
}

/// Prepares a concatenation.
pub(crate) fn prepare(node: &NodeSpec, op: &Concat) -> Box<dyn CpuKernel> {
    let mut starts = vec![0];
    for input in &node.inputs {
        let run = input.shape.dims()[op.axis..].iter().product::<usize>() * input.dtype.size();
        starts.push(starts[starts.len() - 1] + run);
    }
    let period = starts[starts.len() - 1];
    Box::new(ConcatKernel { starts, period })
}

impl CpuKernel for ConcatKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        if self.period == 0 {
            return Ok(());
        }
        call.team.run_pieces(&mut *call.outputs[0], PIECE, &|piece, target| {
            let mut at = piece * PIECE;
            let mut rest = target;
            while !rest.is_empty() {
                let (outer, within) = (at / self.period, at % self.period);
                // The input whose run contains this byte is the last that begins at or before the byte and is not
                // empty.
                let input = self.starts.partition_point(|start| *start <= within) - 1;
                let (from, run) = (within - self.starts[input], self.starts[input + 1] - self.starts[input]);
                let length = (run - from).min(rest.len());
                let (now, later) = rest.split_at_mut(length);
                now.copy_from_slice(&call.inputs[input][outer * run + from..][..length]);
                at += length;
                rest = later;
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{computed, tensor};
    use anabranch_op::DType;
    use anabranch_op::op::{Concat, Op};

    #[test]
    fn inputs_follow_each_other_along_the_axis() {
        for (sizes, axis, outer, inner) in
            [(vec![1, 2], 1, 2, 3), (vec![2, 0, 3], 0, 1, 2), (vec![5], 1, 3, 1), (vec![40_000, 50_000], 1, 2, 1)]
        {
            let dims = |size: usize| if axis == 0 { vec![size, inner] } else { vec![outer, size, inner] };
            let inputs: Vec<_> = sizes
                .iter()
                .enumerate()
                .map(|(i, size)| tensor(DType::F32, &dims(*size), |at| (at * 10 + i) as f64))
                .collect();
            let total: usize = sizes.iter().sum();
            let got: Vec<f32> = computed(Op::Concat(Concat { axis }), &inputs, &dims(total));
            let mut want = Vec::new();
            for o in 0..if axis == 0 { 1 } else { outer } {
                for (input, size) in inputs.iter().zip(&sizes) {
                    let all: &[f32] = input.elements().expect("f32");
                    want.extend_from_slice(&all[o * size * inner..][..size * inner]);
                }
            }
            assert_eq!(got, want);
        }
    }
}
