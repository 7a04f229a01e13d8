//! The container of a compiled model: a description, small constants, and weights that stay in the file until a kernel
//! reads them.
//!
//! | bytes | what |
//! |---|---|
//! | 0..16 | [`MAGIC`] |
//! | 16..20 | [`FORMAT`], then four zero bytes |
//! | 24..64 | bytes of the description, bytes of the small constants, place and bytes of the weights, and how many weights there are |
//! | 64..96 | BLAKE3 of all bytes before the weights except these 32 |
//! | 96.. | the description; at the next multiple of 64 the small constants; at the next of 4096 the weights, each at a multiple of 64 |
//! | then | BLAKE3 of each weight |
//! | last 32 | BLAKE3 of these checksums |
//!
//! Numbers are little endian. All positions follow from the sizes, and the sizes are checked against the file's length,
//! so that nothing in a file can point beyond its end. Everything except the weights is read into memory. The checksum
//! of that part is verified whenever a file is opened.
//!
//! Weights are mapped, and so are the kernels' forms of the weights, which follow them in the file: the time to open a
//! file does not depend on their size. The file's modification time shows whether they are unchanged: its nanoseconds
//! are the file's [`seal`], which every write moves. If the nanoseconds differ, as in a copy, each weight's checksum is
//! verified before its first use, so that a damaged weight is never computed with.

use super::error::CompiledError;
use anabranch_base::files;
use anabranch_ir::constant::ConstantFile;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// First bytes of a compiled model: they are not text, and a conversion of line ends breaks them.
pub(super) const MAGIC: &[u8; 16] = b"\x89anabranch\r\n\x1a\n\0\0";

/// Version of the format and of the meaning of its programs: raised whenever either changes, and when lowering is fixed
/// between releases.
pub(super) const FORMAT: u32 = 8;

/// Bytes of the header.
pub(super) const HEADER: usize = 96;

/// Alignment of small constants, and of each weight, in bytes.
pub(super) const ALIGNMENT: u64 = 64;

/// Alignment of the weights as a whole in bytes: a page.
const PAGE: u64 = 4096;

/// Bytes of a checksum.
const CHECKSUM: u64 = 32;

/// Most bytes of a description, and of everything before the weights: both are read into memory.
const MOST_DESCRIPTION: u64 = 1 << 26;
const MOST_FRONT: u64 = 1 << 30;

/// An opened container.
pub(super) struct Container {
    /// File, whose length is as the header says.
    pub(super) file: Arc<ConstantFile>,
    /// Everything before the weights.
    front: Vec<u8>,
    /// Checksums of the weights, one after the other.
    checksums: Vec<u8>,
    sizes: Sizes,
    /// Whether the file is unchanged since it was written, so that its weights are known to be sound without reading
    /// them.
    pub(super) is_sealed: bool,
}

/// Sizes of the parts, from which all positions follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    description: u64,
    held: u64,
    weights: u64,
    /// Number of weights.
    count: u64,
}

impl Sizes {
    /// Positions of the small constants, the weights, their checksums, and the end of the file; `None` on overflow.
    fn places(self) -> Option<[u64; 4]> {
        let held = (HEADER as u64).checked_add(self.description)?.checked_next_multiple_of(ALIGNMENT)?;
        let weights = held.checked_add(self.held)?.checked_next_multiple_of(PAGE)?;
        let checksums = weights.checked_add(self.weights)?;
        Some([held, weights, checksums, checksums.checked_add(self.count.checked_add(1)?.checked_mul(CHECKSUM)?)?])
    }

    /// Whether the parts that are read into memory are no larger than ever written.
    fn fit(self) -> bool {
        let front = self.places().map_or(u64::MAX, |[_, weights, ..]| weights);
        self.description <= MOST_DESCRIPTION && front <= MOST_FRONT && self.count <= MOST_DESCRIPTION / CHECKSUM
    }
}

/// Whether a file is a compiled model, by its first bytes. `false` if it cannot be read: opening it then reports the
/// error.
pub(super) fn is_one(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    files::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == *MAGIC
}

