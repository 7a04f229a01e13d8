//! Constants: type and shape at once, elements on demand.
//!
//! The weights of a model are most of its memory, and most are read only to be packed or uploaded. A large constant of
//! a file therefore stays in the file until it is read. A constant that is computed from large constants is computed on
//! demand. All current holders of a constant share its loaded elements; the memory is freed with the last holder.

#[cfg(any(test, feature = "testing"))]
pub mod faults;
mod file;

use file::Checksum;
pub use file::ConstantFile;

use anabranch_base::quoted::Name;
use anabranch_kernels::cpu::Layout;
use anabranch_kernels::tensor::SizeMismatch;
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes from which on a constant stays in its file, or is computed on demand.
pub const LARGE: usize = 64 << 10;

/// Number of samples of a constant in a file.
const SAMPLES: u64 = 3;

/// Bytes of a sample.
const SAMPLE: usize = 4 << 10;

/// Longest chain of constants that are computed from each other on demand. Constants at a greater depth are computed at
/// once, because every reader may trigger a computation.
const DEEPEST: u8 = 4;

/// A tensor that never changes. Clones share its elements.
#[derive(Clone)]
pub struct Constant {
    spec: TensorSpec,
    data: Arc<Data>,
}

struct Data {
    identity: Identity,
    source: Source,
    /// The elements, while at least one holder has loaded them.
    loaded: Mutex<Weak<Buffer>>,
}

enum Source {
    Held(Arc<Buffer>),
    File { file: Arc<ConstantFile>, offset: u64, name: String, checksum: Option<Checksum>, packed: Vec<PackedForm> },
    Made { inputs: Vec<Constant>, make: Make },
}

/// A constant in the layout of a kernel, stored in the constant's file as well.
pub struct PackedForm {
    layout: Layout,
    place: Range<u64>,
    checksum: Checksum,
}

impl PackedForm {
    /// Creates a form of `bytes` bytes at `offset` with this BLAKE3 hash. If `is_verified`, they are known to have the
    /// hash.
    pub fn new(layout: Layout, (offset, bytes): (u64, u64), hash: [u8; 32], is_verified: bool) -> Self {
        Self { layout, place: offset..offset.saturating_add(bytes), checksum: Checksum::new(hash, is_verified) }
    }
}

/// Computes a constant from others.
type Make = Box<dyn Fn(&[Tensor]) -> Result<Tensor, String> + Send + Sync>;

/// Identity of a constant's elements: equal identities mean equal bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The bytes themselves.
    Bytes(Arc<[u8]>),
    /// Hash of the bytes (BLAKE3).
    Hash([u8; 32]),
    /// Number of the constant, unique within the process.
    Given(u64),
    /// Computation of the elements, and the identities of its inputs.
    Made(Arc<(String, Vec<Identity>)>),
}

/// Reason that the elements of a constant are not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConstantError {
    /// The file changed since the model was opened.
    #[error(
        "{} was changed while its model was in use: tensor {} cannot be read; open the model again",
        Name(file),
        Name(tensor)
    )]
    Changed {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// The elements differ from those that were written.
    #[error(
        "{} is damaged: tensor {} differs from its checksum; restore the file, or make it again with `anabranch \
         compile`",
        Name(file),
        Name(tensor)
    )]
    Damaged {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// The operating system refused.
    #[error(
        "tensor {} cannot be read from {}: {reason}; make the file readable and open the model again",
        Name(tensor),
        Name(file)
    )]
    Io {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// The system's message.
        reason: String,
    },
    /// There is not enough memory.
    #[error("tensor {} takes {bytes} bytes, which exceeds the available memory; close other programs", Name(tensor))]
    OutOfMemory {
        /// The tensor.
        tensor: String,
        /// Its size.
        bytes: usize,
    },
    /// A bool that is neither 0 nor 1.
    #[error("tensor {}: element {index} is not a valid bool (expected 0 or 1); export the model again", Name(tensor))]
    NotBool {
        /// The tensor.
        tensor: String,
        /// The element.
        index: usize,
    },
    /// The constant cannot be computed.
    #[error("a constant cannot be computed: {0}")]
    Made(String),
}

impl Constant {
    /// Creates a constant that is stored in a file.
    pub fn in_file(spec: TensorSpec, file: Arc<ConstantFile>, offset: u64, name: String) -> Self {
        Self::new(spec, next_identity(), Source::File { file, offset, name, checksum: None, packed: Vec::new() })
    }

