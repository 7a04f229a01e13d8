//! Arrays as inputs and outputs: inputs are read in place, and outputs are handed over with their memory.

use super::failure::{Failure, Result};
use anabranch::{DType, Inputs, Outputs, Shape, Tensor, TensorSpec};
use anabranch_kernels::{Buffer, Recycler};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// An input array from Python: the input's name, the type of the elements, the shape, and the elements in row-major
/// order.
pub(crate) type Given = (String, String, Vec<usize>, Bytes);

/// Bytes of an array of any type.
pub(crate) struct Bytes(PyUntypedBuffer);

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        PyUntypedBuffer::get(&object).map(Self)
    }
}

/// An output: its name, the type of its elements, its shape, and its bytes.
pub(crate) type Taken = (String, &'static str, Vec<usize>, Memory);

/// Returns the inputs over the arrays' own memory, if that is aligned.
///
/// # Safety
/// The inputs, and tensors that share their memory, must not be read once `given` is gone. Until then the arrays must
/// not be written.
pub(crate) unsafe fn borrowed(given: &[Given]) -> Result<Inputs> {
    // SAFETY: by this function's contract: `given` keeps the arrays in place, with as many bytes as the types and
    // shapes have.
    inputs(given, |bytes, spec| unsafe { anabranch::borrowed::input(bytes.buf_ptr().cast::<u8>(), spec) })
}

/// Returns the inputs in memory of their own.
pub(crate) fn copied(given: &[Given]) -> Result<Inputs> {
    inputs(given, |bytes, spec| Tensor::new(spec, Arc::new(copy(bytes)?)).ok())
}

/// Returns the inputs that `tensor` makes of the arrays' bytes. The number of bytes matches the type and the shape.
/// `None` is a lack of memory.
fn inputs(given: &[Given], tensor: impl Fn(&PyUntypedBuffer, TensorSpec) -> Option<Tensor>) -> Result<Inputs> {
    let mut inputs = Inputs::new();
    for (name, dtype, shape, Bytes(bytes)) in given {
        let refused = |why: &dyn std::fmt::Display| Failure::argument(format_args!("input `{name}`: {why}"));
        let dtype: std::result::Result<DType, ValueError> = DType::deserialize(dtype.as_str().into_deserializer());
        let shape = Shape::new(shape.clone()).map_err(|error| refused(&error))?;
        let spec = TensorSpec::new(dtype.map_err(|error| refused(&error))?, shape);
        if !bytes.is_c_contiguous() {
            return Err(refused(&"its bytes are not in row-major order"));
        }
        let (wanted, found) = (spec.bytes(), bytes.len_bytes());
        if wanted != found {
            return Err(refused(&format_args!("{spec} has {wanted} bytes, but {found} are given")));
        }
        let made = tensor(bytes, spec).ok_or_else(|| refused(&"out of memory for a copy of it"))?;
        inputs = inputs.tensor(name, made);
    }
    Ok(inputs)
}

fn copy(bytes: &PyUntypedBuffer) -> Option<Buffer> {
    let mut buffer = Buffer::try_zeroed(bytes.len_bytes())?;
    if let Some(start) = NonNull::new(bytes.buf_ptr().cast::<u8>()).filter(|_| bytes.len_bytes() > 0) {
        // SAFETY: that many contiguous bytes exist as long as `bytes` does. The interpreter's lock is held, under which
        // arrays are written.
        buffer.bytes_mut().copy_from_slice(unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes.len_bytes()) });
    }
    Some(buffer)
}

/// Memory of copied outputs whose arrays are gone, for the copies of the next run.
#[derive(Default)]
pub(crate) struct Copies(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    dropped: Arc<Recycler>,
    /// Sizes of the last run's copies, in bytes: memory of no other size is kept.
    sizes: Vec<usize>,
}

/// Bytes from which the memory of a copy is worth keeping.
const KEPT: usize = 16 << 10;

/// Maximum bytes that are expected between runs. Up to 16 MiB more are spare. No memory limit counts either.
const MOST_KEPT: usize = 64 << 20;

impl Copies {
    /// Returns the memory of former copies of these sizes. That of other sizes is freed.
    fn of(&self, sizes: impl Iterator<Item = usize> + Clone) -> Arc<Recycler> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sizes.clone().ne(last.sizes.iter().copied()) {
            *last = Kept { dropped: Arc::default(), sizes: sizes.collect() };
            let mut kept = 0;
            for bytes in &last.sizes {
                if kept + bytes <= MOST_KEPT {
                    last.dropped.expect(*bytes);
                    kept += bytes;
                }
            }
        }
        Arc::clone(&last.dropped)
    }
}

/// Returns a copy, in memory of former copies if it is large.
fn copied_over(dropped: &Arc<Recycler>, buffer: &Buffer) -> Buffer {
    let kept = (buffer.len() >= KEPT).then(|| dropped.buffer(buffer.len())).flatten();
    match kept {
        Some(mut own) => {
            own.bytes_mut().copy_from_slice(buffer.bytes());
            own
        }
        None => buffer.clone(),
    }
}

/// Returns the outputs with their memory. It is copied if something else holds it: an input, a constant, another
/// output, or the plan, which keeps small outputs.
pub(crate) fn take(outputs: Outputs, copies: &Copies) -> Vec<Taken> {
    let tensors: Vec<(String, Tensor)> =
        outputs.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
    drop(outputs);
    let is_own = |tensor: &Tensor| Arc::strong_count(tensor.buffer()) == 1 && !tensor.buffer().is_borrowed();
    let large =
        tensors.iter().map(|(_, tensor)| tensor).filter(|tensor| !is_own(tensor) && tensor.bytes().len() >= KEPT);
    let dropped = copies.of(large.map(|tensor| tensor.bytes().len()));
    let taken = |(name, tensor): (String, Tensor)| {
        let (spec, buffer) = tensor.into_parts();
        let own = match Arc::try_unwrap(buffer) {
            Ok(own) if !own.is_borrowed() => own,
            Ok(borrowed) => copied_over(&dropped, &borrowed),
            Err(shared) => copied_over(&dropped, &shared),
        };
        (name, spec.dtype.name(), spec.shape.dims().to_vec(), Memory::new(own))
    };
    tensors.into_iter().map(taken).collect()
}

/// Bytes of an output, which live as long as an array over them.
#[pyclass(frozen)]
pub(crate) struct Memory {
    /// Start of the buffer, which only arrays over it read or write.
    start: AtomicPtr<u8>,
    buffer: Buffer,
}

impl Memory {
    fn new(mut buffer: Buffer) -> Self {
        // Moving the buffer does not move its bytes.
        Self { start: AtomicPtr::new(buffer.bytes_mut().as_mut_ptr()), buffer }
    }
}

#[pymethods]
impl Memory {
    /// Exports the bytes by the buffer protocol, to read and to write.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (start, bytes) = (slf.get().start.load(Ordering::Relaxed), slf.get().buffer.len());
        // SAFETY: the interpreter gives a view to fill; the bytes stay as long as the object, which the view keeps.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast(), bytes as isize, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
