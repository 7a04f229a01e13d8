//! Writes the expressions of element-wise operators as formulas over terms.

use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain, Expression, Literal, Register, Step, Unary};
use std::cell::RefCell;

/// Returns the domain in which elements of a type are computed: 64-bit floats and integers in their own, all others in
/// `f32`.
///
/// Integers of every width are computed as 64-bit integers and wrap when stored. Unsigned 64-bit integers have a domain
/// of their own.
pub(crate) const fn domain_of(dtype: DType) -> Domain {
    match dtype {
        DType::F64 => Domain::F64,
        DType::U64 => Domain::U64,
        DType::Bool => Domain::F32,
        _ if dtype.is_float() => Domain::F32,
        _ => Domain::I64,
    }
}

/// Returns the type that holds floats of a type, and results computed from them: `f64` for `f64`, `f32` for all others.
pub(crate) const fn working(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// Converts a constant to the domain: integer domains cut off its fraction.
pub(crate) fn literal(domain: Domain, value: Literal) -> Step {
    Step::Constant(match domain {
        Domain::F32 | Domain::F64 => value,
        Domain::I64 => Literal::Int(value.as_i64()),
        Domain::U64 => Literal::Int(value.as_u64() as i64),
    })
}

/// Returns the expression that `formula` writes over its inputs. Its steps are in the order in which terms are made;
/// the last step is its value.
pub(crate) fn expression<const N: usize>(
    domain: Domain,
    formula: impl FnOnce([Term<'_>; N]) -> Term<'_>,
) -> Expression {
    let steps = Steps { domain, inputs: N, steps: RefCell::default() };
    let result = formula(std::array::from_fn(|input| Term { of: &steps, register: Register(input as u16) })).register;
    let expression = Expression::new(N, steps.steps.into_inner())
        .expect("a formula has few steps, each over registers that it was handed before");
    debug_assert_eq!(result, expression.result(), "the value of a formula is its last step");
    expression
}

/// Steps of an expression under construction.
struct Steps {
    domain: Domain,
    inputs: usize,
    steps: RefCell<Vec<Step>>,
}

impl Steps {
    fn push(&self, step: Step) -> Term<'_> {
        let mut steps = self.steps.borrow_mut();
        steps.push(step);
        Term { of: self, register: Register((self.inputs + steps.len() - 1) as u16) }
    }
}

/// An input or a step of an expression under construction.
#[derive(Clone, Copy)]
pub(crate) struct Term<'a> {
    of: &'a Steps,
    register: Register,
}

impl Term<'_> {
    /// Whether the term is computed in 64-bit floats.
    pub(crate) fn is_double(self) -> bool {
        self.of.domain == Domain::F64
    }

    pub(crate) fn apply(self, function: Unary) -> Self {
        self.of.push(Step::Unary(function, self.register))
    }

    pub(crate) fn with(self, function: Binary, b: impl Operand) -> Self {
        self.of.push(Step::Binary(function, self.register, b.register(self)))
    }

    /// Returns `if self ≠ 0 then a else b`.
    pub(crate) fn select(self, a: impl Operand, b: impl Operand) -> Self {
        self.of.push(Step::Select(self.register, a.register(self), b.register(self)))
    }
}

/// Operand of a term: another term of the expression, or a number.
pub(crate) trait Operand {
    fn register(self, term: Term<'_>) -> Register;
}

impl Operand for Term<'_> {
    fn register(self, _: Term<'_>) -> Register {
        self.register
    }
}

impl Operand for f64 {
    fn register(self, term: Term<'_>) -> Register {
        Literal::Float(self).register(term)
    }
}

impl Operand for Literal {
    fn register(self, term: Term<'_>) -> Register {
        term.of.push(literal(term.of.domain, self)).register
    }
}

macro_rules! operators {
    ($($name:ident::$method:ident is $function:ident),*) => {$(
        impl<B: Operand> std::ops::$name<B> for Term<'_> {
            type Output = Self;

            fn $method(self, b: B) -> Self {
                self.with(Binary::$function, b)
            }
        }
    )*};
}

operators!(Add::add is Add, Sub::sub is Subtract, Mul::mul is Multiply, Div::div is Divide);
