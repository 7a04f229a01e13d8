//! The memory that is really taken, counted where it is taken.

use anabranch_placement_core::platform::DeviceId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all executors of a pool hold on each device.
pub(super) type Held = Arc<[AtomicU64]>;

/// What one executor holds, and has held at most. All of it is given back to the pool's count when this is dropped.
#[derive(Debug)]
pub(super) struct Ledger {
    own: Box<[Account]>,
    pool: Held,
}

#[derive(Debug, Default)]
struct Account {
    held: AtomicU64,
    peak: AtomicU64,
}

impl Ledger {
    /// Nothing held yet of what `pool` counts.
    pub(super) fn new(pool: &Held) -> Self {
        Self { own: pool.iter().map(|_| Account::default()).collect(), pool: Arc::clone(pool) }
    }

    /// Notes that `bytes` were taken on a device.
    pub(super) fn take(&self, device: DeviceId, bytes: usize) {
        let (account, bytes) = (&self.own[device.index()], bytes as u64);
        let held = account.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A look costs less than a change, and most of the time nothing is to be changed.
        if account.peak.load(Ordering::Relaxed) < held {
            account.peak.fetch_max(held, Ordering::Relaxed);
        }
        self.pool[device.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that they were given back.
    pub(super) fn give(&self, device: DeviceId, bytes: usize) {
        self.own[device.index()].held.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.pool[device.index()].fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes held at most on each device so far.
    pub(super) fn peaks(&self) -> impl Iterator<Item = u64> {
        self.own.iter().map(|account| account.peak.load(Ordering::Relaxed))
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        for (pool, own) in self.pool.iter().zip(&self.own) {
            pool.fetch_sub(own.held.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_stay_and_the_pool_gets_back_what_a_dropped_executor_held() {
        let pool: Held = [(); 2].map(|()| AtomicU64::new(0)).into();
        let held = || pool.iter().map(|held| held.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let (ledger, device) = (Ledger::new(&pool), DeviceId(1));
        for (taken, given, peak) in [(10, 4, 10), (3, 9, 10), (11, 0, 11)] {
            ledger.take(device, taken);
            ledger.give(device, given);
            assert_eq!(ledger.peaks().collect::<Vec<_>>(), [0, peak]);
        }
        let other = Ledger::new(&pool);
        other.take(device, 5);
        assert_eq!(held(), [0, 16]);
        drop(ledger);
        assert_eq!(held(), [0, 5]);
        drop(other);
        assert_eq!(held(), [0, 0]);
    }
}
