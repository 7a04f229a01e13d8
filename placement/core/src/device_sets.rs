//! Many sets of devices in one flat bit vector.

use crate::platform::DeviceId;

/// Several sets of devices, numbered from 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceSets {
    words: usize,
    bits: Vec<u64>,
}

impl DeviceSets {
    pub(crate) fn empty(sets: usize, devices: usize) -> Self {
        let words = devices.div_ceil(64);
        DeviceSets { words, bits: vec![0; sets.saturating_mul(words)] }
    }

    /// Empties all sets.
    pub(crate) fn clear(&mut self) {
        self.bits.fill(0);
    }

    /// Copies `other` into the memory of this value.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.words = other.words;
        self.bits.clone_from(&other.bits);
    }

    pub(crate) fn insert(&mut self, set: usize, device: DeviceId) {
        self.bits[set * self.words + device.index() / 64] |= 1 << (device.index() % 64);
    }

    pub(crate) fn contains(&self, set: usize, device: DeviceId) -> bool {
        self.bits[set * self.words + device.index() / 64] >> (device.index() % 64) & 1 == 1
    }

    /// Returns the device of a set that has no other.
    pub(crate) fn only(&self, set: usize) -> Option<DeviceId> {
        let words = &self.bits[set * self.words..(set + 1) * self.words];
        let count: u32 = words.iter().map(|bits| bits.count_ones()).sum();
        if count == 1 { self.iter(set).next() } else { None }
    }

    pub(crate) fn iter(&self, set: usize) -> impl Iterator<Item = DeviceId> + Clone + '_ {
        let words = &self.bits[set * self.words..(set + 1) * self.words];
        words.iter().enumerate().flat_map(|(word, &bits)| {
            let rest = |bits: &u64| Some(bits & (bits - 1)).filter(|&bits| bits != 0);
            std::iter::successors(Some(bits).filter(|&bits| bits != 0), rest)
                .map(move |bits| DeviceId(word as u32 * 64 + bits.trailing_zeros()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_was_inserted_in_ascending_order() {
        let mut sets = DeviceSets::empty(3, 130);
        for device in [129, 0, 64, 63, 64] {
            sets.insert(1, DeviceId(device));
        }
        assert_eq!(sets.iter(1).collect::<Vec<_>>(), [0, 63, 64, 129].map(DeviceId));
        assert!(sets.contains(1, DeviceId(129)) && !sets.contains(1, DeviceId(128)));
        assert_eq!(sets.iter(0).chain(sets.iter(2)).count(), 0);
        sets.insert(2, DeviceId(70));
        assert_eq!([0, 1, 2].map(|set| sets.only(set)), [None, None, Some(DeviceId(70))]);
    }

    #[test]
    fn without_devices_every_set_is_empty() {
        assert_eq!(DeviceSets::empty(2, 0).iter(1).count(), 0);
    }
}
