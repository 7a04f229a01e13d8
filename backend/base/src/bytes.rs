//! Sizes in bytes as text, and the option `--memory DEVICE=BYTES`.
#![forbid(unsafe_code)]

use thiserror::Error;

/// Reason that a size or a memory override cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SizeError(String);

/// Reads a size such as `4096`, `512M`, `1.5 GiB` or `16GB`, in bytes; the case of units does not matter.
///
/// `K`, `M`, `G`, `T` and `KiB` … are powers of 1024, `KB` … powers of 1000 (the convention of the GNU tools). A
/// fraction of a byte is cut off.
pub fn parse_bytes(text: &str) -> Result<u64, SizeError> {
    let trimmed = text.trim();
    let unit_start = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(unit_start);
    let unit = unit.trim();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // `-1G` and `1e9` are numbers of another kind, not units.
    let is_other = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-');
    if whole.is_empty() || fraction.contains('.') || unit.contains(is_other) {
        let example = "write a number and a unit, as in 512M, 1.5GiB or 8000000000";
        return Err(SizeError(format!("`{text}` is not a size; {example}")));
    }
    let factor = unit_bytes(unit).ok_or_else(|| {
        SizeError(format!(
            "`{unit}` in `{text}` is not a unit; the units are B, K, M, G, T (powers of 1024), KiB … TiB and KB \
             … TB (powers of 1000)"
        ))
    })?;
    let too_large = || SizeError(format!("`{text}` is more than 2^64 - 1 bytes"));
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    whole
        .checked_mul(factor)
        .and_then(|bytes| bytes.checked_add(fraction_bytes(fraction, factor)))
        .ok_or_else(too_large)
}

/// Splits `DEVICE=BYTES` into the device's name and the bytes.
pub fn parse_memory_override(text: &str) -> Result<(String, u64), SizeError> {
    match text.split_once('=') {
        Some((device, size)) if !device.trim().is_empty() => Ok((device.trim().to_owned(), parse_bytes(size)?)),
        _ => Err(SizeError(format!("`{text}` does not name a device; write DEVICE=BYTES, as in gpu0=8GiB"))),
    }
}

/// Size for an error message, rounded and exact: `1.5 GiB (1610612736 bytes)`.
///
/// The exact number tells limits apart that round to the same text.
pub fn exact_bytes(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes} bytes") } else { format!("{} ({bytes} bytes)", format_bytes(bytes)) }
}

/// Size in its largest binary unit with at most one decimal: `48 KiB`, `23.5 GiB`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut power = (bytes.ilog2() / 10) as usize;
    let mut tenths = rounded_tenths(bytes, power);
    if tenths >= 10_240 && power < UNITS.len() {
        power += 1;
        tenths = rounded_tenths(bytes, power);
    }
    let unit = UNITS[power - 1];
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        tenth => format!("{}.{tenth} {unit}", tenths / 10),
    }
}

/// Tenths of 1024^`power` in `bytes`, rounded to nearest.
fn rounded_tenths(bytes: u64, power: usize) -> u128 {
    let unit = 1_u128 << (10 * power);
    (u128::from(bytes) * 10 + unit / 2) / unit
}

fn unit_bytes(unit: &str) -> Option<u64> {
    let lower = unit.to_ascii_lowercase();
    let (prefix, base) = match lower.as_str() {
        "" | "b" => return Some(1),
        text if text.len() == 1 => (text, 1024_u64),
        text if text.ends_with("ib") => (&text[..text.len() - 2], 1024),
        text if text.ends_with('b') => (&text[..text.len() - 1], 1000),
        _ => return None,
    };
    let power = match prefix {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    Some(base.pow(power))
}

/// Bytes of the decimal fraction 0.`digits` of a unit. Digits after the eighteenth cannot add a byte and are dropped.
fn fraction_bytes(digits: &str, factor: u64) -> u64 {
    let kept = &digits[..digits.len().min(18)];
    let numerator: u128 = kept.bytes().fold(0, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let bytes = numerator * u128::from(factor) / 10_u128.pow(kept.len() as u32);
    u64::try_from(bytes).unwrap_or(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        let table = [
            ("0", 0),
            ("4096", 4096),
            ("17 B", 17),
            ("1K", 1024),
            ("1k", 1024),
            ("1KiB", 1024),
            ("1KB", 1000),
            ("512M", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("1.5 gb", 1_500_000_000),
            (" 2T ", 2 << 40),
            ("0.0001K", 0),
            ("1.", 1),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn errors_tell_sizes_exactly() {
        assert_eq!((exact_bytes(1000), exact_bytes(1 << 30)), ("1000 bytes".into(), "1 GiB (1073741824 bytes)".into()));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        let table: [(&[&str], &str); 3] = [
            (&["", "G", ".5G", "1.2.3G", "-1", "-1GiB", "1e9", "1e400", "1 -G"], "is not a size; write"),
            (&["5 apples", "1GG", "1iB", "1E", "1é"], "is not a unit; the units are"),
            (&["18446744073709551616", "16777216T", "99999999999999999999999999"], "is more than 2^64 - 1 bytes"),
        ];
        for (texts, problem) in table {
            for text in texts {
                let error = parse_bytes(text).expect_err(text).to_string();
                assert!(error.contains(problem) && error.contains(text), "{error}");
            }
        }
    }

    #[test]
    fn an_override_names_a_device() {
        assert_eq!(parse_memory_override("gpu0=8GiB"), Ok(("gpu0".to_owned(), 8 << 30)));
        for (text, problem) in [
            ("8GiB", "not name a device"),
            ("=8GiB", "not name a device"),
            ("", "not name a device"),
            ("gpu0=", "not a size"),
        ] {
            let error = parse_memory_override(text).expect_err(text).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn sizes_are_written_with_their_units() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (48 << 10, "48 KiB"),
            (3 << 29, "1.5 GiB"),
            ((1 << 20) - 1, "1 MiB"),
            (25_276_510_208, "23.5 GiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(format_bytes(bytes), text);
        }
    }

    #[test]
    fn what_is_written_reads_back_within_its_precision() {
        arbtest::arbtest(|u| {
            let bytes: u64 = u.int_in_range(0..=1 << 53)?;
            let text = format_bytes(bytes);
            if let Ok(back) = parse_bytes(&text) {
                assert!(back.abs_diff(bytes) as f64 <= 0.05 * bytes as f64, "{bytes} {text} {back}");
            } else {
                assert!(text.ends_with("PiB"), "{text}");
            }
            Ok(())
        })
        .budget_ms(200);
    }
}
