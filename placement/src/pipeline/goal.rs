//! Objectives of a mapping.

use super::evaluate::Performance;
use serde::{Deserialize, Serialize};

/// Objective of a mapping; all times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The least period, and of those mappings the least latency.
    Period,
    /// The least latency, and of those mappings the least period.
    Latency,
    /// The least period of mappings whose latency is no more than this.
    PeriodWithin {
        /// Greatest allowed latency.
        latency: f64,
    },
    /// The least latency of mappings whose period is no more than this.
    LatencyWithin {
        /// Greatest allowed period.
        period: f64,
    },
}

/// Relative tolerance of limits: sums of the same times in another order differ by rounding.
const ROUNDING: f64 = 1e-12;

/// Whether a time keeps a limit, except for rounding.
pub(super) fn within(time: f64, limit: f64) -> bool {
    time <= limit + limit.abs() * ROUNDING
}

impl Goal {
    /// Returns the greatest allowed period and latency.
    pub fn limits(self) -> Performance {
        let none = f64::INFINITY;
        match self {
            Goal::Period | Goal::Latency => Performance { period: none, latency: none },
            Goal::PeriodWithin { latency } => Performance { period: none, latency },
            Goal::LatencyWithin { period } => Performance { period, latency: none },
        }
    }

    /// Whether a performance keeps the limits, except for rounding (a part in 10^12).
    pub fn admits(self, performance: Performance) -> bool {
        let limits = self.limits();
        within(performance.period, limits.period) && within(performance.latency, limits.latency)
    }

    /// Returns the value to minimise and the tie-breaker.
    pub fn key(self, performance: Performance) -> (f64, f64) {
        match self {
            Goal::Period | Goal::PeriodWithin { .. } => (performance.period, performance.latency),
            Goal::Latency | Goal::LatencyWithin { .. } => (performance.latency, performance.period),
        }
    }

    /// Whether the first performance is better than the second by more than rounding.
    pub fn prefers(self, first: Performance, second: Performance) -> bool {
        let ((a, b), (c, d)) = (self.key(first), self.key(second));
        !within(c, a) || (within(a, c) && !within(d, b))
    }
}
