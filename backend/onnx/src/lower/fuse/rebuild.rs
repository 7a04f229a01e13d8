//! Rebuilds expressions with merged inputs or literals, without repeated, neutral or unused steps.
//!
//! Class: exact bits, except for NaNs, whose sign and payload may change, and for powers of constant exponent: those of
//! 1, 2 and 3 become products, which round as the power of a single such exponent does.

use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain, Expression, Literal, Register, Step, Unary};

/// Replacement of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source {
    /// This input of the rebuilt expression, counted before unused inputs are left out.
    Input(u16),
    Literal(Literal),
}

/// An expression and the sources of its inputs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rebuilt {
    /// Expression that computes the same value from fewer inputs or steps.
    pub(super) expression: Expression,
    /// For each of its inputs, in order, the number by which [`Source::Input`] named it.
    pub(super) used: Vec<u16>,
}

/// Returns the expression with each input replaced by its source. O(steps²).
///
/// Drops multiplications by 1, additions of −0 and similar steps; squares and cubes written as powers become
/// multiplications. `None` only if the expression is too long.
pub(super) fn rebuild(expression: &Expression, domain: Domain, sources: &[Source]) -> Option<Rebuilt> {
    let width = sources.iter().map(|source| if let Source::Input(input) = source { *input + 1 } else { 0 }).max();
    let mut rebuilder = Rebuilder { domain, inputs: width.unwrap_or(0), steps: Vec::new() };
    let mut registers = Vec::with_capacity(expression.registers());
    for source in sources {
        registers.push(match source {
            Source::Input(input) => Register(*input),
            Source::Literal(literal) => rebuilder.push(Step::Constant(*literal))?,
        });
    }
    for step in expression.steps() {
        let step = step.renamed(|register| registers[usize::from(register.0)]);
        registers.push(rebuilder.step(step)?);
    }
    let result = registers[usize::from(expression.result().0)];
    rebuilder.finish(result)
}

struct Rebuilder {
    domain: Domain,
    inputs: u16,
    steps: Vec<Step>,
}

impl Rebuilder {
    /// Returns the register that holds the step's value; adds a register only if none holds it yet.
    fn step(&mut self, step: Step) -> Option<Register> {
        match step {
            Step::Binary(function, a, b) => self.binary(function, a, b),
            Step::Select(condition, a, b) => match self.literal(condition) {
                Some(value) => Some(if value != 0.0 { a } else { b }),
                None => self.push(step),
            },
            Step::Unary(Unary::Negate, a) => match self.made_by(a) {
                Some(Step::Unary(Unary::Negate, inner)) => Some(inner),
                _ => self.push(step),
            },
            Step::Unary(Unary::Narrowed(dtype), a) if self.is_number_of(a, dtype) => Some(a),
            Step::Unary(..) | Step::Constant(_) => self.push(step),
        }
    }

    fn binary(&mut self, function: Binary, a: Register, b: Register) -> Option<Register> {
        let (left, right) = (self.literal(a), self.literal(b));
        match (function, left, right) {
            // −0 + 0 is 0: for floats, only adding −0, or subtracting 0, changes nothing.
            (Binary::Add, _, Some(zero)) if self.is_zero(zero, true) => Some(a),
            (Binary::Add, Some(zero), _) if self.is_zero(zero, true) => Some(b),
            (Binary::Subtract, _, Some(zero)) if self.is_zero(zero, false) => Some(a),
            (Binary::Multiply | Binary::Divide | Binary::Power, _, Some(1.0)) => Some(a),
            (Binary::Multiply, Some(1.0), _) => Some(b),
            (Binary::Power, None, Some(2.0)) => self.push(Step::Binary(Binary::Multiply, a, a)),
            (Binary::Power, None, Some(3.0)) => {
                let square = self.push(Step::Binary(Binary::Multiply, a, a))?;
                self.push(Step::Binary(Binary::Multiply, square, a))
            }
            _ => self.push(Step::Binary(function, a, b)),
        }
    }

    /// Whether a literal is the zero of this sign; integers have no signed zeros.
    fn is_zero(&self, literal: f64, negative: bool) -> bool {
        literal == 0.0 && (self.domain.is_integer() || literal.is_sign_negative() == negative)
    }

    /// Whether a register holds a number of this float type for all inputs, so that rounding is unnecessary.
    fn is_number_of(&self, register: Register, dtype: DType) -> bool {
        // The types of 8 and 4 bits lack −0 or NaN, or have them at only one position.
        let plain = matches!(dtype, DType::F16 | DType::BF16);
        match self.made_by(register) {
            Some(Step::Unary(Unary::Narrowed(known), _)) => known == dtype,
            Some(Step::Unary(Unary::Negate | Unary::Abs | Unary::Relu, a)) => plain && self.is_number_of(a, dtype),
            Some(Step::Select(_, a, b)) => self.is_number_of(a, dtype) && self.is_number_of(b, dtype),
            _ => false,
        }
    }

    /// Value of a register that holds a literal.
    fn literal(&self, register: Register) -> Option<f64> {
        match self.made_by(register)? {
            Step::Constant(literal) => Some(literal.as_f64()),
            _ => None,
        }
    }

