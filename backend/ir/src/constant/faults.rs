//! Injects read failures of models and their data, for tests.

use super::file::ConstantFile;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Prefix of the names of files whose reads fail, and the number of reads that succeed first. The process has one
/// fault, because sessions read on several threads.
static FAULT: Mutex<Option<(String, usize)>> = Mutex::new(None);

/// Runs `work` while the `n`th read below `folder` fails. Returns its result, and whether that read was reached.
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
    /// Returns an error if this read should fail; the next read succeeds.
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
