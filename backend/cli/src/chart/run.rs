//! A run over time: what each device and link did, what was predicted above what was measured, on one axis.

use super::axis::{self, AXIS_HEIGHT};
use super::canvas::{Anchor, CHARACTER, Canvas, Rect, fitted};
use super::gantt::{self, Lane};
use super::{Format, Scale};

/// A run, and what is to be said of it.
pub struct RunChart {
    /// What is shown.
    pub title: String,
    /// Its figures, in a line.
    pub subtitle: String,
    /// Of each device and link, what was predicted and what was measured. Times in seconds.
    pub lanes: Vec<[Lane; 2]>,
    /// When the last output was predicted to be there, and when it was.
    pub ends: [f64; 2],
    /// How times are written.
    pub format: Format,
}

const MARGIN: f64 = 24.0;
const HEAD: f64 = 70.0;
const PLOT_WIDTH: f64 = 860.0;
/// Most room for names.
const GUTTER: f64 = 200.0;
const NOTE_WIDTH: f64 = 56.0;
const ROW: f64 = 17.0;
/// Between two devices.
const GAP: f64 = 9.0;

impl RunChart {
    /// The file.
    pub fn svg(&self) -> String {
        let names =
            self.lanes.iter().map(|[lane, _]| lane.name.chars().count() + " predicted".len()).max().unwrap_or(0);
        let gutter = (names as f64 * CHARACTER + 14.0).clamp(60.0, GUTTER);
        let x = MARGIN + gutter;
        let height = self.lanes.len() as f64 * (2.0 * ROW + GAP);
        let plot = Rect { x, y: HEAD, width: PLOT_WIDTH, height };
        let scale = Scale::linear(self.ends[0].max(self.ends[1]), x, x + PLOT_WIDTH);
        let mut canvas = Canvas::default();
        canvas.text((MARGIN, 30.0), Anchor::Start, "ink title", &fitted(&self.title, PLOT_WIDTH * 0.8));
        canvas.text((MARGIN, 49.0), Anchor::Start, "quiet", &self.subtitle);
        axis::draw(&mut canvas, plot, &scale, self.format, "time since the run's start");
        for (number, lanes) in self.lanes.iter().enumerate() {
            let y = plot.y + number as f64 * (2.0 * ROW + GAP);
            for (row, (lane, when)) in lanes.iter().zip(["predicted", "measured"]).enumerate() {
                let name = if row == 0 { format!("{} {when}", lane.name) } else { when.to_owned() };
                let lane = Lane { name: fitted(&name, gutter - 14.0), ..lane.clone() };
                gantt::draw(&mut canvas, Rect { y: y + row as f64 * ROW, height: ROW, ..plot }, &scale, &[lane]);
            }
        }
        for end in self.ends {
            canvas.line((scale.at(end), plot.y - 4.0), (scale.at(end), plot.bottom()), "limit");
        }
        let (width, height) = (x + PLOT_WIDTH + NOTE_WIDTH, plot.bottom() + AXIS_HEIGHT + 12.0);
        canvas.finish(width, height, &self.title, &self.subtitle)
    }
}
