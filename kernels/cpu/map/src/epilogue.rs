//! Expressions applied to a kernel's result while the result is still in cache.
//!
//! Nearly all epilogues begin with the form `clamp(x · scale + bias + residual)`. Preparing a kernel recognises the
//! form, which then takes one pass. Most epilogues end there, or in an activation, which takes a second pass. Any
//! further steps are interpreted.

use super::affine::{Affine, Beside, Term};
use super::chain::{Chain, Join, reciprocal};
use super::chain_f32;
use super::code::{Action, Code, Instruction, Operand};
use super::interpret::{Inputs, Output};
use super::layout::{Layout, Rows};
use super::source::Source;
use anabranch_cpu_base::elements::elements;
use anabranch_cpu_base::team::Tile;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Binary, Expression, Literal, NodeSpec, Register, Step, Unary};
use anabranch_op::shape::Shape;

/// Expression whose register 0 is an element of a result, and whose remaining inputs are operands broadcast to the
/// result's shape.
pub struct Epilogue {
    layout: Layout,
    /// Length of the output's last dimension.
    width: usize,
    affine: Affine,
    rest: Rest,
}

/// Steps after the affine form.
enum Rest {
    Nothing,
    /// Chain of the form's value and itself.
    Activation(Chain),
    /// Expression whose input 0 is the form's value.
    Interpreted(Code<f32>),
}

impl Epilogue {
    /// Returns the epilogue of a checked node, if it changes the result.
    ///
    /// # Errors
    /// If one of its operands cannot be broadcast to the output, or if the expression holds more values at once than
    /// the interpreter can.
    pub fn of(node: &NodeSpec) -> Result<Option<Self>, KernelError> {
        let extras: Vec<&Shape> =
            node.inputs[node.op.epilogue_inputs_start()..].iter().map(|spec| &spec.shape).collect();
        let epilogue = node.op.epilogue().filter(|expression| **expression != Expression::identity());
        epilogue.map(|expression| Self::new(expression, &node.outputs[0].shape, &extras)).transpose()
    }

    /// Creates an epilogue of a result of shape `output`; `extras` are the shapes of the expression's inputs after the
    /// first.
    fn new(expression: &Expression, output: &Shape, extras: &[&Shape]) -> Result<Self, KernelError> {
        let layout = Layout::new(output, extras)?;
        let mut longest = None;
        for (affine, value, steps) in Affine::beginnings(expression).into_iter().rev() {
            let Some(rest) = rest(expression, value, steps) else { continue };
            let rest = Rest::of(&rest)?;
            if !matches!(rest, Rest::Interpreted(_)) {
                longest = Some((affine, rest));
                break;
            }
            longest = longest.or(Some((affine, rest)));
        }
        let (affine, rest) = longest.expect("the beginning of no steps leaves the whole expression");
        let width = output.dims().last().copied().unwrap_or(1).max(1);
        Ok(Self { layout, width, affine, rest })
    }

    /// Returns the affine form before the [activation](Self::activate), if nothing is interpreted.
    pub(super) fn affine(&self) -> Option<&Affine> {
        match self.rest {
            Rest::Nothing | Rest::Activation(_) => Some(&self.affine),
            Rest::Interpreted(_) => None,
        }
    }

    /// Whether the expression begins with a product.
    pub fn is_scaled(&self) -> bool {
        self.affine.is_scaled()
    }

    /// Whether the expression ends in an [activation](Self::activate).
    #[inline]
    pub(super) fn has_activation(&self) -> bool {
        matches!(self.rest, Rest::Activation(_))
    }

    /// Replaces each element of `data` by the expression's value. `data` are consecutive elements of the output that
    /// begin at `column` of row `row`, and may span several rows. Rows are the output's last dimension, counted over
    /// all other dimensions. `extras` are the bytes of the whole `f32` operands. O(elements · steps).
    #[inline]
    pub fn apply(&self, row: usize, column: usize, data: &mut [f32], extras: &[&[u8]]) {
        self.layout.runs(row * self.width + column, data.len(), |row, column, run| {
            let operands = Operands { layout: &self.layout, extras, row, column, length: run.len() };
            let data = &mut data[run];
            if self.affine != Affine::IDENTITY {
                self.affine.apply(|extra| operands.extra(extra), data);
            }
            if let Rest::Interpreted(code) = &self.rest {
                interpret(code, &operands, data);
            }
        });
        self.activate(&mut Tile::of(data));
    }

