//! From attribute messages to [`Attribute`]s.

use super::attribute::{Attribute, AttributeProblem};
use super::error::{ImportErrorKind, NameProblem, NodeProblem, shortened};
use super::model::Node;
use super::proto::{AttributeProto, attribute_type};
use super::tensor::TensorReader;

/// Reads `protos` into the node's attributes.
pub(super) fn read(
    protos: &[AttributeProto],
    node: &mut Node,
    tensors: &mut TensorReader<'_>,
) -> Result<(), ImportErrorKind> {
    for proto in protos {
        let name = proto.name();
        let wrong = |problem| ImportErrorKind::Node { node: node.name.clone(), op_type: node.op_type.clone(), problem };
        if name.is_empty() {
            return Err(wrong(NodeProblem::Name("an attribute", NameProblem::Empty)));
        }
        if node.attributes.contains_key(name) {
            return Err(wrong(NodeProblem::AttributeTwice(name.to_owned())));
        }
        let value = value(proto, node, tensors)?;
        node.attributes.insert(name.to_owned(), value);
    }
    Ok(())
}

fn value(proto: &AttributeProto, node: &Node, tensors: &mut TensorReader<'_>) -> Result<Attribute, ImportErrorKind> {
    let wrong = |problem| ImportErrorKind::Attribute(node.attribute_error(proto.name(), problem));
    if !proto.ref_attr_name().is_empty() {
        return Err(wrong(AttributeProblem::Reference));
    }
    // A writer may leave out a field that holds zero or nothing.
    Ok(match declared_or_seen(proto) {
        attribute_type::FLOAT => Attribute::Float(proto.f()),
        attribute_type::INT => Attribute::Int(proto.i()),
        attribute_type::STRING => Attribute::String(proto.s().to_vec()),
        attribute_type::FLOATS => Attribute::Floats(proto.floats.clone()),
        attribute_type::INTS => Attribute::Ints(proto.ints.clone()),
        attribute_type::STRINGS => Attribute::Strings(proto.strings.iter().map(|text| text.to_vec()).collect()),
        attribute_type::TENSOR => {
            let tensor = proto.t.as_ref().ok_or_else(|| wrong(AttributeProblem::Empty))?;
            let role = format!("node {} ({}), attribute", shortened(&node.name), shortened(&node.op_type));
            let error = |problem| {
                let (name, problem) = (proto.name().to_owned(), Box::new(problem));
                ImportErrorKind::Tensor { role, name, problem }
            };
            Attribute::Tensor(tensors.read(tensor).map_err(error)?)
        }
        attribute_type::GRAPH | attribute_type::GRAPHS => Attribute::Graph,
        attribute_type::TENSORS => Attribute::Other("a list of tensors"),
        attribute_type::SPARSE_TENSOR => Attribute::Other("a sparse tensor"),
        attribute_type::SPARSE_TENSORS => Attribute::Other("a list of sparse tensors"),
        attribute_type::TYPE | attribute_type::TYPES => Attribute::Other("a type"),
        _ => return Err(wrong(AttributeProblem::Empty)),
    })
}

/// The kind that the message declares, or, as in files of the first format version, the field that is there.
fn declared_or_seen(proto: &AttributeProto) -> i32 {
    let seen = [
        (proto.f.is_some(), attribute_type::FLOAT),
        (proto.i.is_some(), attribute_type::INT),
        (proto.s.is_some(), attribute_type::STRING),
        (proto.t.is_some(), attribute_type::TENSOR),
        (proto.g.is_some(), attribute_type::GRAPH),
        (!proto.floats.is_empty(), attribute_type::FLOATS),
        (!proto.ints.is_empty(), attribute_type::INTS),
        (!proto.strings.is_empty(), attribute_type::STRINGS),
    ];
    match proto.r#type() {
        attribute_type::UNDEFINED => {
            seen.iter().find(|(there, _)| *there).map_or(attribute_type::UNDEFINED, |(_, kind)| *kind)
        }
        declared => declared,
    }
}
