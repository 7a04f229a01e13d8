//! Slices or elements chosen by indices.
//!
//! Constant indices are checked and packed when the kernel is compiled. Other indices are checked where they are read:
//! the first element of the axis replaces an element outside, and the node's [status word](super::status) reports it.

use super::kernel::Recorder;
use super::space::Space;
use super::{Recipe, Shader, status};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Gather, NodeSpec};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Tensor;

pub(super) fn recipe<'n>(node: &'n NodeSpec, op: &'n Gather, constants: &[bool]) -> Recipe<'n> {
    let is_constant = constants.get(1) == Some(&true);
    let (input, indices) = (&node.inputs[0].shape, &node.inputs[1]);
    let count = node.outputs[0].shape.elements();
    let recipe = Recipe::new(node, move |recorder| {
        let size = input.dims()[op.axis];
        let table = is_constant.then(|| positions(recorder, size)).transpose()?;
        let table = table.map(|positions| recorder.resident(&positions));
        let mut shader = Shader::new("gather", include_str!("gather.wgsl"));
        shader.parameter("count", count).parameter("inner", input.dims()[op.axis + 1..].iter().product());
        shader.parameter("chosen", indices.shape.elements()).parameter("size", size);
        match op.elementwise {
            true => shader.code(&source_of_element(op.axis, input, &indices.shape)),
            false => shader.code(SOURCE_IN_SLICE),
        };
        shader.read("x", "u32", recorder.input(0)?).write("y", "u32", recorder.output(0)?);
        match (&table, indices.dtype) {
            (Some(table), _) => shader.read("indices", "u32", table).code(PACKED),
            (None, DType::I32) => shader.read("indices", "u32", recorder.input(1)?).code(HALVES_OF_I32).code(CHECKED),
            (None, _) => shader.read("indices", "vec2<u32>", recorder.input(1)?).code(HALVES_OF_I64).code(CHECKED),
        };
        if table.is_none() {
            status::declare(recorder, &mut shader)?;
        }
        recorder.dispatch_each(&shader, count)
    });
    match is_constant {
        true => Recipe { resident_bytes: indices.shape.elements() as u64 * 4, unbound: vec![1], ..recipe },
        false => recipe.with_status(),
    }
}

const SOURCE_IN_SLICE: &str = "fn source_of(index: u32) -> u32 {
    let slice = index / parameters.inner;
    let line = slice / parameters.chosen * parameters.size + position(slice % parameters.chosen);
    return line * parameters.inner + index % parameters.inner;
}
";

/// Returns the WGSL function `source_of(index)` for a gather in which each element of the output has its own index.
fn source_of_element(chosen_axis: usize, input: &Shape, indices: &Shape) -> String {
    let along = |(axis, stride): (usize, &usize)| if axis == chosen_axis { 0 } else { *stride as isize };
    let strides = input.strides().iter().enumerate().map(along).collect();
    let space = Space::collapsed(indices.dims(), &[strides]);
    format!(
        "fn source_of(index: u32) -> u32 {{\n{}    return {} + position(index) * parameters.inner;\n}}\n",
        space.coordinates("index"),
        space.offset(0)
    )
}

/// WGSL function `position(at)` for indices that were packed as positions.
const PACKED: &str = "fn position(at: u32) -> u32 {
    return indices[at];
}
";

/// WGSL function that returns index `at` as both halves of an `i64`.
const HALVES_OF_I64: &str = "fn halves_of(at: u32) -> vec2<u32> {
    return indices[at];
}
";

const HALVES_OF_I32: &str = "fn halves_of(at: u32) -> vec2<u32> {
    return vec2<u32>(indices[at], select(0u, 0xffffffffu, indices[at] >= 0x80000000u));
}
";

/// WGSL function `position(at)`, which counts a negative index from the end. Less one, −2³² is greater than any size.
const CHECKED: &str = "fn position(at: u32) -> u32 {
    let halves = halves_of(at);
    if halves.y == 0u && halves.x < parameters.size {
        return halves.x;
    }
    let from_end = 0u - halves.x;
    if halves.y == 0xffffffffu && from_end - 1u < parameters.size {
        return parameters.size - from_end;
    }
    refuse(at);
    return 0u;
}
";

