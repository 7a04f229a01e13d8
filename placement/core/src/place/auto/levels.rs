//! Placement of a large graph by levels: the graph is contracted several times, the smallest graph is placed, and each
//! larger graph refines the placement of the one before (multilevel scheme, Hendrickson and Leland 1995).
//!
//! On a small graph an evaluation costs little, and one move takes many tasks along. So the search finds there what it
//! cannot reach on the whole graph within its evaluations.
//!
//! *Contraction*: a matching of edges, the longest mean transfer first (heavy edges, Karypis and Kumar 1998). Both ends
//! become one task with the sums of their times and demands. The graph must stay acyclic (as in Herrmann et
//! al. 2017). So an edge `u → v` is taken only if no other path leads from `u` to `v` after the contractions so far:
//!
//! * `u` has no other successor, or `v` no other predecessor. Then there is never another path;
//! * or the level of `v`, its distance from the sources, is that of `u` plus 1. Then a search looks for a path. On its
//!   way through the pairs so far levels never fall, so it does not leave the levels of `u` and `v`.
//!
//! Ends have the same feasible devices, no colocated tasks, and together little work and memory.
//!
//! *Complexity*: `O(E log E)` for one contraction, as each search for a path has a limit. Each contraction removes at
//! least a tenth of the tasks. Each level costs a fixed part of the evaluations of the whole graph.

use super::portfolio::portfolio;
use super::search::Search;
use super::{cost, explored};
use crate::cost::CostModel;
use crate::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use crate::place::PlaceError;
use crate::platform::DeviceId;
use crate::problem::{MemoryRule, Problem};
use crate::random::Random;

/// Tasks above which a graph is worth contraction, and above which a contracted graph is contracted further.
const LARGE: usize = 500;
const SMALL: usize = 300;
/// Most contractions, and the part of all tasks that each has to remove.
const CONTRACTIONS: usize = 12;
const PART: usize = 10;
/// Parts of the mean work and of the memory of a device that a pair has at most, as divisors.
const WORK: f64 = 20.0;
const MEMORY: u128 = 8;
/// Most tasks that the search for a path visits, and that wait for it.
const VISITS: usize = 200;
/// Cost of the evaluations of the smallest graph and of each larger one, as a part of that of the whole search.
const FIRST: f64 = 0.25;
const LATER: f64 = 0.125;
/// Most evaluations of one level.
const EVALUATIONS: std::ops::RangeInclusive<u64> = 10..=10_000;

/// Limits of a search by levels.
pub(super) struct Levels<'o> {
    pub(super) seed: u64,
    /// Evaluations of the whole graph that the search may cost, as tasks, edges and devices.
    pub(super) cost: u64,
    pub(super) over: &'o dyn Fn() -> bool,
}

impl Levels<'_> {
    /// Returns the device of each task; `None` if the graph is small, cannot be contracted, or has no placement.
    pub(super) fn place(&self, problem: &Problem<'_>) -> Result<Option<Vec<DeviceId>>, PlaceError> {
        let graph = problem.graph();
        if graph.task_count() <= LARGE {
            return Ok(None);
        }
        let work: f64 = graph.task_ids().map(|task| problem.work(task)).sum();
        let most_work = work / problem.platform().device_count() as f64 / WORK;
        match Contraction::of(problem, most_work) {
            Some(contraction) => self.refine(problem, contraction, most_work, CONTRACTIONS - 1),
            None => Ok(None),
        }
    }

    /// Places the contracted graph, and improves its placement on `problem`.
    fn refine(
        &self,
        problem: &Problem<'_>,
        contraction: Contraction<'_>,
        most_work: f64,
        left: usize,
    ) -> Result<Option<Vec<DeviceId>>, PlaceError> {
        let Contraction { graph, sums, cluster_of } = contraction;
        let coarse = Problem::new(&graph, problem.platform(), &sums, MemoryRule::Resident);
        let Some(coarse) = coarse.and_then(|coarse| coarse.under(problem.rules().clone())).ok() else {
            return Ok(None);
        };
        let further = left > 0 && graph.task_count() > SMALL;
        let placed = match further.then(|| Contraction::of(&coarse, most_work)).flatten() {
            Some(contraction) => self.refine(&coarse, contraction, most_work, left - 1)?,
            None => match portfolio(&coarse) {
                Err(PlaceError::Interrupted) => return Err(PlaceError::Interrupted),
                Err(_) => None,
                Ok(entries) => Some(self.improve(&coarse, &entries[0].placement.device_of, FIRST)?),
            },
        };
        let Some(placed) = placed else { return Ok(None) };
        let start: Vec<DeviceId> = cluster_of.iter().map(|&cluster| placed[cluster.index()]).collect();
        self.improve(problem, &start, LATER).map(Some)
    }

    fn improve(&self, problem: &Problem<'_>, start: &[DeviceId], part: f64) -> Result<Vec<DeviceId>, PlaceError> {
        let mut search = Search::new(problem, start, Random::stream(self.seed, 2));
        let evaluations = (self.cost as f64 * part) as u64 / cost(problem);
        let evaluations = evaluations.clamp(*EVALUATIONS.start(), *EVALUATIONS.end());
        explored(&mut search, evaluations, 0.0, self.over, |_, _| {})?;
        Ok(search.best().to_vec())
    }
}

