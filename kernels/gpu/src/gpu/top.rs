//! Top-k along the last axis: rounds of sorted blocks.
//!
//! A round cuts what is left of each row into blocks, and keeps the first pairs of each block: ranks and indices. The
//! first pairs of the row are among them. The last round has one block per row, and makes the outputs. All pairs of a
//! row differ, so the result does not depend on the blocks.

use super::kernel::Recorder;
use super::{Recipe, Shader};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, TopK};

/// Maximum elements that are selected from rows of several blocks, so that a round leaves a sixteenth at most.
const MOST_KEPT: usize = 64;

/// Pairs that a workgroup sorts: 8 KiB.
const PAIRS: usize = 1024;

/// Passes of a thread: through the pairs that it reads and writes, and through two pairs in each of the 55 steps that
/// sort all of them.
const PASSES: usize = 2 * PAIRS / 256 + 55 * 2;

pub(super) fn recipe<'n>(node: &NodeSpec, op: &'n TopK) -> Result<Recipe<'n>, KernelError> {
    let dims = node.inputs[0].shape.dims();
    let (count, kept) = (dims[op.axis], node.outputs[0].shape.dims()[op.axis]);
    if dims[op.axis + 1..].iter().any(|dim| *dim != 1) {
        return Err(node.unsupported("GPUs select along the last axis only"));
    }
    if kept > MOST_KEPT && count > PAIRS {
        return Err(node.unsupported(format!(
            "it selects {kept} of {count} elements, and GPUs at most {MOST_KEPT} of more than {PAIRS}"
        )));
    }
    let rounds = Rounds { rows: dims[..op.axis].iter().product(), count, kept, largest: op.largest };
    let scratch_pairs = rounds.scratch_pairs();
    let recipe = Recipe::new(node, move |recorder| rounds.record(recorder));
    let bindings = recipe.bindings + usize::from(scratch_pairs > 0);
    Ok(Recipe { bindings, scratch_bytes: 8 * scratch_pairs as u64, passes: PASSES, ..recipe })
}

/// Selection of the first `kept` of `count` elements in each row.
#[derive(Clone, Copy)]
struct Rounds {
    rows: usize,
    count: usize,
    kept: usize,
    largest: bool,
}

impl Rounds {
    /// Returns the number of candidates of a row in each round.
    fn lengths(&self) -> Vec<usize> {
        let next = |length: &usize| (*length > PAIRS).then(|| length.div_ceil(PAIRS) * self.kept);
        std::iter::successors(Some(self.count), next).collect()
    }

    /// Returns where a round reads its pairs. Rounds take turns with two areas of the scratch memory.
    fn area(&self, round: usize) -> usize {
        let second = self.lengths().get(1).map_or(0, |length| self.rows * length);
        if round.is_multiple_of(2) { second } else { 0 }
    }

    /// Returns the pairs in the scratch memory: those that the second and the third round read.
    fn scratch_pairs(&self) -> usize {
        self.lengths().iter().skip(1).take(2).map(|length| self.rows * length).sum()
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let lengths = self.lengths();
        for (round, length) in lengths.iter().enumerate() {
            let (is_first, is_last) = (round == 0, round + 1 == lengths.len());
            let (size, parts) = (length.next_power_of_two().min(PAIRS), length.div_ceil(PAIRS));
            let mut shader = Shader::new("top", include_str!("top.wgsl"));
            shader.constant("SIZE", size).parameter("rows", self.rows).parameter("length", *length);
            shader.parameter("parts", parts).parameter("kept", self.kept).parameter("count", self.count);
            shader.parameter("flip", if self.largest { u32::MAX as usize } else { 0 });
            shader.parameter("read_at", self.area(round)).parameter("written_at", self.area(round + 1));
            shader.code(if is_first { ELEMENT } else { PAIR }).code(if is_last { RESULT } else { STORED });
            if is_first || is_last {
                shader.read("x", "u32", recorder.input(0)?);
            }
            if !is_first || !is_last {
                shader.write("stored", "vec2<u32>", recorder.scratch()?);
            }
            if is_last {
                shader.write("values", "u32", recorder.output(0)?).write("indices", "vec2<u32>", recorder.output(1)?);
            }
            recorder.dispatch(&shader, (self.rows * parts).div_ceil(PAIRS / size))?;
        }
        Ok(())
    }
}

/// A pair of the first round, with the rank of an element.
const ELEMENT: &str = "fn candidate(row: u32, index: u32) -> vec2<u32> {
    return vec2<u32>(order_key(x[row * parameters.length + index]) ^ parameters.flip, index);
}
";

const PAIR: &str = "fn candidate(row: u32, index: u32) -> vec2<u32> {
    return stored[parameters.read_at + row * parameters.length + index];
}
";

const STORED: &str = "fn keep(block: u32, place: u32, pair: vec2<u32>) {
    stored[parameters.written_at + block * parameters.kept + place] = pair;
}
";

