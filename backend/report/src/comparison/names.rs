//! Names of configurations in tables and charts, and the terms for their errors and outputs.

use anabranch::compare::{Comparison, Outcome, Way};
use anabranch::plan::StreamMode;
use std::fmt::Write as _;

/// Definition of errors, for the heads of tables.
pub const ERRORS: &str = "error: (predicted − measured) / measured; nodes off: Σ |predicted − measured| of Σ measured";

/// Names configurations by the settings that differ among them.
pub struct Names {
    orders: bool,
    streams: bool,
}

impl Names {
    /// Returns names that distinguish the configurations of one comparison.
    pub fn of(comparison: &Comparison) -> Self {
        let ways = || comparison.outcomes.iter().map(|outcome| &outcome.way).filter(|way| way.order.is_some());
        let first = ways().next();
        Self {
            orders: ways().any(|way| first.is_some_and(|first| first.order != way.order)),
            streams: ways().any(|way| first.is_some_and(|first| first.stream != way.stream)),
        }
    }

    /// Returns names that distinguish the configurations in each of several comparisons.
    pub fn of_all(comparisons: &[&Comparison]) -> Self {
        let all: Vec<Self> = comparisons.iter().map(|one| Self::of(one)).collect();
        Self { orders: all.iter().any(|names| names.orders), streams: all.iter().any(|names| names.streams) }
    }

    /// Returns the name of a configuration.
    pub fn name(&self, way: &Way) -> String {
        let mut name = way.place.clone();
        if let Some(order) = way.order.as_ref().filter(|_| self.orders) {
            let _ = write!(name, "/{order}");
        }
        if let Some(stream) = way.stream.filter(|_| self.streams) {
            let _ = write!(name, "/{}", stream_name(stream));
        }
        name
    }
}

/// Returns a streaming mode as typed on a command line.
pub fn stream_name(stream: StreamMode) -> &'static str {
    match stream {
        StreamMode::Off => "off",
        StreamMode::Auto => "auto",
        StreamMode::Always => "always",
    }
}

/// Returns how a configuration's outputs compare with the first one's.
pub fn agreement(outcome: &Outcome) -> &'static str {
    match (outcome.outputs.same_bits, outcome.outputs.within) {
        (true, _) => "same",
        (false, true) => "close",
        (false, false) => "DIFFER",
    }
}
