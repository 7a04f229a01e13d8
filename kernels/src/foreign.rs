//! Memory that a caller keeps and lends to a buffer.

use std::ptr::NonNull;
use std::slice;

/// The alignment of the largest element type.
const ELEMENT: usize = 8;

/// Bytes of somebody else. Dropping it touches none of them.
pub(crate) struct Foreign {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `Foreign::new` demands that nobody else writes the bytes while this is used, nor reads them once it was written to, on any thread;
// and it has no part that is bound to the thread that made it.
unsafe impl Send for Foreign {}
// SAFETY: through a shared reference the bytes are only read.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// `bytes` bytes from `start` on, if any element may be read from there.
    ///
    /// # Safety
    /// From now on until this was read and written for the last time, the memory must stay, hold initialised bytes, and be written by
    /// nobody else; nor may anybody else read it from the first time that this is written.
    pub(crate) unsafe fn new(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        let aligned = (start.as_ptr() as usize).is_multiple_of(ELEMENT);
        (aligned && isize::try_from(bytes).is_ok()).then_some(Self { start, bytes })
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `new` demands that so many initialised bytes are there and that nobody else writes them; the borrow of `self` keeps
        // `bytes_mut` away.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The bytes, to write.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; `new` demands that nobody else reads them from now on, and `self` is borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Buffer, Shape, Tensor};
    use crate::{DType, TensorSpec};
    use std::ptr::NonNull;
    use std::sync::Arc;

    #[test]
    fn a_tensor_over_lent_memory_reads_and_writes_there() {
        let mut own = vec![1f64, 2.0, 3.0];
        let start = NonNull::from(own.as_mut_slice()).cast::<u8>();
        // SAFETY: `own` lives to the end of the test and is read only after the tensor is gone.
        let buffer = unsafe { Buffer::foreign(start, 24) }.expect("aligned");
        let spec = TensorSpec::new(DType::F64, Shape::new([3]).expect("small"));
        let mut tensor = Tensor::new(spec, Arc::new(buffer)).expect("24 bytes");
        assert_eq!(tensor.elements::<f64>(), Some(&[1.0, 2.0, 3.0][..]));
        let copy = tensor.buffer().as_ref().clone();
        tensor.elements_mut::<f64>().expect("alone")[1] = 7.0;
        drop(tensor);
        assert_eq!((own[1], copy.bytes()[8..16].to_vec()), (7.0, 2f64.to_le_bytes().to_vec()), "a clone is a copy");
        // SAFETY: nothing is read or written through it.
        let odd = unsafe { Buffer::foreign(start.add(4), 8) };
        assert!(odd.is_none(), "an element of 8 bytes could not be read there");
    }
}
