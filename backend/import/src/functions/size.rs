//! Size of a function call's additions to a model, which are counted before they are created.

use crate::attribute::Attribute;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto};

/// Bytes that count for a node besides its strings, and for each of its values and attributes.
const NODE: u64 = 256;
const ENTRY: u64 = 64;

/// Bytes that a parameter's value takes each time it is used.
pub(super) fn bytes_of(value: &Attribute) -> u64 {
    let bytes = match value {
        Attribute::Ints(values) => size_of_val(values.as_slice()),
        Attribute::Floats(values) => size_of_val(values.as_slice()),
        Attribute::String(text) => text.len(),
        Attribute::Strings(texts) => texts.iter().map(|text| text.len() + ENTRY as usize).sum(),
        _ => 0,
    };
    bytes as u64 + ENTRY
}

/// Additions of a call to the model.
#[derive(Default)]
pub(super) struct Size {
    pub(super) nodes: u64,
    pub(super) bytes: u64,
}

impl Size {
    /// Returns the size of a function: its body, with a node for each output, and the default values of its parameters.
    pub(super) fn of(function: &FunctionProto) -> Self {
        let mut size = Self::default();
        size.add_body(&function.node);
        size.add_attributes(&function.attribute_proto);
        size.nodes = size.nodes.saturating_add(function.output.len() as u64);
        size.add_texts(&function.output);
        size.add_texts(&function.input);
        size
    }

    fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn add_texts<'a>(&mut self, texts: impl IntoIterator<Item = &'a String>) {
        texts.into_iter().for_each(|text| self.add(text.len() as u64 + ENTRY));
    }

    fn add_body(&mut self, body: &[NodeProto]) {
        self.nodes = self.nodes.saturating_add(body.len() as u64);
        for node in body {
            self.add(NODE);
            self.add_texts([&node.name, &node.op_type, &node.domain]);
            self.add_texts(node.input.iter().chain(&node.output));
            self.add_attributes(&node.attribute);
        }
    }

    /// Adds attributes without their tensors, which are shared.
    fn add_attributes(&mut self, attributes: &[AttributeProto]) {
        for attribute in attributes {
            let lists = size_of_val(&*attribute.ints) + size_of_val(&*attribute.floats);
            self.add(ENTRY + (attribute.s.as_ref().map_or(0, Vec::len) + lists) as u64);
            self.add_texts([&attribute.name]);
            attribute.strings.iter().for_each(|text| self.add(text.len() as u64 + ENTRY));
            if let Some(graph) = &attribute.g {
                self.add_graph(graph);
            }
        }
    }

    fn add_graph(&mut self, graph: &GraphProto) {
        self.add_body(&graph.node);
        self.add_texts(graph.input.iter().chain(&graph.output).map(|value| &value.name));
        graph.initializer.iter().for_each(|tensor| self.add(tensor.held_bytes() + tensor.name.len() as u64 + ENTRY));
    }
}
