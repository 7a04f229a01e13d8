//! Head of a chart above its panels: title, subtitle, and key of the colours.

use super::canvas::{Anchor, CHARACTER, Canvas, Rect, fitted};
use super::theme::COLOURS;
use crate::text::wrapped;

/// Distance from a chart's edge to its content.
pub(super) const MARGIN: f64 = 24.0;

/// Width of charts that take the whole width of a page.
pub(super) const WIDTH: f64 = 1116.0;

/// Draws title, subtitle and key within a width: each colour beside its name, and a dashed line beside the limit's.
/// Returns the y coordinate of their end.
pub(super) fn draw(
    canvas: &mut Canvas,
    [title, subtitle]: [&str; 2],
    key: &[Sample],
    limit: Option<&str>,
    width: f64,
) -> f64 {
    canvas.text((MARGIN, 30.0), Anchor::Start, "ink title", &fitted(title, width * 0.7));
    let mut y = 30.0;
    for line in wrapped(subtitle, (width / CHARACTER) as usize) {
        y += 19.0;
        canvas.text((MARGIN, y), Anchor::Start, "quiet", &line);
    }
    if !key.is_empty() || limit.is_some() {
        y += 20.0;
        draw_key(canvas, key, limit, y);
    }
    y + 16.0
}

/// A colour and its meaning.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Number of the colour.
    pub colour: usize,
    /// Meaning of the colour.
    pub name: String,
}

fn draw_key(canvas: &mut Canvas, samples: &[Sample], limit: Option<&str>, baseline: f64) {
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
