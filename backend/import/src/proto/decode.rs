//! Encodes and decodes messages, within [`Limits`].
//!
//! Decoding protobuf can take a hundred times the file's size in memory (an empty node is two bytes on the wire and two
//! hundred decoded). Every message, name and number is therefore counted first, and a file that exceeds a limit is
//! rejected before any of it is kept. O(fields).

use super::NodeProto;
use super::wire::{Reader, Token, put_bytes, put_varint};
use crate::Limits;
use crate::error::{ImportError, ImportErrorKind, Result};
use anabranch_ir::constant::LARGE;

/// Deepest nesting of messages, regardless of the limits: decoding recurses.
const DEEPEST: usize = 512;

/// Bytes that count for a message besides its own, for the model's copy of it.
const BESIDE: usize = 16;

/// Bytes that the allocator takes for a string or data of its own, besides its length.
const BLOCK: usize = 32;

/// A message of the format.
pub(super) trait Message: Default {
    /// Name of the message in errors.
    const NAME: &str;

    /// Reads the value of a field. Returns whether the message has a field of this number.
    fn read_field(&mut self, number: u32, token: Token, decoder: &mut Decoder<'_>) -> Result<bool>;

    /// Writes all fields that do not have their default.
    fn write_fields(&self, out: &mut Vec<u8>);
}

/// Content of a field: one value, an optional value, or several.
pub(super) trait Field {
    fn read(&mut self, token: Token, decoder: &mut Decoder<'_>) -> Result<()>;
    fn write(&self, number: u32, out: &mut Vec<u8>);
}

/// Wire type of values with a length prefix.
const BYTES: u8 = 2;

/// A value on the wire.
pub(super) trait Value: Default {
    /// Wire type of the value.
    const WIRE: u8 = BYTES;

    fn take(&mut self, token: Token, decoder: &mut Decoder<'_>) -> Result<()>;
    fn put(&self, out: &mut Vec<u8>);
}

/// Bulk data of a tensor: in memory, or at a position of the model's file, in which large data stays.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload(pub(crate) PayloadSource);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PayloadSource {
    Memory(Vec<u8>),
    File { offset: u64, length: u64 },
}

/// Decodes a file's model.
pub(super) struct Decoder<'a> {
    reader: Reader<'a>,
    limits: &'a Limits,
    /// Messages around the position, outermost first.
    within: Vec<&'static str>,
    /// Bytes of the decoded structure.
    structure: u64,
    fields: u64,
    nodes: u64,
    /// Whether everything is only counted: strings and data are skipped, and no list grows.
    counting: bool,
}

/// Decodes the message in the reader's bytes. It is counted as a whole before any of it is kept.
pub(super) fn decode<M: Message>(reader: Reader<'_>, limits: &Limits) -> Result<M> {
    let within = Vec::new();
    let mut decoder = Decoder { reader, limits, within, structure: 0, fields: 0, nodes: 0, counting: true };
    let decoded = decoder.pass(true).and_then(|_: M| decoder.pass(false));
    decoded.map_err(|error| decoder.described(M::NAME, error))
}

impl Decoder<'_> {
    /// Reads all bytes from the beginning.
    fn pass<M: Message>(&mut self, counting: bool) -> Result<M> {
        (self.structure, self.fields, self.nodes, self.counting) = (0, 0, 0, counting);
        self.reader.rewind();
        let mut message = M::default();
        self.charge(size_of::<M>())?;
        self.message(&mut message)?;
        Ok(message)
    }

    /// Returns the next `length` bytes; empty while counting.
    fn taken(&mut self, length: u64) -> Result<Vec<u8>> {
        self.charge(if length > 0 { BLOCK } else { 0 })?;
        match self.counting {
            true => self.reader.skip(length).map(|()| Vec::new()),
            false => self.reader.take(length),
        }
    }

