//! Protobuf's wire format: keys, variable-length integers, and lengths that are checked before use.

use crate::error::{ImportError, Result};
use anabranch_ir::constant::ConstantFile;

/// Bytes of a file that are in memory at a time.
const WINDOW: u64 = 64 << 10;

/// A field's value as far as the wire format shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A variable-length integer.
    Varint(u64),
    /// Four bytes.
    Fixed32([u8; 4]),
    /// Eight bytes; no supported field has this type.
    Fixed64,
    /// A number of bytes, which follow and lie within the enclosing data.
    Bytes(u64),
}

/// A position in the bytes of a message.
pub(crate) struct Reader<'a> {
    source: Source<'a>,
    position: u64,
    end: u64,
}

enum Source<'a> {
    Memory(&'a [u8]),
    /// A file, of which a window that starts at `first` was read.
    File {
        file: &'a ConstantFile,
        window: Vec<u8>,
        first: u64,
    },
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the beginning.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { source: Source::Memory(bytes), position: 0, end: bytes.len() as u64 }
    }

    /// Reads a file from the beginning, window by window.
    pub(crate) fn of_file(file: &'a ConstantFile) -> Self {
        Self { source: Source::File { file, window: Vec::new(), first: 0 }, position: 0, end: file.size() }
    }

    /// Returns to the beginning, after everything was read.
    pub(super) fn rewind(&mut self) {
        self.position = 0;
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.source, Source::File { .. })
    }

    /// Whether all of the enclosing data was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.position == self.end
    }

    /// Ends the data after `length` bytes, which lie within it. Returns the former end.
    pub(super) fn enter(&mut self, length: u64) -> u64 {
        std::mem::replace(&mut self.end, self.position + length)
    }

    /// Restores the end of the data from before [`enter`](Self::enter).
    pub(super) fn leave(&mut self, end: u64) {
        self.end = end;
    }

    pub(super) fn skip(&mut self, length: u64) -> Result<()> {
        match length <= self.end - self.position {
            true => self.position += length,
            false => return Err(ended()),
        }
        Ok(())
    }

    /// Returns the next `length` bytes.
    pub(super) fn take(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut taken = Vec::new();
        let room = usize::try_from(length).ok().and_then(|length| taken.try_reserve_exact(length).ok());
        room.ok_or_else(|| ImportError::limit(format!("takes {length} bytes, which exceeds the available memory")))?;
        let mut left = length;
        while left > 0 {
            let ahead = self.ahead()?;
            let part = &ahead[..left.min(ahead.len() as u64) as usize];
            taken.extend_from_slice(part);
            let read = part.len() as u64;
            self.position += read;
            left -= read;
        }
        Ok(taken)
    }

    /// Reads the next variable-length integer.
    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.ahead()?[0];
            self.position += 1;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ImportError::malformed("an integer is too long"))
    }

    /// Reads the next field: its number and value.
    pub(super) fn field(&mut self) -> Result<(u32, Token)> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let number = number.ok_or_else(|| ImportError::malformed("a field number is out of range"))?;
        Ok((number, self.value((key & 7) as u8)?))
    }

    /// Reads the next value of this wire type.
    pub(super) fn value(&mut self, wire: u8) -> Result<Token> {
        Ok(match wire {
            0 => Token::Varint(self.varint()?),
            1 => self.skip(8).map(|()| Token::Fixed64)?,
            2 => Token::Bytes(self.length()?),
            5 => {
                let mut bytes = [0; 4];
                for byte in &mut bytes {
                    *byte = self.ahead()?[0];
                    self.position += 1;
                }
                Token::Fixed32(bytes)
            }
            other => return Err(ImportError::malformed(format!("the wire type {other} is unknown or withdrawn"))),
        })
    }

    fn length(&mut self) -> Result<u64> {
        let (claimed, left) = (self.varint()?, self.end - self.position);
        match claimed <= left {
            true => Ok(claimed),
            false => Err(ImportError::malformed(format!("a field claims {claimed} bytes, but {left} are left"))),
        }
    }

    /// Returns the bytes in memory from the position on, within the enclosing data: at least one byte.
    fn ahead(&mut self) -> Result<&[u8]> {
        let left = self.end - self.position;
        if left == 0 {
            return Err(ended());
        }
        let ahead = match &mut self.source {
            Source::Memory(bytes) => &bytes[self.position as usize..],
            Source::File { file, window, first } => {
                if !(*first..*first + window.len() as u64).contains(&self.position) {
                    *first = self.position;
                    window.resize((file.size() - *first).min(WINDOW) as usize, 0);
                    file.read_exact(*first, window).map_err(ImportError::io)?;
                }
                &window[(self.position - *first) as usize..]
            }
        };
        Ok(&ahead[..left.min(ahead.len() as u64) as usize])
    }
}

fn ended() -> ImportError {
    ImportError::malformed("the data ends within a field")
}

/// Writes a variable-length integer.
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes bytes after their length.
pub(super) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_at_most_ten_bytes() {
        let varint = |bytes: &[u8]| Reader::new(bytes).varint().map_err(|error| error.to_string());
        for value in [0, 300, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            assert_eq!(varint(&bytes), Ok(value));
        }
        let long = |last| [&[0xff; 9][..], &[last]].concat();
        assert_eq!(varint(&long(1)), Ok(u64::MAX));
        for (bytes, text) in
            [(&long(2)[..], "too long"), (&[0x80; 11], "too long"), (&[0x80; 3], "ends"), (&[], "ends")]
        {
            assert!(varint(bytes).is_err_and(|error| error.contains(text)), "{bytes:?}");
        }
    }

    #[test]
    fn lengths_stay_within_the_enclosing_data() {
        let field = |bytes: &[u8]| Reader::new(bytes).field().map_err(|error| error.to_string());
        assert_eq!(field(&[0x0a, 2, 7, 7]), Ok((1, Token::Bytes(2))));
        assert_eq!(field(&[0x0d, 0, 0, 0x80, 0x3f]), Ok((1, Token::Fixed32([0, 0, 0x80, 0x3f]))));
        assert_eq!(field(&[0x09, 0, 0, 0, 0, 0, 0, 0, 0]), Ok((1, Token::Fixed64)));
        for (bytes, text) in [
            (&[0x0a, 2, 7][..], "claims 2 bytes, but 1 are left"),
            (&[0x02, 0], "field number"),
            (&[0x0b], "wire type 3"),
            (&[0x0d, 0, 0, 0], "ends within"),
        ] {
            assert!(field(bytes).is_err_and(|error| error.contains(text)), "{bytes:?}");
        }
    }
}
