//! Arrays on their way in and out: read where they are, handed over with their memory.

use super::failure::{Failure, Result};
use anabranch::{DType, Inputs, Outputs, Shape, Tensor, TensorSpec};
use anabranch_kernels::Buffer;
use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An array that Python gives for an input: the input's name, the type of the elements, the shape, and the bytes in row-major order.
pub(crate) type Given = (String, String, Vec<usize>, PyBuffer<u8>);

/// An output: its name, the type of its elements, its shape, and its bytes.
pub(crate) type Taken = (String, &'static str, Vec<usize>, Memory);

/// The inputs over the arrays' own memory, where that is aligned.
///
/// # Safety
/// Nothing may read the inputs, or what shares their memory, once `given` is gone, and meanwhile nobody may write the arrays.
pub(crate) unsafe fn lent(given: &[Given]) -> Result<Inputs> {
    // SAFETY: as this function's: `given` keeps the arrays where they are, of as many bytes as the types and shapes have.
    inputs(given, |bytes, spec| unsafe { anabranch::lent::borrowed(bytes.buf_ptr().cast::<u8>(), spec) })
}

/// The inputs in memory of their own.
pub(crate) fn copied(given: &[Given]) -> Result<Inputs> {
    inputs(given, |bytes, spec| Tensor::new(spec, Arc::new(copy(bytes)?)).ok())
}

/// The inputs as `tensor` makes them of arrays' bytes, which are as many as the type and the shape have; `None` is a lack of memory.
fn inputs(given: &[Given], tensor: impl Fn(&PyBuffer<u8>, TensorSpec) -> Option<Tensor>) -> Result<Inputs> {
    let mut inputs = Inputs::new();
    for (name, dtype, shape, bytes) in given {
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
        let made = tensor(bytes, spec).ok_or_else(|| refused(&"there is no memory for a copy of it"))?;
        inputs = inputs.tensor(name, made);
    }
    Ok(inputs)
}

fn copy(bytes: &PyBuffer<u8>) -> Option<Buffer> {
    let mut buffer = Buffer::try_zeroed(bytes.len_bytes())?;
    if let Some(start) = NonNull::new(bytes.buf_ptr().cast::<u8>()).filter(|_| bytes.len_bytes() > 0) {
        // SAFETY: so many bytes are there, one after the other, as long as `bytes` is; the interpreter's lock is held, under which whoever
        // writes arrays does.
        buffer.bytes_mut().copy_from_slice(unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes.len_bytes()) });
    }
    Some(buffer)
}

/// The outputs with their memory, which is copied only where something else holds it: an input, a constant, or another output.
pub(crate) fn take(outputs: Outputs) -> Vec<Taken> {
    let tensors: Vec<(String, Tensor)> =
        outputs.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
    drop(outputs);
    let taken = |(name, tensor): (String, Tensor)| {
        let (spec, buffer) = tensor.into_parts();
        let own = match Arc::try_unwrap(buffer) {
            Ok(own) if !own.is_foreign() => own,
            Ok(lent) => lent.clone(),
            Err(shared) => Buffer::clone(&shared),
        };
        (name, spec.dtype.name(), spec.shape.dims().to_vec(), Memory::new(own))
    };
    tensors.into_iter().map(taken).collect()
}

/// Bytes of an output, which live as long as an array over them.
#[pyclass(frozen)]
pub(crate) struct Memory {
    /// Of the buffer, which nothing but the arrays over it reads or writes.
    start: AtomicPtr<u8>,
    buffer: Buffer,
}

impl Memory {
    fn new(mut buffer: Buffer) -> Self {
        // Moving the buffer moves none of its bytes.
        Self { start: AtomicPtr::new(buffer.bytes_mut().as_mut_ptr()), buffer }
    }
}

#[pymethods]
impl Memory {
    /// Gives the bytes to whoever asks by the buffer protocol, to read and to write.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (start, bytes) = (slf.get().start.load(Ordering::Relaxed), slf.get().buffer.len());
        // SAFETY: the interpreter gives a view to fill; the bytes stay as long as the object, which the view keeps.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast(), bytes as isize, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }

    fn __len__(&self) -> usize {
        self.buffer.len()
    }
}