    /// Creates a constant that is stored in a file, with a BLAKE3 hash of its bytes and with packed forms.
    ///
    /// Unless `is_verified`, the bytes are compared with the hash before their first use.
    pub fn in_file_of(
        spec: TensorSpec,
        (file, offset): (Arc<ConstantFile>, u64),
        name: String,
        (hash, is_verified): ([u8; 32], bool),
        packed: Vec<PackedForm>,
    ) -> Self {
        let checksum = Some(Checksum::new(hash, is_verified));
        Self::new(spec, next_identity(), Source::File { file, offset, name, checksum, packed })
    }

    /// Creates a constant that `make` computes from `inputs`; equal `how` must mean equal computation.
    ///
    /// Small constants, and constants at the end of a long chain, are computed at once.
    ///
    /// # Errors
    /// If the constant is computed at once, and that fails.
    pub fn made(
        spec: TensorSpec,
        how: String,
        inputs: Vec<Self>,
        make: impl Fn(&[Tensor]) -> Result<Tensor, String> + Send + Sync + 'static,
    ) -> Result<Self, ConstantError> {
        let depth = inputs.iter().map(|input| input.data.source.depth()).max().unwrap_or(0);
        let large = spec.bytes() >= LARGE;
        // Equal bytes are different elements under another type.
        let types: Vec<_> = inputs.iter().map(|input| input.spec.to_string()).collect();
        let how = format!("{how} of {}", types.join(", "));
        let identity = Identity::Made(Arc::new((how, inputs.iter().map(|input| input.identity().clone()).collect())));
        let made = Self::new(spec, identity, Source::Made { inputs, make: Box::new(make) });
        if large && depth < DEEPEST { Ok(made) } else { made.load().map(Self::from) }
    }

    /// Creates a constant whose elements `read` returns on demand; it must always return the same elements.
    ///
    /// They are kept only while a kernel reads them. Prefer tensors for small constants, because shapes may depend on
    /// their elements.
    pub fn read_by(spec: TensorSpec, read: impl Fn() -> Result<Tensor, String> + Send + Sync + 'static) -> Self {
        let make = move |_: &[Tensor]| read();
        Self::new(spec, next_identity(), Source::Made { inputs: Vec::new(), make: Box::new(make) })
    }

    fn new(spec: TensorSpec, identity: Identity, source: Source) -> Self {
        Self { spec, data: Arc::new(Data { identity, source, loaded: Mutex::default() }) }
    }

