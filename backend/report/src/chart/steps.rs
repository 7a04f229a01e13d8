//! A quantity that changes in steps, filled down to a base line.

use super::Scale;
use super::canvas::{Canvas, Rect};
use super::lanes::Quantity;
use super::theme::COLOURS;

/// Draws the steps from moment to moment: each value holds until the next. Values are scaled so that `most` fills
/// `track`. If several steps fall on one pixel, the greatest is drawn, so that a file has at most as many points as
/// pixels.
pub(super) fn draw(canvas: &mut Canvas, track: Rect, scale: &Scale, quantity: &Quantity) {
    let Quantity { colour, steps, most, end } = quantity;
    let (base, colour) = (track.bottom(), colour % COLOURS);
    let height = |value: f64| base - track.height * (value / most.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut last = base;
    for column in columns(steps, scale) {
        let y = height(column.most);
        points.extend([(column.x, last), (column.x, y)]);
        last = height(column.last);
        if last != y {
            points.push((column.x, last));
        }
    }
    points.push((scale.at(*end), last));
    canvas.polyline(&points, Some(base), &format!("c{colour} area"));
    canvas.polyline(&points, None, &format!("l{colour} step"));
}

/// The steps that fall on one column of half a pixel.
struct Column {
    x: f64,
    most: f64,
    last: f64,
}

fn columns(steps: &[(f64, f64)], scale: &Scale) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for &(time, value) in steps {
        let x = (scale.at(time) * 2.0).round() / 2.0;
        match columns.last_mut().filter(|column| column.x == x) {
            Some(column) => {
                column.most = column.most.max(value);
                column.last = value;
            }
            None => columns.push(Column { x, most: value, last: value }),
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(steps: &[(f64, f64)]) -> String {
        let track = Rect { x: 0.0, y: 0.0, width: 100.0, height: 10.0 };
        let quantity = Quantity { colour: 0, steps: steps.to_vec(), most: 4.0, end: 100.0 };
        let mut canvas = Canvas::default();
        draw(&mut canvas, track, &Scale::linear(100.0, 0.0, 100.0), &quantity);
        canvas.finish(100.0, 10.0, "", "")
    }

    #[test]
    fn values_hold_until_the_next_step() {
        let svg = drawn(&[(0.0, 2.0), (50.0, 4.0)]);
        assert!(svg.contains("d=\"M0 10 L0 5 L50 5 L50 0 L100 0\" class=\"l0 step\""), "{svg}");
    }

    #[test]
    fn many_steps_on_a_pixel_become_their_greatest() {
        let mut steps: Vec<(f64, f64)> = (0..100_000).map(|n| (f64::from(n) * 1e-3, f64::from(n % 3))).collect();
        steps[50_010].1 = 4.0;
        let svg = drawn(&steps);
        assert!(svg.len() < 30_000 && svg.contains(" 0 L"), "{}", svg.len());
        drawn(&[]);
    }
}