/// Graph of clusters of one or two tasks.
struct Contraction<'p> {
    graph: TaskGraph,
    sums: Sums<'p>,
    /// Cluster of each task.
    cluster_of: Vec<TaskId>,
}

/// Costs of clusters: sums over their members.
struct Sums<'p> {
    problem: &'p Problem<'p>,
    members: Vec<Vec<TaskId>>,
}

impl CostModel for Sums<'_> {
    fn task_time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        let (problem, members) = (self.problem, &self.members[task.index()]);
        let runs = members.iter().all(|&member| problem.is_feasible(problem.graph().unit(member), device));
        runs.then(|| members.iter().map(|&member| problem.time(member, device)).sum())
    }

    fn transfer_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64 {
        self.problem.costs().transfer_time(bytes, from, to)
    }
}

impl<'p> Contraction<'p> {
    /// Contracts a matching; `None` if it removes too few tasks.
    fn of(problem: &'p Problem<'p>, most_work: f64) -> Option<Self> {
        let graph = problem.graph();
        let mate = Matching::of(problem, most_work).mate;
        let pairs = mate.iter().flatten().count() / 2;
        if pairs * PART < graph.task_count() {
            return None;
        }
        let mut cluster_of = vec![None; graph.task_count()];
        let mut members: Vec<Vec<TaskId>> = Vec::new();
        for &task in graph.topological() {
            if cluster_of[task.index()].is_none() {
                let cluster: Vec<TaskId> = std::iter::once(task).chain(mate[task.index()]).collect();
                cluster.iter().for_each(|member| cluster_of[member.index()] = Some(TaskId(members.len() as u32)));
                members.push(cluster);
            }
        }
        let cluster_of: Vec<TaskId> = cluster_of.into_iter().flatten().collect();
        let graph = contracted(problem, &members, &cluster_of)?;
        Some(Contraction { graph, sums: Sums { problem, members }, cluster_of })
    }
}

/// Builds the graph of the clusters. A datum that stays in its cluster is left out.
fn contracted(problem: &Problem<'_>, members: &[Vec<TaskId>], cluster_of: &[TaskId]) -> Option<TaskGraph> {
    let graph = problem.graph();
    let mut builder = GraphBuilder::new();
    for cluster in members {
        // The first member of a unit stands for its demand.
        let first = |member: &&TaskId| graph.members(graph.unit(**member))[0] == **member;
        let demands = cluster.iter().filter(first).map(|&member| problem.demand(graph.unit(member)));
        let demand = demands.fold(0, u64::saturating_add);
        let operations = cluster.iter().map(|&member| graph.task(member).operations).sum();
        let name = graph.task(cluster[0]).name.clone();
        builder.task(Task::new(name).with_memory(demand).with_operations(operations));
    }
    for datum in graph.datum_ids() {
        let producer = cluster_of[graph.producer(datum).index()];
        let consumers = graph.consumers(datum).iter().map(|consumer| cluster_of[consumer.index()]);
        let mut consumers: Vec<TaskId> = consumers.filter(|&consumer| consumer != producer).collect();
        consumers.sort_unstable();
        consumers.dedup();
        if !consumers.is_empty() {
            let datum = builder.datum(producer, graph.bytes(datum));
            consumers.into_iter().for_each(|consumer| builder.consume(datum, consumer));
        }
    }
    for pair in graph.unit_ids().flat_map(|unit| graph.members(unit).windows(2)) {
        builder.colocate(cluster_of[pair[0].index()], cluster_of[pair[1].index()]);
    }
    builder.build().ok()
}

