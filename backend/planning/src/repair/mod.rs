//! Turns an assignment that exceeds the devices' memory into one that fits: work moves off the devices that are short
//! of memory.
//!
//! A plan is made of the assignment. If a device is short, units leave it ([`relief`]): those with the least lost time
//! per freed byte, until the memory is expected to suffice. Plans are made again until one fits. A unit does not go
//! back to a device that it left, so that this ends after at most units × devices moves; after [`ROUNDS`] plans it is
//! given up. An assignment that fits is improved: stretches of moved units go back, and nodes with neighbours on
//! another device move there. Each such move must keep the plan within memory and shorten its predicted time; this
//! takes a bounded number of plans. Equal problems give equal results.
//!
//! Values are never computed twice to save memory: after fusion, hardly any remain for which that would gain
//! (ARCHITECTURE.md).

mod relief;
mod staged;
mod ways;

pub(super) use ways::Ways;

use super::error::PlanningError;
use super::fitting::still_wanted;
use super::forecast::forecast;
use super::machine::Machine;
use super::placing::Placing;
use super::strategy::Order;
use anabranch_ir::program::Program;
use anabranch_placement_core::graph::{TaskId, UnitId};
use anabranch_placement_core::place::Placement;
use anabranch_placement_core::platform::DeviceId;
use anabranch_placement_core::problem::Problem;
use anabranch_placement_core::simulate::simulate;
use anabranch_plan::{Kernels, MemoryShortage, Plan, PlanDevice, PlanError, PlanOptions, Residency, StreamMode};
use relief::Relief;
use std::collections::{BTreeMap, BTreeSet};

/// Most plans of one assignment until one fits.
const ROUNDS: usize = 64;

/// Most plans that improve an assignment: together they have at most this many tasks, within the bounds below.
const IMPROVED_TASKS: usize = 20_000;
const IMPROVEMENTS: std::ops::RangeInclusive<usize> = 16..=200;

/// A program that is planned repeatedly, without streaming.
pub(super) struct Repair<'a> {
    pub(super) program: &'a Program,
    pub(super) machine: &'a Machine,
    pub(super) devices: &'a [PlanDevice],
    pub(super) placing: &'a Placing<'a>,
    /// Problem of the placing, without memory limits.
    pub(super) problem: &'a Problem<'a>,
    pub(super) kernels: &'a Kernels,
    pub(super) rule: Order,
    /// Weights that stay on GPUs.
    pub(super) weights: Residency,
}

/// An assignment whose plan fits.
#[derive(Clone)]
pub(super) struct Repaired {
    /// Device of each task.
    pub(super) device_of: Vec<DeviceId>,
    /// Bytes that units held on a device that they left for its memory.
    pub(super) held: BTreeMap<UnitId, u64>,
    /// Predicted seconds.
    pub(super) makespan: f64,
}

