//! The threads of a dynamic executor, and what they are told and say.

use super::Setup;
use super::gpu::{GpuHands, GpuLayout};
use super::memory::{Pool, Wiring};
use crate::execute::cpu::slow::Slow;
use crate::execute::device::{ComputeDevice, CpuTeam};
use crate::execute::error::{ExecError, Failure, Place};
use crate::execute::ledger::Ledger;
use crate::execute::message::Halt;
use crate::execute::{inside, spawn};
use crate::plan::HOST;
use crate::program::{NodeId, Origin, ValueId};
use anabranch_kernels::Buffer;
use anabranch_kernels::cpu::{Call, CpuKernel, Team};
use anabranch_placement::platform::{DeviceId, DeviceKind};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// From when to when something took place.
pub(super) type Span = (Instant, Instant);

/// A node for a CPU device, with its tensors.
pub(super) struct CpuTask {
    pub(super) node: NodeId,
    pub(super) inputs: Vec<Arc<Buffer>>,
    pub(super) outputs: Vec<Buffer>,
}

/// What threads say to the scheduler.
pub(super) enum Reply {
    /// A CPU device has run a node.
    Computed { device: DeviceId, node: NodeId, outputs: Vec<Buffer>, span: Span },
    /// A GPU has taken a node: what it gets later sees the result.
    Submitted { device: DeviceId, node: NodeId },
    /// A GPU has run a node.
    Finished { device: DeviceId, node: NodeId, span: Span },
    /// A value is on its way to a GPU: what that gets later sees it.
    Lifted { device: DeviceId, value: ValueId, span: Span },
    /// A value of a GPU is here.
    Fetched { device: DeviceId, value: ValueId, buffer: Buffer, span: Span },
    /// It did not work.
    Failed { device: DeviceId, halt: Halt },
}

/// How a device is given work.
pub(super) enum Hands {
    Cpu(Sender<CpuTask>),
    Gpu(GpuHands),
}

/// All threads, and the memory that they share.
pub(super) struct Crew {
    pub(super) hands: Vec<Hands>,
    /// By device: which memory it computes in.
    pub(super) memory_of: Vec<usize>,
    pub(super) replies: Receiver<Reply>,
    pub(super) ledger: Ledger,
    pub(super) pool: Pool,
    pub(super) wiring: Wiring,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// A thread's way to speak, and to be stopped.
#[derive(Clone)]
pub(super) struct Voice {
    pub(super) device: DeviceId,
    pub(super) replies: Sender<Reply>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Voice {
    /// Tells the scheduler. It listens as long as the crew lives.
    pub(super) fn say(&self, reply: Reply) {
        let _ = self.replies.send(reply);
    }

    /// Does each task that comes; `place` is what a panic is blamed on.
    pub(super) fn serve<T>(
        &self,
        inbox: &Receiver<T>,
        place: impl Fn(&T) -> Place,
        mut perform: impl FnMut(T) -> Result<(), Halt>,
    ) {
        while let Ok(task) = inbox.recv() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let at = place(&task);
            let result = catch_unwind(AssertUnwindSafe(|| perform(task)));
            let result = result.unwrap_or_else(|payload| Err(Halt::Failed(Failure::panic(at, &*payload))));
            if let Err(halt) = result {
                self.say(Reply::Failed { device: self.device, halt });
            }
        }
    }
}

impl Crew {
    /// Prepares all kernels, takes what stays taken, and starts the threads.
    pub(super) fn new(setup: &Setup) -> Result<Self, ExecError> {
        let (replies, inbox) = unbounded();
        let ledger = Ledger::new(setup.devices.len());
        let resident = setup.resident(&ledger);
        let cpus = || setup.devices.iter().filter(|(_, device)| device.kind == DeviceKind::Cpu);
        let limit = cpus().try_fold(0u64, |sum, (_, device)| Some(sum.saturating_add(device.limit?)));
        let limit = limit.unwrap_or(u64::MAX);
        let mut crew = Self {
            hands: Vec::new(),
            memory_of: Vec::new(),
            replies: inbox,
            pool: Pool::new(ledger.clone(), limit.saturating_sub(resident), limit),
            ledger,
            wiring: Wiring::of(setup.kernels.program()),
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
        };
        let mut memories = 1;
        for (at, (device, planned)) in setup.devices.iter().enumerate() {
            let voice = Voice { device: DeviceId(at as u32), replies: replies.clone(), stop: Arc::clone(&crew.stop) };
            let (hands, memory) = match device {
                ComputeDevice::Cpu(team) => (crew.start_cpu(setup, team, voice)?, 0),
                ComputeDevice::Gpu(opener) => {
                    let layout = GpuLayout::of(setup, voice.device, planned.limit.unwrap_or(u64::MAX));
                    let hands = layout.start(&mut crew, setup, opener, voice)?;
                    memories += 1;
                    (Hands::Gpu(hands), memories - 1)
                }
            };
            crew.hands.push(hands);
            crew.memory_of.push(memory);
        }
        Ok(crew)
    }

