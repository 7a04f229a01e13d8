//! If connected tasks fit on no single device, some datum must be sent.
//!
//! Take a connected set of tasks. Suppose that no device is feasible for all their units and has memory for all of them
//! in addition to the units that can be nowhere else. Then the tasks are on at least two devices, and some edge between
//! them has its ends on different devices. Let it be the edge of a datum of `p` to `c`, with `p` on `d` and `c` on `e`.
//! Then the makespan is at least the sum of three times: the head and time of `p` on `d`, the transfer from `d` to `e`,
//! and the time and tail of `c` on `e`. The edge is unknown, so the bound is the least value over all edges and all
//! pairs of different devices.

use super::Paths;
use crate::graph::{DatumId, TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::union_find::UnionFind;

/// Returns the greatest bound over all pieces of the graph; 0 if each fits on a device. At worst `O(V × devices + E ×
/// devices²)`.
pub(super) fn bound(problem: &Problem<'_>, paths: &Paths) -> f64 {
    let graph = problem.graph();
    let pieces = pieces(problem);
    let mut least = vec![f64::INFINITY; graph.unit_count()];
    let torn = torn_pieces(problem, &pieces);
    for datum in graph.datum_ids() {
        let producer = graph.producer(datum);
        let piece = pieces[graph.unit(producer).index()];
        for &consumer in graph.consumers(datum).iter().filter(|_| torn[piece.index()]) {
            if graph.unit(consumer) != graph.unit(producer) {
                let least = &mut least[piece.index()];
                *least = crossing(problem, paths, datum, consumer, *least);
            }
        }
    }
    least.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// Returns the least makespan with `datum` sent to `consumer`, or `known` if that is less.
fn crossing(problem: &Problem<'_>, paths: &Paths, datum: DatumId, consumer: TaskId, known: f64) -> f64 {
    let graph = problem.graph();
    let (producer, bytes) = (graph.producer(datum), graph.bytes(datum));
    let rest = |device| problem.time(consumer, device) + paths.tail(consumer, device);
    let targets: Vec<(DeviceId, f64)> =
        problem.feasible(graph.unit(consumer)).map(|device| (device, rest(device))).collect();
    let nearest = targets.iter().map(|&(_, rest)| rest).fold(f64::INFINITY, f64::min);
    let mut best = known;
    for from in problem.feasible(graph.unit(producer)) {
        let head = paths.start(producer, from) + problem.time(producer, from);
        if head + nearest >= best {
            continue;
        }
        for &(to, rest) in targets.iter().filter(|&&(to, _)| to != from) {
            best = best.min(head + problem.transfer_time(bytes, from, to) + rest);
        }
    }
    best
}

/// Whether no device can hold all of a piece, indexed by the root of the piece.
fn torn_pieces(problem: &Problem<'_>, pieces: &[UnitId]) -> Vec<bool> {
    let (graph, devices) = (problem.graph(), problem.platform().device_count());
    let mut members: Vec<Vec<UnitId>> = vec![Vec::new(); graph.unit_count()];
    for unit in graph.unit_ids() {
        members[pieces[unit.index()].index()].push(unit);
    }
    let mut settled = vec![0u128; devices];
    for unit in graph.unit_ids() {
        if let Some(device) = problem.only_feasible(unit) {
            settled[device.index()] += u128::from(problem.demand(unit));
        }
    }
    let takes = |units: &[UnitId], device: DeviceId| {
        // Units that can be nowhere else are on their device anyway; only the rest of the piece is added.
        let free = |unit: &&UnitId| problem.only_feasible(**unit).is_none();
        let coming: u128 = units.iter().filter(free).map(|&unit| u128::from(problem.demand(unit))).sum();
        let memory = problem.platform().device(device).memory;
        memory.is_none_or(|memory| coming + settled[device.index()] <= u128::from(memory))
            && units.iter().all(|&unit| problem.is_feasible(unit, device))
    };
    let torn =
        |units: &Vec<UnitId>| units.len() > 1 && !problem.platform().device_ids().any(|device| takes(units, device));
    members.iter().map(torn).collect()
}

/// Returns the piece of each unit. A piece is a connected component of units; its number is its first unit.
fn pieces(problem: &Problem<'_>) -> Vec<UnitId> {
    let graph = problem.graph();
    let mut joined = UnionFind::new(graph.unit_count());
    for datum in graph.datum_ids() {
        for &consumer in graph.consumers(datum) {
            joined.join(graph.unit(graph.producer(datum)).index(), graph.unit(consumer).index());
        }
    }
    graph.unit_ids().map(|unit| UnitId(joined.root(unit.index()) as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task, TaskGraph};
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// A chain of four tasks of 6 bytes with time 1 and transfers of 30, 20 and 40; and an isolated task.
    fn chain() -> TaskGraph {
        let mut builder = GraphBuilder::new();
        let tasks = [(); 5].map(|()| builder.task(Task::new("t").with_memory(6).with_operations(1.0)));
        for (pair, bytes) in tasks[..4].windows(2).zip([300, 200, 400]) {
            builder.edge(pair[0], pair[1], bytes);
        }
        builder.build().unwrap()
    }

    fn bound_with(memory: [u64; 2]) -> f64 {
        let devices = memory.map(|memory| Device::new("d", DeviceKind::Cpu).with_memory(memory));
        let loaded = sample::on(chain(), devices, MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        bound(&problem, &Paths::new(&problem))
    }

    #[test]
    fn a_chain_that_does_not_fit_is_cut_where_it_costs_least() {
        assert_eq!(bound_with([24, 6]), 0.0, "all four fit on the first");
        assert_eq!(bound_with([23, 12]), 24.0, "one of them does not: the transfer of 20, and four tasks");
    }

    #[test]
    fn what_must_be_apart_sends() {
        let mut builder = GraphBuilder::new();
        let [a, b] = [0, 1].map(|device| builder.task(Task::new("t").with_operations(1.0).with_pin(DeviceId(device))));
        builder.edge(a, b, 55);
        let loaded = sample::problem(builder.build().unwrap(), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        assert_eq!(bound(&problem, &Paths::new(&problem)), 1.0 + 5.5 + 1.0);
    }
}
