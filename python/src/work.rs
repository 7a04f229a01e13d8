//! Work without the interpreter's lock, and its interruption.

use super::failure::{Failure, Result};
use anabranch::ErrorKind;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Longest time that a signal goes unnoticed.
const PATIENCE: Duration = Duration::from_millis(50);

/// A token that asks runs to stop. Once cancelled, it stays so.
#[pyclass(frozen)]
pub(crate) struct CancelToken(pub(crate) anabranch::CancelToken);

#[pymethods]
impl CancelToken {
    #[new]
    fn new() -> Self {
        Self(anabranch::CancelToken::new())
    }

    fn cancel(&self) {
        self.0.cancel();
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Does work while other Python threads continue. A panic becomes an exception.
pub(crate) fn released<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(|| caught(work)).map_err(|failure| failure.raise(py))
}

/// Waits on this thread, and checks for signals now and then. If a signal's handler raises, it calls `stop` and raises
/// the exception.
///
/// `wait` waits for at most the given time, and returns whether the wait is over.
pub(crate) fn until(py: Python<'_>, stop: impl Fn(), wait: impl Fn(Duration) -> bool + Sync) -> PyResult<()> {
    while !py.detach(|| wait(PATIENCE)) {
        py.check_signals().inspect_err(|_| stop())?;
    }
    Ok(())
}

/// Does long work on another thread.
///
/// Meanwhile this thread checks for signals, and calls `progress` with the number of steps that are done, which the
/// work reports one by one. If a signal's handler or `progress` raises, it calls `stop` once, and raises the exception
/// when the work has ended.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    stop: impl Fn(),
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&mut dyn FnMut()) -> Result<T> + Send,
) -> PyResult<T> {
    let (tell, told) = channel();
    let told = Mutex::new(told);
    let (mut steps, mut raised) = (0u64, None);
    thread::scope(|scope| {
        let spawned = thread::Builder::new().spawn_scoped(scope, move || {
            caught(|| {
                work(&mut || {
                    // Cannot fail: the receiver lives until this ends.
                    let _ = tell.send(());
                })
            })
        });
        let worker = match spawned {
            Ok(worker) => worker,
            Err(error) => return Err(no_thread(&error).raise(py)),
        };
        loop {
            let news = py.detach(|| {
                let told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.recv_timeout(PATIENCE).map(|()| 1 + told.try_iter().count() as u64)
            });
            match news {
                Ok(more) => steps += more,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let listener = progress.filter(|_| news.is_ok() && raised.is_none());
            let call = |progress: &Bound<'_, PyAny>| progress.call1((steps,)).map(drop);
            let seen = py.check_signals().and_then(|()| listener.map_or(Ok(()), call));
            if let (Err(error), None) = (seen, &raised) {
                raised = Some(error);
                stop();
            }
        }
        let ended = py.detach(move || worker.join()).unwrap_or_else(|panic| Err(Failure::panicked(&*panic)));
        match raised {
            Some(error) => Err(error),
            None => ended.map_err(|failure| failure.raise(py)),
        }
    })
}

fn no_thread(error: &std::io::Error) -> Failure {
    Failure::new(ErrorKind::Memory, format_args!("the system cannot start a thread: {error}"))
}

fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Failure::panicked(&*panic)))
}
