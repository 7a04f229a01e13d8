//! Horizontal bars with deviations: a panel per case, a group per compared item, a colour per series.
//!
//! A bar much longer than the others would flatten them. On a linear axis it is cut at the end of the plot and marked
//! as broken, with its value beside it.

use super::axis::{self, AXIS_HEIGHT};
use super::canvas::{Anchor, CHARACTER, Canvas, Rect, fitted};
use super::head::{self, MARGIN, Sample, WIDTH};
use super::theme::COLOURS;
use super::{Base, Format, Scale};

/// A chart of bars.
#[derive(Debug, Clone)]
pub struct BarChart {
    /// Title of the chart.
    pub title: String,
    /// Line on how it was made.
    pub subtitle: String,
    /// Name of the values, with their unit.
    pub value: String,
    /// Format of values.
    pub format: Format,
    /// Axis of the values.
    pub axis: Axis,
    /// Base of the round numbers on the axis.
    pub base: Base,
    /// Names of the series.
    pub series: Vec<String>,
    /// Whether the least value of a panel is emphasized.
    pub emphasis: bool,
    /// Text in place of a missing bar.
    pub missing: String,
    /// Name of the panels' limit, if they have one.
    pub limit: Option<String>,
    /// Panels, from top to bottom.
    pub panels: Vec<Panel>,
}

/// Axis of the values of a chart of bars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Axis {
    /// From 0 to the longest bar of the panel, unless few bars are much longer than the others.
    Linear,
    /// From 0 to this value.
    UpTo(f64),
    /// From a power of the base.
    Logarithmic,
}

/// One case: bars with their own scale.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Title of the panel.
    pub title: String,
    /// Groups of bars, from left to right.
    pub groups: Vec<Group>,
    /// Value that is drawn as a dashed line.
    pub limit: Option<f64>,
}

/// One compared item.
#[derive(Debug, Clone)]
pub struct Group {
    /// Name below the axis.
    pub name: String,
    /// One bar per series; `None` if there is no value.
    pub bars: Vec<Option<Bar>>,
}

/// A bar: a mean or median, with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// Length of the bar.
    pub mean: f64,
    /// Ends of the whisker; not drawn if both equal the mean.
    pub whisker: (f64, f64),
}

impl Bar {
    /// Returns the mean and sample deviation of some values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Bar> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        let deviation = if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        (!values.is_empty()).then_some(Bar { mean, whisker: (mean - deviation, mean + deviation) })
    }

    /// Returns a value without uncertainty.
    pub fn exactly(value: f64) -> Bar {
        Bar { mean: value, whisker: (value, value) }
    }

    /// Returns how far the whisker reaches beyond the bar: the standard deviation, if it has one.
    pub fn above(&self) -> f64 {
        self.whisker.1 - self.mean
    }

    fn has_whisker(&self) -> bool {
        self.whisker.0 < self.whisker.1
    }

    /// Returns the label beside the bar.
    fn label(&self, format: Format) -> String {
        let (below, above) = (self.mean - self.whisker.0, self.whisker.1 - self.mean);
        match self.has_whisker() && (above - below).abs() <= 1e-9 * self.mean.abs() {
            true => format!("{} ± {}", format(self.mean), format(above)),
            false => format(self.mean),
        }
    }

    /// Returns the tooltip.
    fn tip(&self, format: Format) -> String {
        match self.has_whisker() {
            true => format!("{} ({} to {})", format(self.mean), format(self.whisker.0), format(self.whisker.1)),
            false => format(self.mean),
        }
    }
}

const PANEL_GAP: f64 = 28.0;
/// Width of one of two panels beside each other; a single panel takes the room of both.
const PANEL_WIDTH: f64 = (WIDTH - 2.0 * MARGIN - PANEL_GAP) / 2.0;
const PANEL_HEAD: f64 = 24.0;
const GROUP_GAP: f64 = 7.0;
/// Width for the value beside the longest bar.
const VALUE_WIDTH: f64 = 104.0;
/// A bar more than this many times as long as the median bar of its panel does not determine the axis.
const OUTLIER: f64 = 4.0;
/// End of the axis in lengths of the longest bar that determines it, if bars or whiskers go on beyond.
const CUT: f64 = 1.5;

