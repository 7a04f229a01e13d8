//! A horizontal axis below a plot, with its grid.

use super::canvas::{Anchor, Canvas, Rect};
use super::{Format, Scale};

/// Height of the labels and the title below a plot.
pub(super) const AXIS_HEIGHT: f64 = 40.0;

/// Draws vertical grid lines through `plot` with their values below, and the axis' title under them. Call it before
/// drawing the data, so that the grid is behind.
pub(super) fn draw(canvas: &mut Canvas, plot: Rect, scale: &Scale, format: Format, title: &str) {
    // A label of about eight characters must fit between two ticks.
    for tick in scale.ticks((plot.width / 85.0) as usize) {
        let x = scale.at(tick);
        canvas.line((x, plot.y), (x, plot.bottom()), "grid");
        canvas.text((x, plot.bottom() + 15.0), Anchor::Middle, "quiet small", &format(tick));
    }
    canvas.line((plot.x, plot.y), (plot.x, plot.bottom()), "axis");
    canvas.text((plot.x + plot.width / 2.0, plot.bottom() + 31.0), Anchor::Middle, "quiet", title);
}
