//! Errors and panics on their way to ONNX Runtime.

use anabranch::files::without_os_errors;
use anabranch_kernels::{OutOfMemory, panic_text};
use ort_sys::{OrtApi, OrtErrorCode, OrtStatusPtr};
use std::any::Any;
use std::ffi::CString;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Failure, as reported to ONNX Runtime.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    code: OrtErrorCode,
    text: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Returns the failure of this library.
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Self { code: OrtErrorCode::ORT_EP_FAIL, text: without_os_errors(&text.to_string()) }
    }

    /// Returns the failure of a wrong request by the application.
    pub(crate) fn argument(text: impl fmt::Display) -> Self {
        Self { code: OrtErrorCode::ORT_INVALID_ARGUMENT, text: without_os_errors(&text.to_string()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<anabranch::SessionError> for Failure {
    fn from(error: anabranch::SessionError) -> Self {
        Self::new(error)
    }
}

impl From<anabranch::import::ImportError> for Failure {
    fn from(error: anabranch::import::ImportError) -> Self {
        Self::new(error)
    }
}

/// Calls `call`. Turns its failure or panic into a status of ONNX Runtime: nothing unwinds into it.
pub(crate) fn guarded(api: &OrtApi, call: impl FnOnce() -> Result<()>) -> OrtStatusPtr {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return OrtStatusPtr::default(),
        Ok(Err(failure)) => failure,
        Err(panic) => failed(&*panic),
    };
    let text = format!("Anabranch: {failure}").replace('\0', "?");
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the string ends with a zero byte, and is copied.
    unsafe { (api.CreateStatus)(failure.code, text.as_ptr()) }
}

/// Returns the failure of a panic.
fn failed(panic: &(dyn Any + Send)) -> Failure {
    if let Some(short) = panic.downcast_ref::<OutOfMemory>() {
        return Failure::new(short);
    }
    let text = panic_text(panic).unwrap_or("a panic without a message");
    Failure::new(format_args!("an internal error: {text}; please report it"))
}
