//! Tables in Markdown.

use crate::measure::{Outcome, Row, Survey};
use anabranch_placement::evaluate::Metrics;
use std::fmt::Write;

/// Returns the table of one problem.
pub(crate) fn of_survey(survey: &Survey) -> String {
    let baseline = &survey.baseline;
    let mut text = format!(
        "\n### {} on {}\n\n{} tasks, {} edges; no schedule is shorter than {} ({}).\n\n\
         | strategy | PCT | MSR | FIFO | planned | reference, PCT | gap | traffic | per edge | sends | use of devices | choices | peak memory | seconds |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        survey.graph,
        survey.devices,
        survey.tasks,
        survey.edges,
        number(baseline.bound.value),
        baseline.bound.kind,
    );
    for row in &survey.rows {
        text += &of_row(row);
    }
    if let Some(makespan) = survey.corrected_heft {
        let _ = writeln!(text, "\nThe reference's HEFT, mended, reaches {} under PCT.", number(makespan));
    }
    text
}

fn of_row(row: &Row) -> String {
    let under = |order| optional(row.run(order).map(|metrics| metrics.makespan));
    let best = row.best();
    let gap = row.run("pct").zip(best).map(|(pct, best)| percent(best / pct.bound.value - 1.0));
    let common = match (&row.outcome, row.run("pct")) {
        (Outcome::Refused(reason), _) => return format!("| {} | refused: {reason} |||||||||||||\n", row.strategy),
        (_, Some(run)) => format!(
            "{} | {} | {} | {} | {:.1} | {}",
            run.traffic,
            run.traffic_per_edge,
            run.sends,
            percent(run.utilisation),
            choices(run),
            run.peak_memory()
        ),
        (_, None) => "|||||".into(),
    };
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {common} | {:.4} |\n",
        row.strategy,
        under("pct"),
        under("msr"),
        under("fifo"),
        under("planned"),
        optional(row.reference),
        gap.unwrap_or_default(),
        row.place_seconds,
    )
}

/// Mean number of executable tasks over all decisions of all devices.
fn choices(run: &Metrics) -> f64 {
    let tasks: usize = run.devices.iter().map(|device| device.tasks).sum();
    let sum: f64 = run.devices.iter().map(|device| device.executable * device.tasks as f64).sum();
    sum / tasks.max(1) as f64
}

/// Returns a table with the best makespan of every strategy on every problem.
pub(crate) fn summary(surveys: &[Survey]) -> String {
    let names: Vec<&str> =
        surveys.first().map_or(&[][..], |survey| &survey.rows).iter().map(|row| row.strategy.as_str()).collect();
    let mut text = format!(
        "\n### Best makespan over all orders\n\n| problem | bound | {} |\n|---|--:|{}\n",
        names.join(" | "),
        "--:|".repeat(names.len())
    );
    for survey in surveys {
        let best: Vec<Option<f64>> = survey.rows.iter().map(Row::best).collect();
        let least = best.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let cells: Vec<String> = best
            .iter()
            .map(|makespan| match makespan {
                Some(makespan) if *makespan == least => format!("**{}**", number(*makespan)),
                Some(makespan) => number(*makespan),
                None => "refused".into(),
            })
            .collect();
        let _ = writeln!(
            text,
            "| {}, {} | {} | {} |",
            survey.graph,
            survey.devices,
            number(survey.baseline.bound.value),
            cells.join(" | ")
        );
    }
    text
}

fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn optional(value: Option<f64>) -> String {
    value.map(number).unwrap_or_default()
}

fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}
