//! Cut of a task graph into a chain of stages: an order of the tasks with few live bytes, cut where few bytes pass.
//!
//! Forks and joins need no special case. Every datum that is made before a cut and used after it passes the cut, so a
//! parallel branch is handed through the stages between. The order always takes the ready task after which the fewest
//! bytes are live. Of equals it takes the task that could run last, so that a branch is followed to its end.
//!
//! The number of cuts is then reduced to the number of stages. First the work is divided into many equal parts, and the
//! position with the fewest bytes is kept in each part. Then positions are removed one by one, first the positions that
//! separate the least work and that many bytes pass. A position stays if no processor can run both sides of it.
//!
//! A value may be carried from each input to the next ([`Carried`]). It stays in one stage, so that no position between
//! its first reader and its maker is cut.

use super::stages::{Stage, StageKind, Stages};
use crate::graph::{DatumId, TaskGraph, TaskId};
use crate::total::Total;

/// Options of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutOptions {
    /// Most stages, unless tasks that need different processors force more.
    pub stages: usize,
    /// Bytes of one input of the chain.
    pub input: u64,
    /// Bytes of one result.
    pub output: u64,
}

/// A value that a task makes for one input, and that tasks read for the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Carried {
    /// Tasks that read it.
    pub readers: Vec<TaskId>,
    /// Task that makes it; `None` if it is there before all tasks.
    pub maker: Option<TaskId>,
}

impl Carried {
    /// Returns the first and the last position, or stage, that must not be parted. The value may come from before its
    /// readers. `None` if nothing reads it.
    pub fn span(&self, position: impl Fn(TaskId) -> usize) -> Option<(usize, usize)> {
        let readers = || self.readers.iter().map(|task| position(*task));
        let last = readers().chain(self.maker.map(&position)).max();
        readers().min().zip(last)
    }
}

/// Chain of stages made of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// All tasks, in an order that respects their dependencies.
    pub order: Vec<TaskId>,
    /// Position in the order at which each stage begins; the last entry is the number of tasks.
    pub starts: Vec<usize>,
    /// The stages: those that carry a value are monolithic, the others replicable. Their weights are their tasks'
    /// memory, their activations the most bytes that are live while they run.
    pub stages: Stages,
}

/// Number of ready tasks that the order chooses from: the latest ones.
const CHOICE: usize = 64;
/// Parts of the work per wanted stage.
const PARTS: usize = 16;

/// Cuts a graph into stages.
///
/// `seconds` is the time of a task on each of `processors` processors; `None` if the task cannot run there. A task that
/// runs nowhere makes a stage that [`Problem::new`](super::Problem::new) rejects. `O(tasks × (processors + degree +
/// carried) + stages²)`.
pub fn cut(
    graph: &TaskGraph,
    processors: usize,
    seconds: impl Fn(TaskId, usize) -> Option<f64>,
    carried: &[Carried],
    options: CutOptions,
) -> Cut {
    let order = frugal_order(graph);
    let order = if carried.is_empty() { order } else { deferred(graph, &order) };
    let mut position = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, task)| position[task.index()] = at);
    let spans: Vec<_> = carried.iter().filter_map(|value| value.span(|task| position[task.index()])).collect();
    let is_open = |at: usize| spans.iter().all(|(first, last)| at <= *first || *last < at);
    let (crossing, alive) = live_bytes(graph, &order);
    let times: Vec<Vec<Option<f64>>> =
        order.iter().map(|&task| (0..processors).map(|it| seconds(task, it)).collect()).collect();
    let places = Places::new(&times, &crossing, is_open);
    let starts = places.choose(options.stages.max(1));
    let stage = |run: &[usize]| {
        let tasks = &order[run[0]..run[1]];
        let sum = |it: usize| times[run[0]..run[1]].iter().try_fold(0.0, |sum, row| Some(sum + row[it]?));
        let weights = tasks.iter().fold(0u64, |sum, &task| sum.saturating_add(graph.task(task).memory));
        let activations = alive[run[0]..run[1]].iter().copied().max().unwrap_or(0);
        let name = tasks.first().map_or("", |&task| &graph.task(task).name);
        let carries = spans.iter().any(|(first, _)| (run[0]..run[1]).contains(first));
        let kind = if carries { StageKind::Monolithic } else { StageKind::Replicable };
        Stage::new(name, (0..processors).map(sum).collect()).with_kind(kind).with_memory(weights, activations)
    };
    let stages: Vec<Stage> = starts.windows(2).map(stage).collect();
    let mut data: Vec<u64> = starts.iter().map(|&start| crossing[start]).collect();
    data[0] = options.input;
    if let Some(last) = data.last_mut().filter(|_| starts.len() > 1) {
        *last = options.output;
    }
    Cut { order, starts, stages: Stages::new(stages, data) }
}

