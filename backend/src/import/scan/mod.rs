//! The budget check of a model file before it is decoded.
//!
//! Decoding protobuf can take a hundred times the file's size in memory (an empty node is two bytes on the wire and
//! two hundred decoded). This walk reads the keys and lengths of the file once, allocates nothing but a stack of at
//! most [`Limits::depth`] frames, and refuses what would exceed a [`Limits`] before anything is decoded. O(fields).

mod schema;

use super::limits::Limits;
use super::wire::{Reader, Token, WireError};
use schema::{Content, Kind};
use std::fmt;
use std::mem::size_of;

/// Bytes of a handle to text or payload: the larger of `String` and `Bytes`.
const HANDLE: u64 = size_of::<prost::bytes::Bytes>() as u64;

/// Why a file was refused before it was decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}, at byte {offset} of {within}; {}", .reason.advice())]
pub struct ScanError {
    /// Where in the file.
    pub offset: usize,
    /// The messages around that place, outermost first: `model › graph › node`.
    pub within: String,
    /// What is wrong.
    pub reason: ScanReason,
}

/// What is wrong with a file that was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanReason {
    /// The bytes are not protobuf, or not of an ONNX model.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A [`Limits`] is exceeded.
    #[error("more than {limit} {what}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The limit's field.
        field: &'static str,
        /// The limit.
        limit: u64,
    },
}

impl ScanReason {
    /// What to do about it.
    fn advice(&self) -> String {
        match self {
            Self::Wire(_) => "check that the file is complete, or export it again".to_owned(),
            Self::Limit { field, .. } => format!("raise `Limits::{field}` if you trust the file"),
        }
    }
}

/// Checks that `bytes` are a model within `limits`.
///
/// # Errors
/// If they are not protobuf, or a limit is exceeded.
pub(super) fn check(bytes: &[u8], limits: &Limits) -> Result<(), ScanError> {
    let mut scan = Scan { reader: Reader::new(bytes), stack: Vec::new(), structure: 0, fields: 0, nodes: 0, limits };
    let walked = scan.enter(Kind::Model, bytes.len()).and_then(|()| scan.walk());
    walked.map_err(|reason| scan.error(reason))
}

struct Frame {
    kind: Kind,
    end: usize,
}

struct Scan<'a> {
    reader: Reader<'a>,
    stack: Vec<Frame>,
    structure: u64,
    fields: u64,
    nodes: u64,
    limits: &'a Limits,
}

impl Scan<'_> {
    fn walk(&mut self) -> Result<(), ScanReason> {
        while let Some(&Frame { kind, end }) = self.stack.last() {
            if self.reader.position() == end {
                self.stack.pop();
                continue;
            }
            let (number, token) = self.reader.field(end)?;
            self.fields += 1;
            // Values and nodes are counted in 32 bits; there are fewer of them than fields.
            let most = self.limits.fields.min(u64::from(u32::MAX));
            if self.fields > most {
                return Err(limit("fields", "fields", most));
            }
            self.content(kind.field(number), token, end)?;
        }
        Ok(())
    }

    fn content(&mut self, content: Content, token: Token, end: usize) -> Result<(), ScanReason> {
        match (content, token) {
            (Content::Message(kind), Token::Bytes(length)) => return self.enter(kind, self.reader.position() + length),
            (Content::Name, Token::Bytes(length)) => {
                if length as u64 > self.limits.name_bytes {
                    return Err(limit("bytes in a name", "name_bytes", self.limits.name_bytes));
                }
                self.charge(HANDLE + length as u64)?;
            }
            (Content::Payload, Token::Bytes(_)) => self.charge(HANDLE)?,
            (Content::Integers, Token::Bytes(length)) => self.charge((length as u64).saturating_mul(8))?,
            (Content::Integers, Token::Varint) => self.charge(8)?,
            (Content::Floats, Token::Bytes(length)) => self.charge(length as u64)?,
            (Content::Floats, Token::Fixed32) => self.charge(4)?,
            (Content::Number, Token::Varint | Token::Fixed32) | (Content::Skipped, _) => {}
            _ => return Err(WireError::Encoding.into()),
        }
        match token {
            Token::Bytes(length) => Ok(self.reader.skip(length, end)?),
            Token::Varint | Token::Fixed32 | Token::Fixed64 => Ok(()),
        }
    }

    fn enter(&mut self, kind: Kind, end: usize) -> Result<(), ScanReason> {
        if self.stack.len() >= self.limits.depth {
            return Err(limit("messages within messages", "depth", self.limits.depth as u64));
        }
        self.stack.push(Frame { kind, end });
        if kind == Kind::Node {
            self.nodes += 1;
            if self.nodes > self.limits.nodes {
                return Err(limit("nodes", "nodes", self.limits.nodes));
            }
        }
        self.charge(kind.bytes() as u64)
    }

    fn charge(&mut self, bytes: u64) -> Result<(), ScanReason> {
        self.structure = self.structure.saturating_add(bytes);
        match self.structure <= self.limits.structure_bytes {
            true => Ok(()),
            false => Err(limit("bytes of decoded structure", "structure_bytes", self.limits.structure_bytes)),
        }
    }

    fn error(&self, reason: ScanReason) -> ScanError {
        ScanError { offset: self.reader.position(), within: Path(&self.stack).to_string(), reason }
    }
}

