//! Normalisation to zero mean and unit variance over trailing axes, with an epilogue.

use super::epilogue::{Coordinate, Epilogue};
use super::lanes::{Lanes, tree};
use super::{Recipe, Shader};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Normalize};

pub(super) fn recipe<'n>(node: &'n NodeSpec, op: &'n Normalize) -> Result<Recipe<'n>, KernelError> {
    let (dims, output) = (node.inputs[0].shape.dims(), &node.outputs[0].shape);
    let length: usize = dims[op.axis..].iter().product();
    // The linear index is the only coordinate; the operands' offsets are computed from it.
    let epilogue = Epilogue::new(node, &[Coordinate { name: "at", axes: 0..output.rank() }])?;
    // Number of normalised rows, and how many of them are one of the node's rows.
    let all: usize = dims[..op.axis].iter().product();
    let joined = node.row_plan().map_or(1, |plan| all / plan.rows);
    let lanes = Lanes::new(length, false);
    let recipe = Recipe::new(node, move |recorder| {
        let rows = recorder.rows(all / joined);
        let rows = rows.start * joined..rows.end * joined;
        let mut shader = Shader::new("normalize", include_str!("normalize.wgsl"));
        shader.constant("CENTER", usize::from(op.center));
        shader.parameter("first", rows.start).parameter("count", rows.len());
        shader.parameter("length", length).parameter("epsilon", op.epsilon.to_bits() as usize);
        shader.read("x", "f32", recorder.input(0)?).write("y", "f32", recorder.output(0)?);
        epilogue.declare(&mut shader, recorder)?;
        lanes.declare(&mut shader);
        shader.code(&tree("total", "vec2<f32>", "both"));
        recorder.dispatch(&shader, lanes.groups(rows.len()))
    });
    Ok(Recipe { passes: 3 * lanes.passes(length), ..recipe })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, check, check_rows, inputs, node, tensor};
    use super::*;
    use anabranch_op::op::{Binary, Expression, Op};

    fn normalize(axis: usize, center: bool, epilogue: Option<Expression>) -> Op {
        Op::Normalize(Normalize { axis, epsilon: 1e-5, center, epilogue })
    }

    /// Computes a row in twice the precision.
    fn row(x: &[f32], center: bool) -> Vec<f32> {
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / x.len() as f64;
        let middle = if center { mean(&mut x.iter().map(|v| f64::from(*v))) } else { 0.0 };
        let variance = mean(&mut x.iter().map(|v| (f64::from(*v) - middle).powi(2)));
        x.iter().map(|v| ((f64::from(*v) - middle) / (variance + 1e-5).sqrt()) as f32).collect()
    }

    #[test]
    fn rows_get_zero_mean_and_unit_variance() {
        for (dims, axis, center) in [
            (&[1usize, 1][..], 1, true),
            (&[6, 768], 1, true),
            (&[3, 5, 7], 1, false),
            (&[2, 1500], 1, true),
            (&[50, 3], 1, true),
            (&[4, 6], 0, false),
        ] {
            let node = node(normalize(axis, center, None), &[dims], &[dims]);
            let x = inputs(&node, 11);
            // Values far from zero, for which a difference of squares would lose the variance.
            let moved: Vec<_> = x[0].elements::<f32>().expect("f32").iter().map(|v| v + 100.0).collect();
            let want: Vec<f32> = moved.chunks(dims[axis..].iter().product()).flat_map(|x| row(x, center)).collect();
            let got = Run::new(&node).outputs(&[tensor(dims, &moved)]).expect("runs").remove(0);
            assert_close(&got, &want, &node.key());
        }
    }

    #[test]
    fn the_epilogue_scales_and_shifts_by_the_outputs_axes() {
        let scale = Expression::binary(Binary::Multiply);
        let epilogue = scale.then(&Expression::binary(Binary::Add), 0).expect("fits");
        // A group norm: two groups of three channels, scale and shift by channel.
        let groups: &[&[usize]] = &[&[2, 2, 3 * 20], &[6, 1, 1], &[6, 1, 1]];
        let node = node(normalize(2, true, Some(epilogue)), groups, &[&[2, 6, 4, 5]]);
        check(&node, &inputs(&node, 12));
    }

    #[test]
    fn rows_are_computed_in_place() {
        let plain = node(normalize(1, true, None), &[&[9, 33]], &[&[9, 33]]);
        check_rows(&plain, &inputs(&plain, 13), 4..7);
        // A row of several that are normalised.
        let scale = Some(Expression::binary(Binary::Multiply));
        let joined = node(normalize(1, true, scale), &[&[6, 4], &[12]], &[&[2, 12]]);
        check_rows(&joined, &inputs(&joined, 45), 1..2);
    }
}
