//! A worker's countdowns.

use super::error::Failure;

/// The gates of one worker: from its script's counts down to zero in each run.
#[derive(Debug)]
pub(super) struct Gates {
    counts: Vec<u32>,
    fresh: Vec<u32>,
}

impl Gates {
    /// Gates that begin each run with these counts.
    pub(super) fn new(fresh: &[u32]) -> Self {
        Self { counts: fresh.to_vec(), fresh: fresh.to_vec() }
    }

    /// Whether nothing is missing any more.
    pub(super) fn is_open(&self, gate: usize) -> bool {
        self.counts[gate] == 0
    }

    /// Counts down; whether the gate is open now.
    pub(super) fn count_down(&mut self, gate: u32) -> Result<bool, Failure> {
        let count = self.counts.get_mut(gate as usize).and_then(|count| count.checked_sub(1).map(|less| (count, less)));
        let Some((count, less)) = count else {
            return Err(Failure::internal("a gate was opened more often than the plan says"));
        };
        *count = less;
        Ok(less == 0)
    }

    /// Prepares the next run.
    pub(super) fn reset(&mut self) {
        self.counts.copy_from_slice(&self.fresh);
    }
}
