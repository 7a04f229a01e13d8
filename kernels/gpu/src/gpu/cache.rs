//! Appending to key-value caches, and rotary position embedding.
//!
//! Positions are elements of a tensor, so that they are known only in the run. The rows of a batch may differ in them.
//!
//! A GPU reports no error about a value. Lengths and positions outside their range are therefore moved to its ends, and
//! read and write nothing outside. Lowered models let CPUs judge them first ([`Length`](anabranch_op::op::Length)).

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

/// Computes an [`Append`], with a thread for each element of the cache.
pub(super) fn append<'n>(node: &'n NodeSpec, op: &Append) -> Result<Recipe<'n>, KernelError> {
    if op.circular {
        return Err(node.unsupported("circular positions have no GPU kernel"));
    }
    let dims = [&node.inputs[0], &node.inputs[1], &node.outputs[0]].map(|of| of.shape.dims());
    let [cache, new, made] = dims.map(|dims| dims[2]);
    if made > FARTHEST {
        return Err(node.unsupported("it has more positions than a kernel can count"));
    }
    let (lists, run, count) = (dims[2][1], dims[2][3], node.outputs[0].shape.elements());
    let reads_cache = node.inputs[0].shape.elements() > 0;
    let recipe = Recipe::new(node, move |recorder| {
        let mut shader = Shader::new("append", include_str!("append.wgsl"));
        shader.parameter("count", count).parameter("lists", lists).parameter("run", run);
        shader.parameter("own", cache).parameter("added", new).parameter("made", made);
        shader.code(BOUNDED);
        match reads_cache {
            true => shader.read("cache", "f32", recorder.input(0)?).code(OLD),
            false => shader.code(NOTHING),
        };
        shader.read("fresh", "f32", recorder.input(1)?).read("starts", "vec2<u32>", recorder.input(2)?);
        shader.write("y", "f32", recorder.output(0)?);
        recorder.dispatch_each(&shader, count)
    });
    Ok(Recipe { unbound: if reads_cache { vec![] } else { vec![0] }, ..recipe })
}

const OLD: &str = "fn old(index: u32) -> f32 {
    return cache[index];
}
";

/// Stands for a cache without elements, which has no buffer.
const NOTHING: &str = "fn old(index: u32) -> f32 {
    return 0.0;
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
    use super::super::testing::{Run, check, gpu, noise, spec, tensor};
    use super::*;
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