    /// Applies the activation, if the expression ends in one, to elements for which the steps before it are computed.
    #[inline]
    pub fn activate(&self, tile: &mut Tile<'_, f32>) {
        if let Rest::Activation(chain) = &self.rest {
            chain_f32::run_in_place(chain, tile);
        }
    }

    /// Returns the affine form of rows of `length` elements before they are [activated](Self::activate). Returns `None`
    /// if rows of the output differ, or if steps are interpreted.
    pub fn beside_rows<'a>(&self, length: usize, extras: &[&'a [u8]]) -> Option<Beside<'a>> {
        let affine = self.affine().filter(|_| self.layout.row() == length && self.layout.rows_are_alike())?;
        Some(affine.beside(|extra| match elements::<f32>(extras[extra]) {
            values if self.layout.varies(extra) => Source::Slice(&values[..length]),
            values => Source::Scalar(values[0]),
        }))
    }

    /// Returns scale, bias and clamp of each of many runs before they are [activated](Self::activate), if these are
    /// constant within a run and nothing is interpreted. The first run begins at `start`, runs are `distance` apart,
    /// and each has `length` elements.
    pub fn uniforms<'a>(&'a self, [start, distance, length]: [usize; 3], extras: &[&'a [u8]]) -> Uniforms<'a> {
        // Divides once in advance, because runs may be short planes.
        let width = self.layout.row();
        let step = if distance < width { (0, distance) } else { (distance / width, distance % width) };
        let affine = self.affine().filter(|affine| affine.residual.is_neutral());
        let terms =
            affine.and_then(|affine| Some([self.beside(affine.scale, extras)?, self.beside(affine.bias, extras)?]));
        let clamp = affine.map_or((0.0, 0.0), |affine| (affine.least, affine.greatest));
        Uniforms { terms, clamp, at: (start / width, start % width), step, width, length }
    }

    /// Returns the constants of consecutive rows of `length` elements from `start` on, if every row has constants.
    pub(super) fn uniform_rows<'a>(&'a self, start: usize, length: usize, extras: &[&'a [u8]]) -> Option<Uniforms<'a>> {
        let uniforms = self.uniforms([start, length, length], extras);
        (uniforms.terms.is_some() && uniforms.width.is_multiple_of(length)).then_some(uniforms)
    }

    /// Returns the values of `term` per row, or `None` if it varies within rows.
    fn beside<'a>(&'a self, term: Term, extras: &[&'a [u8]]) -> Option<PerRow<'a>> {
        match term {
            Term::Constant(value) => Some(PerRow::Constant(value)),
            Term::Extra(extra) if self.layout.varies(extra) => None,
            Term::Extra(extra) => Some(PerRow::Rows(elements(extras[extra]), self.layout.rows(extra))),
        }
    }
}

/// Infinite sequence of the [constants of runs](Epilogue::uniforms).
pub struct Uniforms<'a> {
    /// Scale and bias, if they are constant within rows.
    terms: Option<[PerRow<'a>; 2]>,
    clamp: (f32, f32),
    /// Row and column of the next run.
    at: (usize, usize),
    step: (usize, usize),
    width: usize,
    length: usize,
}

/// Operand that is constant within each row of an output.
enum PerRow<'a> {
    Constant(f32),
    Rows(&'a [f32], Rows<'a>),
}

impl Uniforms<'_> {
    /// Writes the constants of the next run, and returns whether they are constant within it; if not, nothing is
    /// written.
    // Each field is written directly where it is read. Building the struct elsewhere and copying it would stall,
    // because a whole copy waits for stores of its parts.
    #[inline(always)]
    pub fn next(&mut self, uniform: &mut Uniform) -> bool {
        let (row, column) = self.at;
        self.at = (row + self.step.0, column + self.step.1);
        if self.at.1 >= self.width {
            self.at = (self.at.0 + 1, self.at.1 - self.width);
        }
        let inside = column + self.length <= self.width;
        let Some([scale, bias]) = &mut self.terms else { return false };
        let (Some(scale), Some(bias)) = (scale.at(row, inside), bias.at(row, inside)) else { return false };
        (uniform.scale, uniform.bias) = (scale, bias);
        (uniform.least, uniform.greatest) = self.clamp;
        true
    }
}

