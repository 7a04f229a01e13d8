//! Form with which nearly all epilogues begin, `clamp(x · scale + bias + residual)`: recognition in an expression, and
//! application to runs of elements.

use super::chain::exact_reciprocal;
use super::epilogue::Uniform;
use super::source::Source;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_op::op::{Binary, Expression, Register, Step, Unary};
use std::ops::Range;

/// Affine form `min(max(x · scale + bias + residual, least), greatest)`; missing operands are neutral.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Affine {
    pub(super) scale: Term,
    pub(super) bias: Term,
    pub(super) residual: Term,
    pub(super) least: f32,
    pub(super) greatest: f32,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Term {
    Constant(f32),
    Extra(usize),
}

/// Term that leaves every number unchanged when added, −0 too.
const NEUTRAL: Term = Term::Constant(-0.0);

impl Term {
    pub(super) fn is_neutral(self) -> bool {
        matches!(self, Self::Constant(value) if value.to_bits() == (-0.0f32).to_bits())
    }
}

impl Affine {
    /// Form that leaves every number unchanged.
    pub(super) const IDENTITY: Self = Self {
        scale: Term::Constant(1.0),
        bias: NEUTRAL,
        residual: NEUTRAL,
        least: f32::NEG_INFINITY,
        greatest: f32::INFINITY,
    };

    pub(super) fn is_scaled(&self) -> bool {
        self.scale != Term::Constant(1.0)
    }

    /// Returns the affine forms with which an expression begins, the longest last. Each comes with the register that it
    /// computes and the number of steps that it takes.
    pub(super) fn beginnings(expression: &Expression) -> Vec<(Self, Register, usize)> {
        let (mut form, mut stage, mut current) = (Self::IDENTITY, Stage::Scale, Register(0));
        let mut forms = vec![(form, current, 0)];
        for (index, step) in expression.steps().iter().enumerate() {
            if matches!(step, Step::Constant(_)) {
                continue;
            }
            let Some((function, term)) = changed(expression, *step, current) else { break };
            let Some(next) = form.extend(function, term, stage) else { break };
            (stage, current) = (next, Register((expression.inputs() + index) as u16));
            forms.push((form, current, index + 1));
        }
        forms
    }

    /// Adds a step after the earlier ones, if the form can still take it.
    fn extend(&mut self, function: Binary, term: Term, stage: Stage) -> Option<Stage> {
        match (function, term, stage) {
            (Binary::Multiply, _, Stage::Scale) => {
                self.scale = term;
                Some(Stage::Bias)
            }
            // This also holds if a bias is added in the same step, as after depthwise windows: only a subnormal
            // quotient is rounded.
            (Binary::Divide, Term::Constant(divisor), Stage::Scale) => {
                self.scale = Term::Constant(exact_reciprocal(divisor)?);
                Some(Stage::Bias)
            }
            (Binary::Add, _, Stage::Scale | Stage::Bias) => {
                self.bias = term;
                Some(Stage::Residual)
            }
            (Binary::Add, _, Stage::Residual) => {
                self.residual = term;
                Some(Stage::Least)
            }
            (Binary::Max, Term::Constant(least), Stage::Scale | Stage::Bias | Stage::Residual | Stage::Least)
                if !least.is_nan() =>
            {
                self.least = least;
                Some(Stage::Greatest)
            }
            (Binary::Min, Term::Constant(greatest), stage) if stage < Stage::Done && !greatest.is_nan() => {
                self.greatest = greatest;
                Some(Stage::Done)
            }
            _ => None,
        }
    }

    /// Changes elements in place; `extra` returns an operand's elements for them. O(elements).
    #[inline]
    pub(super) fn apply<'a>(&self, extra: impl Fn(usize) -> Source<'a, f32>, data: &mut [f32]) {
        vectorised(Apply { form: self.beside(extra), data });
    }

    /// Returns the form with its operands' elements for a run, which `extra` returns.
    #[inline]
    pub(super) fn beside<'a>(&self, extra: impl Fn(usize) -> Source<'a, f32>) -> Beside<'a> {
        let source = |term: Term| match term {
            Term::Constant(value) => Source::Scalar(value),
            Term::Extra(at) => extra(at),
        };
        let (scale, bias, residual) = (source(self.scale), source(self.bias), source(self.residual));
        Beside { scale, bias, residual, least: self.least, greatest: self.greatest }
    }
}

/// Next part that the form can take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Scale,
    Bias,
    Residual,
    Least,
    Greatest,
    Done,
}

