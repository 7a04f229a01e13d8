//! Append: new positions written into a cache, each row of the batch at a place of its own.
//!
//! A call that is given no bytes of the cache finds them in the output's memory, and writes the new positions alone:
//! the same call again gives the same bytes. New positions in `f32` are rounded to a cache of 16-bit floats.

use anabranch_cpu_base::convert::from_f32;
use anabranch_cpu_base::elements::elements;
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Append, NodeSpec};

/// Bytes that are worth a hand-over to another thread.
const PIECE: usize = 1 << 16;

struct AppendKernel {
    /// Rows of the batch, and lists of positions of each.
    batch: usize,
    lists: usize,
    /// Positions of the cache, of what is new, and of the output.
    cache: usize,
    new: usize,
    made: usize,
    /// Bytes of a position.
    run: usize,
    circular: bool,
    /// The types of what is new, and of the cache.
    types: [DType; 2],
}

/// Prepares an append.
pub(crate) fn prepare(node: &NodeSpec, op: &Append) -> Box<dyn CpuKernel> {
    let [cache, new, made] = [&node.inputs[0], &node.inputs[1], &node.outputs[0]].map(|of| of.shape.dims());
    let run = made[3] * node.outputs[0].dtype.size();
    let (batch, lists) = (made[0], made[1]);
    let types = [node.inputs[1].dtype, node.outputs[0].dtype];
    Box::new(AppendKernel {
        batch,
        lists,
        cache: cache[2],
        new: new[2],
        made: made[2],
        run,
        circular: op.circular,
        types,
    })
}

impl CpuKernel for AppendKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let [cache, new, starts] = call.inputs else { unreachable!("three inputs, as was checked") };
        let starts = elements(starts);
        self.verify(starts)?;
        let list = self.made * self.run;
        if list == 0 || self.lists == 0 {
            return Ok(());
        }
        let in_place = cache.is_empty() && self.cache > 0;
        let (own, fresh) = (self.cache * self.run, self.new * self.run);
        let target = &mut *call.outputs[0];
        let write = |number: usize, target: &mut [u8]| {
            if !in_place {
                target[..own].copy_from_slice(&cache[number * own..][..own]);
                target[own..].fill(0);
            }
            let start = self.start(starts[number / self.lists]) * self.run;
            let before = fresh.min(list - start);
            self.put(new, number * fresh, &mut target[start..start + before]);
            self.put(new, number * fresh + before, &mut target[..fresh - before]);
        };
        let moved = if in_place { fresh } else { list };
        let together = (PIECE / moved.max(1)).max(1);
        call.team.run_pieces(target, together * list, &|piece, targets| {
            let numbered = targets.chunks_exact_mut(list).enumerate();
            numbered.for_each(|(at, target)| write(piece * together + at, target));
        });
        Ok(())
    }
}

impl AppendKernel {
    /// Writes new elements as the cache stores them, from this one of its bytes on.
    fn put(&self, new: &[u8], from: usize, target: &mut [u8]) {
        let [given, stored] = self.types;
        let wider = given.size() / stored.size();
        let new = &new[from * wider..][..target.len() * wider];
        match given == stored {
            true => target.copy_from_slice(new),
            false => from_f32(elements(new), stored, target),
        }
    }

    /// Where a row's new positions begin.
    fn start(&self, given: i64) -> usize {
        if self.circular { given.rem_euclid(self.made.max(1) as i64) as usize } else { given as usize }
    }

