//! Conversion of sizes that are decimal fractions in a file to whole bytes.

use super::Refusal;

/// Most decimal places that are kept.
const PLACES: i32 = 9;
/// Greatest scaled size: up to here `u64` and `f64` differ by less than a part in 2^53.
const GREATEST: f64 = 4.6e18;

/// Returns the number of bytes per unit of size: the least power of ten that makes every size whole, up to nine decimal
/// places.
pub(super) fn bytes_a_unit(sizes: impl Iterator<Item = f64> + Clone) -> f64 {
    let greatest = sizes.clone().fold(0.0, f64::max);
    let mut scale = 1.0;
    for _ in 0..PLACES {
        let whole = |size: f64| (size * scale - (size * scale).round()).abs() <= 1e-9 * (size * scale).max(1.0);
        if greatest * scale * 10.0 > GREATEST || sizes.clone().all(whole) {
            break;
        }
        scale *= 10.0;
    }
    scale
}

/// Returns `size` in bytes, rounded.
///
/// # Errors
/// Returns an error for a size that is negative, not finite or greater than a `u64` can hold.
pub(super) fn bytes(size: f64, scale: f64, place: impl FnOnce() -> String) -> Result<u64, Refusal> {
    let scaled = (size * scale).round();
    // 2^64 itself is the first number that does not fit.
    if !(size >= 0.0 && scaled < u64::MAX as f64) {
        return Err(Refusal::Number { place: place(), value: size, expected: "a size below 2^64" });
    }
    Ok(scaled as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_make_sizes_whole() {
        let scale = |sizes: &[f64]| bytes_a_unit(sizes.iter().copied());
        assert_eq!(scale(&[]), 1.0);
        assert_eq!(scale(&[18.0, 0.0, 3e9]), 1.0);
        assert_eq!(scale(&[18.0, 0.5]), 10.0);
        assert_eq!(scale(&[0.663406983]), 1e9);
        assert_eq!(scale(&[0.1 + 0.2, 1e17]), 10.0, "no scale that would not fit");
        assert_eq!(scale(&[1.0 / 3.0]), 1e9, "rounded where it never ends");
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for size in [-1.0, f64::NAN, f64::INFINITY, 1e20] {
            assert!(matches!(bytes(size, 1.0, String::new), Err(Refusal::Number { .. })), "{size}");
        }
        assert_eq!(bytes(0.663406983, 1e9, String::new).unwrap(), 663_406_983);
    }
}
