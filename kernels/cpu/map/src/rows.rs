//! Kernel of `clamp((x − center) · scale + bias)`, whose other operands are one number along each row: the inference of
//! a batch norm, a shift or a scale of channels, and their gradients. Each row takes one pass.

use super::affine::{Term, changed};
use super::layout::Layout;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Binary, Domain, Expression, Map, NodeSpec, Register, Step};

/// Elements of a piece, the unit of work of a thread.
const PIECE: usize = 32 * 1024;

/// Length of the shortest rows. The operands of shorter rows are gathered into blocks instead.
const SHORTEST: usize = 16;

/// Form `min(max((x − center) · scale + bias, least), greatest)`; missing operands are neutral.
#[derive(Clone, Copy, PartialEq)]
struct Form {
    center: Term,
    scale: Term,
    /// Whether the scale divides.
    divides: bool,
    bias: Term,
    least: f32,
    greatest: f32,
}

/// Next part that the form can take.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Stage {
    Center,
    Scale,
    Bias,
    Least,
    Greatest,
    Done,
}

impl Form {
    /// Form that leaves every number unchanged. Subtracting 0 does, and so does adding −0.
    const IDENTITY: Self = Self {
        center: Term::Constant(0.0),
        scale: Term::Constant(1.0),
        divides: false,
        bias: Term::Constant(-0.0),
        least: f32::NEG_INFINITY,
        greatest: f32::INFINITY,
    };

    /// Returns the form that is a whole expression, if there is one.
    fn of(expression: &Expression) -> Option<Self> {
        let (mut form, mut stage, mut current) = (Self::IDENTITY, Stage::Center, Register(0));
        for (index, step) in expression.steps().iter().enumerate() {
            if matches!(step, Step::Constant(_)) {
                continue;
            }
            let (function, term) = changed(expression, *step, current)?;
            stage = form.extend(function, term, stage)?;
            current = Register((expression.inputs() + index) as u16);
        }
        (current == expression.result()).then_some(form)
    }

    /// Adds a step after the earlier ones, if the form can still take it.
    fn extend(&mut self, function: Binary, term: Term, stage: Stage) -> Option<Stage> {
        match (function, term) {
            (Binary::Subtract, _) if stage == Stage::Center => {
                self.center = term;
                Some(Stage::Scale)
            }
            (Binary::Multiply | Binary::Divide, _) if stage <= Stage::Scale => {
                (self.scale, self.divides) = (term, function == Binary::Divide);
                Some(Stage::Bias)
            }
            (Binary::Add, _) if stage <= Stage::Bias => {
                self.bias = term;
                Some(Stage::Least)
            }
            (Binary::Max, Term::Constant(least)) if stage <= Stage::Least && !least.is_nan() => {
                self.least = least;
                Some(Stage::Greatest)
            }
            (Binary::Min, Term::Constant(greatest)) if stage <= Stage::Greatest && !greatest.is_nan() => {
                self.greatest = greatest;
                Some(Stage::Done)
            }
            _ => None,
        }
    }
}

pub(crate) struct RowsKernel {
    form: Form,
    layout: Layout,
    /// Elements of each input in each row of the node's [`RowPlan`](anabranch_op::op::RowPlan), if it is windowed;
    /// else 0.
    windows: Vec<usize>,
    /// Elements of the output in each row of the node's row plan.
    row_elements: usize,
}

impl RowsKernel {
    /// Returns the kernel of an element-wise node, if its operands allow it.
    ///
    /// # Errors
    /// If an operand cannot be broadcast to the output.
    pub(crate) fn new(node: &NodeSpec, map: &Map) -> Result<Option<Self>, KernelError> {
        let tensors = node.inputs.iter().chain(&node.outputs);
        if map.domain != Domain::F32 || node.inputs.len() < 2 || tensors.into_iter().any(|t| t.dtype != DType::F32) {
            return Ok(None);
        }
        let Some(form) = Form::of(&map.expression) else { return Ok(None) };
        let (output, plan) = (&node.outputs[0].shape, node.row_plan());
        let shapes: Vec<_> = node.inputs.iter().map(|input| &input.shape).collect();
        let layout = Layout::new(output, &shapes)?;
        let constant = |input: usize| !layout.varies(input);
        if layout.row() < SHORTEST || !layout.is_linear(0) || !(1..shapes.len()).all(constant) {
            return Ok(None);
        }
        let rows = plan.as_ref().map_or(1, |plan| plan.rows);
        let window = |input: usize| {
            let windowed = plan.as_ref().is_some_and(|plan| plan.windowed[input]);
            if windowed { shapes[input].elements() / rows } else { 0 }
        };
        let windows = (0..shapes.len()).map(window).collect();
        Ok(Some(Self { form, windows, row_elements: output.elements() / rows, layout }))
    }
}