    /// Checks that the new positions of all rows have room.
    fn verify(&self, given: &[i64]) -> Result<(), KernelError> {
        let has_room =
            |start: i64| self.circular || usize::try_from(start).is_ok_and(|from| from <= self.made - self.new);
        given.iter().enumerate().take(self.batch).try_for_each(|(row, start)| {
            has_room(*start).then_some(()).ok_or_else(|| KernelError::Value {
                op: "append",
                reason: format!(
                    "{} positions from {start} on exceed a capacity of {} (row {row} of the batch)",
                    self.new, self.made
                ),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prepare_with;
    use crate::testing::{computed, node, run, tensor};
    use anabranch_cpu_base::Team;
    use anabranch_op::op::Op;
    use anabranch_op::{DType, Tensor};

    /// Returns the result by the definition, position by position.
    fn appended(cache: &Tensor, new: &Tensor, starts: &[i64], made: usize) -> Vec<f32> {
        let (&[batch, lists, own, run], &[.., fresh, _]) = (cache.shape().dims(), new.shape().dims()) else {
            panic!("four dimensions")
        };
        let (old, new) = (cache.elements::<f32>().expect("floats"), new.elements::<f32>().expect("floats"));
        let mut want = vec![0.0; batch * lists * made * run];
        for list in 0..batch * lists {
            for at in 0..own * run {
                want[list * made * run + at] = old[list * own * run + at];
            }
            for position in 0..fresh {
                let place = (starts[list / lists].rem_euclid(made as i64) as usize + position) % made;
                for at in 0..run {
                    want[(list * made + place) * run + at] = new[(list * fresh + position) * run + at];
                }
            }
        }
        want
    }

    #[test]
    fn new_positions_stand_where_each_row_wants_them() {
        for (lists, own, fresh, made) in [(1, 5, 1, 5), (3, 5, 2, 5), (2, 0, 3, 4), (2, 4, 3, 9), (1, 7, 7, 7)] {
            let cache = tensor(DType::F32, &[2, lists, own, 3], |i| i as f64);
            let new = tensor(DType::F32, &[2, lists, fresh, 3], |i| -1.0 - i as f64);
            for first in 0..=(made - fresh) as i64 {
                let starts = [first, (made - fresh) as i64 - first];
                let inputs = [cache.clone(), new.clone(), Tensor::from_i64s(&starts)];
                let got = computed::<f32>(Op::Append(Append { circular: false }), &inputs, &[2, lists, made, 3]);
                assert_eq!(got, appended(&cache, &new, &starts, made), "{fresh} at {starts:?} of {made}");
            }
        }
    }

    #[test]
    fn a_circle_goes_on_at_its_beginning() {
        let cache = tensor(DType::F32, &[2, 2, 5, 3], |i| i as f64);
        let new = tensor(DType::F32, &[2, 2, 3, 3], |i| -1.0 - i as f64);
        for starts in [[3, 4], [7, -1], [i64::MAX, i64::MIN]] {
            let inputs = [cache.clone(), new.clone(), Tensor::from_i64s(&starts)];
            let got = computed::<f32>(Op::Append(Append { circular: true }), &inputs, &[2, 2, 5, 3]);
            assert_eq!(got, appended(&cache, &new, &starts, 5), "{starts:?}");
        }
    }

    #[test]
    fn in_place_only_the_new_positions_are_written() {
        let cache = tensor(DType::F32, &[1, 2, 4, 1], |i| i as f64);
        let new = tensor(DType::F32, &[1, 2, 1, 1], |i| -1.0 - i as f64);
        let inputs = [cache.clone(), new.clone(), Tensor::from_i64s(&[2])];
        let node = node(Op::Append(Append { circular: false }), &inputs, DType::F32, &[1, 2, 4, 1]);
        assert_eq!(node.in_place(), Some((0, 0)));
        let kernel = prepare_with(&node, &[None, None, None]).expect("sound");
        let mut bytes = cache.bytes().to_vec();
        let given: [&[u8]; 3] = [&[], new.bytes(), inputs[2].bytes()];
        for _ in 0..2 {
            let (outputs, team) = (&mut [&mut bytes[..]], &Team::solo());
            kernel.run(Call { inputs: &given, outputs, rows: 0..1, scratch: &mut [], team }).expect("sound");
            let want: Vec<u8> =
                [0f32, 1.0, -1.0, 3.0, 4.0, 5.0, -2.0, 7.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
            assert_eq!(bytes, want);
        }
    }

    #[test]
    fn floats_are_rounded_to_those_of_the_cache_as_a_cast_rounds_them() {
        let values = [65519.0, 65520.0, 2.9802322e-8, 2.9802326e-8, 6.1e-5, 1e-8, f32::NAN, f32::NEG_INFINITY, -0.0];
        let value = |at: usize| f64::from(values[at % 9]);
        for dtype in [DType::F16, DType::BF16] {
            let inputs = [tensor(dtype, &[1, 2, 4, 3], |_| 1.0), tensor(DType::F32, &[1, 2, 3, 3], value)];
            let narrow = tensor(dtype, &[1, 2, 3, 3], value);
            let made = |new: &Tensor| {
                let inputs = [inputs[0].clone(), new.clone(), Tensor::from_i64s(&[1])];
                let node = node(Op::Append(Append { circular: false }), &inputs, dtype, &[1, 2, 4, 3]);
                run(&node, &inputs).expect("sound").swap_remove(0)
            };
            assert!(made(&inputs[1]).same_bits(&made(&narrow)), "{dtype}");
        }
    }

    #[test]
    fn positions_outside_are_errors_that_name_them() {
        for bad in [-1, 4, i64::MIN, i64::MAX] {
            let cache = tensor(DType::F32, &[2, 1, 5, 1], |_| 0.0);
            let new = tensor(DType::F32, &[2, 1, 2, 1], |_| 1.0);
            let inputs = [cache, new, Tensor::from_i64s(&[0, bad])];
            let node = node(Op::Append(Append { circular: false }), &inputs, DType::F32, &[2, 1, 5, 1]);
            let error = run(&node, &inputs).expect_err("outside").to_string();
            assert!(error.contains(&bad.to_string()) && error.contains("row 1"), "{error}");
        }
    }
}
