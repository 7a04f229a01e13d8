//! Appending to key-value caches, and rotary position embedding.
//!
//! Positions are elements of a tensor, so that they are known only in the run. The rows of a batch may differ in them.
//!
//! These kernels report no error about a value. Lengths and positions outside their range are therefore moved to its
//! ends, and read and write nothing outside. Lowered models let CPUs judge them first
//! ([`Length`](anabranch_op::op::Length)).

use super::stored;
use super::{Recipe, Shader};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Append, NodeSpec, Rotary};

/// Positions beyond this one count as this one: sums of a few do not wrap.
pub(super) const FARTHEST: usize = (1 << 29) - 1;

/// WGSL function that returns an `i64`, of which it gets both halves, as a number of at most [`FARTHEST`] positions to
/// either side.
pub(super) const BOUNDED: &str = "fn bounded(halves: vec2<u32>) -> i32 {
    if halves.y == 0u && halves.x <= 0x1fffffffu {
        return i32(halves.x);
    }
    if halves.y == 0xffffffffu && halves.x >= 0xe0000000u {
        return bitcast<i32>(halves.x);
    }
    return select(0x1fffffff, -0x1fffffff, halves.y >= 0x80000000u);
}
";

/// Computes an [`Append`]; in place, it writes only the words with new positions.
pub(super) fn append<'n>(node: &'n NodeSpec, op: &Append) -> Result<Recipe<'n>, KernelError> {
    if op.circular {
        return Err(node.unsupported("circular positions have no GPU kernel"));
    }
    let dims = [&node.inputs[0], &node.inputs[1], &node.outputs[0]].map(|of| of.shape.dims());
    let [own, added, made] = dims.map(|dims| dims[2]);
    if made > FARTHEST {
        return Err(node.unsupported("it has more positions than a kernel can count"));
    }
    let (lists, run, elements) = (dims[2][1], dims[2][3], node.outputs[0].shape.elements());
    let [cache, new] = [0, 1].map(|input| node.inputs[input].dtype);
    let reads_cache = node.inputs[0].shape.elements() > 0;
    let recipe = Recipe::new(node, move |recorder| {
        let mut shader = Shader::new("append", include_str!("append.wgsl"));
        let is_in_place = reads_cache && recorder.is_in_place();
        let per_word = stored::per_word(cache);
        // A word may end a position and begin the next one.
        let span = (added * run).div_ceil(per_word) + per_word - 1;
        let count = if is_in_place { dims[2][0] * lists * span } else { elements.div_ceil(per_word) };
        shader.constant("PER_WORD", per_word).constant("IN_PLACE", usize::from(is_in_place));
        shader.parameter("count", count).parameter("elements", elements).parameter("lists", lists);
        shader.parameter("run", run).parameter("own", own).parameter("added", added).parameter("made", made);
        shader.parameter("span", span);
        shader.code(BOUNDED);
        match (reads_cache, is_in_place) {
            (false, _) => shader.code(NOTHING),
            (true, true) => shader.code(&stored::bits("old_bits", "y", cache, cache)),
            (true, false) => {
                shader.read("cache", "u32", recorder.input(0)?).code(&stored::bits("old_bits", "cache", cache, cache))
            }
        };
        shader.read("fresh", "u32", recorder.input(1)?).code(&stored::bits("fresh_bits", "fresh", new, cache));
        shader.read("starts", "vec2<u32>", recorder.input(2)?).write("y", "u32", recorder.output(0)?);
        if added * run == 0 && is_in_place {
            return Ok(());
        }
        recorder.dispatch_each(&shader, count)
    });
    Ok(Recipe { unbound: if reads_cache { vec![] } else { vec![0] }, ..recipe })
}

/// Stands for a cache without elements, which has no buffer.
const NOTHING: &str = "fn old_bits(index: u32) -> u32 {
    return 0u;
}
";