impl PerRow<'_> {
    /// Returns the value for a run of this row, or `None` if the run continues after the row.
    #[inline(always)]
    fn at(&mut self, row: usize, inside: bool) -> Option<f32> {
        match self {
            Self::Constant(value) => Some(*value),
            Self::Rows(values, rows) if inside => Some(values[rows.offset(row)]),
            Self::Rows(..) => None,
        }
    }
}

/// Constants of the function `min(max(x · scale + bias, least), greatest)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uniform {
    /// Factor of a number.
    pub scale: f32,
    /// Summand after the factor.
    pub bias: f32,
    /// Lower bound of the result.
    pub least: f32,
    /// Upper bound of the result.
    pub greatest: f32,
}

impl Default for Uniform {
    fn default() -> Self {
        Self::IDENTITY
    }
}

impl Uniform {
    /// Constants that leave every number unchanged.
    pub const IDENTITY: Self = Self { scale: 1.0, bias: -0.0, least: f32::NEG_INFINITY, greatest: f32::INFINITY };
}

fn interpret(code: &Code<f32>, operands: &Operands<'_>, data: &mut [f32]) {
    // The result overwrites the elements, so the instructions read a copy of them.
    code.with_slots(1, data.len(), |slots, copy, block| {
        for (index, data) in data.chunks_mut(block).enumerate() {
            let element = &mut copy[..data.len()];
            element.copy_from_slice(data);
            let inputs = Registers { element, operands: operands.part(index * block, data.len()) };
            code.run(&inputs, slots, Output::Numbers(data)).expect("functions of floats are defined everywhere");
        }
    });
}

/// Operands of an epilogue in one run inside a row.
struct Operands<'a> {
    layout: &'a Layout,
    extras: &'a [&'a [u8]],
    row: usize,
    column: usize,
    length: usize,
}

impl Operands<'_> {
    fn part(&self, start: usize, length: usize) -> Self {
        Self { column: self.column + start, length, ..*self }
    }

    #[inline]
    fn extra(&self, extra: usize) -> Source<'_, f32> {
        let offset = self.layout.offset(extra, self.row);
        let values = elements::<f32>(self.extras[extra]);
        if self.layout.varies(extra) {
            Source::Slice(&values[offset + self.column..][..self.length])
        } else {
            Source::Scalar(values[offset])
        }
    }
}

struct Registers<'a> {
    element: &'a [f32],
    operands: Operands<'a>,
}

impl Inputs<f32> for Registers<'_> {
    fn direct(&self, input: usize) -> Source<'_, f32> {
        match input.checked_sub(1) {
            None => Source::Slice(self.element),
            Some(extra) => self.operands.extra(extra),
        }
    }

    fn load(&self, input: usize, out: &mut [f32]) {
        self.direct(input).copy_to(out);
    }
}

impl Rest {
    /// # Errors
    /// If the expression holds more values at once than the interpreter can.
    fn of(expression: &Expression) -> Result<Self, KernelError> {
        if *expression == Expression::identity() {
            return Ok(Self::Nothing);
        }
        let code_of = |expression: &Expression| Code::new(expression, &vec![true; expression.inputs()]);
        let scaled = scaled_activation(expression).map(|expression| code_of(&expression)).transpose()?;
        if let Some(chain) = scaled.and_then(|code| Self::activation(&code)) {
            return Ok(Self::Activation(chain));
        }
        let code = code_of(expression)?;
        Ok(Self::activation(&code).map_or(Self::Interpreted(code), Self::Activation))
    }