/// Returns a step as a function of the current register and one term.
pub(super) fn changed(expression: &Expression, step: Step, current: Register) -> Option<(Binary, Term)> {
    let term = |register: Register| match usize::from(register.0) {
        0 => None,
        input if input < expression.inputs() => Some(Term::Extra(input - 1)),
        later => match expression.steps()[later - expression.inputs()] {
            Step::Constant(literal) => Some(Term::Constant(literal.as_f32())),
            _ => None,
        },
    };
    match step {
        Step::Unary(Unary::Relu, a) if a == current => Some((Binary::Max, Term::Constant(0.0))),
        Step::Binary(function, a, b) if a == current && b != current => Some((function, term(b)?)),
        Step::Binary(function @ (Binary::Add | Binary::Multiply), a, b) if b == current && a != current => {
            Some((function, term(a)?))
        }
        _ => None,
    }
}

struct Apply<'a> {
    form: Beside<'a>,
    data: &'a mut [f32],
}

impl Loop for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        self.form.change(self.data);
    }
}

/// Affine form with its operands' elements for a run.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    scale: Source<'a, f32>,
    bias: Source<'a, f32>,
    residual: Source<'a, f32>,
    least: f32,
    greatest: f32,
}

impl Beside<'_> {
    /// Creates the form of a run with these constants.
    #[inline(always)]
    pub(super) fn of(uniform: &Uniform) -> Self {
        let Uniform { scale, bias, least, greatest } = *uniform;
        let [scale, bias, residual] = [scale, bias, -0.0].map(Source::Scalar);
        Self { scale, bias, residual, least, greatest }
    }

    /// Changes the run in place. O(elements).
    #[inline(always)]
    pub fn change(self, data: &mut [f32]) {
        self.over(data.iter_mut().map(|x| (*x, x)));
    }

    /// Writes the form of `first` of each element of a run. O(elements).
    #[inline(always)]
    pub(super) fn write(self, from: &[f32], first: impl Fn(f32) -> f32, to: &mut [f32]) {
        self.over(to.iter_mut().zip(from).map(|(to, from)| (first(*from), to)));
    }

    /// Returns the form of a part of the run.
    #[inline(always)]
    pub(super) fn part(self, part: Range<usize>) -> Self {
        let [scale, bias, residual] = [self.scale, self.bias, self.residual].map(|source| source.part(&part));
        Self { scale, bias, residual, ..self }
    }

    /// Writes the form of each number of a run.
    #[inline(always)]
    fn over<'a>(self, run: impl Iterator<Item = (f32, &'a mut f32)>) {
        let Self { scale, bias, residual, least, greatest } = self;
        let clamp = |x: f32| {
            let raised = if x < least { least } else { x };
            if raised > greatest { greatest } else { raised }
        };
        match (scale, bias, residual) {
            (Source::Scalar(s), Source::Scalar(b), Source::Scalar(r)) => {
                run.for_each(|(x, to)| *to = clamp(x * s + b + r));
            }
            (Source::Scalar(s), Source::Slice(b), Source::Scalar(r)) => {
                run.zip(b).for_each(|((x, to), b)| *to = clamp(x * s + b + r));
            }
            (Source::Scalar(s), Source::Scalar(b), Source::Slice(r)) => {
                run.zip(r).for_each(|((x, to), r)| *to = clamp(x * s + b + r));
            }
            (Source::Slice(s), Source::Scalar(b), Source::Scalar(r)) => {
                run.zip(s).for_each(|((x, to), s)| *to = clamp(x * s + b + r));
            }
            (Source::Slice(s), Source::Slice(b), Source::Scalar(r)) => {
                run.zip(s).zip(b).for_each(|(((x, to), s), b)| *to = clamp(x * s + b + r));
            }
            (scale, bias, residual) => {
                for (index, (x, to)) in run.enumerate() {
                    *to = clamp(x * scale.at(index) + bias.at(index) + residual.at(index));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_op::op::Literal;

    #[test]
    fn division_by_a_power_of_two_is_a_scale_of_the_same_bits() {
        let scale = |divisor: f64| {
            let constant = Step::Constant(Literal::Float(divisor));
            let steps = vec![constant, Step::Binary(Binary::Divide, Register(0), Register(1))];
            let expression = Expression::new(1, steps).expect("each step reads earlier ones");
            Affine::beginnings(&expression).last().map(|(form, ..)| form.scale)
        };
        for divisor in [8.0f32, -0.25, 1.0, 2f32.powi(126), 2f32.powi(-126)] {
            let Some(Term::Constant(factor)) = scale(divisor.into()) else { panic!("{divisor} is a power of two") };
            for x in [3.0, -0.1, 1e-45, 7e-39, f32::MAX, -0.0, f32::INFINITY, f32::NAN] {
                assert!((x / divisor).to_bits() == (x * factor).to_bits() || x.is_nan(), "{x} / {divisor}");
            }
        }
        // Other divisors, and those whose reciprocal is rounded, are left to the steps after products.
        for divisor in [3.0f32, 0.0, 2f32.powi(127), 1e-45, f32::INFINITY, f32::NAN] {
            assert!(scale(divisor.into()) == Some(Term::Constant(1.0)), "{divisor}");
        }
    }
}