impl CpuKernel for RowsKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let first = call.rows.start;
        let source = &elements::<f32>(call.inputs[0])[first * (self.row_elements - self.windows[0])..];
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        let Form { center, scale, bias, .. } = &self.form;
        let terms = [center, scale, bias].map(|term| match term {
            Term::Constant(value) => PerRow { values: std::slice::from_ref(value), base: 0, input: None },
            Term::Extra(extra) => {
                let input = extra + 1;
                let base = self.windows[input] * first;
                PerRow { values: elements(call.inputs[input]), base, input: Some(input) }
            }
        });
        call.team.run_pieces(target, PIECE, &|index, out| {
            let done = index * PIECE;
            let (source, start) = (&source[done..][..out.len()], first * self.row_elements + done);
            vectorised(Pass { kernel: self, source, terms: &terms, start, out });
        });
        Ok(())
    }
}

/// Operand with one number along each row.
struct PerRow<'a> {
    /// Values that begin at the operand's element `base`.
    values: &'a [f32],
    base: usize,
    /// The operand; a constant has none.
    input: Option<usize>,
}

impl PerRow<'_> {
    /// Returns the values from a row on, and their distance between the rows of a [block](Layout::block).
    #[inline(always)]
    fn block(&self, layout: &Layout, row: usize) -> (&[f32], usize) {
        self.input.map_or((self.values, 0), |input| {
            let (offset, stride) = layout.block(input, row);
            (&self.values[offset - self.base..], stride)
        })
    }
}

/// Loop over the rows of a piece, which begins at the output's element `start`.
struct Pass<'a> {
    kernel: &'a RowsKernel,
    source: &'a [f32],
    terms: &'a [PerRow<'a>; 3],
    start: usize,
    out: &'a mut [f32],
}

