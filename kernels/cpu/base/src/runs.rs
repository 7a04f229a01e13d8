//! Copies of short runs of bytes without a call: a call of `memcpy` takes longer than they do.

/// Bytes up to which a run is short.
const SHORT: usize = 64;

/// Copies as many bytes as `to` has.
///
/// # Panics
/// If `from` has another length.
#[inline(always)]
pub fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "a run has one length");
    match to.len() {
        SHORT.. => to.copy_from_slice(from),
        32.. => ends::<32>(from, to),
        16.. => ends::<16>(from, to),
        8.. => ends::<8>(from, to),
        4.. => ends::<4>(from, to),
        _ => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
    }
}

/// Copies the first and the last bytes of a run, which overlap.
#[inline(always)]
fn ends<const N: usize>(from: &[u8], to: &mut [u8]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        to.first_chunk_mut::<N>().into_iter().for_each(|to| *to = *first);
        to.last_chunk_mut::<N>().into_iter().for_each(|to| *to = *last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_every_length_are_copied() {
        for length in 0..200 {
            let from: Vec<u8> = (0..length as u8).collect();
            let mut to = vec![255; length + 2];
            copy(&from, &mut to[1..=length]);
            assert_eq!(to[1..=length], from);
            assert_eq!([to[0], to[length + 1]], [255; 2], "{length}");
        }
    }
}
