//! The messages of an ONNX file, as far as they are read.
//!
//! Field numbers follow `onnx.proto` of ONNX 1.23 (IR version 14). The messages are written by hand, so that three
//! things differ from what a generator would make. Bulk data stays in the file's own bytes
//! ([`Bytes`]), so that decoding copies no weights. Subgraphs are kept undecoded, so that no
//! message contains itself and decoding cannot recurse. Fields that a runtime has no use for are left out, and
//! skipped.

mod build;

use prost::Message;
use prost::bytes::Bytes;

/// A whole file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the file format.
    #[prost(int64, optional, tag = "1")]
    pub ir_version: Option<i64>,
    /// What wrote the file.
    #[prost(string, optional, tag = "2")]
    pub producer_name: Option<String>,
    /// The writer's version.
    #[prost(string, optional, tag = "3")]
    pub producer_version: Option<String>,
    /// The graph to run.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// The operator sets that the graph uses.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Functions of the model's own.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// A domain of operators and the version in use.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Empty for the standard operators.
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    /// Version of the set.
    #[prost(int64, optional, tag = "2")]
    pub version: Option<i64>,
}

/// An operator defined by the model itself; its body is not read.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// Name by which nodes call it.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Domain by which nodes call it.
    #[prost(string, optional, tag = "10")]
    pub domain: Option<String>,
}

/// Nodes, the values that they exchange, and constants.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// The operators.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// The graph's name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Constants, by name.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// What the caller gives.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// What the caller receives.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Constants in coordinate form.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
}

/// One operator applied to values.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of the values read; empty where an optional one is left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the values made; empty where one is not wanted.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// The node's name, often empty.
    #[prost(string, optional, tag = "3")]
    pub name: Option<String>,
    /// The operator.
    #[prost(string, optional, tag = "4")]
    pub op_type: Option<String>,
    /// The operator's parameters.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// The operator's domain; empty for the standard one.
    #[prost(string, optional, tag = "7")]
    pub domain: Option<String>,
}

/// A parameter of a node.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// The parameter's name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// A number.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// An integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// A text.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub s: Option<Bytes>,
    /// A tensor.
    #[prost(message, optional, boxed, tag = "5")]
    pub t: Option<Box<TensorProto>>,
    /// A subgraph, undecoded.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub g: Option<Bytes>,
    /// Numbers.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Texts.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
    /// Which of the fields holds the value: an [`attribute_type`].
    #[prost(int32, optional, tag = "20")]
    pub r#type: Option<i32>,
    /// In a function's body: the function's attribute that gives the value.
    #[prost(string, optional, tag = "21")]
    pub ref_attr_name: Option<String>,
}

/// Values of [`AttributeProto::type`].
#[allow(missing_docs, reason = "each constant is named after the field that it announces")]
pub mod attribute_type {
    pub const UNDEFINED: i32 = 0;
    pub const FLOAT: i32 = 1;
    pub const INT: i32 = 2;
    pub const STRING: i32 = 3;
    pub const TENSOR: i32 = 4;
    pub const GRAPH: i32 = 5;
    pub const FLOATS: i32 = 6;
    pub const INTS: i32 = 7;
    pub const STRINGS: i32 = 8;
    pub const TENSORS: i32 = 9;
    pub const GRAPHS: i32 = 10;
    pub const SPARSE_TENSOR: i32 = 11;
    pub const SPARSE_TENSORS: i32 = 12;
    pub const TYPE: i32 = 13;
    pub const TYPES: i32 = 14;
}

/// A constant tensor. The data is in one of the fields that end in `_data`, or in another file.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// The dimensions, outermost first.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// The element type: a [`data_type`].
    #[prost(int32, optional, tag = "2")]
    pub data_type: Option<i32>,
    /// Packed 32-bit floats.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub float_data: Vec<Bytes>,
    /// Packed variable-length integers: types of up to 32 bits, one element each.
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub int32_data: Vec<Bytes>,
    /// Packed variable-length integers: signed 64-bit.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub int64_data: Vec<Bytes>,
    /// The value's name.
    #[prost(string, optional, tag = "8")]
    pub name: Option<String>,
    /// The elements' bytes, little endian.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    /// Packed 64-bit floats.
    #[prost(bytes = "bytes", repeated, tag = "10")]
    pub double_data: Vec<Bytes>,
    /// Packed variable-length integers: unsigned 32-bit and 64-bit.
    #[prost(bytes = "bytes", repeated, tag = "11")]
    pub uint64_data: Vec<Bytes>,
    /// Where the data is in another file: `location`, `offset`, `length`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 if the data is in another file.
    #[prost(int32, optional, tag = "14")]
    pub data_location: Option<i32>,
}

/// Values of [`TensorProto::data_type`] that have a [`DType`](anabranch_kernels::DType).
#[allow(missing_docs, reason = "each constant is named after the type that it announces")]
pub mod data_type {
    pub const FLOAT: i32 = 1;
    pub const UINT8: i32 = 2;
    pub const INT8: i32 = 3;
    pub const UINT16: i32 = 4;
    pub const INT16: i32 = 5;
    pub const INT32: i32 = 6;
    pub const INT64: i32 = 7;
    pub const STRING: i32 = 8;
    pub const BOOL: i32 = 9;
    pub const FLOAT16: i32 = 10;
    pub const DOUBLE: i32 = 11;
    pub const UINT32: i32 = 12;
    pub const UINT64: i32 = 13;
    pub const BFLOAT16: i32 = 16;
}

/// A constant whose elements are mostly 0, in coordinate form.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// The elements that are given; its name is the whole tensor's.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Where they are: flat positions (rank 1), or one row of coordinates each (rank 2).
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// The dimensions of the whole tensor.
    #[prost(int64, repeated, tag = "3")]
    pub dims: Vec<i64>,
}

/// A key and its value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// The key.
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    /// Its value.
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// Name and type of an input or output.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// The value's name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// A type. Sequences, maps and optionals are not read: for them `tensor_type` is empty.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// The type of a tensor.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

/// Element type and shape of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// The element type: a [`data_type`].
    #[prost(int32, optional, tag = "1")]
    pub elem_type: Option<i32>,
    /// The dimensions; absent if not even their number is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// The dimensions of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// The dimensions, outermost first.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// One dimension: a number, a symbol, or (with neither) unknown.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// The number.
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// The symbol.
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}
