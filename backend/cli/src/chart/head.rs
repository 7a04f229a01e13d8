//! What stands above the panels of a chart: its title, how it was made, and what its colours mean.

use super::canvas::{Anchor, CHARACTER, Canvas, Rect};
use super::theme::COLOURS;

/// From a chart's edge to all that it shows.
pub(super) const MARGIN: f64 = 24.0;

/// Draws title and subtitle, lines of at most `width`; returns the last line's baseline.
pub(super) fn draw_title(canvas: &mut Canvas, title: &str, subtitle: &str, width: f64) -> f64 {
    canvas.text((MARGIN, 30.0), Anchor::Start, "ink title", title);
    let mut y = 30.0;
    for line in wrapped(subtitle, (width / CHARACTER) as usize) {
        y += 19.0;
        canvas.text((MARGIN, y), Anchor::Start, "quiet", &line);
    }
    y
}

/// A colour and what it means.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// Its number.
    pub(crate) colour: usize,
    pub(crate) name: String,
}

/// Draws each colour beside its name, and a dashed line beside the limit's.
pub(super) fn draw_key(canvas: &mut Canvas, samples: &[Sample], limit: Option<&str>, baseline: f64) {
    let mut x = MARGIN;
    for Sample { colour, name } in samples {
        let square = Rect { x, y: baseline - 9.0, width: 12.0, height: 10.0 };
        canvas.rect(square, 2.0, &format!("c{}", colour % COLOURS), None);
        canvas.text((x + 17.0, baseline), Anchor::Start, "ink", name);
        x += 17.0 + CHARACTER * (name.chars().count() as f64 + 3.0);
    }
    if let Some(limit) = limit {
        canvas.line((x, baseline - 4.0), (x + 22.0, baseline - 4.0), "limit");
        canvas.text((x + 28.0, baseline), Anchor::Start, "ink", limit);
    }
}

/// `text` in lines of at most `width` characters, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_subtitles_are_broken_between_words() {
        assert_eq!(wrapped("one two three four", 9), ["one two", "three", "four"]);
        assert!(wrapped("", 9).is_empty());
    }
}
