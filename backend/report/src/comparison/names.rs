//! Names of configurations in tables and charts, and definitions of their errors.

use anabranch::compare::{Comparison, Configuration, Outcome};
use anabranch::plan::StreamMode;
use std::fmt::Write as _;

/// Definitions of columns, for the heads of tables.
pub const DEFINITIONS: [&str; 2] = [
    "error: (predicted − measured) / measured; placing: time to make the plan",
    "nodes off: Σ |predicted − measured| of Σ measured over nodes; links off: the same over copies",
];

/// Names configurations by the settings that differ among them.
pub struct Names {
    orders: bool,
    streams: bool,
}

impl Names {
    /// Returns names that distinguish the configurations of one comparison.
    pub fn of(comparison: &Comparison) -> Self {
        Self::among(comparison.outcomes.iter().map(|outcome| &outcome.configuration))
    }

    /// Returns names that distinguish these configurations.
    pub fn among<'a>(configurations: impl Iterator<Item = &'a Configuration>) -> Self {
        let planned: Vec<_> = configurations.filter(|configuration| configuration.order.is_some()).collect();
        Self {
            orders: planned.iter().any(|configuration| configuration.order != planned[0].order),
            streams: planned.iter().any(|configuration| configuration.stream != planned[0].stream),
        }
    }

    /// Returns names that distinguish the configurations in each of several comparisons.
    pub fn of_all(comparisons: &[&Comparison]) -> Self {
        let all: Vec<Self> = comparisons.iter().map(|one| Self::of(one)).collect();
        Self { orders: all.iter().any(|names| names.orders), streams: all.iter().any(|names| names.streams) }
    }

    /// Returns the name of a configuration.
    pub fn name(&self, configuration: &Configuration) -> String {
        let mut name = configuration.place.clone();
        if let Some(order) = configuration.order.as_ref().filter(|_| self.orders) {
            let _ = write!(name, "/{order}");
        }
        if let Some(stream) = configuration.stream.filter(|_| self.streams) {
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

/// Returns who made the runs, to continue a sentence on them; empty for a single caller.
pub fn by_callers(comparison: &Comparison) -> String {
    match comparison.callers.get() {
        1 => String::new(),
        callers => format!(" by each of {callers} callers at a time"),
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
