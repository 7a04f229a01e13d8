//! Times of nodes on a GPU: from its own clock if it has one, converted to the host's clock.
//!
//! Every node of a profiled run has its own passes, timed by the device. An empty pass for which the host waits relates
//! the two clocks: the pass ended between the host's two readings of its clock. Without timestamps the host waits for
//! each command buffer and divides its time evenly among the nodes.

use super::lost::{failure, wait_for, wait_for_work};
use super::side::GpuSide;
use crate::error::{Failure, FailureSite};
use crate::event::{Activity, Event, Lane};
use crate::run_channels::Halt;
use crate::worker::Run;
use crate::worker_program::{DeviceProgram, NodeCall};
use anabranch_ir::program::NodeId;
use anabranch_kernels::gpu::TimestampRing;
use anabranch_placement_core::platform::DeviceId;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pairs of timestamps in one set.
const SET: u32 = 2048;

/// Time for which a comparison of clocks is valid.
const CLOCKS_HOLD: Duration = Duration::from_secs(10);

/// A node that is being timed.
pub(super) struct Mark {
    node: NodeId,
    bytes: u64,
    ready: u64,
    /// Its pairs of timestamps, one per pass.
    pairs: Range<u32>,
    /// Without timestamps: its share of its command buffer's time.
    times: Option<(Instant, Instant)>,
    /// Without timestamps: its working time in that share.
    busy: Duration,
}

/// A moment on both clocks: the end of an empty pass.
#[derive(Clone, Copy)]
struct Clocks {
    host: Instant,
    device: Duration,
}

/// Times of one run, and the means to measure them.
pub(super) struct Timing {
    device: DeviceId,
    has_timestamps: bool,
    sets: Vec<TimestampRing>,
    marks: Vec<Mark>,
    pairs: u32,
    /// Number of leading marks that have their times.
    timed: usize,
    since: Option<Instant>,
    clocks: Option<Clocks>,
}

impl Timing {
    pub(super) fn new(device: DeviceId, side: &GpuSide) -> Self {
        Self {
            device,
            has_timestamps: side.gpu.has_timestamps(),
            sets: Vec::new(),
            marks: Vec::new(),
            pairs: 0,
            timed: 0,
            since: None,
            clocks: None,
        }
    }

    /// Allocates timestamps for the passes of a run, once.
    pub(super) fn prepare(&mut self, side: &GpuSide, program: &DeviceProgram) -> Result<(), Failure> {
        let passes: usize = (0..program.nodes.len()).map(|at| side.kernels(at).len()).sum();
        while self.has_timestamps && self.sets.len() * (SET as usize) < passes {
            match TimestampRing::new(&side.gpu, SET) {
                Ok(Some(set)) => self.sets.push(set),
                Ok(None) => self.has_timestamps = false,
                Err(error) => return Err(failure(&side.gpu, FailureSite::Nowhere, error)),
            }
        }
        Ok(())
    }

    /// Notes that a node is encoded next.
    pub(super) fn begin(&mut self, node: &NodeCall, now: u64) {
        let pairs = self.pairs..self.pairs;
        let (node, bytes) = (node.node, node.made);
        self.marks.push(Mark { node, bytes, ready: now, pairs, times: None, busy: Duration::ZERO });
        self.since.get_or_insert_with(Instant::now);
    }

