//! Comparison with the results of the reference implementation, both correct and incorrect ones.

use anabranch_placement::footprint::check::{check_antichain, check_partitioning};
use anabranch_placement::footprint::{
    Capacity, Partitioning, Problem, fewest_partitions, heaviest_antichain, merge_rest, partitions_bound, zero_edges,
};
use anabranch_placement::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use anabranch_placement::pipeline::Link;
use serde::Deserialize;

#[derive(Deserialize)]
struct Weighted {
    source: String,
    weights: Vec<u64>,
    edges: Vec<(u32, u32)>,
    heaviest: u64,
}

#[derive(Deserialize)]
struct Zeroed {
    cap: u64,
    nodes: Vec<(f64, u64)>,
    edges: Vec<(u32, u32, u64)>,
    #[serde(flatten)]
    run: Run,
}

#[derive(Deserialize)]
struct Pipeline {
    graph: String,
    nodes: Vec<(f64, u64)>,
    edges: Vec<(u32, u32, u64)>,
    parallelism: u64,
    runs: Vec<CappedRun>,
}

#[derive(Deserialize)]
struct CappedRun {
    cap: u64,
    #[serde(flatten)]
    run: Run,
}

/// Results of the reference for its partitions: parallelism without and with the edges inside them, completion and
/// movement.
#[derive(Deserialize)]
struct Run {
    partitions: Vec<Vec<u32>>,
    without_inner_edges: Vec<u64>,
    induced: Vec<u64>,
    before: (f64, u64),
    after: (f64, u64),
}

fn graph(tasks: usize, edges: &[(u32, u32, u64)]) -> TaskGraph {
    let mut builder = GraphBuilder::new();
    (0..tasks).for_each(|task| _ = builder.task(Task::new(task.to_string())));
    edges.iter().for_each(|&(from, to, bytes)| _ = builder.edge(TaskId(from), TaskId(to), bytes));
    builder.build().unwrap()
}

/// Creates a problem in which a unit of volume takes a unit of time.
fn problem<'g>(graph: &'g TaskGraph, nodes: &[(f64, u64)], cap: u64) -> Problem<'g> {
    let (times, cores) = nodes.iter().copied().unzip();
    let link = Link { latency: 0.0, bandwidth: 1.0 };
    Problem::new(graph, cores, times, Capacity { cores: cap, memory: None }, link).unwrap()
}

#[test]
fn antichains_weigh_what_enumeration_found() {
    let cases: Vec<Weighted> = serde_json::from_str(include_str!("../../data/footprint/antichain.json")).unwrap();
    assert_eq!(cases.len(), 32);
    for case in cases {
        let edges: Vec<(u32, u32, u64)> = case.edges.iter().map(|&(from, to)| (from, to, 0)).collect();
        let graph = graph(case.weights.len(), &edges);
        let found = heaviest_antichain(&graph, &case.weights).unwrap();
        assert_eq!(found.weight, case.heaviest, "{}", case.source);
        assert_eq!(check_antichain(&graph, &case.weights, &found), [], "{}", case.source);
    }
}

/// Evaluates the reference's partitions: whether their completion and movement equal the reference's figures, and are
/// not less.
fn judge(problem: &Problem<'_>, edges: &[(u32, u32, u64)], run: &Run) -> bool {
    let tasks = problem.graph().task_count();
    let mut labels = vec![0; tasks];
    for (part, members) in run.partitions.iter().enumerate() {
        members.iter().for_each(|&task| labels[task as usize] = part as u32);
    }
    let apart: Vec<u32> = (0..tasks as u32).collect();
    let (apart, found) = (Partitioning::of(problem, &apart), Partitioning::of(problem, &labels));
    assert_eq!((apart.completion, apart.movement), run.before);
    assert!(found.completion <= run.after.0 && found.movement <= run.after.1);
    for (part, members) in run.partitions.iter().enumerate() {
        let inner: Vec<(u32, u32, u64)> =
            edges.iter().copied().filter(|(from, to, _)| members.contains(from) && members.contains(to)).collect();
        let cores = |task: u32| if members.contains(&task) { problem.cores(TaskId(task)) } else { 0 };
        let cores: Vec<u64> = (0..tasks as u32).map(cores).collect();
        let induced = heaviest_antichain(&graph(tasks, &inner), &cores).unwrap();
        assert_eq!(induced.weight, run.induced[part]);
        assert!(run.induced[part] <= run.without_inner_edges[part]);
        // Paths through other partitions order tasks as well.
        let number = found.part_of[members[0] as usize] as usize;
        assert!(found.parts[number].parallelism <= induced.weight);
    }
    (found.completion, found.movement) == run.after
}

#[test]
fn partitions_of_random_graphs_are_judged_as_the_reference_does() {
    let cases: Vec<Zeroed> = serde_json::from_str(include_str!("../../data/footprint/edge_zeroing.json")).unwrap();
    assert_eq!(cases.len(), 60);
    let (mut exact, mut ours, mut theirs, mut merged, mut fewer) = (0, 0, 0, 0, 0);
    for case in &cases {
        let graph = graph(case.nodes.len(), &case.edges);
        let problem = problem(&graph, &case.nodes, case.cap);
        exact += usize::from(judge(&problem, &case.edges, &case.run));
        let zeroed = zero_edges(&problem);
        assert_eq!(check_partitioning(&problem, &zeroed), []);
        assert!(zeroed.completion <= case.run.before.0);
        let all = merge_rest(&problem);
        assert_eq!(check_partitioning(&problem, &all), []);
        assert!(all.completion <= zeroed.completion && all.parts.len() <= zeroed.parts.len());
        merged += all.parts.len();
        let fewest = fewest_partitions(&problem, all, zeroed.completion).unwrap();
        assert!(fewest.bound <= fewest.partitioning.parts.len());
        (ours, theirs) = (ours + zeroed.parts.len(), theirs + case.run.partitions.len());
        fewer += usize::from(zeroed.parts.len() <= case.run.partitions.len());
    }
    // In the other cases the reference forgets edges that came to lie within a partition.
    assert_eq!(exact, 49);
    println!(
        "partitions: {ours} by edge zeroing, {merged} with the rest merged, {theirs} by the reference; no more in {fewer} cases"
    );
    assert!(merged < ours && ours < theirs);
}

#[test]
fn pipelines_are_partitioned_and_judged_as_the_reference_does() {
    let cases: Vec<Pipeline> = serde_json::from_str(include_str!("../../data/footprint/pipelines.json")).unwrap();
    assert_eq!(cases.len(), 10);
    for case in &cases {
        let graph = graph(case.nodes.len(), &case.edges);
        for CappedRun { cap, run } in &case.runs {
            let problem = problem(&graph, &case.nodes, *cap);
            assert_eq!(problem.parallelism(), case.parallelism, "{}", case.graph);
            judge(&problem, &case.edges, run);
            let zeroed = zero_edges(&problem);
            assert_eq!(check_partitioning(&problem, &zeroed), [], "{}", case.graph);
            let merged = merge_rest(&problem);
            assert_eq!(check_partitioning(&problem, &merged), [], "{}", case.graph);
            let [ours, theirs] = [merged.parts.len(), run.partitions.len()];
            assert!(
                partitions_bound(&problem) <= ours && ours <= theirs,
                "{} under {cap}: {ours} {theirs}",
                case.graph
            );
            println!("| {} | {cap} | {theirs} | {ours} | {} |", case.graph, partitions_bound(&problem));
        }
    }
}
