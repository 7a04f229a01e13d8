//! Protobuf's wire format: keys, variable-length integers, and lengths that are checked before they are believed.

/// Why bytes are not protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end within a field.
    #[error("the data ends within a field")]
    End,
    /// A variable-length integer of more than ten bytes, or above 2⁶⁴ − 1.
    #[error("an integer is too long")]
    Varint,
    /// A field number 0 or above 2²⁹ − 1.
    #[error("a field number is out of range")]
    FieldNumber,
    /// A wire type that does not exist, or the group that protobuf withdrew.
    #[error("the wire type {0} is unknown or withdrawn")]
    WireType(u8),
    /// A length that reaches beyond the enclosing data.
    #[error("a field claims {claimed} bytes where {left} are left")]
    Length {
        /// The bytes that the field claims.
        claimed: u64,
        /// The bytes that are there.
        left: u64,
    },
    /// A field of the right number in an encoding that it cannot have.
    #[error("a field is not encoded as the ONNX format says")]
    Encoding,
}

/// A field's value as far as the wire tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A variable-length integer.
    Varint,
    /// Four bytes.
    Fixed32,
    /// Eight bytes.
    Fixed64,
    /// This many bytes, which follow at the reader's position.
    Bytes(usize),
}

/// A position in bytes.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Moves `count` bytes on; `end` bounds the enclosing data.
    pub(crate) fn skip(&mut self, count: usize, end: usize) -> Result<(), WireError> {
        match self.position.checked_add(count) {
            Some(next) if next <= end.min(self.bytes.len()) => self.position = next,
            _ => return Err(WireError::End),
        }
        Ok(())
    }

    /// The next variable-length integer before `end`.
    pub(crate) fn varint(&mut self, end: usize) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes[..end.min(self.bytes.len())].get(self.position).ok_or(WireError::End)?;
            self.position += 1;
            if shift == 63 && byte > 1 {
                return Err(WireError::Varint);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Varint)
    }

    /// The next field before `end`: its number and value. The reader stands behind the value, except behind the
    /// length of [`Token::Bytes`], which is known to lie before `end`.
    pub(crate) fn field(&mut self, end: usize) -> Result<(u32, Token), WireError> {
        let key = self.varint(end)?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let number = number.ok_or(WireError::FieldNumber)?;
        let token = match (key & 7) as u8 {
            0 => self.varint(end).map(|_| Token::Varint)?,
            1 => self.skip(8, end).map(|()| Token::Fixed64)?,
            2 => Token::Bytes(self.length(end)?),
            5 => self.skip(4, end).map(|()| Token::Fixed32)?,
            other => return Err(WireError::WireType(other)),
        };
        Ok((number, token))
    }

    fn length(&mut self, end: usize) -> Result<usize, WireError> {
        let claimed = self.varint(end)?;
        let left = end - self.position;
        usize::try_from(claimed)
            .ok()
            .filter(|claimed| *claimed <= left)
            .ok_or(WireError::Length { claimed, left: left as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(bytes: &[u8]) -> Result<u64, WireError> {
        Reader::new(bytes).varint(bytes.len())
    }

    #[test]
    fn integers_have_at_most_ten_bytes() {
        assert_eq!(varint(&[0]), Ok(0));
        assert_eq!(varint(&[0xac, 0x02]), Ok(300));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Ok(u64::MAX));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), Err(WireError::Varint));
        assert_eq!(varint(&[0x80; 11]), Err(WireError::Varint));
        assert_eq!(varint(&[0x80; 3]), Err(WireError::End));
        assert_eq!(varint(&[]), Err(WireError::End));
    }

    #[test]
    fn lengths_stay_within_the_enclosing_data() {
        let field = |bytes: &[u8], end| Reader::new(bytes).field(end);
        assert_eq!(field(&[0x0a, 2, 7, 7], 4), Ok((1, Token::Bytes(2))));
        assert_eq!(field(&[0x0a, 2, 7, 7], 3), Err(WireError::Length { claimed: 2, left: 1 }));
        assert_eq!(field(&[0x02, 0], 2), Err(WireError::FieldNumber));
        assert_eq!(field(&[0x0b], 1), Err(WireError::WireType(3)));
        assert_eq!(field(&[0x0d, 0, 0, 0], 4), Err(WireError::End));
        assert_eq!(field(&[0x09, 0, 0, 0, 0, 0, 0, 0, 0], 9), Ok((1, Token::Fixed64)));
    }
}
