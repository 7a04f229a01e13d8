//! Converts attribute messages to [`Attribute`]s.

use super::attribute::Attribute;
use super::error::{ImportError, Name, Result};
use super::graph::Builder;
use super::model::Node;
use super::proto::{AttributeProto, attribute_type};
use super::tensor::TensorReader;

/// Reads `protos` into the node's attributes.
pub(super) fn read<'p>(
    protos: &'p [AttributeProto],
    node: &mut Node,
    builder: &mut Builder<'p>,
    tensors: &mut TensorReader<'_>,
) -> Result<()> {
    for proto in protos {
        let name = &proto.name;
        let wrong = |problem: String| Err(ImportError::malformed(problem).of_node(&node.name, &node.op_type));
        if name.is_empty() {
            return wrong("an attribute has no name".into());
        }
        if node.attributes.contains_key(name) {
            return wrong(format!("has two attributes {}", Name(name)));
        }
        if let Some(value) = value(proto, node, builder, tensors)? {
            node.attributes.insert(name.clone(), value);
        }
    }
    Ok(())
}

/// Returns an attribute's value; `None` if it refers to a parameter of a function that has none.
fn value<'p>(
    proto: &'p AttributeProto,
    node: &Node,
    builder: &mut Builder<'p>,
    tensors: &mut TensorReader<'_>,
) -> Result<Option<Attribute>> {
    let wrong = |problem: &str| {
        let problem = format!("attribute {} {problem}", Name(&proto.name));
        ImportError::malformed(problem).of_node(&node.name, &node.op_type)
    };
    let empty = || wrong("holds no value of its declared type");
    if !proto.ref_attr_name.is_empty() {
        return builder.functions.parameter(&proto.ref_attr_name).map_err(|error| wrong(error.reason()));
    }
    let role = format!("node {} ({}), attribute", Name(&node.name), Name(&node.op_type));
    // A writer may leave out a field that holds zero or nothing.
    Ok(Some(match declared_or_seen(proto) {
        attribute_type::FLOAT => Attribute::Float(proto.f.unwrap_or_default()),
        attribute_type::INT => Attribute::Int(proto.i.unwrap_or_default()),
        attribute_type::STRING => Attribute::String(proto.s.clone().unwrap_or_default()),
        attribute_type::FLOATS => Attribute::Floats(proto.floats.clone()),
        attribute_type::INTS => Attribute::Ints(proto.ints.clone()),
        attribute_type::STRINGS => Attribute::Strings(proto.strings.clone()),
        attribute_type::TENSOR => {
            let tensor = proto.t.as_ref().ok_or_else(empty)?;
            let tensor = builder.functions.tensor(&**tensor, || tensors.read(tensor));
            Attribute::Tensor(tensor.map_err(|error| error.of(&role, &proto.name))?)
        }
        attribute_type::SPARSE_TENSOR => {
            let sparse = proto.sparse_tensor.as_ref().ok_or_else(empty)?;
            let tensor = builder.functions.tensor(&**sparse, || tensors.read_sparse(sparse));
            Attribute::Tensor(tensor.map_err(|error| error.of(&role, &proto.name))?)
        }
        attribute_type::GRAPH => {
            let graph = proto.g.as_ref().ok_or_else(empty)?;
            let graph = builder.subgraph(graph, tensors);
            Attribute::Graph(graph.map(Box::new).map_err(|error| error.to_string()))
        }
        attribute_type::GRAPHS => Attribute::Other("a list of subgraphs"),
        attribute_type::TENSORS => Attribute::Other("a list of tensors"),
        attribute_type::SPARSE_TENSORS => Attribute::Other("a list of sparse tensors"),
        attribute_type::TYPE | attribute_type::TYPES => Attribute::Other("a type"),
        _ => return Err(empty()),
    }))
}

/// Returns the kind that the message declares, or in files of the first format version the kind of the present field.
fn declared_or_seen(proto: &AttributeProto) -> i64 {
    let seen = [
        (proto.f.is_some(), attribute_type::FLOAT),
        (proto.i.is_some(), attribute_type::INT),
        (proto.s.is_some(), attribute_type::STRING),
        (proto.t.is_some(), attribute_type::TENSOR),
        (proto.g.is_some(), attribute_type::GRAPH),
        (proto.sparse_tensor.is_some(), attribute_type::SPARSE_TENSOR),
        (!proto.floats.is_empty(), attribute_type::FLOATS),
        (!proto.ints.is_empty(), attribute_type::INTS),
        (!proto.strings.is_empty(), attribute_type::STRINGS),
    ];
    match proto.r#type {
        attribute_type::UNDEFINED => {
            seen.iter().find(|(there, _)| *there).map_or(attribute_type::UNDEFINED, |(_, kind)| *kind)
        }
        declared => declared,
    }
}
