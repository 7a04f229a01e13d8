//! Reads of models and their data that fail where a test says.

use super::file::ConstantFile;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whose reads fail, by what their names begin with, and how many go well before one does. There is one for the process: sessions read on several
/// threads.
static FAULT: Mutex<Option<(String, usize)>> = Mutex::new(None);

/// Runs `work` while the `n`th read beneath `folder` fails. Returns its result, and whether that read was met.
pub fn failing<T>(folder: &Path, n: usize, work: impl FnOnce() -> T) -> (T, bool) {
    *fault() = Some((folder.display().to_string(), n));
    let result = work();
    let met = fault().take().is_some_and(|(_, left)| left > n);
    (result, met)
}

fn fault() -> MutexGuard<'static, Option<(String, usize)>> {
    FAULT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConstantFile {
    /// An error if this read is to fail; the one after it goes well.
    pub(super) fn fail(&self) -> io::Result<()> {
        let mut fault = fault();
        match &mut *fault {
            Some((files, left)) if self.name().starts_with(&**files) => {
                let fails = *left == 0;
                *left = left.wrapping_sub(1);
                if fails { Err(io::Error::other("the disk was made to fail")) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}
