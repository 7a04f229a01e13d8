//! The messages of an ONNX file, as far as they are read.
//!
//! Field numbers follow `onnx.proto` of ONNX 1.23 (IR version 14). Fields that a runtime does not need are skipped. An
//! empty string equals a missing field.

mod build;
mod decode;
mod wire;

pub use decode::Payload;
pub(super) use decode::PayloadSource;
pub(super) use wire::Reader;
#[cfg(test)]
pub(super) use wire::put_varint;

use super::Limits;
use super::error::Result;
use decode::{Decoder, Field, Message, Value, put_message};
use wire::Token;

/// Declares messages: each with its name in errors, its fields with their numbers, and its reading and writing.
macro_rules! messages {
    ($($(#[$about:meta])* $message:ident $name:literal {
        $($(#[$field_about:meta])* $field:ident: $holds:ty = $number:literal,)*
    })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $message {
            $($(#[$field_about])* pub $field: $holds,)*
        }

        impl Message for $message {
            const NAME: &str = $name;

            fn read_field(&mut self, number: u32, token: Token, decoder: &mut Decoder<'_>) -> Result<bool> {
                match number {
                    $($number => self.$field.read(token, decoder)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn write_fields(&self, out: &mut Vec<u8>) {
                $(if self.$field != <$holds>::default() {
                    self.$field.write($number, out);
                })*
            }
        }

        impl Value for $message {
            fn take(&mut self, token: Token, decoder: &mut Decoder<'_>) -> Result<()> {
                decoder.inner(self, token)
            }

            fn put(&self, out: &mut Vec<u8>) {
                put_message(self, out);
            }
        }
    )*};
}

/// Decodes the model in the reader's bytes.
pub(super) fn read(reader: Reader<'_>, limits: &Limits) -> Result<ModelProto> {
    decode::decode(reader, limits)
}

/// Decodes the tensor in the reader's bytes.
pub(super) fn read_tensor(reader: Reader<'_>, limits: &Limits) -> Result<TensorProto> {
    decode::decode(reader, limits)
}

/// Decodes the sequence in the reader's bytes.
pub(super) fn read_sequence(reader: Reader<'_>, limits: &Limits) -> Result<SequenceProto> {
    decode::decode(reader, limits)
}

/// Decodes the optional in the reader's bytes.
pub(super) fn read_optional(reader: Reader<'_>, limits: &Limits) -> Result<OptionalProto> {
    decode::decode(reader, limits)
}

messages! {
    /// A whole file.
    ModelProto "model" {
        /// Version of the file format.
        ir_version: i64 = 1,
        /// Program that wrote the file.
        producer_name: String = 2,
        /// Version of that program.
        producer_version: String = 3,
        /// The graph to run.
        graph: Option<GraphProto> = 7,
        /// The operator sets that the graph uses.
        opset_import: Vec<OperatorSetIdProto> = 8,
        /// Functions defined by the model.
        functions: Vec<FunctionProto> = 25,
    }

    /// A domain of operators and the version in use.
    OperatorSetIdProto "operator set" {
        /// Empty for the standard operators.
        domain: String = 1,
        /// Version of the set.
        version: i64 = 2,
    }

    /// An operator defined by the model itself.
    FunctionProto "function" {
        /// Name by which nodes call it.
        name: String = 1,
        /// Names of its inputs within its body.
        input: Vec<String> = 4,
        /// Names of its outputs within its body.
        output: Vec<String> = 5,
        /// Its body.
        node: Vec<NodeProto> = 7,
        /// The operator sets that its body uses.
        opset_import: Vec<OperatorSetIdProto> = 9,
        /// Domain by which nodes call it.
        domain: String = 10,
        /// Default values of its parameters.
        attribute_proto: Vec<AttributeProto> = 11,
        /// Identifies one of several functions of the same name.
        overload: String = 13,
    }

    /// Nodes, the values that they exchange, and constants.
    GraphProto "graph" {
        /// The operators.
        node: Vec<NodeProto> = 1,
        /// The graph's name.
        name: String = 2,
        /// Constants, by name.
        initializer: Vec<TensorProto> = 5,
        /// Inputs that the caller gives.
        input: Vec<ValueInfoProto> = 11,
        /// Outputs that the caller receives.
        output: Vec<ValueInfoProto> = 12,
        /// Constants in coordinate form.
        sparse_initializer: Vec<SparseTensorProto> = 15,
    }

    /// One operator applied to values.
    NodeProto "node" {
        /// Names of the input values; empty for an optional input that is left out.
        input: Vec<String> = 1,
        /// Names of the output values; empty for an unused output.
        output: Vec<String> = 2,
        /// The node's name, often empty.
        name: String = 3,
        /// The operator.
        op_type: String = 4,
        /// The operator's parameters.
        attribute: Vec<AttributeProto> = 5,
        /// The operator's domain; empty for the standard domain.
        domain: String = 7,
        /// Identifies one of several called functions of the same name.
        overload: String = 8,
    }

    /// A parameter of a node.
    AttributeProto "attribute" {
        /// The parameter's name.
        name: String = 1,
        /// A number.
        f: Option<f32> = 2,
        /// An integer.
        i: Option<i64> = 3,
        /// A string.
        s: Option<Vec<u8>> = 4,
        /// A tensor.
        t: Option<Box<TensorProto>> = 5,
        /// A subgraph.
        g: Option<Box<GraphProto>> = 6,
        /// Numbers.
        floats: Vec<f32> = 7,
        /// Integers.
        ints: Vec<i64> = 8,
        /// Strings.
        strings: Vec<Vec<u8>> = 9,
        /// Subgraphs.
        graphs: Vec<GraphProto> = 11,
        /// Field that holds the value: an [`attribute_type`].
        r#type: i64 = 20,
        /// In a function's body: the function's attribute that gives the value.
        ref_attr_name: String = 21,
        /// A tensor in coordinate form.
        sparse_tensor: Option<Box<SparseTensorProto>> = 22,
    }

    /// A constant tensor. The data is in one of the fields that end in `_data`, or in another file.
    TensorProto "tensor" {
        /// The dimensions, outermost first.
        dims: Vec<i64> = 1,
        /// The element type: a [`data_type`].
        data_type: i64 = 2,
        /// Packed 32-bit floats.
        float_data: Vec<Vec<u8>> = 4,
        /// Packed variable-length integers: types of up to 32 bits, one element each.
        int32_data: Vec<Vec<u8>> = 5,
        /// Texts.
        string_data: Vec<Vec<u8>> = 6,
        /// Strings.
        int64_data: Vec<Vec<u8>> = 7,
        /// The value's name.
        name: String = 8,
        /// The elements' bytes, little endian.
        raw_data: Payload = 9,
        /// Packed 64-bit floats.
        double_data: Vec<Vec<u8>> = 10,
        /// Packed variable-length integers: unsigned 32-bit and 64-bit.
        uint64_data: Vec<Vec<u8>> = 11,
        /// Location of the data in another file: `location`, `offset`, `length`.
        external_data: Vec<StringStringEntryProto> = 13,
        /// 1 if the data is in another file.
        data_location: i64 = 14,
    }

    /// A constant whose elements are mostly 0, in coordinate form.
    SparseTensorProto "sparse tensor" {
        /// The given elements; their name is the whole tensor's.
        values: Option<TensorProto> = 1,
        /// Positions of the elements: flat positions (rank 1), or one row of coordinates each (rank 2).
        indices: Option<TensorProto> = 2,
        /// The dimensions of the whole tensor.
        dims: Vec<i64> = 3,
    }

    /// A sequence in a file of its own.
    SequenceProto "sequence" {
        /// Kind of its elements: 1 for tensors.
        elem_type: i64 = 2,
        /// Its elements, if these are tensors.
        tensor_values: Vec<TensorProto> = 3,
    }

    /// An optional in a file of its own.
    OptionalProto "optional" {
        /// Kind of its value: 1 for a tensor, 3 for a sequence.
        elem_type: i64 = 2,
        /// The tensor that it holds.
        tensor_value: Option<TensorProto> = 3,
        /// The sequence that it holds.
        sequence_value: Option<SequenceProto> = 5,
    }

    /// A key and its value.
    StringStringEntryProto "key and value" {
        /// The key.
        key: String = 1,
        /// Its value.
        value: String = 2,
    }

    /// Name and type of an input or output.
    ValueInfoProto "input or output" {
        /// The value's name.
        name: String = 1,
        /// Its type.
        r#type: Option<TypeProto> = 2,
    }

    /// A type. Maps are not read: for them all fields are empty.
    TypeProto "type" {
        /// The type of a tensor.
        tensor_type: Option<TensorTypeProto> = 1,
        /// The type of a sequence.
        sequence_type: Option<Box<ElementTypeProto>> = 4,
        /// The type of an optional.
        optional_type: Option<Box<ElementTypeProto>> = 9,
    }

    /// Type of the elements of a sequence, or of the value of an optional.
    ElementTypeProto "element type" {
        /// The type of an element.
        elem_type: Option<TypeProto> = 1,
    }

    /// Element type and shape of a tensor.
    TensorTypeProto "tensor type" {
        /// The element type: a [`data_type`].
        elem_type: i64 = 1,
        /// The dimensions; absent if even their number is unknown.
        shape: Option<TensorShapeProto> = 2,
    }

    /// The dimensions of a tensor.
    TensorShapeProto "shape" {
        /// The dimensions, outermost first.
        dim: Vec<DimensionProto> = 1,
    }

    /// One dimension: a number, a symbol, or (with neither) unknown.
    DimensionProto "dimension" {
        /// The number.
        dim_value: Option<i64> = 1,
        /// The symbol.
        dim_param: String = 2,
    }
}

/// Values of [`AttributeProto::type`].
#[allow(missing_docs, reason = "each constant is named after the field that it announces")]
pub mod attribute_type {
    pub const UNDEFINED: i64 = 0;
    pub const FLOAT: i64 = 1;
    pub const INT: i64 = 2;
    pub const STRING: i64 = 3;
    pub const TENSOR: i64 = 4;
    pub const GRAPH: i64 = 5;
    pub const FLOATS: i64 = 6;
    pub const INTS: i64 = 7;
    pub const STRINGS: i64 = 8;
    pub const TENSORS: i64 = 9;
    pub const GRAPHS: i64 = 10;
    pub const SPARSE_TENSOR: i64 = 11;
    pub const SPARSE_TENSORS: i64 = 12;
    pub const TYPE: i64 = 13;
    pub const TYPES: i64 = 14;
}

/// Values of [`TensorProto::data_type`] that have a [`DType`](anabranch_kernels::DType).
#[allow(missing_docs, reason = "each constant is named after the type that it announces")]
pub mod data_type {
    pub const FLOAT: i64 = 1;
    pub const UINT8: i64 = 2;
    pub const INT8: i64 = 3;
    pub const UINT16: i64 = 4;
    pub const INT16: i64 = 5;
    pub const INT32: i64 = 6;
    pub const INT64: i64 = 7;
    pub const STRING: i64 = 8;
    pub const BOOL: i64 = 9;
    pub const FLOAT16: i64 = 10;
    pub const DOUBLE: i64 = 11;
    pub const UINT32: i64 = 12;
    pub const UINT64: i64 = 13;
    pub const BFLOAT16: i64 = 16;
    pub const FLOAT8E4M3FN: i64 = 17;
    pub const FLOAT8E4M3FNUZ: i64 = 18;
    pub const FLOAT8E5M2: i64 = 19;
    pub const FLOAT8E5M2FNUZ: i64 = 20;
    pub const UINT4: i64 = 21;
    pub const INT4: i64 = 22;
    pub const FLOAT4E2M1: i64 = 23;
    pub const UINT2: i64 = 25;
    pub const INT2: i64 = 26;
}