    /// Returns the timestamp writes for the node's next pass.
    pub(super) fn writes(&mut self) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        self.since.get_or_insert_with(Instant::now);
        let pair = self.pairs;
        self.pairs += 1;
        if let Some(mark) = self.marks.last_mut() {
            mark.pairs.end = self.pairs;
        }
        self.sets.get((pair / SET) as usize).map(|set| set.writes(pair % SET))
    }

    /// Without timestamps: waits for the submission and divides its time among the nodes.
    pub(super) fn submitted(&mut self, side: &GpuSide, run: &Run<'_>) -> Result<(), Halt> {
        let since = self.since.take();
        if self.has_timestamps {
            return Ok(());
        }
        let last = side.gpu.queue().submit([]);
        wait_for_work(&side.gpu, &last, run.site(FailureSite::Nowhere))?;
        let (end, marks) = (Instant::now(), &mut self.marks[self.timed..]);
        let begin = since.unwrap_or(end);
        let share = end.duration_since(begin) / marks.len().max(1) as u32;
        for (at, mark) in marks.iter_mut().enumerate() {
            mark.times = Some((begin + share * at as u32, begin + share * (at as u32 + 1)));
            mark.busy = share;
        }
        if self.timed == self.marks.len()
            && let Some(mark) = self.marks.last_mut()
        {
            // These are further chunks of the last node of the former submission.
            mark.times = mark.times.map(|(start, _)| (start, end));
            mark.busy += share;
        }
        self.timed = self.marks.len();
        Ok(())
    }

    /// Returns the events of the run.
    pub(super) fn events(&mut self, side: &GpuSide, run: &Run<'_>) -> Result<Vec<Event>, Halt> {
        let times = if self.has_timestamps && self.pairs > 0 { self.read(side, run)? } else { Vec::new() };
        let clocks = self.clocks;
        let host = |device: Duration| match clocks {
            Some(clocks) if device >= clocks.device => clocks.host.checked_add(device - clocks.device),
            Some(clocks) => clocks.host.checked_sub(clocks.device - device),
            None => None,
        };
        let mut free = 0;
        let mut event = |mark: Mark| {
            let pairs = times.get(mark.pairs.start as usize..mark.pairs.end as usize).unwrap_or(&[]);
            let measured = match (pairs.first(), pairs.last()) {
                (Some(first), Some(last)) => host(first[0]).zip(host(last[1])),
                _ => mark.times,
            };
            let (start, end) = measured.map_or((mark.ready, mark.ready), |(s, e)| (run.at(s), run.at(e)));
            let timed: Duration = pairs.iter().map(|pair| pair[1].saturating_sub(pair[0])).sum();
            let busy = if pairs.is_empty() { mark.busy } else { timed };
            // Neighbours may overlap a little on the device, and the clocks agree to some microseconds.
            let start = start.max(mark.ready).max(free);
            // If the host was busy during the comparison, the clocks agree less: then the node's duration counts.
            free = if end > start { end } else { start + busy.as_nanos() as u64 };
            let (what, lane) = (Activity::Node(mark.node), Lane::Device(self.device));
            // Between the chunks of a stream the device waits.
            let is_cut = mark.pairs.len() > 1;
            let waited = if is_cut { (free - start).saturating_sub(busy.as_nanos() as u64) } else { 0 };
            Event { what, lane, ready: mark.ready, start, end: free, waited, bytes: mark.bytes }
        };
        Ok(self.marks.drain(..).map(&mut event).collect())
    }

    /// Prepares the next run.
    pub(super) fn clear(&mut self) {
        self.marks.clear();
        (self.pairs, self.timed, self.since) = (0, 0, None);
    }

    /// Prepares the run after a failed run, which may have left its buffers mapped.
    pub(super) fn renew(&mut self) {
        self.clear();
        self.sets.clear();
    }

    /// Reads the run's timestamps on the device's clock.
    fn read(&mut self, side: &GpuSide, run: &Run<'_>) -> Result<Vec<[Duration; 2]>, Halt> {
        if self.clocks.is_none_or(|clocks| clocks.host.elapsed() > CLOCKS_HOLD) {
            self.clocks = self.compare_clocks(side, run)?;
        }
        let mut times = Vec::new();
        for (at, set) in self.sets.iter().enumerate() {
            let pairs = self.pairs.saturating_sub(at as u32 * SET).min(SET);
            if pairs > 0 {
                times.extend(read_set(set, pairs, side, run)?);
            }
        }
        Ok(times)
    }

    /// Returns the narrowest of three comparisons.
    fn compare_clocks(&self, side: &GpuSide, run: &Run<'_>) -> Result<Option<Clocks>, Halt> {
        let mut best: Option<(Duration, Clocks)> = None;
        let set = match TimestampRing::new(&side.gpu, 1) {
            Ok(Some(set)) => set,
            Ok(None) => return Ok(None),
            Err(error) => return Err(failure(&side.gpu, FailureSite::Nowhere, error).into()),
        };
        for _ in 0..3 {
            let mut encoder = side.gpu.device().create_command_encoder(&Default::default());
            let timestamp_writes = Some(set.writes(0));
            drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes }));
            let before = Instant::now();
            let submission = side.gpu.queue().submit([encoder.finish()]);
            wait_for_work(&side.gpu, &submission, run.site(FailureSite::Nowhere))?;
            let width = before.elapsed();
            let device = read_set(&set, 1, side, run)?.first().map_or(Duration::ZERO, |pair| pair[1]);
            if best.as_ref().is_none_or(|(narrowest, _)| width < *narrowest) {
                best = Some((width, Clocks { host: before + width / 2, device }));
            }
        }
        Ok(best.map(|(_, clocks)| clocks))
    }
}

/// Resolves and reads the first pairs of a set.
fn read_set(set: &TimestampRing, pairs: u32, side: &GpuSide, run: &Run<'_>) -> Result<Vec<[Duration; 2]>, Halt> {
    let mut encoder = side.gpu.device().create_command_encoder(&Default::default());
    set.resolve(&mut encoder, pairs);
    let submission = side.gpu.queue().submit([encoder.finish()]);
    let mapped = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&mapped);
    // A refused mapping shows when the result is taken.
    set.map(move |_| told.store(true, Ordering::Release));
    wait_for(&side.gpu, &submission, run.site(FailureSite::Nowhere), || mapped.load(Ordering::Acquire))?;
    Ok(set.take(pairs).map_err(|error| failure(&side.gpu, FailureSite::Nowhere, error))?)
}
