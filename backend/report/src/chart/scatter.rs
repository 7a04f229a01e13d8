//! Points over two quantities, with the front of points that no other point beats in both.

use super::axis::{self, AXIS_HEIGHT};
use super::canvas::{Anchor, Canvas, Rect};
use super::head::{self, MARGIN, Sample};
use super::{Format, Scale};

/// A named point.
#[derive(Debug, Clone)]
pub struct Point {
    /// Tooltip.
    pub name: String,
    /// Position on the horizontal axis.
    pub x: f64,
    /// Position on the vertical axis.
    pub y: f64,
}

/// A chart of points. For both quantities less is better.
#[derive(Debug, Clone)]
pub struct Scatter {
    /// Title of the chart.
    pub title: String,
    /// Line on how it was made.
    pub subtitle: String,
    /// Name of the horizontal axis, with its unit.
    pub x: String,
    /// Name of the vertical axis, with its unit.
    pub y: String,
    /// Format of values.
    pub format: Format,
    /// All points except the front.
    pub points: Vec<Point>,
    /// Points of the front, by ascending x.
    pub front: Vec<Point>,
    /// Name of the front.
    pub front_name: String,
    /// Name and y value of a dashed line.
    pub limit: Option<(String, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// Width of the vertical axis' labels.
const LABELS: f64 = 76.0;
/// Half of a point's width.
const POINT: f64 = 4.0;

impl Scatter {
    /// Returns the chart as an SVG file.
    pub fn svg(&self) -> String {
        let mut canvas = Canvas::default();
        let key = [("a method", 0), (&*self.front_name, 1)].map(|(name, colour)| Sample { colour, name: name.into() });
        let limit = self.limit.as_ref().map(|(name, _)| &**name);
        let top = head::draw(&mut canvas, [&self.title, &self.subtitle], &key, limit, WIDTH - 2.0 * MARGIN);
        let plot = Rect { x: MARGIN + LABELS, y: top + 18.0, width: WIDTH - 2.0 * MARGIN - LABELS, height: HEIGHT };
        let all = || self.points.iter().chain(&self.front);
        let most = |of: fn(&Point) -> f64| all().map(of).filter(|value| value.is_finite()).fold(0.0, f64::max) * 1.05;
        let x = Scale::linear(most(|point| point.x), plot.x, plot.right());
        let y = Scale::linear(most(|point| point.y), plot.bottom(), plot.y);
        axis::draw(&mut canvas, plot, &x, self.format, &self.x);
        self.draw_vertical(&mut canvas, plot, &y);
        if let Some((_, value)) = &self.limit {
            canvas.line((plot.x, y.at(*value)), (plot.right(), y.at(*value)), "limit");
        }
        canvas.polyline(&steps(&self.front, &x, &y), None, "step l1");
        for (points, class) in [(&self.points, "c0"), (&self.front, "c1")] {
            for point in points {
                self.draw_point(&mut canvas, point, (x.at(point.x), y.at(point.y)), class);
            }
        }
        self.draw_names(&mut canvas, plot, (&x, &y));
        canvas.finish(WIDTH, plot.bottom() + AXIS_HEIGHT + MARGIN, &self.title, &self.subtitle)
    }

    fn draw_vertical(&self, canvas: &mut Canvas, plot: Rect, scale: &Scale) {
        for tick in scale.ticks((plot.height / 50.0) as usize) {
            let y = scale.at(tick);
            canvas.line((plot.x, y), (plot.right(), y), "grid");
            canvas.text((plot.x - 8.0, y + 4.0), Anchor::End, "quiet small", &(self.format)(tick));
        }
        canvas.line((plot.x, plot.bottom()), (plot.right(), plot.bottom()), "axis");
        canvas.text((plot.x, plot.y - 8.0), Anchor::Start, "quiet", &self.y);
    }

    fn draw_point(&self, canvas: &mut Canvas, point: &Point, (x, y): (f64, f64), class: &str) {
        let rect = Rect { x: x - POINT, y: y - POINT, width: 2.0 * POINT, height: 2.0 * POINT };
        let tip =
            format!("{}: {} {}, {} {}", point.name, self.x, (self.format)(point.x), self.y, (self.format)(point.y));
        canvas.rect(rect, POINT, class, Some(&tip));
    }

    /// Draws the names of the points. Points in one position share a line, and no name covers another.
    fn draw_names(&self, canvas: &mut Canvas, plot: Rect, (x, y): (&Scale, &Scale)) {
        let mut places: Vec<(f64, f64, String)> = Vec::new();
        for point in &self.points {
            let at = (x.at(point.x), y.at(point.y));
            match places.iter_mut().find(|(x, y, _)| (x - at.0).abs() < 24.0 && (y - at.1).abs() < 11.0) {
                Some((.., names)) => *names = format!("{names}, {}", point.name),
                None => places.push((at.0, at.1, point.name.clone())),
            }
        }
        for (x, y, names) in places {
            let right = x > plot.x + plot.width * 0.75;
            let (x, anchor) = if right { (x - 8.0, Anchor::End) } else { (x + 8.0, Anchor::Start) };
            canvas.text((x, y - 6.0), anchor, "ink small", &names);
        }
    }
}

/// Returns the border of the region that the front leaves possible.
fn steps(front: &[Point], x: &Scale, y: &Scale) -> Vec<(f64, f64)> {
    let mut line = Vec::new();
    for point in front {
        if let Some(&(_, before)) = line.last() {
            line.push((x.at(point.x), before));
        }
        line.push((x.at(point.x), y.at(point.y)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::amount;

    #[test]
    fn points_and_the_front_stand_where_they_are() {
        let point = |name: &str, x, y| Point { name: name.into(), x, y };
        let chart = Scatter {
            title: "T <1>".into(),
            subtitle: "of a test".into(),
            x: "latency".into(),
            y: "period".into(),
            format: amount,
            points: vec![point("h6", 17.0, 7.0), point("h7a", 17.0, 7.0), point("h2", 10.0, 20.0)],
            front: vec![point("exact", 12.0, 12.0), point("exact", 17.0, 7.0)],
            front_name: "front".into(),
            limit: Some(("bound".into(), 4.8)),
        };
        let svg = chart.svg();
        assert!(
            svg.contains("T &lt;1&gt;") && svg.contains(">h6, h7a</text>") && svg.contains("class=\"limit\""),
            "{svg}"
        );
        assert_eq!((svg.matches("class=\"c0\"").count(), svg.matches("class=\"step l1\"").count()), (4, 1), "{svg}");
        assert!(svg.contains("<title>h2: latency 10, period 20</title>"), "{svg}");
        assert_eq!(Scatter { points: Vec::new(), front: Vec::new(), ..chart }.svg().matches("class=\"step").count(), 0);
    }
}
