//! Counts memory where it is really allocated.

use anabranch_placement_core::platform::DeviceId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all executors of a pool hold on each device.
pub(super) type PoolBytes = Arc<[AtomicU64]>;

/// Memory that one executor holds, and its peak. When dropped, all of it is subtracted from the pool's count.
#[derive(Debug)]
pub(super) struct MemoryAccounting {
    own: Box<[DeviceBytes]>,
    pool: PoolBytes,
}

#[derive(Debug, Default)]
struct DeviceBytes {
    held: AtomicU64,
    peak: AtomicU64,
}

impl MemoryAccounting {
    /// Creates empty accounts that also count in `pool`.
    pub(super) fn new(pool: &PoolBytes) -> Self {
        Self { own: pool.iter().map(|_| DeviceBytes::default()).collect(), pool: Arc::clone(pool) }
    }

    /// Records that `bytes` were allocated on a device.
    pub(super) fn take(&self, device: DeviceId, bytes: usize) {
        let (account, bytes) = (&self.own[device.index()], bytes as u64);
        let held = account.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A load is cheaper than an update, and usually no update is necessary.
        if account.peak.load(Ordering::Relaxed) < held {
            account.peak.fetch_max(held, Ordering::Relaxed);
        }
        self.pool[device.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records that `bytes` were freed on a device.
    pub(super) fn give(&self, device: DeviceId, bytes: usize) {
        self.own[device.index()].held.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.pool[device.index()].fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the peak of each device so far, in bytes.
    pub(super) fn peaks(&self) -> impl Iterator<Item = u64> {
        self.own.iter().map(|account| account.peak.load(Ordering::Relaxed))
    }
}

impl Drop for MemoryAccounting {
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
        let pool: PoolBytes = [(); 2].map(|()| AtomicU64::new(0)).into();
        let held = || pool.iter().map(|held| held.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let (accounting, device) = (MemoryAccounting::new(&pool), DeviceId(1));
        for (taken, given, peak) in [(10, 4, 10), (3, 9, 10), (11, 0, 11)] {
            accounting.take(device, taken);
            accounting.give(device, given);
            assert_eq!(accounting.peaks().collect::<Vec<_>>(), [0, peak]);
        }
        let other = MemoryAccounting::new(&pool);
        other.take(device, 5);
        assert_eq!(held(), [0, 16]);
        drop(accounting);
        assert_eq!(held(), [0, 5]);
        drop(other);
        assert_eq!(held(), [0, 0]);
    }
}