    /// Reads a message that takes all of the enclosing data.
    fn message<M: Message>(&mut self, message: &mut M) -> Result<()> {
        let deepest = self.limits.depth.min(DEEPEST);
        if self.within.len() >= deepest {
            let what = "messages within messages";
            return Err(match deepest {
                DEEPEST => ImportError::limit(format!("more than {DEEPEST} {what}, which is not supported")),
                _ => exceeded(deepest as u64, what, "depth"),
            });
        }
        self.within.push(M::NAME);
        self.charge(BESIDE)?;
        if M::NAME == NodeProto::NAME {
            count(&mut self.nodes, 1, self.limits.nodes, "nodes", "nodes")?;
        }
        while !self.reader.is_at_end() {
            let (number, token) = self.reader.field()?;
            // Values and nodes are counted in 32 bits; there are fewer of them than fields.
            count(&mut self.fields, 1, self.limits.fields.min(u64::from(u32::MAX)), "fields", "fields")?;
            if let (false, Token::Bytes(length)) = (message.read_field(number, token, self)?, token) {
                self.reader.skip(length)?;
            }
        }
        self.within.pop();
        Ok(())
    }

    /// Reads a message within another. A repeated field adds to the first.
    pub(super) fn inner<M: Message>(&mut self, message: &mut M, token: Token) -> Result<()> {
        let Token::Bytes(length) = token else { return misencoded() };
        let end = self.reader.enter(length);
        self.message(message)?;
        self.reader.leave(end);
        Ok(())
    }

    /// Counts memory that is about to be allocated.
    fn charge(&mut self, bytes: usize) -> Result<()> {
        let most = self.limits.structure_bytes;
        count(&mut self.structure, bytes as u64, most, "B of decoded structure", "structure_bytes")
    }

    /// Adds to the error the place where it was found, within a `message`.
    fn described(&self, message: &str, error: ImportError) -> ImportError {
        const SHOWN: usize = 8;
        let shown: String = self.within.iter().take(SHOWN).map(|name| format!(" › {name}")).collect();
        let more = if self.within.len() > SHOWN { " › …" } else { "" };
        let place = format!("byte {} of the file{shown}{more}", self.reader.position());
        match error.kind() {
            ImportErrorKind::Io => error,
            ImportErrorKind::Malformed => error.map(|text| {
                format!(
                    "is not an ONNX {message}: {text}, at {place}; check that the file is complete, or export it \
                     again"
                )
            }),
            _ => error.map(|text| format!("cannot be read as an ONNX {message}: {text}, at {place}")),
        }
    }
}

fn count(counted: &mut u64, more: u64, limit: u64, what: &str, field: &'static str) -> Result<()> {
    *counted = counted.saturating_add(more);
    if *counted > limit { Err(exceeded(limit, what, field)) } else { Ok(()) }
}

fn exceeded(limit: u64, what: &str, field: &'static str) -> ImportError {
    ImportError::over(field, format_args!("more than {limit} {what}"))
}

fn misencoded<T>() -> Result<T> {
    Err(ImportError::malformed("a field is not encoded as the ONNX format requires"))
}

impl Value for i64 {
    const WIRE: u8 = 0;

    fn take(&mut self, token: Token, _: &mut Decoder<'_>) -> Result<()> {
        let Token::Varint(value) = token else { return misencoded() };
        *self = value as i64;
        Ok(())
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(*self as u64, out);
    }
}

impl Value for f32 {
    const WIRE: u8 = 5;

