//! Given assignment, such as one from a plan file: it is verified, not chosen.

use super::{PlaceError, Placement, Placer, Reason};
use crate::check::check_placement;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Strategy that puts every task on a given device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    device_of: Vec<DeviceId>,
}

impl Fixed {
    /// Creates the strategy that puts task `t` on `device_of[t]`.
    pub fn new(device_of: Vec<DeviceId>) -> Self {
        Fixed { device_of }
    }
}

impl Placer for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    /// # Errors
    /// Returns the first constraint that the assignment breaks.
    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        if let Some(violation) = check_placement(problem, &self.device_of).into_iter().next() {
            return Err(PlaceError::Violation(violation));
        }
        let reasons = vec![Reason::Given; self.device_of.len()];
        Ok(Placement { strategy: self.name(), device_of: self.device_of.clone(), reasons, planned: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Violation;
    use crate::graph::TaskId;
    use crate::sample;

    #[test]
    fn a_given_assignment_is_taken_or_refused_as_it_is() {
        let mut builder = sample::tasks(&[1.0, 1.0]);
        builder.colocate(TaskId(0), TaskId(1));
        let loaded = sample::problem(builder.build().unwrap(), &[1.0, 1.0]);
        let problem = loaded.problem().unwrap();
        let place = |devices: &[u32]| Fixed::new(devices.iter().copied().map(DeviceId).collect()).place(&problem);
        assert_eq!(place(&[1, 1]).unwrap().device_of, [DeviceId(1); 2]);
        assert!(matches!(place(&[0, 1]), Err(PlaceError::Violation(Violation::Colocation { .. }))));
        assert!(matches!(place(&[0]), Err(PlaceError::Violation(Violation::Length { .. }))));
        assert!(matches!(place(&[2, 2]), Err(PlaceError::Violation(Violation::UnknownDevice { .. }))));
    }
}
