//! Lanes of what devices do over time, after figure 7.9 of Laich 2017: each stay a bar, idle time the bare lane.

use super::Scale;
use super::canvas::{Anchor, Canvas, Rect};
use std::collections::BTreeMap;

/// What a device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It computes.
    Task,
    /// It works on a send.
    Send,
}

/// A time that a device spends on one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Stay {
    /// On what.
    pub activity: Activity,
    /// From when.
    pub start: f64,
    /// Until when.
    pub end: f64,
    /// What a pointer over it shows.
    pub tip: String,
}

/// A device's lane.
#[derive(Debug, Clone)]
pub struct Lane {
    /// The device.
    pub name: String,
    /// Number of the colour of its tasks.
    pub colour: usize,
    /// What stands at the right end.
    pub note: String,
    /// What it does, by start, without overlaps.
    pub stays: Vec<Stay>,
}

/// The colour of sends: vermilion.
pub(super) const SEND_COLOUR: usize = 5;

/// Stays narrower than this many pixels are drawn together.
const NARROW: f64 = 1.0;
/// More stays than this have no tips, so that the file stays small.
const MOST_TIPS: usize = 4000;

/// Draws the lanes into `plot`, one below the other, with names to the left and notes to the right.
pub(super) fn draw(canvas: &mut Canvas, plot: Rect, scale: &Scale, lanes: &[Lane]) {
    let height = plot.height / lanes.len().max(1) as f64;
    let tips = lanes.iter().map(|lane| lane.stays.len()).sum::<usize>() <= MOST_TIPS;
    for (number, lane) in lanes.iter().enumerate() {
        let y = plot.y + height * number as f64;
        let pad = if height > 12.0 { 2.5 } else { 1.0 };
        let track = Rect { x: plot.x, y: y + pad, width: plot.width, height: height - 2.0 * pad };
        canvas.rect(track, 2.0, "lane", None);
        draw_labels(canvas, lane, track, height);
        draw_stays(canvas, lane, track, scale, tips);
    }
}

/// Name and note, in type that fits the lane.
pub(super) fn draw_labels(canvas: &mut Canvas, lane: &Lane, track: Rect, height: f64) {
    let size = if height >= 14.0 { "" } else { " small" };
    let baseline = track.y + track.height / 2.0 + 3.8;
    canvas.text((track.x - 8.0, baseline), Anchor::End, &format!("ink{size}"), &lane.name);
    canvas.text((track.right() + 8.0, baseline), Anchor::Start, &format!("quiet{size}"), &lane.note);
}

fn draw_stays(canvas: &mut Canvas, lane: &Lane, track: Rect, scale: &Scale, tips: bool) {
    let mut heap = Heap { track, shapes: BTreeMap::new() };
    let mut blur: Option<Blur> = None;
    for stay in lane.stays.iter().filter(|stay| stay.end > stay.start) {
        let (start, end) = (scale.at(stay.start), scale.at(stay.end));
        let colour = match stay.activity {
            Activity::Task => lane.colour,
            Activity::Send => SEND_COLOUR,
        };
        if end - start < NARROW {
            match &mut blur {
                Some(open) if start - open.end < NARROW => open.add(start, end, stay.activity),
                _ => {
                    let opened = Blur::of(start, end, stay.activity);
                    blur.replace(opened).into_iter().for_each(|done| heap.add_blur(&done, lane));
                }
            }
            continue;
        }
        blur.take().into_iter().for_each(|done| heap.add_blur(&done, lane));
        // A hairline of lane between two stays shows where one ends.
        let width = end - start - if end - start > 3.0 { 0.6 } else { 0.0 };
        if tips {
            canvas.rect(Rect { x: start, width, ..track }, 0.0, &format!("c{colour}"), Some(&stay.tip));
        } else {
            heap.add(start, width, OPAQUE, colour);
        }
    }
    blur.into_iter().for_each(|done| heap.add_blur(&done, lane));
    heap.draw(canvas);
}

/// Stays that are too narrow to be seen each, drawn as one bar that is as opaque as they fill it, in the colour of what takes most.
struct Blur {
    start: f64,
    end: f64,
    tasks: f64,
    sends: f64,
}

impl Blur {
    fn of(start: f64, end: f64, activity: Activity) -> Self {
        let mut blur = Blur { start, end, tasks: 0.0, sends: 0.0 };
        blur.add(start, end, activity);
        blur
    }

    fn add(&mut self, start: f64, end: f64, activity: Activity) {
        match activity {
            Activity::Task => self.tasks += end - start,
            Activity::Send => self.sends += end - start,
        }
        self.end = end;
    }
}

/// Steps of opacity.
const OPAQUE: u8 = 10;

/// Bars of one lane that need no elements of their own, by colour and opacity.
struct Heap {
    track: Rect,
    shapes: BTreeMap<(usize, u8), Vec<Rect>>,
}

impl Heap {
    fn add(&mut self, x: f64, width: f64, opacity: u8, colour: usize) {
        self.shapes.entry((colour, opacity)).or_default().push(Rect { x, width, ..self.track });
    }

    fn add_blur(&mut self, blur: &Blur, lane: &Lane) {
        let width = (blur.end - blur.start).max(0.7);
        // What is nearly nothing can still be seen.
        let share = ((blur.tasks + blur.sends) / width).clamp(0.5, 1.0);
        let colour = if blur.tasks >= blur.sends { lane.colour } else { SEND_COLOUR };
        self.add(blur.start, width, (share * f64::from(OPAQUE)).round() as u8, colour);
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

    fn stay(activity: Activity, start: f64, end: f64) -> Stay {
        Stay { activity, start, end, tip: format!("from {start}") }
    }

    fn drawn(stays: Vec<Stay>) -> String {
        let lane = Lane { name: "cpu0".into(), colour: 0, note: "50 %".into(), stays };
        let plot = Rect { x: 0.0, y: 0.0, width: 100.0, height: 20.0 };
        let mut canvas = Canvas::default();
        draw(&mut canvas, plot, &Scale::linear(100.0, 0.0, 100.0), &[lane]);
        canvas.finish(100.0, 20.0, "", "")
    }

    #[test]
    fn stays_are_where_and_as_long_as_they_are() {
        let svg = drawn(vec![stay(Activity::Task, 10.0, 30.0), stay(Activity::Send, 30.0, 32.0)]);
        assert!(svg.contains("x=\"10\" y=\"2.5\" width=\"19.4\" height=\"15\" class=\"c0\"><title>from 10</title>"));
        assert!(svg.contains("x=\"30\" y=\"2.5\" width=\"2\" height=\"15\" class=\"c5\""));
        assert!(svg.contains(">cpu0<") && svg.contains(">50 %<"));
    }

    #[test]
    fn narrow_stays_are_drawn_together() {
        let many = (0..1000).map(|n| stay(Activity::Task, f64::from(n) * 0.1, f64::from(n) * 0.1 + 0.05)).collect();
        let svg = drawn(many);
        assert_eq!(svg.matches("class=\"c0\"").count(), 1);
        assert!(svg.contains("fill-opacity=\"0.5\""), "{svg}");
    }
}
