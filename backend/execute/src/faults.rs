//! Faults on purpose: in a test the n-th operation of a kind does what the test wants of it. Elsewhere nothing of this is left but calls
//! of empty functions.

use anabranch_kernels::KernelError;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The call of a CPU's kernel.
    Kernel,
    /// Giving commands to a GPU.
    Submission,
    /// Passing on a piece of a value over a link.
    Copy,
    /// What one worker tells or gives another. One that fails is lost.
    Message,
}

/// No faults.
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

    /// What happens in the place of an operation; it is told how to know that the run is to be left.
    pub(crate) type Act = Arc<dyn Fn(&dyn Fn() -> bool) -> Result<(), KernelError> + Send + Sync>;

    /// What is to fail, if anything is.
    #[derive(Default)]
    pub(crate) struct Faults(Mutex<Option<Fault>>);

    struct Fault {
        operation: Operation,
        /// Operations of this kind that go well before.
        before: usize,
        act: Act,
    }

    impl Faults {
        /// Lets `act` happen in the place of the `n`th operation of this kind from now on, the first being the 0th.
        pub(crate) fn fail_at(&self, operation: Operation, n: usize, act: &Act) {
            *lock(&self.0) = Some(Fault { operation, before: n, act: Arc::clone(act) });
        }

        #[cfg(test)]
        /// Takes back what has not happened; whether there was such.
        pub(crate) fn disarm(&self) -> bool {
            lock(&self.0).take().is_some()
        }

        /// To be asked before each operation.
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

    /// Lets the `n`th operation of a kind do something else in the next run.
    pub(crate) fn fail_at(executor: &Executor, operation: Operation, n: usize, act: &Act) {
        let engine = sync::lock(&executor.state).engine.clone().expect("readied by a run that went well");
        engine.exchange.faults.fail_at(operation, n, act);
    }

    /// Destroys a GPU.
    pub(crate) fn destroy(gpu: Arc<Gpu>) -> Act {
        Arc::new(move |_| {
            gpu.destroy();
            Ok(())
        })
    }

    /// Destroys a GPU when it is next given commands.
    pub fn lose_at_submission(executor: &Executor, gpu: Arc<Gpu>) {
        fail_at(executor, Operation::Submission, 0, &destroy(gpu));
    }

    impl fmt::Debug for Faults {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Faults")
        }
    }
}
