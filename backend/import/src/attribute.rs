//! Attributes of nodes and their typed reading: each error names the node, the attribute and the expected value.

use super::error::Name;
use super::model::{Node, Subgraph};
use anabranch_kernels::Tensor;
use std::ops::RangeInclusive;

/// Attribute of a node.
#[derive(Clone, Debug)]
pub enum Attribute {
    /// A number.
    Float(f32),
    /// An integer.
    Int(i64),
    /// A string, as bytes: UTF-8 is checked when it is read.
    String(Vec<u8>),
    /// A tensor.
    Tensor(Tensor),
    /// Numbers.
    Floats(Vec<f32>),
    /// Integers.
    Ints(Vec<i64>),
    /// Strings.
    Strings(Vec<Vec<u8>>),
    /// A subgraph, or the reason that it cannot be read, which matters only if it is lowered.
    Graph(Result<Box<Subgraph>, String>),
    /// A kind of value that no supported operator has; the text names the kind.
    Other(&'static str),
}

impl Attribute {
    /// Returns the kind of value, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Float(_) => "a number",
            Self::Int(_) => "an integer",
            Self::String(_) => "a string",
            Self::Tensor(_) => "a tensor",
            Self::Floats(_) => "a list of numbers",
            Self::Ints(_) => "a list of integers",
            Self::Strings(_) => "a list of strings",
            Self::Graph(_) => "a subgraph",
            Self::Other(kind) => kind,
        }
    }
}

/// Error of a missing or wrong attribute of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {} ({}): attribute {} {problem}", Name(node), Name(op_type), Name(attribute))]
pub struct AttributeError {
    /// Name of the node.
    pub node: String,
    /// Operator of the node.
    pub op_type: String,
    /// Name of the attribute.
    pub attribute: String,
    /// Fault of the attribute.
    pub problem: String,
}

type Result<T, E = AttributeError> = std::result::Result<T, E>;

