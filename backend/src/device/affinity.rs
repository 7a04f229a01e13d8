//! Which processing units a thread may run on, and pinning it to some of them.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io;
use std::marker::PhantomData;
use thiserror::Error;

/// A thread that could not be pinned. It runs on as before.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum PinError {
    /// No processing unit was named.
    #[error("a thread cannot be pinned to no processing unit")]
    Empty,
    /// An index beyond what the system call can name.
    #[error("processing unit {pu} cannot be pinned to: this build knows units 0 to {last}")]
    OutOfRange { pu: u32, last: usize },
    /// The operating system said no.
    #[error("the system refused to pin a thread to processing units {pus}: {source}")]
    Refused { pus: String, source: io::Error },
    /// Pinning is only known on Linux.
    #[error("threads cannot be pinned on this operating system")]
    Unsupported,
}

/// Keeps a thread pinned; dropped, it lets the thread run where it could run before. Stays on its thread.
#[derive(Debug)]
#[must_use = "the thread is released when this is dropped"]
pub struct Pinned {
    before: BTreeSet<u32>,
    stays_on_thread: PhantomData<*const ()>,
}

/// The processing units on which the calling thread may run: `taskset`, `sched_setaffinity` and control groups have
/// their say in it. `None` where the operating system does not tell.
pub fn allowed() -> Option<BTreeSet<u32>> {
    system::allowed().ok()
}

/// Lets the calling thread run on the units `pus` only, until what is returned is dropped.
pub fn pin_current_thread(pus: &[u32]) -> Result<Pinned, PinError> {
    let wanted: BTreeSet<u32> = pus.iter().copied().collect();
    if wanted.is_empty() {
        return Err(PinError::Empty);
    }
    let before = system::allowed()?;
    system::allow(&wanted)?;
    Ok(Pinned { before, stays_on_thread: PhantomData })
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A unit may have gone offline since. The thread then keeps its narrower set, which is still correct.
        let _ = system::allow(&self.before);
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::super::cpulist::format_list;
    use super::{BTreeSet, PinError};
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    pub(super) fn allowed() -> Result<BTreeSet<u32>, PinError> {
        let set = sched_getaffinity(None)
            .map_err(|error| PinError::Refused { pus: "in use now".to_owned(), source: error.into() })?;
        Ok((0..CpuSet::MAX_CPU).filter(|&pu| set.is_set(pu)).map(|pu| pu as u32).collect())
    }

    pub(super) fn allow(pus: &BTreeSet<u32>) -> Result<(), PinError> {
        let mut set = CpuSet::new();
        for &pu in pus {
            if pu as usize >= CpuSet::MAX_CPU {
                return Err(PinError::OutOfRange { pu, last: CpuSet::MAX_CPU - 1 });
            }
            set.set(pu as usize);
        }
        let refused = |error: rustix::io::Errno| {
            let list: Vec<u32> = pus.iter().copied().collect();
            PinError::Refused { pus: format_list(&list), source: error.into() }
        };
        sched_setaffinity(None, &set).map_err(refused)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{BTreeSet, PinError};

    pub(super) fn allowed() -> Result<BTreeSet<u32>, PinError> {
        Err(PinError::Unsupported)
    }

    pub(super) fn allow(_: &BTreeSet<u32>) -> Result<(), PinError> {
        Err(PinError::Unsupported)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_runs_where_it_should_and_is_released() {
        let before = allowed().expect("Linux tells the affinity of the calling thread");
        let one = *before.first().expect("a running thread may run somewhere");
        let pinned = pin_current_thread(&[one, one]).expect("a thread may narrow its own affinity");
        assert_eq!(allowed(), Some(BTreeSet::from([one])));
        drop(pinned);
        assert_eq!(allowed(), Some(before));
    }

    #[test]
    fn bad_sets_are_refused_and_change_nothing() {
        let before = allowed();
        assert!(matches!(pin_current_thread(&[]), Err(PinError::Empty)));
        assert!(matches!(pin_current_thread(&[u32::MAX]), Err(PinError::OutOfRange { pu: u32::MAX, .. })));
        let absent = 1023;
        if !std::path::Path::new("/sys/devices/system/cpu/cpu1023").exists() {
            let refusal = pin_current_thread(&[absent]).expect_err("the unit does not exist");
            assert!(refusal.to_string().contains("processing units 1023"), "{refusal}");
        }
        assert_eq!(allowed(), before);
    }
}
