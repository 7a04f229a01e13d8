//! The profiled run whose time is nearest to the median of the measured runs. All figures of nodes, devices and links
//! come from that one run, so that they are consistent.

/// The nearest run so far.
pub(crate) struct Nearest<T> {
    median: f64,
    /// The kept part, with its distance from the median.
    best: Option<(f64, T)>,
}

impl<T> Nearest<T> {
    /// Starts without a run. The median must be known.
    pub(crate) fn to(median: f64) -> Self {
        Self { median, best: None }
    }

    /// Whether a run of this time is nearer than all before.
    pub(crate) fn is_nearer(&self, time: f64) -> bool {
        self.best.as_ref().is_none_or(|(distance, _)| (time - self.median).abs() < *distance)
    }

    /// Keeps this part of a run, if it is nearer than all before.
    pub(crate) fn offer(&mut self, time: f64, kept: T) {
        if self.is_nearer(time) {
            self.best = Some(((time - self.median).abs(), kept));
        }
    }

    /// Returns the kept part of the nearest run.
    pub(crate) fn found(&self) -> Option<&T> {
        self.best.as_ref().map(|(_, kept)| kept)
    }

    /// Takes the kept part of the nearest run.
    pub(crate) fn into_found(self) -> Option<T> {
        self.best.map(|(_, kept)| kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_run_is_kept_and_the_first_of_equals() {
        let mut nearest = Nearest::to(10.0);
        for (number, time) in [17.0, 8.0, 12.0, 30.0].into_iter().enumerate() {
            nearest.offer(time, number);
        }
        assert_eq!(nearest.found(), Some(&1));
        assert!(nearest.is_nearer(9.0) && !nearest.is_nearer(12.0));
        assert_eq!(nearest.into_found(), Some(1));
        assert_eq!(Nearest::<()>::to(1.0).into_found(), None);
    }
}
