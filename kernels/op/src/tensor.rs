//! Dense row-major tensors in reference-counted, cache-line-aligned buffers.

use crate::borrowed::Borrowed;
use crate::dtype::{DType, Element};
use crate::recycler::{Recycler, give_back};
use crate::shape::Shape;
use bytemuck::{Pod, Zeroable};
use memmap2::{Mmap, MmapMut, MmapOptions};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Alignment in bytes of every [`Buffer`] that this crate allocates: one cache line, one AVX-512 register.
pub const ALIGNMENT: usize = 64;

/// Element type and shape of a tensor, without its data.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Type of the elements.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Shape,
}

impl TensorSpec {
    /// Creates the spec of a tensor of `shape` with elements of `dtype`.
    pub fn new(dtype: DType, shape: Shape) -> Self {
        Self { dtype, shape }
    }

    /// Returns the bytes of the data. Cannot overflow: see [`Shape`].
    #[inline]
    pub fn bytes(&self) -> usize {
        self.shape.elements() * self.dtype.size()
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.dtype, self.shape)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; ALIGNMENT]);

/// Size in bytes from which a [`Buffer`] has pages of its own. An allocator keeps freed memory between other
/// allocations; after the packing of weights, that memory is as large as the weights.
const PAGED: usize = 256 << 10;

/// Size in bytes from which a [`Buffer`] asks for large pages, if the system has them. Each row of an image is often in
/// a page of its own. With small pages, a core's TLB has too few entries to walk along all rows at once. The touched
/// part of such a buffer occupies whole large pages.
pub const LARGE: usize = 2 << 20;

/// Payload of a panic of [`Buffer::zeroed`], so that a handler can tell a shortage of memory from a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Number of bytes that could not be allocated.
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of memory: the system cannot provide {} more bytes; close other programs, or use smaller inputs",
            self.bytes
        )
    }
}

/// Bytes from which elements of every type may be read.
///
/// They are aligned to [`ALIGNMENT`], or to the largest element if they are borrowed.
pub struct Buffer {
    memory: Memory,
    bytes: usize,
    /// Gets the memory when the buffer is dropped.
    home: Option<Weak<Recycler>>,
}

/// Owner of the bytes.
pub(crate) enum Memory {
    Heap(Vec<Line>),
    /// Pages of the operating system, given back when the buffer is dropped.
    Pages(MmapMut),
    /// Pages of a file, which the operating system shares among all who read it.
    Mapped(Mmap),
    /// A part of the pages of a [`Block`](crate::Block).
    Part(Arc<MmapMut>, Range<usize>),
    /// Memory that is borrowed for a while.
    Borrowed(Borrowed),
    /// Memory of another allocator, and the value that keeps it.
    Kept(Borrowed, Box<dyn Any + Send + Sync>),
}

impl Buffer {
    /// Allocates `bytes` zero bytes. Large buffers are touched at first use, since fresh pages come zeroed from the
    /// operating system.
    ///
    /// # Panics
    /// With an [`OutOfMemory`] if there is not enough memory; see [`try_zeroed`](Self::try_zeroed).
    pub fn zeroed(bytes: usize) -> Self {
        Self::try_zeroed(bytes).unwrap_or_else(|| std::panic::panic_any(OutOfMemory { bytes }))
    }

    /// Allocates like [`zeroed`](Self::zeroed), but returns `None` if there is not enough memory: for sizes that a file
    /// chooses.
    pub fn try_zeroed(bytes: usize) -> Option<Self> {
        Some(Self { memory: Memory::try_zeroed(bytes)?, bytes, home: None })
    }

    /// Returns a buffer over this memory of as many bytes, or over fresh memory, which its recycler gets back.
    pub(crate) fn of(memory: Option<Memory>, bytes: usize, home: Weak<Recycler>) -> Option<Self> {
        let memory = memory.or_else(|| Memory::try_zeroed(bytes))?;
        Some(Self { memory, bytes, home: Some(home) })
    }

