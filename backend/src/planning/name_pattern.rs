//! Patterns over node names, as shells have them: `*` stands for any text, `?` for one character.

/// Whether the whole of `name` matches `pattern`. O(pattern × name).
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where to go on from when the text after the last star does not fit: the star, and how much it has swallowed.
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, swallowed)) => {
                    star = Some((at, swallowed + 1));
                    p = at + 1;
                    n = swallowed + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
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
