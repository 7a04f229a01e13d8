//! Selects the functions of `math.wgsl` that a shader calls, so that no pipeline compiles more than it runs.

use std::collections::BTreeSet;

const MATH: &str = include_str!("math.wgsl");

/// Returns the text of all functions of the library that `source` calls, directly or through each other.
pub(crate) fn needed_by(source: &str) -> String {
    let functions: Vec<_> = functions().collect();
    let mut needed = BTreeSet::new();
    let mut texts = vec![source];
    while let Some(text) = texts.pop() {
        for (index, (name, body)) in functions.iter().enumerate() {
            if calls(text, name) && needed.insert(index) {
                texts.push(body);
            }
        }
    }
    needed.into_iter().map(|index| functions[index].1).collect()
}

/// Returns each function's name and text. A function begins with `fn ` and ends with `}` at the start of a line.
fn functions() -> impl Iterator<Item = (&'static str, &'static str)> {
    MATH.split_inclusive("\n}\n").filter_map(|part| {
        let text = &part[part.find("\nfn ")? + 1..];
        Some((&text[3..text.find('(')?], text))
    })
}

/// Whether `text` has `name(` without a longer name around it, except in the definition of the function itself.
fn calls(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let whole = !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        whole && text[at + name.len()..].starts_with('(') && !text[..at].ends_with("fn ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_called_comes_along() {
        let text = needed_by("let y = sigmoid(x);");
        assert!(text.contains("fn sigmoid(") && text.contains("fn exponential("), "{text}");
        assert!(!text.contains("fn sine("), "{text}");
        assert_eq!(needed_by("let y = my_sigmoid(x) + exp(x);"), "");
    }

    #[test]
    fn the_library_has_no_name_twice() {
        let names: Vec<_> = functions().map(|(name, _)| name).collect();
        assert!(names.len() > 20);
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len());
    }
}