impl Loop for Pass<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel: RowsKernel { form, layout, .. }, source, terms, start, out } = self;
        let clamp = |x: f32| {
            let raised = if x < form.least { form.least } else { x };
            if raised > form.greatest { form.greatest } else { raised }
        };
        let width = layout.row();
        let (mut row, mut column, mut done) = (start / width, start % width, 0);
        while done < out.len() {
            let rows = layout.rows_of_block(row);
            let [(centers, c), (scales, s), (biases, b)] = terms.each_ref().map(|term| term.block(layout, row));
            for at in 0..rows.min((column + out.len() - done).div_ceil(width)) {
                let (center, scale, bias) = (centers[at * c], scales[at * s], biases[at * b]);
                let run = done..out.len().min(done + width - column);
                (done, column) = (run.end, 0);
                let elements = out[run.clone()].iter_mut().zip(&source[run]);
                match form.divides {
                    true => elements.for_each(|(out, x)| *out = clamp((x - center) / scale + bias)),
                    false => elements.for_each(|(out, x)| *out = clamp((x - center) * scale + bias)),
                }
            }
            row += rows;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_all_ways, shape, tensor};
    use anabranch_op::op::{Literal, Op, Unary};
    use anabranch_op::tensor::{Tensor, TensorSpec};
    use arbtest::arbitrary::Unstructured;

    /// Returns the steps of a form of four inputs, each part if it is asked for.
    fn form([centers, scales, divides, shifts, clamps]: [bool; 5]) -> Expression {
        let mut steps = Vec::new();
        let mut push = |step: Step| {
            steps.push(step);
            Register(steps.len() as u16 + 3)
        };
        let mut x = Register(0);
        if centers {
            x = push(Step::Binary(Binary::Subtract, x, Register(1)));
        }
        if scales {
            let function = if divides { Binary::Divide } else { Binary::Multiply };
            x = push(Step::Binary(function, x, Register(2)));
        }
        if shifts {
            x = push(Step::Binary(Binary::Add, Register(3), x));
        }
        if clamps {
            let greatest = push(Step::Constant(Literal::Float(2.0)));
            x = push(Step::Unary(Unary::Relu, x));
            push(Step::Binary(Binary::Min, x, greatest));
        }
        Expression::new(4, steps).expect("sound")
    }

    #[test]
    fn rows_have_the_bits_of_the_steps_one_by_one() {
        arbtest::arbtest(|u: &mut Unstructured<'_>| {
            let mut parts: [bool; 5] = u.arbitrary()?;
            parts[4] |= !(parts[0] || parts[1] || parts[3]);
            let (batch, channels) = (u.int_in_range(1..=3)?, u.int_in_range(1..=4)?);
            let columns = *u.choose(&[1usize, 15, 16, 17, 31, 33, 64, 100, 515, 40_000])?;
            let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-45, 3e38];
            let x = tensor(DType::F32, &[batch, channels, columns], |i| match i % 3 {
                0 => f64::from(special[i / 3 % special.len()]),
                _ => (i * 37 % 1009) as f64 / 128.0 - 4.0,
            });
            let mut operand = |seed: usize| {
                let dims: &[usize] = if u.arbitrary()? { &[channels, 1] } else { &[1] };
                Ok(tensor(DType::F32, dims, |i| ((i + seed) * 5 % 7) as f64 * 0.7 - 1.0))
            };
            let inputs = [x, operand(1)?, operand(2)?, operand(3)?];
            let (op, dims) = (Op::Map(Map { domain: Domain::F32, expression: form(parts) }), inputs[0].shape().dims());
            let outputs = vec![TensorSpec::new(DType::F32, shape(dims))];
            let node = NodeSpec { op, inputs: inputs.iter().map(|input| input.spec().clone()).collect(), outputs };
            let found = run_all_ways(&node, &inputs).remove(0);
            let values = inputs.each_ref().map(|input: &Tensor| input.elements::<f32>().expect("f32"));
            let [centers, scales, divides, shifts, clamps] = parts;
            for (at, found) in found.elements::<f32>().expect("f32").iter().enumerate() {
                let of = |input: usize| values[input][at / columns % channels % values[input].len()];
                let mut want = values[0][at];
                want = if centers { want - of(1) } else { want };
                want = match (scales, divides) {
                    (true, true) => want / of(2),
                    (true, false) => want * of(2),
                    (false, _) => want,
                };
                want = if shifts { want + of(3) } else { want };
                want = if clamps && want < 0.0 { 0.0 } else { want };
                want = if clamps && want > 2.0 { 2.0 } else { want };
                assert!(found.to_bits() == want.to_bits() || found.is_nan() && want.is_nan(), "{found} {want} at {at}");
            }
            Ok(())
        })
        .budget_ms(400);
    }

    #[test]
    fn only_operands_of_long_rows_are_read_row_by_row() {
        let kernel = |operand: &[usize], columns: usize, steps: Vec<Step>| {
            let spec = |dims: &[usize]| TensorSpec::new(DType::F32, shape(dims));
            let map = Map { domain: Domain::F32, expression: Expression::new(2, steps).expect("sound") };
            let inputs = vec![spec(&[3, 4, columns]), spec(operand)];
            let node = NodeSpec { op: Op::Map(map.clone()), inputs, outputs: vec![spec(&[3, 4, columns])] };
            RowsKernel::new(&node, &map).expect("broadcastable").is_some()
        };
        let step = |function| vec![Step::Binary(function, Register(0), Register(1))];
        assert!(kernel(&[4, 1], 16, step(Binary::Multiply)) && kernel(&[1], 5, step(Binary::Subtract)));
        assert!(!kernel(&[4, 1], 15, step(Binary::Multiply)) && !kernel(&[16], 16, step(Binary::Add)));
        assert!(!kernel(&[4, 1], 16, step(Binary::Power)));
        let squared = vec![Step::Binary(Binary::Multiply, Register(0), Register(0))];
        assert!(!kernel(&[4, 1], 16, squared));
    }
}
