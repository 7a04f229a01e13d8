//! Ending runs from another thread.

use super::abi::{anabranch_cancel, anabranch_status};
use super::handles::Handles;
use super::open::placed;
use super::status::guarded;
use anabranch::CancelToken;
use std::ptr;

/// The tokens that callers have open.
pub(crate) static TOKENS: Handles<anabranch_cancel, CancelToken> = Handles::new("cancel token");

/// Makes a token, to be given to runs. On success `cancel` is a handle, which anabranch_cancel_free() closes.
///
/// Any thread, at any time.
///
/// # Safety
/// `cancel` must be a place for a pointer, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_cancel_new(cancel: *mut *mut anabranch_cancel) -> anabranch_status {
    // SAFETY: as this function's.
    guarded(|| unsafe {
        let cancel = placed(cancel, ptr::null_mut())?;
        *cancel = TOKENS.open(CancelToken::new());
        Ok(())
    })
}

/// Asks every run with this token to stop, those under way and those to come: a token that was used once stays used. Runs end with
/// ANABRANCH_STATUS_CANCELLED between nodes, between the parts of a CPU's kernel, or within milliseconds of a wait; planning goes on to its end.
///
/// Any thread, at any time; not from a signal handler.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_cancel_request(cancel: *mut anabranch_cancel) -> anabranch_status {
    guarded(|| {
        TOKENS.get(cancel)?.cancel();
        Ok(())
    })
}

/// Closes a token; null is none. Runs that have it are not stopped by that.
///
/// Any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_cancel_free(cancel: *mut anabranch_cancel) -> anabranch_status {
    guarded(|| TOKENS.close(cancel))
}
