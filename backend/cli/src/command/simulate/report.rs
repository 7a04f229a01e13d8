//! Text output of `simulate`.

use super::SimulateCommand;
use anabranch::device::format_bytes;
use anabranch_placement::place::Proof;
use anabranch_placement::quoted::Line;
use anabranch_report::table::Table;
use anabranch_report::text::{amount, count, digits, duration};
use anabranch_report::trial::{Outcome, time_format, with_unit};
use std::fmt::Write;

impl SimulateCommand {
    /// Returns names and values, for people.
    pub(super) fn facts(&self, outcome: &Outcome<'_>) -> Vec<(&'static str, String)> {
        let Outcome { metrics, loaded, .. } = outcome;
        let format = |time| with_unit(loaded.facts.time_unit.as_deref(), time);
        let ratio = |ratio: Option<f64>, none: &str| ratio.map_or(none.into(), |ratio| format!("{ratio:.2}"));
        let gap = |gap: f64| format!(", {} % below", digits(100.0 * gap / (1.0 + gap), 1));
        let gap = metrics.gap.map_or(String::new(), gap);
        let alone = if loaded.graph.task_count() == 0 { "none" } else { "no device can take everything" };
        let traffic = |bytes| amount(bytes as f64 / loaded.facts.bytes_a_unit);
        let mut facts = vec![
            ("makespan", format(metrics.makespan)),
            ("lower bound", format!("{}{gap}, from the {}", format(metrics.bound.value), metrics.bound.kind)),
            ("schedule length ratio", ratio(metrics.slr, "none")),
            ("speedup over one device", ratio(metrics.speedup, alone)),
            ("utilisation", format!("{:.1} %", 100.0 * metrics.utilisation)),
            ("traffic", format!("{} in {}", traffic(metrics.traffic), count(metrics.sends, "send"))),
            ("traffic per edge", format!("{} over {} cut edges", traffic(metrics.traffic_per_edge), metrics.cut_edges)),
            ("placed in", duration(outcome.placed.time.as_secs_f64())),
            ("simulated in", duration(outcome.simulate_time.as_secs_f64())),
        ];
        if let Some(proof) = &outcome.placed.proof {
            facts.insert(2, ("exact search", proved(proof, format)));
        }
        facts
    }

    pub(super) fn text(&self, outcome: &Outcome<'_>) -> String {
        let Outcome { metrics, loaded, placed, .. } = outcome;
        let (tasks, devices) = (loaded.graph.task_count(), loaded.platform.device_count());
        let (strategy, order) = (placed.strategy, self.order.name());
        let mut text = format!(
            "{}: {} on {}, placed by {strategy}, order {order}\n\n",
            Line(&loaded.name),
            count(tasks, "task"),
            count(devices, "device")
        );
        for (name, value) in self.facts(outcome) {
            let _ = writeln!(text, "{name:<24} {value}");
        }
        let mut busiest: Vec<_> = metrics.devices.iter().collect();
        busiest.sort_by(|one, other| other.busy.total_cmp(&one.busy).then(one.device.cmp(&other.device)));
        let (format, _) = time_format(loaded.facts.time_unit.as_deref());
        let mut table =
            Table::new("device | kind | >tasks | >busy | >utilisation | >peak memory | >limit | >executable");
        for measured in busiest.iter().take(MOST_DEVICES) {
            let device = loaded.platform.device(measured.device);
            table.row([
                device.name.clone(),
                device.kind.to_string(),
                measured.tasks.to_string(),
                format(measured.busy),
                format!("{:.1} %", 100.0 * measured.utilisation),
                format_bytes(measured.peak_memory),
                device.memory.map_or("none".into(), format_bytes),
                format!("{:.1}", measured.executable),
            ]);
        }
        let _ = write!(text, "\n{table}");
        if devices > MOST_DEVICES {
            let _ = writeln!(text, "  … and {} less busy; --json lists all", devices - MOST_DEVICES);
        }
        text
    }
}

/// Returns what the exact search proved, as a sentence.
fn proved(proof: &Proof, format: impl Fn(f64) -> String) -> String {
    let (bound, makespan) = (format(proof.bound), format(proof.makespan));
    let gap = proof.gap().map_or("unknown".into(), |gap| format!("{} %", digits(100.0 * gap, 1)));
    match proof.nodes {
        Some(nodes) if proof.is_optimal() => format!("proven, {nodes} nodes: no schedule is shorter than {makespan}"),
        None if proof.is_optimal() => format!("proven by the lower bound: no schedule is shorter than {makespan}"),
        Some(nodes) => format!("stopped at its limit, {nodes} nodes; no schedule is shorter than {bound}, gap {gap}"),
        None => format!("too large, so as by auto; no schedule is shorter than {bound}, gap {gap}"),
    }
}

const MOST_DEVICES: usize = 20;

/// Returns a table with a line for each problem.
pub(super) fn summary(outcomes: &[Outcome<'_>]) -> Table {
    let mut table = Table::new("problem | >tasks | >devices | >makespan | >bound | >gap | >sends | >placed in");
    for Outcome { loaded, metrics, placed, .. } in outcomes {
        let format = |time| match loaded.facts.time_unit.as_deref() {
            None => amount(time),
            unit => with_unit(unit, time),
        };
        table.row([
            loaded.name.clone(),
            loaded.graph.task_count().to_string(),
            loaded.platform.device_count().to_string(),
            format(metrics.makespan),
            format(metrics.bound.value),
            metrics.gap.map_or(String::new(), |gap| format!("{} %", digits(100.0 * gap, 1))),
            metrics.sends.to_string(),
            duration(placed.time.as_secs_f64()),
        ]);
    }
    table
}
