//! Plays worker programs without kernels, by workers that take turns.

use super::{After, Feed, Gate, NO_GATE, QueueAt, StreamOut, Work, WorkerPrograms};
use crate::run_channels::{RunChannels, Wait};
use anabranch_kernels::Buffer;
use anabranch_placement_core::platform::DeviceKind;
use anabranch_plan::test_programs::{PlacedProgram, random_program, random_residency};
use anabranch_plan::{ChunkRule, PlanOptions, StreamMode};
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn a_chain_on_one_device_waits_for_nobody() {
    let placed = PlacedProgram::chain(&["cpu"], &[0; 6], &[4]);
    let plan = placed.plan(&PlanOptions::default()).expect("feasible");
    let worker_programs = WorkerPrograms::of(&plan, &placed.program).expect("a plan that agrees with itself");
    assert!(worker_programs.ports[0].gates.is_empty() && worker_programs.devices[0].after.is_empty());
    assert!(worker_programs.devices[0].steps.iter().all(|step| step.gate == NO_GATE));
    assert_eq!(worker_programs.devices[0].steps.iter().filter(|s| matches!(s.work, Work::Node(_))).count(), 6);
}

/// All workers in the middle of a run, and the channels between them.
struct Play<'a> {
    worker_programs: &'a WorkerPrograms,
    channels: RunChannels,
    /// Step of each worker, and its chunk there.
    at: Vec<(usize, usize)>,
    /// Number of chunks in flight.
    queued: BTreeMap<QueueAt, usize>,
    /// Slots that are handed to a link: the device's cell, by the link's gate.
    landings: BTreeMap<Gate, u32>,
    /// Whether each device receives values on a CPU.
    lands_on_cpu: Vec<bool>,
}

impl<'a> Play<'a> {
    fn new(worker_programs: &'a WorkerPrograms, cpus: Vec<bool>) -> Self {
        let mut play = Self {
            worker_programs,
            channels: RunChannels::new(&worker_programs.ports).expect("small rings"),
            at: vec![(0, 0); worker_programs.ports.len()],
            queued: BTreeMap::new(),
            landings: BTreeMap::new(),
            lands_on_cpu: cpus,
        };
        for landing in worker_programs.devices.iter().flat_map(|device| &device.first_landings) {
            play.hand_over(landing);
        }
        play
    }

    fn open(&self, gate: Gate) {
        self.channels.open(gate).expect("nobody opens a gate more often than is waited for");
    }

    fn hand_over(&mut self, landing: &super::HandOver) {
        assert_eq!(self.landings.insert(landing.gate, landing.cell), None, "a transfer lands in one slot");
        self.open(landing.gate);
    }

    fn is_ready(&self, worker: usize, wait: Wait) -> bool {
        wait == Wait::Gate(NO_GATE) || self.channels.port(worker as u32).is_ready(wait)
    }

    fn send(&mut self, to: QueueAt, chunk: Option<Arc<Buffer>>) {
        self.channels.send(to, chunk);
        let (queued, capacity) = (
            self.queued.entry(to).or_default(),
            self.worker_programs.ports[to.worker as usize].queues[to.queue as usize],
        );
        *queued += 1;
        assert!(*queued <= capacity, "{queued} chunks in a queue of {capacity}");
    }

    /// Takes a chunk and returns its buffer to its ring.
    fn take(&mut self, worker: usize, feed: &Feed) {
        let chunk = self.channels.port(worker as u32).next_chunk(feed.queue).expect("it is ready");
        *self.queued.entry(QueueAt { worker: worker as u32, queue: feed.queue }).or_default() -= 1;
        assert_eq!(feed.credit.is_some(), chunk.is_some());
        if let (Some(ring), Some(buffer)) = (feed.credit, chunk) {
            self.channels.give_back(ring, buffer).expect("a buffer of the ring");
        }
    }

    /// Plays a turn of a device: a chunk or a step. Returns whether anything was done.
    fn turn_of_device(&mut self, worker: usize) -> bool {
        let device = &self.worker_programs.devices[worker];
        let (index, chunk) = self.at[worker];
        let Some(step) = device.steps.get(index).filter(|step| self.is_ready(worker, Wait::Gate(step.gate))) else {
            return false;
        };
        if let Work::Node(node) = step.work
            && let Some(streaming) = &device.nodes[node as usize].streaming
            && chunk < streaming.cut.chunks()
        {
            let is_gpu = !self.lands_on_cpu[worker];
            let has_buffer = |out: &StreamOut| is_gpu || self.is_ready(worker, Wait::Channel(out.wait));
            if !streaming.ins.iter().all(|input| self.is_ready(worker, Wait::Channel(input.feed.wait)))
                || !streaming.outs.iter().all(has_buffer)
            {
                return false;
            }
            for out in &streaming.outs {
                let buffer = (!is_gpu).then(|| self.channels.port(worker as u32).free_buffer(out.output));
                let buffer = buffer.map(|buffer| buffer.expect("it is ready"));
                out.to.iter().for_each(|onward| self.send(onward.to, buffer.clone()));
            }
            for input in &streaming.ins {
                self.take(worker, &input.feed);
            }
            self.at[worker].1 += 1;
            return true;
        }
        self.at[worker] = (index + 1, 0);
        for after in device.after(&step.after) {
            match after {
                After::Open(gate) | After::Share { gate, .. } => self.open(*gate),
                After::HandOver(landing) => self.hand_over(landing),
                After::Forget(_) => {}
            }
        }
        true
    }

