//! Permutations of axes: strided copies where the innermost axis stays, else tiles that are turned in workgroup memory.

use super::copy::StridedCopy;
use super::kernel::Recorder;
use super::shader::Shader;
use super::space::{Space, offset, split};
use super::{Recipe, invalid};
use crate::error::KernelError;
use crate::op::{NodeSpec, Transpose};

/// Elements along each side of a tile.
const TILE: usize = 32;

pub(crate) enum TransposeRecipe {
    /// Runs of neighbouring elements stay together.
    InOrder(StridedCopy),
    /// The source's innermost axis is another than the target's.
    Turned(Turned),
}

/// Matrices to be turned, of which there are as many as the other axes' product.
pub(crate) struct Turned {
    /// The other axes, with the source's and the target's strides.
    batch: Space,
    lines: usize,
    columns: usize,
    source_stride: usize,
    target_stride: usize,
}

impl TransposeRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Transpose) -> Result<Self, KernelError> {
        let ([input], [output]) = (&node.inputs[..], &node.outputs[..]) else {
            return Err(invalid(node, "one input and one output are expected"));
        };
        let rank = input.shape.rank();
        let mut sorted = op.permutation.clone();
        sorted.sort_unstable();
        let dims = input.shape.dims();
        let permuted = sorted.iter().copied().eq(0..rank)
            && op.permutation.iter().map(|axis| dims[*axis]).eq(output.shape.dims().iter().copied());
        if !permuted {
            return Err(invalid(node, "a permutation of the input's axes is expected"));
        }
        let strides = input.shape.strides();
        let source: Vec<_> = op.permutation.iter().map(|axis| strides[*axis] as isize).collect();
        let target: Vec<_> = output.shape.strides().into_iter().map(|stride| stride as isize).collect();
        let space = Space::collapsed(output.shape.dims(), &[source.clone(), target.clone()]);
        match space.strides[0].iter().position(|stride| *stride == 1) {
            Some(axis) if axis + 1 < space.dims.len() => Ok(Self::Turned(Turned::new(space, axis))),
            _ => Ok(Self::InOrder(StridedCopy::new(output.shape.dims(), (0, source), (0, target)))),
        }
    }
}

impl Turned {
    /// Turns the planes of the target's innermost axis and of `axis`, which is the source's innermost.
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

impl Recipe for TransposeRecipe {
    fn bindings(&self) -> usize {
        2
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        match self {
            Self::Turned(turned) => turned.record(recorder),
            Self::InOrder(copy) => {
                let (x, y) = (recorder.input(0)?, recorder.output(0)?);
                copy.record("transpose_in_order", recorder, x, y)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, check, inputs, narrow, node};
    use super::*;
    use crate::op::Op;

    fn transpose(dims: &[usize], permutation: &[usize]) -> NodeSpec {
        let out: Vec<_> = permutation.iter().map(|axis| dims[*axis]).collect();
        node(Op::Transpose(Transpose { permutation: permutation.to_vec() }), &[dims], &[&out])
    }

    fn reference(node: &NodeSpec, permutation: &[usize], x: &[f32]) -> Vec<f32> {
        let (from, to) = (node.inputs[0].shape.strides(), &node.outputs[0].shape);
        let at = |index: usize| {
            (0..to.rank()).map(|a| index / to.strides()[a] % to.dims()[a] * from[permutation[a]]).sum::<usize>()
        };
        (0..x.len()).map(|index| x[at(index)]).collect()
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
            let x = inputs(&node, 51);
            check(&node, &x, &[reference(&node, permutation, x[0].elements::<f32>().expect("f32"))]);
        }
    }

    #[test]
    fn more_tiles_than_one_dimension_of_groups_holds() {
        let node = transpose(&[330, 290], &[1, 0]);
        let x = inputs(&node, 52);
        let got = Run { gpu: narrow(), ..Run::new(&node) }.outputs(&x).expect("runs").remove(0);
        let want = reference(&node, &[1, 0], x[0].elements::<f32>().expect("f32"));
        assert_close(&got, &want, "a turned matrix");
    }

    #[test]
    fn more_than_65_535_workgroups() {
        // A tile, and with it a workgroup, for each little matrix.
        let node = transpose(&[70_000, 2, 3], &[0, 2, 1]);
        let x = inputs(&node, 53);
        check(&node, &x, &[reference(&node, &[0, 2, 1], x[0].elements::<f32>().expect("f32"))]);
    }
}
