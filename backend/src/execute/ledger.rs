//! The memory that is really taken, counted where it is taken.

use anabranch_placement::platform::DeviceId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes held on each device, now and at most.
#[derive(Debug)]
pub(super) struct Accounts(Box<[Account]>);

#[derive(Debug, Default)]
struct Account {
    held: AtomicU64,
    peak: AtomicU64,
}

/// What one executor holds. All of it is given back to the pool's accounts when this is dropped.
#[derive(Debug)]
pub(super) struct Ledger {
    own: Accounts,
    pool: Arc<Accounts>,
}

impl Accounts {
    pub(super) fn new(devices: usize) -> Self {
        Self((0..devices).map(|_| Account::default()).collect())
    }

    fn take(&self, device: DeviceId, bytes: u64) {
        let account = &self.0[device.index()];
        let held = account.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A look costs less than a change, and most of the time nothing is to be changed.
        if account.peak.load(Ordering::Relaxed) < held {
            account.peak.fetch_max(held, Ordering::Relaxed);
        }
    }

    fn give(&self, device: DeviceId, bytes: u64) {
        self.0[device.index()].held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes held on each device now.
    pub(super) fn held(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|account| account.held.load(Ordering::Relaxed))
    }

    /// Bytes held at most on each device so far.
    pub(super) fn peaks(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|account| account.peak.load(Ordering::Relaxed))
    }
}

impl Ledger {
    /// Nothing held yet of what `pool` counts.
    pub(super) fn new(pool: Arc<Accounts>) -> Self {
        Self { own: Accounts::new(pool.0.len()), pool }
    }

    /// Notes that `bytes` were taken on a device.
    pub(super) fn take(&self, device: DeviceId, bytes: usize) {
        self.own.take(device, bytes as u64);
        self.pool.take(device, bytes as u64);
    }

    /// Notes that they were given back.
    pub(super) fn give(&self, device: DeviceId, bytes: usize) {
        self.own.give(device, bytes as u64);
        self.pool.give(device, bytes as u64);
    }

    /// Bytes held at most on each device so far.
    pub(super) fn peaks(&self) -> impl Iterator<Item = u64> {
        self.own.peaks()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        for (at, held) in self.own.held().enumerate() {
            self.pool.give(DeviceId(at as u32), held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_stays_when_memory_is_given_back() {
        let pool = Arc::new(Accounts::new(2));
        let ledger = Ledger::new(Arc::clone(&pool));
        let device = DeviceId(1);
        for (taken, given, peak) in [(10, 4, 10), (3, 9, 10), (11, 0, 11)] {
            ledger.take(device, taken);
            ledger.give(device, given);
            assert_eq!(ledger.peaks().collect::<Vec<_>>(), [0, peak]);
        }
    }

    #[test]
    fn the_pool_counts_all_executors_and_gets_back_what_a_dropped_one_held() {
        let pool = Arc::new(Accounts::new(1));
        let ledgers = [10, 5].map(|bytes| {
            let ledger = Ledger::new(Arc::clone(&pool));
            ledger.take(DeviceId(0), bytes);
            ledger
        });
        assert_eq!(pool.held().collect::<Vec<_>>(), [15]);
        drop(ledgers);
        assert_eq!((pool.held().next(), pool.peaks().next()), (Some(0), Some(15)));
    }
}
