//! Concat: for every index of the axes before, a run of each input in order.
//!
//! Short periods are written input by input, so that runs of a few bytes are copied without a call for each.

use anabranch_cpu_base::{Call, CpuKernel, runs};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Concat, NodeSpec};

/// Bytes of the output that one part of a parallel run writes.
const PIECE: usize = 256 << 10;

/// Longest period that is written input by input.
const SHORT: usize = 1024;

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
        if self.period <= SHORT {
            let periods = PIECE / self.period;
            call.team.run_pieces(&mut *call.outputs[0], periods * self.period, &|piece, target| {
                for (input, ends) in call.inputs.iter().zip(self.starts.windows(2)) {
                    let run = ends[1] - ends[0];
                    if run > 0 {
                        place(&input[piece * periods * run..], run, &mut target[ends[0]..], self.period);
                    }
                }
            });
            return Ok(());
        }
        call.team.run_pieces(&mut *call.outputs[0], PIECE, &|piece, target| {
            let (at, mut rest) = (piece * PIECE, target);
            let (mut outer, within) = (at / self.period, at % self.period);
            // The input whose run contains this byte is the last that begins at or before the byte and is not empty.
            let mut input = self.starts.partition_point(|start| *start <= within) - 1;
            let mut from = within - self.starts[input];
            while !rest.is_empty() {
                let run = self.starts[input + 1] - self.starts[input];
                let (now, later) = rest.split_at_mut((run - from).min(rest.len()));
                now.copy_from_slice(&call.inputs[input][outer * run + from..][..now.len()]);
                (input, from, rest) = (input + 1, 0, later);
                if input == call.inputs.len() {
                    (input, outer) = (0, outer + 1);
                }
            }
        });
        Ok(())
    }
}

/// Copies runs to places that are `period` bytes apart, as far as both reach.
fn place(all: &[u8], run: usize, target: &mut [u8], period: usize) {
    match run {
        1 => place_all::<1>(all, target, period),
        2 => place_all::<2>(all, target, period),
        4 => place_all::<4>(all, target, period),
        8 => place_all::<8>(all, target, period),
        12 => place_all::<12>(all, target, period),
        16 => place_all::<16>(all, target, period),
        24 => place_all::<24>(all, target, period),
        28 => place_all::<28>(all, target, period),
        32 => place_all::<32>(all, target, period),
        64 => place_all::<64>(all, target, period),
        128 => place_all::<128>(all, target, period),
        256 => place_all::<256>(all, target, period),
        _ => {
            let targets = target.chunks_mut(period).zip(all.chunks_exact(run));
            targets.for_each(|(target, run)| runs::copy(run, &mut target[..run.len()]));
        }
    }
}

/// Copies runs of `N` bytes.
fn place_all<const N: usize>(runs: &[u8], target: &mut [u8], period: usize) {
    // The last period may end with the run.
    let runs = &runs.as_chunks::<N>().0[..target.len().div_ceil(period)];
    let Some((last, runs)) = runs.split_last() else { return };
    let (target, end) = target.split_at_mut(runs.len() * period);
    let targets = target.chunks_exact_mut(period).zip(runs);
    targets.for_each(|(target, run)| *target.first_chunk_mut().expect("a period holds each run") = *run);
    *end.first_chunk_mut().expect("a period holds each run") = *last;
}

#[cfg(test)]
mod tests {
    use crate::testing::{computed, node, run_all_ways, tensor};
    use anabranch_op::DType;
    use anabranch_op::op::{Concat, Op};

    #[test]
    fn inputs_follow_each_other_along_the_axis() {
        for (sizes, axis, outer, inner) in [
            (vec![1, 2], 1, 2, 3),
            (vec![2, 0, 3], 0, 1, 2),
            (vec![5], 1, 3, 1),
            (vec![40_000, 50_000], 1, 2, 1),
            (vec![0, 300, 0, 500, 0], 1, 200, 1),
        ] {
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

    #[test]
    fn short_runs_of_every_length_follow_each_other() {
        for lengths in
            [vec![1, 1], vec![1, 2, 3, 4], vec![7, 0, 8, 16], vec![64, 5], vec![60, 80, 110], vec![24, 12, 28]]
        {
            let (outer, total) = (30_000 / lengths.len(), lengths.iter().sum::<usize>());
            let inputs: Vec<_> =
                lengths.iter().map(|n| tensor(DType::U8, &[outer, *n], |i| (i % 251) as f64)).collect();
            let op = Op::Concat(Concat { axis: 1 });
            let got = run_all_ways(&node(op, &inputs, DType::U8, &[outer, total]), &inputs).remove(0);
            for (row, got) in got.bytes().chunks_exact(total).enumerate() {
                let runs = inputs.iter().zip(&lengths).map(|(input, n)| &input.bytes()[row * n..][..*n]);
                assert_eq!(got, runs.collect::<Vec<_>>().concat(), "{lengths:?} at {row}");
            }
        }
    }
}
