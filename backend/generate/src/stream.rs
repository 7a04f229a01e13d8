//! Text of tokens as they come: only whole characters, and the same text as that of all tokens together.

use super::vocabulary::Vocabulary;

/// Tokens that one character takes at most; longer ones are no UTF-8, and are shown as replacement characters.
const LONGEST: usize = 16;

/// Turns tokens into text one by one.
///
/// A token's text may depend on the one before it, so that the tokens of the piece before are decoded along with new
/// ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// Tokens whose text has left, and those whose text has not.
    ids: Vec<u32>,
    /// Number of them that have left.
    done: usize,
}

impl Stream {
    /// The text that a token completes; often none of a character of several tokens.
    pub(crate) fn add(&mut self, vocabulary: &Vocabulary, id: u32) -> String {
        self.ids.push(id);
        let waits = self.ids.len() - self.done < LONGEST;
        self.complete(vocabulary, waits)
    }

    /// The text that is left, with replacement characters for what is no UTF-8.
    pub(crate) fn finish(&mut self, vocabulary: &Vocabulary) -> String {
        self.complete(vocabulary, false)
    }

    fn complete(&mut self, vocabulary: &Vocabulary, waits: bool) -> String {
        let before = vocabulary.decode(&self.ids[..self.done]);
        let whole = vocabulary.decode(&self.ids);
        if waits && whole.ends_with(char::REPLACEMENT_CHARACTER) {
            return String::new();
        }
        let new = whole.get(before.len()..).unwrap_or_default().to_owned();
        if new.is_empty() && waits {
            return new;
        }
        self.ids.drain(..self.done);
        self.done = self.ids.len();
        new
    }
}