fn limit(what: &'static str, field: &'static str, limit: u64) -> ScanReason {
    ScanReason::Limit { what, field, limit }
}

/// The outermost eight messages of a stack.
struct Path<'a>(&'a [Frame]);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        f.write_str("the file")?;
        for frame in self.0.iter().take(SHOWN) {
            write!(f, " › {}", frame.kind.name())?;
        }
        if self.0.len() > SHOWN { f.write_str(" › …") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
    use prost::Message;

    fn reason(bytes: &[u8]) -> Option<ScanReason> {
        check(bytes, &Limits::default()).err().map(|error| error.reason)
    }

    fn graph_of(nodes: Vec<NodeProto>) -> ModelProto {
        ModelProto::of(GraphProto { node: nodes, ..GraphProto::default() }, 17)
    }

    /// A graph in a graph …, `depth` graphs in all.
    fn nested(depth: usize) -> Vec<u8> {
        let inside = |graph: GraphProto, _| {
            let node = NodeProto::of("Loop", &[], &[]).with(AttributeProto::graph("body", &graph));
            GraphProto { node: vec![node], ..GraphProto::default() }
        };
        ModelProto::of((1..depth).fold(GraphProto::default(), inside), 17).to_bytes()
    }

    #[test]
    fn subgraphs_may_nest_only_so_deep() {
        // The model, its graph, and three messages for each further graph: 64 and 65 in all.
        assert_eq!(reason(&nested(21)), None);
        assert!(matches!(reason(&nested(22)), Some(ScanReason::Limit { field: "depth", .. })));
    }

    #[test]
    fn many_small_things_are_refused_before_they_are_decoded() {
        let node = [0x0a, 0x00];
        let mut file = vec![0x3a];
        prost::encoding::encode_varint(2 * 4_000_000, &mut file);
        file.extend(node.repeat(4_000_000));
        assert!(matches!(reason(&file), Some(ScanReason::Limit { field: "nodes" | "structure_bytes", .. })));

        let small = Limits { structure_bytes: 10_000, fields: 1_000, ..Limits::default() };
        let empty_inputs = NodeProto { input: vec![String::new(); 500], ..NodeProto::default() };
        let error = check(&graph_of(vec![empty_inputs]).to_bytes(), &small).expect_err("16 000 bytes of handles");
        assert!(matches!(error.reason, ScanReason::Limit { field: "structure_bytes", .. }));

        let unknown_fields = [0x28, 0x00].repeat(1_001);
        let error = check(&unknown_fields, &small).expect_err("1001 fields");
        assert!(matches!(error.reason, ScanReason::Limit { field: "fields", .. }));

        let long = graph_of(vec![NodeProto::of("Relu", &[&"x".repeat(1 << 20)], &["y"])]).to_bytes();
        assert!(matches!(reason(&long), Some(ScanReason::Limit { field: "name_bytes", .. })));
    }

    #[test]
    fn lengths_are_not_believed() {
        for claimed in [1u64 << 30, 1 << 36, 1 << 46, 1 << 62, u64::MAX] {
            let mut tensor = vec![0x4a];
            prost::encoding::encode_varint(claimed, &mut tensor);
            let graph = [&[0x2a, tensor.len() as u8][..], &tensor].concat();
            let file = [&[0x3a, graph.len() as u8][..], &graph].concat();
            let error = check(&file, &Limits::default()).expect_err("the length is a lie");
            assert_eq!(error.reason, ScanReason::Wire(WireError::Length { claimed, left: 0 }));
            assert_eq!(error.within, "the file › model › graph › tensor");
        }
    }

    #[test]
    fn elements_that_are_not_packed_are_refused() {
        let unpacked = [0x25, 0, 0, 0x80, 0x3f];
        let file = [&[0x3a, 7, 0x2a, 5][..], &unpacked].concat();
        assert_eq!(reason(&file), Some(ScanReason::Wire(WireError::Encoding)));
    }

    #[test]
    fn what_is_decoded_is_what_is_scanned() {
        let tensor = TensorProto::f32s("w", &[2], &[1.0, 2.0]);
        let node = NodeProto::of("Op", &["x"], &["y"])
            .named("n")
            .with(AttributeProto::tensor("t", tensor))
            .with(AttributeProto::floats("f", &[1.0]))
            .with(AttributeProto::strings("s", &["a", "b"]))
            .with(AttributeProto::ints("i", &[1, -1]));
        let bytes = graph_of(vec![node]).to_bytes();
        assert_eq!(reason(&bytes), None);
        for end in 1..bytes.len() {
            let scanned = reason(&bytes[..end]).is_none();
            let decoded = ModelProto::decode(&bytes[..end]).is_ok();
            assert_eq!(scanned, decoded, "cut at {end}");
        }
    }
}