    /// Returns the chain that is the whole code, if there is one, and if it reads the kernel's result alone.
    fn activation(code: &Code<f32>) -> Option<Chain> {
        match code.instructions[..] {
            [Instruction { action: Action::Chain(chain, Operand::Input(0), second), .. }] => {
                (chain.join == Join::Nothing || second == Operand::Input(0)).then_some(chain)
            }
            [Instruction { action: Action::Unary(function, Operand::Input(0)), .. }] => {
                Chain::EMPTY.then_unary(function)
            }
            _ => None,
        }
    }
}

/// Replaces the division of a hard-swish-like expression (a product with a bounded factor, divided by a constant) by a
/// multiplication with the reciprocal. This adds one rounding, but the expression may then take one pass.
fn scaled_activation(expression: &Expression) -> Option<Expression> {
    let step = |register: Register| expression.steps().get(usize::from(register.0).checked_sub(expression.inputs())?);
    let (Step::Binary(Binary::Divide, product, divisor), steps) = expression.steps().split_last()? else { return None };
    let (Step::Binary(Binary::Multiply, a, b), Step::Constant(Literal::Float(divisor))) =
        (step(*product)?, step(*divisor)?)
    else {
        return None;
    };
    let bounds =
        |step: &Step| matches!(step, Step::Binary(Binary::Min | Binary::Max, ..) | Step::Unary(Unary::Relu, _));
    if ![a, b].into_iter().any(|of| step(*of).is_some_and(bounds)) {
        return None;
    }
    let factor = reciprocal(*divisor as f32)?;
    let at = Register((expression.registers() - 1) as u16);
    let last = [Step::Constant(Literal::Float(factor.into())), Step::Binary(Binary::Multiply, *product, at)];
    Expression::new(expression.inputs(), [steps, &last].concat()).ok()
}

