//! The weights of a session in memory: once for all its plans, packed for CPUs and uploaded to GPUs.

use super::exec_error::ExecError;
use anabranch_base::lock::lock;
use anabranch_ir::constant::{Constant, ConstantError, Identity};
use anabranch_kernels::cpu::Layout;
use anabranch_kernels::gpu::{Gpu, GpuBuffer};
use anabranch_kernels::tensor::LARGE;
use anabranch_kernels::{Block, Buffer};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;

/// Most bytes that are prepared on the calling thread alone: starting other threads would cost more.
const FEW: usize = 1 << 20;

/// Most bytes of raw weights in memory while forms are made of them, unless a twentieth of all is more.
const RAW: usize = 64 << 20;

/// Constants are packed in pieces of this many bytes, because a piece is in memory beside the whole meanwhile.
const PIECE: usize = 8 << 20;

/// Packed constants from this many bytes on to those with large pages of their own share large pages.
const SMALL: usize = 16 << 10;

/// Most bytes of constants that share pages: they are given back together.
const SHARED: usize = 16 << 20;

/// Constants in the forms that kernels read.
///
/// A form stays as long as a plan uses it; unused forms are freed when another form is made.
#[derive(Default)]
pub struct Weights {
    /// Held while forms are made.
    making: Mutex<()>,
    host: Mutex<BTreeMap<Form, Arc<Buffer>>>,
    gpus: Mutex<Vec<Box<dyn Uploads>>>,
}

/// Constants on one opened GPU.
///
/// This is a trait object, because a GPU's type is so deep that users who need weights to be `Send` would otherwise
/// have to raise the compiler's recursion limit.
trait Uploads: Send + Sync {
    fn gpu(&self) -> &Weak<Gpu>;
    fn buffers(&mut self) -> &mut Buffers;
}

type Buffers = BTreeMap<Identity, Upload>;

/// A constant on a GPU, once it is there. Locked by who sends it, and nothing else is.
type Upload = Arc<Mutex<Option<Arc<GpuBuffer>>>>;

impl Uploads for (Weak<Gpu>, Buffers) {
    fn gpu(&self) -> &Weak<Gpu> {
        &self.0
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.1
    }
}

/// A constant in its own layout, or in the layout of a kernel.
type Form = (Identity, Option<Layout>);

/// A form that a kernel reads on the host.
pub struct Wanted {
    pub(crate) constant: Constant,
    pub(crate) layout: Option<Layout>,
}

impl Wanted {
    fn form(&self) -> Form {
        (self.constant.identity().clone(), self.layout.clone())
    }

    fn bytes(&self) -> usize {
        self.layout.as_ref().map_or(self.constant.bytes(), Layout::bytes)
    }

    /// Bytes that are in memory in addition to the form while it is made.
    fn raw(&self) -> usize {
        let bytes = self.constant.bytes();
        match &self.layout {
            _ if !self.constant.is_in_file() => bytes,
            Some(layout) => layout.pieces(PIECE).next().map_or(0, |piece| piece.len().max(PIECE)).min(bytes),
            // The constant is read into its final memory.
            None => 0,
        }
    }

    /// Form that is in memory in any case.
    fn held(&self) -> Option<Arc<Buffer>> {
        let held = self.constant.held().filter(|_| self.layout.is_none())?;
        Some(Arc::clone(held.buffer()))
    }

    /// Makes the form, if need be in memory of its own. Returns `None` if it lies in `place`, which is as long and
    /// zero.
    fn make(&self, place: Option<&mut [u8]>) -> Result<Option<Arc<Buffer>>, ConstantError> {
        let Some(layout) = &self.layout else { return Ok(Some(Arc::clone(self.constant.load()?.buffer()))) };
        if let Some(packed) = self.constant.packed(layout) {
            return packed.map(Some);
        }
        if let Some(place) = place {
            self.pack(layout, place)?;
            return Ok(None);
        }
        let bytes = layout.bytes();
        let short = || ConstantError::OutOfMemory { tensor: format!("{:?}", self.constant), bytes };
        let mut packed = Buffer::try_zeroed(bytes).ok_or_else(short)?;
        self.pack(layout, packed.bytes_mut())?;
        Ok(Some(Arc::new(packed)))
    }

    fn pack(&self, layout: &Layout, to: &mut [u8]) -> Result<(), ConstantError> {
        if self.constant.bytes() <= PIECE {
            layout.pack(self.constant.load()?.bytes(), to);
            return Ok(());
        }
        let pack = |piece: &Range<usize>, raw: &[u8]| layout.pack_piece(piece, raw, to);
        self.constant.in_pieces(PIECE, layout.pieces(PIECE), pack)
    }

