//! Which fields of an ONNX file are decoded, and what each costs in memory once it is.

use crate::import::proto;
use std::mem::size_of;

/// A message of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Model,
    OperatorSetId,
    Function,
    Graph,
    Node,
    Attribute,
    Tensor,
    SparseTensor,
    Entry,
    ValueInfo,
    Type,
    TensorType,
    TensorShape,
    Dimension,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A message, which is walked.
    Message(Kind),
    /// A short text.
    Name,
    /// Bytes that stay in the file's own memory; only a handle to them is made.
    Payload,
    /// Variable-length integers, one by one or packed, that become eight bytes each.
    Integers,
    /// 32-bit floats, one by one or packed.
    Floats,
    /// One number, stored in the message itself.
    Number,
    /// Not decoded.
    Skipped,
}

impl Kind {
    /// Bytes of the decoded message without what it points to.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Model => size_of::<proto::ModelProto>(),
            Self::OperatorSetId => size_of::<proto::OperatorSetIdProto>(),
            Self::Function => size_of::<proto::FunctionProto>(),
            Self::Graph => size_of::<proto::GraphProto>(),
            Self::Node => size_of::<proto::NodeProto>(),
            Self::Attribute => size_of::<proto::AttributeProto>(),
            Self::Tensor => size_of::<proto::TensorProto>(),
            Self::SparseTensor => size_of::<proto::SparseTensorProto>(),
            Self::Entry => size_of::<proto::StringStringEntryProto>(),
            Self::ValueInfo => size_of::<proto::ValueInfoProto>(),
            Self::Type => size_of::<proto::TypeProto>(),
            Self::TensorType => size_of::<proto::TensorTypeProto>(),
            Self::TensorShape => size_of::<proto::TensorShapeProto>(),
            Self::Dimension => size_of::<proto::DimensionProto>(),
        }
    }

    /// The message's name in errors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::OperatorSetId => "operator set",
            Self::Function => "function",
            Self::Graph => "graph",
            Self::Node => "node",
            Self::Attribute => "attribute",
            Self::Tensor => "tensor",
            Self::SparseTensor => "sparse tensor",
            Self::Entry => "key and value",
            Self::ValueInfo => "input or output",
            Self::Type => "type",
            Self::TensorType => "tensor type",
            Self::TensorShape => "shape",
            Self::Dimension => "dimension",
        }
    }

    /// What field `number` of this message holds. Subgraphs and functions' nodes are walked although they are not
    /// decoded, so that the limits hold for them too.
    pub(super) fn field(self, number: u32) -> Content {
        use Content::{Floats, Integers, Message, Name, Number, Payload, Skipped};
        match (self, number) {
            (Self::Model, 1) => Number,
            (Self::Model, 2 | 3) => Name,
            (Self::Model, 7) => Message(Self::Graph),
            (Self::Model, 8) => Message(Self::OperatorSetId),
            (Self::Model, 25) => Message(Self::Function),
            (Self::OperatorSetId, 1) | (Self::Function, 1 | 10) => Name,
            (Self::OperatorSetId, 2) => Number,
            (Self::Function, 7) | (Self::Graph, 1) => Message(Self::Node),
            (Self::Graph, 2) => Name,
            (Self::Graph, 5) => Message(Self::Tensor),
            (Self::Graph, 11 | 12) => Message(Self::ValueInfo),
            (Self::Graph, 15) => Message(Self::SparseTensor),
            (Self::Node, 1..=4 | 7) => Name,
            (Self::Node, 5) => Message(Self::Attribute),
            (Self::Attribute, 1 | 21) => Name,
            (Self::Attribute, 2 | 3 | 20) => Number,
            (Self::Attribute, 4 | 9) => Payload,
            (Self::Attribute, 5) => Message(Self::Tensor),
            (Self::Attribute, 6 | 11) => Message(Self::Graph),
            (Self::Attribute, 7) => Floats,
            (Self::Attribute, 8) => Integers,
            (Self::Tensor, 1) | (Self::SparseTensor, 3) => Integers,
            (Self::Tensor, 2 | 14) => Number,
            (Self::Tensor, 4 | 5 | 7 | 9 | 10 | 11) => Payload,
            (Self::Tensor, 8) => Name,
            (Self::Tensor, 13) => Message(Self::Entry),
            (Self::SparseTensor, 1 | 2) => Message(Self::Tensor),
            (Self::Entry, 1 | 2) => Name,
            (Self::ValueInfo, 1) => Name,
            (Self::ValueInfo, 2) => Message(Self::Type),
            (Self::Type, 1) => Message(Self::TensorType),
            (Self::TensorType, 1) => Number,
            (Self::TensorType, 2) => Message(Self::TensorShape),
            (Self::TensorShape, 1) => Message(Self::Dimension),
            (Self::Dimension, 1) => Number,
            (Self::Dimension, 2) => Name,
            _ => Skipped,
        }
    }
}
