//! Cancellation of runs from another thread.

use super::abi::{anabranch_cancel, anabranch_status};
use super::handles::Handles;
use super::open::placed;
use super::status::guarded;
use anabranch::CancelToken;
use std::ptr;

/// Open tokens of callers.
pub(crate) static TOKENS: Handles<anabranch_cancel, CancelToken> = Handles::new("cancel token");

/// Makes a token that can be passed to runs. On success `cancel` is a handle, which anabranch_cancel_free() closes.
///
/// Any thread, at any time.
///
/// # Safety
/// `cancel` must point to a writable pointer, or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_cancel_new(cancel: *mut *mut anabranch_cancel) -> anabranch_status {
    // SAFETY: by this function's contract.
    guarded(|| unsafe {
        let cancel = placed(cancel, ptr::null_mut())?;
        *cancel = TOKENS.open(CancelToken::new());
        Ok(())
    })
}

/// Asks every run with this token to stop, now and in future: a token that was used once stays used.
///
/// Runs end with ANABRANCH_STATUS_CANCELLED between nodes, between the parts of a CPU's kernel, or within milliseconds
/// of a wait. Planning is not interrupted.
///
/// Any thread, at any time; not from a signal handler.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_cancel_request(cancel: *mut anabranch_cancel) -> anabranch_status {
    guarded(|| {
        TOKENS.get(cancel)?.cancel();
        Ok(())
    })
}

/// Closes a token. Does nothing if it is null. Runs that use it are not stopped.
///
/// Any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_cancel_free(cancel: *mut anabranch_cancel) -> anabranch_status {
    guarded(|| TOKENS.close(cancel))
}