/// Writes a container. Returns the nanoseconds that the file's modification time must have.
///
/// `weights` passes on the weights, one after the other: their given number, which take `bytes` bytes including the
/// gaps between them.
///
/// # Errors
/// If `out` fails, or `weights` fails or passes on weights that differ from the given sizes.
pub(super) fn write(
    out: &mut dyn Write,
    description: &[u8],
    held: &[u8],
    (count, bytes): (usize, u64),
    weights: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
) -> io::Result<u32> {
    let (description_bytes, held_bytes) = (description.len() as u64, held.len() as u64);
    let sizes = Sizes { description: description_bytes, held: held_bytes, weights: bytes, count: count as u64 };
    let large = || io::Error::other("the model is larger than any file");
    let [held_at, weights_at, ..] = sizes.places().ok_or_else(large)?;
    if !sizes.fit() {
        return Err(io::Error::other("the model has more nodes or small constants than a compiled model can hold"));
    }
    let mut front = vec![0; HEADER];
    front[..16].copy_from_slice(MAGIC);
    front[16..20].copy_from_slice(&FORMAT.to_le_bytes());
    for (at, number) in (24..).step_by(8).zip([sizes.description, sizes.held, weights_at, bytes, sizes.count]) {
        front[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    front.extend_from_slice(description);
    front.resize(held_at as usize, 0);
    front.extend_from_slice(held);
    front.resize(weights_at as usize, 0);
    let checksum = checksum(&front);
    front[64..HEADER].copy_from_slice(checksum.as_bytes());
    out.write_all(&front)?;
    let (mut checksums, mut written) = (Vec::new(), 0u64);
    weights(&mut |weight| {
        checksums.extend_from_slice(blake3::hash(weight).as_bytes());
        let whole = (weight.len() as u64).next_multiple_of(ALIGNMENT);
        written += whole;
        out.write_all(weight)?;
        out.write_all(&[0; ALIGNMENT as usize][..(whole - weight.len() as u64) as usize])
    })?;
    if written != bytes || checksums.len() as u64 != sizes.count * CHECKSUM {
        return Err(io::Error::other("the size of a constant changed"));
    }
    out.write_all(&checksums)?;
    out.write_all(blake3::hash(&checksums).as_bytes())?;
    Ok(seal(&front, &checksums))
}

/// Returns the nanoseconds of a file with these checksums.
fn seal(front: &[u8], checksums: &[u8]) -> u32 {
    let hash = blake3::Hasher::new().update(&front[64..HEADER]).update(checksums).finalize();
    let number = u32::from_le_bytes(std::array::from_fn(|at| hash.as_bytes()[at]));
    // A multiple of 100 ns, which every present file system can store.
    number % 10_000_000 * 100
}

/// Hash of everything before the weights, except the checksum itself.
fn checksum(front: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(&front[..64]).update(&front[HEADER..]).finalize()
}

impl Container {
    /// Opens a container and verifies everything except its weights.
    ///
    /// # Errors
    /// If the file cannot be read, or is not exactly as a header of this format says.
    pub(super) fn open(path: &Path) -> Result<Self, CompiledError> {
        let io = |error: io::Error| CompiledError::io(path, error);
        let damaged = |problem: &str| CompiledError::damaged(path, problem);
        let file = files::open(path).map_err(io)?;
        let file = ConstantFile::mapped(file, path.display().to_string()).map_err(io)?;
        let mut header = [0; HEADER];
        if file.size() < HEADER as u64 {
            return Err(damaged("it is truncated"));
        }
        file.read_exact(0, &mut header).map_err(io)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        if header[..16] != *MAGIC {
            return Err(damaged("its first bytes are wrong"));
        }
        let format = (number(16) & u64::from(u32::MAX)) as u32;
        if format != FORMAT {
            return Err(damaged(&format!("its format is {format}, but this version of Anabranch reads {FORMAT}")));
        }
        let sizes = Sizes { description: number(24), held: number(32), weights: number(48), count: number(56) };
        let places = sizes.places().filter(|[_, weights, _, end]| *weights == number(40) && *end == file.size());
        let Some([_, weights_at, checksums_at, end]) = places else {
            return Err(damaged("it is truncated, or data were appended"));
        };
        if !sizes.fit() {
            return Err(damaged("its description is too large"));
        }
        let read = |from: u64, to: u64| {
            let mut part = Vec::new();
            // The range is no larger than the file.
            let bytes = usize::try_from(to - from).ok().filter(|bytes| part.try_reserve_exact(*bytes).is_ok());
            let bytes = bytes.ok_or_else(|| CompiledError::io(path, "its description exceeds the available memory"))?;
            part.resize(bytes, 0);
            file.read_exact(from, &mut part).map_err(io)?;
            Ok(part)
        };
        let (front, mut checksums) = (read(0, weights_at)?, read(checksums_at, end)?);
        let known = checksums.split_off(checksums.len() - CHECKSUM as usize);
        let is_sound = checksum(&front).as_bytes()[..] == front[64..HEADER];
        if !is_sound || blake3::hash(&checksums).as_bytes()[..] != known {
            return Err(damaged("its checksum is wrong"));
        }
        let is_sealed = file.moment() == Some(seal(&front, &checksums));
        Ok(Self { file: Arc::new(file), front, checksums, sizes, is_sealed })
    }

    pub(super) fn description(&self) -> &[u8] {
        &self.front[HEADER..][..self.sizes.description as usize]
    }

    /// Returns the small constants.
    pub(super) fn held(&self) -> &[u8] {
        let at = (HEADER as u64 + self.sizes.description).next_multiple_of(ALIGNMENT) as usize;
        &self.front[at..][..self.sizes.held as usize]
    }

    /// Returns the position in the file of a weight of this many bytes that lies `at` among the weights, and the
    /// checksum of the weight `number`.
    ///
    /// `None` if the weight is not within the file, or there is no such number.
    pub(super) fn weight(&self, number: usize, at: u64, bytes: u64) -> Option<(u64, [u8; 32])> {
        at.checked_add(bytes).filter(|end| *end <= self.sizes.weights)?;
        let checksum = self.checksums.chunks_exact(CHECKSUM as usize).nth(number)?;
        Some((self.front.len() as u64 + at, checksum.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A container of 5 bytes of description, 3 bytes of small constants, and weights of 64 and 30 bytes.
    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        let weights = |put: &mut dyn FnMut(&[u8]) -> io::Result<()>| put(&[7; 64]).and_then(|()| put(&[8; 30]));
        write(&mut bytes, b"about", &[1, 2, 3], (2, 128), weights).map(drop).expect("memory takes it");
        bytes
    }

    fn opened(bytes: &[u8]) -> Result<Container, CompiledError> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), bytes).expect("a small file");
        Container::open(file.path())
    }

    #[test]
    fn what_was_written_comes_back() {
        let container = opened(&bytes()).expect("sound");
        assert_eq!((container.description(), container.held()), (&b"about"[..], &[1, 2, 3][..]));
        let (at, checksum) = container.weight(1, 64, 30).expect("within");
        let mut read = [0; 30];
        container.file.read_exact(at, &mut read).expect("there");
        assert_eq!((read, checksum), ([8; 30], *blake3::hash(&[8; 30]).as_bytes()));
        assert_eq!((at % PAGE, container.weight(2, 0, 64), container.weight(1, 64, 65)), (64, None, None));
        assert_eq!(container.weight(0, u64::MAX, 1), None);
    }

    #[test]
    fn no_byte_but_of_weights_can_change_and_none_can_be_missing_or_more() {
        let sound = bytes();
        let weights = sound.len() - 3 * 32 - 128..sound.len() - 3 * 32;
        for at in (0..sound.len()).filter(|at| !weights.contains(at)) {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(opened(&bytes).is_err(), "byte {at}");
        }
        assert!((0..sound.len()).all(|length| opened(&sound[..length]).is_err()));
        assert!(opened(&[&sound[..], &[0]].concat()).is_err());
    }

    #[test]
    fn sizes_beyond_any_file_are_refused_before_memory_is_taken() {
        for at in [24, 32, 40, 48, 56] {
            let mut bytes = bytes();
            bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            let error = opened(&bytes).err().expect("too large").to_string();
            assert!(error.contains("truncated"), "{error}");
        }
        let mut newer = bytes();
        newer[16] = 9;
        assert!(opened(&newer).err().expect("newer").to_string().contains("its format is 9, but this version"));
    }
}
