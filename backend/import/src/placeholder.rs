//! Names of dimensions that exporters write for unknown sizes: equal names do not imply equal sizes.

/// Words, in lower case, that stand for any size and are not names.
const NOTHING: [&str; 6] = ["none", "null", "nil", "nan", "n/a", "undefined"];

/// Words, in lower case, that people and exporters choose for "some size".
const ANY: [&str; 9] = ["unk", "unknown", "dynamic", "dyn", "dynamicdimension", "any", "variable", "var", "dim"];

/// Whether a name has no meaning: `?`, `*`, `-1`, `None`, or blanks. Such a dimension is unknown.
pub(super) fn is_placeholder(name: &str) -> bool {
    let name = name.trim();
    let says_nothing = !name.chars().any(char::is_alphanumeric);
    let is_negative = name.strip_prefix('-').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    says_nothing || is_negative || NOTHING.contains(&&*name.to_ascii_lowercase())
}

/// Whether dimensions of this name may differ.
///
/// These names are words such as `dynamic`, words that exporters count (`unk__12`), and expressions (`past_sequence +
/// sequence`). Some exporters write an expression for inputs although it does not hold for all of them.
pub fn is_loose(name: &str) -> bool {
    let is_expression = name.contains(['+', '*', '/', '(', ')', '%']) || name.contains(" - ");
    let word = name.rsplit_once("p2o.").map_or(name, |(_, word)| word).to_ascii_lowercase();
    let word = word.trim_matches(|c: char| c.is_ascii_digit() || "_.:-<>?".contains(c));
    is_expression || ANY.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_say_nothing_and_loose_names_little() {
        for name in ["", " ", "?", "??", "*", "-", "_", "...", "-1", "-2", " -1 ", "None", "none", "NULL", "nan", "N/A"]
        {
            assert!(is_placeholder(name), "{name:?}");
        }
        let loose = [
            "unk__12",
            "unk",
            "Unknown",
            "dynamic",
            "dynamic_1",
            "DynamicDimension.0",
            "p2o.DynamicDimension.3",
            "past_sequence + sequence",
            "sequence_length/2",
            "dim_0",
        ];
        for name in loose {
            assert!(is_loose(name) && !is_placeholder(name), "{name:?}");
        }
        for name in [
            "N",
            "batch",
            "batch_size",
            "s0",
            "a-1",
            "1",
            "224",
            "H",
            "batch size",
            "sequence",
            "nonempty",
            "dimension",
            "bs1",
        ] {
            assert!(!is_loose(name) && !is_placeholder(name), "{name:?}");
        }
    }
}
