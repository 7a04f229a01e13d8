//! A comparison of configurations as a page of charts and tables, and as text.

mod distinct;
mod matrix;
mod names;
mod page;

pub use distinct::{Picture, distinct};
pub use matrix::text as matrix_text;
pub use names::{DEFINITIONS, Names, agreement, by_callers, stream_name};
pub use page::{page, page_after};

use crate::report::{typed, utc};
use crate::run::{busy, one_device};
use crate::text::count;
use anabranch::Session;
use anabranch::compare::{Comparison, Outcome};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// A compared model with the content of its page.
pub struct Compared {
    /// Figures of all configurations.
    pub comparison: Comparison,
    /// Names and values at the head of the page.
    facts: Vec<(&'static str, String)>,
    /// By number of the plan: its profiled run that is nearest to the median.
    pictures: BTreeMap<usize, Picture>,
}

impl Compared {
    /// Takes a comparison that was made with `session`, and the pictures that its page draws, which may be empty.
    pub fn new(session: &Session, comparison: Comparison, pictures: BTreeMap<usize, Picture>) -> Self {
        let operators = pictures.values().next().map(Picture::operators);
        let facts = facts(session, &comparison, operators);
        Self { comparison, facts, pictures }
    }
}

/// Returns the fastest configuration, or all whose intervals do not decide which is.
pub fn fastest(comparison: &Comparison, names: &Names) -> Option<String> {
    let equal = comparison.fastest().map_or_else(|| comparison.equally_fast(), |fastest| vec![fastest]);
    let why = undecided(&equal);
    let equal: Vec<_> = equal.iter().map(|outcome| names.name(&outcome.configuration)).collect();
    Some(match &equal[..] {
        [] => return None,
        [one] if comparison.load.is_busy() => format!("{one}, but {BUSY}, so this is not certain"),
        [one] => one.clone(),
        several => format!("not certain, as {why}: {}", several.join(", ")),
    })
}

const BUSY: &str = "the machine was busy";
const OVERLAP: &str = "intervals overlap";
const FEW: &str = "fewer than five runs say too little (--repeat 5)";

/// Returns the reason why times do not show which outcome is faster.
fn undecided(outcomes: &[&Outcome]) -> &'static str {
    if outcomes.iter().all(|outcome| outcome.measured_ms.is_telling()) { OVERLAP } else { FEW }
}

/// Returns the reason why it is not certain which of two outcomes is faster, if there is one.
pub fn doubt(comparison: &Comparison, one: &Outcome, other: &Outcome) -> Option<&'static str> {
    let (first, second) = (&one.measured_ms, &other.measured_ms);
    match first.is_above(second) || second.is_above(first) {
        false => Some(undecided(&[one, other])),
        true => comparison.load.is_busy().then_some(BUSY),
    }
}

/// Returns the facts at the head of the page.
fn facts(session: &Session, comparison: &Comparison, operators: Option<usize>) -> Vec<(&'static str, String)> {
    let (host, nodes) = (&session.inventory().host, count(comparison.nodes, "node"));
    let nodes = match operators {
        Some(operators) => format!("{}, {nodes} after fusion", count(operators, "operator")),
        None => nodes,
    };
    let mut facts = vec![
        ("model", format!("{}, {nodes}", comparison.model)),
        ("machine", format!("{} ({}, {}, {})", host.model, count(host.allowed_cores, "core"), host.os, host.arch)),
        ("devices", comparison.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ")),
        ("command", typed()),
        ("date", utc(SystemTime::now())),
    ];
    let names = Names::of(comparison);
    facts.extend(fastest(comparison, &names).map(|fastest| ("fastest", fastest)));
    facts.extend(busy(&comparison.load).map(|busy| ("note", busy)));
    facts.extend(one_device(comparison.devices.len()).map(|advice| ("note", advice.to_owned())));
    facts.extend(
        comparison
            .failed
            .iter()
            .map(|(configuration, reason)| ("failed", format!("{}: {reason}", names.name(configuration)))),
    );
    facts.extend(comparison.notes.iter().map(|note| ("note", note.clone())));
    facts
}
