//! What a mapping should be good at.

use super::evaluate::Performance;
use serde::{Deserialize, Serialize};

/// What is sought; all times in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The least period, and of those mappings the least latency.
    Period,
    /// The least latency, and of those mappings the least period.
    Latency,
    /// The least period of mappings whose latency is no more than this.
    PeriodWithin {
        /// Most latency.
        latency: f64,
    },
    /// The least latency of mappings whose period is no more than this.
    LatencyWithin {
        /// Most period.
        period: f64,
    },
}

/// Limits are kept up to this part of them, since sums of the same times in another order differ by roundings.
const ROUNDING: f64 = 1e-12;

/// Whether a time is within a limit, but for roundings.
pub(super) fn within(time: f64, limit: f64) -> bool {
    time <= limit + limit.abs() * ROUNDING
}

impl Goal {
    /// Most period and latency that are allowed.
    pub fn limits(self) -> Performance {
        let none = f64::INFINITY;
        match self {
            Goal::Period | Goal::Latency => Performance { period: none, latency: none },
            Goal::PeriodWithin { latency } => Performance { period: none, latency },
            Goal::LatencyWithin { period } => Performance { period, latency: none },
        }
    }

    /// Whether a performance keeps the limits, but for roundings (a part in 10^12).
    pub fn admits(self, performance: Performance) -> bool {
        let limits = self.limits();
        within(performance.period, limits.period) && within(performance.latency, limits.latency)
    }

    /// What is to be small, and what decides between equals.
    pub fn key(self, performance: Performance) -> (f64, f64) {
        match self {
            Goal::Period | Goal::PeriodWithin { .. } => (performance.period, performance.latency),
            Goal::Latency | Goal::LatencyWithin { .. } => (performance.latency, performance.period),
        }
    }

    /// Whether the first performance is better than the second, by more than roundings.
    pub fn prefers(self, first: Performance, second: Performance) -> bool {
        let ((a, b), (c, d)) = (self.key(first), self.key(second));
        !within(c, a) || (within(a, c) && !within(d, b))
    }
}
