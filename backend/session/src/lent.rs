//! Memory of callers in other languages as tensors: where a run reads its inputs and leaves its outputs.

#![allow(unsafe_code, reason = "callers in other languages lend their memory")]

use anabranch_kernels::{Buffer, Tensor, TensorSpec};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Bytes up to which tensors are copied: a copy is quicker than what else it takes to use them where they are, and may be kept.
pub const SMALL: usize = 4 << 10;

/// The tensor that is at `data`, which stays there; or a copy of one of at most [`SMALL`] bytes, or that is not aligned to 8 bytes. `None` if
/// there is no memory for a copy.
///
/// # Safety
/// At `data` there must be as many initialised bytes as `spec` has, which stay there and nobody writes as long as the tensor is read. It may
/// be null where that are none.
pub unsafe fn borrowed(data: *const u8, spec: TensorSpec) -> Option<Tensor> {
    let size = spec.bytes();
    let Some(start) = NonNull::new(data.cast_mut()).filter(|_| size > 0) else { return Tensor::try_zeroed(spec) };
    // SAFETY: as this function's; the tensor is only read, for nobody but the caller holds it.
    let buffer = if size > SMALL { unsafe { Buffer::foreign(start, size) } } else { None };
    let copied = || {
        let mut copy = Buffer::try_zeroed(size)?;
        // SAFETY: so many bytes are there.
        copy.bytes_mut().copy_from_slice(unsafe { std::slice::from_raw_parts(data, size) });
        Some(copy)
    };
    Tensor::new(spec, Arc::new(buffer.or_else(copied)?)).ok()
}

/// Where a run is to leave an output ([`Outputs::over`](crate::Outputs::over)), `None` where that cannot be written directly.
///
/// # Safety
/// `data` must be the output's memory, of as many bytes as `spec` has, which nobody else reads or writes as long as the tensor is used. Its
/// bytes need not mean anything: a run writes all of an output before it reads any.
pub unsafe fn room(data: NonNull<u8>, spec: &TensorSpec) -> Option<Tensor> {
    // SAFETY: as this function's. What a caller's language has allocated holds some bytes or other.
    let buffer = unsafe { Buffer::foreign(data, spec.bytes()) }?;
    Tensor::new(spec.clone(), Arc::new(buffer)).ok()
}

/// Leaves an output at `place`, if the run has not left it there itself.
///
/// # Safety
/// There must be room for its bytes at `place`, apart from those of the tensor if it is elsewhere, which nobody else reads or writes.
pub unsafe fn leave(tensor: &Tensor, place: NonNull<u8>) {
    let bytes = tensor.bytes();
    if !ptr::eq(bytes.as_ptr(), place.as_ptr()) {
        // SAFETY: as this function's.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
    }
}

/// The tensor in memory of its own: what outlives a run may not be a caller's.
pub fn kept(tensor: &Tensor) -> Tensor {
    match tensor.buffer().is_foreign() {
        true => {
            Tensor::new(tensor.spec().clone(), Arc::new(Buffer::clone(tensor.buffer()))).expect("a copy is as large")
        }
        false => tensor.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::{DType, Shape};

    #[test]
    fn large_aligned_tensors_stay_where_they_are_and_others_are_copied() {
        let mut memory = vec![7u64; SMALL];
        let start = NonNull::from(memory.as_mut_slice()).cast::<u8>();
        let bytes = |count: usize| TensorSpec::new(DType::U8, Shape::new([count]).expect("small"));
        for (offset, size, stays) in [(0, SMALL + 1, true), (0, SMALL, false), (1, SMALL + 1, false), (0, 0, false)] {
            // SAFETY: `memory` has so many bytes, and outlives the tensor unchanged.
            let tensor = unsafe { borrowed(start.add(offset).as_ptr(), bytes(size)) }.expect("little memory");
            assert_eq!((tensor.buffer().is_foreign(), tensor.bytes().len()), (stays, size));
            assert!(!kept(&tensor).buffer().is_foreign() && kept(&tensor).same_bits(&tensor));
        }
        // SAFETY: nothing is read from nowhere.
        let nothing = unsafe { borrowed(ptr::null(), bytes(0)) }.expect("no bytes");
        // SAFETY: as above, alone; nothing of it is used after `memory`.
        let (room, odd) = unsafe { (room(start, &bytes(16)), room(start.add(1), &bytes(16))) };
        assert!(nothing.bytes().is_empty() && odd.is_none() && room.is_some());
    }

    #[test]
    fn an_output_that_is_elsewhere_is_copied_to_its_place() {
        let (tensor, mut place) = (Tensor::from_i64s(&[1, -2]), [0i64; 2]);
        // SAFETY: there is room for two integers, apart from the tensor.
        unsafe { leave(&tensor, NonNull::from(&mut place).cast()) };
        assert_eq!(place, [1, -2]);
    }
}
