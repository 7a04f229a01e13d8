//! Memory that a caller owns and that a buffer borrows.

use std::ptr::NonNull;
use std::slice;

/// Alignment of the largest element type.
const ELEMENT: usize = 8;

/// Bytes that someone else owns. Dropping the value touches none of them.
pub(crate) struct Borrowed {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `Borrowed::new` demands that no other code writes the bytes while this value is used, on any thread. After
// the first write to them, no other code may read them either. No part of the value is bound to the thread that made
// it.
unsafe impl Send for Borrowed {}
// SAFETY: through a shared reference the bytes are only read.
unsafe impl Sync for Borrowed {}

impl Borrowed {
    /// Wraps `bytes` bytes from `start` on, if elements of every type may be read from there.
    ///
    /// # Safety
    /// Until the last read and write through this value, the memory must stay valid, hold initialised bytes, and not be
    /// written by anyone else. From the first write through this value on, no other code may read it.
    pub(crate) unsafe fn new(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        let aligned = (start.as_ptr() as usize).is_multiple_of(ELEMENT);
        (aligned && isize::try_from(bytes).is_ok()).then_some(Self { start, bytes })
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `new` demands that this many initialised bytes are there and that no other code writes them; the
        // borrow of `self` excludes `bytes_mut`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Returns the bytes for writing.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; `new` demands that no other code reads them from now on, and `self` is borrowed
        // exclusively.
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
        // SAFETY: `own` lives until the end of the test and is read only after the tensor is dropped.
        let buffer = unsafe { Buffer::borrowed(start, 24) }.expect("aligned");
        let spec = TensorSpec::new(DType::F64, Shape::new([3]).expect("small"));
        let mut tensor = Tensor::new(spec, Arc::new(buffer)).expect("24 bytes");
        assert_eq!(tensor.elements::<f64>(), Some(&[1.0, 2.0, 3.0][..]));
        let copy = tensor.buffer().as_ref().clone();
        tensor.elements_mut::<f64>().expect("alone")[1] = 7.0;
        drop(tensor);
        assert_eq!((own[1], copy.bytes()[8..16].to_vec()), (7.0, 2f64.to_le_bytes().to_vec()), "a clone is a copy");
        // SAFETY: nothing is read or written through it.
        let odd = unsafe { Buffer::borrowed(start.add(4), 8) };
        assert!(odd.is_none(), "an element of 8 bytes could not be read there");
    }

    #[test]
    fn kept_memory_is_given_back_with_its_buffer() {
        struct Keeper(Vec<u64>, Arc<()>);
        let held = Arc::new(());
        let mut words = vec![5, 6];
        let start = NonNull::from(words.as_mut_slice()).cast::<u8>();
        let keeper = Box::new(Keeper(words, Arc::clone(&held)));
        // SAFETY: the keeper keeps the words, and nothing else reads or writes them.
        let mut buffer = unsafe { Buffer::kept(start, 16, keeper) }.expect("aligned");
        buffer.bytes_mut()[8..].copy_from_slice(&7u64.to_ne_bytes());
        assert_eq!(buffer.bytes()[..8], 5u64.to_ne_bytes());
        let keeper = buffer.keeper().and_then(|keeper| keeper.downcast_ref::<Keeper>()).expect("the given one");
        assert!(Arc::ptr_eq(&keeper.1, &held) && keeper.0.len() == 2 && !buffer.is_borrowed());
        assert_eq!(buffer.clone().bytes(), [5u64.to_ne_bytes(), 7u64.to_ne_bytes()].concat());
        assert!(buffer.clone().keeper().is_none() && Arc::strong_count(&held) == 2);
        drop(buffer);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
