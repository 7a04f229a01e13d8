//! Lanes of the devices' activity over time, after figure 7.9 of Laich 2017: each interval a bar, idle time the bare
//! lane.

use super::canvas::{Anchor, Canvas, Rect, fitted};
use super::theme::COLOURS;
use super::{Scale, steps};
use std::collections::BTreeMap;

/// A time that a device spends on one activity.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// Start of the interval.
    pub start: f64,
    /// End of the interval, not before `start`.
    pub end: f64,
    /// Number of its colour.
    pub colour: usize,
    /// Tooltip.
    pub tip: String,
}

/// A device's lane.
#[derive(Debug, Clone, Default)]
pub struct Lane {
    /// Text at the left end.
    pub name: String,
    /// Text at the right end.
    pub note: String,
    /// Activity of the device, by start, without overlaps.
    pub intervals: Vec<Interval>,
    /// Quantity over time, instead of intervals.
    pub quantity: Option<Quantity>,
}

impl Lane {
    /// Returns a lane of intervals, with their share of the time until `end`.
    pub fn of(name: String, intervals: Vec<Interval>, end: f64) -> Self {
        Self { name, note: format!("{:.0} %", 100.0 * busy(&intervals, end)), intervals, quantity: None }
    }
}

/// Returns the share of the time until `end` that some intervals, by start, take. Overlaps count once.
pub fn busy(intervals: &[Interval], end: f64) -> f64 {
    let (mut sum, mut reached) = (0.0, 0.0f64);
    for interval in intervals {
        sum += (interval.end - interval.start.max(reached)).max(0.0);
        reached = reached.max(interval.end);
    }
    if end > 0.0 { sum / end } else { 0.0 }
}

/// A quantity that is constant from each moment to the next.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// Number of its colour.
    pub colour: usize,
    /// Moments and values, ascending.
    pub steps: Vec<(f64, f64)>,
    /// Value that fills the lane's height.
    pub most: f64,
    /// Time until which the last value holds.
    pub end: f64,
}

/// Colour of sends and links: vermilion.
pub const SEND_COLOUR: usize = 5;

/// Most width of a name, in pixels.
pub(super) const MOST_NAME: f64 = 226.0;

/// Intervals narrower than this many pixels are merged into one bar.
const NARROW: f64 = 1.0;
/// If there are more intervals than this, they have no tooltips, so that the file stays small.
const MOST_TIPS: usize = 4000;

/// Draws a lane in a row, with its name to the left and its note to the right. For `tips` see [`with_tips`].
pub(super) fn draw(canvas: &mut Canvas, row: Rect, scale: &Scale, lane: &Lane, tips: bool) {
    let pad = if row.height > 12.0 { 2.5 } else { 1.0 };
    let track = Rect { y: row.y + pad, height: row.height - 2.0 * pad, ..row };
    draw_labels(canvas, lane, track, row.height);
    match &lane.quantity {
        None => {
            canvas.rect(track, 2.0, "lane", None);
            draw_intervals(canvas, lane, track, scale, tips);
        }
        Some(quantity) => {
            canvas.line((track.x, track.bottom()), (track.right(), track.bottom()), "grid");
            if !quantity.steps.is_empty() {
                steps::draw(canvas, track, scale, quantity);
            }
        }
    }
}

/// Whether the intervals of all lanes are few enough for tooltips.
pub(super) fn with_tips<'a>(lanes: impl Iterator<Item = &'a Lane>) -> bool {
    lanes.map(|lane| lane.intervals.len()).sum::<usize>() <= MOST_TIPS
}

/// Draws name and note, in type that fits the lane.
fn draw_labels(canvas: &mut Canvas, lane: &Lane, track: Rect, height: f64) {
    let size = if height >= 14.0 { "" } else { " small" };
    let baseline = track.y + track.height / 2.0 + 3.8;
    canvas.text((track.x - 8.0, baseline), Anchor::End, &format!("ink{size}"), &fitted(&lane.name, MOST_NAME));
    canvas.text((track.right() + 8.0, baseline), Anchor::Start, &format!("quiet{size}"), &lane.note);
}

fn draw_intervals(canvas: &mut Canvas, lane: &Lane, track: Rect, scale: &Scale, tips: bool) {
    let mut merged = Merged { track, shapes: BTreeMap::new() };
    let mut run: Option<NarrowRun> = None;
    // Every other neighbour of the same colour is paler, so that they can be distinguished.
    let (mut last, mut pale) = (None, false);
    for interval in lane.intervals.iter().filter(|interval| interval.end > interval.start) {
        let (start, end) = (scale.at(interval.start), scale.at(interval.end));
        if end - start < NARROW {
            match &mut run {
                Some(open) if start - open.end < NARROW => open.add(start, end, interval.colour),
                _ => {
                    let opened = NarrowRun::of(start, end, interval.colour);
                    run.replace(opened).into_iter().for_each(|done| merged.add_run(&done));
                }
            }
            continue;
        }
        run.take().into_iter().for_each(|done| merged.add_run(&done));
        // A gap between two intervals shows where the first ends.
        let width = end - start - if end - start > 3.0 { 0.6 } else { 0.0 };
        if tips {
            let rect = Rect { x: start, width, ..track };
            pale = last == Some(interval.colour) && !pale;
            last = Some(interval.colour);
            let shade = if pale { " pale" } else { "" };
            canvas.rect(rect, 0.0, &format!("c{}{shade}", interval.colour), Some(&interval.tip));
        } else {
            merged.add(start, width, OPAQUE, interval.colour);
        }
    }
    run.into_iter().for_each(|done| merged.add_run(&done));
    merged.draw(canvas);
}

