//! Selects the nodes that leave a device so that its memory suffices: those with the least lost time per freed byte.
//!
//! An item in memory is freed when all nodes that need it are gone. Each of these nodes therefore counts with its
//! share, and the last one with the whole item. Memory at positions of the order without a shortage does not count.
//! Lost time is that of the nodes and of the transfers that are added and removed, each as if nothing else ran.
//! Units free less as other units leave, so that a former price is a lower bound of the present price. Units wait in a
//! priority queue, and only the first is priced again. Prices fall only if a neighbour leaves, or a unit with a shared
//! item. If few units are concerned, they are priced again; items of many units are reconsidered when half of these
//! have left. For `n` units and `p` positions this takes about `O(n log n)`, and a pass over the positions per leaving
//! unit.

use anabranch_placement_core::graph::{DatumId, TaskId, UnitId};
use anabranch_placement_core::platform::DeviceId;
use anabranch_placement_core::problem::Problem;
use anabranch_plan::MemoryShortage;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Most units that are priced again whenever something that concerns them changes.
const FEW: usize = 8;

/// A device that is short of memory, while units leave it.
pub(super) struct Relief<'a> {
    problem: &'a Problem<'a>,
    short: DeviceId,
    device_of: Vec<DeviceId>,
    shares: Vec<Share>,
    /// Shares of each unit that may leave.
    of_unit: BTreeMap<UnitId, Vec<usize>>,
    /// Units in the order in which they would leave, each at least once.
    queue: BinaryHeap<Move>,
    /// Bytes beyond the limit, by position of the order.
    excess: Vec<i128>,
    /// Free bytes, by device.
    room: Vec<u64>,
    left: BTreeMap<UnitId, u64>,
}

/// An item in memory, and the units that keep it there.
struct Share {
    bytes: u64,
    from: usize,
    until: usize,
    units: BTreeSet<UnitId>,
    /// Number of remaining units at which they are priced again.
    priced_at: usize,
}

/// A move of a unit to another device. The greatest move has the least price.
#[derive(PartialEq)]
struct Move {
    unit: UnitId,
    to: DeviceId,
    /// Seconds lost per byte and position that is short; negative if seconds are gained.
    price: f64,
}

impl<'a> Relief<'a> {
    /// Creates the relief of the device `short` of an assignment with this plan; `limits` are indexed by device. The
    /// device's use should end `margin` bytes below its memory.
    pub(super) fn new(
        problem: &'a Problem<'a>,
        device_of: &[DeviceId],
        short: DeviceId,
        shortage: &MemoryShortage,
        limits: &[u64],
        margin: u64,
    ) -> Self {
        let graph = problem.graph();
        let mut relief = Relief {
            problem,
            short,
            device_of: device_of.to_vec(),
            shares: Vec::new(),
            of_unit: BTreeMap::new(),
            queue: BinaryHeap::new(),
            excess: Vec::new(),
            room: limits.iter().zip(&shortage.peaks).map(|(limit, peak)| limit.saturating_sub(*peak)).collect(),
            left: BTreeMap::new(),
        };
        for holding in &shortage.holdings {
            let (from, until) = (*holding.places.start() as usize, *holding.places.end() as usize);
            relief.excess.resize(relief.excess.len().max(until + 1), 0);
            relief.excess[from..=until].iter_mut().for_each(|alive| *alive += i128::from(holding.bytes));
            let units: BTreeSet<UnitId> = holding.nodes.iter().map(|node| graph.unit(TaskId(node.0))).collect();
            // If a unit that cannot leave keeps an item, the other units do not free it.
            if units.iter().all(|unit| problem.only_feasible(*unit).is_none()) {
                units.iter().for_each(|unit| relief.of_unit.entry(*unit).or_default().push(relief.shares.len()));
            }
            relief.shares.push(Share { bytes: holding.bytes, from, until, priced_at: units.len() / 2, units });
        }
        // Slots are as large as their largest value, so that the plan takes more memory than is ever alive.
        let most = relief.excess.iter().copied().max().unwrap_or(0);
        let unused = i128::from(shortage.needed) - most;
        let limit = i128::from(shortage.available.saturating_sub(margin));
        relief.excess.iter_mut().for_each(|alive| *alive += unused - limit);
        relief
    }

    /// Moves units until no shortage is expected, or no unit may leave. `barred` lists devices to which units do not
    /// go.
    pub(super) fn run(&mut self, barred: &BTreeSet<(UnitId, DeviceId)>) {
        let mut needed = Sums::of(&self.excess);
        self.queue = self.of_unit.keys().filter_map(|unit| self.priced(*unit, &needed, barred)).collect();
        while needed.all() > 0 {
            let Some(first) = self.queue.pop() else { return };
            match self.priced(first.unit, &needed, barred) {
                Some(now) if now.price <= first.price => {
                    let near = self.leave(&now);
                    needed = Sums::of(&self.excess);
                    let near = near.iter().filter_map(|unit| self.priced(*unit, &needed, barred)).collect::<Vec<_>>();
                    self.queue.extend(near);
                }
                now => self.queue.extend(now),
            }
        }
    }

