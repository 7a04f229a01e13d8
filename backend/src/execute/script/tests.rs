//! Scripts played without kernels, by workers that take turns.

use super::{Credit, Scripts, Work};
use crate::execute::script::After;
use crate::plan::test_programs::{Maker, Placed, random_program, relu};
use crate::plan::{ChunkRule, PlanOptions, StreamMode};
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
    let scripts = Scripts::of(&plan, &placed.program);
    assert_eq!(scripts.devices[0].gates, [0; 8]);
    assert!(scripts.devices[0].after.is_empty());
    assert_eq!(scripts.devices[0].steps.iter().filter(|s| matches!(s.work, Work::Node(_))).count(), 6);
}

/// A chunk's buffer, of which ring it is, and which of the ring's.
type Token = Option<(u32, u32, usize)>;

/// All workers in the middle of a run.
struct Play<'a> {
    scripts: &'a Scripts,
    gates: Vec<Vec<u32>>,
    landed: Vec<Vec<bool>>,
    /// Each worker's step, and its chunk there.
    at: Vec<(usize, usize)>,
    /// By worker and queue.
    queues: BTreeMap<(u32, u32), VecDeque<Token>>,
    /// By worker and ring: free buffers.
    rings: BTreeMap<(u32, u32), Vec<usize>>,
    /// Readers that have not given a buffer back.
    readers: BTreeMap<(u32, u32, usize), usize>,
    /// The most messages that lay in an inbox.
    crowd: Vec<usize>,
}

impl<'a> Play<'a> {
    fn new(scripts: &'a Scripts) -> Self {
        let devices = scripts.devices.len();
        let mut gates: Vec<Vec<u32>> = scripts.devices.iter().map(|device| device.gates.clone()).collect();
        gates.extend(scripts.links.iter().map(|link| link.gates.clone()));
        let mut rings = BTreeMap::new();
        for (at, device) in scripts.devices.iter().enumerate() {
            for (ring, size) in device.rings.iter().enumerate() {
                rings.insert((at as u32, ring as u32), (0..size.depth as usize).collect());
            }
        }
        for (at, link) in scripts.links.iter().enumerate() {
            rings.insert(((devices + at) as u32, 0), (0..link.ring_depth as usize).collect());
        }
        Self {
            landed: scripts.devices.iter().map(|d| vec![false; d.landings.len()]).collect(),
            at: vec![(0, 0); gates.len()],
            crowd: vec![0; gates.len()],
            gates,
            scripts,
            queues: BTreeMap::new(),
            rings,
            readers: BTreeMap::new(),
        }
    }

    fn open(&mut self, worker: u32, index: u32) {
        let count = &mut self.gates[worker as usize][index as usize];
        *count = count.checked_sub(1).expect("nobody sends more than is waited for");
    }

    fn send(&mut self, worker: u32, queue: u32, token: Token) {
        self.queues.entry((worker, queue)).or_default().push_back(token);
        let waiting = self.queues.iter().filter(|((to, _), _)| *to == worker).map(|(_, queue)| queue.len()).sum();
        self.crowd[worker as usize] = self.crowd[worker as usize].max(waiting);
    }

    /// Gives a buffer back to where it came from.
    fn credit(&mut self, credit: Option<Credit>, token: Token) {
        assert_eq!(credit.map(|credit| (credit.worker, credit.ring)), token.map(|(worker, ring, _)| (worker, ring)));
        let Some((worker, ring, number)) = token else { return };
        let readers = self.readers.get_mut(&(worker, ring, number)).expect("it is under way");
        *readers -= 1;
        if *readers == 0 {
            self.rings.get_mut(&(worker, ring)).expect("a ring").push(number);
        }
    }

