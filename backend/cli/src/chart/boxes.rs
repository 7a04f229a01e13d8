//! Distributions as box plots: a panel for each case, a group of boxes for each thing compared, a colour for each series.

use super::axis::{self, AXIS_HEIGHT};
use super::canvas::{Anchor, CHARACTER, Canvas, Rect, fitted};
use super::head::{MARGIN, draw_key, draw_title};
use super::theme::COLOURS;
use super::{Format, Scale};

/// Where the values of a distribution are: the median, the quartiles, the values farthest from them within one and a half times
/// their distance, and the five farthest on both sides beyond that.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Half of the values are less.
    pub median: f64,
    /// A quarter is less than the first, a quarter more than the second.
    pub quartiles: (f64, f64),
    /// The least and the greatest value that are no outliers.
    pub whiskers: (f64, f64),
    /// Values beyond.
    pub outliers: Vec<f64>,
}

/// Outliers shown on a side.
const MOST_OUTLIERS: usize = 5;

impl Spread {
    /// The distribution of some values; `None` of none. Quartiles between two values are interpolated.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let place = share * (values.len() - 1) as f64;
            let (low, part) = (place.floor() as usize, place.fract());
            let high = (low + 1).min(values.len() - 1);
            values[low] + part * (values[high] - values[low])
        };
        if values.is_empty() {
            return None;
        }
        let (first, third) = (quantile(0.25), quantile(0.75));
        let reach = 1.5 * (third - first);
        let inside = |value: &f64| *value >= first - reach && *value <= third + reach;
        let low = values.iter().copied().find(|value| inside(value)).unwrap_or(first);
        let high = values.iter().copied().rev().find(|value| inside(value)).unwrap_or(third);
        let below = values.iter().copied().filter(|value| *value < low).take(MOST_OUTLIERS);
        let above = values.iter().copied().rev().filter(|value| *value > high).take(MOST_OUTLIERS);
        let outliers = below.chain(above).collect();
        Some(Spread { median: quantile(0.5), quartiles: (first, third), whiskers: (low, high), outliers })
    }

    fn greatest(&self) -> f64 {
        self.outliers.iter().copied().fold(self.whiskers.1, f64::max)
    }
}

/// A chart of distributions.
#[derive(Debug, Clone)]
pub struct BoxChart {
    /// What is shown.
    pub title: String,
    /// How it was made, in a line.
    pub subtitle: String,
    /// What the values are, with their unit.
    pub value: String,
    /// How values are written.
    pub format: Format,
    /// Names of the series.
    pub series: Vec<String>,
    /// The cases.
    pub panels: Vec<BoxPanel>,
}

/// One case, on a scale of its own.
#[derive(Debug, Clone)]
pub struct BoxPanel {
    /// The case.
    pub title: String,
    /// What is compared.
    pub groups: Vec<Boxes>,
}

/// One thing that is compared.
#[derive(Debug, Clone)]
pub struct Boxes {
    /// Its name.
    pub name: String,
    /// Its distributions, one for each series, each with a note that stands beside it.
    pub boxes: Vec<Option<(Spread, String)>>,
}

const PANEL_WIDTH: f64 = 520.0;
const PANEL_GAP: f64 = 28.0;
const PANEL_HEAD: f64 = 24.0;
const BOX_HEIGHT: f64 = 14.0;
const GROUP_GAP: f64 = 9.0;
const NOTE_WIDTH: f64 = 96.0;

impl BoxChart {
    /// The file.
    pub fn svg(&self) -> String {
        let columns = self.panels.len().clamp(1, 2);
        let width = 2.0 * MARGIN + columns as f64 * PANEL_WIDTH + (columns - 1) as f64 * PANEL_GAP;
        let mut canvas = Canvas::default();
        let mut y = self.draw_head(&mut canvas, width - 2.0 * MARGIN);
        for row in self.panels.chunks(columns) {
            for (place, panel) in row.iter().enumerate() {
                self.draw_panel(&mut canvas, panel, (MARGIN + place as f64 * (PANEL_WIDTH + PANEL_GAP), y));
            }
            let height = |panel: &BoxPanel| PANEL_HEAD + self.group_height() * panel.groups.len() as f64 + AXIS_HEIGHT;
            y += row.iter().map(height).fold(0.0, f64::max) + PANEL_GAP;
        }
        canvas.finish(width, y, &self.title, &format!("{}. {}.", self.subtitle, self.value))
    }

    fn group_height(&self) -> f64 {
        BOX_HEIGHT * self.series.len().max(1) as f64 + GROUP_GAP
    }

    fn draw_head(&self, canvas: &mut Canvas, width: f64) -> f64 {
        let key = draw_title(canvas, &self.title, &self.subtitle, width) + 20.0;
        draw_key(canvas, &self.series, key);
        key + 16.0
    }