/// Returns an order in which few bytes are live.
fn frugal_order(graph: &TaskGraph) -> Vec<TaskId> {
    let mut missing: Vec<usize> = graph.task_ids().map(|task| graph.predecessors(task).len()).collect();
    let mut uses: Vec<usize> = graph.datum_ids().map(|datum| graph.consumers(datum).len()).collect();
    // Reversed, so that the first task of the topological order is taken first on a tie.
    let mut ready: Vec<TaskId> =
        graph.topological().iter().rev().copied().filter(|task| missing[task.index()] == 0).collect();
    let mut order = Vec::with_capacity(graph.task_count());
    while !ready.is_empty() {
        let first = ready.len().saturating_sub(CHOICE);
        let growth = |&place: &usize| growth(graph, &uses, ready[place]);
        let Some(place) = (first..ready.len()).rev().min_by_key(growth) else { break };
        let task = ready.remove(place);
        graph.inputs(task).iter().for_each(|datum| uses[datum.index()] -= 1);
        for &next in graph.successors(task) {
            missing[next.index()] -= 1;
            if missing[next.index()] == 0 {
                ready.push(next);
            }
        }
        order.push(task);
    }
    order
}

/// Returns the order with tasks that need no other task moved to just before their first successor. Otherwise such a
/// task may read a carried value long before the task that makes it again, and nothing between could be cut.
fn deferred(graph: &TaskGraph, order: &[TaskId]) -> Vec<TaskId> {
    let mut is_free = vec![false; order.len()];
    for &task in order {
        is_free[task.index()] = graph.predecessors(task).iter().all(|before| is_free[before.index()]);
    }
    let waits = |task: TaskId| is_free[task.index()] && !graph.successors(task).is_empty();
    let (mut made, mut is_there) = (Vec::with_capacity(order.len()), vec![false; order.len()]);
    for &task in order.iter().filter(|task| !waits(**task)) {
        let mut open = vec![task];
        while let Some(&task) = open.last() {
            match graph.predecessors(task).iter().find(|before| !is_there[before.index()]) {
                Some(&missing) => open.push(missing),
                None => {
                    open.pop();
                    if !std::mem::replace(&mut is_there[task.index()], true) {
                        made.push(task);
                    }
                }
            }
        }
    }
    made
}

/// Growth of the live bytes when a task runs.
fn growth(graph: &TaskGraph, uses: &[usize], task: TaskId) -> i128 {
    let bytes = |datum: &DatumId| i128::from(graph.bytes(*datum));
    let made = graph.outputs(task).iter().filter(|datum| !graph.consumers(**datum).is_empty()).map(bytes).sum::<i128>();
    made - graph.inputs(task).iter().filter(|datum| uses[datum.index()] == 1).map(bytes).sum::<i128>()
}

/// Returns the bytes that pass each position of an order, from before the first task to after the last. Also returns
/// the live bytes while each task runs.
fn live_bytes(graph: &TaskGraph, order: &[TaskId]) -> (Vec<u64>, Vec<u64>) {
    let mut uses: Vec<usize> = graph.datum_ids().map(|datum| graph.consumers(datum).len()).collect();
    let (mut passing, mut crossing, mut alive) = (0u64, vec![0], Vec::new());
    for &task in order {
        let made = graph.outputs(task).iter().map(|&datum| graph.bytes(datum));
        alive.push(made.fold(passing, u64::saturating_add));
        let used = graph.outputs(task).iter().filter(|datum| !graph.consumers(**datum).is_empty());
        passing = used.fold(passing, |sum, &datum| sum.saturating_add(graph.bytes(datum)));
        for datum in graph.inputs(task) {
            uses[datum.index()] -= 1;
            if uses[datum.index()] == 0 {
                passing = passing.saturating_sub(graph.bytes(*datum));
            }
        }
        crossing.push(passing);
    }
    (crossing, alive)
}

/// Positions between tasks.
struct Places<'a> {
    crossing: &'a [u64],
    /// Seconds of the tasks before each position, each on its fastest processor.
    before: Vec<f64>,
    /// Whether a position must stay, because no processor can run both sides of it.
    forced: Vec<bool>,
    /// Whether no carried value forbids it.
    open: Vec<bool>,
}

