//! Errors and panics on their way to ONNX Runtime.

use anabranch_kernels::{OutOfMemory, panic_text};
use ort_sys::{OrtApi, OrtErrorCode, OrtStatusPtr};
use std::any::Any;
use std::ffi::CString;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What ONNX Runtime is told when something fails.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    code: OrtErrorCode,
    text: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// What this library could not do.
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Self { code: OrtErrorCode::ORT_EP_FAIL, text: text.to_string() }
    }

    /// What the application asked for wrongly.
    pub(crate) fn argument(text: impl fmt::Display) -> Self {
        Self { code: OrtErrorCode::ORT_INVALID_ARGUMENT, text: text.to_string() }
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

/// Calls `call`, whose failure or panic becomes a status of ONNX Runtime's: nothing unwinds into it.
pub(crate) fn guarded(api: &OrtApi, call: impl FnOnce() -> Result<()>) -> OrtStatusPtr {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return OrtStatusPtr::default(),
        Ok(Err(failure)) => failure,
        Err(panic) => failed(&*panic),
    };
    let text = format!("Anabranch: {failure}").replace('\0', "?");
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the text ends with a zero byte, and is copied.
    unsafe { (api.CreateStatus)(failure.code, text.as_ptr()) }
}

/// What a panic said, as a failure.
fn failed(panic: &(dyn Any + Send)) -> Failure {
    if let Some(short) = panic.downcast_ref::<OutOfMemory>() {
        return Failure::new(short);
    }
    let text = panic_text(panic).unwrap_or("a panic without a text");
    Failure::new(format_args!("an internal error: {text}; please report it"))
}
