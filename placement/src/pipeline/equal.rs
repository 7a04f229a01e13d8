//! Least latency under a period, for equal stages on processors of different speeds, without communication.
//!
//! This is the dynamic programme that Benoit and Robert prove to be optimal, with its recurrence corrected.
//!
//! By the lemma of the slides, some optimal mapping replicates intervals of stages on intervals of the `q` fastest
//! processors, ordered by speed. `L(m, i, j)` is the least latency of `m` stages on processors `P_i … P_j`:
//!
//! ```text
//! L(m, i, j) = min( m w / s_i              if m w / ((j − i + 1) s_i) ≤ K,
//!                   L(m', i, k) + L(m − m', k + 1, j)   over 1 ≤ m' < m and i ≤ k < j )
//! ```
//!
//! The slides divide by `(j − i) s_i`, which counts one processor too few. For `i = j` this is zero, unless the
//! initialisation sets the value.

use super::goal::within;

/// Returns the least latency of `stages` stages of `work` operations each, with a period of at most `period`.
///
/// Speeds are in operations per second, times in seconds. Whole intervals may be replicated. Returns `None` if no
/// mapping keeps the period. `O(n² p³)` for each number of processors, `O(n² p⁴)` in total.
pub fn least_latency(stages: usize, work: f64, speeds: &[f64], period: f64) -> Option<f64> {
    let mut speeds = speeds.to_vec();
    speeds.sort_by(f64::total_cmp);
    let least = (1..=speeds.len()).map(|used| with_fastest(stages, work, &speeds[speeds.len() - used..], period));
    least.reduce(f64::min).filter(|latency| latency.is_finite())
}

/// Least latency if all of these processors, slowest first, are used.
fn with_fastest(stages: usize, work: f64, speeds: &[f64], period: f64) -> f64 {
    let count = speeds.len();
    let place = |m: usize, i: usize, j: usize| (m * count + i) * count + j;
    let mut least = vec![f64::INFINITY; (stages + 1) * count * count];
    for m in 1..=stages {
        for i in (0..count).rev() {
            for j in i..count {
                let alone = m as f64 * work / speeds[i];
                let mut best = if within(alone / (j - i + 1) as f64, period) { alone } else { f64::INFINITY };
                for first in 1..m {
                    for k in i..j {
                        best = best.min(least[place(first, i, k)] + least[place(m - first, k + 1, j)]);
                    }
                }
                least[place(m, i, j)] = best;
            }
        }
    }
    least[place(stages, 0, count - 1)]
}
