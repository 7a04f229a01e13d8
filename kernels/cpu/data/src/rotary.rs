//! Rotary position embedding: pairs of features of each head turned by the angles of their position.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Rotary};

/// Elements that are worth a hand-over to another thread.
const PIECE: usize = 8192;

struct RotaryKernel {
    heads: usize,
    length: usize,
    depth: usize,
    /// Positions that there are angles of, and the pairs of each.
    positions: usize,
    pairs: usize,
    op: Rotary,
    /// Whether each query has a position of its own.
    own: bool,
}

/// Prepares a rotation.
pub(crate) fn prepare(node: &NodeSpec, op: &Rotary) -> Box<dyn CpuKernel> {
    let (x, angles) = (node.inputs[0].shape.dims(), node.inputs[1].shape.dims());
    let length = node.rotary_length();
    let heads = if op.by_head { x[1] } else { x[2] };
    let own = node.inputs[3].shape.elements() == x[0] * length;
    Box::new(RotaryKernel { heads, length, depth: x[3], positions: angles[0], pairs: angles[1], op: op.clone(), own })
}

/// Loop over rows of the output from `first` on, each the features of one head at one position.
struct Turns<'a> {
    kernel: &'a RotaryKernel,
    x: &'a [f32],
    angles: [&'a [f32]; 2],
    positions: &'a [i64],
    first: usize,
    out: &'a mut [f32],
}

impl Loop for Turns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, x, angles, positions, first, out } = self;
        let &RotaryKernel { heads, length, depth, pairs, ref op, .. } = kernel;
        // Counted instead of divided for each row, which takes as long as the row.
        let (mut item, mut head, mut query) = (first / length / heads, first / length % heads, first % length);
        for out in out.chunks_exact_mut(depth) {
            let from = match op.by_head {
                true => (item * heads + head) * length + query,
                false => (item * length + query) * heads + head,
            };
            let angle = kernel.position(positions, item, query) as usize * pairs;
            let [cosines, sines] = angles.map(|angles| &angles[angle..][..pairs]);
            turn(&x[from * depth..][..depth], cosines, sines, op.interleaved, out);
            query += 1;
            if query == length {
                (query, head) = (0, head + 1);
            }
            if head == heads {
                (head, item) = (0, item + 1);
            }
        }
    }
}

/// Turns the features of one head at one position.
#[inline(always)]
fn turn(x: &[f32], cosines: &[f32], sines: &[f32], interleaved: bool, out: &mut [f32]) {
    let pairs = cosines.len();
    if out.len() > 2 * pairs {
        out[2 * pairs..].copy_from_slice(&x[2 * pairs..]);
    }
    if interleaved {
        let angles = cosines.iter().zip(sines);
        for ((out, x), (cosine, sine)) in out.as_chunks_mut::<2>().0.iter_mut().zip(x.as_chunks::<2>().0).zip(angles) {
            *out = [x[0] * cosine - x[1] * sine, x[0] * sine + x[1] * cosine];
        }
        return;
    }
    // Slices of one length need no check of an index, so that the loop becomes vectors.
    let sines = &sines[..pairs];
    let (first, second) = x[..2 * pairs].split_at(pairs);
    let (real, imaginary) = out[..2 * pairs].split_at_mut(pairs);
    for i in 0..pairs {
        real[i] = first[i] * cosines[i] - second[i] * sines[i];
        imaginary[i] = first[i] * sines[i] + second[i] * cosines[i];
    }
}

impl CpuKernel for RotaryKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let [x, cosines, sines, positions] = call.inputs else { unreachable!("four inputs, as was checked") };
        let (x, angles) = (elements(x), [elements(cosines), elements(sines)]);
        let out: &mut [f32] = elements_mut(call.outputs[0]);
        let &Self { heads, length, depth, .. } = self;
        if out.is_empty() {
            return Ok(());
        }
        let positions = elements(positions);
        self.verify(positions, out.len() / (heads * length * depth))?;
        let rows = (PIECE / depth).max(1);
        call.team.run_pieces(out, rows * depth, &|piece, out| {
            vectorised(Turns { kernel: self, x, angles, positions, first: piece * rows, out });
        });
        Ok(())
    }
}