/// Neighbouring intervals too narrow to be visible, merged into one bar. Its opacity is the share of it that they fill,
/// and its colour the one that takes most.
struct NarrowRun {
    start: f64,
    end: f64,
    /// Filled pixels, by colour.
    filled: [f64; COLOURS],
}

impl NarrowRun {
    fn of(start: f64, end: f64, colour: usize) -> Self {
        let mut run = Self { start, end, filled: [0.0; COLOURS] };
        run.add(start, end, colour);
        run
    }

    fn add(&mut self, start: f64, end: f64, colour: usize) {
        self.filled[colour % COLOURS] += end - start;
        self.end = end;
    }
}

/// Number of steps of opacity.
const OPAQUE: u8 = 10;

/// Bars of one lane that need no separate elements, by colour and opacity.
struct Merged {
    track: Rect,
    shapes: BTreeMap<(usize, u8), Vec<Rect>>,
}

impl Merged {
    fn add(&mut self, x: f64, width: f64, opacity: u8, colour: usize) {
        self.shapes.entry((colour, opacity)).or_default().push(Rect { x, width, ..self.track });
    }

    fn add_run(&mut self, run: &NarrowRun) {
        let width = (run.end - run.start).max(0.7);
        // A bar that is almost empty stays visible.
        let share = (run.filled.iter().sum::<f64>() / width).clamp(0.5, 1.0);
        let colour = (0..COLOURS).rev().max_by(|one, other| run.filled[*one].total_cmp(&run.filled[*other]));
        self.add(run.start, width, (share * f64::from(OPAQUE)).round() as u8, colour.unwrap_or(0));
    }

    fn draw(self, canvas: &mut Canvas) {
        for ((colour, opacity), shapes) in self.shapes {
            canvas.rects(&shapes, f64::from(opacity) / f64::from(OPAQUE), &format!("c{colour}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(colour: usize, start: f64, end: f64) -> Interval {
        Interval { colour, start, end, tip: format!("from {start}") }
    }

    fn drawn(intervals: Vec<Interval>) -> String {
        let lane = Lane { note: "50 %".into(), ..Lane::of("cpu0".into(), intervals, 1.0) };
        let row = Rect { x: 0.0, y: 0.0, width: 100.0, height: 20.0 };
        let mut canvas = Canvas::default();
        draw(&mut canvas, row, &Scale::linear(100.0, 0.0, 100.0), &lane, true);
        canvas.finish(100.0, 20.0, "", "")
    }

    #[test]
    fn what_overlaps_counts_once() {
        let intervals =
            [(0.0, 10.0), (5.0, 12.0), (6.0, 8.0), (20.0, 21.0)].map(|(start, end)| interval(0, start, end));
        assert_eq!((busy(&intervals, 26.0), busy(&intervals, 0.0)), (0.5, 0.0));
    }

    #[test]
    fn intervals_are_where_and_as_long_as_they_are() {
        let svg = drawn(vec![interval(0, 10.0, 30.0), interval(SEND_COLOUR, 30.0, 32.0)]);
        assert!(svg.contains("x=\"10\" y=\"2.5\" width=\"19.4\" height=\"15\" class=\"c0\"><title>from 10</title>"));
        assert!(svg.contains("x=\"30\" y=\"2.5\" width=\"2\" height=\"15\" class=\"c5\""));
        assert!(svg.contains(">cpu0<") && svg.contains(">50 %<"));
        let svg = drawn((0..3).map(|at| interval(0, 10.0 * f64::from(at), 10.0 * f64::from(at) + 10.0)).collect());
        assert_eq!((svg.matches("class=\"c0\"").count(), svg.matches("class=\"c0 pale\"").count()), (2, 1), "{svg}");
    }

    #[test]
    fn narrow_intervals_are_drawn_together_in_the_colour_of_most() {
        let of =
            |n: u32| interval(if n.is_multiple_of(10) { 5 } else { 0 }, f64::from(n) * 0.1, f64::from(n) * 0.1 + 0.05);
        let svg = drawn((0..1000).map(of).collect());
        assert_eq!((svg.matches("class=\"c0\"").count(), svg.matches("class=\"c5\"").count()), (1, 0));
        assert!(svg.contains("fill-opacity=\"0.5\""), "{svg}");
    }
}