    /// A turn of a device: a landing, a chunk or a step. Whether anything was done.
    fn turn_of_device(&mut self, worker: usize) -> bool {
        let device = &self.scripts.devices[worker];
        for (index, landing) in device.landings.iter().enumerate() {
            let free = self.gates[worker][device.steps.len() + index] == 0;
            if free && !std::mem::replace(&mut self.landed[worker][index], true) {
                self.open(landing.gate.worker, landing.gate.index);
                return true;
            }
        }
        let (index, chunk) = self.at[worker];
        let Some(step) = device.steps.get(index).filter(|_| self.gates[worker][index] == 0) else { return false };
        if let Work::Node(node) = step.work
            && let Some(streaming) = &device.nodes[node as usize].streaming
            && chunk < streaming.cut.chunks()
        {
            let there = |key: (u32, u32)| self.queues.get(&key).is_some_and(|queue| !queue.is_empty());
            let ring = |output: u32| (worker as u32, output);
            let is_gpu = device.rings.is_empty();
            if !streaming.ins.iter().all(|input| there((worker as u32, input.queue)))
                || !(is_gpu || streaming.outs.iter().all(|out| !self.rings[&ring(out.output)].is_empty()))
            {
                return false;
            }
            for out in &streaming.outs {
                let number = self.rings.get_mut(&ring(out.output)).filter(|_| !is_gpu).and_then(Vec::pop);
                let token = number.map(|number| (worker as u32, out.output, number));
                if let Some(key) = token {
                    assert_eq!(self.readers.insert(key, out.to.len()).unwrap_or(0), 0);
                }
                out.to.iter().for_each(|to| self.send(to.worker, to.queue, token));
            }
            for input in &streaming.ins {
                let token = self.queues.get_mut(&(worker as u32, input.queue)).and_then(VecDeque::pop_front);
                self.credit(input.credit, token.expect("seen above"));
            }
            self.at[worker].1 += 1;
            return true;
        }
        self.at[worker] = (index + 1, 0);
        for after in device.after(&step.after) {
            match *after {
                After::Open(gate) | After::Share { gate, .. } => self.open(gate.worker, gate.index),
                After::Landing(landing) => self.open(worker as u32, device.steps.len() as u32 + landing),
                After::Forget(_) => {}
            }
        }
        true
    }

    /// A turn of a link: a chunk or a step.
    fn turn_of_link(&mut self, worker: usize, chunks: impl Fn(crate::plan::TransferId) -> usize) -> bool {
        let link = &self.scripts.links[worker - self.scripts.devices.len()];
        let (index, chunk) = self.at[worker];
        let Some(step) = link.steps.get(index).filter(|_| self.gates[worker][index] == 0) else { return false };
        if chunk < chunks(step.transfer) {
            let through = step.target.is_none();
            let own = (worker as u32, index as u32);
            let fed = step.feed.is_none() || self.queues.get(&own).is_some_and(|queue| !queue.is_empty());
            let room = !through || !self.rings[&(worker as u32, 0)].is_empty();
            if !fed || !room {
                return false;
            }
            let number = self.rings.get_mut(&(worker as u32, 0)).filter(|_| through).and_then(Vec::pop);
            let token = number.map(|number| (worker as u32, 0, number));
            if let Some(key) = token {
                self.readers.insert(key, 1);
            }
            let (to, queue) = step.reader.expect("a stream has a reader");
            self.send(to, queue, token);
            if let Some(feed) = &step.feed {
                let token = self.queues.get_mut(&own).and_then(VecDeque::pop_front);
                self.credit(feed.credit, token.expect("seen above"));
            }
            self.at[worker].1 += 1;
            return true;
        }
        self.at[worker] = (index + 1, 0);
        for gate in step.arrival.map(|(gate, _)| gate).iter().chain(&step.after) {
            self.open(gate.worker, gate.index);
        }
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
        let scripts = Scripts::of(&plan, &placed.program);
        let mut play = Play::new(&scripts);
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
        for (crowd, room) in play.crowd.iter().zip(&scripts.messages) {
            assert!(crowd <= room, "{crowd} chunks in an inbox of {room}");
        }
        Ok(())
    })
    .budget_ms(500);
}
