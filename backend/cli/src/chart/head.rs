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

/// Draws the colour of each series beside its name; returns where the next sample would begin.
pub(super) fn draw_key(canvas: &mut Canvas, series: &[String], baseline: f64) -> f64 {
    let mut x = MARGIN;
    for (number, name) in series.iter().enumerate() {
        let sample = Rect { x, y: baseline - 9.0, width: 12.0, height: 10.0 };
        canvas.rect(sample, 2.0, &format!("c{}", number % COLOURS), None);
        canvas.text((x + 17.0, baseline), Anchor::Start, "ink", name);
        x += 17.0 + CHARACTER * (name.chars().count() as f64 + 3.0);
    }
    x
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
