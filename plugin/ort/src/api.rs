//! ONNX Runtime's functions as this library uses them: failures are [`Failure`]s, and texts and lists are owned.
//!
//! Pointers to graphs, nodes and values come from ONNX Runtime in the call that is being answered, and are used in that call alone: each
//! `unsafe` block below rests on that, and on `ort_sys` declaring the functions as they are.

use super::abi::{EpApi, VERSION};
use super::status::{Failure, Result};
use ort_sys::{OrtApi, OrtApiBase, OrtKeyValuePairs, OrtLogger, OrtLoggingLevel, OrtSessionOptions, OrtStatusPtr};
use std::ffi::{CStr, CString, c_char};
use std::ptr;

/// A function of `OrtApi` that tells how many parts something has.
pub(crate) type Count<O> = unsafe extern "system" fn(*const O, *mut usize) -> OrtStatusPtr;

/// A function of `OrtApi` that gives these parts.
pub(crate) type Parts<O, T> = unsafe extern "system" fn(*const O, *mut *const T, usize) -> OrtStatusPtr;

/// The functions of a host. It stays as long as this library is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    pub(crate) ort: &'static OrtApi,
    pub(crate) ep: &'static EpApi,
}

impl Api {
    /// The functions of the host that gave `base`; `Err` with what it can be told with, if it is too old.
    ///
    /// # Safety
    /// `base` must be what ONNX Runtime gave.
    pub(crate) unsafe fn of(base: *const OrtApiBase) -> std::result::Result<Self, &'static OrtApi> {
        // SAFETY: as this function's; every host has version 1, and tables of functions are never freed.
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

    /// What a function answered.
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

    /// What a function writes to where it is told.
    pub(crate) fn get<T>(self, initial: T, call: impl FnOnce(*mut T) -> OrtStatusPtr) -> Result<T> {
        let mut found = initial;
        self.done(call(&raw mut found))?;
        Ok(found)
    }

    /// A text that a function gives.
    pub(crate) fn text(self, call: impl FnOnce(*mut *const c_char) -> OrtStatusPtr) -> Result<String> {
        let text = self.get(ptr::null(), call)?;
        // SAFETY: ONNX Runtime's texts end with a zero byte.
        Ok(unsafe { owned(text) })
    }

    /// All that `owner` has of a kind.
    pub(crate) fn list<O, T>(self, owner: *const O, count: Count<O>, parts: Parts<O, T>) -> Result<Vec<*const T>> {
        // SAFETY: `owner` is of the call that is being answered.
        let length = self.get(0, |out| unsafe { count(owner, out) })?;
        let mut all = vec![ptr::null(); length];
        // SAFETY: there is room for as many as there are.
        self.done(unsafe { parts(owner, all.as_mut_ptr(), length) })?;
        Ok(all)
    }

    /// The keys and values of a set; none of one that is not there.
    ///
    /// # Safety
    /// `pairs` must be null or a set of ONNX Runtime's.
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

    /// The entries of a session's configuration.
    pub(crate) fn entries(self, options: *const OrtSessionOptions) -> Result<Vec<(String, String)>> {
        // SAFETY: `options` is of the call that is being answered; the copy is released once.
        unsafe {
            let all = self.get(ptr::null_mut(), |out| (self.ort.GetSessionOptionsConfigEntries)(options, out))?;
            let entries = self.pairs(all);
            (self.ort.ReleaseKeyValuePairs)(all);
            Ok(entries)
        }
    }

    /// Says something in the application's log.
    pub(crate) fn log(self, logger: *const OrtLogger, level: OrtLoggingLevel, text: &str) {
        let Ok(text) = CString::new(text.replace('\0', "?")) else { return };
        // SAFETY: the logger lives as long as the provider that it was given to, and texts are copied.
        let status = unsafe {
            (self.ort.Logger_LogMessage)(logger, level, text.as_ptr(), c"anabranch".as_ptr(), 0, c"Anabranch".as_ptr())
        };
        // A message that cannot be logged is no failure of what it was about.
        let _ = self.done(status);
    }
}

/// A copy of a text; an empty one of none.
///
/// # Safety
/// `text` must be null or end with a zero byte.
pub(crate) unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as this function's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