    /// Element type and shape.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.spec.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &Shape {
        &self.spec.shape
    }

    /// Bytes of the elements.
    pub fn bytes(&self) -> usize {
        self.spec.bytes()
    }

    /// Returns a constant with the same elements and another shape.
    ///
    /// # Errors
    /// If the shape has another number of elements.
    pub fn reshaped(&self, shape: Shape) -> Result<Self, SizeMismatch> {
        let spec = TensorSpec::new(self.spec.dtype, shape);
        match spec.bytes() == self.bytes() {
            true => Ok(Self { spec, data: Arc::clone(&self.data) }),
            false => Err(SizeMismatch { spec, found: self.bytes() }),
        }
    }

    /// Returns the elements if they stay in memory: those of small constants, and of models that were given as bytes.
    pub fn held(&self) -> Option<Tensor> {
        match &self.data.source {
            Source::Held(buffer) => Tensor::new(self.spec.clone(), Arc::clone(buffer)).ok(),
            Source::File { .. } | Source::Made { .. } => None,
        }
    }

    /// Returns the elements, reading or computing them if they are not in memory.
    ///
    /// # Errors
    /// If the constant's file was changed or cannot be read, or memory is short.
    pub fn load(&self) -> Result<Tensor, ConstantError> {
        let size = |_| ConstantError::Made("its size is wrong".into());
        let tensor = |buffer| Tensor::new(self.spec.clone(), buffer).map_err(size);
        if let Source::Held(buffer) = &self.data.source {
            return tensor(Arc::clone(buffer));
        }
        // Other threads that load the same elements wait here.
        let mut loaded = self.data.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = loaded.upgrade() {
            return tensor(buffer);
        }
        let buffer = self.fresh()?;
        *loaded = Arc::downgrade(&buffer);
        tensor(buffer)
    }

    /// Passes the type and shape, and some bytes to `take`: all bytes in memory, and samples of bytes in a file.
    /// Elements that are computed on demand pass what they are computed from.
    ///
    /// Reads at most 3 × 4 KiB of a file.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn sample(&self, take: &mut dyn FnMut(&[u8])) -> Result<(), ConstantError> {
        take(self.spec.to_string().as_bytes());
        match &self.data.source {
            Source::Held(buffer) => take(buffer.bytes()),
            Source::Made { inputs, .. } => inputs.iter().try_for_each(|input| input.sample(take))?,
            Source::File { file, offset, name, .. } => {
                let mut sample = vec![0; self.bytes().min(SAMPLE)];
                let span = (self.bytes() - sample.len()) as u64;
                for at in 0..SAMPLES {
                    file.read_part(name, offset + span * at / (SAMPLES - 1), &mut sample)?;
                    take(&sample);
                }
            }
        }
        Ok(())
    }

    /// Whether the elements are read from a file each time.
    pub fn is_in_file(&self) -> bool {
        matches!(self.data.source, Source::File { .. })
    }

    /// Passes the bytes to `take` in consecutive pieces.
    ///
    /// Bytes in a file are read in pieces of about `most`, so that the whole constant is never in memory.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn in_pieces(
        &self,
        most: usize,
        pieces: impl Iterator<Item = Range<usize>>,
        mut take: impl FnMut(&Range<usize>, &[u8]),
    ) -> Result<(), ConstantError> {
        self.verify()?;
        let Source::File { file, offset, name, .. } = &self.data.source else {
            let raw = self.load()?;
            pieces.for_each(|piece| take(&piece, &raw.bytes()[piece.clone()]));
            return Ok(());
        };
        let (mut buffer, mut read) = (Buffer::zeroed(0), 0..0);
        for piece in pieces {
            if piece.end > read.end {
                read = piece.start..piece.end.max(self.bytes().min(piece.start + most));
                if buffer.len() < read.len() {
                    let short = || ConstantError::OutOfMemory { tensor: name.clone(), bytes: read.len() };
                    buffer = Buffer::try_zeroed(read.len()).ok_or_else(short)?;
                }
                file.read_part(name, offset + read.start as u64, &mut buffer.bytes_mut()[..read.len()])?;
            }
            take(&piece, &buffer.bytes()[piece.start - read.start..][..piece.len()]);
        }
        Ok(())
    }

    /// Returns the elements in a layout, if the constant's file holds that layout.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn packed(&self, layout: &Layout) -> Option<Result<Arc<Buffer>, ConstantError>> {
        let Source::File { file, name, packed, .. } = &self.data.source else { return None };
        let form = packed.iter().find(|form| form.layout == *layout)?;
        let bytes = layout.bytes();
        if form.place.end - form.place.start != bytes as u64 {
            return None;
        }
        let verified = form.checksum.verify(file, name, form.place.clone());
        Some(verified.and_then(|()| file.part(name, form.place.start, bytes)).map(Arc::new))
    }

    /// Reads and compares the elements with their checksum, if they have one and are not verified.
    ///
    /// # Errors
    /// If the elements differ from those that were written, or cannot be read.
    pub(crate) fn verify(&self) -> Result<(), ConstantError> {
        match &self.data.source {
            Source::File { file, offset, name, checksum: Some(checksum), .. } => {
                checksum.verify(file, name, *offset..*offset + self.bytes() as u64)
            }
            Source::Held(_) | Source::File { .. } | Source::Made { .. } => Ok(()),
        }
    }

    /// Marks the elements as unverified, in all layouts.
    pub fn doubt(&self) {
        if let Source::File { checksum, packed, .. } = &self.data.source {
            checksum.iter().chain(packed.iter().map(|form| &form.checksum)).for_each(Checksum::forget);
        }
    }

    /// Calls `verify` on each layout in which the file holds the elements, and on the elements themselves.
    ///
    /// # Errors
    /// As `verify`.
    pub fn verify_all(&self) -> Result<(), ConstantError> {
        if let Source::File { file, name, packed, .. } = &self.data.source {
            packed.iter().try_for_each(|form| form.checksum.verify(file, name, form.place.clone()))?;
        }
        self.verify()
    }

    fn fresh(&self) -> Result<Arc<Buffer>, ConstantError> {
        self.verify()?;
        match &self.data.source {
            Source::Held(buffer) => Ok(Arc::clone(buffer)),
            Source::File { file, offset, name, .. } => file.read(name, *offset, &self.spec).map(Arc::new),
            Source::Made { inputs, make } => {
                let inputs = inputs.iter().map(Self::load).collect::<Result<Vec<_>, _>>()?;
                Ok(Arc::clone(make(&inputs).map_err(ConstantError::Made)?.buffer()))
            }
        }
    }

    /// Whether both constants have the same elements by their origin.
    pub fn is_same(&self, other: &Self) -> bool {
        self.spec == other.spec && (Arc::ptr_eq(&self.data, &other.data) || self.identity() == other.identity())
    }

    #[doc(hidden)]
    pub fn identity(&self) -> &Identity {
        &self.data.identity
    }
}

impl Source {
    /// Longest chain of constants from which this one is computed.
    fn depth(&self) -> u8 {
        match self {
            Self::Held(_) | Self::File { .. } => 0,
            Self::Made { inputs, .. } => inputs.iter().map(|input| input.data.source.depth()).max().unwrap_or(0) + 1,
        }
    }
}

