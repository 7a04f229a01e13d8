//! Numbers with their nouns: `1 node`, `2 nodes`.
#![forbid(unsafe_code)]

use std::fmt::Display;

/// Returns a number with its noun, which is given in the singular: `1 node`, `2 nodes`, `0 batches`.
pub fn count(number: impl Display + PartialEq + From<u8>, noun: &str) -> String {
    if number == 1.into() { format!("{number} {noun}") } else { format!("{number} {}", plural(noun)) }
}

/// Returns the regular plural of a noun.
fn plural(noun: &str) -> String {
    let stem = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match stem {
        Some(stem) => format!("{stem}ies"),
        None if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_has_the_singular_and_all_else_the_plural() {
        assert_eq!([0usize, 1, 2].map(|number| count(number, "node")), ["0 nodes", "1 node", "2 nodes"]);
        let cases = ["batch", "process", "box", "entry", "memory", "array", "hardware thread"];
        let plurals = ["batches", "processes", "boxes", "entries", "memories", "arrays", "hardware threads"];
        assert_eq!(cases.map(|noun| count(7u32, noun)), plurals.map(|noun| format!("7 {noun}")));
        assert_eq!((count(1.0, "time"), count(1.5, "time")), ("1 time".into(), "1.5 times".into()));
    }
}
