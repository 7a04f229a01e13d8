//! A streaming schedule over time: which task each processing element runs, block after block.

use super::axis::{self, AXIS_HEIGHT};
use super::canvas::{Anchor, CHARACTER, Canvas, Rect, fitted};
use super::gantt::{self, Lane};
use super::schedule::lane_height;
use super::{Format, Scale};

/// What processing elements do, and when blocks end.
#[derive(Debug, Clone)]
pub struct BlockChart {
    /// What is shown.
    pub title: String,
    /// Its figures, in a line.
    pub subtitle: String,
    /// The processing elements.
    pub lanes: Vec<Lane>,
    /// When blocks end, the last at the schedule's end.
    pub ends: Vec<f64>,
    /// What times are, with their unit.
    pub time: String,
    /// How times are written.
    pub format: Format,
}

const MARGIN: f64 = 24.0;
const HEAD: f64 = 84.0;
const PLOT_WIDTH: f64 = 860.0;
const NOTE_WIDTH: f64 = 64.0;
/// More blocks than this have no lines between them: they would hide the tasks.
const MOST_LINES: usize = 120;

impl BlockChart {
    /// The file.
    pub fn svg(&self) -> String {
        let names = self.lanes.iter().map(|lane| lane.name.chars().count()).max().unwrap_or(0);
        let gutter = (names as f64 * CHARACTER + 14.0).clamp(40.0, 200.0);
        let height = lane_height(self.lanes.len()) * self.lanes.len() as f64;
        let plot = Rect { x: MARGIN + gutter, y: HEAD, width: PLOT_WIDTH, height };
        let end = self.ends.last().copied().unwrap_or(0.0);
        let scale = Scale::linear(end, plot.x, plot.right());
        let mut canvas = Canvas::default();
        canvas.text((MARGIN, 30.0), Anchor::Start, "ink title", &fitted(&self.title, PLOT_WIDTH * 0.7));
        canvas.text((MARGIN, 49.0), Anchor::Start, "quiet", &self.subtitle);
        axis::draw(&mut canvas, plot, &scale, self.format, &self.time);
        gantt::draw(&mut canvas, plot, &scale, &self.lanes);
        if self.ends.len() > 1 && self.ends.len() <= MOST_LINES {
            canvas.line((MARGIN, 66.0), (MARGIN + 22.0, 66.0), "limit");
            canvas.text((MARGIN + 28.0, 70.0), Anchor::Start, "ink", "a block has ended");
            for &end in &self.ends {
                canvas.line((scale.at(end), plot.y - 4.0), (scale.at(end), plot.bottom() + 3.0), "limit");
            }
        }
        let (width, height) = (plot.right() + NOTE_WIDTH, plot.bottom() + AXIS_HEIGHT + 12.0);
        canvas.finish(width, height, &self.title, &self.subtitle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Activity, Stay, amount};

    #[test]
    fn tasks_and_ends_of_blocks_are_drawn() {
        let stay = |start, end| Stay { activity: Activity::Task, start, end, tip: "t".into() };
        let lane = |name: &str, stays| Lane { name: name.into(), colour: 0, note: "50 %".into(), stays };
        let chart = BlockChart {
            title: "chain".into(),
            subtitle: "two blocks".into(),
            lanes: vec![lane("0", vec![stay(0.0, 4.0), stay(4.0, 9.0)]), lane("1", vec![stay(1.0, 4.0)])],
            ends: vec![4.0, 9.0],
            time: "time".into(),
            format: amount,
        };
        let svg = chart.svg();
        assert_eq!((svg.matches("<title>t</title>").count(), svg.matches("class=\"limit\"").count()), (3, 3));
        assert!(BlockChart { lanes: vec![], ends: vec![], ..chart }.svg().ends_with("</svg>\n"));
    }
}