impl BarChart {
    /// Returns the chart as an SVG file.
    pub fn svg(&self) -> String {
        let columns = self.panels.len().clamp(1, 2);
        let mut canvas = Canvas::default();
        let series = self.series.iter().enumerate().filter(|_| self.series.len() > 1);
        let key: Vec<Sample> = series.map(|(colour, name)| Sample { colour, name: name.clone() }).collect();
        let titles = [&*self.title, &self.subtitle];
        let mut y = head::draw(&mut canvas, titles, &key, self.limit.as_deref(), WIDTH - 2.0 * MARGIN);
        for row in self.panels.chunks(columns) {
            for (place, panel) in row.iter().enumerate() {
                let x = MARGIN + place as f64 * (self.panel_width() + PANEL_GAP);
                self.draw_panel(&mut canvas, panel, (x, y));
            }
            y += row.iter().map(|panel| self.panel_height(panel)).fold(0.0, f64::max) + PANEL_GAP;
        }
        canvas.finish(WIDTH, y, &self.title, &format!("{}. {}.", self.subtitle, self.value))
    }

    fn panel_width(&self) -> f64 {
        if self.panels.len() > 1 { PANEL_WIDTH } else { WIDTH - 2.0 * MARGIN }
    }

    fn bar_height(&self) -> f64 {
        if self.series.len() > 1 { 11.0 } else { 15.0 }
    }

    fn group_height(&self) -> f64 {
        self.bar_height() * self.series.len().max(1) as f64 + GROUP_GAP
    }

    fn panel_height(&self, panel: &Panel) -> f64 {
        PANEL_HEAD + self.group_height() * panel.groups.len() as f64 + AXIS_HEIGHT
    }

    fn draw_panel(&self, canvas: &mut Canvas, panel: &Panel, (x, y): (f64, f64)) {
        let names = panel.groups.iter().map(|group| group.name.chars().count()).max().unwrap_or(0);
        let width = self.panel_width();
        let gutter = (names as f64 * CHARACTER + 10.0).min(width / 3.0);
        let plot = Rect {
            x: x + gutter,
            y: y + PANEL_HEAD,
            width: width - gutter - VALUE_WIDTH,
            height: self.group_height() * panel.groups.len() as f64,
        };
        canvas.text((x, y + 14.0), Anchor::Start, "ink heading", &fitted(&panel.title, width * 0.9));
        let scale = self.scale(panel, plot);
        let is_cut = bars(panel).any(|bar| scale.is_beyond(bar.mean.max(bar.whisker.1)));
        let note = if is_cut { "; what is broken goes on beyond the axis" } else { "" };
        axis::draw(canvas, plot, &scale, self.format, &format!("{}{note}", self.value));
        let least = bars(panel).map(|bar| bar.mean).fold(f64::INFINITY, f64::min);
        let best = if self.emphasis { least } else { f64::NEG_INFINITY };
        for (number, group) in panel.groups.iter().enumerate() {
            let top = plot.y + self.group_height() * number as f64;
            let middle = top + self.group_height() / 2.0 + 4.0;
            let name = fitted(&group.name, gutter - 8.0);
            canvas.text((plot.x - 8.0, middle), Anchor::End, "ink", &name);
            self.draw_group(canvas, group, (plot.x, top + GROUP_GAP / 2.0), &scale, best);
        }
        if let Some(limit) = panel.limit {
            let x = scale.at(limit);
            canvas.line((x, plot.y - 4.0), (x, plot.bottom()), "limit");
        }
    }