    /// Whether its form shares pages with others.
    fn shares_pages(&self) -> bool {
        self.layout.is_some() && (SMALL..LARGE).contains(&self.bytes())
    }
}

impl Weights {
    /// Returns the forms on the host, in the order of `wanted`.
    ///
    /// Missing forms are made on all processors, the largest first, so that the raw weights in memory hardly add to the
    /// peak.
    pub fn on_host(&self, wanted: &[Wanted]) -> Result<Vec<Arc<Buffer>>, ConstantError> {
        // Two plans that are prepared at the same time need mostly the same forms.
        let _making = lock(&self.making);
        let mut there: BTreeMap<Form, Arc<Buffer>> = BTreeMap::new();
        let mut jobs: BTreeMap<Form, &Wanted> = BTreeMap::new();
        {
            let mut host = lock(&self.host);
            for wanted in wanted.iter().filter(|wanted| wanted.held().is_none()) {
                let form = wanted.form();
                match host.get(&form) {
                    Some(buffer) => _ = there.insert(form, Arc::clone(buffer)),
                    None => _ = jobs.insert(form, wanted),
                }
            }
            // Unused forms are freed before new forms are made, because both together may exceed the budget.
            forget_unused(&mut host);
        }
        let mut jobs: Vec<_> = jobs.into_values().collect();
        jobs.sort_by_key(|job| Reverse(job.bytes()));
        let made = made(&jobs)?;
        there.extend(jobs.iter().map(|job| job.form()).zip(made));
        lock(&self.host).extend(there.iter().map(|(form, buffer)| (form.clone(), Arc::clone(buffer))));
        let found = |wanted: &Wanted| match wanted.held() {
            Some(held) => Ok(held),
            None => Ok(Arc::clone(&there[&wanted.form()])),
        };
        wanted.iter().map(found).collect()
    }

    /// A constant in the memory of a GPU of this name.
    pub(crate) fn on_gpu(
        &self,
        gpu: &Arc<Gpu>,
        name: &str,
        (value, constant): (&str, &Constant),
    ) -> Result<Arc<GpuBuffer>, ExecError> {
        let upload = self.upload_of(gpu, constant);
        let mut there = lock(&upload);
        if let Some(buffer) = &*there {
            return Ok(Arc::clone(buffer));
        }
        let refused = |error| ExecError::without_buffer(name, &format!("constant {value:?}"), &error);
        let buffer = Arc::new(gpu.upload(constant.load()?.bytes()).map_err(refused)?);
        *there = Some(Arc::clone(&buffer));
        Ok(buffer)
    }

    /// Entry of a constant on a GPU, present or to be uploaded.
    fn upload_of(&self, gpu: &Arc<Gpu>, constant: &Constant) -> Upload {
        let mut gpus = lock(&self.gpus);
        gpus.retain(|uploads| uploads.gpu().upgrade().is_some_and(|gpu| gpu.fault().is_none()));
        let known = gpus.iter().position(|uploads| std::ptr::eq(uploads.gpu().as_ptr(), Arc::as_ptr(gpu)));
        let at = known.unwrap_or_else(|| {
            gpus.push(Box::new((Arc::downgrade(gpu), Buffers::new())));
            gpus.len() - 1
        });
        let buffers = gpus[at].buffers();
        if !buffers.contains_key(constant.identity()) {
            forget_uploads(buffers);
        }
        Arc::clone(buffers.entry(constant.identity().clone()).or_default())
    }

    /// Frees forms that no plan uses.
    pub fn trim(&self) {
        forget_unused(&mut lock(&self.host));
        lock(&self.gpus).iter_mut().for_each(|uploads| forget_uploads(uploads.buffers()));
    }

    /// Returns the bytes on the host, and the part of them that no plan uses.
    pub fn host_bytes(&self) -> (u64, u64) {
        let host = lock(&self.host);
        let sum = |unused: bool| {
            let counted = host.values().filter(|buffer| !unused || Arc::strong_count(buffer) == 1);
            counted.map(|buffer| buffer.len() as u64).sum()
        };
        (sum(false), sum(true))
    }
}

