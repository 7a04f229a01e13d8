//! A run over time: in a terminal, two lines of 100 columns for each device and link; as a chart, every node and transfer.

use super::table::{duration, shortened};
use crate::chart::{Interval, Lane, SEND_COLOUR, TimePanel, Timeline};
use crate::report::{Bar, RunLane, lanes};
use anabranch::session::Run;
use anabranch_placement::platform::DeviceKind;
use std::fmt;

/// Columns of the time axis; with names and shares a line has 100.
const COLUMNS: usize = 66;
/// Columns of names.
const NAMES: usize = 14;
/// Lanes at most; a machine may have hundreds of cores.
const MOST_LANES: usize = 16;

/// A run over time.
pub(super) struct Gantt {
    lanes: Vec<RunLane>,
    ends: [u64; 2],
}

impl Gantt {
    /// Of a run that was profiled.
    pub(super) fn of(run: &Run) -> Self {
        let (lanes, ends) = lanes(run);
        Self { lanes, ends }
    }

    /// As an SVG file.
    pub(super) fn svg(&self, title: String, subtitle: String) -> String {
        let pair = |lane: &RunLane| {
            let colour = match lane.kind {
                Some(DeviceKind::Cpu) => 0,
                Some(_) => 1,
                None => SEND_COLOUR,
            };
            let row = |name: String, bars: &[Bar], end: u64| Lane {
                name,
                note: format!("{:.0} %", 100.0 * busy(bars) / end.max(1) as f64),
                intervals: bars.iter().map(|bar| interval(bar, colour)).collect(),
                ..Lane::default()
            };
            let predicted = row(format!("{} predicted", lane.name), &lane.predicted, self.ends[0]);
            vec![predicted, row("measured".into(), &lane.measured, self.ends[1])]
        };
        let groups = self.lanes.iter().filter(|lane| !lane.is_idle()).map(pair).collect();
        let ends = self.ends.map(seconds);
        let chart = Timeline {
            title,
            subtitle,
            key: Vec::new(),
            marks: ends.to_vec(),
            marks_name: "the last output is there, as predicted and as measured".into(),
            panels: vec![TimePanel { heading: String::new(), groups }],
            end: ends[0].max(ends[1]),
            time: "time since the run's start".into(),
            format: duration,
        };
        chart.svg()
    }
}

impl RunLane {
    fn is_idle(&self) -> bool {
        self.predicted.is_empty() && self.measured.is_empty()
    }
}

fn interval(bar: &Bar, colour: usize) -> Interval {
    let (start, end) = (seconds(bar.start), seconds(bar.end));
    let tip = format!("{}: {}, from {} to {}", bar.name, duration(end - start), duration(start), duration(end));
    Interval { start, end, colour, tip }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

/// Time that some bars take, without what they share.
fn busy(bars: &[Bar]) -> f64 {
    let (mut sum, mut reached) = (0, 0);
    for bar in bars {
        sum += bar.end.saturating_sub(bar.start.max(reached));
        reached = bar.end.max(reached);
    }
    sum as f64
}

impl fmt::Display for Gantt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = self.ends[0].max(self.ends[1]).max(1);
        let end = duration(seconds(span));
        writeln!(f, "  {:NAMES$}  {:9}  0{end:>width$}", "", "", width = COLUMNS - 1)?;
        let busy_lanes: Vec<_> = self.lanes.iter().filter(|lane| !lane.is_idle()).collect();
        for lane in busy_lanes.iter().take(MOST_LANES) {
            let rows = [("predicted", &lane.predicted, self.ends[0]), ("measured", &lane.measured, self.ends[1])];
            for (row, (when, bars, end)) in rows.into_iter().enumerate() {
                let name = if row == 0 { shortened(&lane.name, NAMES) } else { String::new() };
                let share = 100.0 * busy(bars) / end.max(1) as f64;
                writeln!(f, "  {name:NAMES$}  {when:9}  {} {share:>3.0}%", drawn(bars, span))?;
            }
        }
        match busy_lanes.len().saturating_sub(MOST_LANES) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more; --gantt FILE.svg draws them all"),
        }
    }
}

/// A line as long as the axis: each column as dark as its share of the time is busy.
fn drawn(bars: &[Bar], span: u64) -> String {
    let mut filled = vec![0.0; COLUMNS];
    let at = |time: u64| time as f64 / span as f64 * COLUMNS as f64;
    for bar in bars {
        let (start, end) = (at(bar.start), at(bar.end).min(COLUMNS as f64));
        let mut column = start as usize;
        while column < COLUMNS && (column as f64) < end {
            filled[column] += (end.min(column as f64 + 1.0) - start.max(column as f64)).max(0.0);
            column += 1;
        }
    }
    let shade = |share: &f64| match *share {
        s if s <= 0.0 => '·',
        s if s < 0.25 => '░',
        s if s < 0.5 => '▒',
        s if s < 0.75 => '▓',
        _ => '█',
    };
    filled.iter().map(shade).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(start: u64, end: u64) -> Bar {
        Bar { name: "conv".into(), start, end }
    }

    #[test]
    fn columns_are_as_dark_as_they_are_busy() {
        let line = drawn(&[bar(0, 34), bar(34, 35), bar(50, 66)], 66);
        assert_eq!(line, format!("{}{}{}", "█".repeat(35), "·".repeat(15), "█".repeat(16)));
        assert_eq!(drawn(&[bar(0, 3), bar(5, 6)], 660), format!("▒{}", "·".repeat(65)));
        assert_eq!(drawn(&[], 66), "·".repeat(66));
    }

    #[test]
    fn what_overlaps_counts_once() {
        assert_eq!(busy(&[bar(0, 10), bar(5, 12), bar(6, 8), bar(20, 21)]), 13.0);
    }

    #[test]
    fn lines_fit_a_terminal_and_idle_lanes_are_left_out() {
        let lane = |name: String, bars: Vec<Bar>| RunLane {
            name,
            kind: Some(DeviceKind::Gpu),
            predicted: bars.clone(),
            measured: bars,
        };
        let mut lanes: Vec<_> = (0..20).map(|n| lane(format!("a rather long device {n}"), vec![bar(0, 9)])).collect();
        lanes.push(lane("idle".into(), vec![]));
        let gantt = Gantt { lanes, ends: [10, 1_234_567] };
        let text = gantt.to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_eq!(text.lines().count(), 1 + 2 * 16 + 1);
        assert!(text.ends_with("and 4 more; --gantt FILE.svg draws them all\n") && text.contains("1.23 ms"), "{text}");
        let svg = Gantt { ends: [10, 20], ..gantt }.svg("a <b>".into(), "c".into());
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("idle"), "{svg}");
        assert_eq!(svg.matches("conv: 9.00 ns").count(), 2 * 20);
    }
}
