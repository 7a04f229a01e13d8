//! Results of an operator's tests: how many pass, the types that pass, and whether GPUs have kernels for the nodes.

use super::{Case, Outcome, one_cpu};
use anabranch::session::{Inputs, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Results of one operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of tests that pass on a CPU.
    pub passed: usize,
    /// Number of passing tests for whose nodes GPUs have kernels.
    pub on_gpu: usize,
    /// Number of tests that are refused.
    pub refused: usize,
    /// Types of the first inputs of tests that pass.
    pub types: BTreeSet<String>,
    /// Reasons for which tests are refused.
    pub reasons: BTreeSet<String>,
}

/// Tallies by domain and operator.
pub type Tallies = BTreeMap<(String, String), Tally>;

/// Returns the results of operators from their tests of a single node.
pub fn tallies(cases: &[Case], outcomes: &[Outcome]) -> Tallies {
    let mut tallies = Tallies::new();
    for (case, outcome) in cases.iter().zip(outcomes) {
        let Ok(session) = Session::survey(case.folder.join("model.onnx"), one_cpu()) else { continue };
        let [node] = &session.model().nodes[..] else { continue };
        let domain = if node.domain.is_empty() { "ai.onnx" } else { &node.domain };
        let tally = tallies.entry((domain.to_owned(), node.op_type.clone())).or_default();
        match outcome {
            Outcome::Passed => {
                tally.passed += 1;
                tally.on_gpu += usize::from(has_gpu_kernels(case, &session));
                tally.types.extend(session.inputs().first().and_then(|input| Some(input.dtype()?.to_string())));
            }
            Outcome::Refused(refusal) => {
                tally.refused += 1;
                tally.reasons.insert(refusal.reason.clone());
            }
            Outcome::Wrong(_) | Outcome::Panicked(_) => {}
        }
    }
    tallies
}

/// Whether GPUs have kernels for all nodes of the test's lowered model.
fn has_gpu_kernels(case: &Case, session: &Session) -> bool {
    let inputs = case.inputs(&case.folder.join("test_data_set_0"), session).unwrap_or_default();
    let planned = session.fill_random(inputs, 0).and_then(|inputs: Inputs| session.plan(&inputs));
    planned.is_ok_and(|planned| session.gpu_refusals(&planned.program).iter().all(Option::is_none))
}

/// Writes one operator per line: its domain and name, the counts of [`Tally`], types, and reasons after a bar.
pub fn write(tallies: &Tallies) -> String {
    tallies.iter().fold(String::new(), |mut text, ((domain, operator), tally)| {
        let Tally { passed, on_gpu, refused, types, reasons } = tally;
        let list = |all: &BTreeSet<String>, between: &str| all.iter().cloned().collect::<Vec<_>>().join(between);
        let types = if types.is_empty() { "-".to_owned() } else { list(types, ",") };
        let _ = writeln!(text, "{domain} {operator} {passed} {on_gpu} {refused} {types} |{}", list(reasons, "; "));
        text
    })
}

/// Reads the text of [`write()`]; other lines are skipped.
pub fn read(text: &str) -> Tallies {
    let tally = |line: &str| {
        let (facts, reasons) = line.split_once(" |")?;
        let [domain, operator, passed, on_gpu, refused, types] = facts.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let listed = |text: &str, between: &str| {
            text.split(between).filter(|part| !matches!(*part, "" | "-")).map(str::to_owned).collect()
        };
        let tally = Tally {
            passed: passed.parse().ok()?,
            on_gpu: on_gpu.parse().ok()?,
            refused: refused.parse().ok()?,
            types: listed(types, ","),
            reasons: listed(reasons, "; "),
        };
        Some(((domain.to_owned(), operator.to_owned()), tally))
    };
    text.lines().filter_map(tally).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_come_back_as_written() {
        let set = |all: &[&str]| all.iter().map(ToString::to_string).collect();
        let abs = Tally { passed: 3, on_gpu: 1, refused: 2, types: set(&["f32", "i64"]), reasons: set(&["a b", "c"]) };
        let key = |operator: &str| ("ai.onnx".to_owned(), operator.to_owned());
        let tallies = Tallies::from([(key("Abs"), abs), (key("Neg"), Tally::default())]);
        assert_eq!(read(&write(&tallies)), tallies);
        assert!(read("nothing like it\n").is_empty());
    }
}
