//! Numbered jobs of a sweep, distributed among threads.

use super::super::CliError;
use super::super::interrupt::look_at;
use anabranch::execute::CancelToken;
use anabranch::interruption::under;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Does each job below `count` on `threads` threads, and passes its number and result to `take`.
///
/// Once `cancel` is cancelled, no job begins, and jobs under way end early with results of their own.
///
/// # Errors
/// The first error of a job or of `take`; no job begins after it.
pub(super) fn run<T: Send>(
    threads: usize,
    count: usize,
    cancel: &CancelToken,
    job: impl Fn(usize) -> Result<T, CliError> + Sync,
    take: impl FnMut(usize, T) -> Result<(), CliError> + Send,
) -> Result<(), CliError> {
    let (next, taken) = (AtomicUsize::new(0), Mutex::new((take, Ok(()))));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count || cancel.is_cancelled() {
                return;
            }
            let done = job(number);
            let (take, result) = &mut *taken.lock().unwrap_or_else(PoisonError::into_inner);
            if result.is_ok() {
                *result = done.and_then(|done| take(number, done));
            }
            if result.is_err() {
                return next.store(count, Ordering::Relaxed);
            }
        }
    };
    let work = || under(Some(look_at(cancel)), work);
    thread::scope(|scope| {
        // If the system gives no more threads, the existing ones do the work.
        (1..threads.min(count)).for_each(|_| _ = thread::Builder::new().spawn_scoped(scope, work));
        work();
    });
    taken.into_inner().unwrap_or_else(PoisonError::into_inner).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_once_and_an_error_ends_them() {
        let cancel = CancelToken::new();
        let mut sum = 0;
        let add = |_, number| {
            sum += number;
            Ok(())
        };
        run(3, 100, &cancel, Ok, add).expect("nothing fails");
        assert_eq!(sum, 4950);
        let failed = run(2, 100, &cancel, |_| Err::<(), _>(CliError::input("no")), |_, ()| Ok(()));
        assert_eq!(failed.expect_err("each job fails").to_string(), "no");
        cancel.cancel();
        run(2, 100, &cancel, |_| Err::<(), _>(CliError::input("no")), |_, ()| Ok(())).expect("no job begins");
    }
}
