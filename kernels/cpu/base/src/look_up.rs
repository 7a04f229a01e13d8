//! Values of bytes from a table of all 256.

#[cfg(target_arch = "x86_64")]
use crate::features::has;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Number of bytes.
pub const BYTES: usize = 256;

/// Writes the value of each byte. O(bytes).
///
/// # Panics
/// If there are not as many results as bytes.
pub fn look_up_bytes(values: &[u8; BYTES], bytes: &[u8], out: &mut [u8]) {
    assert_eq!(bytes.len(), out.len(), "a result for each byte");
    #[cfg(target_arch = "x86_64")]
    if has!("avx512f", "avx512bw", "avx512vbmi") {
        // SAFETY: the processor has the features; the lengths are the same.
        return unsafe { permuted(values, bytes, out) };
    }
    out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = values[usize::from(*byte)]);
}

/// Looks up 64 bytes at once: those below 128 in two registers, the others in two more.
///
/// # Safety
/// The processor has the features, and there are as many results as bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn permuted(values: &[u8; BYTES], bytes: &[u8], out: &mut [u8]) {
    const WIDE: usize = 64;
    // SAFETY: loads of values are within the table; loads and stores of elements are of those that exist.
    unsafe {
        let table = |at: usize| _mm512_loadu_si512(values.as_ptr().add(WIDE * at).cast());
        let (a, b, c, d) = (table(0), table(1), table(2), table(3));
        let of = |bytes: __m512i| {
            let (low, high) = (_mm512_permutex2var_epi8(a, bytes, b), _mm512_permutex2var_epi8(c, bytes, d));
            _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(bytes), high)
        };
        let whole = bytes.len() / WIDE * WIDE;
        for at in (0..whole).step_by(WIDE) {
            let made = of(_mm512_loadu_si512(bytes.as_ptr().add(at).cast()));
            _mm512_storeu_si512(out.as_mut_ptr().add(at).cast(), made);
        }
        if whole < bytes.len() {
            let mask = u64::MAX >> (WIDE - (bytes.len() - whole));
            let made = of(_mm512_maskz_loadu_epi8(mask, bytes.as_ptr().add(whole).cast()));
            _mm512_mask_storeu_epi8(out.as_mut_ptr().add(whole).cast(), mask, made);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_its_value() {
        let values: [u8; BYTES] = std::array::from_fn(|i| (i * 167 + 13 * (i / 7)) as u8);
        for count in [0, 1, 63, 64, 65, 127, 128, 129, 1000] {
            let bytes: Vec<u8> = (0..count).map(|i| (i * 89 + i / 256) as u8).collect();
            let mut out = vec![0; count];
            look_up_bytes(&values, &bytes, &mut out);
            assert!(out.iter().zip(&bytes).all(|(out, byte)| *out == values[usize::from(*byte)]), "{count} bytes");
        }
    }
}
