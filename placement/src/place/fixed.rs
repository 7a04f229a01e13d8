//! A given assignment, such as one from a plan file: verified, not chosen.

use super::{PlaceError, Placement, Placer, Reason};
use crate::check::check_placement;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Puts every task where it is told to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    device_of: Vec<DeviceId>,
}

impl Fixed {
    /// Task `t` goes on `device_of[t]`.
    pub fn new(device_of: Vec<DeviceId>) -> Self {
        Fixed { device_of }
    }
}

impl Placer for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    /// # Errors
    /// The first constraint that the assignment breaks.
    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        if let Some(violation) = check_placement(problem, &self.device_of).into_iter().next() {
            return Err(PlaceError::Violation(violation));
        }
        let reasons = vec![Reason::Given; self.device_of.len()];
        Ok(Placement { strategy: self.name(), device_of: self.device_of.clone(), reasons, planned: None })
    }
}
