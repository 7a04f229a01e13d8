//! Evaluation of streaming schedules, and the time to find them.
//!
//! * `streaming figures [GRAPHS [STEPS]]`: median speedups and length ratios over seeded random graphs of the paper's
//!   four shapes. They are the medians of figures 10 and 11 of De Matteis et al. 2023. The command also prints the
//!   number of schedules that were simulated element by element: those of at most STEPS units of work (default 2²⁸).
//! * `streaming file GRAPH.json ELEMENTS`: one graph, in the format of `placement::streaming::parse_canonical`.
//! * `streaming random GRAPHS`: small random graphs of all kinds. The command counts the schedules whose simulation
//!   ends later than the schedule says, for whole and for other rates.
//! * `streaming csdf [GRAPHS]`: the makespan on as many elements as tasks over that of self-timed execution with
//!   unbounded channels. For an acyclic graph and one iteration at a time, no schedule of its cyclo-static dataflow
//!   graph (CSDFG) is shorter. Figure 12 of the paper compares with it.
//! * `streaming large TASKS ELEMENTS`: a layered graph of `TASKS` tasks with memory between its layers, with its time.

use anabranch_base::quantile::{ascending, median_by_sum};
use anabranch_placement::generate::{Random, RandomVolumes, Shape};
use anabranch_placement::streaming::{
    BlockVariant, BufferSizes, CanonicalGraph, CanonicalGraphBuilder, ListSchedule, Node, SimulationError,
    StreamingDepth, StreamingSchedule, parse_canonical, simulate_streaming, spatial_blocks,
};
use std::error::Error;
use std::time::Instant;

const VARIANTS: [BlockVariant; 3] = [BlockVariant::Lts, BlockVariant::Rlx, BlockVariant::Best];

/// The paper's shapes, with their numbers of processing elements.
const SHAPES: [(&str, Shape, [usize; 4]); 4] = [
    ("chain", Shape::Chain { length: 8 }, [2, 4, 6, 8]),
    ("fft", Shape::FastFourierTransform { points: 32 }, [32, 64, 96, 128]),
    ("gaussian", Shape::GaussianElimination { order: 16 }, [32, 64, 96, 128]),
    ("cholesky", Shape::Cholesky { tiles: 8 }, [32, 64, 96, 128]),
];

/// Most units of work of a graph that is simulated with unbounded channels.
const MOST_WORK: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["figures"] => figures(100, 1 << 28),
        ["figures", graphs] => figures(graphs.parse()?, 1 << 28),
        ["figures", graphs, steps] => figures(graphs.parse()?, steps.parse()?),
        ["file", path, elements] => file(path, elements.parse()?),
        ["csdf"] => csdf(100),
        ["csdf", graphs] => csdf(graphs.parse()?),
        ["random", graphs] => random(graphs.parse()?),
        ["large", tasks, elements] => large(tasks.parse()?, elements.parse()?),
        _ => Err("usage: streaming figures [GRAPHS [STEPS]] | file GRAPH.json ELEMENTS | random GRAPHS | csdf [GRAPHS] | large TASKS ELEMENTS".into()),
    }
}

/// Prints the medians, one line per shape, number of elements and variant.
fn figures(graphs: u64, steps: u64) -> Result<(), Box<dyn Error>> {
    println!(
        "{:<10}{:>9} {:>7}{:>9}{:>8}{:>8}{:>9}{:>10}{:>11}",
        "shape", "elements", "variant", "speedup", "list", "SSLR", "blocks", "µs", "simulated"
    );
    for (name, shape, counts) in SHAPES {
        let graphs: Vec<CanonicalGraph> =
            (0..graphs).map(|seed| RandomVolumes { shape, volume: 2048 }.generate(seed)).collect::<Result<_, _>>()?;
        for elements in counts {
            for variant in VARIANTS {
                let [mut speedups, mut lists, mut ratios, mut blocks, mut times] = [const { Vec::new() }; 5];
                let mut simulated = 0;
                for graph in &graphs {
                    let (schedule, seconds) = timed(graph, elements, variant);
                    speedups.push(schedule.speedup(graph));
                    ratios.push(schedule.length_ratio(StreamingDepth::of(graph)?.bound));
                    blocks.push(schedule.blocks().count() as f64);
                    times.push(seconds * 1e6);
                    lists.push(graph.work() as f64 / ListSchedule::new(graph, elements).makespan as f64);
                    simulated += u32::from(is_proven(graph, &schedule, steps)?);
                }
                let [speedup, list, ratio, blocks, time] = [speedups, lists, ratios, blocks, times].map(median);
                println!(
                    "{name:<10}{elements:>9} {:>7}{speedup:>9.3}{list:>8.3}{ratio:>8.3}{blocks:>9}{time:>10.0}{simulated:>11}",
                    name_of(variant)
                );
            }
        }
    }
    Ok(())
}

