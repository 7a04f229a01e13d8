//! Ends a run cleanly on Ctrl-C.

use super::{CliError, say};
use anabranch::drops::end_all;
use anabranch::execute::CancelToken;
use anabranch::files::abandon;
use anabranch::session::SessionError;
use std::thread;
use std::time::Duration;

/// Time after an interruption at which the command ends, if its work does not check the token (planning, placing).
const GRACE: Duration = Duration::from_secs(5);

/// Returns a token that an interruption (Ctrl-C, SIGTERM) uses.
///
/// The process, and the commands of its graphs, end [`GRACE`] later, or at once on a second interruption.
pub(super) fn cancel_on_interrupt() -> Result<CancelToken, CliError> {
    let token = CancelToken::new();
    let used = token.clone();
    on_interrupt(move || if used.is_cancelled() { end() } else { cancel(&used) })?;
    Ok(token)
}

fn cancel(token: &CancelToken) {
    token.cancel();
    let wait = || {
        thread::sleep(GRACE);
        end()
    };
    // If there is no thread, only a second interruption ends the process early.
    let _ = thread::Builder::new().name("end of an interruption".into()).spawn(wait);
}

/// Lets an interruption end the process at once, for work that cannot be cancelled. Files that are being written are
/// discarded.
pub(super) fn end_on_interrupt() -> Result<(), CliError> {
    on_interrupt(|| end())
}

fn on_interrupt(handle: impl Fn() + Send + 'static) -> Result<(), CliError> {
    ctrlc::set_handler(handle).map_err(|error| {
        CliError::input(format!("the system lets nobody wait for Ctrl-C ({error}); close other programs"))
    })
}

/// Ends the process and the commands that it has started, and discards unfinished files.
fn end() -> ! {
    end_all();
    abandon();
    say("anabranch: interrupted");
    std::process::exit(130)
}

/// Returns the error of a run. An interrupted run has its own exit code.
pub(super) fn cancelled(error: SessionError) -> CliError {
    if error.is_cancelled() { CliError::interrupted() } else { error.into() }
}
