//! Ctrl-C ends a run cleanly.

use super::CliError;
use anabranch::drops::end_all;
use anabranch::execute::CancelToken;
use anabranch::session::SessionError;

/// A token that an interruption (Ctrl-C, SIGTERM) uses. A second interruption ends the process at once,
/// and the commands of its graphs.
pub(super) fn cancel_on_interrupt() -> Result<CancelToken, CliError> {
    let token = CancelToken::new();
    let used = token.clone();
    ctrlc::set_handler(move || {
        if used.is_cancelled() {
            end_all();
            std::process::exit(130);
        }
        used.cancel();
    })
    .map_err(|error| {
        CliError::input(format!("the system lets nobody wait for Ctrl-C ({error}); close other programs"))
    })?;
    Ok(token)
}

/// An interrupted run has its own exit code.
pub(super) fn cancelled(error: SessionError) -> CliError {
    if error.is_cancelled() { CliError::interrupted() } else { error.into() }
}