    /// Returns the assignment, and the units that left with their shares of the memory, in bytes.
    pub(super) fn into_moves(self) -> (Vec<DeviceId>, BTreeMap<UnitId, u64>) {
        (self.device_of, self.left)
    }

    /// Returns the destination and price of a unit; `None` if the unit has left, or would free nothing.
    fn priced(&self, unit: UnitId, needed: &Sums, barred: &BTreeSet<(UnitId, DeviceId)>) -> Option<Move> {
        let shares = self.of_unit.get(&unit)?;
        let freed: f64 = shares.iter().map(|share| self.shares[*share].freed(needed)).sum();
        if freed <= 0.0 {
            return None;
        }
        let (stay, memory) = (self.seconds(unit, self.short), self.resident(unit));
        let open =
            |to: &DeviceId| *to != self.short && memory <= self.room[to.index()] && !barred.contains(&(unit, *to));
        let moves = self.problem.feasible(unit).filter(open).map(|to| {
            let lost = self.seconds(unit, to) - stay;
            Move { unit, to, price: if lost > 0.0 { lost / freed } else { lost * freed } }
        });
        moves.reduce(|best, other| if other.price < best.price { other } else { best })
    }

    /// Moves a unit. Returns the units whose prices may have fallen.
    fn leave(&mut self, best: &Move) -> BTreeSet<UnitId> {
        let unit = best.unit;
        for &member in self.problem.graph().members(unit) {
            self.device_of[member.index()] = best.to;
        }
        self.room[best.to.index()] -= self.resident(unit);
        let (mut held, mut near) = (0, self.neighbours(unit));
        for share in self.of_unit.remove(&unit).unwrap_or_default() {
            let share = &mut self.shares[share];
            held += share.bytes / share.units.len() as u64;
            share.units.remove(&unit);
            if share.units.is_empty() {
                self.excess[share.from..=share.until].iter_mut().for_each(|excess| *excess -= i128::from(share.bytes));
            } else if share.units.len() <= share.priced_at.max(FEW) {
                share.priced_at = share.units.len() / 2;
                near.extend(&share.units);
            }
        }
        self.left.insert(unit, held);
        near
    }

    /// Units that write what a unit reads, or read what it writes or reads, if these are few.
    fn neighbours(&self, unit: UnitId) -> BTreeSet<UnitId> {
        let graph = self.problem.graph();
        let data = graph.members(unit).iter().flat_map(|task| graph.inputs(*task).iter().chain(graph.outputs(*task)));
        let few = data.filter(|datum| graph.consumers(**datum).len() <= FEW);
        let tasks = few.flat_map(|datum| graph.consumers(*datum).iter().copied().chain([graph.producer(*datum)]));
        tasks.map(|task| graph.unit(task)).collect()
    }

    /// Bytes of a unit's constants.
    fn resident(&self, unit: UnitId) -> u64 {
        let graph = self.problem.graph();
        graph.members(unit).iter().fold(0, |sum: u64, task| sum.saturating_add(graph.task(*task).memory))
    }

    /// Seconds of a unit and of all transfers from and to it, if it is on a device.
    fn seconds(&self, unit: UnitId, device: DeviceId) -> f64 {
        let graph = self.problem.graph();
        let members = graph.members(unit);
        let data = members.iter().flat_map(|task| graph.inputs(*task).iter().chain(graph.outputs(*task)));
        let data: BTreeSet<DatumId> = data.copied().collect();
        let traffic: f64 = data.into_iter().map(|datum| self.traffic(datum, unit, device)).sum();
        self.problem.unit_time(unit, device) + traffic
    }

    /// Seconds of all transfers of a datum, if a unit is on a device.
    fn traffic(&self, datum: DatumId, unit: UnitId, device: DeviceId) -> f64 {
        let graph = self.problem.graph();
        let on = |task: TaskId| if graph.unit(task) == unit { device } else { self.device_of[task.index()] };
        let from = on(graph.producer(datum));
        let to: BTreeSet<DeviceId> = graph.consumers(datum).iter().map(|task| on(*task)).collect();
        to.into_iter().map(|to| self.problem.transfer_time(graph.bytes(datum), from, to)).sum()
    }
}

impl Share {
    /// One unit's share of the item, counted at the positions that are short.
    fn freed(&self, needed: &Sums) -> f64 {
        self.bytes as f64 / self.units.len() as f64 * needed.between(self.from, self.until)
    }
}

impl Eq for Move {}

impl Ord for Move {
    fn cmp(&self, other: &Self) -> Ordering {
        other.price.total_cmp(&self.price).then_with(|| (other.unit, other.to).cmp(&(self.unit, self.to)))
    }
}

impl PartialOrd for Move {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Prefix sums of the shortage over the positions of the order.
struct Sums(Vec<i128>);

impl Sums {
    fn of(excess: &[i128]) -> Self {
        let sums = excess.iter().scan(0, |sum, excess| {
            *sum += (*excess).max(0);
            Some(*sum)
        });
        Self(std::iter::once(0).chain(sums).collect())
    }

    /// Sum of the whole shortage.
    fn all(&self) -> i128 {
        self.0[self.0.len() - 1]
    }

    /// Sum of the shortage between two positions.
    fn between(&self, from: usize, until: usize) -> f64 {
        (self.0[until + 1] - self.0[from]) as f64
    }
}