impl RotaryKernel {
    /// The position of a query of a row of the batch.
    fn position(&self, given: &[i64], row: usize, query: usize) -> i64 {
        if self.own { given[row * self.length + query] } else { given[row].saturating_add(query as i64) }
    }

    /// Checks that there are angles for all positions.
    fn verify(&self, given: &[i64], batch: usize) -> Result<(), KernelError> {
        (0..batch).flat_map(|row| (0..self.length).map(move |query| (row, query))).try_for_each(|(row, query)| {
            let position = self.position(given, row, query);
            let sound = usize::try_from(position).is_ok_and(|position| position < self.positions);
            sound.then_some(()).ok_or_else(|| KernelError::Value {
                op: "rotary",
                reason: format!(
                    "position {position} is outside the {} positions that have angles (row {row} of the batch)",
                    self.positions
                ),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{computed, node, run, tensor};
    use anabranch_op::op::Op;
    use anabranch_op::{DType, Tensor};

    /// Returns one element by the definition.
    fn turned(op: &Rotary, [heads, length, depth]: [usize; 3], pairs: usize, position: usize, at: usize) -> f64 {
        let (feature, row) = (at % depth, at / depth);
        let (query, head, item) = (row % length, row / length % heads, row / length / heads);
        let from = if op.by_head { row } else { (item * length + query) * heads + head };
        let x = |feature: usize| value(from * depth + feature);
        if feature >= 2 * pairs {
            return x(feature);
        }
        let (pair, second) =
            if op.interleaved { (feature / 2, feature % 2 == 1) } else { (feature % pairs, feature >= pairs) };
        let (a, b) = if op.interleaved { (x(2 * pair), x(2 * pair + 1)) } else { (x(pair), x(pair + pairs)) };
        let (cosine, sine) = (angle(position * pairs + pair).cos(), angle(position * pairs + pair).sin());
        if second { a * sine + b * cosine } else { a * cosine - b * sine }
    }

    fn value(i: usize) -> f64 {
        ((i * 37) % 101) as f64 / 17.0 - 3.0
    }

    fn angle(i: usize) -> f64 {
        ((i * 53) % 97) as f64 / 11.0
    }

    #[test]
    fn pairs_are_turned_by_their_position() {
        let sizes = [([2, 3, 8], 4), ([3, 1, 20], 6), ([1, 5, 7], 3), ([4, 2, 64], 32)];
        for (([heads, length, depth], pairs), flags) in sizes.into_iter().flat_map(|it| (0..8).map(move |f| (it, f))) {
            let op = Rotary { interleaved: flags & 1 != 0, by_head: flags & 2 != 0 };
            let own = flags & 4 != 0;
            let dims = if op.by_head { [2, heads, length, depth] } else { [2, length, heads, depth] };
            let angles = |of: fn(f64) -> f64| tensor(DType::F32, &[12, pairs], |i| of(angle(i)));
            let places: Vec<i64> = (0..2 * length as i64).map(|i| i * 5 % 12).collect();
            let given = if own { places.clone() } else { vec![3, 7] };
            let inputs =
                [tensor(DType::F32, &dims, value), angles(f64::cos), angles(f64::sin), Tensor::from_i64s(&given)];
            let got = computed::<f32>(Op::Rotary(op.clone()), &inputs, &[2, heads, length, depth]);
            for (at, got) in got.iter().enumerate() {
                let (query, item) = (at / depth % length, at / depth / length / heads);
                let position = if own { places[item * length + query] as usize } else { [3, 7][item] + query };
                let want = turned(&op, [heads, length, depth], pairs, position, at);
                assert!((f64::from(*got) - want).abs() < 1e-5, "{op:?} at {at}: {got} {want}");
            }
        }
    }

    #[test]
    fn a_position_without_angles_is_an_error_that_names_it() {
        for bad in [-1, 12, i64::MIN, i64::MAX] {
            let angles = tensor(DType::F32, &[12, 2], |_| 1.0);
            let inputs =
                [tensor(DType::F32, &[1, 2, 1, 4], |_| 1.0), angles.clone(), angles, Tensor::from_i64s(&[bad])];
            let op = Op::Rotary(Rotary { interleaved: false, by_head: true });
            let error = run(&node(op, &inputs, DType::F32, &[1, 2, 1, 4]), &inputs).expect_err("outside").to_string();
            assert!(error.contains(&bad.to_string()), "{error}");
        }
    }
}
