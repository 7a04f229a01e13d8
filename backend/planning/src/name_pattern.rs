//! Patterns over node names, as in shells: `*` stands for any text, `?` for one character.

/// Whether the whole of `name` matches `pattern`. O(pattern × name).
pub fn matches(pattern: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    // Marks the lengths of the name's prefixes that match the part of the pattern read so far.
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for wanted in pattern.chars() {
        if wanted == '*' {
            let shortest = reached.iter().position(|reached| *reached).unwrap_or(reached.len());
            reached[shortest..].fill(true);
        } else {
            let longer = |(reached, found): (&bool, &char)| *reached && (wanted == '?' || wanted == *found);
            reached = std::iter::once(false).chain(reached.iter().zip(&name).map(longer)).collect();
        }
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, want) in [
            ("conv", "conv", true),
            ("conv", "conv1", false),
            ("conv*", "conv1", true),
            ("*conv*", "/layer/conv/1", true),
            ("/layer?/*/relu", "/layer1/a/b/relu", true),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
            ("?", "", false),
            ("**", "", true),
            ("é?", "éa", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} on {name}");
        }
    }
}
