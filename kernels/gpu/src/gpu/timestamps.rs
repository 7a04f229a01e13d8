//! Timing of passes on the device's own clock.

use super::device::Gpu;
use anabranch_op::error::KernelError;
use std::time::Duration;

/// Pairs of timestamps at the begin and end of passes, which are read back after the passes ran.
///
/// One round is: passes with [`writes`](Self::writes), then [`resolve`](Self::resolve) in the same or a later encoder,
/// a submission, [`map`](Self::map), and [`take`](Self::take) once the callback was called.
#[derive(Debug)]
pub struct TimestampRing {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    readable: wgpu::Buffer,
    pairs: u32,
    period: f64,
}

/// Bytes of one pair.
const PAIR: u64 = 16;

impl TimestampRing {
    /// Creates a ring of `pairs` pairs, from 1 to 2048; `None` if the device has no timestamps.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn new(gpu: &Gpu, pairs: u32) -> Result<Option<Self>, KernelError> {
        if !gpu.has_timestamps() {
            return Ok(None);
        }
        let pairs = pairs.clamp(1, wgpu::QUERY_SET_MAX_QUERIES / 2);
        let buffer = |label, usage| {
            let size = u64::from(pairs) * PAIR;
            gpu.device().create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        gpu.guarded("timestamps", || {
            let queries = gpu.device().create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("timestamps"),
                ty: wgpu::QueryType::Timestamp,
                count: pairs * 2,
            });
            let resolved = buffer("timestamps", wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
            let readable = buffer("timestamps read", wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
            Ok(Some(Self { queries, resolved, readable, pairs, period: f64::from(gpu.queue().get_timestamp_period()) }))
        })
    }

    /// Returns the field of a pass's descriptor that makes its begin and end pair `pair` (taken modulo the number of
    /// pairs).
    pub fn writes(&self, pair: u32) -> wgpu::ComputePassTimestampWrites<'_> {
        let first = pair % self.pairs * 2;
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        }
    }

    /// Encodes the copy of the first `pairs` pairs to a buffer that can be read.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder, pairs: u32) {
        let pairs = pairs.min(self.pairs);
        if pairs > 0 {
            encoder.resolve_query_set(&self.queries, 0..pairs * 2, &self.resolved, 0);
            encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.readable, 0, u64::from(pairs) * PAIR);
        }
    }

    /// Requests the resolved pairs; `done` is called in a later poll, on the thread that polls.
    pub fn map(&self, done: impl FnOnce(Result<(), wgpu::BufferAsyncError>) + Send + 'static) {
        self.readable.slice(..).map_async(wgpu::MapMode::Read, done);
    }

    /// Returns the first `pairs` pairs as begin and end on the device's clock, in nanoseconds since an arbitrary
    /// moment. After that, the next round may be resolved.
    ///
    /// # Errors
    /// If the pairs have not been mapped.
    pub fn take(&self, pairs: u32) -> Result<Vec<[Duration; 2]>, KernelError> {
        let bytes = u64::from(pairs.min(self.pairs)) * PAIR;
        let times = match self.readable.slice(..).get_mapped_range() {
            Ok(view) => bytemuck::pod_collect_to_vec::<u8, u64>(&view[..bytes as usize]),
            Err(error) => return Err(KernelError::Gpu(format!("timestamps: {error}"))),
        };
        self.readable.unmap();
        let time = |ticks: u64| Duration::from_nanos((ticks as f64 * self.period) as u64);
        Ok(times.chunks_exact(2).map(|pair| [time(pair[0]), time(pair[1])]).collect())
    }
}
