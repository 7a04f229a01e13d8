//! Normalisation to zero mean and unit variance over trailing axes, with an epilogue.

use super::epilogue::{Coordinate, Epilogue};
use super::kernel::Recorder;
use super::lanes::{Lanes, tree};
use super::shader::Shader;
use super::{Recipe, invalid};
use crate::error::KernelError;
use crate::op::{NodeSpec, Normalize};

pub(crate) struct NormalizeRecipe {
    /// Rows that are normalised, and how many of them are one of the node's.
    rows: usize,
    joined: usize,
    length: usize,
    epsilon: f32,
    center: bool,
    lanes: Lanes,
    epilogue: Epilogue,
}

impl NormalizeRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Normalize) -> Result<Self, KernelError> {
        let (Some(input), [output]) = (node.inputs.first(), &node.outputs[..]) else {
            return Err(invalid(node, "an input and one output are expected"));
        };
        let dims = input.shape.dims();
        if op.axis >= dims.len() || input.shape.elements() != output.shape.elements() {
            return Err(invalid(node, "as many outputs as inputs, and the axis, are expected"));
        }
        let length: usize = dims[op.axis..].iter().product();
        // The linear index is the only coordinate; the operands' offsets are worked out from it.
        let all = Coordinate { name: "at", axes: 0..output.shape.rank() };
        let rows: usize = dims[..op.axis].iter().product();
        Ok(Self {
            rows,
            joined: node.row_plan().map_or(1, |plan| rows / plan.rows),
            length,
            epsilon: op.epsilon,
            center: op.center,
            lanes: Lanes::new(length, false),
            epilogue: Epilogue::new(node, &[all])?,
        })
    }
}

impl Recipe for NormalizeRecipe {
    fn bindings(&self) -> usize {
        2 + self.epilogue.bindings()
    }

    fn passes(&self) -> usize {
        3 * self.lanes.passes(self.length)
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let rows = recorder.rows(self.rows / self.joined);
        let rows = rows.start * self.joined..rows.end * self.joined;
        let mut shader = Shader::new("normalize", include_str!("normalize.wgsl"));
        shader.constant("CENTER", usize::from(self.center));
        shader.parameter("first", rows.start).parameter("count", rows.len());
        shader.parameter("length", self.length).parameter("epsilon", self.epsilon.to_bits() as usize);
        shader.read("x", "f32", recorder.input(0)?).write("y", "f32", recorder.output(0)?);
        self.epilogue.declare(&mut shader, recorder)?;
        self.lanes.declare(&mut shader);
        shader.code(&tree("total", "f32", "sum_of"));
        recorder.dispatch(&shader, self.lanes.groups(rows.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, check, inputs, node};
    use super::*;
    use crate::op::{Binary, Expression, Op};

    fn normalized(length: usize, op: &Normalize, x: &[f32]) -> Vec<f32> {
        let row = |x: &[f32]| {
            let mean = if op.center { x.iter().map(|v| f64::from(*v)).sum::<f64>() / length as f64 } else { 0.0 };
            let variance = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / length as f64;
            let factor = 1.0 / (variance + f64::from(op.epsilon)).sqrt();
            x.iter().map(|v| ((f64::from(*v) - mean) * factor) as f32).collect::<Vec<_>>()
        };
        x.chunks(length).flat_map(row).collect()
    }

    #[test]
    fn rows_of_several_normalised_ones_are_computed_in_place() {
        let epilogue = Some(Expression::binary(Binary::Multiply));
        let op = Op::Normalize(Normalize { axis: 1, epsilon: 1e-5, center: true, epilogue });
        let node = node(op, &[&[6, 4], &[12]], &[&[2, 12]]);
        let values = inputs(&node, 45);
        let whole = Run::new(&node).outputs(&values).expect("runs").remove(0);
        let part = Run { rows: Some(1..2), ..Run::new(&node) }.outputs(&values).expect("runs").remove(0);
        assert_eq!(part[..12], [super::super::testing::UNWRITTEN; 12]);
        assert_eq!(part[12..], whole[12..]);
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
            let op = Normalize { axis, epsilon: 1e-5, center, epilogue: None };
            let node = node(Op::Normalize(op.clone()), &[dims], &[dims]);
            let mut x = inputs(&node, 11);
            // Far from zero, where the variance as a difference of squares would be lost.
            let moved: Vec<_> = x[0].elements::<f32>().expect("f32").iter().map(|v| v + 100.0).collect();
            x[0] = super::super::testing::tensor(dims, &moved);
            let length = dims[axis..].iter().product();
            check(&node, &x, &[normalized(length, &op, &moved)]);
        }
    }

    #[test]
    fn the_epilogue_scales_and_shifts_by_the_outputs_axes() {
        let scale = Expression::binary(Binary::Multiply);
        let epilogue = scale.then(&Expression::binary(Binary::Add), 0).expect("fits");
        let op = Normalize { axis: 2, epsilon: 1e-3, center: true, epilogue: Some(epilogue) };
        // A group norm: two groups of three channels, scale and shift by channel.
        let groups: &[&[usize]] = &[&[2, 2, 3 * 20], &[6, 1, 1], &[6, 1, 1]];
        let node = node(Op::Normalize(op.clone()), groups, &[&[2, 6, 4, 5]]);
        let x = inputs(&node, 12);
        let values = |i: usize| x[i].elements::<f32>().expect("f32");
        let mut want = normalized(60, &op, values(0));
        want.iter_mut().enumerate().for_each(|(i, v)| *v = *v * values(1)[i / 20 % 6] + values(2)[i / 20 % 6]);
        check(&node, &x, &[want]);
    }

    #[test]
    fn rows_are_computed_in_place() {
        let op = Normalize { axis: 1, epsilon: 1e-5, center: true, epilogue: None };
        let node = node(Op::Normalize(op), &[&[9, 33]], &[&[9, 33]]);
        let x = inputs(&node, 13);
        let whole = Run::new(&node).outputs(&x).expect("runs").remove(0);
        let part = Run { rows: Some(4..7), ..Run::new(&node) }.outputs(&x).expect("runs").remove(0);
        assert_close(&part[4 * 33..7 * 33], &whole[4 * 33..7 * 33], "the window");
    }
}
