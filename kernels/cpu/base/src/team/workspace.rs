//! Memory that a part of a kernel works in, private to its thread and reused from kernel to kernel.
//!
//! The number of parts that run at once depends on the number of threads, but a kernel's scratch memory must not. Each
//! thread therefore keeps one buffer, which stays in its core's cache.

use anabranch_op::tensor::Buffer;
use std::cell::Cell;

thread_local! {
    static WORKSPACE: Cell<Option<Buffer>> = const { Cell::new(None) };
}

/// Runs `body` on `floats` numbers of undefined content, aligned as a [`Buffer`]. The thread keeps the largest buffer
/// that it ever needed, so only the first calls allocate. A call from inside `body` gets its own memory.
pub fn with_workspace<R>(floats: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let bytes = floats * size_of::<f32>();
    let kept = WORKSPACE.take().filter(|buffer| buffer.len() >= bytes);
    let mut buffer = kept.unwrap_or_else(|| Buffer::zeroed(bytes));
    let result = body(bytemuck::cast_slice_mut(&mut buffer.bytes_mut()[..bytes]));
    let inner = WORKSPACE.take().filter(|inner| inner.len() > buffer.len());
    WORKSPACE.set(Some(inner.unwrap_or(buffer)));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_workspaces_do_not_overlap() {
        with_workspace(100, |outer| {
            outer.fill(1.0);
            with_workspace(500, |inner| inner.fill(2.0));
            assert_eq!(outer, [1.0; 100]);
        });
    }

    #[test]
    fn the_largest_buffer_is_kept() {
        let address = |floats| with_workspace(floats, |workspace| workspace.as_ptr() as usize);
        let largest = address(1000);
        assert_eq!([address(50), address(1000), address(0)], [largest; 3]);
    }
}
