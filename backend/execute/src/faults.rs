//! Injects faults: in a test, the n-th operation of a kind does what the test wants. Otherwise only calls of empty
//! functions remain.

use anabranch_kernels::KernelError;

/// Operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Calling a kernel on a CPU.
    Kernel,
    /// Submitting commands to a GPU.
    Submission,
    /// Copying a piece of a value over a link.
    Copy,
    /// Sending a message or buffer to another worker. A failed message is lost.
    Message,
}

/// Empty set of faults.
#[cfg(not(any(test, feature = "testing")))]
#[derive(Debug, Default)]
pub(super) struct Faults(());

#[cfg(not(any(test, feature = "testing")))]
impl Faults {
    #[inline(always)]
    pub(super) fn strike(&self, _: Operation, _: impl Fn() -> bool) -> Result<(), KernelError> {
        Ok(())
    }
}

#[cfg(any(test, feature = "testing"))]
pub(super) use armed::Faults;
#[cfg(any(test, feature = "testing"))]
pub use armed::lose_at_submission;
#[cfg(test)]
pub(super) use armed::{Act, destroy, fail_at};

#[cfg(any(test, feature = "testing"))]
mod armed {
    use super::{KernelError, Operation};
    use crate::Executor;
    use anabranch_base::lock::lock;
    use anabranch_base::sync;
    use anabranch_kernels::gpu::Gpu;
    use std::fmt;
    use std::sync::{Arc, Mutex};

    /// Action that replaces an operation; its argument says whether the run must be left.
    pub(crate) type Act = Arc<dyn Fn(&dyn Fn() -> bool) -> Result<(), KernelError> + Send + Sync>;

    /// The injected fault, if any.
    #[derive(Default)]
    pub(crate) struct Faults(Mutex<Option<Fault>>);

    struct Fault {
        operation: Operation,
        /// Number of operations of this kind that succeed first.
        before: usize,
        act: Act,
    }

    impl Faults {
        /// Replaces the `n`th operation of this kind from now on, counted from 0, by `act`.
        pub(crate) fn fail_at(&self, operation: Operation, n: usize, act: &Act) {
            *lock(&self.0) = Some(Fault { operation, before: n, act: Arc::clone(act) });
        }

        #[cfg(test)]
        /// Removes the fault if it has not happened; returns whether it was still there.
        pub(crate) fn disarm(&self) -> bool {
            lock(&self.0).take().is_some()
        }

        /// Runs the fault, if it is due; called before each operation.
        pub(crate) fn strike(&self, operation: Operation, left: impl Fn() -> bool) -> Result<(), KernelError> {
            let act = {
                let mut fault = lock(&self.0);
                match &mut *fault {
                    Some(Fault { operation: wanted, before, .. }) if *wanted == operation && *before > 0 => {
                        *before -= 1;
                        None
                    }
                    Some(Fault { operation: wanted, .. }) if *wanted == operation => fault.take(),
                    _ => None,
                }
            };
            act.map_or(Ok(()), |fault| (fault.act)(&left))
        }
    }

    /// Replaces the `n`th operation of a kind in the next run.
    pub(crate) fn fail_at(executor: &Executor, operation: Operation, n: usize, act: &Act) {
        let engine = sync::lock(&executor.state).engine.clone().expect("readied by a run that went well");
        engine.channels.faults.fail_at(operation, n, act);
    }

    /// Destroys a GPU.
    pub(crate) fn destroy(gpu: Arc<Gpu>) -> Act {
        Arc::new(move |_| {
            gpu.destroy();
            Ok(())
        })
    }

    /// Destroys a GPU at its next submission.
    pub fn lose_at_submission(executor: &Executor, gpu: Arc<Gpu>) {
        fail_at(executor, Operation::Submission, 0, &destroy(gpu));
    }

    impl fmt::Debug for Faults {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Faults")
        }
    }
}