fn name_of(variant: BlockVariant) -> &'static str {
    match variant {
        BlockVariant::Lts => "SB-LTS",
        BlockVariant::Rlx => "SB-RLX",
        BlockVariant::Best => "best",
    }
}

/// Simulates a schedule element by element: returns whether it ends, or false if its graph has too much work.
fn is_proven(graph: &CanonicalGraph, schedule: &StreamingSchedule, steps: u64) -> Result<bool, SimulationError> {
    match BufferSizes::proven(graph, schedule, steps) {
        Ok(_) => Ok(true),
        Err(SimulationError::TooLong { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn file(path: &str, elements: usize) -> Result<(), Box<dyn Error>> {
    let graph = parse_canonical(&std::fs::read(path)?)?;
    report(&graph, elements);
    Ok(())
}

/// Prints the ratio of the scheduled makespan to that of self-timed execution, and the time of both.
fn csdf(graphs: u64) -> Result<(), Box<dyn Error>> {
    println!(
        "{:<10}{:>8}{:>9}{:>9}{:>9}{:>14}{:>14}",
        "shape", "graphs", "least", "median", "most", "schedule, µs", "execution, µs"
    );
    for (name, shape, _) in SHAPES {
        let [mut ratios, mut times, mut executions] = [const { Vec::new() }; 3];
        for seed in 0..graphs {
            let graph = RandomVolumes { shape, volume: 2048 }.generate(seed)?;
            if graph.work() > MOST_WORK {
                continue;
            }
            let (schedule, seconds) = timed(&graph, graph.node_count(), BlockVariant::Rlx);
            let sizes = BufferSizes::uniform(&graph, &schedule, u64::MAX);
            let start = Instant::now();
            let executed = simulate_streaming(&graph, &schedule, &sizes, MOST_WORK)?;
            executions.push(start.elapsed().as_secs_f64() * 1e6);
            times.push(seconds * 1e6);
            ratios.push(schedule.makespan() as f64 / executed.makespan as f64);
        }
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let count = ratios.len();
        let [ratio, time, execution] = [ratios, times, executions].map(median);
        println!("{name:<10}{count:>8}{least:>9.3}{ratio:>9.3}{most:>9.3}{time:>14.0}{execution:>14.0}");
    }
    Ok(())
}

/// Counts the simulations that end later than their schedules, and prints the largest differences.
fn random(graphs: u64) -> Result<(), Box<dyn Error>> {
    for (rates, whole) in [("whole rates", true), ("any rates", false)] {
        for channels in ["proven", "unbounded"] {
            let (mut later, mut schedules, mut worst) = (0, 0, (0.0, 0, 0, 0));
            for seed in 0..graphs {
                let (graph, elements) = small(seed, whole)?;
                for variant in VARIANTS {
                    let schedule = StreamingSchedule::new(&graph, spatial_blocks(&graph, elements, variant));
                    let end = match channels {
                        "proven" => BufferSizes::proven(&graph, &schedule, 1 << 28)?.1.makespan,
                        _ => {
                            let sizes = BufferSizes::uniform(&graph, &schedule, u64::MAX);
                            simulate_streaming(&graph, &schedule, &sizes, 1 << 28)?.makespan
                        }
                    };
                    let says = schedule.makespan();
                    (later, schedules) = (later + u32::from(end > says), schedules + 1);
                    let excess = end as f64 / says as f64 - 1.0;
                    if excess > worst.0 {
                        worst = (excess, says, end, seed);
                    }
                }
            }
            let (excess, says, end, seed) = worst;
            println!(
                "{rates}, {channels} channels: {later} of {schedules} end later; most: {says} to {end}, {:.1} % (seed {seed})",
                100.0 * excess
            );
        }
    }
    Ok(())
}

/// Draws up to 16 nodes of four volumes, with an edge between every second pair of equal volumes, and the number of
/// processing elements.
fn small(seed: u64, whole: bool) -> Result<(CanonicalGraph, usize), Box<dyn Error>> {
    let mut random = Random::new(seed);
    let mut volumes = [1, 2, 6, 24];
    if !whole {
        volumes = volumes.map(|_| 1 + random.below(24));
    }
    let mut builder = CanonicalGraphBuilder::new();
    let mut ends = Vec::new();
    for number in 0..1 + random.below(16) {
        let [read, written] = [(); 2].map(|()| volumes[random.below(4) as usize]);
        let name = format!("n{number}");
        let node = match random.below(8) {
            0 => Node::buffer(name, read, written),
            _ => Node::task(name, read, written),
        };
        let id = builder.node(node);
        for &(before, volume) in &ends {
            if volume == read && random.below(2) == 0 {
                builder.edge(before, id);
            }
        }
        ends.push((id, written));
    }
    Ok((builder.build()?, 1 + random.below(16) as usize))
}

/// Reports on layers of 256 chains of 16 tasks, with memory between the layers.
fn large(tasks: usize, elements: usize) -> Result<(), Box<dyn Error>> {
    let mut builder = CanonicalGraphBuilder::new();
    let (mut memory, mut count, mut layer) = (builder.node(Node::buffer("input", 0, 1024)), 0, 0);
    while count < tasks {
        let volume = 1024 << (layer % 3);
        let next = builder.node(Node::buffer(format!("memory {layer}"), volume, 1024 << ((layer + 1) % 3)));
        for chain in 0..256 {
            let mut before = memory;
            for link in 0..16 {
                let task = builder.node(Node::task(format!("{layer}.{chain}.{link}"), volume, volume));
                builder.edge(before, task);
                before = task;
            }
            builder.edge(before, next);
        }
        (memory, count, layer) = (next, count + 256 * 16, layer + 1);
    }
    report(&builder.build()?, elements);
    Ok(())
}

fn report(graph: &CanonicalGraph, elements: usize) {
    let start = Instant::now();
    let list = ListSchedule::new(graph, elements);
    println!("list: makespan {}, {:.3} ms", list.makespan, start.elapsed().as_secs_f64() * 1e3);
    for variant in VARIANTS {
        let (schedule, seconds) = timed(graph, elements, variant);
        let (makespan, speedup, blocks) = (schedule.makespan(), schedule.speedup(graph), schedule.blocks().count());
        let room = BufferSizes::new(graph, &schedule).total();
        println!(
            "{}: makespan {makespan}, speedup {speedup:.3}, {blocks} blocks, {room} elements of room, {:.3} ms",
            name_of(variant),
            seconds * 1e3
        );
    }
}

/// Returns the schedule, and the seconds for blocks, schedule and buffers.
fn timed(graph: &CanonicalGraph, elements: usize, variant: BlockVariant) -> (StreamingSchedule, f64) {
    let start = Instant::now();
    let schedule = StreamingSchedule::new(graph, spatial_blocks(graph, elements, variant));
    let sizes = BufferSizes::new(graph, &schedule);
    let seconds = start.elapsed().as_secs_f64();
    std::hint::black_box(sizes);
    (schedule, seconds)
}

fn median(values: Vec<f64>) -> f64 {
    median_by_sum(&ascending(&values)).unwrap_or(0.0)
}
