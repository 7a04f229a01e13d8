//! Texts from and to callers.

use super::abi::anabranch_status as Status;
use super::status::{Failure, Result};
use std::ffi::{CStr, CString, OsStr, c_char};
use std::path::Path;

/// A text of a caller's.
///
/// # Errors
/// If it is null or not UTF-8. `what` it is in errors.
///
/// # Safety
/// It must be null or end with a zero byte, and stay as it is as long as it is read.
pub(crate) unsafe fn given<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(Failure::argument(format_args!("{what} is null")));
    }
    // SAFETY: as this function's.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Failure::argument(format_args!("{what} is not UTF-8: {error}")))
}

/// A path of a caller's, which on Unix may be any bytes.
///
/// # Errors
/// If it is null, or not UTF-8 where paths have to be.
///
/// # Safety
/// As [`given`].
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    #[cfg(unix)]
    if !path.is_null() {
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: as this function's.
        return Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())));
    }
    // SAFETY: as this function's.
    unsafe { given(path, "the path") }.map(Path::new)
}

/// A text as C has it, with `?` in the place of zero bytes.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// Writes a text with its zero byte to a caller's room, and tells how many bytes that takes. Without any room, that is only told.
///
/// # Errors
/// If the room is too small: nothing is written then.
///
/// # Safety
/// `buffer` must be null or have room for `room` bytes, and `needed` be null or one number.
pub(crate) unsafe fn written(text: &str, buffer: *mut c_char, room: usize, needed: *mut usize) -> Result<()> {
    let text = c_text(text);
    let bytes = text.as_bytes_with_nul();
    if buffer.is_null() && room > 0 {
        return Err(Failure::argument(format_args!("the buffer is null, but said to have {room} bytes")));
    }
    if buffer.is_null() && needed.is_null() {
        return Err(Failure::argument("both the buffer and the place for its size are null"));
    }
    if !needed.is_aligned() {
        return Err(Failure::argument("the place for the size is not aligned"));
    }
    // SAFETY: as this function's.
    unsafe {
        if let Some(needed) = needed.as_mut() {
            *needed = bytes.len();
        }
        if buffer.is_null() {
            return Ok(());
        }
        if room < bytes.len() {
            let length = bytes.len();
            return Err(Failure::new(
                Status::Room,
                format_args!("the text takes {length} bytes; there is room for {room}"),
            ));
        }
        buffer.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
    }
    Ok(())
}