/// Returns each constant index as a position along an axis of `size` elements.
fn positions(recorder: &Recorder<'_>, size: usize) -> Result<Vec<u32>, KernelError> {
    let position = |index: i64| {
        let found = if index < 0 { index.checked_add_unsigned(size as u64) } else { Some(index) };
        let found = found.and_then(|i| u32::try_from(i).ok()).filter(|i| (*i as usize) < size);
        found.ok_or_else(|| KernelError::Value {
            op: "gather",
            reason: format!("index {index} is outside an axis of {size}"),
        })
    };
    integers(recorder.constant(1)?).into_iter().map(position).collect()
}

/// Returns the elements of a tensor of integers.
fn integers(tensor: &Tensor) -> Vec<i64> {
    match tensor.elements::<i32>() {
        Some(narrow) => narrow.iter().map(|i| i64::from(*i)).collect(),
        None => tensor.elements::<i64>().unwrap_or(&[]).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, check_run, noise, run_on_cpu, shape, spec, tensor};
    use super::super::{has_status, resident_bytes};
    use super::*;
    use anabranch_op::op::Op;

    fn gather(op: &Gather, x: &[usize], indices: &Tensor, out: &[usize]) -> NodeSpec {
        let inputs = vec![spec(x), indices.spec().clone()];
        NodeSpec { op: Op::Gather(op.clone()), inputs, outputs: vec![spec(out)] }
    }

    fn run(node: &NodeSpec) -> Run<'_> {
        Run { constants: vec![false, true], ..Run::new(node) }
    }

    #[test]
    fn slices_are_chosen_in_any_order() {
        for (dims, axis) in [(vec![7], 0), (vec![5, 3], 0), (vec![3, 6, 4], 1), (vec![2, 3, 9], 2)] {
            let size = dims[axis] as i64;
            let indices = Tensor::from_i64s(&[size - 1, 0, -1, -size, 1]);
            let mut out = dims.clone();
            out[axis] = 5;
            let x = tensor(&dims, &noise(71, dims.iter().product()));
            check_run(run(&gather(&Gather { axis, elementwise: false }, &dims, &indices, &out)), &[x, indices]);
        }
    }

    #[test]
    fn single_elements_are_chosen() {
        let op = Gather { axis: 1, elementwise: true };
        let indices = Tensor::from_elements(shape(&[2, 3]), &[3i32, -1, 0, 1, 1, -4]).expect("six");
        let x = tensor(&[3, 4], &noise(72, 12));
        check_run(run(&gather(&op, &[3, 4], &indices, &[2, 3])), &[x, indices]);
    }

    /// Checks that a gather by data has the bits of the CPU's.
    #[track_caller]
    fn check_data(node: &NodeSpec, inputs: &[Tensor]) {
        let want = run_on_cpu(node, inputs).expect("sound").remove(0);
        let got = Run::new(node).words(inputs).expect("sound").0.remove(0);
        assert_eq!(bytemuck::cast_slice::<u32, u8>(&got), want.bytes(), "{}", node.key());
    }

    /// Returns numbers with all bits, and zeros, infinities and NaN of any payload among them.
    fn bits(seed: u64, dims: &[usize]) -> Tensor {
        let special = [0x8000_0000, 0x7f80_0000, 0xffc0_1234, 0x0000_0001];
        let bits = noise(seed, dims.iter().product()).into_iter().enumerate();
        let values: Vec<f32> =
            bits.map(|(at, x)| if at % 5 == 0 { f32::from_bits(special[at / 5 % 4]) } else { x }).collect();
        tensor(dims, &values)
    }

    #[test]
    fn random_gathers_by_data_have_the_bits_of_the_cpu() {
        arbtest::arbtest(|u| {
            let rank = u.int_in_range(1..=4)?;
            let dims: Vec<usize> =
                (0..rank).map(|_| Ok(*u.choose(&[1, 2, 3, 5, 8, 33, 70])?)).collect::<Result<_, _>>()?;
            let (axis, elementwise) = (u.int_in_range(0..=rank - 1)?, u.arbitrary()?);
            let mut chosen = dims.clone();
            if elementwise {
                for (other, dim) in chosen.iter_mut().enumerate() {
                    *dim = u.int_in_range(1..=if other == axis { 2 * *dim } else { *dim })?;
                }
            } else {
                chosen = (0..u.int_in_range(0..=2)?).map(|_| u.int_in_range(1..=9)).collect::<Result<_, _>>()?;
            }
            let out = if elementwise { chosen.clone() } else { [&dims[..axis], &chosen, &dims[axis + 1..]].concat() };
            let (size, seed) = (dims[axis] as i64, u.arbitrary::<u16>()?.into());
            let at = |x: &f32| ((f64::from(*x) * size as f64).floor() as i64).clamp(-size, size - 1);
            let chosen_at: Vec<i64> = noise(seed, chosen.iter().product()).iter().map(at).collect();
            let indices = match u.arbitrary()? {
                true => Tensor::from_elements(shape(&chosen), &chosen_at),
                false => {
                    let narrow: Vec<i32> = chosen_at.iter().map(|index| *index as i32).collect();
                    Tensor::from_elements(shape(&chosen), &narrow)
                }
            };
            let indices = indices.expect("as many");
            check_data(&gather(&Gather { axis, elementwise }, &dims, &indices, &out), &[bits(seed, &dims), indices]);
            Ok(())
        })
        .budget_ms(1000);
    }

    #[test]
    fn indices_outside_are_refused_by_the_first_position() {
        let x = tensor(&[2, 3], &noise(73, 6));
        let bad = [3, -4, i64::MIN, i64::MAX, 1 << 32, (1 << 32) + 1, -(1 << 32), -(1 << 32) - 1, 1 << 31];
        for (bad, elementwise) in bad.into_iter().flat_map(|bad| [(bad, false), (bad, true)]) {
            let (dims, out): (&[usize], &[usize]) = if elementwise { (&[2, 3], &[2, 3]) } else { (&[6], &[2, 6]) };
            let op = Gather { axis: 1, elementwise };
            for narrow in [false, true].into_iter().filter(|narrow| !narrow || i32::try_from(bad).is_ok()) {
                // Every thread after the first bad position sees a bad index, too.
                let list = [-3, 2, 0, bad, bad, bad];
                let indices = match narrow {
                    false => Tensor::from_elements(shape(dims), &list),
                    true => Tensor::from_elements(shape(dims), &list.map(|index| index as i32)),
                };
                let indices = indices.expect("six");
                let node = gather(&op, &[2, 3], &indices, out);
                let inputs = [x.clone(), indices];
                let reason = "the index at position 3 is outside an axis of 3".to_owned();
                let result = Run::new(&node).outputs(&inputs);
                assert_eq!(result, Err(KernelError::Value { op: "gather", reason }), "{bad}");
                assert!(matches!(run_on_cpu(&node, &inputs), Err(KernelError::Value { .. })), "{bad}");
            }
        }
    }

    #[test]
    fn constants_outside_are_refused_before_a_run() {
        let op = Gather { axis: 0, elementwise: false };
        let x = tensor(&[3], &[1.0, 2.0, 3.0]);
        for bad in [3, -4, i64::MIN, i64::MAX] {
            let indices = Tensor::from_i64s(&[bad]);
            let result = run(&gather(&op, &[3], &indices, &[1])).outputs(&[x.clone(), indices]);
            let reason = format!("index {bad} is outside an axis of 3");
            assert_eq!(result, Err(KernelError::Value { op: "gather", reason }));
        }
    }

    #[test]
    fn only_indices_that_are_data_need_a_status_word() {
        let node = gather(&Gather { axis: 0, elementwise: false }, &[3], &Tensor::from_i64s(&[0, 1]), &[2]);
        let facts = |constants| (has_status(&node, constants), resident_bytes(&node, constants));
        assert_eq!(
            [facts(&[false, false]), facts(&[true, false]), facts(&[false, true])],
            [(true, 4), (true, 4), (false, 8)]
        );
    }
}
