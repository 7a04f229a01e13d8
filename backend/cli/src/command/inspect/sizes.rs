//! Sizes of open dimensions: sizes with which a model runs, and impossible sizes.

use super::attempt::Attempt;
use super::search::{Found, in_words};
use super::sentence;
use crate::command::hints::dimension;
use anabranch_report::text::count;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Sizes that were tried.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sizes {
    dimensions: Vec<Dimension>,
    /// Elements of inputs that determine shapes and are not given.
    elements: BTreeMap<String, &'static str>,
    attempts: usize,
    /// Some of the failed attempts, each at another node.
    failed: Vec<Failed>,
}

/// A dimension, and its sizes while other dimensions keep theirs.
#[derive(Clone, Debug, Serialize)]
struct Dimension {
    name: String,
    /// Size with which the model runs or gets furthest.
    size: usize,
    possible: Vec<usize>,
    impossible: Vec<usize>,
    /// Reason of the first impossible size.
    reason: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Failed {
    sizes: BTreeMap<String, usize>,
    reason: String,
    #[serde(skip)]
    words: String,
}

impl Sizes {
    /// Takes the result of a search. `random` names inputs that determine shapes and are not given.
    pub(super) fn of(found: &Found, random: &[String]) -> Self {
        let Attempt { sizes, elements, .. } = &found.best.attempt;
        let dimension = |(name, size): (&String, &usize)| {
            let varied = found.varied.get(name).cloned().unwrap_or_default();
            Dimension {
                name: name.clone(),
                size: *size,
                possible: varied.works.into_iter().collect(),
                reason: varied.fails.values().next().cloned(),
                impossible: varied.fails.into_keys().collect(),
            }
        };
        let failed = |(attempt, reason): &(Attempt, String)| Failed {
            sizes: attempt.sizes.clone(),
            reason: reason.clone(),
            words: in_words(attempt),
        };
        Self {
            dimensions: sizes.iter().map(dimension).collect(),
            elements: random
                .iter()
                .map(|name| (name.clone(), elements.get(name).map_or("random", |own| own.about())))
                .collect(),
            attempts: found.attempts,
            failed: found.failed.iter().map(failed).collect(),
        }
    }

    /// Returns the flags that give these sizes.
    fn flags(&self) -> String {
        self.dimensions.iter().map(|open| dimension(&open.name, open.size)).collect::<Vec<_>>().join(" ")
    }

    /// Returns the lines to print; empty for a model without open dimensions.
    pub(super) fn text(&self, runs: bool) -> String {
        let mut text = String::new();
        if self.dimensions.is_empty() && self.elements.is_empty() {
            return text;
        }
        let attempts = count(self.attempts, "attempt");
        match (self.dimensions.is_empty(), runs) {
            (true, _) => {}
            (false, true) => {
                text += &sentence(&format!(
                    "some sizes were not given; the model runs with {} ({attempts}); varied one at a time:",
                    self.flags()
                ));
            }
            (false, false) => {
                text += &sentence(&format!(
                    "some sizes were not given; the model gets furthest with {} ({attempts})",
                    self.flags()
                ));
            }
        }
        for (name, elements) in &self.elements {
            text +=
                &sentence(&format!("the elements of `{name}` determine shapes and were not given; tried: {elements}"));
        }
        self.dimensions.iter().filter(|_| runs).for_each(|open| text += &sentence(&open.to_string()));
        self.failed.iter().filter(|_| self.attempts > 1).for_each(|failed| text += &sentence(&failed.to_string()));
        text
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |sizes: &[usize]| sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "{}: works with {}", self.name, list(&self.possible))?;
        match &self.reason {
            Some(reason) => write!(f, "; fails with {} ({reason})", list(&self.impossible)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not with {}: {}", self.words, self.reason)
    }
}
