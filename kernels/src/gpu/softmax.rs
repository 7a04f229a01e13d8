//! Softmax and log-softmax along one axis.

use super::kernel::Recorder;
use super::lanes::{Lanes, tree};
use super::shader::Shader;
use super::{Recipe, invalid};
use crate::error::KernelError;
use crate::op::{NodeSpec, Softmax};

pub(crate) struct SoftmaxRecipe {
    log: bool,
    rows: usize,
    length: usize,
    inner: usize,
    lanes: Lanes,
}

impl SoftmaxRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Softmax) -> Result<Self, KernelError> {
        let ([input], [output]) = (&node.inputs[..], &node.outputs[..]) else {
            return Err(invalid(node, "one input and one output are expected"));
        };
        let dims = input.shape.dims();
        let (Some(&length), true) = (dims.get(op.axis), input.shape == output.shape) else {
            return Err(invalid(node, "equal shapes that have the axis are expected"));
        };
        let inner: usize = dims[op.axis + 1..].iter().product();
        let outer: usize = dims[..op.axis].iter().product();
        Ok(Self { log: op.log, rows: outer * inner, length, inner, lanes: Lanes::new(length, inner > 1) })
    }
}

impl Recipe for SoftmaxRecipe {
    fn bindings(&self) -> usize {
        2
    }

    fn passes(&self) -> usize {
        3 * self.lanes.passes(self.length)
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let rows = recorder.rows(self.rows);
        let mut shader = Shader::new("softmax", include_str!("softmax.wgsl"));
        shader.constant("LOG", usize::from(self.log));
        shader.parameter("first", rows.start).parameter("count", rows.len());
        shader.parameter("length", self.length).parameter("inner", self.inner);
        shader.read("x", "f32", recorder.input(0)?).write("y", "f32", recorder.output(0)?);
        self.lanes.declare(&mut shader);
        shader.code(&tree("greatest", "f32", "maximum")).code(&tree("total", "f32", "sum_of"));
        recorder.dispatch(&shader, self.lanes.groups(rows.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, UNWRITTEN, assert_close, check, inputs, narrow, node};
    use super::*;
    use crate::Tensor;
    use crate::op::Op;

    fn softmax(dims: &[usize], axis: usize, log: bool) -> NodeSpec {
        node(Op::Softmax(Softmax { axis, log }), &[dims], &[dims])
    }

    fn reference(dims: &[usize], axis: usize, log: bool, x: &Tensor) -> Vec<f32> {
        let x: Vec<f64> = x.elements::<f32>().expect("f32").iter().map(|v| f64::from(*v)).collect();
        let inner: usize = dims[axis + 1..].iter().product();
        let mut y = vec![0.0; x.len()];
        for row in 0..x.len() / dims[axis].max(1) {
            let base = row / inner * inner * dims[axis] + row % inner;
            let at = |i: usize| base + i * inner;
            let peak = (0..dims[axis]).map(|i| x[at(i)]).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..dims[axis]).map(|i| (x[at(i)] - peak).exp()).sum();
            for i in 0..dims[axis] {
                let shifted = x[at(i)] - peak;
                y[at(i)] = if log { (shifted - sum.ln()) as f32 } else { (shifted.exp() / sum) as f32 };
            }
        }
        y
    }

    #[test]
    fn rows_sum_to_one_along_any_axis() {
        let cases: [(&[usize], usize); 8] = [
            (&[1], 0),
            (&[3, 1], 1),
            (&[5, 7], 1),
            (&[2, 3, 11], 1),
            (&[4, 1000], 1),
            (&[2, 1031], 1),
            (&[3, 37, 5], 1),
            (&[130, 3], 0),
        ];
        for (dims, axis) in cases {
            for log in [false, true] {
                let node = softmax(dims, axis, log);
                let x = inputs(&node, 7);
                check(&node, &x, &[reference(dims, axis, log, &x[0])]);
            }
        }
    }

    #[test]
    fn rows_are_computed_in_place_and_on_a_two_dimensional_grid() {
        let node = softmax(&[700, 1030], 1, false);
        let x = inputs(&node, 8);
        let want = reference(&[700, 1030], 1, false, &x[0]);
        let run = Run { gpu: narrow(), rows: Some(3..600), ..Run::new(&node) };
        let got = run.outputs(&x).expect("runs").remove(0);
        assert_close(&got[3 * 1030..600 * 1030], &want[3 * 1030..600 * 1030], "the window");
        assert!(got[..3 * 1030].iter().chain(&got[600 * 1030..]).all(|v| *v == UNWRITTEN));
    }
}
