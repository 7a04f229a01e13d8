//! A graph of tasks as a chain of stages: an order of the tasks in which few bytes are alive, and cuts of it where few bytes pass.
//!
//! Forks and joins become stages like anything else: what passes a cut is every datum that is made before it and used after it, so that a branch
//! that goes on beside others is handed through the stages between. The order takes, of the tasks whose inputs are there, the one
//! after which least is alive; of equals the one that could run last, so that a branch is followed to its end.
//!
//! Of all places between two tasks, as many are kept as stages are wanted: first that of the fewest bytes in each of many equal parts of the work, then
//! those are given up again and again that separate least work, and sooner those that many bytes pass. A place is never given up where no processor can
//! run what it separates.

use super::stages::{Stage, Stages};
use crate::graph::{DatumId, TaskGraph, TaskId};
use crate::total::Total;

/// How a graph is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutOptions {
    /// Most stages, but for those that different processors have to run.
    pub stages: usize,
    /// Bytes of a data set on its way in.
    pub input: u64,
    /// Bytes of a result.
    pub output: u64,
}

/// A chain of stages made of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// All tasks, each after what it uses.
    pub order: Vec<TaskId>,
    /// Where in the order each stage begins, and the number of tasks at the end.
    pub starts: Vec<usize>,
    /// The stages, replicable, with weights that are their tasks' memory and activations that are the most bytes alive while they run.
    pub stages: Stages,
}

/// Tasks that the order chooses from: those that could run last.
const CHOICE: usize = 64;
/// Parts of the work for each stage that is wanted.
const PARTS: usize = 16;

/// Cuts a graph into stages. `seconds` is the time of a task on each of so many processors, `None` where it cannot run; a task that can
/// run nowhere makes a stage that [`Problem::new`](super::Problem::new) refuses. `O(tasks × (processors + degree) + stages²)`.
pub fn cut(
    graph: &TaskGraph,
    processors: usize,
    seconds: impl Fn(TaskId, usize) -> Option<f64>,
    options: CutOptions,
) -> Cut {
    let order = frugal_order(graph);
    let (crossing, alive) = live_bytes(graph, &order);
    let times: Vec<Vec<Option<f64>>> =
        order.iter().map(|&task| (0..processors).map(|it| seconds(task, it)).collect()).collect();
    let places = Places::new(&times, &crossing);
    let starts = places.choose(options.stages.max(1));
    let stage = |run: &[usize]| {
        let tasks = &order[run[0]..run[1]];
        let sum = |it: usize| times[run[0]..run[1]].iter().try_fold(0.0, |sum, row| Some(sum + row[it]?));
        let weights = tasks.iter().fold(0u64, |sum, &task| sum.saturating_add(graph.task(task).memory));
        let activations = alive[run[0]..run[1]].iter().copied().max().unwrap_or(0);
        let name = tasks.first().map_or("", |&task| &graph.task(task).name);
        Stage::new(name, (0..processors).map(sum).collect()).with_memory(weights, activations)
    };
    let stages: Vec<Stage> = starts.windows(2).map(stage).collect();
    let mut data: Vec<u64> = starts.iter().map(|&start| crossing[start]).collect();
    data[0] = options.input;
    if let Some(last) = data.last_mut().filter(|_| starts.len() > 1) {
        *last = options.output;
    }
    Cut { order, starts, stages: Stages::new(stages, data) }
}

/// An order in which few bytes are alive.
fn frugal_order(graph: &TaskGraph) -> Vec<TaskId> {
    let mut missing: Vec<usize> = graph.task_ids().map(|task| graph.predecessors(task).len()).collect();
    let mut uses: Vec<usize> = graph.datum_ids().map(|datum| graph.consumers(datum).len()).collect();
    // The first of the topological order last, so that it comes first where nothing tells tasks apart.
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

/// Bytes by which a task makes more alive.
fn growth(graph: &TaskGraph, uses: &[usize], task: TaskId) -> i128 {
    let bytes = |datum: &DatumId| i128::from(graph.bytes(*datum));
    let made = graph.outputs(task).iter().filter(|datum| !graph.consumers(**datum).is_empty()).map(bytes).sum::<i128>();
    made - graph.inputs(task).iter().filter(|datum| uses[datum.index()] == 1).map(bytes).sum::<i128>()
}

/// Bytes that pass each place of an order, from before the first task to after the last, and those that are alive while each runs.
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

/// Places between tasks.
struct Places<'a> {
    crossing: &'a [u64],
    /// Seconds of the tasks before each place, on whatever processor is fastest for each.
    before: Vec<f64>,
    /// Places that stay: what they separate no processor can run together.
    forced: Vec<bool>,
}

