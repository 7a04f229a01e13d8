//! Content of data: files with their checksums, and bounded bytes in memory.
//!
//! Checksums are BLAKE3 of the content. DALiuGE uses CRC-32, which does not detect content that is forged to have an
//! equal checksum.

use anabranch_base::bytes::format_bytes;
use anabranch_base::cancel::CancelToken;
use anabranch_base::files;
use anabranch_base::lock::lock;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Most bytes of all memory drops together, and of the inputs of a function.
pub(super) const MOST_MEMORY: u64 = 1 << 30;

/// Bytes that are read at a time.
const BLOCK: usize = 1 << 16;

/// Length of a content, and its checksum in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) checksum: String,
    pub(super) bytes: u64,
}

impl Sum {
    pub(super) fn of(content: &[u8]) -> Self {
        Sum { checksum: blake3::hash(content).to_hex().to_string(), bytes: content.len() as u64 }
    }
}

/// Returns the checksum of any texts. Lengths are hashed, too, so that no text can pass for the end of another.
pub(super) fn sum_of_texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Returns the content of a regular file; `None` if nothing is there.
///
/// # Errors
/// If it is not a regular file or cannot be read. Cancellation is [`ErrorKind::Interrupted`].
pub(super) fn sum_of_file(path: &Path, token: &CancelToken) -> io::Result<Option<Sum>> {
    let mut file = match files::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut hasher, mut block) = (blake3::Hasher::new(), vec![0; BLOCK]);
    loop {
        if token.is_cancelled() {
            return Err(io::Error::new(ErrorKind::Interrupted, "cancelled"));
        }
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(length) => drop(hasher.update(&block[..length])),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(Sum { checksum: hasher.finalize().to_hex().to_string(), bytes: hasher.count() }))
}

/// Bytes that all memory drops may still take.
#[derive(Debug)]
pub(super) struct Budget(AtomicU64);

impl Budget {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Budget(AtomicU64::new(MOST_MEMORY)))
    }

    /// Takes bytes into memory.
    ///
    /// # Errors
    /// If all memory drops together would have more than [`MOST_MEMORY`].
    pub(super) fn hold(self: &Arc<Self>, bytes: Vec<u8>) -> Result<Arc<MemoryDrop>, String> {
        let length = bytes.len() as u64;
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(length));
        taken.map_err(|_| too_much())?;
        Ok(Arc::new(MemoryDrop { bytes, file: Mutex::new(None), budget: Arc::clone(self) }))
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the error, with the next step, of memory drops that are too large.
pub(super) fn too_much() -> String {
    format!("memory drops together hold more than {}; turn some of them into files", format_bytes(MOST_MEMORY))
}

/// Bytes of a memory drop, and their file while a command needs it. The last owner gives the bytes back to the budget.
#[derive(Debug)]
pub(super) struct MemoryDrop {
    bytes: Vec<u8>,
    file: Mutex<Option<PathBuf>>,
    budget: Arc<Budget>,
}

impl MemoryDrop {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes the bytes to the file at `path`, which must be the same each time. The file stays until the last owner
    /// goes.
    pub(super) fn put(&self, path: &Path) -> io::Result<()> {
        let mut file = lock(&self.file);
        if file.is_none() {
            files::make_directory(path)?;
            files::write(path, |file| file.write_all(&self.bytes))?;
            *file = Some(path.to_owned());
        }
        Ok(())
    }
}

impl Drop for MemoryDrop {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes.len() as u64, Ordering::Relaxed);
        if let Some(path) = lock(&self.file).take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a regular file, or a link but not its target. Does nothing if nothing is there.
///
/// # Errors
/// If something else is there, such as a device, or it cannot be removed.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(found) if !found.is_file() && !found.is_symlink() => {
            Err(io::Error::new(ErrorKind::InvalidInput, "exists and is not a regular file; remove it, or name another"))
        }
        _ => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_bytes_have_the_same_sums() {
        let folder = tempfile::tempdir().unwrap();
        let (path, token) = (folder.path().join("file"), CancelToken::new());
        assert_eq!(sum_of_file(&path, &token).unwrap(), None);
        let content: Vec<u8> = (0..3 * BLOCK + 7).map(|byte| byte as u8).collect();
        fs::write(&path, &content).unwrap();
        assert_eq!(sum_of_file(&path, &token).unwrap(), Some(Sum::of(&content)));
        assert!(sum_of_file(folder.path(), &token).is_err());
        token.cancel();
        assert_eq!(sum_of_file(&path, &token).unwrap_err().kind(), ErrorKind::Interrupted);
        assert_ne!(sum_of_texts(["ab", "c"]), sum_of_texts(["a", "bc"]));
    }

    #[test]
    fn memory_is_bounded_and_given_back_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (budget, path) = (Budget(AtomicU64::new(10)), folder.path().join("deep/file"));
        let budget = Arc::new(budget);
        let held = budget.hold(vec![7; 8]).unwrap();
        assert!(budget.hold(vec![0; 3]).unwrap_err().contains("turn some of them into files"));
        held.put(&path).unwrap();
        held.put(&path).unwrap();
        assert_eq!((fs::read(&path).unwrap(), budget.left()), (vec![7; 8], 2));
        drop(held);
        assert!(!path.exists() && budget.left() == 10);
    }
}
