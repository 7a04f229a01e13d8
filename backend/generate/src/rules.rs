//! Tokens that a configuration forces or forbids, by their positions in a text.

/// Forced and forbidden tokens of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Tokens of a text from position 1 on; `None` leaves the choice to the model.
    pub forced: Vec<Option<u32>>,
    /// Tokens of which the most probable one is at position 1 if `forced` leaves it open; empty for all tokens.
    pub languages: Vec<u32>,
    /// Tokens that never occur in an answer.
    pub suppressed: Vec<u32>,
    /// Tokens that an answer does not begin with.
    pub suppressed_first: Vec<u32>,
    /// The last token of a text that has the greatest length.
    pub last: Option<u32>,
}

impl Rules {
    /// Returns the tokens that a text begins with before the model chooses one.
    pub(crate) fn begin(&self, start: u32) -> Vec<u32> {
        [start].into_iter().chain(self.forced.iter().map_while(|token| *token)).collect()
    }

    /// Whether the model chooses a token before other forced ones.
    pub(crate) fn is_open(&self) -> bool {
        self.forced.contains(&None)
    }

    /// Returns all tokens that may be chosen because of these rules.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &u32> {
        self.forced.iter().flatten().chain(&self.languages).chain(&self.last)
    }

    /// Gives forbidden tokens of a position a logit of −∞. `prompt` is the number of tokens before the answer, and
    /// `most` the greatest length of the text.
    pub(crate) fn apply(&self, position: usize, prompt: usize, most: usize, logits: &mut [f32]) {
        let forced = position.checked_sub(1).and_then(|at| self.forced.get(at)).copied();
        let last = self.last.filter(|_| position + 1 == most);
        if let Some(token) = forced.flatten().or(last) {
            logits.fill(f32::NEG_INFINITY);
            logits.get_mut(token as usize).into_iter().for_each(|logit| *logit = 0.0);
            return;
        }
        if position == 1 && forced.is_some() && !self.languages.is_empty() {
            let of = |token: &u32| Some((*token as usize, *logits.get(*token as usize)?));
            let best =
                self.languages.iter().filter_map(of).reduce(|best, next| if next.1 > best.1 { next } else { best });
            // A logit that is no number stays, and is an error.
            if let Some((token, logit)) = best.filter(|_| !logits.iter().any(|logit| logit.is_nan())) {
                logits.fill(f32::NEG_INFINITY);
                logits[token] = logit;
            }
            return;
        }
        let is_first = position == prompt.max(1 + self.forced.len());
        let first = self.suppressed_first.iter().filter(|_| is_first);
        for token in self.suppressed.iter().chain(first) {
            logits.get_mut(*token as usize).into_iter().for_each(|logit| *logit = f32::NEG_INFINITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_has_the_tokens_that_the_rules_allow() {
        let rules = Rules {
            forced: vec![None, Some(4)],
            languages: vec![2, 3],
            suppressed: vec![1, 900],
            suppressed_first: vec![5],
            last: Some(6),
        };
        assert_eq!((rules.begin(0), rules.is_open()), (vec![0], true));
        for (position, prompt, want) in [
            (1, 1, &[3][..]),
            (2, 1, &[4]),
            (3, 1, &[0, 2, 3, 4, 6, 7]),
            (3, 2, &[0, 2, 3, 4, 6, 7]),
            (4, 1, &[0, 2, 3, 4, 5, 6, 7]),
            (4, 4, &[0, 2, 3, 4, 6, 7]),
            (9, 1, &[6]),
        ] {
            let mut logits = [-1.0; 8];
            logits[3] = -0.5;
            rules.apply(position, prompt, 10, &mut logits);
            let allowed: Vec<usize> = (0..8).filter(|at| logits[*at] > f32::NEG_INFINITY).collect();
            assert_eq!(allowed, want, "position {position} after a prompt of {prompt}");
        }
        assert_eq!(Rules { forced: vec![Some(3), Some(4)], ..Rules::default() }.begin(0), [0, 3, 4]);
    }
}