/// Makes all forms, on as many threads as gain time. Forms of similar size are neighbours.
fn made(jobs: &[&Wanted]) -> Result<Vec<Arc<Buffer>>, ConstantError> {
    let bytes: usize = jobs.iter().map(|job| job.bytes()).sum();
    let largest = jobs.iter().map(|job| job.raw()).max().unwrap_or(0).max(1);
    // Each thread has one raw weight, or a piece of it, in memory. All of these together should hardly add to the peak.
    let at_once = (RAW.max(bytes / 20) / largest).max(1);
    let threads = match bytes < FEW {
        true => 1,
        // Each query reads files, so that it is made only if its result matters.
        false => thread::available_parallelism().map_or(1, NonZero::get).min(jobs.len()).min(at_once),
    };
    let mut blocks = blocks(jobs);
    let mut places: Vec<_> = jobs.iter().map(|_| Mutex::new(None)).collect();
    for (those, block) in &mut blocks {
        for (at, place) in those.clone().zip(block.parts_mut()) {
            places[at] = Mutex::new(Some(place));
        }
    }
    let make = |at: usize, job: &Wanted| job.make(lock(&places[at]).take());
    let results: Vec<_> = jobs.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return };
            results[at].get_or_init(|| make(at, job));
        }
    };
    thread::scope(|scope| {
        // A panicking job is made again below by the calling thread, whose panic is reported.
        let quietly = || _ = catch_unwind(AssertUnwindSafe(work));
        // If the system starts no more threads, the existing threads do the work.
        (1..threads).for_each(|_| _ = thread::Builder::new().spawn_scoped(scope, quietly));
        work();
    });
    let results = results.into_iter().zip(jobs).enumerate();
    let own = results.map(|(at, (result, job))| result.into_inner().unwrap_or_else(|| make(at, job)));
    let mut made = own.collect::<Result<Vec<_>, _>>()?;
    drop(places);
    for (those, block) in blocks {
        for (made, buffer) in made[those].iter_mut().zip(block.into_buffers()) {
            made.get_or_insert_with(|| Arc::new(buffer));
        }
    }
    Ok(made.into_iter().flatten().collect())
}

/// Memory for neighbours that share pages. Forms for which there is no memory are left to memory of their own.
fn blocks(jobs: &[&Wanted]) -> Vec<(Range<usize>, Block)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < jobs.len() {
        let mut sum = 0;
        let fits = |job: &&&Wanted| {
            sum += job.bytes();
            job.shares_pages() && sum <= SHARED
        };
        let count = jobs[at..].iter().take_while(fits).count();
        if count > 1
            && let Some(block) = Block::try_zeroed(jobs[at..at + count].iter().map(|job| job.bytes()))
        {
            found.push((at..at + count, block));
        }
        at += count.max(1);
    }
    found
}

/// Drops entries that only the map holds.
fn forget_unused<K: Ord, T>(map: &mut BTreeMap<K, Arc<T>>) {
    map.retain(|_, form| Arc::strong_count(form) > 1);
}

/// Drops uploads that no plan uses and no thread sends.
fn forget_uploads(buffers: &mut Buffers) {
    let is_used = |buffer: &Option<Arc<GpuBuffer>>| buffer.as_ref().is_some_and(|it| Arc::strong_count(it) > 1);
    buffers.retain(|_, upload| Arc::strong_count(upload) > 1 || is_used(&lock(upload)));
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, unused) = self.host_bytes();
        f.debug_struct("Weights").field("host", &host).field("unused", &unused).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::{Shape, Tensor};

    #[test]
    fn small_packed_forms_share_pages() {
        let sizes = [[1024, 1024], [512, 1000], [300, 256], [129, 65], [3, 16]];
        let wanted: Vec<Wanted> = sizes.iter().map(|size| wanted(*size)).collect();
        let shared: Vec<bool> = wanted.iter().map(Wanted::shares_pages).collect();
        assert_eq!(shared, [false, true, true, true, false]);
        let weights = Weights::default();
        let together = weights.on_host(&wanted).expect("there is memory");
        let place = |at: usize| together[at].bytes().as_ptr() as usize;
        let reach = (1..4).map(|at| place(at) + together[at].len()).max().unwrap() - (1..4).map(place).min().unwrap();
        let sum: usize = together[1..4].iter().map(|form| form.len()).sum();
        assert!(reach < sum + 3 * 64, "{reach} bytes hold {sum}");
        for (at, wanted) in wanted.iter().enumerate() {
            let alone = Weights::default().on_host(std::slice::from_ref(wanted)).expect("there is memory");
            assert_eq!(together[at].bytes(), alone[0].bytes(), "{:?}", sizes[at]);
        }
        drop(together);
        weights.trim();
        assert_eq!(weights.host_bytes(), (0, 0));
    }

    fn wanted(size: [usize; 2]) -> Wanted {
        let elements: Vec<f32> = (0..size[0] * size[1]).map(|at| (at % 977) as f32).collect();
        let shape = Shape::new(size.to_vec()).expect("small");
        let tensor = Tensor::from_elements(shape, &elements).expect("as many as the shape says");
        Wanted { constant: Constant::from(tensor), layout: Some(Layout::right(1, size, false, 16)) }
    }
}