    fn take(&mut self, token: Token, _: &mut Decoder<'_>) -> Result<()> {
        let Token::Fixed32(bytes) = token else { return misencoded() };
        *self = f32::from_le_bytes(bytes);
        Ok(())
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl Value for String {
    fn take(&mut self, token: Token, decoder: &mut Decoder<'_>) -> Result<()> {
        let Token::Bytes(length) = token else { return misencoded() };
        if length > decoder.limits.name_bytes {
            return Err(exceeded(decoder.limits.name_bytes, "bytes in a name", "name_bytes"));
        }
        decoder.charge(length as usize)?;
        let text = String::from_utf8(decoder.taken(length)?);
        *self = text.map_err(|_| ImportError::malformed("a name is not valid UTF-8"))?;
        Ok(())
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }
}

/// Data, which cannot exceed the file's size.
impl Value for Vec<u8> {
    fn take(&mut self, token: Token, decoder: &mut Decoder<'_>) -> Result<()> {
        let Token::Bytes(length) = token else { return misencoded() };
        *self = decoder.taken(length)?;
        Ok(())
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self, out);
    }
}

impl Value for Payload {
    fn take(&mut self, token: Token, decoder: &mut Decoder<'_>) -> Result<()> {
        let Token::Bytes(length) = token else { return misencoded() };
        let offset = decoder.reader.position();
        self.0 = match decoder.reader.is_file() && length >= LARGE as u64 {
            true => decoder.reader.skip(length).map(|()| PayloadSource::File { offset, length })?,
            false => PayloadSource::Memory(decoder.taken(length)?),
        };
        Ok(())
    }

    fn put(&self, out: &mut Vec<u8>) {
        match &self.0 {
            PayloadSource::Memory(bytes) => put_bytes(bytes, out),
            PayloadSource::File { .. } => put_bytes(&[], out),
        }
    }
}

impl Payload {
    /// Returns the number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.0 {
            PayloadSource::Memory(bytes) => bytes.len() as u64,
            PayloadSource::File { length, .. } => *length,
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self(PayloadSource::Memory(Vec::new()))
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(PayloadSource::Memory(bytes))
    }
}

impl<M: Message> Value for Box<M> {
    fn take(&mut self, token: Token, decoder: &mut Decoder<'_>) -> Result<()> {
        decoder.charge(size_of::<M>())?;
        decoder.inner(&mut **self, token)
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_message(&**self, out);
    }
}

/// Writes a message after its length.
pub(super) fn put_message(message: &impl Message, out: &mut Vec<u8>) {
    let mut content = Vec::new();
    message.write_fields(&mut content);
    put_bytes(&content, out);
}

impl<V: Value> Field for V {
    fn read(&mut self, token: Token, decoder: &mut Decoder<'_>) -> Result<()> {
        self.take(token, decoder)
    }

    fn write(&self, number: u32, out: &mut Vec<u8>) {
        put_key(number, V::WIRE, out);
        self.put(out);
    }
}

impl<V: Value> Field for Option<V> {
    fn read(&mut self, token: Token, decoder: &mut Decoder<'_>) -> Result<()> {
        self.get_or_insert_default().take(token, decoder)
    }

    fn write(&self, number: u32, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.write(number, out));
    }
}

/// Numbers are written packed; unpacked numbers are read, too.
impl<V: Value> Field for Vec<V> {
    fn read(&mut self, token: Token, decoder: &mut Decoder<'_>) -> Result<()> {
        let mut add = |token, decoder: &mut Decoder<'_>| {
            decoder.charge(size_of::<V>())?;
            let mut value = V::default();
            value.take(token, decoder)?;
            if !decoder.counting {
                self.push(value);
            }
            Ok(())
        };
        match token {
            Token::Bytes(length) if V::WIRE != BYTES => {
                let end = decoder.reader.enter(length);
                while !decoder.reader.is_at_end() {
                    let token = decoder.reader.value(V::WIRE)?;
                    add(token, decoder)?;
                }
                decoder.reader.leave(end);
                Ok(())
            }
            token => add(token, decoder),
        }
    }

    fn write(&self, number: u32, out: &mut Vec<u8>) {
        if V::WIRE == BYTES {
            return self.iter().for_each(|value| value.write(number, out));
        }
        let mut packed = Vec::new();
        self.iter().for_each(|value| value.put(&mut packed));
        put_key(number, BYTES, out);
        put_bytes(&packed, out);
    }
}