    /// The number of memories.
    pub(super) fn memories(&self) -> usize {
        self.memory_of.iter().max().map_or(1, |most| most + 1)
    }

    /// Starts a thread.
    pub(super) fn start(&mut self, name: &str, main: impl FnOnce() + Send + 'static) -> Result<(), ExecError> {
        let body = move || {
            inside::enter();
            main();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
        let refused = |error: std::io::Error| ExecError::Thread { worker: name.into(), reason: error.to_string() };
        self.threads.push(thread.map_err(refused)?);
        Ok(())
    }

    fn start_cpu(&mut self, setup: &Setup, team: &CpuTeam, voice: Voice) -> Result<Hands, ExecError> {
        let program = Arc::clone(setup.kernels.program());
        let kernel = |node: NodeId| {
            let refused = |source| ExecError::Kernel {
                node: program.node(node).name.clone(),
                device: team.name.clone(),
                source: Box::new(source),
            };
            setup.kernels.cpu(node).map_err(refused)
        };
        let kernels = program.node_ids().map(kernel).collect::<Result<Vec<_>, _>>()?;
        let scratch = kernels.iter().map(|kernel| kernel.scratch_bytes()).max().unwrap_or(0);
        self.ledger.take(voice.device, scratch);
        let (threads, units) = (team.threads.max(1), Arc::new(team.units.clone()));
        let slowdown = Some(team.slowdown).filter(|times| *times > 1.0);
        let (sender, inbox) = unbounded::<CpuTask>();
        self.start(&team.name, move || {
            spawn::pin(&units, 0);
            let team = Team::new(threads, move |member| {
                inside::enter();
                spawn::pin(&units, member);
            });
            let mut scratch = Buffer::zeroed(scratch);
            voice.serve(
                &inbox,
                |task| Place::Node(task.node),
                |task| {
                    let spec = &program.node(task.node).spec;
                    let started = slowdown.map(Slow::start);
                    let (node, start, outputs) = compute(task, spec, &kernels, (&mut scratch, &team))?;
                    if let Some(started) = started {
                        started.finish();
                    }
                    let span = (start, Instant::now());
                    voice.say(Reply::Computed { device: voice.device, node, outputs, span });
                    Ok(())
                },
            );
        })?;
        Ok(Hands::Cpu(sender))
    }
}

/// Runs one node: when it started, and what it made. What it read is let go before anybody hears of it.
fn compute(
    task: CpuTask,
    spec: &anabranch_kernels::op::NodeSpec,
    kernels: &[Arc<dyn CpuKernel>],
    (scratch, team): (&mut Buffer, &Team),
) -> Result<(NodeId, Instant, Vec<Buffer>), Halt> {
    let CpuTask { node, inputs, mut outputs } = task;
    let started = Instant::now();
    let read: Vec<&[u8]> =
        inputs.iter().zip(&spec.inputs).map(|(buffer, spec)| &buffer.bytes()[..spec.bytes()]).collect();
    let mut written: Vec<&mut [u8]> = outputs.iter_mut().map(Buffer::bytes_mut).collect();
    let rows = 0..spec.row_plan().map_or(1, |plan| plan.rows);
    let call = Call { inputs: &read, outputs: &mut written, rows, scratch: scratch.bytes_mut(), team };
    kernels[node.index()].run(call).map_err(|error| Failure::at(Place::Node(node), error))?;
    drop(inputs);
    Ok((node, started, outputs))
}

impl Setup {
    /// Counts what stays on the host: constants and packed weights. Returns the bytes.
    fn resident(&self, ledger: &Ledger) -> u64 {
        let program = self.kernels.program();
        let constants = program.values.iter().map(|value| match &value.origin {
            Origin::Constant(tensor) => tensor.bytes().len(),
            Origin::Input | Origin::Node(_) => 0,
        });
        let kernels = program.node_ids().filter_map(|node| self.kernels.cpu(node).ok());
        let bytes: usize = constants.sum::<usize>() + kernels.map(|kernel| kernel.resident_bytes()).sum::<usize>();
        ledger.take(HOST, bytes);
        bytes as u64
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.hands.clear();
        for thread in self.threads.drain(..) {
            // What a thread had to say about its end it has said.
            let _ = thread.join();
        }
    }
}
