//! Scripts played without kernels, by workers that take turns.

use super::{Gate, NO_GATE, PortScript, QueueAt, RingAt, Scripts, Work};
use crate::execute::script::After;
use crate::plan::test_programs::{Maker, Placed, random_program, relu};
use crate::plan::{ChunkRule, PlanOptions, StreamMode};
use anabranch_placement::platform::DeviceKind;
use std::collections::{BTreeMap, VecDeque};

#[test]
fn a_chain_on_one_device_waits_for_nobody() {
    let mut maker = Maker::new();
    let mut value = maker.input(&[4]);
    for _ in 0..6 {
        value = maker.node(relu(), &[value], &[4]);
    }
    let placed = Placed::new(maker.finish(&[value]), &["cpu"], &[0; 6]);
    let plan = placed.plan(&PlanOptions::default()).expect("feasible");
    let scripts = Scripts::of(&plan, &placed.program).expect("a plan that agrees with itself");
    assert!(scripts.ports[0].gates.is_empty() && scripts.devices[0].after.is_empty());
    assert!(scripts.devices[0].steps.iter().all(|step| step.gate == NO_GATE));
    assert_eq!(scripts.devices[0].steps.iter().filter(|s| matches!(s.work, Work::Node(_))).count(), 6);
}

/// A chunk's buffer: of which ring it is, and which of the ring's.
type Token = Option<(RingAt, usize)>;

/// All workers in the middle of a run.
struct Play<'a> {
    scripts: &'a Scripts,
    gates: Vec<Vec<u32>>,
    /// Each worker's step, and its chunk there.
    at: Vec<(usize, usize)>,
    queues: BTreeMap<QueueAt, VecDeque<Token>>,
    /// Free buffers.
    rings: BTreeMap<RingAt, Vec<usize>>,
    /// Readers that have not given a buffer back.
    readers: BTreeMap<(RingAt, usize), usize>,
    /// Slots that are handed to a link: the device's cell, by the link's gate.
    landings: BTreeMap<Gate, u32>,
    /// By device.
    lands_on_cpu: Vec<bool>,
}

impl<'a> Play<'a> {
    fn new(scripts: &'a Scripts, cpus: Vec<bool>) -> Self {
        let counts = |port: &PortScript| port.gates.iter().map(|gate| gate.openers.len() as u32).collect::<Vec<_>>();
        let gates: Vec<Vec<u32>> = scripts.ports.iter().map(counts).collect();
        let mut rings = BTreeMap::new();
        for (worker, port) in scripts.ports.iter().enumerate() {
            for (ring, size) in port.rings.iter().enumerate() {
                let at = RingAt { worker: worker as u32, ring: ring as u32 };
                rings.insert(at, (0..size.depth as usize).collect());
            }
        }
        let mut play = Self {
            at: vec![(0, 0); gates.len()],
            gates,
            scripts,
            queues: BTreeMap::new(),
            rings,
            readers: BTreeMap::new(),
            landings: BTreeMap::new(),
            lands_on_cpu: cpus,
        };
        for landing in scripts.devices.iter().flat_map(|device| &device.first_landings) {
            play.hand_over(landing);
        }
        play
    }

    fn open(&mut self, gate: Gate) {
        let count = &mut self.gates[gate.worker as usize][gate.index as usize];
        *count = count.checked_sub(1).expect("nobody opens a gate more often than is waited for");
    }

    fn hand_over(&mut self, landing: &super::HandOver) {
        assert_eq!(self.landings.insert(landing.gate, landing.cell), None, "a transfer lands in one slot");
        self.open(landing.gate);
    }

    fn is_open(&self, worker: usize, gate: u32) -> bool {
        gate == NO_GATE || self.gates[worker][gate as usize] == 0
    }

    fn send(&mut self, to: QueueAt, token: Token) {
        let queue = self.queues.entry(to).or_default();
        queue.push_back(token);
        let room = self.scripts.ports[to.worker as usize].queues[to.queue as usize];
        assert!(queue.len() <= room, "{} chunks in a queue of {room}", queue.len());
    }

    /// Gives a buffer back to where it came from.
    fn credit(&mut self, ring: Option<RingAt>, token: Token) {
        assert_eq!(ring, token.map(|(ring, _)| ring));
        let Some((ring, number)) = token else { return };
        let readers = self.readers.get_mut(&(ring, number)).expect("it is under way");
        *readers -= 1;
        if *readers == 0 {
            self.rings.get_mut(&ring).expect("a ring").push(number);
        }
    }

