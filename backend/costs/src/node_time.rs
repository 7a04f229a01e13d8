//! Time of a node in its place: what the caches and the other devices add to the time of its kernel.
//!
//! The cost store keeps times of kernels: constants in the device's own cache, inputs that no other device has just
//! written, no other device at work. [`NodeTime::apply`] predicts from such a time what the node takes in its place.
//! [`NodeTime::remove`] is its inverse and finds the kernel's time in a measured one. Planning and learning use the
//! same [`NodeTime`], so that a node that takes what was predicted teaches nothing new.

use super::machine::Slowdown;

/// Largest extra time of constants that are out of cache, as a multiple of the node's time with cached constants:
/// kernels hide much of it behind arithmetic.
const MOST_MISSES: f64 = 4.0;

/// Largest extra time of reads from other devices' caches, as a multiple of the node's own time.
///
/// Negating 4 KiB to 1 MiB that another core has just written takes 9 to 22 times as long as in the own cache
/// (`bench/ACCURACY.md`, lower deciles). No kernel does less with its data, so that larger multiples are taken for
/// errors of the clock.
const MOST_READS: f64 = 24.0;

/// Additions of a node's place to the time of its kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeTime {
    /// Extra seconds of constants that are out of cache.
    misses: f64,
    /// Extra seconds of reads from other devices' caches.
    reads: f64,
    /// Factor by which other devices slow the node down.
    slowdown: f64,
}

impl Default for NodeTime {
    /// A place that adds nothing.
    fn default() -> Self {
        Self { misses: 0.0, reads: 0.0, slowdown: 1.0 }
    }
}

impl NodeTime {
    /// Factor of a 90 % interval of the time of reads from other devices' caches: kernels hide more or less of them
    /// behind arithmetic.
    pub const READ_UNCERTAINTY: f64 = 2.0;

    /// Sets the extra seconds of constants that are out of cache (default: 0).
    pub fn with_misses(self, seconds: f64) -> Self {
        Self { misses: seconds.max(0.0), ..self }
    }

    /// Sets the extra seconds of reads of data that other devices have just written (default: 0).
    pub fn with_reads(self, seconds: f64) -> Self {
        Self { reads: seconds.max(0.0), ..self }
    }

    /// Adds a device that works for this share of the node's time and slows it down by the factor `slowdown` meanwhile
    /// (default: none). Factors count as [`Slowdown`] bounds them.
    pub fn beside(self, share: f64, slowdown: f64) -> Self {
        let saved = 1.0 - 1.0 / slowdown.clamp(1.0, Slowdown::MOST);
        Self { slowdown: self.slowdown / (1.0 - share.clamp(0.0, 1.0) * saved), ..self }
    }

    /// Returns the seconds of the node in its place if its kernel takes `kernel` seconds.
    pub fn apply(&self, kernel: f64) -> f64 {
        let [own, reads] = self.parts(kernel);
        (own + reads) * self.slowdown
    }

    /// Returns the seconds of the kernel if the node takes `seconds` in its place: the inverse of [`Self::apply`].
    pub fn remove(&self, seconds: f64) -> f64 {
        let own = without(seconds / self.slowdown, self.reads, MOST_READS);
        without(own, self.misses, MOST_MISSES)
    }

    /// Returns the seconds of the node itself and the seconds of its reads, next to no other device.
    pub fn parts(&self, kernel: f64) -> [f64; 2] {
        let own = kernel + self.misses.min(MOST_MISSES * kernel);
        [own, self.reads.min(MOST_READS * own)]
    }
}

/// Subtracts from `seconds` the extra seconds of a cache, which were at most `most` times the rest.
fn without(seconds: f64, extra: f64, most: f64) -> f64 {
    seconds - extra.min(most / (1.0 + most) * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbtest::arbitrary::{Result, Unstructured};

    /// A number of any size from 1e-12 to 1e6, or 0.
    fn seconds(random: &mut Unstructured<'_>) -> Result<f64> {
        let digits = f64::from(random.int_in_range(0..=999_999u32)?) / 1e6;
        Ok(digits * 10f64.powi(random.int_in_range(-12..=6)?))
    }

    fn place(random: &mut Unstructured<'_>) -> Result<NodeTime> {
        let mut place = NodeTime::default().with_misses(seconds(random)?).with_reads(seconds(random)?);
        for _ in 0..random.int_in_range(0..=3u8)? {
            let share = f64::from(random.int_in_range(0..=100u8)?) / 100.0;
            place = place.beside(share, 1.0 + f64::from(random.int_in_range(0..=700u16)?) / 100.0);
        }
        Ok(place)
    }

    #[test]
    fn what_a_place_adds_is_exactly_what_is_removed() {
        arbtest::arbtest(|random| {
            let (place, kernel, longer) = (place(random)?, seconds(random)?, seconds(random)?);
            let applied = place.apply(kernel);
            assert!(applied.is_finite() && applied >= kernel, "{place:?}: {kernel} becomes {applied}");
            // The kernel is at least one part in 125 of the time next to no device, so that rounding stays small.
            let [back, again] = [place.remove(applied), place.apply(place.remove(kernel))];
            assert!(back >= 0.0 && (back - kernel).abs() <= 1e-11 * kernel, "{place:?}: {kernel} comes back as {back}");
            assert!((again - kernel).abs() <= 1e-11 * kernel, "{place:?}: {kernel} is predicted again as {again}");
            let sum = kernel + longer;
            assert!(place.apply(sum) >= applied && place.remove(sum) >= place.remove(kernel) * (1.0 - 1e-12));
            Ok(())
        })
        .budget_ms(300);
    }

    #[test]
    fn no_finite_number_becomes_nan_or_negative() {
        let numbers = [0.0, f64::MIN_POSITIVE, 1e-9, 1.0, 1e300, f64::MAX, -1.0, -f64::MAX];
        for (misses, reads) in numbers.iter().flat_map(|misses| numbers.map(|reads| (*misses, reads))) {
            for (share, slowdown) in numbers.iter().flat_map(|share| numbers.map(|slowdown| (*share, slowdown))) {
                let place = NodeTime::default().with_misses(misses).with_reads(reads).beside(share, slowdown);
                for time in numbers.into_iter().filter(|time| *time >= 0.0) {
                    let found = [place.apply(time), place.remove(time), place.remove(place.apply(time))];
                    assert!(found.iter().all(|found| *found >= 0.0), "{place:?} at {time}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn kernels_hide_much_of_what_caches_take() {
        let misses = |kernel| NodeTime::default().with_misses(3e-6).apply(kernel);
        assert_eq!([misses(1e-6), misses(1e-7)], [1e-6 + 3e-6, 1e-7 + 4.0 * 1e-7]);
        let reads = |kernel| NodeTime::default().with_reads(9e-7).apply(kernel);
        assert_eq!([reads(6e-8), reads(1e-9)], [6e-8 + 9e-7, 1e-9 + 24.0 * 1e-9]);
        // A device that is at work for half of the time and then doubles it: a third more.
        assert!((NodeTime::default().beside(0.5, 2.0).apply(3.0) - 4.0).abs() < 1e-12);
    }
}