impl<'a> Places<'a> {
    fn new(times: &[Vec<Option<f64>>], crossing: &'a [u64]) -> Self {
        let mut before = vec![0.0];
        let mut forced = vec![false; times.len() + 1];
        let mut able: Vec<bool> = Vec::new();
        for (place, row) in times.iter().enumerate() {
            let least = row.iter().flatten().copied().fold(f64::INFINITY, f64::min);
            before.push(before[place] + if least.is_finite() { least } else { 0.0 });
            let both = able.iter().zip(row).map(|(able, time)| *able && time.is_some());
            let both: Vec<bool> = if place == 0 { row.iter().map(Option::is_some).collect() } else { both.collect() };
            forced[place] = place > 0 && !both.contains(&true);
            able = if forced[place] { row.iter().map(Option::is_some).collect() } else { both };
        }
        Places { crossing, before, forced }
    }

    /// The places that are kept, the first and the last among them.
    fn choose(&self, stages: usize) -> Vec<usize> {
        let end = self.before.len() - 1;
        let (parts, total) = (stages.saturating_mul(PARTS), self.before[end]);
        let part =
            |place: usize| if total > 0.0 { (self.before[place] / total * parts as f64) as usize } else { place };
        let mut kept: Vec<usize> = vec![0];
        for place in 1..end {
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

    /// Two residual blocks: within a block its input stays alive, between them one datum passes.
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
        let cut = cut(&residual(), 1, |_, _| Some(1.0), OPTIONS);
        assert_eq!(cut.starts, [0, 4, 7]);
        assert_eq!(cut.stages.data, [7, 100, 8]);
        assert_eq!(cut.stages.stages[0].weights, 40);
        assert_eq!(cut.stages.stages[0].times, [Some(4.0)]);
        // The block's input, the output of `a`, and that of `b`.
        assert_eq!(cut.stages.stages[1].activations, 300);
    }

    #[test]
    fn a_branch_is_followed_to_its_end() {
        // A fork of four branches that shrink what they are given: one after the other, one large datum is alive.
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
        let cut = cut(&builder.build().unwrap(), 1, |_, _| Some(1.0), CutOptions { stages: 100, ..OPTIONS });
        let most = cut.stages.stages.iter().map(|stage| stage.activations).max();
        assert_eq!(most, Some(1013));
        assert_eq!(cut.stages.stages.len(), 10);
    }

    #[test]
    fn what_no_processor_can_run_together_stays_apart() {
        let time = |task: TaskId, it: usize| ((task.0 < 4) == (it == 0)).then_some(1.0);
        let cut = cut(&residual(), 2, time, CutOptions { stages: 1, ..OPTIONS });
        assert_eq!(cut.starts, [0, 4, 7]);
        let names = vec!["cpu".into(), "gpu".into()];
        let problem = Problem::new(cut.stages, Processors::uniform(names, Link::FREE), Rules::default()).unwrap();
        let chosen = choose(&problem, Goal::Period).unwrap();
        assert_eq!((chosen.performance.period, chosen.proven), (4.0, true));
    }

    #[test]
    fn cuts_of_random_graphs_are_problems() {
        for seed in 0..20 {
            let graph = crate::generate::RandomDag { tasks: 60, ..Default::default() }.generate(seed).unwrap();
            let cut = cut(
                &graph,
                2,
                |task, it| Some(f64::from(task.0 % 5 + 1) * (it as f64 + 1.0)),
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
