//! Permutations of axes: strided copies if the innermost axis stays, else tiles that are transposed in workgroup
//! memory.

use super::copy::{StridedCopy, signed};
use super::kernel::Recorder;
use super::space::{Space, offset, split};
use super::{Recipe, Shader};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Transpose};

/// Elements along each side of a tile.
const TILE: usize = 32;

pub(super) fn recipe<'n>(node: &NodeSpec, op: &Transpose) -> Recipe<'n> {
    let (input, output) = (&node.inputs[0].shape, &node.outputs[0].shape);
    let permuted = |of: &[usize]| op.permutation.iter().map(|axis| of[*axis]).collect::<Vec<_>>();
    let (source, target) = (signed(&permuted(&input.strides())), signed(&output.strides()));
    let space = Space::collapsed(output.dims(), &[source.clone(), target.clone()]);
    match space.strides[0].iter().position(|stride| *stride == 1) {
        Some(axis) if axis + 1 < space.dims.len() => {
            let turned = Turned::new(space, axis);
            Recipe::new(node, move |recorder| turned.record(recorder))
        }
        // Runs of neighbouring elements stay together.
        _ => {
            let copy = StridedCopy::new(output.dims(), (0, source), (0, target));
            Recipe::new(node, move |recorder| copy.record("transpose_in_order", recorder, 0))
        }
    }
}

/// Matrices to be transposed; the product of all other axes is their number.
struct Turned {
    /// Other axes, with the source's and the target's strides.
    batch: Space,
    lines: usize,
    columns: usize,
    source_stride: usize,
    target_stride: usize,
}

impl Turned {
    /// Creates the transposition of the planes of the target's innermost axis and of `axis`, which is the source's
    /// innermost.
    fn new(mut space: Space, axis: usize) -> Self {
        let last = space.dims.len() - 1;
        let (lines, columns) = (space.dims[axis], space.dims[last]);
        let source_stride = space.strides[0][last] as usize;
        let target_stride = space.strides[1][axis] as usize;
        for list in &mut space.strides {
            list.remove(last);
            list.remove(axis);
        }
        space.dims.remove(last);
        space.dims.remove(axis);
        Self { batch: space, lines, columns, source_stride, target_stride }
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let tiles = [self.lines.div_ceil(TILE), self.columns.div_ceil(TILE)];
        let count = tiles[0] * tiles[1] * self.batch.dims.iter().product::<usize>();
        let mut shader = Shader::new("transpose", include_str!("transpose.wgsl"));
        shader.parameter("tiles", count).parameter("line_tiles", tiles[0]).parameter("column_tiles", tiles[1]);
        shader.parameter("lines", self.lines).parameter("columns", self.columns);
        shader.parameter("source_stride", self.source_stride).parameter("target_stride", self.target_stride);
        shader.read("x", "f32", recorder.input(0)?).write("y", "f32", recorder.output(0)?);
        for (name, strides) in ["source_of", "target_of"].into_iter().zip(&self.batch.strides) {
            let splits = split("batch", "c", &self.batch.dims);
            let offset = offset("c", strides);
            shader.code(&format!("fn {name}(batch: u32) -> u32 {{\n{splits}    return {offset};\n}}\n"));
        }
        recorder.dispatch(&shader, count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, check, check_run, inputs, narrow, node};
    use super::*;
    use anabranch_op::op::Op;

    fn transpose(dims: &[usize], permutation: &[usize]) -> NodeSpec {
        let out: Vec<_> = permutation.iter().map(|axis| dims[*axis]).collect();
        node(Op::Transpose(Transpose { permutation: permutation.to_vec() }), &[dims], &[&out])
    }

    #[test]
    fn all_permutations() {
        let cases: [(&[usize], &[usize]); 11] = [
            (&[], &[]),
            (&[3, 5], &[0, 1]),
            (&[33, 65], &[1, 0]),
            (&[1, 9], &[1, 0]),
            (&[2, 3, 4], &[2, 1, 0]),
            (&[2, 7, 3, 8], &[0, 2, 1, 3]),
            (&[2, 7, 3, 8], &[0, 2, 3, 1]),
            (&[2, 3, 4, 5], &[3, 1, 0, 2]),
            (&[40, 2, 35], &[2, 1, 0]),
            (&[3, 40, 35], &[0, 2, 1]),
            (&[2, 1, 3, 2, 5], &[4, 0, 3, 1, 2]),
        ];
        for (dims, permutation) in cases {
            let node = transpose(dims, permutation);
            check(&node, &inputs(&node, 51));
        }
    }

    #[test]
    fn more_tiles_than_one_dimension_of_groups_holds() {
        let node = transpose(&[330, 290], &[1, 0]);
        check_run(Run { gpu: narrow(), ..Run::new(&node) }, &inputs(&node, 52));
    }

    #[test]
    fn more_than_65_535_workgroups() {
        // One tile, and therefore one workgroup, for each small matrix.
        let node = transpose(&[70_000, 2, 3], &[0, 2, 1]);
        check(&node, &inputs(&node, 53));
    }
}
