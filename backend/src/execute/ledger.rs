//! The memory that is really taken, counted where it is taken.

use anabranch_placement::platform::DeviceId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes held on each device, now and at most.
#[derive(Clone, Debug)]
pub(super) struct Ledger(Arc<[Account]>);

#[derive(Debug, Default)]
struct Account {
    held: AtomicU64,
    peak: AtomicU64,
}

impl Ledger {
    pub(super) fn new(devices: usize) -> Self {
        Self((0..devices).map(|_| Account::default()).collect())
    }

    /// Notes that `bytes` were taken on a device.
    pub(super) fn take(&self, device: DeviceId, bytes: usize) {
        let account = &self.0[device.index()];
        let held = account.held.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        account.peak.fetch_max(held, Ordering::Relaxed);
    }

    /// Notes that they were given back.
    pub(super) fn give(&self, device: DeviceId, bytes: usize) {
        self.0[device.index()].held.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes held at most on each device so far.
    pub(super) fn peaks(&self) -> Vec<u64> {
        self.0.iter().map(|account| account.peak.load(Ordering::Relaxed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_stays_when_memory_is_given_back() {
        let ledger = Ledger::new(2);
        let device = DeviceId(1);
        for (taken, given, peak) in [(10, 4, 10), (3, 9, 10), (11, 0, 11)] {
            ledger.take(device, taken);
            ledger.give(device, given);
            assert_eq!(ledger.peaks(), [0, peak]);
        }
    }
}
