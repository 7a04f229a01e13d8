//! Bytes of a call as the elements they hold.

use bytemuck::Pod;

/// The elements in `bytes`, whose address a buffer's alignment makes fit for any type. No bytes are no elements,
/// wherever they lie.
pub(crate) fn elements<T: Pod>(bytes: &[u8]) -> &[T] {
    if bytes.is_empty() { &[] } else { bytemuck::cast_slice(bytes) }
}

/// As [`elements`], to write.
pub(crate) fn elements_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    if bytes.is_empty() { &mut [] } else { bytemuck::cast_slice_mut(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_can_be_read_at_any_address() {
        let bytes = [0u8; 3];
        for start in 0..3 {
            assert!(elements::<f64>(&bytes[start..start]).is_empty());
        }
        assert_eq!(elements::<u8>(&bytes).len(), 3);
    }
}
