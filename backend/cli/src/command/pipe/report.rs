//! Report of a pipeline: predictions and measurements.

use super::rounds::{Ran, Round};
use anabranch::device::format_bytes;
use anabranch::pipeline::{Measured, PipelinePlan};
use anabranch::session::Session;
use anabranch_report::table::Table;
use anabranch_report::text::{count, digits, duration, error, shortened};
use serde::Serialize;
use std::fmt;

/// Most characters of a stage's nodes.
const NODES: usize = 40;

/// Predictions and measurements. Times in seconds, sizes in bytes.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) model: String,
    /// Number of data sets that are done, that were done before, and that were requested.
    done: u64,
    skipped: u64,
    wanted: u64,
    /// Time from the first to the last result, and results per second in that time.
    seconds: f64,
    rate: f64,
    /// Difference of the measured period from the predicted, in percent.
    period_error_percent: Option<f64>,
    plan: PipelinePlan,
    measured: Measured,
    rounds: Vec<Round>,
    failure: Option<String>,
    notes: Vec<String>,
}

impl Report {
    pub(super) fn new(model: String, session: &Session, ran: &Ran, skipped: u64, wanted: u64) -> Self {
        let (plan, measured) = (ran.plan.clone(), ran.measured.clone());
        let seconds = ran.took.as_secs_f64();
        let off = (measured.period > 0.0).then(|| 100.0 * (plan.period / measured.period - 1.0));
        Self {
            model,
            done: ran.done,
            skipped,
            wanted,
            seconds,
            rate: ran.done as f64 / seconds.max(f64::MIN_POSITIVE),
            period_error_percent: off,
            plan,
            measured,
            rounds: ran.rounds.clone(),
            failure: ran.failure.as_ref().map(ToString::to_string),
            notes: session.inventory().notes.clone(),
        }
    }

    /// Returns the report if there was nothing to do.
    pub(super) fn nothing(skipped: u64) -> serde_json::Value {
        serde_json::json!({ "done": 0, "skipped": skipped, "wanted": 0 })
    }

    /// Returns a line with the figures of the whole pipeline.
    pub(super) fn headline(&self) -> String {
        let off = self.period_error_percent.map_or(String::new(), |off| format!(", predicted {}", error(off)));
        // A single result has no next result.
        let period =
            (self.measured.period > 0.0).then(|| format!(": one every {}{off}", duration(self.measured.period)));
        format!(
            "{} of {} in {}{}; latency {} (p50), {} (p95), {} (p99)",
            self.done,
            count(self.wanted, "sample"),
            duration(self.seconds),
            period.unwrap_or_default(),
            duration(self.measured.latency.p50),
            duration(self.measured.latency.p95),
            duration(self.measured.latency.p99),
        )
    }

    fn candidates(&self) -> Table {
        let mut table = Table::new("mapping | >period | >latency | stages on");
        for tried in &self.plan.candidates {
            let stages: Vec<String> = tried.devices.iter().map(|on| on.join(", ")).collect();
            let stages = if stages.is_empty() { "all devices".into() } else { stages.join(" > ") };
            let refused = tried.refused.as_ref().map_or(String::new(), |why| format!("; {why}"));
            let taken = if tried.how == self.plan.how { "* " } else { "  " };
            let how = format!("{taken}{}", tried.how);
            table.row([how, duration(tried.period), duration(tried.latency), stages + &refused]);
        }
        table
    }

    fn stages(&self) -> Table {
        let mut table = Table::new(">stage | device | >samples | >predicted | >measured | >busy | nodes");
        for (at, (stage, measured)) in self.plan.stages.iter().zip(&self.measured.stages).enumerate() {
            let ends = match &stage.nodes[..] {
                [first, .., last] => {
                    format!("{}: {} … {}", stage.nodes.len(), shortened(first, NODES), shortened(last, NODES))
                }
                nodes => nodes.join(""),
            };
            for (replica, predicted) in measured.devices.iter().zip(&stage.seconds) {
                table.row([
                    at.to_string(),
                    replica.device.clone(),
                    replica.data_sets.to_string(),
                    duration(*predicted),
                    duration(replica.seconds),
                    format!("{:.0} %", 100.0 * replica.busy),
                    ends.clone(),
                ]);
            }
        }
        table
    }

    fn rounds(&self) -> Table {
        let mut table = Table::new(">round | mapping | >samples | >predicted | >measured | >furthest off");
        for (at, round) in self.rounds.iter().enumerate() {
            table.row([
                at.to_string(),
                round.how.clone(),
                round.data_sets.to_string(),
                duration(round.predicted_period),
                duration(round.measured_period),
                format!("× {}", digits(round.off, 3)),
            ]);
        }
        table
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.model, self.headline())?;
        if self.skipped > 0 {
            writeln!(f, "{} were done already", self.skipped)?;
        }
        writeln!(f, "\nMappings, as predicted (* taken)\n{}", self.candidates())?;
        writeln!(f, "Stages: time for a sample\n{}", self.stages())?;
        if self.rounds.len() > 1 {
            writeln!(f, "Rounds: time between results\n{}", self.rounds())?;
        }
        let handover = duration(self.plan.handover);
        writeln!(f, "Handing over a sample takes {handover} at each stage; the prediction includes this")?;
        if self.measured.period > 1.1 * self.measured.stage_period {
            let own = duration(self.measured.stage_period);
            writeln!(
                f,
                "Stages alone could give one every {own}: hand-overs, reading, writing or other programs took the rest"
            )?;
        }
        let kept = self.plan.stages.iter().enumerate().filter(|(_, stage)| stage.state > 0);
        let kept = kept.map(|(at, stage)| format!("stage {at} {}", format_bytes(stage.state))).collect::<Vec<_>>();
        if !kept.is_empty() {
            writeln!(f, "State stays in its stage, with memory for the first and the next: {}", kept.join(", "))?;
        }
        let held = self.plan.held.iter().filter(|(_, bytes)| *bytes > 0);
        let held: Vec<String> = held.map(|(device, bytes)| format!("{device} {}", format_bytes(*bytes))).collect();
        writeln!(f, "\nMemory at most: {}; of that in flight {}", held.join(", "), format_bytes(self.plan.in_flight))
    }
}
