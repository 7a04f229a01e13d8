//! Views of a call's bytes as elements.

use bytemuck::Pod;

/// Returns the elements in `bytes`, whose address is aligned for any type because it is a buffer's. Empty `bytes` may
/// lie anywhere and give no elements.
pub fn elements<T: Pod>(bytes: &[u8]) -> &[T] {
    if bytes.is_empty() { &[] } else { bytemuck::cast_slice(bytes) }
}

/// Returns the elements in `bytes` for writing, as [`elements`] does.
pub fn elements_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
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