fn next_identity() -> Identity {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Identity::Given(NEXT.fetch_add(1, Ordering::Relaxed))
}

impl From<Tensor> for Constant {
    /// A constant in memory.
    fn from(tensor: Tensor) -> Self {
        let identity = match tensor.bytes() {
            bytes if bytes.len() < LARGE => Identity::Bytes(bytes.into()),
            bytes => Identity::Hash(blake3::hash(bytes).into()),
        };
        Self::new(tensor.spec().clone(), identity, Source::Held(Arc::clone(tensor.buffer())))
    }
}

impl fmt::Debug for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.data.source {
            Source::Held(_) => "in memory",
            Source::File { .. } => "in a file",
            Source::Made { .. } => "computed",
        };
        write!(f, "Constant({}, {source})", self.spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn tensor(elements: usize) -> Tensor {
        let shape = Shape::new([elements]).expect("small");
        Tensor::from_elements(shape, &vec![1.5f32; elements]).expect("as many")
    }

    /// A constant computed from another, and the number of its computations.
    fn doubled(of: &Constant) -> (Constant, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let make = move |inputs: &[Tensor]| {
            counted.fetch_add(1, Ordering::Relaxed);
            let elements: Vec<f32> = inputs[0].elements::<f32>().expect("f32").iter().map(|x| 2.0 * x).collect();
            Tensor::from_elements(inputs[0].shape().clone(), &elements).map_err(|error| error.to_string())
        };
        (Constant::made(of.spec().clone(), "doubled".into(), vec![of.clone()], make).expect("made"), count)
    }

    #[test]
    fn a_large_constant_is_made_when_it_is_wanted_and_shared_while_it_is_held() {
        let base = Constant::from(tensor(LARGE));
        let (made, count) = doubled(&base);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        let (one, two) = (made.load().expect("made"), made.clone().load().expect("made"));
        assert!(Arc::ptr_eq(one.buffer(), two.buffer()) && one.elements::<f32>().expect("f32")[7] == 3.0);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        drop((one, two));
        assert!(made.load().is_ok() && made.held().is_none());
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn small_constants_and_long_lines_are_made_at_once() {
        let (small, count) = doubled(&Constant::from(tensor(3)));
        assert!(small.held().is_some() && count.load(Ordering::Relaxed) == 1);
        let mut line = Constant::from(tensor(LARGE));
        for step in 0..2 * DEEPEST + 1 {
            line = doubled(&line).0;
            assert_eq!(line.held().is_some(), step == DEEPEST, "{step}");
        }
    }

    #[test]
    fn samples_of_a_file_tell_its_begin_middle_and_end() {
        let path = std::env::temp_dir().join(format!("anabranch-samples-{}", std::process::id()));
        let bytes = 4 * LARGE;
        let sampled = |changed: Option<usize>| {
            let mut content = vec![1u8; bytes];
            changed.into_iter().for_each(|at| content[at] = 2);
            std::fs::write(&path, &content).expect("it is written");
            let file = ConstantFile::new(std::fs::File::open(&path).expect("it is there"), "weights".into());
            let spec = TensorSpec::new(DType::F32, Shape::new([LARGE]).expect("small"));
            let constant = Constant::in_file(spec, Arc::new(file.expect("it is a file")), 0, "w".into());
            let mut found = Vec::new();
            constant.sample(&mut |bytes| found.extend_from_slice(bytes)).expect("it is read");
            found
        };
        let whole = sampled(None);
        assert!(whole.len() < bytes / 8);
        for at in [0, bytes / 2, bytes - 1] {
            assert_ne!(sampled(Some(at)), whole, "{at}");
        }
        std::fs::remove_file(&path).expect("it is there");
        let held = Constant::from(tensor(3));
        let mut pieces = Vec::new();
        held.sample(&mut |bytes| pieces.push(bytes.len())).expect("it is in memory");
        assert_eq!(pieces.last(), Some(&12));
    }

    #[test]
    fn constants_of_one_origin_are_the_same() {
        let base = Constant::from(tensor(LARGE));
        assert!(doubled(&base).0.is_same(&doubled(&base).0), "made twice");
        assert!(base.is_same(&Constant::from(tensor(LARGE))) && !base.is_same(&Constant::from(tensor(LARGE + 1))));
        assert!(Constant::from(tensor(3)).is_same(&Constant::from(tensor(3))));
        let reshaped = base.reshaped(Shape::new([2, LARGE / 2]).expect("small")).expect("as many");
        assert!(!reshaped.is_same(&base) && reshaped.identity() == base.identity());
        assert!(base.reshaped(Shape::scalar()).is_err());
    }
}