    fn draw_panel(&self, canvas: &mut Canvas, panel: &BoxPanel, (x, y): (f64, f64)) {
        let names = panel.groups.iter().map(|group| group.name.chars().count()).max().unwrap_or(0);
        let gutter = (names as f64 * CHARACTER + 10.0).min(PANEL_WIDTH / 3.0);
        let plot = Rect {
            x: x + gutter,
            y: y + PANEL_HEAD,
            width: PANEL_WIDTH - gutter - NOTE_WIDTH,
            height: self.group_height() * panel.groups.len() as f64,
        };
        canvas.text((x, y + 14.0), Anchor::Start, "ink heading", &fitted(&panel.title, PANEL_WIDTH * 0.9));
        let spreads = panel.groups.iter().flat_map(|group| group.boxes.iter().flatten());
        let high = spreads.map(|(spread, _)| spread.greatest()).fold(0.0, f64::max);
        let scale = Scale::linear(high, plot.x, plot.right());
        axis::draw(canvas, plot, &scale, self.format, &self.value);
        for (number, group) in panel.groups.iter().enumerate() {
            let top = plot.y + self.group_height() * number as f64;
            let middle = top + self.group_height() / 2.0 + 4.0;
            canvas.text((plot.x - 8.0, middle), Anchor::End, "ink", &fitted(&group.name, gutter - 8.0));
            for (series, drawn) in group.boxes.iter().enumerate() {
                if let Some((spread, note)) = drawn {
                    let y = top + GROUP_GAP / 2.0 + BOX_HEIGHT * series as f64;
                    let track = Rect { y: y + 1.5, height: BOX_HEIGHT - 3.0, ..plot };
                    self.draw_box(canvas, track, &scale, spread, series, &group.name);
                    canvas.text((plot.right() + 8.0, y + 10.5), Anchor::Start, "quiet small", note);
                }
            }
        }
    }

    fn draw_box(&self, canvas: &mut Canvas, track: Rect, scale: &Scale, spread: &Spread, series: usize, name: &str) {
        let middle = track.y + track.height / 2.0;
        let [low, first, median, third, high] =
            [spread.whiskers.0, spread.quartiles.0, spread.median, spread.quartiles.1, spread.whiskers.1]
                .map(|value| scale.at(value));
        canvas.line((low, middle), (first, middle), "whisker");
        canvas.line((third, middle), (high, middle), "whisker");
        for end in [low, high] {
            canvas.line((end, middle - 3.0), (end, middle + 3.0), "whisker");
        }
        let text = |value| (self.format)(value);
        let series_name = self.series.get(series).map_or("", String::as_str);
        let tip = format!(
            "{name}, {series_name}: median {}, quartiles {} and {}, whiskers {} and {}",
            text(spread.median),
            text(spread.quartiles.0),
            text(spread.quartiles.1),
            text(spread.whiskers.0),
            text(spread.whiskers.1)
        );
        let shape = Rect { x: first, width: (third - first).max(1.0), ..track };
        canvas.rect(shape, 1.5, &format!("c{}", series % COLOURS), Some(&tip));
        canvas.line((median, track.y - 1.0), (median, track.bottom() + 1.0), "whisker");
        for &outlier in &spread.outliers {
            let x = scale.at(outlier);
            let dot = Rect { x: x - 1.5, y: middle - 1.5, width: 3.0, height: 3.0 };
            canvas.rect(dot, 1.5, &format!("c{}", series % COLOURS), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::amount;

    #[test]
    fn quartiles_are_interpolated_and_outliers_set_apart() {
        let values: Vec<f64> = (1..=5).map(f64::from).collect();
        let spread = Spread::of(&values).expect("some");
        assert_eq!((spread.median, spread.quartiles, spread.whiskers), (3.0, (2.0, 4.0), (1.0, 5.0)));
        assert_eq!(Spread::of(&[1.0, 2.0]).expect("some").quartiles, (1.25, 1.75));
        assert_eq!(Spread::of(&[7.0]).expect("one").whiskers, (7.0, 7.0));
        assert_eq!(Spread::of(&[]), None);
        let far = Spread::of(&[-90.0, 1.0, 2.0, 3.0, 4.0, 5.0, 100.0]).expect("some");
        assert_eq!((far.whiskers, far.outliers), ((1.0, 5.0), vec![-90.0, 100.0]));
    }

    #[test]
    fn each_distribution_is_a_box_with_its_note() {
        let spread = || Spread::of(&[1.0, 2.0, 3.0, 4.0, 40.0]).expect("some");
        let boxes = vec![Some((spread(), "note".to_owned())), None];
        let chart = BoxChart {
            title: "Speedup".into(),
            subtitle: "five graphs".into(),
            value: "speedup".into(),
            format: amount,
            series: vec!["a".into(), "b".into()],
            panels: vec![BoxPanel { title: "chain".into(), groups: vec![Boxes { name: "4".into(), boxes }] }],
        };
        let svg = chart.svg();
        assert_eq!((svg.matches("4, a: median 3").count(), svg.matches(">note<").count()), (1, 1));
        assert_eq!(svg.matches("class=\"whisker\"").count(), 5);
        assert_eq!(svg.matches("width=\"3\" height=\"3\"").count(), 1);
    }
}
