//! Units of a problem's time, in words.

use crate::text::{amount, duration};
use anabranch_placement::quoted::Line;

/// Returns the format of times, and the name of their axis: seconds with their unit, other times as numbers.
pub fn time_format(unit: Option<&str>) -> (fn(f64) -> String, String) {
    match unit {
        Some("s") => (duration, "time".into()),
        Some(unit) => (amount, format!("time ({})", Line(unit))),
        None => (amount, "time (time units)".into()),
    }
}

/// Returns a time with its unit, for use without an axis that names it.
pub fn with_unit(unit: Option<&str>, time: f64) -> String {
    let (format, _) = time_format(unit);
    match unit {
        Some("s") => format(time),
        unit => format!("{} {}", format(time), Line(unit.unwrap_or("time units"))),
    }
}

/// Returns the length of a unit of time in nanoseconds, if it is known.
pub fn nanoseconds(unit: Option<&str>) -> Option<f64> {
    match unit? {
        "s" => Some(1e9),
        "ms" => Some(1e6),
        // The micro sign, and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1e3),
        "ns" => Some(1.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_time_are_known_or_none() {
        let of = |unit| nanoseconds(Some(unit));
        assert_eq!([of("s"), of("ms"), of("us"), of("ns")], [1e9, 1e6, 1e3, 1.0].map(Some));
        assert_eq!([of("\u{b5}s"), of("\u{3bc}s")], [Some(1e3); 2]);
        assert_eq!((of("fortnights"), nanoseconds(None)), (None, None));
        assert_eq!((with_unit(None, 3.0), with_unit(Some("ms"), 3.0)), ("3 time units".into(), "3 ms".into()));
    }
}