/// Edges that can be contracted together.
struct Matching<'p> {
    problem: &'p Problem<'p>,
    level: Vec<usize>,
    /// Other end of the edge of each task.
    mate: Vec<Option<TaskId>>,
    /// Last search that visited each task.
    visited: Vec<usize>,
}

impl<'p> Matching<'p> {
    fn of(problem: &'p Problem<'p>, most_work: f64) -> Self {
        let graph = problem.graph();
        let mut level = vec![0; graph.task_count()];
        for &task in graph.topological() {
            for &next in graph.successors(task) {
                level[next.index()] = level[next.index()].max(level[task.index()] + 1);
            }
        }
        let (mate, visited) = (vec![None; level.len()], vec![0; level.len()]);
        let mut matching = Matching { problem, level, mate, visited };
        let mut edges: Vec<(f64, TaskId, TaskId)> = Vec::new();
        for datum in graph.datum_ids() {
            let time = problem.mean_transfer_time(graph.bytes(datum));
            edges.extend(graph.consumers(datum).iter().map(|&consumer| (time, graph.producer(datum), consumer)));
        }
        edges.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
        for (number, (_, from, to)) in edges.into_iter().enumerate() {
            if matching.fit(from, to, most_work) && matching.is_only_path(from, to, number + 1) {
                matching.mate[from.index()] = Some(to);
                matching.mate[to.index()] = Some(from);
            }
        }
        matching
    }

    /// Whether the ends of an edge are free, and may be one task.
    fn fit(&self, from: TaskId, to: TaskId, most_work: f64) -> bool {
        let (problem, graph) = (self.problem, self.problem.graph());
        let units = [graph.unit(from), graph.unit(to)];
        let demand: u128 = units.iter().map(|&unit| u128::from(problem.demand(unit))).sum();
        let holds = |device| {
            problem.platform().device(device).memory.is_none_or(|memory| demand * MEMORY <= u128::from(memory))
        };
        self.mate[from.index()].is_none()
            && self.mate[to.index()].is_none()
            && problem.work(from) + problem.work(to) <= most_work
            && units.iter().all(|&unit| graph.members(unit).len() == 1)
            && problem.feasible(units[0]).eq(problem.feasible(units[1]))
            && problem.feasible(units[0]).all(holds)
    }

