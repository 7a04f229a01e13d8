//! Alternative plans for a placement that does not fit, and the choice of the plan with the shortest prediction.
//!
//! Nothing moves if another order ([`Order::Frugal`]), or more or less streaming, is enough. Otherwise work moves off
//! the devices that are short: from the placement itself, and from the strategy's placements with less memory there. A
//! given assignment stays unchanged.

use super::super::blocks::PlacedProgram;
use super::super::error::PlanningError;
use super::super::fitting::Planner;
use super::super::placing::{Placed, Placing};
use super::super::planned::Planned;
use super::super::request::PlacementRequest;
use super::super::strategy::Order;
use super::{Repair, Repaired};
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::program::NodeId;
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_placement_core::problem::MemoryRule;
use anabranch_plan::{Displaced, PlanOptions, Residency, StreamMode};
use std::collections::BTreeMap;

/// Numbers of repaired assignments that get a first, short improvement; of its plans; and of assignments that are then
/// improved fully.
const LOOKED_AT: usize = 16;
const FIRST_LOOK: usize = 16;
const IMPROVED: usize = 3;

/// Most placements of one strategy within less and less memory.
const BUDGETS: usize = 4;

/// A placement that does not fit, and its request.
pub(in super::super) struct Ways<'a> {
    pub(in super::super) planner: &'a Planner<'a>,
    pub(in super::super) placing: &'a Placing<'a>,
    pub(in super::super) request: &'a PlacementRequest,
    pub(in super::super) options: &'a PlanOptions,
}

/// The strategy's own placement, and the bytes that each node held on the device that is short.
struct Own {
    placed: Placed,
    held: BTreeMap<NodeId, u64>,
}

/// A repaired assignment, its origin, the order in which devices run it, and the weights that stay on GPUs.
struct Candidate<'p> {
    start: &'p Placed,
    rule: Order,
    weights: Residency,
    repaired: Repaired,
}

