//! Straight-line expressions over scalars, which an element-wise node computes at each element.
//!
//! An expression is a list of steps over registers. Registers `0..inputs` hold the inputs and register `inputs + i`
//! holds the result of step `i`. The last register is the expression's value. CPU kernels interpret an expression over
//! blocks that stay in cache; GPU kernels translate it to WGSL. Fusion is [`Expression::then`].

use super::Literal;
use crate::dtype::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Number type in which a [`Map`](super::Map) holds every register. Inputs are converted when they are read, and the
/// result when it is stored. Booleans are 1 and 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// 32-bit floats; the only domain of GPU kernels.
    F32,
    /// 64-bit floats.
    F64,
    /// 64-bit integers, wrapping; division by zero is an error.
    I64,
    /// 64-bit unsigned integers, wrapping; division by zero is an error.
    U64,
}

impl Domain {
    /// Whether the domain is one of integers.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::I64 | Self::U64)
    }
}

/// Index of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Register(pub u16);

/// Functions of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is the function of its name")]
pub enum Unary {
    Negate,
    Abs,
    Sign,
    Reciprocal,
    Sqrt,
    Exp,
    Log,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
    Tanh,
    Sigmoid,
    Erf,
    /// `max(x, 0)`; NaN stays NaN.
    Relu,
    Floor,
    Ceil,
    /// Rounds to the nearest integer, halves to even.
    Round,
    /// 1 if `x = 0`, else 0.
    Not,
    IsNan,
    IsInfinite,
    /// Rounds towards zero.
    Truncate,
    /// Rounds to the nearest number of a narrower float type, halves to even, as a cast to that type and back does.
    Narrowed(DType),
}

/// Functions of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is the function of its name")]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    /// Quotient; of integers it rounds towards zero, and division by zero is an error.
    Divide,
    /// NaN if either is NaN.
    Min,
    /// NaN if either is NaN.
    Max,
    Power,
    /// Remainder with the sign of the divisor.
    FloorModulo,
    /// Remainder with the sign of the dividend (C's `fmod`).
    TruncatedModulo,
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Conjunction of booleans.
    And,
    /// Disjunction of booleans.
    Or,
    /// Exclusive or of booleans.
    Xor,
    /// Conjunction of bits; bitwise functions exist for integers only.
    BitAnd,
    /// Disjunction of bits.
    BitOr,
    /// Exclusive or of bits.
    BitXor,
    /// Left shift; zero if the distance is 64 or more, or negative.
    ShiftLeft,
    /// Right shift that keeps the sign; a distance of more than 63, or a negative distance, counts as 63. Unsigned:
    /// zero if the distance is 64 or more.
    ShiftRight,
}

impl Unary {
    /// Whether the function returns a boolean.
    pub const fn is_test(self) -> bool {
        matches!(self, Self::Not | Self::IsNan | Self::IsInfinite)
    }
}

impl Binary {
    /// Whether the function returns a boolean.
    pub const fn is_test(self) -> bool {
        let compares =
            matches!(self, Self::Equal | Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual);
        compares || matches!(self, Self::And | Self::Or | Self::Xor)
    }

    /// Whether the function exists in integer domains only.
    pub(crate) const fn is_bitwise(self) -> bool {
        matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor | Self::ShiftLeft | Self::ShiftRight)
    }
}

/// One step; its operands are registers of inputs or of earlier steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A constant.
    Constant(Literal),
    /// A function of one register.
    Unary(Unary, Register),
    /// A function of two registers.
    Binary(Binary, Register, Register),
    /// The second register if the first is not 0, else the third.
    Select(Register, Register, Register),
}

/// Straight-line program over registers; see the module's text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Expression {
    inputs: usize,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Parts {
    inputs: usize,
    steps: Vec<Step>,
}

/// Error of an expression that reads an undefined register or is too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// A step reads a register that is neither an input nor an earlier step's result.
    #[error("step {step} of an expression reads register {register}, which is computed later or never")]
    Register {
        /// The step's index.
        step: usize,
        /// The register read.
        register: u16,
    },
    /// There are more than 65,535 registers, or there are no steps and not exactly one input.
    #[error("an expression has {0} registers, but 1 to 65535 are possible, and exactly 1 without a step")]
    Length(usize),
}

impl Step {
    /// Returns the registers that the step reads.
    pub fn operands(&self) -> impl Iterator<Item = Register> {
        let operands = match *self {
            Self::Constant(_) => [None; 3],
            Self::Unary(_, a) => [Some(a), None, None],
            Self::Binary(_, a, b) => [Some(a), Some(b), None],
            Self::Select(a, b, c) => [Some(a), Some(b), Some(c)],
        };
        operands.into_iter().flatten()
    }

    /// Returns the step with each register replaced by `rename`.
    pub fn renamed(self, rename: impl Fn(Register) -> Register) -> Self {
        match self {
            Self::Constant(literal) => Self::Constant(literal),
            Self::Unary(function, a) => Self::Unary(function, rename(a)),
            Self::Binary(function, a, b) => Self::Binary(function, rename(a), rename(b)),
            Self::Select(a, b, c) => Self::Select(rename(a), rename(b), rename(c)),
        }
    }
}