impl Repair<'_> {
    /// Moves units of an assignment until its plan fits; `None` if that does not succeed.
    ///
    /// # Errors
    /// If a plan cannot be made for another reason.
    pub(super) fn repaired(&self, device_of: &[DeviceId]) -> Result<Option<Repaired>, PlanningError> {
        let limits = self.machine.memory();
        let (mut device_of, mut held) = (device_of.to_vec(), BTreeMap::new());
        let mut barred: BTreeSet<(UnitId, DeviceId)> = BTreeSet::new();
        let mut margins = vec![0u64; limits.len()];
        for _ in 0..ROUNDS {
            let shortage = match self.planned(&device_of)? {
                Ok(makespan) => return Ok(Some(Repaired { device_of, held, makespan })),
                Err(shortage) => shortage,
            };
            let short = self.position(&shortage);
            let margin = &mut margins[short.index()];
            let mut relief = Relief::new(self.problem, &device_of, short, &shortage, &limits, *margin);
            relief.run(&barred);
            let (next, left) = relief.into_moves();
            if left.is_empty() {
                return Ok(None);
            }
            barred.extend(left.keys().map(|unit| (*unit, short)));
            // If the expected relief was too small, the next round frees more at once.
            *margin = margin.saturating_mul(2).saturating_add(shortage.needed - shortage.available);
            held.extend(left);
            device_of = next;
        }
        Ok(None)
    }

    /// Returns a copy that keeps these weights on GPUs.
    pub(super) fn with_weights(&self, weights: Residency) -> Self {
        Self { weights, ..*self }
    }

    /// Most plans for an improvement without an early end.
    pub(super) fn improvements(&self) -> usize {
        (IMPROVED_TASKS / self.problem.graph().task_count().max(1)).clamp(*IMPROVEMENTS.start(), *IMPROVEMENTS.end())
    }

    /// Improves a fitting assignment, which was made from the assignment `start`, with at most this many plans.
    ///
    /// # Errors
    /// If a plan cannot be made for another reason than memory.
    pub(super) fn improve(
        &self,
        start: &[DeviceId],
        repaired: &mut Repaired,
        mut plans: usize,
    ) -> Result<(), PlanningError> {
        loop {
            let before = repaired.makespan;
            let moved = self.moved(start, &repaired.device_of);
            let mut length = moved.len();
            while length > 0 {
                for stretch in moved.chunks(length) {
                    let home = |unit: UnitId| start[self.problem.graph().members(unit)[0].index()];
                    let moves: Vec<_> = stretch.iter().map(|unit| (*unit, home(*unit))).collect();
                    self.try_moves(&moves, repaired, &mut plans)?;
                }
                length /= 2;
            }
            for (unit, to) in self.at_borders(&repaired.device_of) {
                self.try_moves(&[(unit, to)], repaired, &mut plans)?;
            }
            if plans == 0 || repaired.makespan >= before {
                return Ok(());
            }
        }
    }

    /// Moves units if the plan still fits and its time becomes shorter.
    fn try_moves(
        &self,
        moves: &[(UnitId, DeviceId)],
        repaired: &mut Repaired,
        plans: &mut usize,
    ) -> Result<(), PlanningError> {
        if *plans == 0 {
            return Ok(());
        }
        let graph = self.problem.graph();
        let mut device_of = repaired.device_of.clone();
        for (unit, to) in moves {
            graph.members(*unit).iter().for_each(|member| device_of[member.index()] = *to);
        }
        if device_of == repaired.device_of {
            return Ok(());
        }
        *plans -= 1;
        if let Ok(makespan) = self.planned(&device_of)?
            && makespan < repaired.makespan
        {
            (repaired.device_of, repaired.makespan) = (device_of, makespan);
        }
        Ok(())
    }

    /// Units that are not on their original devices, in the order of the graph.
    fn moved(&self, start: &[DeviceId], device_of: &[DeviceId]) -> Vec<UnitId> {
        let graph = self.problem.graph();
        let first = |task: &&TaskId| graph.members(graph.unit(**task))[0] == **task;
        let away = |task: &&TaskId| start[task.index()] != device_of[task.index()];
        graph.topological().iter().filter(first).filter(away).map(|task| graph.unit(*task)).collect()
    }

    /// Units with a neighbour on another device that could run them, too.
    fn at_borders(&self, device_of: &[DeviceId]) -> Vec<(UnitId, DeviceId)> {
        let graph = self.problem.graph();
        let mut moves = Vec::new();
        for unit in graph.unit_ids().filter(|unit| self.problem.only_feasible(*unit).is_none()) {
            let members = graph.members(unit);
            let beside =
                members.iter().flat_map(|task| graph.predecessors(*task).iter().chain(graph.successors(*task)));
            let devices: BTreeSet<DeviceId> = beside.map(|task| device_of[task.index()]).collect();
            let other = |to: &DeviceId| *to != device_of[members[0].index()] && self.problem.is_feasible(unit, *to);
            moves.extend(devices.into_iter().filter(other).map(|to| (unit, to)));
        }
        moves
    }

    /// Device that is short of memory.
    fn position(&self, shortage: &MemoryShortage) -> DeviceId {
        let found = self.machine.devices.iter().position(|device| device.name == shortage.device);
        DeviceId(found.expect("a plan is short on one of its devices") as u32)
    }

    /// Predicted seconds of an assignment's plan, or its shortage.
    fn planned(&self, device_of: &[DeviceId]) -> Result<Result<f64, Box<MemoryShortage>>, PlanningError> {
        still_wanted()?;
        let rule = self.rule.rule();
        let mut schedule = simulate(self.problem, device_of, &*rule)?;
        self.placing.begin_with_inputs(&mut schedule);
        let device_of = device_of.to_vec();
        let placement = Placement { strategy: "", device_of, reasons: Vec::new(), planned: None };
        let whole = PlanOptions::default().with_streaming(StreamMode::Off).with_weights(self.weights.clone());
        match Plan::build(self.program, self.devices, &placement, &schedule, Vec::new(), self.kernels, &whole) {
            Ok(plan) => {
                let plan = forecast(self.program, plan, self.placing.costs(), self.machine)?;
                Ok(Ok(plan.predicted().makespan))
            }
            Err(PlanError::Memory(shortage)) => Ok(Err(shortage)),
            Err(error) => Err(error.into()),
        }
    }
}