    fn scale(&self, panel: &Panel, plot: Rect) -> Scale {
        let low = bars(panel).map(|bar| bar.mean).filter(|&mean| mean > 0.0).fold(f64::INFINITY, f64::min);
        let ends = bars(panel).map(|bar| bar.mean.max(bar.whisker.1));
        let linear = |end| Scale::linear(end, plot.x, plot.right()).with_base(self.base);
        match self.axis {
            Axis::Logarithmic => {
                let end = ends.chain(panel.limit).fold(0.0, f64::max);
                Scale::logarithmic(low, end, plot.x, plot.right(), self.base)
            }
            Axis::Linear => linear(reach(panel)),
            Axis::UpTo(end) => linear(end),
        }
    }

    fn draw_group(&self, canvas: &mut Canvas, group: &Group, (x, top): (f64, f64), scale: &Scale, best: f64) {
        let height = self.bar_height();
        for (number, bar) in group.bars.iter().enumerate() {
            let y = top + height * number as f64;
            let baseline = y + height / 2.0 + 3.6;
            let Some(bar) = bar else {
                canvas.text((x + 6.0, baseline), Anchor::Start, "quiet small", &self.missing);
                continue;
            };
            let (end, label) = (scale.at(bar.mean), bar.label(self.format));
            let shape = Rect { x, y: y + 0.5, width: (end - x).max(0.5), height: height - 1.0 };
            let tip = format!("{}: {}", group.name, bar.tip(self.format));
            // Colour marks the best bar, unless it distinguishes series.
            let rest = if self.emphasis && self.series.len() < 2 && bar.mean > best { " rest" } else { "" };
            canvas.rect(shape, 1.5, &format!("c{}{rest}", number % COLOURS), Some(&tip));
            let mut right = end;
            if bar.has_whisker() && !scale.is_beyond(bar.mean) {
                let (from, to) = (scale.at(bar.whisker.0), scale.at(bar.whisker.1));
                let middle = y + height / 2.0;
                canvas.line((from, middle), (to, middle), "whisker");
                canvas.line((from, middle - 3.0), (from, middle + 3.0), "whisker");
                if !scale.is_beyond(bar.whisker.1) {
                    canvas.line((to, middle - 3.0), (to, middle + 3.0), "whisker");
                }
                right = end.max(to);
            }
            if scale.is_beyond(bar.mean.max(bar.whisker.1)) {
                draw_break(canvas, right, (y, height));
            }
            let class = if bar.mean <= best { "ink small best" } else { "quiet small" };
            canvas.text((right + 6.0, baseline), Anchor::Start, class, &label);
        }
    }
}

/// Draws the mark of a bar or whisker that goes on: two slanted gaps shortly before its end.
fn draw_break(canvas: &mut Canvas, end: f64, (y, height): (f64, f64)) {
    for x in [end - 15.0, end - 9.0] {
        canvas.line((x - 2.5, y + height + 1.0), (x + 2.5, y - 1.0), "break");
    }
}

/// Returns the value at the end of a panel's linear axis.
fn reach(panel: &Panel) -> f64 {
    let end = bars(panel).map(|bar| bar.mean.max(bar.whisker.1)).fold(0.0, f64::max);
    let most = plain(bars(panel).map(|bar| bar.mean)).fold(0.0, f64::max);
    panel.limit.unwrap_or(0.0).max(if most > 0.0 { end.min(CUT * most) } else { end })
}

/// Returns the values of bars that are not much longer than the others.
pub(crate) fn plain(means: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    let mut means: Vec<f64> = means.collect();
    means.sort_by(f64::total_cmp);
    let median = means.get(means.len() / 2).copied().unwrap_or(0.0);
    means.into_iter().filter(move |mean| median <= 0.0 || *mean <= OUTLIER * median)
}

