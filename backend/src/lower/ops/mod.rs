//! The operators: one file a family, each with a table from the operators' names to how they are lowered.

mod activation;
mod arg_reduce;
mod attention;
mod bitwise;
mod cast;
mod concat;
mod conv;
mod conv_transpose;
mod cumulative;
mod einsum;
mod elementwise;
mod expand;
mod gather;
mod generate;
mod integer;
mod layout;
mod loss;
mod matmul;
mod normalize;
mod pad;
mod pool;
mod quantize;
mod recurrent;
mod reduce;
mod reshape;
mod resize;
mod rotary;
mod sample;
mod scatter;
mod slice;
mod softmax;
mod top;
mod window;

use super::builder::Builder;
use super::compose::Epilogue;
use super::error::Fault;
use super::expression::{Term, domain_of, expression};
use super::operator::{Operator, axes_in_order, axes_of, axis_of, integers, numbers, two_sides};
use super::view::View;

/// How an operator is lowered; gives its outputs, as many as it has.
pub(super) type Lowering = fn(&Operator<'_>, &mut Builder) -> Result<Vec<View>, Fault>;

/// One line of a family's table: an operator of the standard domain, in all its versions from 6 on.
type Entry = (&'static str, Lowering);

const FAMILIES: &[&[Entry]] = &[
    elementwise::TABLE,
    activation::TABLE,
    cast::TABLE,
    matmul::TABLE,
    einsum::TABLE,
    attention::TABLE,
    conv::TABLE,
    conv_transpose::TABLE,
    pool::TABLE,
    normalize::TABLE,
    softmax::TABLE,
    reduce::TABLE,
    arg_reduce::TABLE,
    cumulative::TABLE,
    resize::TABLE,
    recurrent::TABLE,
    reshape::TABLE,
    layout::TABLE,
    concat::TABLE,
    slice::TABLE,
    pad::TABLE,
    expand::TABLE,
    gather::TABLE,
    scatter::TABLE,
    generate::TABLE,
    bitwise::TABLE,
    quantize::TABLE,
    integer::TABLE,
    loss::TABLE,
    rotary::TABLE,
    top::TABLE,
    sample::TABLE,
];

/// How an operator is lowered, or that there is no lowering for it.
pub(super) fn lowering(domain: &str, name: &str) -> Result<Lowering, Fault> {
    let (standard, of_domain) = match domain {
        "" | "ai.onnx" => (true, String::new()),
        _ => (false, format!(" of the domain {domain}")),
    };
    let entry = FAMILIES.iter().flat_map(|table| table.iter()).find(|(known, _)| standard && *known == name);
    let none = || Fault::unsupported(format!("there is no lowering for the operator {name}{of_domain}"));
    entry.map(|(_, lowering)| *lowering).ok_or_else(none)
}
