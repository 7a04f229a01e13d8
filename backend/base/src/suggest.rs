//! Suggestions for misspelt names.

/// Least similarity of names for a suggestion (Jaro–Winkler, which weighs beginnings most).
///
/// In names of three or more letters, one wrong, missing or extra letter, or two swapped letters, leaves a similarity
/// above this.
const ALIKE: f64 = 0.7;

/// Suffix of an error about the unknown `name`: suggests the most similar known name, if one is similar enough.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let alike = |known: &'a str| (strsim::jaro_winkler(name, known), known);
    let nearest = known.into_iter().map(alike).max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((likeness, known)) if likeness > ALIKE => format!("; did you mean `{known}`?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_found_by_likeness() {
        let known = ["heft", "mite", "gpu0", "cpu0", "lookahead", "etf"];
        for (name, meant) in [("hetf", "heft"), ("mit", "mite"), ("gpu1", "gpu0"), ("lookahaed", "lookahead")] {
            assert_eq!(did_you_mean(name, known), format!("; did you mean `{meant}`?"));
        }
        assert_eq!((did_you_mean("best", known), did_you_mean("x", [])), (String::new(), String::new()));
    }
}
