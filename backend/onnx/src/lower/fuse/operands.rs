//! Operands of an expression node or an epilogue: equal operands are merged, constants become literals.
//!
//! Class: exact bits. A literal is the number that the kernel would read in the expression's domain.

use super::graph::Graph;
use super::rebuild::{Rebuilt, Source, rebuild};
use anabranch_ir::constant::LARGE;
use anabranch_ir::program::ValueId;
use anabranch_kernels::op::{Domain, Expression, Literal};
use anabranch_kernels::{DType, TensorSpec};

/// A value, with the type and shape under which it is read.
pub(super) type Operand = (ValueId, TensorSpec);

/// Returns the expression over the distinct operands that it needs. The first `fixed` operands keep their positions.
///
/// Returns `None` if nothing changes, or one of the fixed operands is not needed.
pub(super) fn tidied(
    graph: &Graph,
    expression: &Expression,
    domain: Domain,
    operands: &[Operand],
    fixed: usize,
) -> Option<(Expression, Vec<Operand>)> {
    let mut distinct: Vec<&Operand> = Vec::new();
    let mut sources = Vec::with_capacity(operands.len());
    for (index, operand) in operands.iter().enumerate() {
        let literal = if index < fixed { None } else { uniform(graph, operand, domain) };
        let known = distinct.iter().skip(fixed).position(|known| **known == *operand).map(|at| at + fixed);
        sources.push(match literal {
            Some(literal) => Source::Literal(literal),
            None => Source::Input(u16::try_from(known.unwrap_or(distinct.len())).ok()?),
        });
        if literal.is_none() && known.is_none() {
            distinct.push(operand);
        }
    }
    let Rebuilt { expression: new, used } = rebuild(expression, domain, &sources)?;
    let keeps_fixed = (0..fixed).all(|index| used.get(index).is_some_and(|input| usize::from(*input) == index));
    if !keeps_fixed || (new == *expression && used.len() == operands.len()) {
        return None;
    }
    Some((new, used.iter().map(|input| distinct[usize::from(*input)].clone()).collect()))
}

/// Literal of a constant with equal elements in the domain.
fn uniform(graph: &Graph, (value, _): &Operand, domain: Domain) -> Option<Literal> {
    let tensor = &graph.constant(*value).filter(|constant| constant.bytes() < LARGE)?.held()?;
    let size = tensor.dtype().size();
    let first = tensor.bytes().get(..size)?;
    if tensor.bytes().chunks(size).any(|element| element != first) {
        return None;
    }
    let literal = crate::lower::operator::literal_of(tensor)?;
    let (dtype, number) = (tensor.dtype(), literal.as_f64());
    match domain {
        Domain::F32 | Domain::F64 if dtype.is_float() => Some(literal),
        // A float literal, if it is exact. An unsigned number that appears negative is out of range.
        Domain::F32 | Domain::F64 => {
            let beyond = number.abs() >= 9.0e15 || (number < 0.0 && dtype == DType::U64);
            (!beyond).then_some(Literal::Float(number))
        }
        Domain::I64 | Domain::U64 => (!dtype.is_float()).then_some(literal),
    }
}
