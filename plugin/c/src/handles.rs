//! Handles that callers hold instead of objects: numbers of a table.
//!
//! Handles are never used as addresses, and a number is never used twice. A handle that was closed, or never opened, is
//! therefore distinguished from an open handle. If a handle is closed while its object is in use, the object lives
//! until that use ends.

use super::status::{Failure, Result};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of the next handle of any kind: no two kinds share a number.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The open objects of type `T`, by handles that look like pointers to `H`.
pub(crate) struct Handles<H, T> {
    /// Name of an object in errors.
    what: &'static str,
    open: Mutex<BTreeMap<usize, Arc<T>>>,
    kind: PhantomData<fn(H)>,
}

impl<H, T> Handles<H, T> {
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, open: Mutex::new(BTreeMap::new()), kind: PhantomData }
    }

    /// Opens a handle for an object. O(log open).
    pub(crate) fn open(&self, object: T) -> *mut H {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.table().insert(number, Arc::new(object));
        ptr::without_provenance_mut(number)
    }

    /// Returns the object of a handle. O(log open).
    ///
    /// # Errors
    /// If it is not open.
    pub(crate) fn get(&self, handle: *const H) -> Result<Arc<T>> {
        self.table().get(&handle.addr()).cloned().ok_or_else(|| self.unknown(handle))
    }

    /// Closes a handle. Does nothing if it is null.
    ///
    /// # Errors
    /// If it is not open.
    pub(crate) fn close(&self, handle: *mut H) -> Result<()> {
        if handle.is_null() {
            return Ok(());
        }
        // Freeing an object may take a while, and nothing is locked meanwhile.
        let object = self.table().remove(&handle.addr());
        object.map(drop).ok_or_else(|| self.unknown(handle))
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unknown(&self, handle: *const H) -> Failure {
        let what = self.what;
        match handle.is_null() {
            true => Failure::argument(format_args!("the {what} is null")),
            false => Failure::argument(format_args!("this is not an open {what}: it was freed, or is another object")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_open_once_and_its_object_lives_while_it_is_used() {
        static TEXTS: Handles<u8, String> = Handles::new("text");
        let (one, other) = (TEXTS.open("one".into()), TEXTS.open("other".into()));
        let used = TEXTS.get(one).expect("open");
        TEXTS.close(one).expect("open");
        assert_eq!((&**used, &**TEXTS.get(other).expect("open")), ("one", "other"));
        for wrong in [one, ptr::null_mut(), ptr::without_provenance_mut(usize::MAX)] {
            assert!(TEXTS.get(wrong).expect_err("closed").to_string().contains("text"));
        }
        assert!(TEXTS.close(one).is_err() && TEXTS.close(ptr::null_mut()).is_ok());
    }
}