fn put_key(number: u32, wire: u8, out: &mut Vec<u8>) {
    put_varint(u64::from(number << 3) | u64::from(wire), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttributeProto, GraphProto, ModelProto, TensorProto};

    fn read(bytes: &[u8], limits: &Limits) -> Result<ModelProto> {
        decode(Reader::new(bytes), limits)
    }

    fn refusal(bytes: &[u8], limits: &Limits) -> String {
        read(bytes, limits).expect_err("too much, or no model").to_string()
    }

    fn graph_of(nodes: Vec<NodeProto>) -> ModelProto {
        ModelProto::of(GraphProto { node: nodes, ..GraphProto::default() }, 17)
    }

    /// `depth` nested graphs.
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
        assert!(read(&nested(21), &Limits::default()).is_ok());
        assert!(refusal(&nested(22), &Limits::default()).contains("more than 64 messages within messages"));
        let any = Limits { depth: usize::MAX, ..Limits::default() };
        // Without optimisation, 512 messages take more stack than threads of tests have.
        let deep = move || {
            assert!(read(&nested(100), &any).is_ok());
            assert!(refusal(&nested(200), &any).contains("more than 512 messages within messages"));
        };
        let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(deep);
        thread.expect("a thread").join().expect("all of it holds");
    }

    #[test]
    fn many_small_things_are_refused_before_they_are_decoded() {
        let mut nodes = vec![0x3a];
        put_bytes(&[0x0a, 0x00].repeat(4_000_000), &mut nodes);
        let small = Limits { structure_bytes: 10_000, fields: 1_000, ..Limits::default() };
        let inputs = graph_of(vec![NodeProto { input: vec![String::new(); 500], ..NodeProto::default() }]);
        let long = graph_of(vec![NodeProto::of("Relu", &[&"x".repeat(1 << 20)], &["y"])]);
        for (bytes, limits, field) in [
            (nodes, Limits::default(), "nodes"),
            (inputs.to_bytes(), small, "structure_bytes"),
            ([0x28, 0x00].repeat(1_001), small, "fields"),
            (long.to_bytes(), Limits::default(), "name_bytes"),
        ] {
            let error = read(&bytes, &limits).expect_err(field);
            assert_eq!(error.kind(), ImportErrorKind::Limit);
            let name = error.limit_name();
            assert!(name == Some(field) || name == Some("structure_bytes"), "{error}");
            assert!(error.to_string().contains("; raise the limit `"), "{error}");
        }
    }

    #[test]
    fn lengths_are_not_believed() {
        for claimed in [1u64 << 30, 1 << 36, 1 << 46, 1 << 62, u64::MAX] {
            let mut tensor = vec![0x4a];
            put_varint(claimed, &mut tensor);
            let graph = [&[0x2a, tensor.len() as u8][..], &tensor].concat();
            let file = [&[0x3a, graph.len() as u8][..], &graph].concat();
            let error = refusal(&file, &Limits::default());
            assert!(error.contains(&format!("a field claims {claimed} bytes, but 0 are left, at byte")), "{error}");
            assert!(error.contains("of the file › model › graph › tensor; check that the file is complete"), "{error}");
        }
    }

    #[test]
    fn elements_that_are_not_packed_are_refused() {
        let unpacked = [0x25, 0, 0, 0x80, 0x3f];
        let file = [&[0x3a, 7, 0x2a, 5][..], &unpacked].concat();
        assert!(refusal(&file, &Limits::default()).contains("not encoded as the ONNX format requires"));
    }

    #[test]
    fn what_is_written_is_read() {
        let tensor = TensorProto::f32s("w", &[2], &[1.0, 2.0]);
        let node = NodeProto::of("Op", &["x", ""], &["y"])
            .named("n")
            .with(AttributeProto::tensor("t", tensor))
            .with(AttributeProto::floats("f", &[1.0]))
            .with(AttributeProto::strings("s", &["a", "b"]))
            .with(AttributeProto::ints("i", &[1, -1]));
        let model = graph_of(vec![node]);
        assert_eq!(read(&model.to_bytes(), &Limits::default()).expect("sound"), model);
    }
}
