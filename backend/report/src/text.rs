//! Formats numbers and names as text for terminals and charts, and escapes characters that a terminal would act on.

pub use anabranch_placement::count::count;
use anabranch_placement::quoted::{self, Line};
use std::borrow::Cow;
use std::path::Path;

/// Most columns of a line in a terminal.
pub const WIDTH: usize = 100;

/// Returns the columns of a line in this terminal, at most [`WIDTH`].
pub fn terminal_width() -> usize {
    terminal_size::terminal_size().map_or(WIDTH, |(columns, _)| usize::from(columns.0).min(WIDTH))
}

/// Returns `text`, cut to `width` characters with an ellipsis for the missing part.
pub fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Characters of a message that are shown at its beginning and at its end; names in a file may have thousands.
const SHOWN: [usize; 2] = [1200, 600];

/// Returns a text that is safe to print in a terminal. Characters that would move the cursor, change colours or turn
/// the direction of writing are escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c, safe| safe.extend(c.escape_default()))
}

/// Escapes characters in JSON that a terminal would act on, within its strings.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    // All of these characters have 16 bits.
    escaped(json, |c, safe| safe.push_str(&format!("\\u{:04x}", u32::from(c))))
}

/// Replaces characters that a terminal would act on.
fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) { escape(c, &mut safe) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// Whether a terminal would act on a character.
fn acts(c: char) -> bool {
    quoted::acts(c) && c != '\n'
}

/// Returns a message that is safe to print, on one line. If it is too long to read, its middle is left out. Line breaks
/// are escaped, because only names from files hold any.
pub fn message(text: &str) -> String {
    let (safe, [first, last]) = (Line(text).to_string(), SHOWN);
    let count = safe.chars().count();
    if count <= first + last {
        return safe;
    }
    let end = safe.chars().skip(count - last);
    safe.chars().take(first).chain(" … ".chars()).chain(end).collect()
}

/// Returns a number with this many digits after its point. A result of zero has no sign.
pub fn digits(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.chars().all(|c| matches!(c, '0' | '.')) => zero.to_owned(),
        _ => text,
    }
}

/// Returns an error in percent, `(predicted − measured) / measured`, with its sign: `+1.2 %`, `-3.4 %`, `0.0 %`.
pub fn error(percent: f64) -> String {
    let text = digits(percent, 1);
    let sign = if percent > 0.0 && text != "0.0" { "+" } else { "" };
    format!("{sign}{text} %")
}

/// Returns seconds with a unit and three digits: `1.23 ms`.
pub fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds.abs() {
        s if s < 5e-12 => return "0".to_owned(),
        s if s < 1e-6 => (seconds * 1e9, "ns"),
        s if s < 1e-3 => (seconds * 1e6, "µs"),
        s if s < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let digits = match value.abs() {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// Seconds of one column, with the unit of the greatest and as many decimals in each row: `12.300 ms` above `0.045 ms`.
pub fn durations(seconds: &[f64]) -> Vec<String> {
    /// Decimals at most.
    const MOST: i32 = 4;
    let sizes = || seconds.iter().map(|time| time.abs()).filter(|time| *time >= 5e-12);
    let (least, greatest) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    let (factor, unit) = match greatest {
        s if s < 1e-6 => (1e9, "ns"),
        s if s < 1e-3 => (1e6, "µs"),
        s if s < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    let first = (least.min(greatest) * factor).max(f64::MIN_POSITIVE).log10().floor() as i32;
    let decimals = (1 - first).clamp(0, MOST) as usize;
    let text = |time: &f64| if *time == 0.0 { "0".to_owned() } else { format!("{:.decimals$} {unit}", time * factor) };
    seconds.iter().map(text).collect()
}

/// Two times in seconds with one unit, where it is the same.
pub fn interval(low: f64, high: f64) -> String {
    let (low, high) = (duration(low), duration(high));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((figure, one)), Some((_, other))) if one == other => format!("{figure}–{high}"),
        _ => format!("{low}–{high}"),
    }
}

/// Returns a value with three digits and a letter for thousands, millions and so on: `12.3k`.
pub fn amount(value: f64) -> String {
    let (scaled, letter) = match value.abs() {
        0.0 => return "0".into(),
        v if !(1e-3..9.995e14).contains(&v) => return format!("{value:.2e}"),
        v if v < 9999.5 => (value, ""),
        v if v < 9.995e5 => (value / 1e3, "k"),
        v if v < 9.995e8 => (value / 1e6, "M"),
        v if v < 9.995e11 => (value / 1e9, "G"),
        _ => (value / 1e12, "T"),
    };
    let digits = match scaled.abs() {
        v if v < 0.09995 => 4,
        v if v < 0.9995 => 3,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}")
}

/// Splits `text` into lines of at most `width` characters, between words. Longer words are broken, too.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        for piece in word.chars().collect::<Vec<_>>().chunks(width) {
            match lines.last_mut() {
                Some(line) if line.chars().count() + piece.len() < width => {
                    line.push(' ');
                    line.extend(piece);
                }
                _ => lines.push(piece.iter().collect()),
            }
        }
    }
    lines
}

