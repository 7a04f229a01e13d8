//! The operators: one file per family, each with a table from the operators' names to their lowerings.

mod activation;
mod affine;
mod arg_reduce;
mod arrange;
mod attention;
mod bitwise;
mod border;
mod cached;
mod cast;
mod causal;
mod concat;
mod contributed;
mod contributed_attention;
mod contributed_fused;
mod contributed_integer;
mod contributed_layers;
mod conv;
mod conv_transpose;
mod cumulative;
mod deformable;
mod determinant;
mod einsum;
mod elementwise;
mod expand;
mod gather;
mod generate;
mod grid;
mod integer;
mod integer_volume;
mod late;
mod layout;
mod linear_attention;
mod loss;
mod matmul;
mod ml;
mod moved;
mod normalize;
mod pad;
mod places;
mod pool;
mod quantize;
mod recurrent;
mod recurrent_cell;
mod reduce;
mod resample;
mod reshape;
mod resize;
mod rotary;
mod sample;
mod scatter;
mod signal;
mod slice;
mod softmax;
#[cfg(test)]
mod testing;
mod top;
mod unrolled;
mod window;

use super::builder::Builder;
use super::compose::Epilogue;
use super::expression::{Term, domain_of, expression, working};
use super::operator::{Operator, axes_in_order, axes_of, literal_of, two_sides};
use super::view::View;
use crate::host_operators::Fault;
use crate::host_operators::{axis_of, integers, numbers};
pub(super) use cast::element_type as element_of;
pub(super) use matmul::multiplied;
pub(super) use moved::lowered;
pub(super) use softmax::normalized;

/// Lowering of an operator; returns all its outputs.
pub(super) type Lowering = fn(&Operator<'_>, &mut Builder) -> Result<Vec<View>, Fault>;

/// One line of a family's table: an operator of the table's domain. The lowering itself rejects unsupported versions.
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
    affine::TABLE,
    arrange::TABLE,
    causal::TABLE,
    linear_attention::TABLE,
    deformable::TABLE,
    determinant::TABLE,
    signal::TABLE,
    late::TABLE,
];

/// Tables of the domain `com.microsoft`.
const CONTRIBUTED: &[&[Entry]] = &[
    contributed::TABLE,
    contributed_integer::TABLE,
    contributed_layers::TABLE,
    contributed_attention::TABLE,
    contributed_fused::TABLE,
];

/// Returns the tables of a domain's operators.
fn families(domain: &str) -> &'static [&'static [Entry]] {
    match domain {
        "" | "ai.onnx" => FAMILIES,
        "com.microsoft" => CONTRIBUTED,
        "ai.onnx.ml" => ml::TABLES,
        _ => &[],
    }
}

/// Names of the operators of a domain that have a lowering.
pub(super) fn names(domain: &str) -> impl Iterator<Item = &'static str> {
    families(domain).iter().flat_map(|table| table.iter()).map(|(name, _)| *name)
}

/// Returns the lowering of an operator, or the fault that there is none.
pub(super) fn lowering(domain: &str, name: &str) -> Result<Lowering, Fault> {
    let of_domain = if matches!(domain, "" | "ai.onnx") { String::new() } else { format!(" of the domain {domain}") };
    let entry = families(domain).iter().flat_map(|table| table.iter()).find(|(known, _)| *known == name);
    let none = || Fault::unsupported(format!("the operator {name}{of_domain} is not implemented"));
    entry.map(|(_, lowering)| *lowering).ok_or_else(none)
}
