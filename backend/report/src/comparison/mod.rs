//! A comparison of configurations as a page of charts and tables, and as text.

mod distinct;
mod matrix;
mod names;
mod page;

pub use distinct::{Picture, distinct};
pub use matrix::text as matrix_text;
pub use names::{ERRORS, Names, agreement, stream_name};
pub use page::{page, page_after};

use crate::report::{typed, utc};
use crate::run::busy;
use anabranch::Session;
use anabranch::compare::Comparison;
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
        let facts = facts(session, &comparison);
        Self { comparison, facts, pictures }
    }
}

/// Returns the fastest configuration, or all whose intervals do not decide which is.
pub fn fastest(comparison: &Comparison, names: &Names) -> Option<(&'static str, String)> {
    if let Some(fastest) = comparison.fastest() {
        return Some(("fastest", names.name(&fastest.configuration)));
    }
    let equal: Vec<_> = comparison.equally_fast().iter().map(|outcome| names.name(&outcome.configuration)).collect();
    (!equal.is_empty()).then(|| ("no fastest, as intervals overlap:", equal.join(", ")))
}

/// Returns the facts at the head of the page.
fn facts(session: &Session, comparison: &Comparison) -> Vec<(&'static str, String)> {
    let host = &session.inventory().host;
    let mut facts = vec![
        ("model", format!("{}, {} nodes", comparison.model, comparison.nodes)),
        ("machine", format!("{} ({} cores, {}, {})", host.model, host.allowed_cores, host.os, host.arch)),
        ("devices", comparison.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ")),
        ("command", typed()),
        ("date", utc(SystemTime::now())),
    ];
    let names = Names::of(comparison);
    facts.extend(fastest(comparison, &names));
    facts.extend(busy(&comparison.load).map(|busy| ("busy machine", busy)));
    facts.extend(
        comparison
            .failed
            .iter()
            .map(|(configuration, reason)| ("failed", format!("{}: {reason}", names.name(configuration)))),
    );
    facts.extend(comparison.notes.iter().map(|note| ("note", note.clone())));
    facts
}
