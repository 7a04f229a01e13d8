//! Activity of devices and links over time: panels of lanes on one time axis, with dashed lines at marked times.

use super::axis::{self, AXIS_HEIGHT};
use super::canvas::{Anchor, CHARACTER, Canvas, Rect, fitted};
use super::head::{self, MARGIN, Sample, WIDTH};
use super::lanes::{self, Lane, MOST_NAME};
use super::{Format, Scale};

/// A chart over time.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// Title of the chart.
    pub title: String,
    /// Line of figures.
    pub subtitle: String,
    /// Colours and their meanings.
    pub key: Vec<Sample>,
    /// Times with a dashed line through the first panel.
    pub marks: Vec<f64>,
    /// Name of the marks in the key.
    pub marks_name: String,
    /// Panels, from top to bottom, on one time axis.
    pub panels: Vec<TimePanel>,
    /// End of the axis.
    pub end: f64,
    /// Name of the time axis, with its unit.
    pub time: String,
    /// Format of times.
    pub format: Format,
}

/// Lanes with an axis below them.
#[derive(Debug, Clone)]
pub struct TimePanel {
    /// Text above the panel; may be empty.
    pub heading: String,
    /// Lanes in groups, which are drawn together.
    pub groups: Vec<Vec<Lane>>,
}

const HEADING_HEIGHT: f64 = 26.0;
const NOTE_WIDTH: f64 = 64.0;
/// Gap between two groups of several lanes.
const GROUP_GAP: f64 = 9.0;
/// If there are more marks than this, they are not drawn: they would hide the lanes.
const MOST_MARKS: usize = 120;

impl Timeline {
    /// Returns the chart as an SVG file.
    pub fn svg(&self) -> String {
        let lanes = || self.panels.iter().flat_map(TimePanel::lanes);
        let names = lanes().map(|lane| lane.name.chars().count()).max().unwrap_or(0);
        let gutter = (names as f64 * CHARACTER).clamp(26.0, MOST_NAME) + 14.0;
        let x = MARGIN + gutter;
        let width = WIDTH - x - NOTE_WIDTH;
        let scale = Scale::linear(self.end, x, x + width);
        let tips = lanes::with_tips(lanes());
        let mut canvas = Canvas::default();
        let named = (!self.marks_name.is_empty() && !self.marks().is_empty()).then_some(self.marks_name.as_str());
        let mut y = head::draw(&mut canvas, [&self.title, &self.subtitle], &self.key, named, gutter + width);
        for (number, panel) in self.panels.iter().enumerate() {
            if !panel.heading.is_empty() {
                let heading = fitted(&panel.heading, (gutter + width) * 0.9);
                canvas.text((MARGIN, y + HEADING_HEIGHT - 10.0), Anchor::Start, "ink heading", &heading);
                y += HEADING_HEIGHT;
            }
            let plot = Rect { x, y, width, height: panel.height() };
            axis::draw(&mut canvas, plot, &scale, self.format, &self.time);
            panel.draw(&mut canvas, plot, &scale, tips);
            for mark in self.marks().iter().filter(|_| number == 0) {
                canvas.line((scale.at(*mark), plot.y - 4.0), (scale.at(*mark), plot.bottom() + 3.0), "limit");
            }
            y = plot.bottom() + AXIS_HEIGHT + 12.0;
        }
        canvas.finish(WIDTH, y, &self.title, &self.subtitle)
    }

    fn marks(&self) -> &[f64] {
        if self.marks.len() <= MOST_MARKS { &self.marks } else { &[] }
    }
}

impl TimePanel {
    /// Returns a panel with lanes one below the other.
    pub fn of(heading: &str, lanes: Vec<Lane>) -> Self {
        Self { heading: heading.to_owned(), groups: lanes.into_iter().map(|lane| vec![lane]).collect() }
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.groups.iter().flatten()
    }

    fn gap(&self) -> f64 {
        if self.groups.iter().any(|group| group.len() > 1) { GROUP_GAP } else { 0.0 }
    }

    /// Height of a lane: the more lanes, the lower, so that a page shows them all.
    fn lane_height(&self) -> f64 {
        match self.lanes().count() {
            0..=12 => 26.0,
            13..=30 => 18.0,
            31..=60 => 13.0,
            _ => 11.0,
        }
    }

    fn height(&self) -> f64 {
        self.lanes().count() as f64 * self.lane_height() + self.groups.len() as f64 * self.gap()
    }

    fn draw(&self, canvas: &mut Canvas, plot: Rect, scale: &Scale, tips: bool) {
        let mut row = Rect { height: self.lane_height(), ..plot };
        for group in &self.groups {
            for lane in group {
                lanes::draw(canvas, row, scale, lane, tips);
                row.y += row.height;
            }
            row.y += self.gap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::Interval;
    use super::*;
    use crate::text::amount;

    #[test]
    fn lanes_and_marks_are_drawn_in_groups() {
        let interval = |start, end| Interval { start, end, colour: 0, tip: "t".into() };
        let lane = |name: &str, intervals| Lane { name: name.into(), intervals, ..Lane::default() };
        let lanes = vec![lane("0", vec![interval(0.0, 4.0), interval(4.0, 9.0)]), lane("1", vec![interval(1.0, 4.0)])];
        let chart = Timeline {
            title: "chain <a>".into(),
            subtitle: "two blocks".into(),
            key: vec![Sample { colour: 0, name: "a task".into() }],
            marks: vec![4.0, 9.0],
            marks_name: "a block has ended".into(),
            panels: vec![TimePanel::of("", lanes.clone())],
            end: 9.0,
            time: "time".into(),
            format: amount,
        };
        let svg = chart.svg();
        assert_eq!((svg.matches("<title>t</title>").count(), svg.matches("class=\"limit\"").count()), (3, 3));
        assert!(svg.contains("chain &lt;a&gt;") && svg.contains("a block has ended") && svg.contains("a task"));
        let grouped = TimePanel { heading: String::new(), groups: vec![lanes] };
        assert_eq!(grouped.height(), chart.panels[0].height() + GROUP_GAP);
        assert!(Timeline { panels: vec![], marks: vec![0.0; 121], ..chart }.svg().ends_with("</svg>\n"));
    }
}
