//! Capacities of a pipeline's channels in data sets, and the bytes of their values.

use super::wiring::Wiring;

/// Data sets that come within this many seconds are handed on together: compared with them, waking a thread (some 10
/// µs) is cheap.
const STRIDE: f64 = 4e-4;
/// Limits of what is handed on together: data sets, and bytes of values.
const MOST_GATHERED: u64 = 32;
const GATHERED: u64 = 1 << 19;

/// Capacities of a pipeline's channels, and the bytes of their values.
pub(super) struct ChannelCapacities {
    /// Number of data sets that are handed on at a time.
    pub(super) gather: usize,
    /// Capacity of the channel before each stage, and of the channel behind the last.
    pub(super) capacities: Vec<usize>,
    /// Results that each replica of a stage keeps to reuse their memory.
    pub(super) kept: Vec<usize>,
    /// Most bytes of all values in flight or kept.
    pub(super) bytes: u64,
}

impl ChannelCapacities {
    /// Returns channels for `capacity` data sets per device.
    ///
    /// Channels are larger if data sets come often, one each `period` seconds, and are small. Several of them are then
    /// handed on at a time.
    pub(super) fn of(wiring: &Wiring, replicas: &[usize], capacity: usize, period: f64) -> Self {
        let at = |stage: usize| replicas.get(stage).copied().unwrap_or(1);
        let largest = wiring.live.iter().max().map_or(1, |bytes| *bytes.max(&1));
        let gather = ((STRIDE / period) as u64).min(GATHERED / largest).clamp(1, MOST_GATHERED) as usize;
        let least = if gather > 1 { 2 * gather } else { 1 };
        let capacities = (0..=replicas.len()).map(|stage| capacity.saturating_mul(at(stage)).max(least));
        let capacities: Vec<usize> = capacities.collect();
        // As many as can be on their way to the next stage and in it, shared among the replicas.
        let kept =
            |stage: usize| capacities[stage + 1].saturating_add(at(stage + 1)).div_ceil(at(stage)).saturating_add(1);
        let kept: Vec<usize> = (0..replicas.len()).map(kept).collect();
        let waiting = capacities.iter().zip(&wiring.live).map(|(sets, bytes)| (*sets as u64).saturating_mul(*bytes));
        let passing = (0..replicas.len()).map(|stage| {
            let inside = wiring.live[stage].saturating_add(wiring.live[stage + 1]);
            let made = (kept[stage] as u64).saturating_mul(wiring.made[stage]);
            (replicas[stage] as u64).saturating_mul(inside.saturating_add(made))
        });
        let bytes = waiting.chain(passing).fold(0, u64::saturating_add);
        Self { gather, capacities, kept, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_beyond_all_memory_is_counted_as_that() {
        let (inputs, outputs, routes) = Default::default();
        let wiring = Wiring { slots: 0, inputs, outputs, routes, live: vec![8; 3], made: vec![8; 2] };
        let channels = ChannelCapacities::of(&wiring, &[2, 3], usize::MAX, 1.0);
        assert_eq!((channels.capacities, channels.bytes), (vec![usize::MAX; 3], u64::MAX));
        let channels = ChannelCapacities::of(&wiring, &[2, 1], 2, 1.0);
        assert_eq!((channels.capacities, channels.kept), (vec![4, 2, 2], vec![3, 4]));
        assert_eq!(channels.bytes, 8 * (4 + 2 + 2) + 2 * (16 + 3 * 8) + (16 + 4 * 8));
    }

    #[test]
    fn what_comes_soon_and_is_small_is_handed_on_together() {
        let gathered = |bytes, period| {
            let (inputs, outputs, routes) = Default::default();
            let wiring = Wiring { slots: 0, inputs, outputs, routes, live: vec![bytes; 2], made: vec![bytes] };
            let channels = ChannelCapacities::of(&wiring, &[2], 2, period);
            (channels.gather, channels.capacities)
        };
        assert_eq!(gathered(1000, 1e-3), (1, vec![4, 2]));
        assert_eq!(gathered(1000, 4.1e-5), (9, vec![18, 18]));
        assert_eq!(gathered(1 << 18, 4.1e-5), (2, vec![4, 4]));
        assert_eq!(gathered(1 << 20, 0.0), (1, vec![4, 2]));
        assert_eq!(gathered(0, 0.0), (32, vec![64, 64]));
    }
}