/// Returns the file name of a path.
pub fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_acts_on_a_terminal_and_messages_are_of_a_length_to_be_read() {
        let text = "a\u{1b}[31mred\r\u{7}\u{9b}2J\u{202e}gnp.\u{2066}\tend\nnext ä 漢";
        let safe = printable(text);
        assert_eq!(safe, "a\\u{1b}[31mred\\r\\u{7}\\u{9b}2J\\u{202e}gnp.\\u{2066}\\tend\nnext ä 漢");
        assert!(matches!(printable("plain\ntext"), Cow::Borrowed(_)));
        let long = message(&format!("node `{}` fails; do this", "ä".repeat(100_000)));
        assert!(long.starts_with("node `ää") && long.ends_with("ä` fails; do this"), "{long}");
        assert!(long.chars().count() < 2000 && message(text) == safe.replace('\n', "\\n"));
        assert_eq!(message("a: \nb\n  c\n d"), "a: \\nb\\n  c\\n d");
        let json = serde_json::to_string_pretty(&[text, "\u{200b}\u{feff}"]).expect("texts");
        let safe = printable_json(&json);
        assert!(!safe.contains(acts) && safe.contains("\\u009b2J\\u202e"), "{safe}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&safe).expect("JSON"), [text, "\u{200b}\u{feff}"]);
    }

    #[test]
    fn times_of_a_column_have_one_unit() {
        for (seconds, want) in [
            (&[0.0123, 4.5e-5, 0.0][..], &["12.300 ms", "0.045 ms", "0"][..]),
            (&[1.0, 2e-9], &["1.0000 s", "0.0000 s"]),
            (&[123.4], &["123 s"]),
            (&[-1.5e-6, 2.5e-6], &["-1.5 µs", "2.5 µs"]),
            (&[0.0, 0.0], &["0", "0"]),
            (&[], &[]),
        ] {
            assert_eq!(durations(seconds), want);
        }
    }

    #[test]
    fn durations_have_three_digits() {
        for (seconds, want) in [
            (-0.0, "0"),
            (-1e-15, "0"),
            (1.5e-7, "150 ns"),
            (1.234e-3, "1.23 ms"),
            (0.0999999, "100 ms"),
            (12.34, "12.3 s"),
        ] {
            assert_eq!(duration(seconds), want);
        }
        assert_eq!(interval(1.2e-3, 1.5e-3), "1.20–1.50 ms");
        assert_eq!(interval(0.5, 1.5), "500 ms–1.50 s");
    }

    #[test]
    fn errors_have_their_sign_and_nothing_has_none() {
        let cases = [(1.24, "+1.2 %"), (-3.0, "-3.0 %"), (0.01, "0.0 %"), (-0.04, "0.0 %"), (-0.0, "0.0 %")];
        for (percent, text) in cases {
            assert_eq!(error(percent), text);
        }
        assert_eq!((digits(-0.4, 0), digits(-0.6, 0)), ("0".into(), "-1".into()));
    }

    #[test]
    fn amounts_have_three_digits() {
        let cases = [(0.0, "0"), (65.002, "65"), (143.1, "143"), (9.87, "9.87"), (12345.0, "12.3k"), (2e6, "2M")];
        for (value, text) in cases {
            assert_eq!(amount(value), text);
        }
        assert_eq!((amount(0.05), amount(2102.08), amount(1e-5)), ("0.05".into(), "2102".into(), "1.00e-5".into()));
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        assert_eq!(wrapped("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("a verylongword b", 5), ["a", "veryl", "ongwo", "rd b"]);
        assert!(wrapped("", 9).is_empty());
    }
}
