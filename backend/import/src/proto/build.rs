//! Constructors for messages, so that tests and examples can build small models without a file.

use super::decode::Message;
use super::{
    AttributeProto, DimensionProto, ElementTypeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, attribute_type,
    data_type,
};

impl ModelProto {
    /// Creates a model of one graph that uses version `opset` of the standard operators.
    pub fn of(graph: GraphProto, opset: i64) -> Self {
        let standard = OperatorSetIdProto { version: opset, ..OperatorSetIdProto::default() };
        Self { ir_version: 8, graph: Some(graph), opset_import: vec![standard], ..Self::default() }
    }

    /// Returns the bytes of the model's file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_fields(&mut bytes);
        bytes
    }
}

impl NodeProto {
    /// Creates a node of the standard domain without name or attributes. An empty name leaves an optional value out.
    pub fn of(op_type: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Self { op_type: op_type.into(), input: owned(inputs), output: owned(outputs), ..Self::default() }
    }

    /// Sets the name of the node (default: none).
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Adds an attribute to the node (default: none).
    #[must_use]
    pub fn with(mut self, attribute: AttributeProto) -> Self {
        self.attribute.push(attribute);
        self
    }
}

impl AttributeProto {
    fn of(name: &str, kind: i64) -> Self {
        Self { name: name.into(), r#type: kind, ..Self::default() }
    }

    /// Creates an attribute with an integer.
    pub fn int(name: &str, value: i64) -> Self {
        Self { i: Some(value), ..Self::of(name, attribute_type::INT) }
    }

    /// Creates an attribute with a number.
    pub fn float(name: &str, value: f32) -> Self {
        Self { f: Some(value), ..Self::of(name, attribute_type::FLOAT) }
    }

    /// Creates an attribute with a string.
    pub fn string(name: &str, value: &str) -> Self {
        Self { s: Some(value.into()), ..Self::of(name, attribute_type::STRING) }
    }

    /// Creates an attribute with integers.
    pub fn ints(name: &str, values: &[i64]) -> Self {
        Self { ints: values.to_vec(), ..Self::of(name, attribute_type::INTS) }
    }

    /// Creates an attribute with numbers.
    pub fn floats(name: &str, values: &[f32]) -> Self {
        Self { floats: values.to_vec(), ..Self::of(name, attribute_type::FLOATS) }
    }

    /// Creates an attribute with strings.
    pub fn strings(name: &str, values: &[&str]) -> Self {
        let strings = values.iter().map(|value| value.as_bytes().to_vec()).collect();
        Self { strings, ..Self::of(name, attribute_type::STRINGS) }
    }

    /// Creates an attribute with a tensor.
    pub fn tensor(name: &str, value: TensorProto) -> Self {
        Self { t: Some(Box::new(value)), ..Self::of(name, attribute_type::TENSOR) }
    }

    /// Creates an attribute with a subgraph.
    pub fn graph(name: &str, value: &GraphProto) -> Self {
        Self { g: Some(Box::new(value.clone())), ..Self::of(name, attribute_type::GRAPH) }
    }
}

impl TensorProto {
    /// Returns the bytes of the message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_fields(&mut bytes);
        bytes
    }

    /// Returns the bytes of data in the message itself.
    pub(crate) fn held_bytes(&self) -> u64 {
        let packed = [&self.float_data, &self.int32_data, &self.int64_data, &self.double_data, &self.uint64_data];
        // A number takes at least one byte there, and at most eight in memory.
        let packed: u64 = packed.into_iter().flatten().map(|data| 8 * data.len() as u64).sum();
        packed + self.raw_data.bytes()
    }

    /// Creates a tensor whose data is the elements' little-endian bytes.
    pub fn raw(name: &str, data_type: i64, dims: &[i64], data: Vec<u8>) -> Self {
        Self { raw_data: data.into(), ..Self::empty(name, data_type, dims) }
    }

    /// Creates a tensor of 32-bit floats.
    pub fn f32s(name: &str, dims: &[i64], elements: &[f32]) -> Self {
        let data = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        Self::raw(name, data_type::FLOAT, dims, data)
    }

    /// Creates a tensor of 64-bit integers.
    pub fn i64s(name: &str, dims: &[i64], elements: &[i64]) -> Self {
        let data = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        Self::raw(name, data_type::INT64, dims, data)
    }

    /// Creates a tensor whose data is in another file, described by these keys and values.
    pub fn external(name: &str, data_type: i64, dims: &[i64], entries: &[(&str, &str)]) -> Self {
        let entry =
            |(key, value): &(&str, &str)| StringStringEntryProto { key: key.to_string(), value: value.to_string() };
        let external_data = entries.iter().map(entry).collect();
        Self { external_data, data_location: 1, ..Self::empty(name, data_type, dims) }
    }

    /// Creates a tensor without data.
    pub fn empty(name: &str, data_type: i64, dims: &[i64]) -> Self {
        Self { name: name.into(), data_type, dims: dims.to_vec(), ..Self::default() }
    }
}

impl ValueInfoProto {
    /// Creates a tensor-valued input or output of this [`data_type`].
    pub fn tensor(name: &str, elem_type: i64, dims: Vec<DimensionProto>) -> Self {
        let tensor = TensorTypeProto { elem_type, shape: Some(TensorShapeProto { dim: dims }) };
        Self { name: name.into(), r#type: Some(TypeProto { tensor_type: Some(tensor), ..TypeProto::default() }) }
    }

    /// Changes the type to a sequence of such tensors.
    pub fn sequence(self) -> Self {
        let r#type = TypeProto {
            sequence_type: Some(Box::new(ElementTypeProto { elem_type: self.r#type })),
            ..TypeProto::default()
        };
        Self { r#type: Some(r#type), ..self }
    }

    /// Changes the type to an optional.
    pub fn optional(self) -> Self {
        let r#type = TypeProto {
            optional_type: Some(Box::new(ElementTypeProto { elem_type: self.r#type })),
            ..TypeProto::default()
        };
        Self { r#type: Some(r#type), ..self }
    }

    /// Creates a tensor of 32-bit floats whose dimensions are all known.
    pub fn f32s(name: &str, dims: &[i64]) -> Self {
        Self::tensor(name, data_type::FLOAT, dims.iter().map(|dim| DimensionProto::known(*dim)).collect())
    }
}

impl DimensionProto {
    /// Creates a known dimension.
    pub fn known(dim: i64) -> Self {
        Self { dim_value: Some(dim), dim_param: String::new() }
    }

    /// Creates a dimension that is known only by its name.
    pub fn symbol(name: &str) -> Self {
        Self { dim_value: None, dim_param: name.into() }
    }
}