impl<'a> Places<'a> {
    fn new(times: &[Vec<Option<f64>>], crossing: &'a [u64], is_open: impl Fn(usize) -> bool) -> Self {
        let mut before = vec![0.0];
        let mut forced = vec![false; times.len() + 1];
        let mut able: Vec<bool> = Vec::new();
        for (place, row) in times.iter().enumerate() {
            let least = row.iter().flatten().copied().fold(f64::INFINITY, f64::min);
            before.push(before[place] + if least.is_finite() { least } else { 0.0 });
            let both = able.iter().zip(row).map(|(able, time)| *able && time.is_some());
            let both: Vec<bool> = if place == 0 { row.iter().map(Option::is_some).collect() } else { both.collect() };
            // Where a carried value forbids a cut, the stage runs nowhere.
            forced[place] = place > 0 && !both.contains(&true) && is_open(place);
            able = if forced[place] { row.iter().map(Option::is_some).collect() } else { both };
        }
        let open = (0..=times.len()).map(is_open).collect();
        Places { crossing, before, forced, open }
    }

    /// Returns the positions to keep, with the first and the last.
    fn choose(&self, stages: usize) -> Vec<usize> {
        let end = self.before.len() - 1;
        let (parts, total) = (stages.saturating_mul(PARTS), self.before[end]);
        let part =
            |place: usize| if total > 0.0 { (self.before[place] / total * parts as f64) as usize } else { place };
        let mut kept: Vec<usize> = vec![0];
        for place in (1..end).filter(|place| self.open[*place]) {
            let last = kept[kept.len() - 1];
            let same = kept.len() > 1 && part(last) == part(place) && end > stages;
            if !same || (self.forced[place] && self.forced[last]) {
                kept.push(place);
            } else if self.forced[place] || (!self.forced[last] && self.crossing[place] < self.crossing[last]) {
                kept.pop();
                kept.push(place);
            }
        }
        if end > 0 {
            kept.push(end);
        }
        let mean = 1.0 + kept.iter().map(|&place| self.crossing[place] as f64).sum::<f64>() / kept.len() as f64;
        while kept.len() > stages + 1 {
            let worth = |&at: &usize| {
                let work = self.before[kept[at + 1]] - self.before[kept[at - 1]];
                Total(work / (1.0 + self.crossing[kept[at]] as f64 / mean))
            };
            let free = (1..kept.len() - 1).filter(|&at| !self.forced[kept[at]]);
            let Some(at) = free.min_by_key(worth) else { break };
            kept.remove(at);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::pipeline::{Goal, Link, Problem, Processors, Rules, choose};

    fn fork(builder: &mut GraphBuilder, from: TaskId, bytes: u64, to: &[TaskId]) {
        let datum = builder.datum(from, bytes);
        to.iter().for_each(|&task| builder.consume(datum, task));
    }

    /// Two residual blocks. Within a block its input stays live; one datum passes between the blocks.
    fn residual() -> TaskGraph {
        let mut builder = GraphBuilder::new();
        let mut last = builder.task(Task::new("stem").with_memory(10));
        for _ in 0..2 {
            let [a, b, add] = ["a", "b", "add"].map(|name| builder.task(Task::new(name).with_memory(10)));
            fork(&mut builder, last, 100, &[a, add]);
            builder.edge(a, b, 100);
            builder.edge(b, add, 100);
            last = add;
        }
        builder.build().unwrap()
    }

    const OPTIONS: CutOptions = CutOptions { stages: 2, input: 7, output: 8 };

    #[test]
    fn residual_blocks_are_cut_between_blocks() {
        let cut = cut(&residual(), 1, |_, _| Some(1.0), &[], OPTIONS);
        assert_eq!(cut.starts, [0, 4, 7]);
        assert_eq!(cut.stages.data, [7, 100, 8]);
        assert_eq!(cut.stages.stages[0].weights, 40);
        assert_eq!(cut.stages.stages[0].times, [Some(4.0)]);
        // The block's input and the outputs of `a` and `b`.
        assert_eq!(cut.stages.stages[1].activations, 300);
    }

    #[test]
    fn a_branch_is_followed_to_its_end() {
        // A fork of four branches that shrink their input. If the branches run one after the other, only one large
        // datum is live.
        let mut builder = GraphBuilder::new();
        let root = builder.task(Task::new("root"));
        let join = builder.task(Task::new("join"));
        let mut heads = Vec::new();
        for _ in 0..4 {
            let [head, tail] = ["head", "tail"].map(|name| builder.task(Task::new(name)));
            builder.edge(head, tail, 1000);
            builder.edge(tail, join, 1);
            heads.push(head);
        }
        fork(&mut builder, root, 10, &heads);
        let cut = cut(&builder.build().unwrap(), 1, |_, _| Some(1.0), &[], CutOptions { stages: 100, ..OPTIONS });
        let most = cut.stages.stages.iter().map(|stage| stage.activations).max();
        assert_eq!(most, Some(1013));
        assert_eq!(cut.stages.stages.len(), 10);
    }

    #[test]
    fn what_no_processor_can_run_together_stays_apart() {
        let time = |task: TaskId, it: usize| ((task.0 < 4) == (it == 0)).then_some(1.0);
        let cut = cut(&residual(), 2, time, &[], CutOptions { stages: 1, ..OPTIONS });
        assert_eq!(cut.starts, [0, 4, 7]);
        let names = vec!["cpu".into(), "gpu".into()];
        let problem = Problem::new(cut.stages, Processors::uniform(names, Link::FREE), Rules::default()).unwrap();
        let chosen = choose(&problem, Goal::Period).unwrap();
        assert_eq!((chosen.performance.period, chosen.proven), (4.0, true));
    }

    #[test]
    fn a_carried_value_stays_in_one_stage() {
        // Layers of a loop each: `read` needs no other task, and `make` is the last of the layer.
        let mut builder = GraphBuilder::new();
        let (mut last, mut carried) = (builder.task(Task::new("input")), Vec::new());
        for _ in 0..5 {
            let [read, join, make] = ["read", "join", "make"].map(|name| builder.task(Task::new(name)));
            builder.edge(read, join, 1);
            builder.edge(last, join, 100);
            builder.edge(join, make, 10);
            carried.push(Carried { readers: vec![read], maker: Some(make) });
            last = make;
        }
        let after = builder.task(Task::new("after"));
        builder.edge(last, after, 5);
        // Nothing reads it, or it comes from before.
        carried.push(Carried { readers: Vec::new(), maker: Some(after) });
        carried.push(Carried { readers: vec![after], maker: Some(TaskId(0)) });
        let graph = builder.build().unwrap();
        let cut = cut(&graph, 1, |_, _| Some(1.0), &carried, CutOptions { stages: 100, ..OPTIONS });
        assert_eq!(cut.starts, [0, 1, 4, 7, 10, 13, 16, 17]);
        let kinds: Vec<StageKind> = cut.stages.stages.iter().map(|stage| stage.kind).collect();
        let [free, fixed] = [StageKind::Replicable, StageKind::Monolithic];
        assert_eq!(kinds, [free, fixed, fixed, fixed, fixed, fixed, fixed]);
        // One value over all tasks leaves one stage.
        let all = Carried { readers: vec![TaskId(0)], maker: Some(after) };
        let cut = super::cut(&graph, 1, |_, _| Some(1.0), &[all], CutOptions { stages: 100, ..OPTIONS });
        assert_eq!(cut.starts, [0, 17]);
    }

    #[test]
    fn cuts_of_random_graphs_are_problems() {
        for seed in 0..20 {
            let graph = crate::generate::RandomDag { tasks: 60, ..Default::default() }.generate(seed).unwrap();
            let cut = cut(
                &graph,
                2,
                |task, it| Some(f64::from(task.0 % 5 + 1) * (it as f64 + 1.0)),
                &[],
                CutOptions { stages: 12, ..OPTIONS },
            );
            assert!(cut.stages.stages.len() <= 12, "{:?}", cut.starts);
            let place: Vec<usize> =
                graph.task_ids().map(|task| cut.order.iter().position(|it| *it == task).unwrap()).collect();
            let sorted = graph
                .task_ids()
                .all(|task| graph.successors(task).iter().all(|next| place[task.index()] < place[next.index()]));
            assert!(sorted, "{:?}", cut.order);
            for (number, &start) in cut.starts.iter().enumerate().skip(1).take(cut.starts.len() - 2) {
                let passes = |datum: &DatumId| {
                    place[graph.producer(*datum).index()] < start
                        && graph.consumers(*datum).iter().any(|it| place[it.index()] >= start)
                };
                let bytes: u64 = graph.datum_ids().filter(passes).map(|datum| graph.bytes(datum)).sum();
                assert_eq!(cut.stages.data[number], bytes);
            }
        }
    }
}