    /// A turn of a device: a chunk or a step. Whether anything was done.
    fn turn_of_device(&mut self, worker: usize) -> bool {
        let device = &self.scripts.devices[worker];
        let (index, chunk) = self.at[worker];
        let Some(step) = device.steps.get(index).filter(|step| self.is_open(worker, step.gate)) else { return false };
        if let Work::Node(node) = step.work
            && let Some(streaming) = &device.nodes[node as usize].streaming
            && chunk < streaming.cut.chunks()
        {
            let own = |queue: u32| QueueAt { worker: worker as u32, queue };
            let ring = |ring: u32| RingAt { worker: worker as u32, ring };
            let is_gpu = self.scripts.ports[worker].rings.is_empty();
            if !streaming.ins.iter().all(|input| self.queues.get(&own(input.queue)).is_some_and(|q| !q.is_empty()))
                || !(is_gpu || streaming.outs.iter().all(|out| !self.rings[&ring(out.output)].is_empty()))
            {
                return false;
            }
            for out in &streaming.outs {
                let number = self.rings.get_mut(&ring(out.output)).filter(|_| !is_gpu).and_then(Vec::pop);
                let token = number.map(|number| (ring(out.output), number));
                if let Some(key) = token {
                    assert_eq!(self.readers.insert(key, out.to.len()).unwrap_or(0), 0);
                }
                out.to.iter().for_each(|onward| self.send(onward.to, token));
            }
            for input in &streaming.ins {
                let token = self.queues.get_mut(&own(input.queue)).and_then(VecDeque::pop_front);
                self.credit(input.credit, token.expect("seen above"));
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

    /// A turn of a link: a chunk or a step.
    fn turn_of_link(&mut self, worker: usize, chunks: impl Fn(crate::plan::TransferId) -> usize) -> bool {
        let link = &self.scripts.links[worker - self.scripts.devices.len()];
        let (index, chunk) = self.at[worker];
        let Some(step) = link.steps.get(index).filter(|step| self.is_open(worker, step.gate)) else { return false };
        if chunk < chunks(step.transfer) {
            let through = step.target.is_none();
            let own = |queue: u32| QueueAt { worker: worker as u32, queue };
            let ring = RingAt { worker: worker as u32, ring: 0 };
            let is_fed = |feed: &super::Feed| self.queues.get(&own(feed.queue)).is_some_and(|queue| !queue.is_empty());
            let fed = step.feed.as_ref().is_none_or(is_fed);
            let room = !through || !self.rings[&ring].is_empty();
            if !fed || !room {
                return false;
            }
            let number = self.rings.get_mut(&ring).filter(|_| through).and_then(Vec::pop);
            let token = number.map(|number| (ring, number));
            if let Some(key) = token {
                self.readers.insert(key, 1);
            }
            self.send(step.reader.expect("a stream has a reader"), token);
            if let Some(feed) = &step.feed {
                let token = self.queues.get_mut(&own(feed.queue)).and_then(VecDeque::pop_front);
                self.credit(feed.credit, token.expect("seen above"));
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

/// Plays a run without kernels: workers that take turns must all come to their end, whichever is the first in each round.
#[test]
fn random_scripts_run_to_their_end() {
    arbtest::arbtest(|u| {
        let placed = random_program(u, 4)?;
        let options = PlanOptions {
            streaming: *u.choose(&[StreamMode::Off, StreamMode::Auto, StreamMode::Always])?,
            chunk: ChunkRule::Rows(u.int_in_range(1..=4)?),
            capacity: u.int_in_range(2..=4)?,
        };
        let plan = placed.plan(&options).expect("no limit");
        let scripts = Scripts::of(&plan, &placed.program).expect("a plan that agrees with itself");
        let cpus = plan.devices().iter().map(|device| device.kind == DeviceKind::Cpu).collect();
        let mut play = Play::new(&scripts, cpus);
        let workers = play.at.len();
        let chunks = |id| plan.transfer(id).stream().map_or(0, crate::plan::Stream::chunks);
        loop {
            let first = u.int_in_range(0..=workers - 1)?;
            let mut moved = false;
            for worker in (0..workers).map(|turn| (first + turn) % workers) {
                // Some are faster than others.
                for _ in 0..=worker % 3 {
                    moved |= match worker < scripts.devices.len() {
                        true => play.turn_of_device(worker),
                        false => play.turn_of_link(worker, chunks),
                    };
                }
            }
            if !moved {
                break;
            }
        }
        let steps = scripts.devices.iter().map(|device| device.steps.len());
        let ends: Vec<usize> = steps.chain(scripts.links.iter().map(|link| link.steps.len())).collect();
        assert_eq!(play.at.iter().map(|at| at.0).collect::<Vec<_>>(), ends);
        assert!(play.gates.iter().flatten().all(|gate| *gate == 0), "every countdown ends at zero");
        assert!(play.queues.values().all(VecDeque::is_empty) && play.readers.values().all(|readers| *readers == 0));
        assert!(play.landings.is_empty(), "every slot that was handed over was filled");
        Ok(())
    })
    .budget_ms(500);
}
