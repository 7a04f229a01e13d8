//! Strided copies, which slices, concatenations and most transpositions use.

use super::Shader;
use super::kernel::Recorder;
use super::space::Space;
use anabranch_op::error::KernelError;

/// Copy of a box of elements between two strided layouts.
#[derive(Clone, Debug)]
pub(crate) struct StridedCopy {
    /// Dimensions of the box; operand 0 is the source, operand 1 the target.
    space: Space,
    source: usize,
    target: usize,
}

impl StridedCopy {
    /// Creates the copy of a box of `dims`, whose first element is at `source` and `target` in the two layouts.
    pub(crate) fn new(dims: &[usize], source: (usize, Vec<isize>), target: (usize, Vec<isize>)) -> Self {
        Self { space: Space::collapsed(dims, &[source.1, target.1]), source: source.0, target: target.0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.space.dims.contains(&0)
    }

    /// Whether vectors of four are whole and aligned on both sides.
    fn vectors(&self) -> bool {
        let aligned = |strides: &Vec<isize>| {
            strides.split_last().is_some_and(|(last, others)| *last == 1 && others.iter().all(|s| s % 4 == 0))
        };
        let starts = self.source.is_multiple_of(4) && self.target.is_multiple_of(4);
        starts && self.space.dims.last().is_some_and(|d| d % 4 == 0) && self.space.strides.iter().all(aligned)
    }

    /// Records the copy of input `input` to the node's only output.
    pub(crate) fn record(
        &self,
        name: &'static str,
        recorder: &mut Recorder<'_>,
        input: usize,
    ) -> Result<(), KernelError> {
        let width = if self.vectors() { 4 } else { 1 };
        let element = if width == 4 { "vec4<f32>" } else { "f32" };
        let count = self.space.dims.iter().product::<usize>() / width;
        let mut shader = Shader::new(name, include_str!("copy.wgsl"));
        shader.constant("WIDTH", width).parameter("count", count);
        shader.parameter("source_start", self.source).parameter("target_start", self.target);
        shader.read("x", element, recorder.input(input)?).write("y", element, recorder.output(0)?);
        shader.code(&self.address("source_of", 0)).code(&self.address("target_of", 1));
        recorder.dispatch_each(&shader, count)
    }

    /// Returns a WGSL function of the linear index that returns the operand's offset.
    fn address(&self, name: &str, operand: usize) -> String {
        let body = match self.space.is_dense(operand) {
            true => "    return index;\n".into(),
            false => format!("{}    return {};\n", self.space.coordinates("index"), self.space.offset(operand)),
        };
        format!("fn {name}(index: u32) -> u32 {{\n{body}}}\n")
    }
}

/// Converts strides to those of an operand of a [`Space`].
pub(crate) fn signed(strides: &[usize]) -> Vec<isize> {
    strides.iter().map(|stride| *stride as isize).collect()
}
