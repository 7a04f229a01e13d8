//! A model file without the data of its large tensors: what is decoded, in memory of which only that is ever touched.
//!
//! The file is walked once, from one length to the next, to find the raw data of large initialisers. What lies between is read;
//! the data's places stay untouched pages of zeros. So positions are those of the file, and nothing has to be written anew. The
//! walk believes nothing: where the bytes are not what it looks for, the whole file is read, and decoding tells what is wrong.

use super::error::ImportErrorKind;
use super::limits::Limits;
use crate::constant::{ConstantFile, LARGE};
use anabranch_kernels::Buffer;
use prost::bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are read at a time while the file is walked.
const WINDOW: usize = 16 << 10;

/// The fields that lead to an initialiser's raw data: the graph, its initialiser, the data.
const PATH: [u64; 3] = [7, 5, 9];

/// The text of a model file, and the places that were left out.
pub(super) struct Text {
    pub(super) bytes: Bytes,
    file: Arc<ConstantFile>,
    /// Where data was left out.
    gaps: BTreeSet<u64>,
}

impl Text {
    /// Reads `file` as far as it is decoded.
    ///
    /// # Errors
    /// If it cannot be read, or there is not enough memory for it.
    pub(super) fn read(file: ConstantFile, limits: &Limits) -> Result<Self, ImportErrorKind> {
        let size = file.len();
        let memory = || ImportErrorKind::OutOfMemory { bytes: size };
        let mut text = usize::try_from(size).ok().and_then(Buffer::try_zeroed).ok_or_else(memory)?;
        let gaps = Walk::new(&file, limits.fields).gaps().unwrap_or_default();
        let mut start = 0;
        for gap in gaps.iter().cloned().chain(std::iter::once(size..size)) {
            let part = &mut text.bytes_mut()[start as usize..gap.start as usize];
            file.read_exact(start, part).map_err(ImportErrorKind::Io)?;
            start = gap.end;
        }
        let bytes = Bytes::from_owner(Owner(text));
        Ok(Self { bytes, file: Arc::new(file), gaps: gaps.iter().map(|gap| gap.start).collect() })
    }

    /// The file, and the place in it, of data in the text that was left out.
    pub(super) fn left_out(&self, data: &[u8]) -> Option<(&Arc<ConstantFile>, u64)> {
        let place = (data.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)? as u64;
        self.gaps.contains(&place).then_some((&self.file, place))
    }
}

/// A buffer as decoding wants it.
struct Owner(Buffer);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// A position in a file of which a window is in memory.
struct Walk<'a> {
    file: &'a ConstantFile,
    window: Vec<u8>,
    /// Where the window begins.
    first: u64,
    position: u64,
    /// Fields that may still be looked at.
    fields: u64,
    gaps: Vec<Range<u64>>,
}

impl<'a> Walk<'a> {
    fn new(file: &'a ConstantFile, fields: u64) -> Self {
        Self { file, window: Vec::new(), first: 0, position: 0, fields, gaps: Vec::new() }
    }

    /// Where the data of large initialisers is; `None` if the file is no sound protobuf.
    fn gaps(mut self) -> Option<Vec<Range<u64>>> {
        self.message(self.file.len(), &PATH)?;
        Some(self.gaps)
    }

    /// Walks the message that ends at `end`, and goes into the fields of `path`.
    fn message(&mut self, end: u64, path: &[u64]) -> Option<()> {
        while self.position < end {
            self.fields = self.fields.checked_sub(1)?;
            let key = self.varint()?;
            let length = match key & 7 {
                0 => self.varint().map(|_| 0)?,
                1 => 8,
                2 => self.varint()?,
                5 => 4,
                _ => return None,
            };
            let stop = self.position.checked_add(length).filter(|stop| *stop <= end)?;
            match path {
                [field, inner @ ..] if key == field << 3 | 2 => match inner {
                    [] if length >= LARGE as u64 => self.gaps.push(self.position..stop),
                    [] => {}
                    inner => self.message(stop, inner)?,
                },
                _ => {}
            }
            self.position = stop;
        }
        (self.position == end).then_some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let at = |walk: &Self| walk.position.checked_sub(walk.first).and_then(|at| usize::try_from(at).ok());
        let found = at(self).and_then(|at| self.window.get(at).copied());
        let byte = match found {
            Some(byte) => byte,
            None => {
                let left = self.file.len().checked_sub(self.position)?;
                self.window.resize(left.min(WINDOW as u64) as usize, 0);
                self.first = self.position;
                self.file.read_exact(self.first, &mut self.window).ok()?;
                *self.window.first()?
            }
        };
        self.position += 1;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::proto::{GraphProto, ModelProto, TensorProto};
    use std::io::Write;

    fn text(bytes: &[u8]) -> Text {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(bytes).expect("a small file");
        let file = ConstantFile::new(file, "m.onnx".into()).expect("it was just made");
        Text::read(file, &Limits::default()).expect("readable")
    }

    fn model() -> Vec<u8> {
        let tensor =
            |name: &str, fill: f32, elements: usize| TensorProto::f32s(name, &[elements as i64], &vec![fill; elements]);
        let initializer = vec![tensor("small", 1.0, 10), tensor("large", 2.0, LARGE), tensor("end", 3.0, LARGE / 4)];
        ModelProto::of(GraphProto { initializer, ..GraphProto::default() }, 17).to_bytes()
    }

    #[test]
    fn only_the_data_of_large_initialisers_is_left_out() {
        let bytes = model();
        let text = text(&bytes);
        assert_eq!((text.bytes.len(), text.gaps.len()), (bytes.len(), 2));
        let mut left_out = 0;
        for (at, (found, wanted)) in text.bytes.iter().zip(&bytes).enumerate() {
            left_out += usize::from(found != wanted);
            assert!(*found == 0 || found == wanted, "byte {at}");
        }
        // Two of the four bytes of 2.0 and 3.0 are zeros.
        assert!((LARGE..5 * LARGE).contains(&left_out), "{left_out}");
        for gap in &text.gaps {
            let (file, place) = text.left_out(&text.bytes[*gap as usize..]).expect("a gap");
            assert_eq!((place, file.len()), (*gap, bytes.len() as u64));
        }
        assert!(text.left_out(&text.bytes[1..]).is_none() && text.left_out(&bytes).is_none());
    }

    #[test]
    fn of_what_is_no_model_nothing_is_left_out() {
        let model = model();
        for cut in [1, 7, model.len() / 2, model.len() - 1] {
            let text = text(&model[..cut]);
            assert!(text.gaps.is_empty() && text.bytes[..] == model[..cut], "cut at {cut}");
        }
        assert!(text(&[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).gaps.is_empty());
    }
}
