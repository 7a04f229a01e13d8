//! Earliest time at which all inputs of a task can be on its device.
//!
//! The inputs of a task on device `d` come from producers on `d` or elsewhere. Each producer that is elsewhere delays
//! the task until its *remote* arrival. The producers on `d` run there one after the other, each no earlier than its
//! *release*, and the task starts after the last of them. The shortest schedule of one machine runs them in the order
//! of their releases, so the task starts no sooner than the end of that schedule.
//!
//! Sort the producers by decreasing remote arrival. In any schedule let the first producer that is not on `d` be at
//! position `k`, so that all before it are on `d`. Then the task starts no sooner than the remote arrival at `k`. It
//! also starts no sooner than the end of the one-machine schedule of the producers before `k`. As `k` is unknown, the
//! bound is the least value over all `k`; no other set of producers on `d` has a lower bound. If a few producers must
//! be far from each other's data, this bound is much greater than the longest path.

/// Producer of an input, seen from the device of the task that waits for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Feeder {
    /// Earliest time at which its data are here if it runs elsewhere; infinite if it cannot.
    pub(crate) remote: f64,
    /// Earliest start if it runs here; infinite if it cannot.
    pub(crate) release: f64,
    /// Duration of the producer here.
    pub(crate) time: f64,
}

/// Most producers on the device that are considered together; more can only raise the bound.
const TOGETHER: usize = 48;

/// Returns the earliest time at which everything from `feeders` is here; 0 without feeders.
///
/// The function sorts `feeders`. It overwrites `here` with the feeders on the device, by release; the caller passes it
/// to reuse its memory.
pub(crate) fn earliest(feeders: &mut [Feeder], here: &mut Vec<Feeder>) -> f64 {
    feeders.sort_unstable_by(|one, other| other.remote.total_cmp(&one.remote));
    here.clear();
    let mut best = f64::INFINITY;
    let mut sequence = 0.0;
    for feeder in feeders.iter().take(TOGETHER) {
        best = best.min(feeder.remote.max(sequence));
        if sequence >= best {
            return best;
        }
        let place = here.partition_point(|other| other.release <= feeder.release);
        here.insert(place, *feeder);
        sequence = here.iter().fold(0.0, |end: f64, feeder| end.max(feeder.release) + feeder.time);
    }
    best.min(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feeder(remote: f64, release: f64, time: f64) -> Feeder {
        Feeder { remote, release, time }
    }

    #[test]
    fn feeders_are_here_in_sequence_or_there() {
        let never = f64::INFINITY;
        let cases = [
            (vec![], 0.0),
            (vec![feeder(9.0, 1.0, 2.0)], 3.0),
            (vec![feeder(2.5, 1.0, 2.0)], 2.5),
            (vec![feeder(2.5, never, never)], 2.5),
            (vec![feeder(never, 1.0, 2.0)], 3.0),
            // Both here: 4; one here and the other elsewhere: 9.
            (vec![feeder(9.0, 0.0, 2.0), feeder(9.0, 0.0, 2.0)], 4.0),
            // All three here: 6; the nearest elsewhere: 5.
            (vec![feeder(9.0, 0.0, 2.0), feeder(5.0, 0.0, 2.0), feeder(9.0, 0.0, 2.0)], 5.0),
            // If the later release ran first, they would end at 7.
            (vec![feeder(9.0, 4.0, 1.0), feeder(9.0, 0.0, 2.0)], 5.0),
            (vec![feeder(never, 0.0, 2.0), feeder(never, 1.0, 2.0), feeder(3.0, 0.0, 9.0)], 4.0),
        ];
        for (mut feeders, expected) in cases {
            assert_eq!(earliest(&mut feeders, &mut Vec::new()), expected, "{feeders:?}");
        }
    }

    /// Compares with every choice of feeders that are here.
    #[test]
    fn no_choice_is_sooner() {
        arbtest::arbtest(|random| {
            let mut feeders = Vec::new();
            for _ in 0..random.int_in_range(0..=7u8)? {
                let mut number = || random.int_in_range(0..=9u8).map(f64::from);
                feeders.push(feeder(number()?, number()?, number()?));
            }
            let choice = |here: usize| {
                let (mut local, mut remote) = (Vec::new(), 0.0f64);
                for (place, feeder) in feeders.iter().enumerate() {
                    if here >> place & 1 == 1 { local.push(*feeder) } else { remote = remote.max(feeder.remote) }
                }
                local.sort_by(|one, other| one.release.total_cmp(&other.release));
                local.iter().fold(0.0, |end: f64, feeder| end.max(feeder.release) + feeder.time).max(remote)
            };
            let least = (0..1 << feeders.len()).map(choice).fold(f64::INFINITY, f64::min);
            assert_eq!(earliest(&mut feeders.clone(), &mut Vec::new()), least);
            Ok(())
        })
        .budget_ms(300);
    }
}