    /// Plays a turn of a link: a chunk or a step.
    fn turn_of_link(&mut self, worker: usize, chunks: impl Fn(anabranch_plan::TransferId) -> usize) -> bool {
        let link = &self.worker_programs.links[worker - self.worker_programs.devices.len()];
        let (index, chunk) = self.at[worker];
        let Some(step) = link.steps.get(index).filter(|step| self.is_ready(worker, Wait::Gate(step.gate))) else {
            return false;
        };
        if chunk < chunks(step.transfer) {
            let fed = step.feed.as_ref().is_none_or(|feed| self.is_ready(worker, Wait::Channel(feed.wait)));
            let through = step.target.is_none();
            if !fed || (through && !self.is_ready(worker, Wait::Channel(step.buffer_channel))) {
                return false;
            }
            let buffer = through.then(|| self.channels.port(worker as u32).free_buffer(0).expect("it is ready"));
            self.send(step.reader.expect("a stream has a reader"), buffer);
            if let Some(feed) = &step.feed {
                self.take(worker, feed);
            }
            self.at[worker].1 += 1;
            return true;
        }
        self.at[worker] = (index + 1, 0);
        if step.source.is_some() && step.reader.is_none() && self.lands_on_cpu[link.to.index()] {
            let gate = Gate { worker: worker as u32, index: step.gate };
            assert_eq!(self.landings.remove(&gate), step.target, "a value lands in its slot");
        }
        step.arrival.iter().chain(&step.after).for_each(|gate| self.open(*gate));
        true
    }
}

/// Plays a run without kernels: workers that take turns must all reach their end, for any first worker in each round.
#[test]
fn random_scripts_run_to_their_end() {
    arbtest::arbtest(|u| {
        let placed = random_program(u, 4)?;
        let options = PlanOptions {
            streaming: *u.choose(&[StreamMode::Off, StreamMode::Auto, StreamMode::Always])?,
            chunk: ChunkRule::Rows(u.int_in_range(1..=4)?),
            capacity: u.int_in_range(2..=4)?,
            weights: random_residency(u, &placed)?,
        };
        let plan = placed.plan(&options).expect("no limit");
        let worker_programs = WorkerPrograms::of(&plan, &placed.program).expect("a plan that agrees with itself");
        let cpus = plan.devices().iter().map(|device| device.kind == DeviceKind::Cpu).collect();
        let mut play = Play::new(&worker_programs, cpus);
        let workers = play.at.len();
        let chunks = |id| plan.transfer(id).stream().map_or(0, anabranch_plan::Stream::chunks);
        loop {
            let first = u.int_in_range(0..=workers - 1)?;
            let mut moved = false;
            for worker in (0..workers).map(|turn| (first + turn) % workers) {
                // Some workers are faster than others.
                for _ in 0..=worker % 3 {
                    moved |= match worker < worker_programs.devices.len() {
                        true => play.turn_of_device(worker),
                        false => play.turn_of_link(worker, chunks),
                    };
                }
            }
            if !moved {
                break;
            }
        }
        let steps = worker_programs.devices.iter().map(|device| device.steps.len());
        let ends: Vec<usize> = steps.chain(worker_programs.links.iter().map(|link| link.steps.len())).collect();
        assert_eq!(play.at.iter().map(|at| at.0).collect::<Vec<_>>(), ends);
        assert!(play.queued.values().all(|chunks| *chunks == 0));
        for (worker, port) in worker_programs.ports.iter().enumerate() {
            let closed = |gate: usize| !play.is_ready(worker, Wait::Gate(gate as u32));
            assert!(!(0..port.gates.len()).any(closed), "every countdown ends at zero");
            for (ring, size) in port.rings.iter().enumerate() {
                let free = || play.channels.port(worker as u32).free_buffer(ring as u32);
                assert_eq!(std::iter::from_fn(free).count() as u64, size.depth, "every buffer came back");
            }
        }
        assert!(play.landings.is_empty(), "every slot that was handed over was filled");
        Ok(())
    })
    .budget_ms(500);
}