/// Returns the expression without its first `done` steps, with register `value` as input 0. Returns `None` if it reads
/// another register that these steps compute.
fn rest(expression: &Expression, value: Register, done: usize) -> Option<Expression> {
    let inputs = expression.inputs();
    let mut names: Vec<_> = (0..inputs).map(|input| Some(Register(input as u16))).collect();
    names.resize(expression.registers(), None);
    names[0] = None;
    names[usize::from(value.0)] = Some(Register(0));
    let mut steps = Vec::new();
    for (index, step) in expression.steps().iter().enumerate() {
        if index < done && !matches!(step, Step::Constant(_)) {
            continue;
        }
        let name = |register: Register| names[usize::from(register.0)];
        if !step.operands().all(|register| name(register).is_some()) {
            return None;
        }
        steps.push(step.renamed(|register| name(register).unwrap_or(register)));
        names[inputs + index] = Some(Register((inputs + steps.len() - 1) as u16));
    }
    match done == expression.steps().len() {
        true => Some(Expression::identity()),
        false => Expression::new(inputs, steps).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::shape;

    fn chain(steps: &[Expression]) -> Expression {
        steps.iter().fold(Expression::identity(), |whole, next| whole.then(next, 0).expect("fits"))
    }

    fn clip(least: f64, greatest: f64) -> Expression {
        let steps = vec![
            Step::Constant(Literal::Float(least)),
            Step::Constant(Literal::Float(greatest)),
            Step::Binary(Binary::Max, Register(0), Register(1)),
            Step::Binary(Binary::Min, Register(3), Register(2)),
        ];
        Expression::new(1, steps).expect("sound")
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Kind {
        Affine,
        Activation,
        Interpreted,
    }

    impl Kind {
        fn of(epilogue: &Epilogue) -> Self {
            match epilogue.rest {
                Rest::Nothing => Self::Affine,
                Rest::Activation(_) => Self::Activation,
                Rest::Interpreted(_) => Self::Interpreted,
            }
        }
    }

    /// Returns the constants of a run, if the epilogue is constant within it.
    fn uniform(epilogue: &Epilogue, start: usize, length: usize, extras: &[&[u8]]) -> Option<Uniform> {
        let mut uniform = Uniform::IDENTITY;
        epilogue.uniforms([start, 0, length], extras).next(&mut uniform).then_some(uniform)
    }

    #[test]
    fn recognised_and_interpreted_forms_agree_with_the_definition() {
        let (add, multiply) = (Expression::binary(Binary::Add), Expression::binary(Binary::Multiply));
        let relu = Expression::unary(Unary::Relu);
        let clamp = |x: f32| x.clamp(-1.0, 2.0);
        type Definition = fn(f32, &[f32]) -> f32;
        use Kind::{Activation, Affine, Interpreted};
        // y · clamp(y + 3, 0, 6) / 6 of a sum y.
        let hard_swish = Expression::new(
            2,
            vec![
                Step::Binary(Binary::Add, Register(0), Register(1)),
                Step::Constant(Literal::Float(3.0)),
                Step::Binary(Binary::Add, Register(2), Register(3)),
                Step::Unary(Unary::Relu, Register(4)),
                Step::Constant(Literal::Float(6.0)),
                Step::Binary(Binary::Min, Register(5), Register(6)),
                Step::Binary(Binary::Multiply, Register(2), Register(7)),
                Step::Binary(Binary::Divide, Register(8), Register(6)),
            ],
        )
        .expect("sound");
        // A line clamped to 0 and 1, the upper bound first.
        let line = Expression::new(
            2,
            vec![
                Step::Binary(Binary::Add, Register(0), Register(1)),
                Step::Constant(Literal::Float(0.25)),
                Step::Binary(Binary::Multiply, Register(2), Register(3)),
                Step::Constant(Literal::Float(0.5)),
                Step::Binary(Binary::Add, Register(4), Register(5)),
                Step::Constant(Literal::Float(1.0)),
                Step::Binary(Binary::Min, Register(6), Register(7)),
                Step::Constant(Literal::Float(0.0)),
                Step::Binary(Binary::Max, Register(8), Register(9)),
                Step::Binary(Binary::Multiply, Register(2), Register(10)),
            ],
        )
        .expect("sound");
        // A division at the end of an expression becomes a scale; a division in the middle stays a division.
        fn swished(x: f32) -> f32 {
            (x + 3.0).clamp(0.0, 6.0) * x * (1.0 / 6.0)
        }
        let cases: [(Expression, Kind, Definition); 11] = [
            (add.clone(), Affine, |x, e| x + e[0]),
            (chain(&[add.clone(), relu.clone()]), Affine, |x, e| (x + e[0]).max(0.0)),
            (chain(&[add.clone(), add.clone(), relu.clone()]), Affine, |x, e| (x + e[0] + e[1]).max(0.0)),
            (chain(&[multiply.clone(), add.clone()]), Affine, |x, e| x * e[0] + e[1]),
            (chain(&[multiply.clone(), add.clone(), add.clone(), relu.clone()]), Affine, |x, e| {
                (x * e[0] + e[1] + e[2]).max(0.0)
            }),
            (chain(&[relu, add.clone()]), Interpreted, |x, e| x.max(0.0) + e[0]),
            (chain(&[add.clone(), Expression::unary(Unary::Abs), multiply]), Interpreted, |x, e| {
                (x + e[0]).abs() * e[1]
            }),
            (Expression::identity(), Affine, |x, _| x),
            (hard_swish.clone(), Activation, |x, e| swished(x + e[0])),
            (line, Activation, |x, e| (x + e[0]) * ((x + e[0]) * 0.25 + 0.5).clamp(0.0, 1.0)),
            (chain(&[hard_swish, add.clone()]), Interpreted, |x, e| {
                (x + e[0] + 3.0).clamp(0.0, 6.0) * (x + e[0]) / 6.0 + e[1]
            }),
        ];
        let output = shape(&[2, 3, 5, 7]);
        let operands = [vec![3, 1, 1], vec![7], vec![2, 3, 5, 7], vec![], vec![2, 1, 5, 1], vec![3, 5, 7]];
        for (index, (expression, kind, definition)) in cases.iter().enumerate() {
            for rotation in 0..operands.len() {
                let count = expression.inputs() - 1;
                let shapes: Vec<Shape> =
                    (0..count).map(|i| shape(&operands[(rotation + i) % operands.len()])).collect();
                let epilogue = Epilogue::new(expression, &output, &shapes.iter().collect::<Vec<_>>()).expect("sound");
                assert_eq!(Kind::of(&epilogue), *kind, "{expression}");
                let extras: Vec<Vec<f32>> =
                    shapes.iter().map(|s| (0..s.elements()).map(|i| (i * 37 % 19) as f32 - 9.0).collect()).collect();
                let bytes: Vec<&[u8]> = extras.iter().map(|e| bytemuck::cast_slice(e)).collect();
                let strides: Vec<_> =
                    shapes.iter().map(|s| s.broadcast_strides(&output).expect("broadcastable")).collect();
                let (start, end) = (index * 13, 210 - rotation);
                let mut data: Vec<f32> = (start..end).map(|i| (i * 29 % 23) as f32 - 11.0).collect();
                let before = data.clone();
                epilogue.apply(start / 7, start % 7, &mut data, &bytes);
                for (i, flat) in (start..end).enumerate() {
                    let coordinates = [flat / 105, flat / 35 % 3, flat / 7 % 5, flat % 7];
                    let offset = |s: &[usize]| s.iter().zip(coordinates).map(|(s, c)| s * c).sum::<usize>();
                    let values: Vec<f32> = extras.iter().zip(&strides).map(|(e, s)| e[offset(s)]).collect();
                    assert_eq!(data[i], definition(before[i], &values), "{expression} of {shapes:?} at {flat}");
                }
            }
        }
        let clipped = Epilogue::new(&clip(-1.0, 2.0), &output, &[]).expect("sound");
        let mut data = [-5.0, f32::NAN, 0.5, 9.0];
        clipped.apply(0, 0, &mut data, &[]);
        assert_eq!(data.map(f32::to_bits), [clamp(-5.0), f32::NAN, 0.5, clamp(9.0)].map(f32::to_bits));
    }

    #[test]
    fn what_is_the_same_for_a_plane_is_found() {
        let (add, multiply) = (Expression::binary(Binary::Add), Expression::binary(Binary::Multiply));
        let output = shape(&[2, 3, 5, 7]);
        let both = chain(&[multiply, add.clone(), clip(-1.0, 2.0)]);
        let (scale, bias) = ([2.0f32, 3.0, 4.0], [0.5f32, -0.5, 1.5]);
        let extras: [&[u8]; 2] = [bytemuck::cast_slice(&scale), bytemuck::cast_slice(&bias)];
        let channels = shape(&[3, 1, 1]);
        let epilogue = Epilogue::new(&both, &output, &[&channels, &channels]).expect("sound");
        for (plane, part) in (0..6).flat_map(|plane| [(plane, 0..35), (plane, 7..20)]) {
            let want = Uniform { scale: scale[plane % 3], bias: bias[plane % 3], least: -1.0, greatest: 2.0 };
            assert_eq!(uniform(&epilogue, plane * 35 + part.start, part.len(), &extras), Some(want));
        }
        assert_eq!(uniform(&epilogue, 34, 2, &extras), None, "two planes");
        for operand in [shape(&[7]), output.clone()] {
            let varying = Epilogue::new(&add, &output, &[&operand]).expect("sound");
            assert_eq!(uniform(&varying, 0, 7, &[bytemuck::cast_slice(&[0f32; 210])]), None);
        }
        let residual = chain(&[add.clone(), add]);
        let residual = Epilogue::new(&residual, &output, &[&channels, &output]).expect("sound");
        assert_eq!(uniform(&residual, 0, 7, &extras), None);
    }

    #[test]
    fn long_runs_are_interpreted_in_blocks() {
        let expression = chain(&[Expression::binary(Binary::Add), Expression::unary(Unary::Abs)]);
        let epilogue = Epilogue::new(&expression, &shape(&[3, 2000]), &[&shape(&[2000])]).expect("sound");
        let bias: Vec<f32> = (0..2000u16).map(f32::from).collect();
        let mut data = vec![-1000.0; 3000];
        epilogue.apply(1, 500, &mut data, &[bytemuck::cast_slice(&bias)]);
        for (i, found) in data.iter().enumerate() {
            assert_eq!(*found, (bias[(500 + i) % 2000] - 1000.0).abs());
        }
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let add = Expression::binary(Binary::Add);
        assert!(matches!(Epilogue::new(&add, &shape(&[2, 3]), &[&shape(&[2])]), Err(KernelError::Shape(_))));
    }
}