fn bars(panel: &Panel) -> impl Iterator<Item = &Bar> {
    panel.groups.iter().flat_map(|group| group.bars.iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::amount;

    fn chart(bars: Vec<Option<Bar>>) -> BarChart {
        let panel =
            Panel { title: "a & b".into(), groups: vec![Group { name: "heft".into(), bars }], limit: Some(5.0) };
        BarChart {
            title: "Makespan".into(),
            subtitle: "two seeds".into(),
            value: "makespan (s)".into(),
            format: amount,
            axis: Axis::Linear,
            base: Base::Ten,
            series: vec!["pct".into(), "fifo".into()],
            emphasis: true,
            missing: "no placement".into(),
            limit: Some("lower bound".into()),
            panels: vec![panel],
        }
    }

    #[test]
    fn means_and_deviations() {
        assert_eq!(Bar::of(&[]), None);
        assert_eq!(Bar::of(&[3.0]), Some(Bar::exactly(3.0)));
        let root = 2f64.sqrt();
        assert_eq!(Bar::of(&[1.0, 3.0]), Some(Bar { mean: 2.0, whisker: (2.0 - root, 2.0 + root) }));
    }

    #[test]
    fn bars_are_as_long_as_their_values_and_the_best_stands_out() {
        let svg = chart(vec![Some(Bar::exactly(10.0)), Some(Bar::exactly(5.0))]).svg();
        let widths = lengths(&svg);
        assert!((widths[0] - 2.0 * widths[1]).abs() < 0.02, "{widths:?}");
        let best = svg.lines().find(|line| line.contains("best\"")).unwrap();
        assert!(best.contains(">5<"), "{best}");
        assert!(svg.contains("a &amp; b") && svg.contains("lower bound") && svg.contains("fifo"));
    }

    /// Returns the lengths of bars.
    fn lengths(svg: &str) -> Vec<f64> {
        let bars = svg.lines().filter(|line| line.contains("<title>heft: "));
        let width = |line: &str| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok();
        bars.map(|line| width(line).expect("a width")).collect()
    }

    #[test]
    fn one_long_bar_is_broken_and_does_not_flatten_the_others() {
        let of = |means: &[f64]| {
            let group = |mean: &f64| Group { name: "heft".into(), bars: vec![Some(Bar::exactly(*mean))] };
            let panel = Panel { title: String::new(), groups: means.iter().map(group).collect(), limit: None };
            BarChart { panels: vec![panel], ..chart(vec![]) }.svg()
        };
        let broken = of(&[1.0, 1.1, 900.0]);
        let found = lengths(&broken);
        assert!(found[2] < 1.7 * found[0] && found[2] > found[1], "{found:?}");
        assert_eq!(broken.matches("class=\"break\"").count(), 2);
        assert!(broken.contains("what is broken goes on beyond the axis") && broken.contains(">900<"), "{broken}");
        // Half of the bars are long: nothing is an outlier.
        let whole = of(&[1.0, 1.0, 8.0, 9.0]);
        assert!(lengths(&whole)[3] > 8.9 * lengths(&whole)[0] && !whole.contains("class=\"break\""), "{whole}");
    }

    #[test]
    fn a_long_whisker_is_broken_and_its_bar_is_not() {
        let svg = chart(vec![Some(Bar { mean: 5.0, whisker: (4.0, 60.0) }), Some(Bar::exactly(6.0))]).svg();
        let found = lengths(&svg);
        assert!((found[1] / found[0] - 1.2).abs() < 0.01, "{found:?}");
        // The line and its left end; the right end is beyond.
        assert_eq!((svg.matches("class=\"whisker\"").count(), svg.matches("class=\"break\"").count()), (2, 2));
    }

    #[test]
    fn what_is_missing_is_said_and_deviations_have_whiskers() {
        let svg = chart(vec![None, Some(Bar { mean: 5.0, whisker: (4.0, 6.0) })]).svg();
        assert!(svg.contains("no placement") && svg.contains("5 ± 1"));
        assert_eq!(svg.matches("class=\"whisker\"").count(), 3);
        // A confidence interval may be asymmetric.
        let svg = chart(vec![Some(Bar { mean: 5.0, whisker: (4.5, 8.0) })]).svg();
        assert!(
            svg.contains("heft: 5 (4.5 to 8)") && svg.contains(">5<") && svg.contains("class=\"whisker\""),
            "{svg}"
        );
        let empty = BarChart { panels: vec![], ..chart(vec![]) }.svg();
        assert!(empty.ends_with("</svg>\n"));
    }
}
