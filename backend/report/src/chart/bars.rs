//! Horizontal bars with deviations: a panel per case, a group per compared item, a colour per series.

use super::axis::{self, AXIS_HEIGHT};
use super::canvas::{Anchor, CHARACTER, Canvas, Rect, fitted};
use super::head::{self, MARGIN, Sample};
use super::theme::COLOURS;
use super::{Format, Scale};

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
    /// Whether the axis is logarithmic.
    pub logarithmic: bool,
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

const PANEL_WIDTH: f64 = 520.0;
const PANEL_GAP: f64 = 28.0;
const PANEL_HEAD: f64 = 24.0;
const GROUP_GAP: f64 = 7.0;
/// Width for the value beside the longest bar.
const VALUE_WIDTH: f64 = 104.0;

impl BarChart {
    /// Returns the chart as an SVG file.
    pub fn svg(&self) -> String {
        let columns = self.panels.len().clamp(1, 2);
        let width = 2.0 * MARGIN + columns as f64 * PANEL_WIDTH + (columns - 1) as f64 * PANEL_GAP;
        let mut canvas = Canvas::default();
        let series = self.series.iter().enumerate().filter(|_| self.series.len() > 1);
        let key: Vec<Sample> = series.map(|(colour, name)| Sample { colour, name: name.clone() }).collect();
        let titles = [&*self.title, &self.subtitle];
        let mut y = head::draw(&mut canvas, titles, &key, self.limit.as_deref(), width - 2.0 * MARGIN);
        for row in self.panels.chunks(columns) {
            for (place, panel) in row.iter().enumerate() {
                let x = MARGIN + place as f64 * (PANEL_WIDTH + PANEL_GAP);
                self.draw_panel(&mut canvas, panel, (x, y));
            }
            y += row.iter().map(|panel| self.panel_height(panel)).fold(0.0, f64::max) + PANEL_GAP;
        }
        canvas.finish(width, y, &self.title, &format!("{}. {}.", self.subtitle, self.value))
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
        let gutter = (names as f64 * CHARACTER + 10.0).min(PANEL_WIDTH / 3.0);
        let plot = Rect {
            x: x + gutter,
            y: y + PANEL_HEAD,
            width: PANEL_WIDTH - gutter - VALUE_WIDTH,
            height: self.group_height() * panel.groups.len() as f64,
        };
        canvas.text((x, y + 14.0), Anchor::Start, "ink heading", &fitted(&panel.title, PANEL_WIDTH * 0.9));
        let scale = self.scale(panel, plot);
        axis::draw(canvas, plot, &scale, self.format, &self.value);
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
        let high = bars(panel).map(|bar| bar.mean.max(bar.whisker.1)).chain(panel.limit).fold(0.0, f64::max);
        let low = bars(panel).map(|bar| bar.mean).filter(|&mean| mean > 0.0).fold(f64::INFINITY, f64::min);
        match self.logarithmic {
            true => Scale::logarithmic(low, high, plot.x, plot.right()),
            false => Scale::linear(high, plot.x, plot.right()),
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
            if bar.has_whisker() {
                let (from, to) = (scale.at(bar.whisker.0), scale.at(bar.whisker.1));
                let middle = y + height / 2.0;
                canvas.line((from, middle), (to, middle), "whisker");
                canvas.line((from, middle - 3.0), (from, middle + 3.0), "whisker");
                canvas.line((to, middle - 3.0), (to, middle + 3.0), "whisker");
                right = end.max(to);
            }
            let class = if bar.mean <= best { "ink small best" } else { "quiet small" };
            canvas.text((right + 6.0, baseline), Anchor::Start, class, &label);
        }
    }
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
            logarithmic: false,
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
        let widths: Vec<f64> = svg
            .lines()
            .filter(|line| line.contains("<title>heft: "))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!((widths[0] - 2.0 * widths[1]).abs() < 0.02, "{widths:?}");
        let best = svg.lines().find(|line| line.contains("best\"")).unwrap();
        assert!(best.contains(">5<"), "{best}");
        assert!(svg.contains("a &amp; b") && svg.contains("lower bound") && svg.contains("fifo"));
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
