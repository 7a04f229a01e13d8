//! Index of the greatest or least element along an axis, by the tree of a reduction.
//!
//! A state is the rank of an element and its index. Ranks are integers, so that NaN and zeros are told apart by their
//! bits on all devices.

use super::Recipe;
use super::reduce::{Functions, Reduction};
use anabranch_op::op::{ArgReduce, NodeSpec};

pub(super) fn recipe<'n>(node: &NodeSpec, op: &ArgReduce) -> Recipe<'n> {
    let reduction = Reduction::along(&[op.axis], node, functions(op));
    let (scratch_bytes, passes) = (reduction.scratch_bytes(), reduction.passes());
    let recipe = Recipe::new(node, move |recorder| {
        reduction.record_from(recorder, 0..reduction.outputs(), 0, &|recorder, shader| {
            shader.read("x", "u32", recorder.input(0)?).code("fn load(at: u32) -> u32 { return x[at]; }\n");
            Ok(())
        })
    });
    Recipe { scratch_bytes, passes, ..recipe }
}

/// Returns the functions of a search for the greatest rank. NaN has the greatest rank in both searches, and 0 is no
/// rank of an element.
fn functions(op: &ArgReduce) -> Functions {
    let rank = if op.greatest { "key" } else { "select(~key, 0xffffffffu, key == order_key(0x7fc00000u))" };
    let before = if op.last { "b.y > a.y" } else { "b.y < a.y" };
    Functions {
        state: format!(
            "alias State = vec2<u32>;
fn identity() -> State {{ return State(0u, 0u); }}
fn combine(a: State, b: State) -> State {{ return select(a, b, b.x > a.x || (b.x == a.x && {before})); }}
"
        ),
        state_bytes: 8,
        lift: format!(
            "fn lift(x: u32, index: u32) -> State {{
    let key = order_key(x);
    return State({rank}, index);
}}
"
        ),
        // Both halves of an `i64`.
        lower: "fn lower(state: State) -> vec2<u32> { return vec2<u32>(state.y, 0u); }\n",
        result: "vec2<u32>",
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch_bytes;
    use super::super::testing::{Run, narrow, noise, run_on_cpu, spec, tensor};
    use super::*;
    use anabranch_op::dtype::DType;
    use anabranch_op::op::Op;
    use anabranch_op::tensor::{Tensor, TensorSpec};

    fn search(op: ArgReduce, dims: &[usize]) -> NodeSpec {
        let kept: Vec<usize> = (0..dims.len()).filter(|axis| *axis != op.axis).map(|axis| dims[axis]).collect();
        let output = TensorSpec::new(DType::I64, spec(&kept).shape);
        NodeSpec { op: Op::ArgReduce(op), inputs: vec![spec(dims)], outputs: vec![output] }
    }

    /// Checks that a run finds the indices of the CPU's kernel.
    #[track_caller]
    fn check_run(run: Run<'_>, x: &Tensor) {
        let (node, inputs) = (run.node, [x.clone()]);
        let want = run_on_cpu(node, &inputs).expect("sound").remove(0);
        let got = run.words(&inputs).expect("sound").0.remove(0);
        assert_eq!(bytemuck::cast_slice::<u32, u8>(&got), want.bytes(), "{}", node.key());
    }

    /// Checks all four searches.
    #[track_caller]
    fn check(dims: &[usize], axis: usize, x: &Tensor) {
        for (greatest, last) in [(true, false), (true, true), (false, false), (false, true)] {
            check_run(Run::new(&search(ArgReduce { axis, greatest, last }, dims)), x);
        }
    }

    #[test]
    fn random_searches_find_the_indices_of_the_cpu() {
        arbtest::arbtest(|u| {
            let rank = u.int_in_range(1..=3)?;
            let dims: Vec<usize> =
                (0..rank).map(|_| Ok(*u.choose(&[1, 2, 3, 7, 8, 33, 65, 300])?)).collect::<Result<_, _>>()?;
            let axis = u.int_in_range(0..=rank - 1)?;
            // Few values are there several times; many values are there once.
            let (levels, seed) = (*u.choose(&[2.0, 9.0, 1e9])?, u.arbitrary::<u16>()?.into());
            let mut values: Vec<f32> =
                noise(seed, dims.iter().product()).iter().map(|x| (x * levels).trunc()).collect();
            if u.arbitrary()? {
                let special = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, 0.0, 1e-45, -1e-45, f32::MAX];
                let some = u.int_in_range(1..=special.len())?;
                (0..values.len()).step_by(3).for_each(|at| values[at] = special[at / 3 % some]);
            }
            check(&dims, axis, &tensor(&dims, &values));
            Ok(())
        })
        .budget_ms(1000);
    }

    #[test]
    fn special_values_have_the_order_of_the_cpu() {
        let nan = |bits: u32| f32::from_bits(bits);
        for values in [
            [0.0, -0.0, 0.0, -0.0],
            [1.0, nan(0xffc0_0000), f32::INFINITY, nan(0x7f80_0001)],
            [f32::NEG_INFINITY; 4],
            [nan(0xffff_ffff); 4],
            [1e-45, -1e-45, 0.0, -0.0],
            [f32::MAX, f32::INFINITY, f32::MIN, f32::NEG_INFINITY],
        ] {
            check(&[4], 0, &tensor(&[4], &values));
            check(&[2, 2], 0, &tensor(&[2, 2], &values));
        }
    }

    #[test]
    fn a_large_vocabulary_is_searched_in_parts() {
        let dims = [2, 256 << 10];
        let mut values: Vec<f32> = noise(9, dims[0] * dims[1]).iter().map(|x| (x * 40.0).trunc()).collect();
        check(&dims, 1, &tensor(&dims, &values));
        values[300_000] = 41.0;
        values[dims[1] - 1] = f32::NAN;
        check(&dims, 1, &tensor(&dims, &values));
        assert!(scratch_bytes(&search(ArgReduce { axis: 1, greatest: true, last: false }, &dims)) > 0);
    }

    #[test]
    fn more_rows_than_one_dimension_of_groups_holds() {
        let dims = [300, 1030];
        let node = search(ArgReduce { axis: 1, greatest: true, last: false }, &dims);
        check_run(Run { gpu: narrow(), ..Run::new(&node) }, &tensor(&dims, &noise(3, dims[0] * dims[1])));
    }
}
