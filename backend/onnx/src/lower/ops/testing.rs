//! Helpers of the operators' tests.

use crate::import::from_bytes;
use crate::import::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto};
use crate::lower::{LowerError, LowerOptions, lower};
use anabranch_ir::program::Program;

/// Lowers a model of one node, which makes `y`.
pub(super) fn lowered(
    node: NodeProto,
    input: Vec<ValueInfoProto>,
    initializer: Vec<TensorProto>,
) -> Result<Program, LowerError> {
    let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
    let graph = GraphProto { node: vec![node], input, initializer, output, ..GraphProto::default() };
    let mut model = ModelProto::of(graph, 21);
    model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 });
    let model = from_bytes(&model.to_bytes(), None).expect("a sound model");
    lower(&model, &LowerOptions::default())
}

/// Moves a node to the domain `com.microsoft`.
pub(super) fn contributed(node: NodeProto) -> NodeProto {
    NodeProto { domain: "com.microsoft".into(), ..node }
}
