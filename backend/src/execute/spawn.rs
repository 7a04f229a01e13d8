//! Making an engine: kernels, buffers, channels and threads.

use super::actor::{Desk, serve};
use super::cpu::CpuWorker;
use super::device::{ComputeDevice, CpuTeam};
use super::engine::{Engine, Report, Shared, Worker};
use super::error::{ExecError, Failure};
use super::gpu::{Extra, GpuSide, GpuWorker};
use super::ledger::Ledger;
use super::link::LinkWorker;
use super::message::{Halt, Mail, Message, Status};
use super::script::{DeviceScript, Scripts};
use super::{Kernels, inside};
use crate::device::affinity;
use crate::plan::Plan;
use crate::program::{NodeId, ValueId};
use anabranch_kernels::cpu::{CpuKernel, Team};
use anabranch_placement::platform::DeviceId;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

/// What an engine is made of.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) plan: Arc<Plan>,
    pub(super) kernels: Arc<Kernels>,
    pub(super) devices: Vec<ComputeDevice>,
    #[cfg(test)]
    pub(super) lost: std::sync::Mutex<Option<super::message::Gate>>,
}

impl Setup {
    /// Takes all memory, prepares all kernels and starts all threads.
    pub(super) fn build(&self) -> Result<Engine, ExecError> {
        let program = self.kernels.program();
        let Scripts { mut devices, links, messages, openers, channels } = Scripts::of(&self.plan, program);
        let ledger = Ledger::new(self.plan.devices().len());
        self.ready_constants(&mut devices, &ledger)?;
        let (sender, reports) = unbounded();
        let shared = Arc::new(Shared { plan: Arc::clone(&self.plan), ledger: ledger.clone(), reports: sender });
        let (senders, inboxes): (Vec<Sender<Message>>, Vec<Receiver<Message>>) =
            messages.iter().map(|capacity| bounded(*capacity)).unzip();
        let stop = Arc::new(AtomicBool::new(false));
        let peers: Arc<[Sender<Message>]> = senders.clone().into();
        let mut engine = Engine {
            plan: Arc::clone(&self.plan),
            program: Arc::clone(program),
            workers: Vec::new(),
            reports,
            stop,
            ledger,
            openers,
            channels,
        };
        let mut boxes = inboxes.into_iter();
        let mut mail = |engine: &mut Engine, name: String| {
            let at = engine.workers.len();
            let status = Arc::new(Status::default());
            let worker = Worker { name, inbox: senders[at].clone(), status: Arc::clone(&status), thread: None };
            engine.workers.push(worker);
            Mail {
                inbox: boxes.next().unwrap_or_else(crossbeam_channel::never),
                peers: Arc::clone(&peers),
                status,
                stop: Arc::clone(&engine.stop),
                #[cfg(test)]
                lost: *self.lost.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
            }
        };
        let mut gpus: Vec<Option<Arc<GpuSide>>> = Vec::new();
        for (at, (device, script)) in self.devices.iter().zip(devices).enumerate() {
            let id = DeviceId(at as u32);
            let script = Arc::new(script);
            let mail = mail(&mut engine, device.name().to_owned());
            gpus.push(match device {
                ComputeDevice::Cpu(team) => {
                    let kernels = self.cpu_kernels(&script)?;
                    let desk = Desk::new(id.0, Arc::clone(&shared), mail);
                    self.start_cpu(&mut engine, team, desk, MakeCpu { device: id, script, kernels })?;
                    None
                }
                ComputeDevice::Gpu(opener) => {
                    let side = {
                        let memory = &self.plan.memory().devices()[at];
                        let (scratch, kernels) = (memory.scratch, memory.kernels);
                        let extra = Extra { ledger: &engine.ledger, scratch, kernels };
                        GpuSide::new(opener, id, &script, &self.kernels, &extra)?
                    };
                    let worker = GpuWorker::new(id, script, Arc::clone(&shared), mail, Arc::clone(&side));
                    start(&mut engine, &shared, move || serve(worker))?;
                    Some(side)
                }
            });
        }
        for script in links {
            let name = |device: DeviceId| self.devices[device.index()].name();
            let mail = mail(&mut engine, format!("{} -> {}", name(script.from), name(script.to)));
            let at = engine.workers.len() as u32 - 1;
            let ends = [script.from, script.to].map(|end| gpus[end.index()].clone());
            let worker = LinkWorker::new(at, script, Arc::clone(&shared), mail, ends)?;
            start(&mut engine, &shared, move || serve(worker))?;
        }
        Ok(engine)
    }

