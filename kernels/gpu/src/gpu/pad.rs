//! Borders around tensors: constant, mirrored, wrapped, or the edge repeated.

use super::space::split;
use super::{Recipe, Shader, expression};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Pad, PadMode};
use std::fmt::Write;

/// One axis, or several unpadded axes as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    size: usize,
    padded: usize,
    before: isize,
}

pub(super) fn recipe<'n>(node: &NodeSpec, op: &'n Pad) -> Result<Recipe<'n>, KernelError> {
    let (dims, padded) = (node.inputs[0].shape.dims(), node.outputs[0].shape.dims());
    let mut axes: Vec<Axis> = Vec::new();
    for (axis, (&size, &padded)) in dims.iter().zip(padded).enumerate() {
        let own = Axis { size, padded, before: op.before[axis] };
        if [size, padded, own.before.unsigned_abs()].iter().any(|n| *n > i32::MAX as usize / 4) {
            return Err(node.unsupported("an axis of more than 2²⁹ elements"));
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
    let count: usize = padded.iter().product();
    Ok(Recipe::new(node, move |recorder| {
        let mut shader = Shader::new("pad", include_str!("pad.wgsl"));
        shader.parameter("count", count);
        shader.read("x", "f32", recorder.input(0)?).write("y", "f32", recorder.output(0)?);
        shader.code(&element(op.mode, &axes));
        recorder.dispatch_each(&shader, count)
    }))
}

/// Returns the WGSL function that computes an output element.
fn element(mode: PadMode, axes: &[Axis]) -> String {
    let padded: Vec<_> = axes.iter().map(|axis| axis.padded).collect();
    let mut text = format!("fn element(index: u32) -> f32 {{\n{}", split("index", "c", &padded));
    let mut offset = String::from("0u");
    for (number, axis) in axes.iter().enumerate() {
        let Axis { size, padded, before } = *axis;
        let _ = writeln!(text, "    let i{number} = i32(c{number}) - ({before});");
        let source = match mode {
            PadMode::Reflect => format!("reflected(i{number}, {size})"),
            PadMode::Wrap => format!("wrapped(i{number}, {size})"),
            PadMode::Constant(_) | PadMode::Edge => format!("u32(clamp(i{number}, 0, {}))", size as isize - 1),
        };
        if let (PadMode::Constant(value), true) = (mode, before != 0 || size != padded) {
            let outside = format!("u32(i{number}) >= {size}u");
            let _ = writeln!(text, "    if {outside} {{ return {}; }}", expression::number(value.as_f32(), 0));
        }
        offset = format!("({offset}) * {size}u + {source}");
    }
    let _ = write!(text, "    return x[{offset}];\n}}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node};
    use super::*;
    use anabranch_op::op::Op;

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
            for mode in [PadMode::Constant((-0.5).into()), PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
                let node = node(Op::Pad(Pad { mode, before: before.to_vec() }), &[dims], &[padded]);
                check(&node, &inputs(&node, 61));
            }
        }
    }
}