/// Elements are copied as bits, and an index is both halves of an `i64`.
const RESULT: &str = "fn keep(block: u32, place: u32, pair: vec2<u32>) {
    values[block * parameters.kept + place] = x[block * parameters.count + pair.y];
    indices[block * parameters.kept + place] = vec2<u32>(pair.y, 0u);
}
";

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, gpu, narrow, noise, run_on_cpu, spec, tensor};
    use super::super::{scratch_bytes, supports};
    use super::*;
    use anabranch_op::dtype::DType;
    use anabranch_op::op::Op;
    use anabranch_op::tensor::{Tensor, TensorSpec};

    fn top(dims: &[usize], kept: usize, largest: bool) -> NodeSpec {
        along(dims.len() - 1, dims, kept, largest)
    }

    fn along(axis: usize, dims: &[usize], kept: usize, largest: bool) -> NodeSpec {
        let mut made = dims.to_vec();
        made[axis] = kept;
        let indices = TensorSpec::new(DType::I64, spec(&made).shape);
        NodeSpec { op: Op::TopK(TopK { axis, largest }), inputs: vec![spec(dims)], outputs: vec![spec(&made), indices] }
    }

    /// Checks that a run makes the bits of the CPU's kernel.
    #[track_caller]
    fn check(run: Run<'_>, x: &Tensor) {
        let (node, inputs) = (run.node, [x.clone()]);
        let want = run_on_cpu(node, &inputs).expect("sound");
        let got = run.words(&inputs).expect("sound").0;
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(bytemuck::cast_slice::<u32, u8>(got), want.bytes(), "{}", node.key());
        }
    }

    /// Returns numbers of a few or many levels, with special ones among them.
    fn values(seed: u64, count: usize, levels: f32, special: usize) -> Vec<f32> {
        let nan = [0x7fc0_0000, 0xffc0_0001, 0x7f80_0002].map(f32::from_bits);
        let others = [f32::NEG_INFINITY, -0.0, 0.0, 1e-45, -1e-45, f32::INFINITY, f32::MAX];
        let all = [&nan[..], &others].concat();
        let number = |(at, x): (usize, f32)| match special {
            some if some > 0 && at % 3 == 0 => all[at / 3 % some.min(all.len())],
            _ => (x * levels).trunc(),
        };
        noise(seed, count).into_iter().enumerate().map(number).collect()
    }

    #[test]
    fn random_selections_have_the_bits_of_the_cpu() {
        arbtest::arbtest(|u| {
            let rows = u.int_in_range(1..=9)?;
            let count = *u.choose(&[1, 2, 3, 8, 31, 64, 65, 1000, 1024, 1025, 3000])?;
            let kept = *u.choose(&[1, 2, 7, 40, 64])?;
            let (levels, special) = (*u.choose(&[2.0, 30.0, 1e9])?, u.int_in_range(0..=10)?);
            let x = values(u.arbitrary::<u16>()?.into(), rows * count, levels, special);
            let dims = if u.arbitrary()? { vec![rows, count] } else { vec![1, rows, count] };
            let node = top(&dims, kept.min(count), u.arbitrary()?);
            check(Run::new(&node), &tensor(&dims, &x));
            Ok(())
        })
        .budget_ms(1000);
    }

    #[test]
    fn a_large_vocabulary_takes_three_rounds() {
        let count = 256 << 10;
        for (kept, largest, levels) in [(64, true, 1e9), (64, false, 3.0), (1, true, 50.0), (40, true, 3000.0)] {
            let node = top(&[2, count], kept, largest);
            check(Run::new(&node), &tensor(&[2, count], &values(4, 2 * count, levels, 0)));
            let rounds = Rounds { rows: 2, count, kept, largest }.lengths().len();
            assert_eq!((rounds, scratch_bytes(&node) > 0), (if kept == 1 { 2 } else { 3 }, true));
        }
    }

    #[test]
    fn a_row_of_one_block_is_sorted_whole() {
        for count in [100, 1024] {
            let node = top(&[3, count], count, false);
            check(Run::new(&node), &tensor(&[3, count], &values(5, 3 * count, 20.0, 4)));
            assert_eq!(scratch_bytes(&node), 0);
        }
    }

    #[test]
    fn more_blocks_than_one_dimension_of_groups_holds() {
        let node = top(&[70, 1100], 5, true);
        check(Run { gpu: narrow(), ..Run::new(&node) }, &tensor(&[70, 1100], &values(6, 70 * 1100, 1e6, 0)));
    }

    #[test]
    fn other_axes_and_many_elements_of_long_rows_are_refused() {
        for (node, reason) in [
            (along(0, &[4, 3], 2, true), "along the last axis only"),
            (top(&[2, 1025], 65, true), "65 of 1025 elements"),
        ] {
            let refused = supports(&node, &[false], gpu().facts()).expect_err("it has no kernel");
            assert!(matches!(refused, KernelError::Unsupported { .. }), "{refused}");
            assert!(refused.to_string().contains(reason), "{refused}");
        }
        assert!(supports(&along(1, &[4, 3, 1], 2, true), &[false], gpu().facts()).is_ok());
    }
}
