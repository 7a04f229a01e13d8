//! Distributions as box plots: a panel for each case, a group of boxes for each thing compared, a colour for each series.

use super::Scale;
use super::canvas::{Anchor, Canvas, Rect};
use super::frame::{Frame, GroupSize, PanelFrame};
use super::theme::COLOURS;

/// Where the values of a distribution are: the median, the quartiles, the values farthest from them within one and a half times
/// their distance, and the five farthest on both sides beyond that.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spread {
    /// Half of the values are less.
    pub(crate) median: f64,
    /// A quarter is less than the first, a quarter more than the second.
    pub(crate) quartiles: (f64, f64),
    /// The least and the greatest value that are no outliers.
    pub(crate) whiskers: (f64, f64),
    /// Values beyond.
    pub(crate) outliers: Vec<f64>,
}

/// Outliers shown on a side.
const MOST_OUTLIERS: usize = 5;

impl Spread {
    /// The distribution of some values; `None` of none. Quartiles between two values are interpolated.
    pub(crate) fn of(values: &[f64]) -> Option<Spread> {
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
pub(crate) struct BoxChart {
    pub(crate) frame: Frame,
    /// The cases.
    pub(crate) panels: Vec<BoxPanel>,
}

/// One case, on a scale of its own.
#[derive(Debug, Clone)]
pub(crate) struct BoxPanel {
    /// The case.
    pub(crate) title: String,
    /// What is compared.
    pub(crate) groups: Vec<Boxes>,
}

/// One thing that is compared.
#[derive(Debug, Clone)]
pub(crate) struct Boxes {
    /// Its name.
    pub(crate) name: String,
    /// Its distributions, one for each series, each with a note that stands beside it.
    pub(crate) boxes: Vec<Option<(Spread, String)>>,
}

const BOX_HEIGHT: f64 = 14.0;
const GROUP_GAP: f64 = 9.0;
const NOTE_WIDTH: f64 = 96.0;

impl BoxChart {
    /// The file.
    pub(crate) fn svg(&self) -> String {
        let panels = self.panels.iter().map(|panel| {
            let spreads = panel.groups.iter().flat_map(|group| group.boxes.iter().flatten());
            let high = spreads.map(|(spread, _)| spread.greatest()).fold(0.0, f64::max);
            PanelFrame {
                title: &panel.title,
                groups: panel.groups.iter().map(|group| group.name.as_str()).collect(),
                scale: Box::new(move |from, to| Scale::linear(high, from, to)),
                limit: None,
            }
        });
        let panels: Vec<_> = panels.collect();
        let size = GroupSize { bar: BOX_HEIGHT, gap: GROUP_GAP, note: NOTE_WIDTH };
        self.frame.svg(&panels, &size, |canvas, at, area, scale| {
            let group = &self.panels[at.panel].groups[at.group];
            for (series, drawn) in group.boxes.iter().enumerate() {
                if let Some((spread, note)) = drawn {
                    let y = area.y + BOX_HEIGHT * series as f64;
                    let track = Rect { y: y + 1.5, height: BOX_HEIGHT - 3.0, ..area };
                    self.draw_box(canvas, track, scale, spread, series, &group.name);
                    canvas.text((area.right() + 8.0, y + 10.5), Anchor::Start, "quiet small", note);
                }
            }
        })
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
        let text = |value| (self.frame.format)(value);
        let series_name = self.frame.series.get(series).map_or("", String::as_str);
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
        let frame = Frame {
            title: "Speedup".into(),
            subtitle: "five graphs".into(),
            value: "speedup".into(),
            format: amount,
            series: vec!["a".into(), "b".into()],
            limit: None,
        };
        let chart = BoxChart {
            frame,
            panels: vec![BoxPanel { title: "chain".into(), groups: vec![Boxes { name: "4".into(), boxes }] }],
        };
        let svg = chart.svg();
        assert_eq!((svg.matches("4, a: median 3").count(), svg.matches(">note<").count()), (1, 1));
        assert_eq!(svg.matches("class=\"whisker\"").count(), 5);
        assert_eq!(svg.matches("width=\"3\" height=\"3\"").count(), 1);
    }
}
