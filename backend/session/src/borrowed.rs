//! Memory of callers in other languages as tensors: a run reads its inputs and writes its outputs there.

#![allow(unsafe_code, reason = "callers in other languages own the memory")]

use anabranch_kernels::{Buffer, Tensor, TensorSpec};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Most bytes of tensors that are copied: a copy is faster than the bookkeeping for a borrowed tensor, and may be kept.
pub const SMALL: usize = 4 << 10;

/// Returns the tensor at `data` without a copy. Copies a tensor of at most [`SMALL`] bytes, or one that is not aligned
/// to 8 bytes.
///
/// Returns `None` if there is no memory for a copy.
///
/// # Safety
/// `data` must point to as many initialised bytes as `spec` has. They must stay there, and must not be written, as long
/// as the tensor is read. `data` may be null if `spec` has zero bytes.
pub unsafe fn input(data: *const u8, spec: TensorSpec) -> Option<Tensor> {
    let size = spec.bytes();
    let Some(start) = NonNull::new(data.cast_mut()).filter(|_| size > 0) else { return Tensor::try_zeroed(spec) };
    // SAFETY: as for this function. The tensor is only read: inputs are, and `Stateful`, which runs over former states,
    // leaves borrowed memory alone.
    let buffer = if size > SMALL { unsafe { Buffer::borrowed(start, size) } } else { None };
    let copied = || {
        let mut copy = Buffer::try_zeroed(size)?;
        // SAFETY: `data` points to `size` bytes.
        copy.bytes_mut().copy_from_slice(unsafe { std::slice::from_raw_parts(data, size) });
        Some(copy)
    };
    Tensor::new(spec, Arc::new(buffer.or_else(copied)?)).ok()
}

/// Returns a tensor into which a run can write an output ([`Outputs::over`](crate::Outputs::over)); `None` if the
/// memory cannot be written directly.
///
/// # Safety
/// `data` must be the output's memory, of as many bytes as `spec` has. Nothing else may read or write it as long as the
/// tensor is used. Its content may be arbitrary: a run writes a whole output before it reads any of it.
pub unsafe fn output(data: NonNull<u8>, spec: &TensorSpec) -> Option<Tensor> {
    // SAFETY: as for this function. Memory that a caller's language has allocated holds some bytes.
    let buffer = unsafe { Buffer::borrowed(data, spec.bytes()) }?;
    Tensor::new(spec.clone(), Arc::new(buffer)).ok()
}

/// Copies an output to `place`, unless the run has written it there itself.
///
/// # Safety
/// `place` must have room for the tensor's bytes, must not overlap the tensor if that is elsewhere, and must not be
/// read or written by others.
pub unsafe fn copy_out(tensor: &Tensor, place: NonNull<u8>) {
    let bytes = tensor.bytes();
    if !ptr::eq(bytes.as_ptr(), place.as_ptr()) {
        // SAFETY: as for this function.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
    }
}

/// Returns the tensor in its own memory: tensors that outlive a run must not be in a caller's memory.
pub fn owned(tensor: &Tensor) -> Tensor {
    match tensor.buffer().is_borrowed() {
        true => {
            Tensor::new(tensor.spec().clone(), Arc::new(Buffer::clone(tensor.buffer()))).expect("a copy is as large")
        }
        false => tensor.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Inputs, Session, SessionConfig};
    use anabranch_kernels::{DType, Shape};
    use anabranch_onnx::import::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

    #[test]
    fn large_aligned_tensors_stay_where_they_are_and_others_are_copied() {
        let mut memory = vec![7u64; SMALL];
        let start = NonNull::from(memory.as_mut_slice()).cast::<u8>();
        let bytes = |count: usize| TensorSpec::new(DType::U8, Shape::new([count]).expect("small"));
        for (offset, size, stays) in [(0, SMALL + 1, true), (0, SMALL, false), (1, SMALL + 1, false), (0, 0, false)] {
            // SAFETY: `memory` has this many bytes, and outlives the tensor unchanged.
            let tensor = unsafe { input(start.add(offset).as_ptr(), bytes(size)) }.expect("little memory");
            assert_eq!((tensor.buffer().is_borrowed(), tensor.bytes().len()), (stays, size));
            assert!(!owned(&tensor).buffer().is_borrowed() && owned(&tensor).same_bits(&tensor));
        }
        // SAFETY: zero bytes are read.
        let nothing = unsafe { input(ptr::null(), bytes(0)) }.expect("no bytes");
        // SAFETY: as above, exclusively; the tensors are not used after `memory`.
        let (whole, odd) = unsafe { (output(start, &bytes(16)), output(start.add(1), &bytes(16))) };
        assert!(nothing.bytes().is_empty() && odd.is_none() && whole.is_some());
    }

    #[test]
    fn an_output_that_is_elsewhere_is_copied_to_its_place() {
        let (tensor, mut place) = (Tensor::from_i64s(&[1, -2]), [0i64; 2]);
        // SAFETY: there is room for two integers, apart from the tensor.
        unsafe { copy_out(&tensor, NonNull::from(&mut place).cast()) };
        assert_eq!(place, [1, -2]);
    }

    #[test]
    fn a_borrowed_state_is_only_read() {
        const COUNT: usize = 2 * SMALL;
        let value = |name: &str| ValueInfoProto::f32s(name, &[COUNT as i64]);
        let graph = GraphProto {
            node: vec![NodeProto::of("Add", &["sum_in", "x"], &["sum_out"])],
            input: vec![value("sum_in"), value("x")],
            output: vec![value("sum_out")],
            ..GraphProto::default()
        };
        let options = SessionConfig::default().without_gpu();
        let session = Session::from_bytes(&ModelProto::of(graph, 17).to_bytes(), options).expect("a model");
        let mut sums = session.stateful(&[("sum_out", "sum_in")]).expect("state");
        let spec = || TensorSpec::new(DType::F32, Shape::new([COUNT]).expect("small"));
        let memory = vec![1f32; COUNT];
        // SAFETY: `memory` has this many bytes, and outlives the tensor unchanged.
        let state = unsafe { input(memory.as_ptr().cast(), spec()) }.expect("little memory");
        let ones = Tensor::from_elements(spec().shape, &[1f32; COUNT]).expect("as many");
        sums.run(&Inputs::new().tensor("sum_in", state).tensor("x", ones)).expect("runs");
        for _ in 0..3 {
            sums.run(&Inputs::new()).expect("runs");
            // A run may not write through this pointer; read by it, because the compiler knows the array unchanged.
            // SAFETY: `memory` is initialised.
            assert!((0..COUNT).all(|at| unsafe { memory.as_ptr().add(at).read_volatile() } == 1.0));
        }
        let sum = sums.outputs().tensor("sum_out").expect("made");
        assert!(sum.elements::<f32>().expect("floats").iter().all(|sum| *sum == 5.0));
    }
}
