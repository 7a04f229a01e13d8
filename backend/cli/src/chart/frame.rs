//! What charts share: title and key above, and of bars and boxes the panels, two in a row, each with an axis and named groups.

use super::axis::{self, AXIS_HEIGHT};
use super::canvas::{Anchor, CHARACTER, Canvas, Rect, fitted};
use super::theme::COLOURS;
use super::{Format, Scale};

/// From a chart's edge to all that it shows.
pub(super) const MARGIN: f64 = 24.0;

/// What a chart of panels says of the whole.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) title: String,
    /// How it was made, in a line.
    pub(crate) subtitle: String,
    /// What the values are, with their unit.
    pub(crate) value: String,
    /// How values are written.
    pub(crate) format: Format,
    /// Names of the series, which are told apart by colour.
    pub(crate) series: Vec<String>,
    /// What the limit of the panels is, if they have one.
    pub(crate) limit: Option<String>,
}

/// A panel before its groups are drawn.
pub(super) struct PanelFrame<'a> {
    pub(super) title: &'a str,
    /// Names of the groups.
    pub(super) groups: Vec<&'a str>,
    /// The scale between two pixels.
    pub(super) scale: Box<dyn Fn(f64, f64) -> Scale + 'a>,
    /// A value that is drawn as a dashed line.
    pub(super) limit: Option<f64>,
}

/// Sizes of what stands in a panel.
pub(super) struct GroupSize {
    /// Height of a bar or box.
    pub(super) bar: f64,
    /// Between two groups.
    pub(super) gap: f64,
    /// Room for what stands to the right of the plot.
    pub(super) note: f64,
}

/// Which group is to be drawn.
pub(super) struct GroupIndex {
    pub(super) panel: usize,
    pub(super) group: usize,
}

const PANEL_WIDTH: f64 = 520.0;
const PANEL_GAP: f64 = 28.0;
const PANEL_HEAD: f64 = 24.0;

impl Frame {
    /// The file; `draw` draws a group into its part of the plot.
    pub(super) fn svg(
        &self,
        panels: &[PanelFrame<'_>],
        size: &GroupSize,
        draw: impl Fn(&mut Canvas, GroupIndex, Rect, &Scale),
    ) -> String {
        let columns = panels.len().clamp(1, 2);
        let width = 2.0 * MARGIN + columns as f64 * PANEL_WIDTH + (columns - 1) as f64 * PANEL_GAP;
        let height = size.bar * self.series.len().max(1) as f64 + size.gap;
        let mut canvas = Canvas::default();
        let mut y = self.draw_head(&mut canvas, width - 2.0 * MARGIN);
        for (number, panel) in panels.iter().enumerate() {
            let x = MARGIN + (number % columns) as f64 * (PANEL_WIDTH + PANEL_GAP);
            let names = panel.groups.iter().map(|name| name.chars().count()).max().unwrap_or(0);
            let gutter = (names as f64 * CHARACTER + 10.0).min(PANEL_WIDTH / 3.0);
            let plot = Rect {
                x: x + gutter,
                y: y + PANEL_HEAD,
                width: PANEL_WIDTH - gutter - size.note,
                height: height * panel.groups.len() as f64,
            };
            canvas.text((x, y + 14.0), Anchor::Start, "ink heading", &fitted(panel.title, PANEL_WIDTH * 0.9));
            let scale = (panel.scale)(plot.x, plot.right());
            axis::draw(&mut canvas, plot, &scale, self.format, &self.value);
            for (group, name) in panel.groups.iter().enumerate() {
                let top = plot.y + height * group as f64;
                let middle = top + height / 2.0 + 4.0;
                canvas.text((plot.x - 8.0, middle), Anchor::End, "ink", &fitted(name, gutter - 8.0));
                let area = Rect { y: top + size.gap / 2.0, height: height - size.gap, ..plot };
                draw(&mut canvas, GroupIndex { panel: number, group }, area, &scale);
            }
            if let Some(limit) = panel.limit {
                let x = scale.at(limit);
                canvas.line((x, plot.y - 4.0), (x, plot.bottom()), "limit");
            }
            if (number + 1) % columns == 0 || number + 1 == panels.len() {
                let row = &panels[number - number % columns..=number];
                let groups = row.iter().map(|panel| panel.groups.len()).max().unwrap_or(0);
                y += PANEL_HEAD + height * groups as f64 + AXIS_HEIGHT + PANEL_GAP;
            }
        }
        canvas.finish(width, y, &self.title, &format!("{}. {}.", self.subtitle, self.value))
    }

    /// Title, subtitle and the key of the series, in so much width; returns where they end.
    fn draw_head(&self, canvas: &mut Canvas, width: f64) -> f64 {
        canvas.text((MARGIN, 30.0), Anchor::Start, "ink title", &self.title);
        let mut y = 30.0;
        for line in wrapped(&self.subtitle, (width / CHARACTER) as usize) {
            y += 19.0;
            canvas.text((MARGIN, y), Anchor::Start, "quiet", &line);
        }
        if self.series.len() > 1 || self.limit.is_some() {
            y += 20.0;
            let sample = |(colour, name): (usize, &String)| Sample { colour, name: name.clone() };
            let samples: Vec<Sample> = match self.series.len() {
                0 | 1 => Vec::new(),
                _ => self.series.iter().enumerate().map(sample).collect(),
            };
            draw_key(canvas, &samples, self.limit.as_deref(), y);
        }
        y + 16.0
    }
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
