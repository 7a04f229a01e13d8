//! Strings from and to callers.

use super::abi::anabranch_status as Status;
use super::status::{Failure, Result};
use std::ffi::{CStr, CString, OsStr, c_char};
use std::path::Path;

/// Returns a caller's string.
///
/// # Errors
/// If it is null or not UTF-8. `what` is its name in errors.
///
/// # Safety
/// `text` must be null or end with a zero byte, and stay unchanged as long as it is read.
pub(crate) unsafe fn given<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(Failure::argument(format_args!("{what} is null")));
    }
    // SAFETY: by this function's contract.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Failure::argument(format_args!("{what} is not UTF-8: {error}")))
}

/// Returns a caller's path, which on Unix may be any bytes.
///
/// # Errors
/// If it is null, or not UTF-8 on systems that require it.
///
/// # Safety
/// As [`given`].
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    #[cfg(unix)]
    if !path.is_null() {
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: by this function's contract.
        return Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())));
    }
    // SAFETY: by this function's contract.
    unsafe { given(path, "the path") }.map(Path::new)
}

/// Returns a C string, with `?` in place of zero bytes.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// Writes a string with its zero byte to a caller's buffer, and reports the required bytes. If there is no buffer, only
/// reports them.
///
/// # Errors
/// If the buffer is too small; nothing is written then.
///
/// # Safety
/// `buffer` must be null or have `capacity` writable bytes. `needed` must be null or point to a writable number.
pub(crate) unsafe fn written(text: &str, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> Result<()> {
    let text = c_text(text);
    let bytes = text.as_bytes_with_nul();
    if buffer.is_null() && capacity > 0 {
        return Err(Failure::argument(format_args!("the buffer is null, but its capacity is {capacity} bytes")));
    }
    if buffer.is_null() && needed.is_null() {
        return Err(Failure::argument("the buffer and the out-parameter of its size are both null"));
    }
    if !needed.is_aligned() {
        return Err(Failure::argument("the out-parameter of the size is not aligned"));
    }
    // SAFETY: by this function's contract.
    unsafe {
        if let Some(needed) = needed.as_mut() {
            *needed = bytes.len();
        }
        if buffer.is_null() {
            return Ok(());
        }
        if capacity < bytes.len() {
            let length = bytes.len();
            return Err(Failure::new(
                Status::BufferTooSmall,
                format_args!("the text needs {length} bytes, but the buffer has {capacity}"),
            ));
        }
        buffer.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
    }
    Ok(())
}
