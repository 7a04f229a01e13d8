//! The container of a compiled model: a description, small constants, and weights that stay in the file until a kernel reads them.
//!
//! | bytes | what |
//! |---|---|
//! | 0..16 | [`MAGIC`] |
//! | 16..20 | [`FORMAT`], then four zero bytes |
//! | 24..64 | bytes of the description, bytes of the small constants, place and bytes of the weights, and zero |
//! | 64..96 | BLAKE3 of all bytes before the weights but these |
//! | 96.. | the description; at the next multiple of 64 the small constants; at the next of 4096 the weights |
//! | last 32 | BLAKE3 of the weights |
//!
//! Numbers are little endian. All places follow from the sizes, and the sizes from the file's length, so that nothing in a file can point
//! beyond it; memory is taken for what comes before the weights alone. The checksum of that is verified whenever a file is opened. That of the
//! weights is not, since it would have all of them read: [`Container::verify`] does, when a person asks.

use super::error::CompiledError;
use crate::constant::ConstantFile;
use crate::files;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What a compiled model begins with: no text, and broken by what changes line ends.
pub(super) const MAGIC: &[u8; 16] = b"\x89anabranch\r\n\x1a\n\0\0";

/// The version of the format, and of what its programs mean: raised whenever either changes.
pub(super) const FORMAT: u32 = 1;

/// Bytes of the header.
pub(super) const HEADER: usize = 96;

/// To which small constants, and each of the weights, are aligned.
pub(super) const ALIGNMENT: u64 = 64;

/// To which the weights as a whole are aligned: a page.
const PAGE: u64 = 4096;

/// Bytes of a checksum.
const CHECKSUM: u64 = 32;

/// Bytes of a description, and of all before the weights, at most: they are taken into memory.
const MOST_DESCRIPTION: u64 = 1 << 26;
const MOST_FRONT: u64 = 1 << 30;

/// Bytes that are read at a time to be verified.
const PIECE: usize = 1 << 20;

/// An opened container.
pub(super) struct Container {
    /// The file, whose length is what the header says.
    pub(super) file: Arc<ConstantFile>,
    /// All that comes before the weights.
    front: Vec<u8>,
    sizes: Sizes,
}

/// The sizes of the parts, of which all places follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    description: u64,
    held: u64,
    weights: u64,
}

impl Sizes {
    /// Where the small constants begin, the weights, and the file ends; `None` if that is more than any file.
    fn places(self) -> Option<[u64; 3]> {
        let held = (HEADER as u64).checked_add(self.description)?.checked_next_multiple_of(ALIGNMENT)?;
        let weights = held.checked_add(self.held)?.checked_next_multiple_of(PAGE)?;
        Some([held, weights, weights.checked_add(self.weights)?.checked_add(CHECKSUM)?])
    }
}

/// Whether a file is a compiled model, by what it begins with. `false` if it cannot be read: whoever opens it then says why.
pub(super) fn is_one(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    files::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == *MAGIC
}