    fn made_by(&self, register: Register) -> Option<Step> {
        self.steps.get(usize::from(register.0.checked_sub(self.inputs)?)).copied()
    }

    fn push(&mut self, step: Step) -> Option<Register> {
        let index = self.steps.iter().position(|known| *known == step).unwrap_or(self.steps.len());
        if index == self.steps.len() {
            self.steps.push(step);
        }
        u16::try_from(usize::from(self.inputs) + index).ok().map(Register)
    }

    /// Drops everything on which `result` does not depend.
    fn finish(self, result: Register) -> Option<Rebuilt> {
        let inputs = usize::from(self.inputs);
        let mut needed = vec![false; inputs + self.steps.len()];
        needed[usize::from(result.0)] = true;
        for (index, step) in self.steps.iter().enumerate().rev() {
            if needed[inputs + index] {
                step.operands().for_each(|operand| needed[usize::from(operand.0)] = true);
            }
        }
        let mut new_names = vec![Register(0); needed.len()];
        let kept = (0..needed.len()).filter(|register| needed[*register]);
        for (name, register) in (0..).zip(kept) {
            new_names[register] = Register(name);
        }
        let kept = self.steps.iter().enumerate().filter(|(index, _)| needed[inputs + index]);
        let steps = kept.map(|(_, step)| step.renamed(|register| new_names[usize::from(register.0)])).collect();
        let used: Vec<u16> = (0..self.inputs).filter(|input| needed[usize::from(*input)]).collect();
        let expression = Expression::new(used.len(), steps).ok()?;
        Some(Rebuilt { expression, used })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(value: f64) -> Step {
        Step::Constant(Literal::Float(value))
    }

    fn narrowed(dtype: DType, a: u16) -> Step {
        Step::Unary(Unary::Narrowed(dtype), Register(a))
    }

    fn binary(function: Binary, a: u16, b: u16) -> Step {
        Step::Binary(function, Register(a), Register(b))
    }

    #[test]
    fn what_changes_nothing_goes() {
        let cases = [
            (vec![constant(1.0), binary(Binary::Multiply, 0, 1)], "1:"),
            (vec![constant(-0.0), binary(Binary::Add, 1, 0)], "1:"),
            (vec![constant(0.0), binary(Binary::Add, 0, 1)], "1: 0.0 Add(r0,r1)"),
            (vec![constant(0.0), binary(Binary::Subtract, 0, 1)], "1:"),
            (vec![constant(-0.0), binary(Binary::Subtract, 0, 1)], "1: -0.0 Subtract(r0,r1)"),
            (vec![narrowed(DType::F16, 0), narrowed(DType::F16, 1)], "1: Narrowed(F16)(r0)"),
            (vec![narrowed(DType::F16, 0), narrowed(DType::BF16, 1)], "1: Narrowed(F16)(r0) Narrowed(BF16)(r1)"),
            (
                vec![narrowed(DType::F16, 0), Step::Unary(Unary::Relu, Register(1)), narrowed(DType::F16, 2)],
                "1: Narrowed(F16)(r0) Relu(r1)",
            ),
            (vec![constant(2.0), binary(Binary::Power, 0, 1)], "1: Multiply(r0,r0)"),
            (vec![constant(3.0), binary(Binary::Power, 0, 1)], "1: Multiply(r0,r0) Multiply(r1,r0)"),
            (vec![constant(0.5), binary(Binary::Power, 0, 1)], "1: 0.5 Power(r0,r1)"),
            (vec![constant(0.0), constant(5.0), Step::Select(Register(1), Register(2), Register(0))], "1:"),
            (
                vec![constant(4.0), constant(4.0), binary(Binary::Add, 0, 1), binary(Binary::Add, 3, 2)],
                "1: 4.0 Add(r0,r1) Add(r2,r1)",
            ),
            (vec![constant(0.0), binary(Binary::Subtract, 1, 0)], "1: 0.0 Subtract(r1,r0)"),
        ];
        for (steps, want) in cases {
            let expression = Expression::new(1, steps).expect("well formed");
            let rebuilt = rebuild(&expression, Domain::F32, &[Source::Input(0)]).expect("short");
            assert_eq!(rebuilt.expression.to_string(), want, "from {expression}");
        }
    }

    #[test]
    fn inputs_merge_become_literals_and_go() {
        // a + b, then times c.
        let sum = vec![binary(Binary::Add, 0, 1), binary(Binary::Multiply, 3, 2)];
        let expression = Expression::new(3, sum).expect("well formed");
        let literal = |value| Source::Literal(Literal::Float(value));
        let cases = [
            ([Source::Input(0), Source::Input(0), Source::Input(1)], "2: Add(r0,r0) Multiply(r2,r1)", vec![0, 1]),
            ([Source::Input(4), Source::Input(2), literal(1.0)], "2: Add(r1,r0)", vec![2, 4]),
            ([literal(-0.0), Source::Input(1), literal(1.0)], "1:", vec![1]),
        ];
        for (sources, want, used) in cases {
            let rebuilt = rebuild(&expression, Domain::F32, &sources).expect("short");
            assert_eq!((rebuilt.expression.to_string(), rebuilt.used), (want.to_owned(), used));
        }
    }
}
