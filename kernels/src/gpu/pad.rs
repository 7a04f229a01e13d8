//! Borders around tensors: constant, mirrored, or the edge repeated.

use super::kernel::Recorder;
use super::limits::THREADS;
use super::shader::Shader;
use super::space::split;
use super::{Recipe, expression, invalid, unsupported};
use crate::error::KernelError;
use crate::op::{NodeSpec, Pad, PadMode};
use std::fmt::Write;

/// One axis, or several that are not padded as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    size: usize,
    padded: usize,
    before: isize,
}

pub(crate) struct PadRecipe {
    mode: PadMode,
    axes: Vec<Axis>,
}

impl PadRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Pad) -> Result<Self, KernelError> {
        let ([input], [output]) = (&node.inputs[..], &node.outputs[..]) else {
            return Err(invalid(node, "one input and one output are expected"));
        };
        let (dims, padded) = (input.shape.dims(), output.shape.dims());
        if op.before.len() != dims.len() || padded.len() != dims.len() {
            return Err(invalid(node, "a border and a size for each axis are expected"));
        }
        let mut axes: Vec<Axis> = Vec::new();
        for (axis, (&size, &padded)) in dims.iter().zip(padded).enumerate() {
            let own = Axis { size, padded, before: op.before[axis] };
            if [size, padded, own.before.unsigned_abs()].iter().any(|n| *n > i32::MAX as usize / 4) {
                return Err(unsupported(node, "an axis of more than 2²⁹ elements"));
            }
            let plain = |axis: &Axis| axis.before == 0 && axis.size == axis.padded;
            match axes.last_mut().filter(|last| plain(last) && plain(&own)) {
                Some(last) => {
                    last.size *= size;
                    last.padded *= padded;
                }
                None => axes.push(own),
            }
        }
        Ok(Self { mode: op.mode, axes })
    }

    /// The function that computes an output element.
    fn element(&self) -> String {
        let padded: Vec<_> = self.axes.iter().map(|axis| axis.padded).collect();
        let mut text = format!("fn element(index: u32) -> f32 {{\n{}", split("index", "c", &padded));
        let mut offset = String::from("0u");
        for (number, axis) in self.axes.iter().enumerate() {
            let Axis { size, padded, before } = *axis;
            let _ = writeln!(text, "    let i{number} = i32(c{number}) - ({before});");
            let source = match self.mode {
                PadMode::Reflect => format!("reflected(i{number}, {size})"),
                PadMode::Constant(_) | PadMode::Edge => format!("u32(clamp(i{number}, 0, {}))", size as isize - 1),
            };
            if let (PadMode::Constant(value), true) = (self.mode, before != 0 || size != padded) {
                let outside = format!("u32(i{number}) >= {size}u");
                let _ = writeln!(text, "    if {outside} {{ return {}; }}", expression::literal(value as f32));
            }
            offset = format!("({offset}) * {size}u + {source}");
        }
        let _ = write!(text, "    return x[{offset}];\n}}\n");
        text
    }
}

impl Recipe for PadRecipe {
    fn bindings(&self) -> usize {
        2
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let count: usize = self.axes.iter().map(|axis| axis.padded).product();
        let mut shader = Shader::new("pad", include_str!("pad.wgsl"));
        shader.parameter("count", count);
        shader.read("x", "f32", recorder.input(0)?).write("y", "f32", recorder.output(0)?);
        shader.code(&self.element());
        recorder.dispatch(&shader, count.div_ceil(THREADS as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node};
    use super::*;
    use crate::op::Op;

    #[test]
    fn borders_of_every_kind() {
        let cases: [(&[usize], &[isize], &[usize]); 6] = [
            (&[5], &[2], &[9]),
            (&[5], &[-1], &[3]),
            (&[2, 3, 4], &[0, 0, 1], &[2, 3, 6]),
            (&[2, 3, 4, 5], &[0, 0, 2, 3], &[2, 3, 7, 11]),
            (&[4, 3], &[-2, 2], &[3, 6]),
            (&[4, 1], &[3, 0], &[10, 1]),
        ];
        for (dims, before, padded) in cases {
            for mode in [PadMode::Constant(-0.5), PadMode::Reflect, PadMode::Edge] {
                let node = node(Op::Pad(Pad { mode, before: before.to_vec() }), &[dims], &[padded]);
                let x = inputs(&node, 61);
                let (from, to) = (node.inputs[0].shape.strides(), &node.outputs[0].shape);
                let values = x[0].elements::<f32>().expect("f32");
                let want = (0..to.elements()).map(|index| {
                    let mut at = 0;
                    for axis in 0..dims.len() {
                        let (n, out) = (dims[axis] as isize, index / to.strides()[axis] % padded[axis]);
                        let mut i = out as isize - before[axis];
                        if !(0..n).contains(&i) {
                            match mode {
                                PadMode::Constant(value) => return value as f32,
                                PadMode::Edge => i = i.clamp(0, n - 1),
                                PadMode::Reflect if i < 0 => i = -i,
                                PadMode::Reflect => i = 2 * (n - 1) - i,
                            }
                        }
                        at += i as usize * from[axis];
                    }
                    values[at]
                });
                check(&node, &x, &[want.collect()]);
            }
        }
    }
}
