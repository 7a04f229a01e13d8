//! Distinct plans of a comparison. Configurations with one plan are listed once, under all their names. Shows how the
//! plan with the shortest median differs from the others.

use super::Names;
use crate::chart::html_table;
use crate::report::{RunLane, lanes};
use crate::text::{duration, shortened};
use anabranch::compare::{Comparison, DeviceOutcome, Outcome};
use anabranch::device::format_bytes;
use anabranch::plan::PlanDevice;
use anabranch::session::Run;
use std::collections::BTreeMap;

/// Activity in a run of a plan, as charts draw it.
pub struct Picture {
    /// Activity of devices and links, predicted and measured.
    pub lanes: Vec<RunLane>,
    /// Ends of the run, predicted and measured, in seconds.
    pub ends: [f64; 2],
    /// Device by operator of the model: plans with and without streaming have different nodes, but the same operators.
    operators: BTreeMap<String, OperatorRun>,
}

/// Device on which an operator ran.
#[derive(Clone, PartialEq)]
struct OperatorRun {
    device: String,
    /// The operator's node, and the node's time in seconds.
    node: String,
    seconds: f64,
}

impl Picture {
    /// Returns the number of the model's operators that ran.
    pub(super) fn operators(&self) -> usize {
        self.operators.len()
    }

    /// Returns the picture of a run with a profile.
    pub fn of(run: &Run) -> Self {
        let ((lanes, ends), plans) = (lanes(run), run.plans());
        let accuracy = run.accuracy();
        let operators = accuracy.nodes.iter().flat_map(|accuracy| {
            let planned = plans[accuracy.plan];
            let (node, device) =
                (planned.program.node(accuracy.node), planned.plan().device(accuracy.device).name.clone());
            let placed = OperatorRun { device, node: node.name.clone(), seconds: accuracy.time.measured };
            node.operators.iter().map(move |operator| (operator.name.clone(), placed.clone()))
        });
        Self { lanes, ends, operators: operators.collect() }
    }
}

/// Returns the distinct plans, each with the names of all its configurations.
pub fn distinct<'a>(comparison: &'a Comparison, names: &Names) -> Vec<(String, &'a Outcome)> {
    let mut found: Vec<(String, &Outcome)> = Vec::new();
    for outcome in &comparison.outcomes {
        let name = names.name(&outcome.configuration);
        match found.iter_mut().find(|(_, other)| outcome.plan.is_some() && other.plan == outcome.plan) {
            Some((all, _)) => *all = format!("{all} = {name}"),
            None => found.push((name, outcome)),
        }
    }
    found
}

/// Most nodes that are listed if a plan has them on other devices.
const NAMED: usize = 3;

/// Returns the differences of the plan of the shortest median from each other plan, as a table. Empty if that plan
/// never ran.
pub(super) fn differences(comparison: &Comparison, names: &Names, pictures: &BTreeMap<usize, Picture>) -> String {
    let Some(best) = comparison.best() else { return String::new() };
    let picture = |outcome: &Outcome| outcome.plan.and_then(|plan| pictures.get(&plan));
    let Some(own) = picture(best) else { return String::new() };
    let others = distinct(comparison, names).into_iter().filter(|(_, outcome)| outcome.plan != best.plan);
    let rows: Vec<Vec<String>> = others
        .map(|(name, outcome)| {
            let slower = outcome.measured_ms.median / best.measured_ms.median;
            let (nodes, moved) = picture(outcome).map_or(("–".into(), "–".into()), |other| elsewhere(own, other));
            let traffic = match [best, outcome].map(|outcome| format_bytes(outcome.traffic_bytes)) {
                [one, other] if one == other => format!("same ({one})"),
                [one, other] => format!("{one} / {other}"),
            };
            vec![name, format!("{slower:.2} ×"), nodes, moved, traffic, busiest(comparison, best, outcome)]
        })
        .collect();
    match rows.is_empty() {
        true => String::new(),
        false => {
            let best = names.name(&best.configuration);
            let [traffic, busy] = ["traffic", "busy"].map(|what| format!("{what}: {best} / other"));
            let moved = "operators on other devices";
            html_table(&["other plan", "its time", moved, "slowest of these nodes", &traffic, &busy], &rows)
        }
    }
}

/// Returns how many operators one plan has on other devices than the other, and the slowest nodes among them.
fn elsewhere(own: &Picture, other: &Picture) -> (String, String) {
    let there = |operator: &String| other.operators.get(operator);
    let pairs = own.operators.iter().filter_map(|(operator, here)| Some((here, there(operator)?)));
    let mut moved: Vec<_> = pairs.filter(|(here, there)| here.device != there.device).collect();
    let count = format!("{} of {}", moved.len(), own.operators.len());
    moved.sort_by(|(one, _), (next, _)| next.seconds.total_cmp(&one.seconds).then_with(|| one.node.cmp(&next.node)));
    moved.dedup_by(|(one, _), (next, _)| one.node == next.node);
    let told = |(here, there): &(&OperatorRun, &OperatorRun)| {
        let [takes, took] = [here, there].map(|placed| duration(placed.seconds));
        format!("{} on {} ({takes}), not {} ({took})", shortened(&here.node, 32), here.device, there.device)
    };
    let named: Vec<String> = moved.iter().take(NAMED).map(told).collect();
    (count, if named.is_empty() { "none: another order, or other streams".into() } else { named.join("; ") })
}

/// Returns the share of the time in which each device is busy under both plans.
fn busiest(comparison: &Comparison, best: &Outcome, other: &Outcome) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let devices = comparison.devices.iter().zip(&best.devices).zip(&other.devices);
    let line = |((device, one), other): ((&PlanDevice, &DeviceOutcome), &DeviceOutcome)| {
        format!("{} {} / {}", device.name, percent(one.utilisation), percent(other.utilisation))
    };
    devices.map(line).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_that_are_elsewhere_are_counted_and_their_longest_nodes_named() {
        let placed = |(at, on): (usize, &&str)| {
            let (device, node) = ((*on).to_owned(), format!("n{}", at.max(1)));
            (format!("o{at}"), OperatorRun { device, node, seconds: at as f64 })
        };
        let picture = |devices: [&str; 4]| Picture {
            lanes: Vec::new(),
            ends: [1.0, 1.0],
            operators: devices.iter().enumerate().map(placed).collect(),
        };
        let (count, named) = elsewhere(&picture(["a", "a", "b", "b"]), &picture(["b", "b", "a", "b"]));
        assert_eq!(count, "3 of 4");
        assert_eq!(named, "n2 on b (2.00 s), not a (2.00 s); n1 on a (1.00 s), not b (1.00 s)");
        assert!(elsewhere(&picture(["a"; 4]), &picture(["a"; 4])).1.starts_with("none"));
    }
}