    /// Whether an edge is known to be the only path between its ends after the contractions so far.
    fn is_only_path(&mut self, from: TaskId, to: TaskId, search: usize) -> bool {
        let graph = self.problem.graph();
        if graph.successors(from).len() == 1 || graph.predecessors(to).len() == 1 {
            return true;
        }
        if self.level[to.index()] != self.level[from.index()] + 1 {
            return false;
        }
        if graph.successors(from).len() > VISITS {
            return false;
        }
        let mut open: Vec<TaskId> = graph.successors(from).iter().copied().filter(|&next| next != to).collect();
        let mut visits = 0;
        while let Some(task) = open.pop() {
            if self.level[task.index()] > self.level[to.index()] || self.visited[task.index()] == search {
                continue;
            }
            self.visited[task.index()] = search;
            visits += 1;
            if task == to || visits > VISITS {
                return false;
            }
            for next in std::iter::once(task).chain(self.mate[task.index()]) {
                if open.len() + graph.successors(next).len() > VISITS {
                    return false;
                }
                open.extend_from_slice(graph.successors(next));
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check_placement;
    use crate::loaded::LoadedProblem;
    use crate::platform::{Device, DeviceKind};
    use crate::sample;
    use arbtest::arbitrary::{Result, Unstructured};

    /// A random graph of up to `most` tasks with groups, on devices with and without a limit of memory.
    fn problem(random: &mut Unstructured<'_>, most: u32) -> Result<LoadedProblem> {
        let mut builder = sample::tasks(&[]);
        let count = random.int_in_range(2..=most)?;
        for _ in 0..count {
            let work = f64::from(random.int_in_range(0..=9u8)?);
            builder.task(Task::new("t").with_operations(work).with_memory(random.int_in_range(0..=3)?));
        }
        for consumer in 1..count {
            for _ in 0..random.int_in_range(0..=3u8)? {
                let producer = consumer - random.int_in_range(1..=consumer.min(6))?;
                builder.edge(TaskId(producer), TaskId(consumer), random.int_in_range(0..=40)?);
            }
            if random.ratio(1, 12)? {
                builder.colocate(TaskId(consumer - 1), TaskId(consumer));
            }
        }
        let limited = Device::new("limited", DeviceKind::Gpu).with_memory(u64::from(count));
        let devices = [Device::new("host", DeviceKind::Cpu), limited];
        Ok(sample::on(builder.build().unwrap(), devices, MemoryRule::Resident))
    }

    /// Every contraction is acyclic, and its clusters have the sums of their members.
    #[test]
    fn contractions_are_acyclic_and_keep_sums() {
        let mut contractions = 0;
        arbtest::arbtest(|random| {
            let loaded = problem(random, 40)?;
            let Ok(problem) = loaded.problem() else { return Ok(()) };
            let members = |mate: Option<TaskId>, task: TaskId| std::iter::once(task).chain(mate);
            let mate = Matching::of(&problem, 1e9).mate;
            for task in problem.graph().task_ids() {
                assert!(
                    members(mate[task.index()], task)
                        .all(|member| member == task || mate[member.index()] == Some(task))
                );
            }
            if mate.iter().flatten().count() / 2 * PART < problem.graph().task_count() {
                return Ok(());
            }
            let contraction = Contraction::of(&problem, 1e9).expect("a graph that is contracted has no cycle");
            let graph = &contraction.graph;
            let coarse = Problem::new(graph, problem.platform(), &contraction.sums, MemoryRule::Resident).unwrap();
            for device in problem.platform().device_ids() {
                let sum = |problem: &Problem<'_>| -> f64 {
                    let graph = problem.graph();
                    let runs = graph.task_ids().filter(|&task| problem.is_feasible(graph.unit(task), device));
                    runs.map(|task| problem.time(task, device)).sum()
                };
                assert!((sum(&problem) - sum(&coarse)).abs() < 1e-9);
            }
            let demand =
                |problem: &Problem<'_>| problem.graph().unit_ids().map(|unit| problem.demand(unit)).sum::<u64>();
            assert_eq!(demand(&problem), demand(&coarse));
            contractions += 1;
            Ok(())
        })
        .budget_ms(500);
        assert!(contractions > 0);
    }

    #[test]
    fn a_placement_by_levels_keeps_all_constraints() {
        let mut placed = 0;
        arbtest::arbtest(|random| {
            let loaded = problem(random, 40)?;
            let Ok(problem) = loaded.problem() else { return Ok(()) };
            let levels = Levels { seed: 0, cost: 20 * cost(&problem), over: &|| false };
            let Some(contraction) = Contraction::of(&problem, 1e9) else { return Ok(()) };
            if let Some(device_of) = levels.refine(&problem, contraction, 1e9, 3).unwrap() {
                assert_eq!(check_placement(&problem, &device_of), []);
                placed += 1;
            }
            Ok(())
        })
        .budget_ms(500);
        assert!(placed > 0);
    }

    /// In this graph 0 → 3 and 1 → 2 could each be contracted alone, but not both: 0 → 2 and 1 → 3 would be a cycle.
    #[test]
    fn two_edges_that_would_make_a_cycle_are_not_both_taken() {
        let edges = [(0, 3, 90), (1, 2, 80), (0, 2, 10), (1, 3, 10)];
        let loaded = sample::problem(sample::graph(&[1.0; 4], &edges), &[1.0; 2]);
        let mate = Matching::of(&loaded.problem().unwrap(), 1e9).mate;
        assert_eq!(mate, [Some(TaskId(3)), None, None, Some(TaskId(0))]);
    }
}