/// Typed reading of attributes. `None` stands for a missing attribute; the caller applies the operator's default.
impl Node {
    /// Returns the attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.get(name)
    }

    /// Reads a subgraph.
    ///
    /// # Errors
    /// If the attribute is missing, of another kind, or a graph that cannot be read.
    pub fn graph(&self, name: &str) -> Result<&Subgraph> {
        let graph = self.read(name, "a subgraph", |value| match value {
            Attribute::Graph(graph) => Some(graph),
            _ => None,
        })?;
        let graph = graph.ok_or_else(|| self.missing(name))?;
        graph.as_deref().map_err(|problem| self.attribute_error(name, problem.clone()))
    }

    /// Creates an error about this node's attribute `name`.
    pub fn attribute_error(&self, name: &str, problem: impl Into<String>) -> AttributeError {
        let (node, op_type) = (self.name.clone(), self.op_type.clone());
        AttributeError { node, op_type, attribute: name.into(), problem: problem.into() }
    }

    /// Creates the error of the missing attribute `name`, which the operator needs.
    pub fn missing(&self, name: &str) -> AttributeError {
        self.attribute_error(name, "is missing")
    }

    /// Reads an integer.
    ///
    /// # Errors
    /// If the attribute is of another kind.
    pub fn int(&self, name: &str) -> Result<Option<i64>> {
        self.read(name, "an integer", |value| match value {
            Attribute::Int(value) => Some(*value),
            _ => None,
        })
    }

    /// Reads an integer within `range`.
    ///
    /// # Errors
    /// If the attribute is of another kind, or its value is not in the range.
    pub fn int_within(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>> {
        let value = self.int(name)?;
        match value {
            Some(value) if !range.contains(&value) => Err(self.out_of_range(name, value, &range)),
            value => Ok(value),
        }
    }

    /// Reads an integer that stands for a bool.
    ///
    /// # Errors
    /// If the attribute is of another kind, or neither 0 nor 1.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        Ok(self.int_within(name, 0..=1)?.map(|value| value == 1))
    }

    /// Reads a number.
    ///
    /// # Errors
    /// If the attribute is of another kind.
    pub fn float(&self, name: &str) -> Result<Option<f32>> {
        self.read(name, "a number", |value| match value {
            Attribute::Float(value) => Some(*value),
            _ => None,
        })
    }

    /// Reads a string.
    ///
    /// # Errors
    /// If the attribute is of another kind, or not UTF-8.
    pub fn string(&self, name: &str) -> Result<Option<&str>> {
        let bytes = self.read(name, "a string", |value| match value {
            Attribute::String(bytes) => Some(bytes.as_slice()),
            _ => None,
        })?;
        bytes.map(|bytes| self.text(name, bytes)).transpose()
    }

    /// Reads a list of integers.
    ///
    /// # Errors
    /// If the attribute is of another kind.
    pub fn ints(&self, name: &str) -> Result<Option<&[i64]>> {
        self.read(name, "a list of integers", |value| match value {
            Attribute::Ints(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    /// Reads `length` integers within `range`, as sizes: strides, dilations, pads.
    ///
    /// # Errors
    /// If the attribute is of another kind or length, or a value is not in the range or does not fit `usize`.
    pub fn sizes(&self, name: &str, length: usize, range: RangeInclusive<i64>) -> Result<Option<Vec<usize>>> {
        let Some(values) = self.ints(name)? else { return Ok(None) };
        if values.len() != length {
            let problem = format!("has {} entries, but {length} are expected", values.len());
            return Err(self.attribute_error(name, problem));
        }
        let size = |value: &i64| {
            let size = usize::try_from(*value).ok().filter(|_| range.contains(value));
            size.ok_or_else(|| self.out_of_range(name, *value, &range))
        };
        values.iter().map(size).collect::<Result<Vec<_>>>().map(Some)
    }

    /// Reads a list of numbers.
    ///
    /// # Errors
    /// If the attribute is of another kind.
    pub fn floats(&self, name: &str) -> Result<Option<&[f32]>> {
        self.read(name, "a list of numbers", |value| match value {
            Attribute::Floats(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    /// Reads a list of strings.
    ///
    /// # Errors
    /// If the attribute is of another kind, or one of the strings is not UTF-8.
    pub fn strings(&self, name: &str) -> Result<Option<Vec<&str>>> {
        let texts = self.read(name, "a list of strings", |value| match value {
            Attribute::Strings(texts) => Some(texts),
            _ => None,
        })?;
        texts.map(|texts| texts.iter().map(|bytes| self.text(name, bytes)).collect()).transpose()
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// If the attribute is of another kind.
    pub fn tensor(&self, name: &str) -> Result<Option<&Tensor>> {
        self.read(name, "a tensor", |value| match value {
            Attribute::Tensor(tensor) => Some(tensor),
            _ => None,
        })
    }

    fn read<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        pick: impl FnOnce(&'a Attribute) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.attribute(name) else { return Ok(None) };
        let problem = || format!("is {}, but {expected} is expected", value.kind());
        pick(value).map(Some).ok_or_else(|| self.attribute_error(name, problem()))
    }

    fn out_of_range(&self, name: &str, value: i64, range: &RangeInclusive<i64>) -> AttributeError {
        let (least, most) = (range.start(), range.end());
        let problem = match *most {
            i64::MAX => format!("holds {value}, but at least {least} is expected"),
            _ => format!("holds {value}, but {least} to {most} is expected"),
        };
        self.attribute_error(name, problem)
    }

    fn text<'a>(&self, name: &str, bytes: &'a [u8]) -> Result<&'a str> {
        std::str::from_utf8(bytes).map_err(|_| self.attribute_error(name, "is not valid UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        let attributes = [
            ("group", Attribute::Int(0)),
            ("pads", Attribute::Ints(vec![1, -1])),
            ("bytes", Attribute::String(vec![0xff])),
            ("body", Attribute::Graph(Err("is odd".into()))),
        ];
        Node {
            name: "conv_1".into(),
            op_type: "Conv".into(),
            domain: String::new(),
            version: 17,
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    #[test]
    fn what_is_not_there_is_none() {
        let node = node();
        assert_eq!(node.int("axis"), Ok(None));
        assert_eq!(node.sizes("strides", 2, 1..=9), Ok(None));
        assert!(node.graph("body").is_err_and(|error| error.problem == "is odd") && node.graph("other").is_err());
    }

    #[test]
    fn errors_name_node_attribute_and_expectation() {
        let node = node();
        let cases = [
            (node.int_within("group", 1..=64).map(|_| ()), "`group` holds 0, but 1 to 64 is expected"),
            (node.sizes("pads", 2, 0..=9).map(|_| ()), "`pads` holds -1, but 0 to 9 is expected"),
            (node.sizes("pads", 4, 0..=9).map(|_| ()), "`pads` has 2 entries, but 4 are expected"),
            (node.float("group").map(|_| ()), "`group` is an integer, but a number is expected"),
            (node.sizes("pads", 2, 0..=i64::MAX).map(|_| ()), "`pads` holds -1, but at least 0 is expected"),
            (node.string("bytes").map(|_| ()), "`bytes` is not valid UTF-8"),
            (Err(node.missing("to")), "`to` is missing"),
        ];
        for (result, text) in cases {
            let error = result.expect_err("every case is wrong");
            assert_eq!(error.to_string(), format!("node `conv_1` (`Conv`): attribute {text}"));
        }
        assert_eq!(node.flag("group"), Ok(Some(false)));
    }
}
