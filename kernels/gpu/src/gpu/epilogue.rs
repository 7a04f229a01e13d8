//! Epilogues: expressions that a kernel applies to each element of its result before storing it.

use super::kernel::Recorder;
use super::space::{Space, broadcast_strides, offset, split};
use super::{Shader, expression};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Expression, NodeSpec};
use std::ops::Range;

/// Coordinate of the element that a kernel stores: a WGSL variable, and the output's axes that it covers.
pub(crate) struct Coordinate {
    pub(crate) name: &'static str,
    pub(crate) axes: Range<usize>,
}

/// Epilogue of a node with its operands, or the identity.
pub(crate) struct Epilogue {
    expression: Option<Expression>,
    first_input: usize,
    splits: String,
    offsets: Vec<String>,
    parameters: String,
}

impl Epilogue {
    /// Creates the epilogue of `node`, whose kernel has these coordinates; together they cover the output's axes in
    /// order.
    pub(crate) fn new(node: &NodeSpec, coordinates: &[Coordinate]) -> Result<Self, KernelError> {
        let first_input = node.op.epilogue_inputs_start();
        let extras = node.inputs.get(first_input..).unwrap_or(&[]);
        let output = &node.outputs[0].shape;
        let strides = extras.iter().map(|extra| broadcast_strides(&extra.shape, output));
        let strides = strides.collect::<Result<Vec<_>, _>>()?;
        let (splits, offsets) = offsets(output.dims(), &strides, coordinates);
        let parameters = coordinates.iter().map(|c| format!(", {}: u32", c.name)).collect();
        let expression = node.op.epilogue().cloned();
        Ok(Self { expression, first_input, splits, offsets, parameters })
    }

    /// Declares the operands, and `finish(value, index, coordinates…)`, which computes the element to store at the
    /// linear `index`.
    pub(crate) fn declare<'a>(&self, shader: &mut Shader<'a>, recorder: &Recorder<'a>) -> Result<(), KernelError> {
        for operand in 0..self.offsets.len() {
            shader.read(format!("e{operand}"), "f32", recorder.input(self.first_input + operand)?);
        }
        let body = match &self.expression {
            None => "    return value;\n".into(),
            Some(expression) => {
                shader.code(&expression::function("evaluate", expression, 0));
                let reads: String =
                    self.offsets.iter().enumerate().map(|(i, offset)| format!(", e{i}[{offset}]")).collect();
                // The kernel's own last sum or product is a step like all others: register 0.
                format!("{}    return evaluate(opaque(value, 0u){reads});\n", self.splits)
            }
        };
        shader.code(&format!("fn finish(value: f32, index: u32{}) -> f32 {{\n{body}}}\n", self.parameters));
        Ok(())
    }
}

/// Returns the statements that split the coordinates as far as the operands need, and each operand's offset.
fn offsets(dims: &[usize], strides: &[Vec<isize>], coordinates: &[Coordinate]) -> (String, Vec<String>) {
    let mut splits = String::new();
    let mut terms = vec![Vec::new(); strides.len()];
    for coordinate in coordinates {
        let axes = coordinate.axes.clone();
        let own: Vec<_> = strides.iter().map(|s| s[axes.clone()].to_vec()).collect();
        let space = Space::collapsed(&dims[axes], &own);
        let prefix = format!("{}_", coordinate.name);
        splits.push_str(&split(coordinate.name, &prefix, &space.dims));
        for (terms, strides) in terms.iter_mut().zip(&space.strides) {
            if strides.iter().any(|stride| *stride != 0) {
                terms.push(offset(&prefix, strides));
            }
        }
    }
    let whole = Space::collapsed(dims, strides);
    let offset_of = |(operand, terms): (usize, Vec<String>)| match terms.is_empty() {
        true => "0u".to_string(),
        false if whole.is_dense(operand) => "index".to_string(),
        false => terms.join(" + "),
    };
    let offsets: Vec<_> = terms.into_iter().enumerate().map(offset_of).collect();
    let needed = offsets.iter().any(|offset| offset != "index" && offset != "0u");
    (if needed { splits } else { String::new() }, offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_found_by_the_coordinates_they_vary_along() {
        let coordinates = [
            Coordinate { name: "image", axes: 0..1 },
            Coordinate { name: "channel", axes: 1..2 },
            Coordinate { name: "pixel", axes: 2..4 },
        ];
        let bias = vec![0, 1, 0, 0];
        let residual = vec![60, 20, 5, 1];
        let (splits, found) = offsets(&[2, 3, 4, 5], &[bias.clone(), residual], &coordinates);
        assert_eq!(found, ["channel_0", "index"]);
        assert!(!splits.contains('/'), "{splits}");
        let (splits, found) = offsets(&[2, 3, 4, 5], &[bias, vec![0, 0, 1, 0]], &coordinates);
        assert_eq!(found, ["channel_0", "pixel_0"]);
        assert!(splits.contains("let pixel_0 = (pixel / 5u);"), "{splits}");
    }
}
