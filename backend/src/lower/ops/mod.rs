//! The operators: one file a family, each with a table from the operators' names to how they are lowered.

mod activation;
mod arg_reduce;
mod attention;
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
mod layout;
mod matmul;
mod normalize;
mod pad;
mod pool;
mod recurrent;
mod reduce;
mod reshape;
mod resize;
mod scatter;
mod slice;
mod softmax;
mod window;

use super::builder::Builder;
use super::error::Fault;
use super::operator::Operator;
use super::view::View;
use anabranch_kernels::op::{Binary, Unary};

/// How an operator is lowered; gives its outputs, as many as it has.
pub(super) type Lowering = fn(&Operator<'_>, &mut Builder) -> Result<Vec<View>, Fault>;

/// What the operator of one name is.
#[derive(Clone, Copy)]
enum Rule {
    /// A function of one number.
    Unary(Unary),
    /// A function of one floating-point number.
    FloatUnary(Unary),
    /// A function of two numbers of one type.
    Arithmetic(Binary),
    /// A comparison of two elements of one type.
    Compare(Binary),
    /// A function of two truth values.
    Logic(Binary),
    /// Something that a function lowers.
    Call(Lowering),
}

/// One line of a family's table.
struct Entry {
    domain: &'static str,
    name: &'static str,
    rule: Rule,
}

impl Entry {
    /// An operator of the standard domain, in all its versions from 7 on.
    const fn new(name: &'static str, rule: Rule) -> Self {
        Self { domain: "", name, rule }
    }
}

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
];

/// Lowers one operator, or says that there is no lowering for it.
pub(super) fn lower(
    domain: &str,
    name: &str,
    operator: &Operator<'_>,
    builder: &mut Builder,
) -> Result<Vec<View>, Fault> {
    let rule = find(domain, name).ok_or_else(|| no_lowering(domain, name))?;
    let one = |view: Result<View, Fault>| view.map(|view| vec![view]);
    match rule {
        Rule::Unary(function) => one(elementwise::unary(operator, builder, function)),
        Rule::FloatUnary(function) => one(elementwise::float_unary(operator, builder, function)),
        Rule::Arithmetic(function) => one(elementwise::arithmetic(operator, builder, function)),
        Rule::Compare(function) => one(elementwise::compare(operator, builder, function)),
        Rule::Logic(function) => one(elementwise::logic(operator, builder, function)),
        Rule::Call(lowering) => lowering(operator, builder),
    }
}

/// Whether there is a lowering for the operator at all.
pub(super) fn knows(domain: &str, name: &str) -> bool {
    find(domain, name).is_some()
}

/// The fault of an operator that no table has.
pub(super) fn no_lowering(domain: &str, name: &str) -> Fault {
    match domain {
        "" | "ai.onnx" => Fault::unsupported(format!("there is no lowering for the operator {name}")),
        _ => Fault::unsupported(format!("there is no lowering for the operator {name} of the domain {domain}")),
    }
}

fn find(domain: &str, name: &str) -> Option<Rule> {
    let domain = if domain == "ai.onnx" { "" } else { domain };
    let entries = FAMILIES.iter().flat_map(|table| table.iter());
    entries.into_iter().find(|entry| entry.name == name && entry.domain == domain).map(|entry| entry.rule)
}
