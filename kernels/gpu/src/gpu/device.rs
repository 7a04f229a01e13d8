//! An opened GPU: its queue, its capabilities, its compiled pipelines, and the first error that occurred on it.

use super::limits::{GpuLimits, MATRIX_FEATURES};
use super::pipelines::Pipelines;
use anabranch_op::error::KernelError;
use anabranch_op::op::Precision;
use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
#[cfg(any(windows, target_os = "linux"))]
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;

/// Bytes of one piece of an upload, because a piece is in memory beside the whole meanwhile.
const PIECE: usize = 8 << 20;

/// Bytes of a block of memory that small buffers share: the least that wgpu allows. A larger buffer has memory of its
/// own, of exactly its size.
const BLOCK: u64 = 4 << 20;

/// First error that was reported to no caller.
#[derive(Clone, Debug)]
struct Fault {
    text: String,
    /// Whether the driver reported that there is no memory.
    is_shortage: bool,
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self { text, is_shortage: false }
    }
}

/// One opened adapter. Share it by [`Arc`]: every method takes `&self`.
///
/// wgpu reports some failures to handlers instead of the caller. Both handlers that are set here keep the first report
/// as the GPU's [fault](Self::fault). After a fault, results must not be trusted, and the GPU must be opened again.
pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    facts: GpuLimits,
    interface: wgpu::Backend,
    fault: Arc<OnceLock<Fault>>,
    pipelines: Pipelines,
    /// Number of allocations of pinned host memory.
    #[cfg(any(windows, target_os = "linux"))]
    pinned: Arc<AtomicUsize>,
}

impl Gpu {
    /// Opens the adapter with all its limits and timestamps, if it has them. Unless products are all of full
    /// precision, it is opened with its matrix units, which are experimental in wgpu.
    ///
    /// # Errors
    /// If the driver refuses to open the device.
    pub fn open(adapter: &wgpu::Adapter, precision: Precision) -> Result<Self, KernelError> {
        let (limits, mut facts) = (adapter.limits(), GpuLimits::of(adapter));
        facts.matrices = facts.matrices.filter(|_| !precision.is_full());
        let mut features = adapter.features() & wgpu::Features::TIMESTAMP_QUERY;
        let mut experimental_features = wgpu::ExperimentalFeatures::disabled();
        if facts.matrices.is_some() {
            features |= MATRIX_FEATURES;
            // SAFETY: only the shaders of products that matrix units compute use what is experimental. They keep to
            // what is sound in this version (`half_product.wgsl`).
            experimental_features = unsafe { wgpu::ExperimentalFeatures::enabled() };
        }
        let description = wgpu::DeviceDescriptor {
            label: Some("anabranch"),
            required_features: features,
            required_limits: limits,
            experimental_features,
            // The free part of a block is memory that no plan counts.
            memory_hints: wgpu::MemoryHints::Manual { suballocated_device_memory_block_size: BLOCK..BLOCK },
            ..Default::default()
        };
        let wgpu::AdapterInfo { name, backend: interface, .. } = adapter.get_info();
        let opened = one_at_a_time(|| pollster::block_on(adapter.request_device(&description)));
        let (device, queue) = opened.map_err(|error| KernelError::Gpu(format!("{name} cannot be opened: {error}")))?;
        let fault = Arc::new(OnceLock::new());
        record_faults(&device, &fault);
        Ok(Self {
            device,
            queue,
            facts,
            interface,
            fault,
            pipelines: Pipelines::default(),
            #[cfg(any(windows, target_os = "linux"))]
            pinned: Arc::default(),
        })
    }

    /// Returns the device, for buffers and encoders.
    pub fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// Whether several threads can compile pipelines at the same time. Under OpenGL they wait for each other, and wgpu
    /// panics if one waits for seconds.
    pub fn compiles_in_parallel(&self) -> bool {
        self.interface != wgpu::Backend::Gl
    }

