//! Errors and panics on their way to a caller: a number, and a text per thread.

use super::abi::anabranch_status as Status;
use super::text::c_text;
use anabranch::files::without_os_errors;
use anabranch::session::SettingError;
use anabranch::{ErrorKind, SessionError};
use anabranch_kernels::{OutOfMemory, panic_text};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Failure of a call, as reported to the caller.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    status: Status,
    text: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: Status, text: impl fmt::Display) -> Self {
        Self { status, text: without_os_errors(&text.to_string()) }
    }

    /// Returns the failure of a wrong call.
    pub(crate) fn argument(text: impl fmt::Display) -> Self {
        Self::new(Status::Argument, text)
    }

    /// Returns the failure of a panic.
    fn panic(panic: &(dyn Any + Send)) -> Self {
        if let Some(short) = panic.downcast_ref::<OutOfMemory>() {
            return Self::new(Status::Memory, short);
        }
        let text = panic_text(panic).unwrap_or("a panic without a message");
        Self::new(Status::Internal, format_args!("an internal error: {text}; please report it"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let status = match error.kind() {
            ErrorKind::Model => Status::Model,
            ErrorKind::Unsupported => Status::Unsupported,
            ErrorKind::Dimension | ErrorKind::MissingInput | ErrorKind::Input => Status::Input,
            ErrorKind::Device | ErrorKind::NoGpu | ErrorKind::DeviceFailure => Status::Device,
            ErrorKind::Strategy | ErrorKind::Constraint | ErrorKind::PlanFile | ErrorKind::PlatformFile => {
                Status::Option
            }
            ErrorKind::Memory => Status::Memory,
            ErrorKind::Infeasible => Status::Infeasible,
            ErrorKind::Cancelled => Status::Cancelled,
            ErrorKind::Timeout => Status::Timeout,
            _ => Status::Internal,
        };
        Self::new(status, error)
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::new(Status::Option, error)
    }
}

thread_local! {
    /// Text of this thread's last failure.
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Calls `call`. Turns its failure or panic into a status: nothing unwinds into the caller.
pub(crate) fn guarded(call: impl FnOnce() -> Result<()>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::panic(&*panic),
    };
    // A thread that is ending has no text any more.
    let _ = LAST.try_with(|last| last.replace(Some(c_text(&failure.text))));
    failure.status
}

/// Returns the text of this thread's last failure, in UTF-8: its subject, and the next step. Empty if no call has
/// failed.
///
/// The text is valid until the next failing call of this thread, or the thread's end. Successful calls do not change
/// it.
///
/// Any thread, at any time: each has its own text.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_last_error() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().as_ref().map_or(c"".as_ptr(), |text| text.as_ptr()));
    text.unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: the text is this thread's, which makes no other call meanwhile.
        unsafe { CStr::from_ptr(anabranch_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn panics_are_statuses_and_each_thread_has_its_own_text() {
        assert_eq!(last(), "");
        let shortage = || std::panic::panic_any(OutOfMemory { bytes: 7 });
        assert_eq!(guarded(shortage), Status::Memory);
        assert_eq!(guarded(|| panic!("a fault")), Status::Internal);
        assert!(last().contains("a fault"));
        std::thread::scope(|scope| _ = scope.spawn(|| assert_eq!(last(), "")));
        assert_eq!(guarded(|| Err(Failure::argument("with a \0 in it"))), Status::Argument);
        assert_eq!((guarded(|| Ok(())), &*last()), (Status::Ok, "with a ? in it"));
    }
}
