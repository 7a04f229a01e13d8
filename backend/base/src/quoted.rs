//! Text from files, escaped for messages and tables.

use std::fmt::{self, Write};

/// Most characters of a name that are shown.
const SHOWN: usize = 120;

/// A quoted name from a file, cut to a readable length. Characters that a terminal acts on are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            None => write!(f, "`{}`", self.0.escape_debug()),
            Some((end, _)) => write!(f, "`{}…`", self.0[..end].escape_debug()),
        }
    }
}

/// A text that may hold names from files, on one line. Line breaks and other characters that a terminal acts on are
/// escaped.
#[derive(Clone, Copy, Debug)]
pub struct Line<T>(pub T);

impl<T: fmt::Display> fmt::Display for Line<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match acts(c) {
            true => write!(self.0, "{}", c.escape_default()),
            false => self.0.write_char(c),
        })
    }
}

/// Whether a terminal acts on a character.
///
/// These are control characters, and characters that turn the direction of writing, separate lines or have no width.
pub fn acts(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}');
    c.is_control() || turns || c == '\u{feff}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_lines_hold_nothing_that_a_terminal_acts_on() {
        let hostile = "a\nb\r\u{1b}[31m\u{9b}\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\t\u{7}\u{0}";
        for text in [Name(hostile).to_string(), Line(hostile).to_string()] {
            assert!(!text.contains(acts), "{text:?}");
            assert!(text.contains("a\\nb\\r\\u{1b}[31m"), "{text}");
        }
        assert_eq!(Line("plain ä 漢 `x`").to_string(), "plain ä 漢 `x`");
        assert!(Name(&"ä".repeat(10_000)).to_string().chars().count() == SHOWN + 3);
    }
}