    /// Returns the device's only queue.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Creates a buffer for tensors.
    ///
    /// # Errors
    /// If the GPU has no memory for it, or the driver refuses.
    pub fn storage(&self, size: u64) -> Result<wgpu::Buffer, KernelError> {
        self.buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    /// Creates a buffer.
    ///
    /// # Errors
    /// If the GPU has no memory for it, or the driver refuses.
    pub fn buffer(&self, description: &wgpu::BufferDescriptor<'_>) -> Result<wgpu::Buffer, KernelError> {
        let what = format!("a buffer of {} bytes", description.size);
        self.guarded(&what, || Ok(self.device.create_buffer(description)))
    }

    /// Copies bytes to a new buffer of whole words. At most two pieces are on their way at the same time.
    ///
    /// # Errors
    /// If the GPU has no memory for the buffer, or reports that the copy failed.
    pub fn upload(&self, bytes: &[u8]) -> Result<wgpu::Buffer, KernelError> {
        let target = self.storage((bytes.len().max(1) as u64).next_multiple_of(4))?;
        let mut before = None;
        for (at, piece) in bytes.chunks(PIECE).enumerate() {
            let offset = (at * PIECE) as u64;
            let submission = self.guarded("a piece of a constant", || {
                if piece.len() % 4 == 0 {
                    self.queue.write_buffer(&target, offset, piece);
                } else {
                    let mut words = piece.to_vec();
                    words.resize(piece.len().next_multiple_of(4), 0);
                    self.queue.write_buffer(&target, offset, &words);
                }
                Ok(self.queue.submit([]))
            })?;
            self.poll_until(before.replace(submission))?;
        }
        Ok(target)
    }

    /// The limits that [`supports`](super::supports) wants.
    pub fn facts(&self) -> &GpuLimits {
        &self.facts
    }

    /// Whether passes can be timed ([`TimestampRing`](super::TimestampRing)).
    pub fn has_timestamps(&self) -> bool {
        self.device.features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    /// Returns the number of pipelines compiled so far.
    pub fn pipeline_count(&self) -> usize {
        self.pipelines.compilations()
    }

    /// Destroys the device, as its loss would. For tests of what happens then.
    pub fn destroy(&self) {
        self.device.destroy();
    }

    /// Takes the device for lost from now on, for a reason that it has not reported itself.
    pub fn condemn(&self, reason: &str) {
        self.fault.get_or_init(|| reason.to_owned().into());
    }

    /// Returns the first error that was not reported to any caller, or the loss of the device. Check it after every
    /// poll and before trusting a result: a lost device accepts submissions silently.
    pub fn fault(&self) -> Option<String> {
        self.fault.get().map(|fault| fault.text.clone())
    }

    /// Whether the [fault](Self::fault) is a lack of memory, and not the loss of the device.
    pub fn is_short_of_memory(&self) -> bool {
        self.fault.get().is_some_and(|fault| fault.is_shortage)
    }

    /// Runs the callbacks of finished work; with a `timeout`, first waits at most that long for all submitted work.
    /// Returns whether the queue was empty.
    ///
    /// # Errors
    /// The GPU's fault, if there is one. wgpu 30 panics in `poll` when the driver reports a loss; the panic becomes a
    /// fault.
    pub fn poll(&self, timeout: Option<Duration>) -> Result<bool, KernelError> {
        self.polled(match timeout {
            Some(_) => wgpu::PollType::Wait { submission_index: None, timeout },
            None => wgpu::PollType::Poll,
        })
    }

    /// Runs the callbacks of finished work, and waits for a submission if one is given. Errors are those of
    /// [`poll`](Self::poll).
    fn poll_until(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), KernelError> {
        let kind = match submission {
            Some(_) => wgpu::PollType::Wait { submission_index: submission, timeout: None },
            None => wgpu::PollType::Poll,
        };
        self.polled(kind).map(|_| ())
    }

    fn polled(&self, kind: wgpu::PollType) -> Result<bool, KernelError> {
        let empty = match caught(|| self.device.poll(kind)) {
            Ok(Ok(status)) => status.is_queue_empty(),
            Ok(Err(wgpu::PollError::Timeout)) => false,
            Ok(Err(error)) => return Err(self.failed(error.to_string())),
            Err(payload) if is_race(&*payload) => false,
            Err(_) => return Err(self.failed("the device was lost while it was polled".into())),
        };
        match self.fault() {
            Some(fault) => Err(KernelError::Gpu(fault)),
            None => Ok(empty),
        }
    }

    /// Runs `work`, whose wgpu calls are all on this thread, and returns errors that they report as an error of `name`.
    ///
    /// # Errors
    /// The first error of the scopes, else that of `work`.
    pub(crate) fn guarded<T>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, KernelError>,
    ) -> Result<T, KernelError> {
        let filters = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let result = work();
        // Scopes are popped in reverse order of their creation.
        let errors: Vec<_> = scopes.into_iter().rev().filter_map(|scope| pollster::block_on(scope.pop())).collect();
        match errors.first() {
            Some(wgpu::Error::OutOfMemory { .. }) => Err(KernelError::DeviceMemory { what: name.to_owned() }),
            Some(error) => Err(KernelError::Gpu(format!("{name}: {error}"))),
            None => result,
        }
    }

    #[cfg(any(windows, target_os = "linux"))]
    pub(super) fn pinned_allocations(&self) -> &Arc<AtomicUsize> {
        &self.pinned
    }

    pub(crate) fn pipelines(&self) -> &Pipelines {
        &self.pipelines
    }

    /// Keeps `text` as the fault if it is the first, and returns the first.
    fn failed(&self, text: String) -> KernelError {
        KernelError::Gpu(self.fault.get_or_init(|| text.into()).text.clone())
    }

    /// Replaces the limits for which kernels are compiled by stricter ones.
    #[cfg(test)]
    pub(crate) fn with_facts(mut self, facts: GpuLimits) -> Self {
        self.facts = facts;
        self
    }
}

/// Runs `work` while no other thread enumerates or opens GPUs through this function. NVIDIA's driver (580.159) was seen
/// to fault when several threads of a process initialised it at the same time.
pub fn one_at_a_time<T>(work: impl FnOnce() -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}

thread_local! {
    /// Whether a panic of this thread is caught and returned as an error.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Calls `poll` and catches its panic without printing it. wgpu 30 panics in two cases. If two polls meet, the panic is
/// harmless ([`is_race`]); if a device is lost, callers return it as an error. The first call installs a panic hook
/// before the existing one, which still receives all other panics.
pub fn caught<T>(poll: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_CAUGHT.get() {
                usual(info);
            }
        }));
    });
    let before = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(poll));
    IS_CAUGHT.set(before);
    result
}

/// Whether a panic of wgpu's `poll` says only that another thread's poll was faster. wgpu 30 reads which work is
/// finished, and asserts against it after another thread may have cleared more. The work itself is not affected; a
/// callback that this poll had taken may be lost.
pub fn is_race(payload: &(dyn Any + Send)) -> bool {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.is_some_and(|text| text.starts_with("If the queue is empty, the current submission index"))
}

fn record_faults(device: &wgpu::Device, fault: &Arc<OnceLock<Fault>>) {
    let record = Arc::clone(fault);
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        let is_shortage = matches!(error, wgpu::Error::OutOfMemory { .. });
        record.get_or_init(|| Fault { text: error.to_string(), is_shortage });
    }));
    let record = Arc::clone(fault);
    device.set_device_lost_callback(move |reason, text| {
        record.get_or_init(|| format!("the device was lost ({reason:?}): {text}").into());
    });
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("facts", &self.facts).field("fault", &self.fault).finish_non_exhaustive()
    }
}
