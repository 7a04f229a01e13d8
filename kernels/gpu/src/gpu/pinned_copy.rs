//! Copies between pinned host memory and buffers of the GPU, without staging.

use super::device::Gpu;
use anabranch_op::tensor::Buffer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A submitted copy from or to [pinned](Gpu::pinned) host memory.
///
/// Until it is done, the host cannot write the memory, and cannot read it if the GPU writes it: the copy, or wgpu,
/// holds it. That remains so if the value is dropped earlier.
#[derive(Debug)]
pub struct PinnedCopy {
    submission: wgpu::SubmissionIndex,
    is_done: Arc<AtomicBool>,
    /// Host memory that the GPU writes.
    written: Option<Arc<Buffer>>,
}

impl PinnedCopy {
    /// Returns the submission to wait for.
    pub fn submission(&self) -> &wgpu::SubmissionIndex {
        &self.submission
    }

    /// Whether the GPU is done, as a poll has found.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Returns the host memory that the GPU has written; `None` if it has written none, or is not done.
    pub fn into_written(self) -> Option<Arc<Buffer>> {
        if self.is_done() { self.written } else { None }
    }
}

#[cfg(any(windows, target_os = "linux"))]
mod vulkan {
    use super::*;
    use crate::gpu::pinned::Pinned;

    impl Gpu {
        /// Submits a copy of the first `bytes` bytes of pinned memory to a buffer: later submissions see it. Returns
        /// `None` if the memory is not pinned for this GPU.
        pub fn send(&self, source: &Arc<Buffer>, target: &wgpu::Buffer, bytes: usize) -> Option<PinnedCopy> {
            let pinned = self.keeper(source)?;
            let mut encoder = self.device().create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&pinned.buffer, 0, target, 0, (bytes as u64).next_multiple_of(4));
            let submission = self.queue().submit([encoder.finish()]);
            Some(self.copy(submission, Some(Arc::clone(source)), None))
        }

        /// Submits a copy of the first `bytes` bytes of a buffer to pinned memory, which
        /// [`into_written`](PinnedCopy::into_written) gives back.
        ///
        /// # Errors
        /// Gives the memory back at once if something else holds it, or if it is not pinned for this GPU.
        pub fn receive(
            &self,
            source: &wgpu::Buffer,
            mut target: Arc<Buffer>,
            bytes: usize,
        ) -> Result<PinnedCopy, Arc<Buffer>> {
            if Arc::get_mut(&mut target).is_none() {
                return Err(target);
            }
            let Some(pinned) = self.keeper(&target) else { return Err(target) };
            let mut encoder = self.device().create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(source, 0, &pinned.buffer, 0, (bytes as u64).next_multiple_of(4));
            // wgpu encodes the copy when the encoder is finished, so that the barrier has an encoder of its own.
            let mut last = self.device().create_command_encoder(&Default::default());
            pinned.show_to_host(&mut last);
            let submission = self.queue().submit([encoder.finish(), last.finish()]);
            Ok(self.copy(submission, None, Some(target)))
        }

        /// Whether the memory is pinned for this GPU.
        pub fn has_pinned(&self, buffer: &Buffer) -> bool {
            self.keeper(buffer).is_some()
        }

        /// Returns the keeper of memory that is pinned for this GPU.
        fn keeper<'a>(&self, buffer: &'a Buffer) -> Option<&'a Pinned> {
            buffer.keeper()?.downcast_ref::<Pinned>().filter(|pinned| pinned.is_of(self))
        }

        fn copy(
            &self,
            submission: wgpu::SubmissionIndex,
            read: Option<Arc<Buffer>>,
            written: Option<Arc<Buffer>>,
        ) -> PinnedCopy {
            let is_done = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&is_done);
            self.queue().on_submitted_work_done(move || {
                // The owner may write the memory as soon as it knows.
                drop(read);
                told.store(true, Ordering::Release);
            });
            PinnedCopy { submission, is_done, written }
        }
    }
}

#[cfg(not(any(windows, target_os = "linux")))]
impl Gpu {
    /// Returns `false`: on this system no memory is pinned.
    pub fn has_pinned(&self, _: &Buffer) -> bool {
        false
    }

