//! Report of a run of the ONNX backend tests: counts by kind, and refusals by operator and reason.
//!
//! A run fails if a test is wrong or panics, or if a test of the list of passing tests does not pass.

use super::{Case, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Outcomes of tests.
pub struct Report<'a> {
    outcomes: Vec<(&'a Case, &'a Outcome)>,
}

/// Number of all tests of one kind, and of those with each outcome.
#[derive(Default)]
struct Counts {
    all: usize,
    passed: usize,
    wrong: usize,
    refused: usize,
    panicked: usize,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        self.all += 1;
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Wrong(_) => self.wrong += 1,
            Outcome::Refused(_) => self.refused += 1,
            Outcome::Panicked(_) => self.panicked += 1,
        }
    }
}

impl<'a> Report<'a> {
    /// Creates a report of these tests and their outcomes.
    pub fn new(cases: &'a [Case], outcomes: &'a [Outcome]) -> Self {
        Self { outcomes: cases.iter().zip(outcomes).collect() }
    }

    /// Returns the names of the tests that pass, one per line.
    pub fn passing(&self) -> String {
        let passed = self.outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Passed);
        passed.map(|(case, _)| format!("{}\n", case.name)).collect()
    }

    /// Returns the refusals, one reason per line: number of tests, operator, reason, and the first of the tests.
    pub fn refused(&self) -> String {
        let line = |(count, operator, reason, first): (usize, &str, &str, &str)| {
            format!("{count:5}  {operator:24} {reason}  ({first})\n")
        };
        self.refusals().into_iter().map(line).collect()
    }

    /// Returns the reasons why the run fails: tests that are wrong or panic, and tests of the list that do not pass.
    pub fn faults(&self, passing: &str) -> Vec<String> {
        let listed: BTreeSet<&str> = passing.lines().collect();
        let fault = |(case, outcome): &(&Case, &Outcome)| match outcome {
            Outcome::Wrong(text) => Some(format!("{} is wrong: {text}", case.name)),
            Outcome::Panicked(text) => Some(format!("{} panics: {text}", case.name)),
            Outcome::Refused(refusal) if listed.contains(case.name.as_str()) => {
                let (operator, reason) = (&refusal.operator, &refusal.reason);
                Some(format!("{} is refused, but has passed: {operator} {reason}", case.name))
            }
            _ => None,
        };
        let found: BTreeSet<&str> = self.outcomes.iter().map(|(case, _)| case.name.as_str()).collect();
        let missing = listed.difference(&found).map(|name| format!("{name} is not there, but has passed"));
        self.outcomes.iter().filter_map(fault).chain(missing).collect()
    }

    fn counts(&self) -> BTreeMap<&str, Counts> {
        let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
        for (case, outcome) in &self.outcomes {
            let kind = case.name.split('/').next().unwrap_or_default();
            counts.entry(kind).or_default().add(outcome);
        }
        counts
    }

    /// Returns the refusals by operator and reason, with the first test of each; the most frequent first.
    fn refusals(&self) -> Vec<(usize, &str, &str, &str)> {
        let mut refusals: BTreeMap<(&str, &str), (usize, &str)> = BTreeMap::new();
        for (case, outcome) in &self.outcomes {
            if let Outcome::Refused(refusal) = outcome {
                refusals.entry((&refusal.operator, &refusal.reason)).or_insert((0, &case.name)).0 += 1;
            }
        }
        let mut rows: Vec<_> =
            refusals.into_iter().map(|((operator, reason), (count, first))| (count, operator, reason, first)).collect();
        rows.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
        rows
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.refused())?;
        for (kind, counts) in self.counts() {
            let Counts { all, passed, wrong, refused, panicked } = counts;
            writeln!(f, "{kind}: {passed} of {all} pass, {wrong} are wrong, {refused} refused, {panicked} panic")?;
        }
        Ok(())
    }
}