impl Ways<'_> {
    /// Returns the fitting plan with the shortest prediction; `None` if none fits.
    ///
    /// # Errors
    /// If there is no placement, or no plan for another reason than memory.
    pub(in super::super) fn least(&self) -> Result<Option<Planned>, PlanningError> {
        let placed = self.placing.place_roomy(self.request, &self.room())?;
        if !self.is_open() {
            let mut best = None;
            for streaming in self.streamings().skip(1) {
                let options = self.options.clone().with_streaming(streaming);
                let fitted = |planned| Planned { repaired: true, ..planned };
                self.offer(self.whole(placed.clone()), self.request, &options, &fitted, &mut best)?;
            }
            return Ok(best);
        }
        self.with_repair(|repair| self.least_of(repair, placed))
    }

    /// Plans the placement as if GPUs had memory for all weights.
    ///
    /// Stages as many weights as necessary, or stages all weights and moves as many nodes as necessary; `None` if
    /// neither fits.
    ///
    /// # Errors
    /// As [`Self::least`].
    pub(in super::super) fn staged(&self) -> Result<Option<Planned>, PlanningError> {
        if !self.is_open() {
            return Ok(None);
        }
        let placed = self.placing.place_roomy(self.request, &self.planner.machine.room(&Residency::Staged))?;
        let device_of = placed.placement.device_of.clone();
        let own = Own { placed, held: BTreeMap::new() };
        let gpus = (0..).map(DeviceId).zip(&self.planner.machine.devices);
        let gpus = gpus.filter(|(_, device)| device.kind == DeviceKind::Gpu);
        let none = Residency::Within(gpus.map(|(device, _)| (device, 0)).collect());
        self.with_repair(|repair| {
            let mut best = None;
            for rule in self.rules() {
                let repair = repair(rule);
                if let Some(weights) = repair.staged(&device_of)? {
                    self.offer_all(&own, &Candidate::unmoved(&own.placed, rule, weights), &mut best)?;
                } else if self.request.placer.name() != "fixed"
                    && let Some(repaired) = repair.with_weights(none.clone()).repaired(&device_of)?
                {
                    let candidate = Candidate { start: &own.placed, rule, weights: none.clone(), repaired };
                    self.offer_all(&own, &candidate, &mut best)?;
                }
            }
            Ok(best)
        })
    }

    /// Whether neither an order nor blocks are given.
    fn is_open(&self) -> bool {
        self.request.order.is_none() && self.request.is_open()
    }

    /// Passes a function that plans the program in any order, whether or not it fits.
    fn with_repair<T>(
        &self,
        look: impl for<'p> FnOnce(&dyn Fn(Order) -> Repair<'p>) -> Result<T, PlanningError>,
    ) -> Result<T, PlanningError> {
        let Planner { lowered, machine, .. } = self.planner;
        let (kernels, devices) = (lowered.kernels(&lowered.program), machine.plan_devices());
        let (program, placing) = (&*lowered.program, self.placing);
        let platform = placing.platform(&vec![u64::MAX; devices.len()])?;
        placing.with_problem(&platform, MemoryRule::Ignore, |problem| {
            look(&|rule| {
                let (devices, kernels, weights) = (&devices[..], &kernels, self.options.weights.clone());
                Repair { program, machine, devices, placing, problem, kernels, rule, weights }
            })
        })?
    }

    /// Does the work of [`Self::least`] for a placement that may be changed.
    fn least_of<'p>(
        &self,
        repair: &dyn Fn(Order) -> Repair<'p>,
        placed: Placed,
    ) -> Result<Option<Planned>, PlanningError> {
        let mut best = None;
        let own = Own::of(&repair(self.request.rule), placed)?;
        self.offer_unmoved(&own, &own.placed, &mut best)?;
        if self.request.placer.name() == "fixed" {
            return Ok(best);
        }
        let starts = self.starts(&repair(self.request.rule), &own)?;
        for candidate in self.repaired(repair, &starts)? {
            self.offer_all(&own, &candidate, &mut best)?;
        }
        // If the plan fits only with streaming, moving nodes does not help.
        if best.is_none() {
            starts.iter().skip(1).try_for_each(|start| self.offer_unmoved(&own, start, &mut best))?;
        }
        Ok(best)
    }

    /// Plans a placement in every order, with more and with less streaming.
    fn offer_unmoved(&self, own: &Own, start: &Placed, best: &mut Option<Planned>) -> Result<(), PlanningError> {
        self.rules().try_for_each(|rule| self.offer_all(own, &Candidate::unmoved(start, rule, self.weights()), best))
    }

    fn room(&self) -> Vec<u64> {
        self.planner.machine.room(&self.options.weights)
    }

    fn weights(&self) -> Residency {
        self.options.weights.clone()
    }

    /// Modes of streaming, the requested mode first.
    fn streamings(&self) -> impl Iterator<Item = StreamMode> + use<> {
        let others: &[StreamMode] = match self.options.streaming {
            StreamMode::Auto => &[StreamMode::Auto, StreamMode::Off, StreamMode::Always],
            StreamMode::Always => &[StreamMode::Always, StreamMode::Off],
            StreamMode::Off => &[StreamMode::Off],
        };
        others.iter().copied()
    }

    /// Rules for the order of ready nodes: the requested rule, and the rule of least memory.
    fn rules(&self) -> impl Iterator<Item = Order> + use<> {
        let frugal = Some(Order::Frugal).filter(|rule| *rule != self.request.rule);
        [self.request.rule].into_iter().chain(frugal)
    }

    /// Returns the placement and, as long as its plan does not fit, the strategy's placements with less and less memory
    /// on the device that is short.
    fn starts(&self, repair: &Repair<'_>, own: &Own) -> Result<Vec<Placed>, PlanningError> {
        let (mut starts, mut placed): (Vec<Placed>, _) = (Vec::new(), own.placed.clone());
        let mut budgets = self.room();
        for _ in 0..BUDGETS {
            if !starts.iter().any(|known| known.placement.device_of == placed.placement.device_of) {
                starts.push(placed.clone());
            }
            let Err(shortage) = repair.planned(&placed.placement.device_of)? else { break };
            let short = repair.position(&shortage).index();
            let resident = placed.resident(short).min(budgets[short]);
            budgets[short] = resident.saturating_sub(shortage.needed - shortage.available);
            let Ok(next) = self.placing.place(self.request, &budgets) else { break };
            placed = next;
        }
        Ok(starts)
    }

    /// Returns the best assignments that fit after moves of units.
    fn repaired<'a, 'p>(
        &self,
        repair: &dyn Fn(Order) -> Repair<'p>,
        starts: &'a [Placed],
    ) -> Result<Vec<Candidate<'a>>, PlanningError> {
        let mut candidates: Vec<Candidate<'_>> = Vec::new();
        for start in starts {
            for rule in self.rules() {
                let repaired = repair(rule).repaired(&start.placement.device_of)?;
                let weights = self.weights();
                candidates.extend(repaired.map(|repaired| Candidate { start, rule, weights, repaired }));
            }
        }
        for (kept, plans) in [(LOOKED_AT, FIRST_LOOK), (IMPROVED, usize::MAX)] {
            candidates.sort_by(|one, other| one.repaired.makespan.total_cmp(&other.repaired.makespan));
            candidates.dedup_by(|one, other| one.is_like(other));
            candidates.truncate(kept);
            for Candidate { start, rule, repaired, .. } in &mut candidates {
                let repair = repair(*rule);
                repair.improve(&start.placement.device_of, repaired, plans.min(repair.improvements()))?;
            }
        }
        Ok(candidates)
    }

    /// Plans an assignment with more and with less streaming.
    fn offer_all(&self, own: &Own, candidate: &Candidate<'_>, best: &mut Option<Planned>) -> Result<(), PlanningError> {
        let Candidate { start, rule, weights, repaired } = candidate;
        let nodes = self.planner.lowered.program.nodes.len();
        let fixed = PlacementRequest::fixed(repaired.device_of[..nodes].to_vec(), *rule);
        let mut placed = self.placing.place_roomy(&fixed, &self.room())?;
        placed.placement.strategy = self.request.placer.name();
        let tasks = repaired.device_of.iter().zip(&start.placement.device_of);
        for (task, _) in tasks.enumerate().filter(|(_, (now, before))| now == before) {
            placed.placement.reasons[task] = start.placement.reasons[task].clone();
        }
        // Staged weights alone do not count as a change.
        let moved = repaired.device_of != start.placement.device_of || *rule != self.request.rule;
        let changed = moved || *weights == self.options.weights;
        let moves = self.moved(own, repaired);
        let displaced = self.displaced(own, &moves);
        let told = |planned| Planned { repaired: changed, displaced: displaced.clone(), ..planned };
        for streaming in self.streamings() {
            let mut whole = self.whole(placed.clone());
            for (node, reason) in &moves {
                whole.reasons[node.index()].clone_from(reason);
            }
            let options = self.options.clone().with_streaming(streaming).with_weights(weights.clone());
            self.offer(whole, &fixed, &options, &told, best)?;
        }
        Ok(())
    }

    /// Keeps a plan if it fits and is predicted to be shorter than the best; `told` records how it was changed.
    fn offer(
        &self,
        whole: PlacedProgram,
        request: &PlacementRequest,
        options: &PlanOptions,
        told: &dyn Fn(Planned) -> Planned,
        best: &mut Option<Planned>,
    ) -> Result<(), PlanningError> {
        let makespan = |planned: &Planned| planned.plan().predicted().makespan;
        let planned = self.planner.planned(whole, request, options);
        match planned.map(told) {
            Ok(planned) if best.as_ref().is_none_or(|best| makespan(&planned) < makespan(best)) => {
                *best = Some(planned)
            }
            Err(error) if error.kind() != ErrorKind::Memory => return Err(error),
            _ => {}
        }
        Ok(())
    }

    fn whole(&self, placed: Placed) -> PlacedProgram {
        let program = &self.planner.lowered.program;
        PlacedProgram::whole(program, placed)
    }

    /// Reasons of nodes that are on other devices than the strategy chose.
    fn moved(&self, own: &Own, repaired: &Repaired) -> BTreeMap<NodeId, String> {
        let (graph, strategy) = (self.placing.tasks().graph(), own.placed.placement.strategy);
        let ids = self.planner.lowered.program.node_ids();
        let moved = ids.filter_map(|node| {
            let before = own.placed.placement.device_of[node.index()];
            if repaired.device_of[node.index()] == before {
                return None;
            }
            let from = &self.planner.machine.devices[before.index()].name;
            let held = repaired.held.get(&graph.unit(TaskId(node.0))).or(own.held.get(&node));
            let why = held.map_or("beside nodes that were moved because memory is short".into(), |bytes| {
                format!("because memory is short there: it held {bytes} bytes")
            });
            Some((node, format!("moved from {from}, where {strategy} had it, {why}")))
        });
        moved.collect()
    }

    /// Counts nodes that were moved, by the device that they left.
    fn displaced(&self, own: &Own, moves: &BTreeMap<NodeId, String>) -> Vec<Displaced> {
        let from = |node: &NodeId| own.placed.placement.device_of[node.index()].index();
        let devices = self.planner.machine.devices.iter().enumerate();
        let counted = devices.map(|(at, device)| {
            let nodes = moves.keys().filter(|node| from(node) == at).count();
            Displaced { device: device.name.clone(), nodes }
        });
        counted.filter(|displaced| displaced.nodes > 0).collect()
    }
}

impl Own {
    fn of(repair: &Repair<'_>, placed: Placed) -> Result<Self, PlanningError> {
        let mut held = BTreeMap::new();
        if let Err(shortage) = repair.planned(&placed.placement.device_of)? {
            for holding in &shortage.holdings {
                let share = holding.bytes / holding.nodes.len().max(1) as u64;
                holding.nodes.iter().for_each(|node| *held.entry(*node).or_default() += share);
            }
        }
        Ok(Self { placed, held })
    }
}

impl<'p> Candidate<'p> {
    fn unmoved(start: &'p Placed, rule: Order, weights: Residency) -> Self {
        let device_of = start.placement.device_of.clone();
        let repaired = Repaired { device_of, held: BTreeMap::new(), makespan: f64::INFINITY };
        Self { start, rule, weights, repaired }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.rule == other.rule && self.repaired.device_of == other.repaired.device_of
    }
}