    /// Packs and loads what the CPU devices read of the constants.
    fn ready_constants(&self, scripts: &mut [DeviceScript], ledger: &Ledger) -> Result<(), ExecError> {
        let devices = || self.devices.iter().enumerate().filter(|(_, device)| matches!(device, ComputeDevice::Cpu(_)));
        let nodes = |script: &DeviceScript| script.nodes.iter().map(|node| node.node).collect::<Vec<_>>();
        let all: Vec<NodeId> = devices().flat_map(|(at, _)| nodes(&scripts[at])).collect();
        let values: Vec<ValueId> =
            devices().flat_map(|(at, _)| scripts[at].cells.constants.iter().map(|cell| cell.value)).collect();
        let mut loaded = self.kernels.ready(&all, &values)?.into_iter();
        // What several nodes share is one buffer: it counts on the first device.
        let mut counted = BTreeSet::new();
        for (at, _) in devices() {
            let packed = nodes(&scripts[at]).into_iter().flat_map(|node| self.kernels.packed(node));
            let fresh = packed.filter(|buffer| counted.insert(Arc::as_ptr(buffer)));
            ledger.take(DeviceId(at as u32), fresh.map(|buffer| buffer.len()).sum());
        }
        for (at, _) in devices() {
            let constants = &mut scripts[at].cells.constants;
            constants.iter_mut().zip(&mut loaded).for_each(|(cell, buffer)| cell.buffer = buffer);
        }
        Ok(())
    }

    fn cpu_kernels(&self, script: &DeviceScript) -> Result<Vec<Arc<dyn CpuKernel>>, ExecError> {
        script.nodes.iter().map(|node| self.kernels.cpu(node.node)).collect()
    }

    /// Starts the thread of a CPU device, which makes its own buffers and team.
    fn start_cpu(&self, engine: &mut Engine, team: &CpuTeam, desk: Desk, make: MakeCpu) -> Result<(), ExecError> {
        let (threads, units, slowdown) = (team.threads.max(1), Arc::new(team.units.clone()), team.slowdown);
        let shared = Arc::clone(&desk.shared);
        start(engine, &shared, move || {
            pin(&units, 0);
            let team = Team::new(threads, move |member| {
                inside::enter();
                pin(&units, member);
            });
            serve(CpuWorker::new(make.device, desk, make.script, make.kernels, (team, slowdown)));
        })
    }
}

/// What the worker of a CPU device is made from on its own thread.
struct MakeCpu {
    device: DeviceId,
    script: Arc<DeviceScript>,
    kernels: Vec<Arc<dyn CpuKernel>>,
}

/// Keeps the calling thread, the `member`th of a team, on its processing unit for as long as it lives. Where the system
/// does not allow it, the thread runs elsewhere: slower perhaps, and as right.
pub(super) fn pin(units: &[u32], member: usize) {
    if !units.is_empty()
        && let Ok(pinned) = affinity::pin_current_thread(&[units[member % units.len()]])
    {
        std::mem::forget(pinned);
    }
}

/// Starts the thread of the worker that was added last.
fn start(engine: &mut Engine, shared: &Arc<Shared>, main: impl FnOnce() + Send + 'static) -> Result<(), ExecError> {
    let number = engine.workers.len() as u32 - 1;
    let Some(worker) = engine.workers.last_mut() else { return Ok(()) };
    let shared = Arc::clone(shared);
    let body = move || {
        inside::enter();
        // Runs catch their panics; this is for one outside of them, which would otherwise leave the supervisor waiting.
        if catch_unwind(AssertUnwindSafe(main)).is_err() {
            let result = Err(Halt::Failed(Failure::internal("a worker is gone")));
            shared.report(Report { result, ..Report::idle(number) });
        }
    };
    let spawned = thread::Builder::new().name(worker.name.clone()).spawn(body);
    worker.thread =
        Some(spawned.map_err(|error| ExecError::Thread { worker: worker.name.clone(), reason: error.to_string() })?);
    Ok(())
}