/// Computes a [`Rotary`], with a thread for each element.
pub(super) fn rotary<'n>(node: &'n NodeSpec, op: &Rotary) -> Result<Recipe<'n>, KernelError> {
    let (x, angles) = (node.inputs[0].shape.dims(), node.inputs[1].shape.dims());
    let (length, count) = (node.rotary_length(), node.outputs[0].shape.elements());
    let (heads, depth) = (if op.by_head { x[1] } else { x[2] }, x[3]);
    let own = node.inputs[3].shape.elements() == x[0] * length;
    let (interleaved, by_head) = (op.interleaved, op.by_head);
    let (positions, pairs) = (angles[0], angles[1]);
    if positions.max(length) > FARTHEST {
        return Err(node.unsupported("it has more positions than a kernel can count"));
    }
    Ok(Recipe::new(node, move |recorder| {
        let mut shader = Shader::new("rotary", include_str!("rotary.wgsl"));
        shader.constant("INTERLEAVED", usize::from(interleaved)).constant("BY_HEAD", usize::from(by_head));
        shader.constant("OWN", usize::from(own)).parameter("count", count);
        shader.parameter("heads", heads).parameter("length", length).parameter("depth", depth);
        shader.parameter("positions", positions).parameter("pairs", pairs);
        shader.code(BOUNDED);
        shader.read("x", "f32", recorder.input(0)?).read("cosines", "f32", recorder.input(1)?);
        shader.read("sines", "f32", recorder.input(2)?).read("places", "vec2<u32>", recorder.input(3)?);
        shader.write("y", "f32", recorder.output(0)?);
        recorder.dispatch_each(&shader, count)
    }))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, check, gpu, noise, run_on_cpu, spec, tensor};
    use super::*;
    use anabranch_kernel_testing as testing;
    use anabranch_op::dtype::DType;
    use anabranch_op::op::Op;
    use anabranch_op::tensor::Tensor;

    fn given(seed: u64, dims: &[usize]) -> Tensor {
        tensor(dims, &noise(seed, dims.iter().product()))
    }

    fn node(op: Op, inputs: &[Tensor], made: &[usize]) -> NodeSpec {
        NodeSpec { op, inputs: inputs.iter().map(|input| input.spec().clone()).collect(), outputs: vec![spec(made)] }
    }

    #[test]
    fn new_positions_stand_where_each_row_wants_them() {
        for (lists, own, fresh, made) in
            [(1, 5, 1, 5), (3, 5, 2, 5), (2, 0, 3, 4), (2, 4, 3, 9), (1, 7, 7, 7), (3, 200, 1, 300)]
        {
            for first in [0, (made - fresh) / 2, made - fresh] {
                let starts = Tensor::from_i64s(&[first as i64, (made - fresh - first) as i64]);
                let inputs = [given(1, &[2, lists, own, 3]), given(2, &[2, lists, fresh, 3]), starts];
                check(&node(Op::Append(Append { circular: false }), &inputs, &[2, lists, made, 3]), &inputs);
            }
        }
    }

    /// New positions of caches in all types and sizes, in place and elsewhere: the bits are the CPU's.
    #[test]
    fn caches_of_all_types_get_the_bits_of_the_cpu() {
        let numbers = special();
        let at = |index: usize, of: usize| f64::from(numbers[(index * 7 + of) % numbers.len()]);
        // Words that two positions share, and that two lists share.
        let sizes = [[1, 5, 1, 32], [3, 5, 2, 33], [2, 7, 7, 1], [3, 4, 4, 3], [1, 300, 1, 80], [5, 3, 2, 1]];
        let types =
            [[DType::F32; 2], [DType::F16; 2], [DType::BF16; 2], [DType::F16, DType::F32], [DType::BF16, DType::F32]];
        for ([lists, capacity, fresh, run], [stored, given]) in
            sizes.into_iter().flat_map(|sizes| types.into_iter().map(move |types| (sizes, types)))
        {
            for first in [0, (capacity - fresh) / 2, capacity - fresh] {
                let inputs = [
                    testing::tensor(stored, &[2, lists, capacity, run], |index| at(index, 3)),
                    testing::tensor(given, &[2, lists, fresh, run], |index| at(index, 0)),
                    Tensor::from_i64s(&[first as i64, (capacity - fresh - first) as i64]),
                ];
                let node = NodeSpec {
                    op: Op::Append(Append { circular: false }),
                    inputs: inputs.iter().map(|input| input.spec().clone()).collect(),
                    outputs: vec![inputs[0].spec().clone()],
                };
                let want = run_on_cpu(&node, &inputs).expect("sound").swap_remove(0);
                for in_place in [false, true] {
                    let run = Run { in_place, expected: None, ..Run::new(&node) };
                    let got = run.words(&inputs).expect("runs").0.swap_remove(0);
                    let got: &[u8] = bytemuck::cast_slice(&got);
                    assert_eq!(&got[..want.bytes().len()], want.bytes(), "{} in place: {in_place}", node.key());
                }
            }
        }
    }

    #[test]
    fn in_place_the_work_is_that_of_the_new_positions() {
        let groups = |capacity: usize, in_place: bool| {
            let inputs = [given(1, &[1, 2, capacity, 64]), given(2, &[1, 2, 1, 64]), Tensor::from_i64s(&[7])];
            let node = node(Op::Append(Append { circular: false }), &inputs, &[1, 2, capacity, 64]);
            Run { in_place, expected: None, ..Run::new(&node) }.words(&inputs).expect("runs").1
        };
        assert_eq!([groups(8, true), groups(2048, true)], [1, 1]);
        assert_eq!([groups(8, false), groups(2048, false)], [4, 1024]);
    }

    /// Numbers at the ends of 16-bit floats, halves between their neighbours, and many others.
    fn special() -> Vec<f32> {
        let exact = [0.0, 1.0, 65504.0, 6.103_515_6e-5, 5.960_464_5e-8, f32::MIN_POSITIVE, f32::MAX, 1e-45];
        let between = [65519.996, 65520.0, 2.980_232_2e-8, 2.980_232_6e-8, 8.940_697e-8, 1.000_488_3, 3.389_531_4e38];
        let mut numbers: Vec<f32> = exact.into_iter().chain(between).chain(noise(5, 40)).collect();
        numbers.extend((-30..20).map(|power| 2f32.powi(power) * 1.37));
        let negative: Vec<f32> = numbers.iter().map(|x| -x).collect();
        numbers.extend(negative);
        numbers.extend([f32::INFINITY, f32::NEG_INFINITY]);
        // Payloads of NaN that 16 bits keep, lose, and that a signalling NaN has.
        numbers.extend([0x7fc0_0000, 0xffc0_2000, 0x7f80_0001, 0xffbf_ffff].map(f32::from_bits));
        numbers
    }

    #[test]
    fn positions_outside_are_moved_to_the_ends_and_circles_are_refused() {
        let inputs = |start| [given(1, &[1, 2, 5, 3]), given(2, &[1, 2, 2, 3]), Tensor::from_i64s(&[start])];
        let append = |start, circular| {
            let inputs = inputs(start);
            let node = node(Op::Append(Append { circular }), &inputs, &[1, 2, 5, 3]);
            (Run::new(&node).outputs(&inputs), crate::gpu::supports(&node, &[false; 3], gpu().facts()))
        };
        let at = |start| append(start, false).0.expect("runs");
        for (bad, near) in [(-1, 0), (i64::MIN, 0), (4, 3), (1 << 31, 3), (1 << 32, 3), (i64::MAX, 3)] {
            assert_eq!(at(bad), at(near), "{bad}");
        }
        assert!(matches!(append(0, true).1, Err(KernelError::Unsupported { .. })));
    }

    #[test]
    fn caches_of_other_types_are_refused() {
        for dtype in [DType::F64, DType::I64, DType::I32, DType::I16, DType::U8, DType::Bool] {
            let of = |positions: usize| testing::tensor(dtype, &[1, 2, positions, 4], |_| 1.0);
            let inputs = [of(5), of(1), Tensor::from_i64s(&[0])];
            let node = NodeSpec {
                outputs: vec![inputs[0].spec().clone()],
                ..node(Op::Append(Append { circular: false }), &inputs, &[1, 2, 5, 4])
            };
            let refused = crate::gpu::supports(&node, &[false; 3], gpu().facts());
            assert!(matches!(refused, Err(KernelError::Unsupported { .. })), "{dtype}: {refused:?}");
        }
    }

    #[test]
    fn angles_of_positions_outside_are_those_of_the_ends() {
        let angles = || [given(2, &[12, 2]), given(3, &[12, 2])];
        let made = |place| {
            let [cosines, sines] = angles();
            let inputs = [given(1, &[1, 2, 1, 4]), cosines, sines, Tensor::from_i64s(&[place])];
            let node = node(Op::Rotary(Rotary { interleaved: false, by_head: true }), &inputs, &[1, 2, 1, 4]);
            Run::new(&node).outputs(&inputs).expect("runs")
        };
        for (bad, near) in [(-1, 0), (i64::MIN, 0), (12, 11), (1 << 32, 11), (i64::MAX, 11)] {
            assert_eq!(made(bad), made(near), "{bad}");
        }
    }

    #[test]
    fn pairs_are_turned_by_their_position() {
        let sizes = [([2, 3, 8], 4), ([3, 1, 20], 6), ([1, 5, 7], 3), ([4, 2, 64], 32)];
        for (([heads, length, depth], pairs), flags) in sizes.into_iter().flat_map(|it| (0..8).map(move |f| (it, f))) {
            let op = Rotary { interleaved: flags & 1 != 0, by_head: flags & 2 != 0 };
            let places: Vec<i64> = match flags & 4 != 0 {
                true => (0..2 * length as i64).map(|i| i * 5 % 12).collect(),
                false => vec![3, 7],
            };
            let dims = if op.by_head { [2, heads, length, depth] } else { [2, length, heads, depth] };
            let inputs = [given(1, &dims), given(2, &[12, pairs]), given(3, &[12, pairs]), Tensor::from_i64s(&places)];
            check(&node(Op::Rotary(op), &inputs, &[2, heads, length, depth]), &inputs);
        }
    }
}