    /// Returns `None`: on this system no memory is pinned.
    pub fn send(&self, _: &Arc<Buffer>, _: &wgpu::Buffer, _: usize) -> Option<PinnedCopy> {
        None
    }

    /// Gives the memory back: on this system none is pinned.
    ///
    /// # Errors
    /// Always.
    pub fn receive(&self, _: &wgpu::Buffer, target: Arc<Buffer>, _: usize) -> Result<PinnedCopy, Arc<Buffer>> {
        Err(target)
    }
}

#[cfg(test)]
mod tests {
    use crate::gpu::Gpu;
    use crate::gpu::testing::{gpu, open};
    use std::sync::Arc;
    use std::time::Duration;

    fn finish(gpu: &Gpu) {
        while !gpu.poll(Some(Duration::from_secs(10))).expect("it is healthy") {}
    }

    #[test]
    fn values_go_to_the_gpu_and_back_without_staging() {
        let gpu = gpu();
        for bytes in [1, 4, 999, (1 << 20) + 3] {
            let Some(mut source) = gpu.pinned(bytes) else { return };
            assert!(source.len() == bytes && source.bytes().iter().all(|byte| *byte == 0));
            let content: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect();
            source.bytes_mut().copy_from_slice(&content);
            let target = gpu.pinned(bytes).expect("memory");
            let middle = gpu.storage((bytes as u64).next_multiple_of(4)).expect("memory");
            let source = Arc::new(source);
            let sent = gpu.send(&source, &middle, bytes).expect("pinned for this GPU");
            let received = gpu.receive(&middle, Arc::new(target), bytes).expect("nobody else holds it");
            finish(gpu);
            assert!(sent.is_done() && sent.into_written().is_none());
            assert_eq!(Arc::strong_count(&source), 1, "it may be written again");
            assert!(received.into_written().is_some_and(|buffer| buffer.bytes() == content), "{bytes} bytes");
        }
    }

    #[test]
    fn only_pinned_memory_of_one_holder_is_written() {
        let (gpu, other) = (gpu(), open());
        let Some(pinned) = gpu.pinned(8) else { return };
        let middle = gpu.storage(8).expect("memory");
        let (pinned, usual) = (Arc::new(pinned), Arc::new(anabranch_op::tensor::Buffer::zeroed(8)));
        let held = Arc::clone(&pinned);
        assert!(gpu.receive(&middle, Arc::clone(&pinned), 8).is_err(), "somebody may read it");
        drop(held);
        assert!(gpu.send(&usual, &middle, 8).is_none() && gpu.receive(&middle, usual, 8).is_err());
        let elsewhere = other.storage(8).expect("memory");
        assert!(other.send(&pinned, &elsewhere, 8).is_none(), "another device's");
        assert!(gpu.pinned(0).is_none() && gpu.pinned(usize::MAX).is_none() && gpu.pinned(1 << 60).is_none());
        finish(gpu);
    }

    #[test]
    fn memory_in_flight_and_of_a_lost_device_is_freed_in_the_end() {
        let gpu = open();
        let Some(first) = gpu.pinned(4096) else { return };
        let middle = gpu.storage(4096).expect("memory");
        drop(gpu.receive(&middle, Arc::new(first), 4096).expect("nobody else holds it"));
        let mut second = gpu.pinned(4096).expect("memory");
        finish(&gpu);
        let third = gpu.receive(&middle, Arc::new(gpu.pinned(4096).expect("memory")), 4096).expect("one holder");
        gpu.destroy();
        while gpu.poll(Some(Duration::from_millis(10))).is_ok_and(|empty| !empty) {}
        second.bytes_mut().fill(7);
        drop((gpu, middle));
        assert!(second.bytes().iter().all(|byte| *byte == 7), "the mapping outlives the loss");
        drop((second, third));
    }

    #[test]
    fn no_more_allocations_are_made_than_drivers_have_room_for() {
        let gpu = open();
        let mut all: Vec<_> = std::iter::from_fn(|| gpu.pinned(64)).take(1000).collect();
        assert!(all.is_empty() || all.len() == 256, "{}", all.len());
        let some = all.pop().is_some();
        gpu.poll(None).expect("it is healthy");
        assert_eq!(gpu.pinned(64).is_some(), some);
    }
}
