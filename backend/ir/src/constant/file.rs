//! A file that holds constants: opened once, read when they are needed, rejected once it was changed.

use super::ConstantError;
use anabranch_kernels::{Buffer, DType, TensorSpec};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// An opened file with constants.
pub struct ConstantFile {
    file: File,
    /// Name of the file in errors.
    name: String,
    state: State,
    /// Whether the content is mapped instead of read.
    is_mapped: bool,
}

/// Metadata that shows whether a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        Self { bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

/// BLAKE3 hash that a tensor of a file must have.
pub(super) struct Checksum {
    hash: [u8; 32],
    /// Whether the hash was verified. Two threads that verify at the same time get the same result.
    is_verified: AtomicBool,
}

/// Bytes that are read and hashed at a time.
const PIECE: usize = 1 << 20;

impl Checksum {
    /// Creates a checksum. If `is_verified`, the tensor is not compared until [`forget`](Self::forget) is called.
    pub(super) fn new(hash: [u8; 32], is_verified: bool) -> Self {
        Self { hash, is_verified: AtomicBool::new(is_verified) }
    }

    /// Marks the tensor as unverified, so that it is compared again.
    pub(super) fn forget(&self) {
        self.is_verified.store(false, Ordering::Relaxed);
    }

    /// Reads the tensor `name` in these bytes of a file and compares its hash, unless it is verified. Takes 1 MiB of
    /// memory.
    ///
    /// # Errors
    /// If the hash differs, the file was changed since it was opened, or it cannot be read.
    pub(super) fn verify(&self, file: &ConstantFile, name: &str, place: Range<u64>) -> Result<(), ConstantError> {
        if self.is_verified.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (mut hasher, mut piece) = (blake3::Hasher::new(), vec![0; PIECE]);
        let mut at = place.start;
        while at < place.end {
            let part = &mut piece[..(place.end - at).min(PIECE as u64) as usize];
            file.read_part(name, at, part)?;
            hasher.update(part);
            at += part.len() as u64;
        }
        if *hasher.finalize().as_bytes() != self.hash {
            return Err(ConstantError::Damaged { file: file.name.clone(), tensor: name.to_owned() });
        }
        self.is_verified.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl ConstantFile {
    /// Wraps an open file and records its present state.
    pub fn new(file: File, name: String) -> io::Result<Self> {
        let state = State::of(&file.metadata()?);
        Ok(Self { file, name, state, is_mapped: false })
    }

    /// Wraps an open file whose tensors are mapped into memory that all readers of the file share.
    ///
    /// Use it only for files that are always replaced as a whole.
    pub fn mapped(file: File, name: String) -> io::Result<Self> {
        Ok(Self { is_mapped: true, ..Self::new(file, name)? })
    }

    /// Nanoseconds within the second of the last change; `None` if the system does not know them.
    pub fn moment(&self) -> Option<u32> {
        let since = self.state.modified?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(since.subsec_nanos())
    }

    /// Name of the file in errors.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file's present metadata.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Size of the file when it was opened, in bytes.
    pub fn size(&self) -> u64 {
        self.state.bytes
    }

    /// Reads `bytes.len()` bytes from `offset` on.
    pub fn read_exact(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        #[cfg(any(test, feature = "testing"))]
        self.fail()?;
        read_exact_at(&self.file, offset, bytes)
    }

    /// Reads the tensor `name` at `offset`.
    ///
    /// # Errors
    /// If the file was changed since it was opened or cannot be read, or memory is short.
    pub(super) fn read(&self, name: &str, offset: u64, spec: &TensorSpec) -> Result<Buffer, ConstantError> {
        let buffer = self.part(name, offset, spec.bytes())?;
        let wrong = match spec.dtype {
            DType::Bool => buffer.bytes().iter().position(|byte| *byte > 1),
            _ => None,
        };
        match wrong {
            Some(index) => Err(ConstantError::NotBool { tensor: name.to_owned(), index }),
            None => Ok(buffer),
        }
    }

    /// Maps or reads `bytes` bytes of the tensor `name` from `offset` on.
    ///
    /// # Errors
    /// If the file was changed since it was opened or cannot be read, or memory is short.
    pub(super) fn part(&self, name: &str, offset: u64, bytes: usize) -> Result<Buffer, ConstantError> {
        if self.is_mapped {
            // SAFETY: users write into no compiled model that is in use, as SECURITY.md asks. We replace old
            // models by new files (`files::write`).
            let mapped = unsafe { Buffer::mapped(&self.file, offset, bytes) };
            // If the file system cannot map, or the process may not map more, the file is read.
            if mapped.as_ref().err().is_none_or(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
                return self.unchanged(name, mapped);
            }
        }
        let short = || ConstantError::OutOfMemory { tensor: name.to_owned(), bytes };
        let mut buffer = Buffer::try_zeroed(bytes).ok_or_else(short)?;
        self.read_part(name, offset, buffer.bytes_mut())?;
        Ok(buffer)
    }

    /// Reads `part.len()` bytes of the tensor `name` from `offset` on.
    ///
    /// # Errors
    /// If the file was changed since it was opened or cannot be read.
    pub(super) fn read_part(&self, name: &str, offset: u64, part: &mut [u8]) -> Result<(), ConstantError> {
        let read = self.read_exact(offset, part);
        self.unchanged(name, read)
    }

    /// Returns the data just read of the tensor `name`, if the file is unchanged since it was opened.
    fn unchanged<T>(&self, name: &str, read: io::Result<T>) -> Result<T, ConstantError> {
        // The check follows the read, so that it covers the data just read.
        let now = self.file.metadata().map(|metadata| State::of(&metadata));
        let (file, tensor) = (|| self.name.clone(), || name.to_owned());
        match read.and_then(|read| Ok((read, now?))) {
            Ok((read, now)) if now == self.state => Ok(read),
            Ok(_) => Err(ConstantError::Changed { file: file(), tensor: tensor() }),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(ConstantError::Changed { file: file(), tensor: tensor() })
            }
            Err(error) => Err(ConstantError::Io { file: file(), tensor: tensor(), reason: error.to_string() }),
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (offset, bytes) = (offset + read as u64, &mut bytes[read..]);
    }
    Ok(())
}