/// Writes a container. `weights` gives the weights, of `bytes` bytes, piece by piece.
///
/// # Errors
/// If `out` takes no more, or `weights` fails or gives another number of bytes.
pub(super) fn write(
    out: &mut dyn Write,
    description: &[u8],
    held: &[u8],
    bytes: u64,
    weights: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
) -> io::Result<()> {
    let sizes = Sizes { description: description.len() as u64, held: held.len() as u64, weights: bytes };
    let large = || io::Error::other("the model is larger than any file");
    let [held_at, weights_at, _] = sizes.places().ok_or_else(large)?;
    if sizes.description > MOST_DESCRIPTION || weights_at > MOST_FRONT {
        return Err(io::Error::other("the model has more nodes or small constants than can be opened again"));
    }
    let mut front = vec![0; HEADER];
    front[..16].copy_from_slice(MAGIC);
    front[16..20].copy_from_slice(&FORMAT.to_le_bytes());
    for (at, number) in (24..).step_by(8).zip([sizes.description, sizes.held, weights_at, bytes]) {
        front[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    front.extend_from_slice(description);
    front.resize(held_at as usize, 0);
    front.extend_from_slice(held);
    front.resize(weights_at as usize, 0);
    let checksum = checksum(&front);
    front[64..HEADER].copy_from_slice(checksum.as_bytes());
    out.write_all(&front)?;
    let (mut hasher, mut written) = (blake3::Hasher::new(), 0u64);
    weights(&mut |piece| {
        hasher.update(piece);
        written += piece.len() as u64;
        out.write_all(piece)
    })?;
    if written != bytes {
        return Err(io::Error::other("a constant has another size than it had"));
    }
    out.write_all(hasher.finalize().as_bytes())
}

/// Of all before the weights but the checksum itself.
fn checksum(front: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(&front[..64]).update(&front[HEADER..]).finalize()
}

impl Container {
    /// Opens a container and verifies everything but its weights.
    ///
    /// # Errors
    /// If the file cannot be read, or is not exactly what a header of this format says.
    pub(super) fn open(path: &Path) -> Result<Self, CompiledError> {
        let io = |error: io::Error| CompiledError::io(path, error);
        let damaged = |problem: &str| CompiledError::damaged(path, problem);
        let file = files::open(path).map_err(io)?;
        let file = ConstantFile::new(file, path.display().to_string()).map_err(io)?;
        let mut header = [0; HEADER];
        if file.len() < HEADER as u64 {
            return Err(damaged("it is cut off"));
        }
        file.read_exact(0, &mut header).map_err(io)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        if header[..16] != *MAGIC {
            return Err(damaged("it does not begin like one"));
        }
        let format = (number(16) & u64::from(u32::MAX)) as u32;
        if format != FORMAT {
            return Err(damaged(&format!("of format {format}, and this version of Anabranch reads {FORMAT}")));
        }
        let sizes = Sizes { description: number(24), held: number(32), weights: number(48) };
        let places = sizes.places().filter(|[_, weights, end]| *weights == number(40) && *end == file.len());
        let Some([_, weights_at, _]) = places else {
            return Err(damaged("it is cut off, or something was added to it"));
        };
        if sizes.description > MOST_DESCRIPTION || weights_at > MOST_FRONT {
            return Err(damaged("its description is larger than any that is written"));
        }
        let mut front = Vec::new();
        // No more than the file has.
        let bytes = usize::try_from(weights_at).ok().filter(|bytes| front.try_reserve_exact(*bytes).is_ok());
        let bytes = bytes.ok_or_else(|| damaged("its description takes more memory than there is"))?;
        front.resize(bytes, 0);
        file.read_exact(0, &mut front).map_err(io)?;
        if checksum(&front).as_bytes()[..] != front[64..HEADER] {
            return Err(damaged("its checksum is wrong"));
        }
        Ok(Self { file: Arc::new(file), front, sizes })
    }

    pub(super) fn description(&self) -> &[u8] {
        &self.front[HEADER..][..self.sizes.description as usize]
    }

    /// The small constants.
    pub(super) fn held(&self) -> &[u8] {
        let at = (HEADER as u64 + self.sizes.description).next_multiple_of(ALIGNMENT) as usize;
        &self.front[at..][..self.sizes.held as usize]
    }

    /// Where weights lie in the file that lie there among themselves; `None` if they are not all within.
    pub(super) fn weights_at(&self, place: Range<u64>) -> Option<u64> {
        let within = place.start <= place.end && place.end <= self.sizes.weights;
        within.then_some(self.front.len() as u64 + place.start)
    }

    /// Reads all weights and compares them with their checksum. Takes a mebibyte of memory.
    ///
    /// # Errors
    /// If they cannot be read, or are not those that were written.
    pub(super) fn verify(&self, path: &Path) -> Result<(), CompiledError> {
        let io = |error| CompiledError::io(path, error);
        let (mut hasher, mut piece) = (blake3::Hasher::new(), vec![0; PIECE]);
        let (mut at, end) = (self.front.len() as u64, self.front.len() as u64 + self.sizes.weights);
        while at < end {
            let most = (end - at).min(PIECE as u64) as usize;
            self.file.read_exact(at, &mut piece[..most]).map_err(io)?;
            hasher.update(&piece[..most]);
            at += most as u64;
        }
        let mut known = [0; CHECKSUM as usize];
        self.file.read_exact(end, &mut known).map_err(io)?;
        match *hasher.finalize().as_bytes() == known {
            true => Ok(()),
            false => Err(CompiledError::damaged(path, "its weights are not those that were written")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A container of 5 bytes of description, 3 of small constants and 70 of weights.
    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        let weights = |put: &mut dyn FnMut(&[u8]) -> io::Result<()>| put(&[7; 40]).and_then(|()| put(&[8; 30]));
        write(&mut bytes, b"about", &[1, 2, 3], 70, weights).expect("memory takes it");
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
        let at = container.weights_at(38..42).expect("within");
        let mut read = [0; 4];
        container.file.read_exact(at, &mut read).expect("there");
        assert_eq!(read, [7, 7, 8, 8]);
        assert_eq!((at % PAGE, container.weights_at(60..71)), (38, None));
        container.verify(Path::new("m")).expect("as written");
    }

    #[test]
    fn no_byte_before_the_weights_can_change_and_none_can_be_missing_or_more() {
        let sound = bytes();
        let weights = sound.len() - 70 - 32;
        for at in 0..weights {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(opened(&bytes).is_err(), "byte {at}");
        }
        for at in weights..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            let error = opened(&bytes).expect("weights are not read").verify(Path::new("m")).expect_err("changed");
            assert!(error.to_string().contains("`anabranch compile`"), "{error}");
        }
        assert!((0..sound.len()).all(|length| opened(&sound[..length]).is_err()));
        assert!(opened(&[&sound[..], &[0]].concat()).is_err());
    }

    #[test]
    fn sizes_beyond_any_file_are_refused_before_memory_is_taken() {
        for at in [24, 32, 40, 48] {
            let mut bytes = bytes();
            bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            let error = opened(&bytes).err().expect("too large").to_string();
            assert!(error.contains("cut off"), "{error}");
        }
        let mut newer = bytes();
        newer[16] = 2;
        assert!(opened(&newer).err().expect("newer").to_string().contains("of format 2, and this version"));
    }
}
