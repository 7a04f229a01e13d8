//! How far a run was from what its plan predicted.

use super::opened::Run;
use crate::plan::Route;

/// What takes less than this, in seconds, is too short for its error to mean anything.
const SHORTEST: f64 = 1e-7;

impl Run {
    /// Mean absolute error of the nodes' predicted times, in percent of the measured; nodes too short to measure do not count.
    pub fn node_error(&self) -> Option<f64> {
        let predicted = &self.prepared.plan().predicted().busy;
        mean_error(self.node_times().map(|(node, seconds)| (predicted[node.index()], seconds)))
    }

    /// Mean absolute error of the predicted times of copies over links, in percent of the measured.
    pub fn link_error(&self) -> Option<f64> {
        let (plan, platform) = (self.prepared.plan(), &self.prepared.placed.platform);
        mean_error(self.transfer_times().filter_map(|(id, seconds)| {
            let transfer = plan.transfer(id);
            let copied = transfer.route != Route::Shared;
            copied.then(|| (platform.transfer_time(transfer.bytes, transfer.from, transfer.to), seconds))
        }))
    }
}

fn mean_error(pairs: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let errors = pairs.filter(|(_, seconds)| *seconds > SHORTEST).map(|(p, seconds)| (p - seconds).abs() / seconds);
    let (count, sum) = errors.fold((0, 0.0), |(count, sum), error| (count + 1, sum + error));
    (count > 0).then(|| 100.0 * sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::mean_error;

    #[test]
    fn errors_are_relative_to_what_was_measured() {
        assert_eq!(mean_error([(2.0, 1.0), (0.5, 1.0), (5.0, 0.0)].into_iter()), Some(75.0));
        assert_eq!(mean_error(std::iter::empty()), None);
    }
}