    /// Returns a copy of `bytes`.
    pub fn copied(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// Borrows `bytes` bytes from `start` on, or returns `None` if elements of 8 bytes cannot be read from there.
    ///
    /// # Safety
    /// Until the last read and write through the buffer, the memory must stay valid, hold initialised bytes, and not be
    /// written by anyone else. From the first write through the buffer on, no other code may read it.
    pub unsafe fn borrowed(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        // SAFETY: `Borrowed::new` makes the same demands as this function.
        let memory = unsafe { Borrowed::new(start, bytes) }?;
        Some(Self { memory: Memory::Borrowed(memory), bytes, home: None })
    }

    /// Returns a buffer over the `bytes` bytes from `start` on, which `keeper` keeps, or `None` if elements of 8 bytes
    /// cannot be read from there. The keeper is dropped with the buffer.
    ///
    /// # Safety
    /// As for [`borrowed`](Self::borrowed), until the keeper is dropped.
    pub unsafe fn kept(start: NonNull<u8>, bytes: usize, keeper: Box<dyn Any + Send + Sync>) -> Option<Self> {
        // SAFETY: the bytes are read and written only through the buffer, which drops the keeper after its last use.
        let memory = unsafe { Borrowed::new(start, bytes) }?;
        Some(Self { memory: Memory::Kept(memory, keeper), bytes, home: None })
    }

    /// Returns the value that keeps the memory, if it is of another allocator.
    pub fn keeper(&self) -> Option<&(dyn Any + Send + Sync)> {
        match &self.memory {
            Memory::Kept(_, keeper) => Some(&**keeper),
            _ => None,
        }
    }

    /// Maps `bytes` bytes of a file from `offset` on, which are read at first use. They are shared with all processes
    /// that map the file, until [`bytes_mut`](Self::bytes_mut) copies them.
    ///
    /// # Errors
    /// If the file has fewer bytes, if `offset` is not a multiple of [`ALIGNMENT`], or if the system cannot map the
    /// file.
    ///
    /// # Safety
    /// As long as the buffer exists, no process may write these bytes of the file or shorten it.
    pub unsafe fn mapped(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        if bytes == 0 {
            return Ok(Self::default());
        }
        let (end, size) = (offset.checked_add(bytes as u64), file.metadata()?.len());
        if end.is_none_or(|end| end > size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !offset.is_multiple_of(ALIGNMENT as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the bytes exist, and the caller promises that they stay and do not change.
        let mapped = unsafe { MmapOptions::new().offset(offset).len(bytes).map_copy_read_only(file) }?;
        Ok(Self { memory: Memory::Mapped(mapped), bytes, home: None })
    }

    /// Returns a buffer over a part of a block's pages, which begins at a multiple of [`ALIGNMENT`].
    pub(crate) fn part(pages: &Arc<MmapMut>, part: Range<usize>) -> Self {
        Self { bytes: part.len(), memory: Memory::Part(Arc::clone(pages), part), home: None }
    }

    /// Whether the bytes are borrowed.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.memory, Memory::Borrowed(_))
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the bytes for writing; mapped bytes, and those of a block, are copied first.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if let Memory::Mapped(_) | Memory::Part(..) = &self.memory {
            *self = Self::copied(self.bytes());
        }
        match &mut self.memory {
            Memory::Heap(lines) => &mut bytemuck::cast_slice_mut(lines)[..self.bytes],
            Memory::Pages(pages) => pages,
            Memory::Mapped(_) | Memory::Part(..) => unreachable!("copied above"),
            Memory::Borrowed(memory) | Memory::Kept(memory, _) => memory.bytes_mut(),
        }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(lines) => &bytemuck::cast_slice(lines)[..self.bytes],
            Memory::Pages(pages) => pages,
            Memory::Mapped(mapped) => mapped,
            Memory::Part(pages, part) => &pages[part.clone()],
            Memory::Borrowed(memory) | Memory::Kept(memory, _) => memory.bytes(),
        }
    }
}

impl Memory {
    fn try_zeroed(bytes: usize) -> Option<Self> {
        Some(match bytes >= PAGED {
            true => Self::Pages(pages(bytes).ok()?),
            false => Self::Heap(bytemuck::allocation::try_zeroed_vec(bytes.div_ceil(ALIGNMENT)).ok()?),
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            give_back(&home, std::mem::replace(&mut self.memory, Memory::Heap(Vec::new())), self.bytes);
        }
    }
}

/// Returns fresh pages.
pub(crate) fn pages(bytes: usize) -> io::Result<MmapMut> {
    let pages = MmapMut::map_anon(bytes)?;
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        // A system without large pages uses small pages.
        let _ = pages.advise(memmap2::Advice::HugePage);
    }
    Ok(pages)
}

impl Default for Buffer {
    fn default() -> Self {
        Self { memory: Memory::Heap(Vec::new()), bytes: 0, home: None }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::copied(self.bytes())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

/// Tensor: a spec and exactly `spec.bytes()` bytes of data, which clones share.
#[derive(Clone, Debug)]
pub struct Tensor {
    spec: TensorSpec,
    buffer: Arc<Buffer>,
}

/// Data and shape of a tensor differ in size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tensor {spec} takes {} bytes, but {found} were given", spec.bytes())]
pub struct SizeMismatch {
    /// Spec of the tensor that was to be made.
    pub spec: TensorSpec,
    /// Bytes that the data has.
    pub found: usize,
}

impl Tensor {
    /// Creates a tensor over `buffer`.
    ///
    /// # Errors
    /// If the buffer's length is not exactly the spec's.
    pub fn new(spec: TensorSpec, buffer: Arc<Buffer>) -> Result<Self, SizeMismatch> {
        match buffer.len() {
            found if found == spec.bytes() => Ok(Self { spec, buffer }),
            found => Err(SizeMismatch { spec, found }),
        }
    }

    /// Creates a tensor that holds a copy of `elements`.
    ///
    /// # Errors
    /// If the shape has another number of elements.
    pub fn from_elements<T: Element>(shape: Shape, elements: &[T]) -> Result<Self, SizeMismatch> {
        let buffer = Arc::new(Buffer::copied(bytemuck::cast_slice(elements)));
        Self::new(TensorSpec::new(T::DTYPE, shape), buffer)
    }

    /// Creates a tensor of zero bytes.
    pub fn zeroed(spec: TensorSpec) -> Self {
        let buffer = Arc::new(Buffer::zeroed(spec.bytes()));
        Self { spec, buffer }
    }

    /// Creates a tensor like [`zeroed`](Self::zeroed), but returns `None` if there is not enough memory: for sizes that
    /// a file or an argument chooses.
    pub fn try_zeroed(spec: TensorSpec) -> Option<Self> {
        let buffer = Arc::new(Buffer::try_zeroed(spec.bytes())?);
        Some(Self { spec, buffer })
    }

    /// Creates a vector of 64-bit integers, the form of shapes, axes and indices.
    pub fn from_i64s(elements: &[i64]) -> Self {
        let shape = Shape::new(vec![elements.len()]).expect("a slice that exists fits the address space");
        Self::from_elements(shape, elements).expect("the shape was made from the slice's length")
    }

    /// Returns the spec and the data, so that the memory can be used again.
    pub fn into_parts(self) -> (TensorSpec, Arc<Buffer>) {
        (self.spec, self.buffer)
    }

    /// Returns the element type and the shape.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.spec.dtype
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        &self.spec.shape
    }

    /// Returns the data.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// Returns the data as bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// Returns the elements, if the tensor's type is `T`'s (`u8` reads `Bool` too).
    pub fn elements<T: Element>(&self) -> Option<&[T]> {
        let matches = self.spec.dtype == T::DTYPE || (T::DTYPE == DType::U8 && self.spec.dtype == DType::Bool);
        matches.then(|| bytemuck::cast_slice(self.bytes()))
    }

    /// Returns the elements for writing, if the tensor's type is `T`'s and nothing else holds its data.
    pub fn elements_mut<T: Element>(&mut self) -> Option<&mut [T]> {
        let matches = self.spec.dtype == T::DTYPE;
        let buffer = Arc::get_mut(&mut self.buffer).filter(|_| matches)?;
        Some(bytemuck::cast_slice_mut(buffer.bytes_mut()))
    }

    /// Returns the same data under another shape.
    ///
    /// # Errors
    /// If the shape has another number of elements.
    pub fn reshaped(&self, shape: Shape) -> Result<Self, SizeMismatch> {
        Self::new(TensorSpec::new(self.spec.dtype, shape), Arc::clone(&self.buffer))
    }

    /// Whether two tensors have the same type, shape and bits.
    pub fn same_bits(&self, other: &Self) -> bool {
        self.spec == other.spec && self.bytes() == other.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_hold_what_was_written() {
        for bytes in [100, PAGED - 1, PAGED, PAGED + 1] {
            let mut buffer = Buffer::zeroed(bytes);
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!((buffer.len(), buffer.bytes().len()), (bytes, bytes));
            buffer.bytes_mut()[bytes - 1] = 7;
            assert_eq!((buffer.bytes()[bytes - 2], buffer.clone().bytes()[bytes - 1]), (0, 7));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps no files")]
    fn parts_of_files_are_mapped_and_written_in_memory_alone() {
        use std::io::Write;
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(&[3; 5000]).expect("a small file");
        // SAFETY: no other code knows the file.
        let mapped = |offset, bytes| unsafe { Buffer::mapped(file.as_file(), offset, bytes) };
        let mut buffer = mapped(4096, 904).expect("there");
        assert_eq!((buffer.len(), buffer.bytes()), (904, &[3; 904][..]));
        buffer.bytes_mut()[0] = 4;
        assert_eq!((buffer.bytes()[0], mapped(4096, 904).expect("there").bytes()[0]), (4, 3));
        assert!(mapped(64, 1).is_ok() && mapped(0, 0).is_ok());
        for (offset, bytes) in [(4096, 905), (u64::MAX - 63, 64), (5056, 1), (32, 8)] {
            assert!(mapped(offset, bytes).is_err(), "{bytes} bytes at {offset}");
        }
    }

    #[test]
    fn a_tensor_knows_its_type_and_refuses_other_sizes() {
        let shape = Shape::new(vec![2, 2]).expect("small");
        let tensor = Tensor::from_elements(shape.clone(), &[1f32, 2.0, 3.0, 4.0]).expect("four elements");
        assert_eq!(tensor.elements::<f32>(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
        assert_eq!(tensor.elements::<i32>(), None);
        assert!(Tensor::from_elements(shape, &[1f32]).is_err());
        assert!(tensor.reshaped(Shape::scalar()).is_err());
    }
}
