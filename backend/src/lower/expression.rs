//! Writes the expressions of element-wise operators step by step.

use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain, Expression, Literal, Register, Step, Unary};

/// An expression under construction: steps over registers in one domain. Its value is the step added last.
#[derive(Clone, Debug)]
pub(crate) struct ExpressionBuilder {
    domain: Domain,
    inputs: usize,
    steps: Vec<Step>,
}

/// The domain in which elements of a type are computed: 64-bit floats and integers in their own, all else in `f32`.
///
/// Integers of every width are computed as 64-bit integers and wrap when stored.
pub(crate) const fn domain_of(dtype: DType) -> Domain {
    match dtype {
        DType::F64 => Domain::F64,
        DType::F32 | DType::F16 | DType::BF16 | DType::Bool => Domain::F32,
        _ => Domain::I64,
    }
}

impl ExpressionBuilder {
    /// A expression of `inputs` inputs without a step.
    pub(crate) fn new(domain: Domain, inputs: usize) -> Self {
        Self { domain, inputs, steps: Vec::new() }
    }

    /// One function of one input.
    pub(crate) fn of_one(domain: Domain, function: Unary) -> Self {
        let mut expression = Self::new(domain, 1);
        expression.unary(function, Register(0));
        expression
    }

    /// One function of two inputs.
    pub(crate) fn of_two(domain: Domain, function: Binary) -> Self {
        let mut expression = Self::new(domain, 2);
        expression.binary(function, Register(0), Register(1));
        expression
    }

    /// The domain in which it is computed.
    pub(crate) fn domain(&self) -> Domain {
        self.domain
    }

    /// The number of inputs.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Adds a constant; in the domain of integers its fraction is cut off.
    pub(crate) fn literal(&mut self, value: f64) -> Register {
        self.push(Step::Constant(match self.domain {
            Domain::F32 | Domain::F64 => Literal::Float(value),
            Domain::I64 => Literal::Int(value as i64),
        }))
    }

    /// Adds a function of one register.
    pub(crate) fn unary(&mut self, function: Unary, a: Register) -> Register {
        self.push(Step::Unary(function, a))
    }

    /// Adds a function of two registers.
    pub(crate) fn binary(&mut self, function: Binary, a: Register, b: Register) -> Register {
        self.push(Step::Binary(function, a, b))
    }

    /// Adds a function of a register and a constant.
    pub(crate) fn with(&mut self, function: Binary, a: Register, b: f64) -> Register {
        let b = self.literal(b);
        self.binary(function, a, b)
    }

    /// Adds `if condition ≠ 0 then a else b`.
    pub(crate) fn select(&mut self, condition: Register, a: Register, b: Register) -> Register {
        self.push(Step::Select(condition, a, b))
    }

    /// The expression whose value is the last step.
    pub(crate) fn finish(self) -> Expression {
        Expression::new(self.inputs, self.steps)
            .expect("a expression has few steps, each over registers that it handed out before")
    }

    fn push(&mut self, step: Step) -> Register {
        self.steps.push(step);
        Register((self.inputs + self.steps.len() - 1) as u16)
    }
}
