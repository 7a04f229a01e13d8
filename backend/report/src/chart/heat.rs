//! A matrix of ratios as coloured cells: the greater a value, the darker its cell.

use super::Format;
use super::canvas::{Anchor, CHARACTER, Canvas, Rect, fitted};
use super::head::{self, MARGIN};

/// A chart of a matrix.
#[derive(Debug, Clone)]
pub struct HeatMap {
    /// Title of the chart.
    pub title: String,
    /// Line on how it was made.
    pub subtitle: String,
    /// Names of rows and columns, which are equal.
    pub names: Vec<String>,
    /// Values by row, then column; `None` if there is no value.
    pub values: Vec<Vec<Option<f64>>>,
    /// Format of values.
    pub format: Format,
}

const CELL: [f64; 2] = [74.0, 34.0];
/// Least width of the chart, for title and subtitle.
const LEAST_WIDTH: f64 = 560.0;
/// Greatest opacity of a cell, on which text stays readable.
const DARKEST: f64 = 0.75;

impl HeatMap {
    /// Returns the chart as an SVG file. A value of 1 or less has no colour, and the scale is logarithmic.
    pub fn svg(&self) -> String {
        let mut canvas = Canvas::default();
        let longest = self.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let gutter = (longest as f64 * CHARACTER + 12.0).min(200.0);
        let width = (2.0 * MARGIN + gutter + CELL[0] * self.names.len() as f64).max(LEAST_WIDTH);
        let top = head::draw(&mut canvas, [&self.title, &self.subtitle], &[], None, width - 2.0 * MARGIN) + 18.0;
        let most =
            self.values.iter().flatten().flatten().copied().filter(|value| value.is_finite()).fold(1.0, f64::max);
        let centre = |column: usize| MARGIN + gutter + CELL[0] * (column as f64 + 0.5);
        for (column, name) in self.names.iter().enumerate() {
            canvas.text((centre(column), top - 6.0), Anchor::Middle, "ink", &fitted(name, CELL[0]));
        }
        for (row, (name, values)) in self.names.iter().zip(&self.values).enumerate() {
            let y = top + CELL[1] * row as f64;
            let baseline = y + CELL[1] / 2.0 + 4.0;
            canvas.text((MARGIN + gutter - 8.0, baseline), Anchor::End, "ink", &fitted(name, gutter));
            for (column, value) in values.iter().enumerate().filter_map(|(column, value)| Some((column, (*value)?))) {
                let cell = Rect { x: centre(column) - CELL[0] / 2.0, y, width: CELL[0] - 2.0, height: CELL[1] - 2.0 };
                canvas.rects(&[cell], DARKEST * share(value, most), "c5");
                canvas.text((centre(column), baseline), Anchor::Middle, "ink", &(self.format)(value));
            }
        }
        let height = top + CELL[1] * self.names.len() as f64 + MARGIN;
        canvas.finish(width, height, &self.title, &self.subtitle)
    }
}

/// Returns the place of a value between 1 and `most` on a logarithmic scale, from 0 to 1.
fn share(value: f64, most: f64) -> f64 {
    if most > 1.0 { (value.max(1.0).ln() / most.ln()).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_a_cell_and_the_greatest_is_the_darkest() {
        let chart = HeatMap {
            title: "worst ratios".into(),
            subtitle: "rows against columns".into(),
            names: vec!["heft".into(), "<cp>".into()],
            values: vec![vec![None, Some(4.0)], vec![Some(0.5), None]],
            format: |value| format!("{value:.2}"),
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("class=\"c5\"").count(), 2);
        assert!(svg.contains(">4.00<") && svg.contains(">0.50<") && svg.contains("&lt;cp&gt;"), "{svg}");
        assert_eq!([share(4.0, 4.0), share(2.0, 4.0), share(0.5, 4.0), share(1.0, 1.0)], [1.0, 0.5, 0.0, 0.0]);
    }
}
