//! Processing units on which a thread may run, and pinning it to some of them.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::marker::PhantomData;
use thiserror::Error;

/// Reason that a thread could not be pinned. The thread continues as before.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct PinError(String);

/// Keeps a thread pinned. When dropped, it restores the thread's former units. It cannot leave its thread.
#[derive(Debug)]
#[must_use = "the thread is released when this is dropped"]
pub struct Pinned {
    before: system::Units,
    stays_on_thread: PhantomData<*const ()>,
}

/// Processing units on which the calling thread may run; `None` if the operating system does not say.
///
/// `taskset`, `sched_setaffinity` and control groups limit them.
pub fn allowed() -> Option<BTreeSet<u32>> {
    system::allowed().ok().map(|units| system::listed(&units))
}

/// Processing unit on which the calling thread runs at this moment, if the operating system says.
pub fn current_unit() -> Option<u32> {
    system::current_unit()
}

/// Whether the calling thread may not run on this processing unit.
pub fn excludes(pu: u32) -> bool {
    system::allowed().is_ok_and(|units| system::excludes(&units, pu))
}

/// Lets the calling thread run only on the units `pus`, until the result is dropped.
///
/// Takes about two microseconds, and longer if the thread has to move.
pub fn pin_current_thread(pus: &[u32]) -> Result<Pinned, PinError> {
    if pus.is_empty() {
        return Err(PinError("a thread cannot be pinned to an empty set of processing units".into()));
    }
    let before = system::allowed()?;
    system::pin(pus)?;
    Ok(Pinned { before, stays_on_thread: PhantomData })
}

impl Pinned {
    /// Leaves the thread pinned for its lifetime.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
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
    use rustix::io::Errno;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    pub(super) type Units = CpuSet;

    pub(super) fn allowed() -> Result<Units, PinError> {
        sched_getaffinity(None)
            .map_err(|error| PinError(format!("cannot read the processing units of a thread: {error}")))
    }

    pub(super) fn current_unit() -> Option<u32> {
        u32::try_from(rustix::thread::sched_getcpu()).ok()
    }

    pub(super) fn excludes(units: &Units, pu: u32) -> bool {
        let pu = pu as usize;
        pu < CpuSet::MAX_CPU && !units.is_set(pu)
    }

    pub(super) fn listed(units: &Units) -> BTreeSet<u32> {
        (0..CpuSet::MAX_CPU).filter(|&pu| units.is_set(pu)).map(|pu| pu as u32).collect()
    }

    pub(super) fn allow(units: &Units) -> Result<(), Errno> {
        sched_setaffinity(None, units)
    }

    pub(super) fn pin(pus: &[u32]) -> Result<(), PinError> {
        let mut units = CpuSet::new();
        for &pu in pus {
            if pu as usize >= CpuSet::MAX_CPU {
                let last = CpuSet::MAX_CPU - 1;
                let problem =
                    format!("no thread can be pinned to processing unit {pu}: this build supports units 0 to {last}");
                return Err(PinError(problem));
            }
            units.set(pu as usize);
        }
        allow(&units).map_err(|error| {
            let list = format_list(&listed(&units).into_iter().collect::<Vec<u32>>());
            PinError(format!("the system refused to pin a thread to processing units {list}: {error}"))
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{BTreeSet, PinError};

    const UNSUPPORTED: &str = "threads cannot be pinned on this operating system";

    #[derive(Debug)]
    pub(super) struct Units;

    pub(super) fn allowed() -> Result<Units, PinError> {
        Err(PinError(UNSUPPORTED.into()))
    }

    pub(super) fn current_unit() -> Option<u32> {
        None
    }

    pub(super) fn excludes(_: &Units, _: u32) -> bool {
        false
    }

    pub(super) fn listed(_: &Units) -> BTreeSet<u32> {
        BTreeSet::new()
    }

    pub(super) fn allow(_: &Units) -> Result<(), PinError> {
        Err(PinError(UNSUPPORTED.into()))
    }

    pub(super) fn pin(_: &[u32]) -> Result<(), PinError> {
        Err(PinError(UNSUPPORTED.into()))
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
        assert_eq!((current_unit(), excludes(one), excludes(u32::MAX)), (Some(one), false, false));
        assert!(before.iter().filter(|unit| **unit != one).all(|unit| excludes(*unit)));
        drop(pinned);
        assert_eq!(allowed(), Some(before));
    }

    #[test]
    fn bad_sets_are_refused_and_change_nothing() {
        let before = allowed();
        let refusal = |pus: &[u32]| pin_current_thread(pus).expect_err("impossible").to_string();
        assert!(refusal(&[]).contains("empty set of processing units"));
        assert!(refusal(&[u32::MAX]).contains("pinned to processing unit 4294967295"));
        let absent = 1023;
        if !std::path::Path::new("/sys/devices/system/cpu/cpu1023").exists() {
            assert!(refusal(&[absent]).contains("processing units 1023"));
        }
        assert_eq!(allowed(), before);
    }
}
