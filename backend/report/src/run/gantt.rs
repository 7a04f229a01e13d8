//! A run over time: in a terminal, two lines of 100 columns for each device and link; as a chart, every node and
//! transfer.

use crate::chart::{Interval, Lane, TimePanel, Timeline, busy};
use crate::report::{RunLane, key, lanes};
use crate::text::{duration, shortened};
use anabranch::session::Run;
use std::fmt;

/// Columns of the time axis. With names and shares, a line has 100.
const COLUMNS: usize = 66;
const NAMES: usize = 14;
/// Most lanes; a machine may have hundreds of cores.
const MOST_LANES: usize = 16;

/// A run over time: its lanes, and its predicted and measured ends.
pub struct Gantt {
    lanes: Vec<RunLane>,
    ends: [f64; 2],
}

impl Gantt {
    /// Returns the lanes of a run with a profile.
    pub fn of(run: &Run) -> Self {
        let (lanes, ends) = lanes(run);
        Self::new(lanes, ends)
    }

    /// Takes lanes, without empty ones.
    fn new(mut lanes: Vec<RunLane>, ends: [f64; 2]) -> Self {
        lanes.retain(|(_, intervals)| intervals.iter().any(|intervals| !intervals.is_empty()));
        Self { lanes, ends }
    }

    /// Returns the chart as an SVG file.
    pub fn svg(&self, title: String, subtitle: String) -> String {
        let ends = self.ends;
        let pair = |(name, [predicted, measured]): &RunLane| {
            let predicted = Lane::of(format!("{name} predicted"), predicted.clone(), ends[0]);
            vec![predicted, Lane::of("measured".into(), measured.clone(), ends[1])]
        };
        let chart = Timeline {
            title,
            subtitle,
            key: key(self.lanes.iter()),
            marks: ends.to_vec(),
            marks_name: "the last output is there, as predicted and as measured".into(),
            panels: vec![TimePanel { heading: String::new(), groups: self.lanes.iter().map(pair).collect() }],
            end: ends[0].max(ends[1]),
            time: "time since the run's start".into(),
            format: duration,
        };
        chart.svg()
    }
}

impl fmt::Display for Gantt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = self.ends[0].max(self.ends[1]).max(f64::MIN_POSITIVE);
        let end = duration(span);
        writeln!(f, "  {:NAMES$}  {:9}  0{end:>width$}", "", "", width = COLUMNS - 1)?;
        for (name, lanes) in self.lanes.iter().take(MOST_LANES) {
            let names = [shortened(name, NAMES), String::new()];
            for row in 0..2 {
                let (name, when, intervals) = (&names[row], ["predicted", "measured"][row], &lanes[row]);
                let share = 100.0 * busy(intervals, self.ends[row]);
                writeln!(f, "  {name:NAMES$}  {when:9}  {} {share:>3.0}%", drawn(intervals, span))?;
            }
        }
        match self.lanes.len().saturating_sub(MOST_LANES) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more; --gantt FILE.svg draws them all"),
        }
    }
}

/// Returns a line as long as the axis: the shade of each column is its busy share.
fn drawn(intervals: &[Interval], span: f64) -> String {
    let mut filled = vec![0.0; COLUMNS];
    let at = |time: f64| time / span * COLUMNS as f64;
    for interval in intervals {
        let (start, end) = (at(interval.start), at(interval.end).min(COLUMNS as f64));
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

    fn interval(start: f64, end: f64) -> Interval {
        Interval { start, end, colour: 0, tip: "conv".into() }
    }

    #[test]
    fn columns_are_as_dark_as_they_are_busy() {
        let line = drawn(&[interval(0.0, 34.0), interval(34.0, 35.0), interval(50.0, 66.0)], 66.0);
        assert_eq!(line, format!("{}{}{}", "█".repeat(35), "·".repeat(15), "█".repeat(16)));
        let line = drawn(&[interval(0.0, 3.0), interval(5.0, 6.0)], 660.0);
        assert_eq!(line, format!("▒{}", "·".repeat(65)));
        assert_eq!(drawn(&[], 66.0), "·".repeat(66));
    }

    #[test]
    fn lines_fit_a_terminal_and_idle_lanes_are_left_out() {
        let lane = |n| (format!("a rather long device {n}"), [vec![interval(0.0, 9e-9)], vec![interval(0.0, 9e-9)]]);
        let mut lanes: Vec<RunLane> = (0..20).map(lane).collect();
        lanes.push(("idle".into(), [vec![], vec![]]));
        let gantt = Gantt::new(lanes, [1e-8, 1.234567e-3]);
        let text = gantt.to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_eq!(text.lines().count(), 1 + 2 * 16 + 1);
        assert!(text.ends_with("and 4 more; --gantt FILE.svg draws them all\n") && text.contains("1.23 ms"), "{text}");
        let svg = Gantt { ends: [1e-8, 2e-8], ..gantt }.svg("a <b>".into(), "c".into());
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("idle"), "{svg}");
        assert!(svg.contains("node on a CPU") && !svg.contains("node on a GPU"), "{svg}");
        assert_eq!(svg.matches("<title>conv</title>").count(), 2 * 20);
    }
}
