//! ONNX Runtime's functions as this library uses them: failures are [`Failure`]s, and strings and lists are owned.
//!
//! Pointers to graphs, nodes and values come from ONNX Runtime in the call that is being answered, and are used in that
//! call alone. Each `unsafe` block below relies on that, and on `ort_sys` declaring the functions correctly.

use super::abi::{EpApi, VERSION};
use super::status::{Failure, Result};
use ort_sys::{OrtApi, OrtApiBase, OrtKeyValuePairs, OrtLogger, OrtLoggingLevel, OrtSessionOptions, OrtStatusPtr};
use std::ffi::{CStr, CString, c_char};
use std::ptr;

/// Function of `OrtApi` that returns a number of parts.
pub(crate) type Count<O> = unsafe extern "system" fn(*const O, *mut usize) -> OrtStatusPtr;

/// Function of `OrtApi` that returns these parts.
pub(crate) type Parts<O, T> = unsafe extern "system" fn(*const O, *mut *const T, usize) -> OrtStatusPtr;

/// Functions of a host. They stay valid as long as this library is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    pub(crate) ort: &'static OrtApi,
    pub(crate) ep: &'static EpApi,
}

impl Api {
    /// Returns the functions of the host that gave `base`. If the host is too old, `Err` holds functions to report
    /// that.
    ///
    /// # Safety
    /// `base` must be the pointer that ONNX Runtime gave.
    pub(crate) unsafe fn of(base: *const OrtApiBase) -> std::result::Result<Self, &'static OrtApi> {
        // SAFETY: by this function's contract; every host has version 1, and tables of functions are never freed.
        unsafe {
            let get = (*base).GetApi;
            match (get(VERSION)).as_ref() {
                Some(ort) => match (ort.GetEpApi)().cast::<EpApi>().as_ref() {
                    Some(ep) => Ok(Self { ort, ep }),
                    None => Err(ort),
                },
                None => Err(&*get(1)),
            }
        }
    }

    /// Turns the status of a function into a result.
    pub(crate) fn done(self, status: OrtStatusPtr) -> Result<()> {
        if status.0.is_null() {
            return Ok(());
        }
        // SAFETY: the status is not null, and released once, after its text was copied.
        unsafe {
            let text = owned((self.ort.GetErrorMessage)(status.0));
            (self.ort.ReleaseStatus)(status.0);
            Err(Failure::new(format_args!("ONNX Runtime: {text}")))
        }
    }

    /// Returns the value that a function writes to its output parameter.
    pub(crate) fn get<T>(self, initial: T, call: impl FnOnce(*mut T) -> OrtStatusPtr) -> Result<T> {
        let mut found = initial;
        self.done(call(&raw mut found))?;
        Ok(found)
    }

    /// Returns the string that a function yields.
    pub(crate) fn text(self, call: impl FnOnce(*mut *const c_char) -> OrtStatusPtr) -> Result<String> {
        let text = self.get(ptr::null(), call)?;
        // SAFETY: ONNX Runtime's texts end with a zero byte.
        Ok(unsafe { owned(text) })
    }

    /// Returns all parts of a kind that `owner` has.
    pub(crate) fn list<O, T>(self, owner: *const O, count: Count<O>, parts: Parts<O, T>) -> Result<Vec<*const T>> {
        // SAFETY: `owner` is of the call that is being answered.
        let length = self.get(0, |out| unsafe { count(owner, out) })?;
        let mut all = vec![ptr::null(); length];
        // SAFETY: there is room for as many as there are.
        self.done(unsafe { parts(owner, all.as_mut_ptr(), length) })?;
        Ok(all)
    }

    /// Returns the keys and values of a set; empty if it is null.
    ///
    /// # Safety
    /// `pairs` must be null or a set of ONNX Runtime.
    pub(crate) unsafe fn pairs(self, pairs: *const OrtKeyValuePairs) -> Vec<(String, String)> {
        if pairs.is_null() {
            return Vec::new();
        }
        let (mut keys, mut values, mut count) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the set has as many keys and values as it says.
        unsafe {
            (self.ort.GetKeyValuePairs)(pairs, &raw mut keys, &raw mut values, &raw mut count);
            (0..count).map(|at| (owned(*keys.add(at)), owned(*values.add(at)))).collect()
        }
    }

    /// Returns the entries of a session's configuration.
    pub(crate) fn entries(self, options: *const OrtSessionOptions) -> Result<Vec<(String, String)>> {
        // SAFETY: `options` is of the call that is being answered; the copy is released once.
        unsafe {
            let all = self.get(ptr::null_mut(), |out| (self.ort.GetSessionOptionsConfigEntries)(options, out))?;
            let entries = self.pairs(all);
            (self.ort.ReleaseKeyValuePairs)(all);
            Ok(entries)
        }
    }

    /// Writes a message to the application's log.
    pub(crate) fn log(self, logger: *const OrtLogger, level: OrtLoggingLevel, text: &str) {
        let Ok(text) = CString::new(text.replace('\0', "?")) else { return };
        // SAFETY: the logger lives as long as the provider that it was given to, and strings are copied.
        let status = unsafe {
            (self.ort.Logger_LogMessage)(logger, level, text.as_ptr(), c"anabranch".as_ptr(), 0, c"Anabranch".as_ptr())
        };
        // A message that cannot be logged is not a failure of its subject.
        let _ = self.done(status);
    }
}

/// Returns a copy of a string; empty if it is null.
///
/// # Safety
/// `text` must be null or end with a zero byte.
pub(crate) unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by this function's contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
