//! Ends a run cleanly on Ctrl-C.

use super::{CliError, Exit, say};
use anabranch::drops::end_all;
use anabranch::execute::CancelToken;
use anabranch::files::abandon;
use anabranch::interruption::{self, Interrupt};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Time after an interruption at which the command ends, if its work does not look at the token (reading a file,
/// opening a GPU).
const GRACE: Duration = Duration::from_secs(5);

/// A token that an interruption (Ctrl-C, SIGTERM) uses, and that planning on this thread looks at from now on. The
/// process, and the commands of its graphs, end [`GRACE`] later, or at once with a second interruption.
pub(super) fn cancel_on_interrupt() -> Result<CancelToken, CliError> {
    let token = CancelToken::new();
    let used = token.clone();
    interruption::for_this_thread(look_at(&token));
    on_interrupt(move || if used.is_cancelled() { end() } else { cancel(&used) })?;
    Ok(token)
}

/// Lets planning look at a token.
pub(super) fn look_at(token: &CancelToken) -> Interrupt {
    let token = token.clone();
    Arc::new(move || token.is_cancelled())
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
    ctrlc::set_handler(handle)
        .map_err(|error| CliError::input(format!("cannot install the Ctrl-C handler ({error}); close other programs")))
}

/// Ends the process and the commands that it has started, and discards unfinished files.
fn end() -> ! {
    end_all();
    abandon();
    say("anabranch: interrupted");
    std::process::exit(Exit::Interrupted as i32)
}
