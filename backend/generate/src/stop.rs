//! Texts that end a generation, found in a stream: what may be their beginning is held back.

/// Looks for stop texts in pieces of text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stops {
    texts: Vec<String>,
    /// The end of the text so far that may begin a stop text.
    held: String,
}

impl Stops {
    /// Looks for these texts; empty ones are passed over.
    pub(crate) fn new(texts: &[String]) -> Self {
        Self { texts: texts.iter().filter(|text| !text.is_empty()).cloned().collect(), held: String::new() }
    }

    /// Adds a piece. Returns the text that belongs to no stop text, and whether one was found; the text then ends
    /// before it.
    pub(crate) fn add(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        let first = self.texts.iter().filter_map(|text| self.held.find(text.as_str())).min();
        if let Some(at) = first {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let begins = |at: &usize| self.texts.iter().any(|text| text.starts_with(&self.held[*at..]));
        let at = self.held.char_indices().map(|(at, _)| at).find(begins).unwrap_or(self.held.len());
        let rest = self.held.split_off(at);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The text that was held back, at the end.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that leaves a stream of these pieces, and whether it was stopped.
    fn streamed(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut all = Stops::new(&stops.iter().map(ToString::to_string).collect::<Vec<_>>());
        let mut text = String::new();
        for piece in pieces {
            let (more, stopped) = all.add(piece);
            text += &more;
            if stopped {
                return (text, true);
            }
        }
        (text + &all.finish(), false)
    }

    #[test]
    fn a_text_ends_before_the_first_stop_however_it_is_cut_into_pieces() {
        arbtest::arbtest(|u| {
            let letters = |u: &mut arbtest::arbitrary::Unstructured<'_>, most| -> arbtest::arbitrary::Result<String> {
                let count = u.int_in_range(0..=most)?;
                (0..count).map(|_| u.choose(&['a', 'b', 'é']).copied()).collect()
            };
            let stops = [letters(u, 3)?, letters(u, 3)?];
            let pieces = (0..5).map(|_| letters(u, 4)).collect::<Result<Vec<_>, _>>()?;
            let whole = pieces.concat();
            let first = stops.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| whole.find(stop.as_str())).min();
            let [one, two] = stops.each_ref().map(String::as_str);
            let pieces: Vec<_> = pieces.iter().map(String::as_str).collect();
            let (text, stopped) = streamed(&[one, two], &pieces);
            assert_eq!(stopped, first.is_some());
            // A stop that ends earlier may begin later.
            let ends = |stop: &&str| !stop.is_empty() && whole[text.len()..].starts_with(*stop);
            assert!(whole.starts_with(&text) && stopped == [one, two].iter().any(ends), "{text} of {whole}");
            assert!([one, two].iter().all(|stop| stop.is_empty() || !text.contains(stop)));
            if !stopped {
                assert_eq!(text, whole);
            }
            Ok(())
        });
    }

    #[test]
    fn what_may_begin_a_stop_is_held_back() {
        let mut stops = Stops::new(&["END".to_owned()]);
        assert_eq!(stops.add("the E"), ("the ".to_owned(), false));
        assert_eq!(stops.add("N"), (String::new(), false));
        assert_eq!(stops.add("T E"), ("ENT ".to_owned(), false));
        assert_eq!(stops.add("ND."), (String::new(), true));
    }
}
