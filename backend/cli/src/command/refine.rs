//! `anabranch run --refine`: runs, learns, places again, and keeps the plan with the fastest measurements.

use super::args::parse_percent;
use super::files::file_of;
use super::open::Opened;
use super::progress::Progress;
use super::{CliError, Output};
use anabranch::execute::RunOptions;
use anabranch::refine::{Measured, RefineOptions, Refined, Refinement, Round, Verdict, refine};
use anabranch_report::table::Table;
use anabranch_report::text::{digits, duration, interval};
use clap::Args;
use std::path::PathBuf;

/// Options of refinement.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Refinement")]
pub(super) struct RefineArgs {
    /// Run, learn and place again N times; keep the fastest plan
    ///
    /// Each round measures the new plans and each device alone. --repeat is then the number of measured runs of each
    /// plan per round (at least 5).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with = "no_learn")]
    pub(super) refine: Option<u32>,
    /// Try a plan only if predicted faster by N percent
    #[arg(long, value_name = "N", default_value_t = 2.0, hide_short_help = true, requires = "refine", value_parser = parse_threshold)]
    refine_threshold: f64,
    /// Write the last plan, for `run --place PLAN.json`
    #[arg(short = 'o', long, value_name = "PLAN.json", value_parser = file_of(&["json"]))]
    pub(super) write_plan: Option<PathBuf>,
}

/// Fewest measured runs of a plan in a round: with fewer, a median says little.
const FEWEST: u32 = 5;

impl RefineArgs {
    pub(super) fn refine(
        &self,
        rounds: u32,
        repeat: Option<u32>,
        opened: &Opened,
        run: RunOptions,
        output: Output,
    ) -> Result<Refined, CliError> {
        let options = RefineOptions::new(rounds, repeat.unwrap_or(FEWEST).max(FEWEST));
        let options = options.with_threshold(self.refine_threshold / 100.0).with_run(run);
        let progress = Progress::new(output, "runs", options.steps(&opened.session));
        Ok(refine(&opened.session, &opened.inputs, &options, &mut || progress.advance())?)
    }
}

fn parse_threshold(text: &str) -> Result<f64, String> {
    let percent = parse_percent(text)?;
    if percent < 100.0 { Ok(percent) } else { Err("write a number from 0 to 100".into()) }
}

/// Returns the rounds as text: one line for each plan of a round, and the plan that is kept at the end.
pub(super) fn table(refinement: &Refinement) -> String {
    let mut table = Table::new(">round | plan | >predicted | >measured | >interval | >nodes off | >links off | ");
    let percent = |error: Option<f64>| error.map_or(String::new(), |error| format!("{error:.0} %"));
    for round in &refinement.rounds {
        for (at, (measured, said)) in lines(round).into_iter().enumerate() {
            let median = measured.measured_ms;
            let errors = if at == 0 { [round.node_error_percent, round.link_error_percent] } else { [None, None] };
            table.row([
                if at == 0 { round.round.to_string() } else { String::new() },
                measured.place.clone(),
                measured.predicted_ms.map_or("–".into(), |ms| duration(ms * 1e-3)),
                duration(median.median * 1e-3),
                interval(median.low * 1e-3, median.high * 1e-3),
                percent(errors[0]),
                percent(errors[1]),
                said,
            ]);
        }
    }
    let kept = refinement.kept().map_or(String::new(), |kept| {
        let (place, median) = (&kept.place, duration(kept.measured_ms.median * 1e-3));
        format!("kept after the last round: the plan of {place}, median {median}\n\n")
    });
    format!(
        "nodes off, links off: Σ |predicted − measured| of Σ measured, with the costs before the round\n{table}\n{kept}"
    )
}

/// Returns the plans of a round, with a remark on each.
fn lines(round: &Round) -> Vec<(&Measured, String)> {
    let gain = round.predicted_gain_percent.map_or(String::new(), |gain| {
        format!(", predicted {} % {}", digits(gain.abs(), 0), if gain < 0.0 { "slower" } else { "faster" })
    });
    let (plan, proposal) = match round.verdict {
        Verdict::Unchanged => (format!("kept{gain}"), ""),
        Verdict::Kept => ("replaced".into(), "new, kept"),
        Verdict::Rejected => ("kept".into(), "new, rejected"),
        Verdict::Single => ("replaced".into(), "new, rejected"),
    };
    let mut lines = vec![(&round.plan, plan)];
    lines.extend(round.proposal.iter().map(|measured| (measured, format!("{proposal}{gain}"))));
    let fastest = round.singles.iter().map(|single| single.measured_ms.median).reduce(f64::min);
    lines.extend(round.singles.iter().map(|single| {
        let kept = round.verdict == Verdict::Single && Some(single.measured_ms.median) == fastest;
        (single, if kept { "single device, kept" } else { "single device" }.to_owned())
    }));
    lines
}
