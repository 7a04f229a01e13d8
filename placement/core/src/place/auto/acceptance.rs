//! Late acceptance (Burke and Bykov 2017): a step may be as bad as the schedule was some steps ago.
//!
//! The search accepts worse schedules while it still improves fast, and fewer of them later, without a temperature
//! parameter.

/// Number of past steps to compare with.
const HISTORY: usize = 50;

/// Makespans of the last steps.
pub(super) struct LateAcceptance {
    history: Vec<f64>,
    step: usize,
}

impl LateAcceptance {
    /// Creates a history in which the search has been at `makespan` for all past steps.
    pub(super) fn new(makespan: f64) -> Self {
        LateAcceptance { history: vec![makespan; HISTORY], step: 0 }
    }

    /// Returns the greatest makespan of the next step if the search is at `current`.
    pub(super) fn limit(&self, current: f64) -> f64 {
        self.history[self.step].max(current)
    }

    /// Ends a step; the search is now at `current`.
    pub(super) fn end_step(&mut self, current: f64) {
        let remembered = &mut self.history[self.step];
        *remembered = remembered.min(current);
        self.step = (self.step + 1) % HISTORY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_good_enough_is_so_for_a_round() {
        let mut acceptance = LateAcceptance::new(10.0);
        acceptance.end_step(7.0);
        for _ in 1..HISTORY {
            assert_eq!(acceptance.limit(7.0), 10.0);
            acceptance.end_step(7.0);
        }
        assert_eq!(acceptance.limit(7.0), 7.0);
        assert_eq!(acceptance.limit(8.0), 8.0);
        acceptance.end_step(9.0);
        for _ in 0..HISTORY {
            assert_eq!(acceptance.limit(6.0), 7.0);
            acceptance.end_step(6.0);
        }
        assert_eq!(acceptance.limit(6.0), 6.0);
    }
}