impl Expression {
    /// Creates an expression of `inputs` inputs and these steps.
    ///
    /// # Errors
    /// If a step reads a register that is not defined yet, or if there are too many registers or none for the value.
    pub fn new(inputs: usize, steps: Vec<Step>) -> Result<Self, ExpressionError> {
        let registers = inputs.saturating_add(steps.len());
        if registers > usize::from(u16::MAX) || (steps.is_empty() && inputs != 1) {
            return Err(ExpressionError::Length(registers));
        }
        for (index, step) in steps.iter().enumerate() {
            if let Some(bad) = step.operands().find(|r| usize::from(r.0) >= inputs + index) {
                return Err(ExpressionError::Register { step: index, register: bad.0 });
            }
        }
        Ok(Self { inputs, steps })
    }

    /// Returns the expression that is its only input: a copy, a cast or a broadcast.
    pub fn identity() -> Self {
        Self { inputs: 1, steps: Vec::new() }
    }

    /// Returns the expression of one function of one input.
    pub fn unary(function: Unary) -> Self {
        Self { inputs: 1, steps: vec![Step::Unary(function, Register(0))] }
    }

    /// Returns the expression of one function of two inputs.
    pub fn binary(function: Binary) -> Self {
        Self { inputs: 2, steps: vec![Step::Binary(function, Register(0), Register(1))] }
    }

    /// Returns the number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether the value is a boolean (1 or 0) for all inputs.
    pub fn is_truth(&self) -> bool {
        match self.steps.last() {
            Some(Step::Unary(function, _)) => function.is_test(),
            Some(Step::Binary(function, ..)) => function.is_test(),
            _ => false,
        }
    }

    /// Whether all types to which it narrows are float types of at most 32 bits.
    pub(crate) fn narrows_to_floats(&self) -> bool {
        self.steps.iter().all(|step| match step {
            Step::Unary(Unary::Narrowed(dtype), _) => dtype.is_float() && dtype.size() <= 4,
            _ => true,
        })
    }

    /// Returns the number of registers: inputs and steps.
    pub fn registers(&self) -> usize {
        self.inputs + self.steps.len()
    }

    /// Returns the register that holds the value.
    pub fn result(&self) -> Register {
        Register((self.registers() - 1) as u16)
    }

    /// Returns `next` with its input `at` replaced by this expression. The inputs of the result are this expression's,
    /// then the remaining inputs of `next` in order.
    ///
    /// # Errors
    /// If `next` has no input `at`, or if the result has too many registers.
    pub fn then(&self, next: &Self, at: usize) -> Result<Self, ExpressionError> {
        let registers = self.registers() + next.registers();
        if at >= next.inputs || registers > usize::from(u16::MAX) {
            return Err(ExpressionError::Length(registers));
        }
        let inputs = self.inputs + next.inputs - 1;
        let own = |r: Register| match usize::from(r.0) {
            i if i < self.inputs => r,
            i => Register((inputs + i - self.inputs) as u16),
        };
        let value = own(self.result());
        let first_step = inputs + self.steps.len();
        let following = |r: Register| match usize::from(r.0) {
            i if i == at => value,
            i if i < at => Register((self.inputs + i) as u16),
            i if i < next.inputs => Register((self.inputs + i - 1) as u16),
            i => Register((first_step + i - next.inputs) as u16),
        };
        let steps = self.steps.iter().map(|s| s.renamed(own)).chain(next.steps.iter().map(|s| s.renamed(following)));
        Self::new(inputs, steps.collect())
    }
}

impl TryFrom<Parts> for Expression {
    type Error = ExpressionError;
    fn try_from(parts: Parts) -> Result<Self, ExpressionError> {
        Self::new(parts.inputs, parts.steps)
    }
}

impl fmt::Display for Expression {
    /// Writes `2: add(r0,r1) relu(r2)`: the number of inputs, then the steps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.inputs)?;
        for step in &self.steps {
            match step {
                Step::Constant(literal) => write!(f, " {literal}")?,
                Step::Unary(function, a) => write!(f, " {function:?}(r{})", a.0)?,
                Step::Binary(function, a, b) => write!(f, " {function:?}(r{},r{})", a.0, b.0)?,
                Step::Select(a, b, c) => write!(f, " Select(r{},r{},r{})", a.0, b.0, c.0)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_read_only_what_is_computed() {
        let add = |a, b| Step::Binary(Binary::Add, Register(a), Register(b));
        assert!(Expression::new(2, vec![add(0, 1), add(2, 2)]).is_ok());
        assert_eq!(Expression::new(1, vec![add(0, 1)]), Err(ExpressionError::Register { step: 0, register: 1 }));
        assert_eq!(Expression::new(0, vec![]), Err(ExpressionError::Length(0)));
    }

    #[test]
    fn chaining_keeps_the_order_of_inputs() {
        // relu(a + b), then the result as the second operand of (c − ·).
        let first = Expression::binary(Binary::Add).then(&Expression::unary(Unary::Relu), 0).expect("fits");
        let whole = first.then(&Expression::binary(Binary::Subtract), 1).expect("fits");
        assert_eq!(whole.to_string(), "3: Add(r0,r1) Relu(r3) Subtract(r2,r4)");
    }

    #[test]
    fn chaining_with_the_identity_changes_nothing() {
        let relu = Expression::unary(Unary::Relu);
        assert_eq!(Expression::identity().then(&relu, 0), Ok(relu.clone()));
        assert_eq!(relu.then(&Expression::identity(), 0), Ok(relu));
    }
}
