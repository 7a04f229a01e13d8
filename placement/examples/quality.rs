//! Results of `auto` beside published schedulers and beside the optimum, and gaps of the lower bounds.
//!
//! ```text
//! cargo run --release -p anabranch-placement --example quality -- published FILE.. [--seeds COUNT]
//! cargo run --release -p anabranch-placement --example quality -- generated FIRST..END [--seeds COUNT]
//! cargo run --release -p anabranch-placement --example quality -- memory FIRST..END [--seeds COUNT]
//! cargo run --release -p anabranch-placement --example quality -- bounds FILE..
//! ```
//!
//! `published` reads instances with makespans of published schedulers (`schedulers/related.json`). `generated` draws
//! one problem of the same kind per seed: chains, trees and random layers on 2 to 7 devices with speeds. `memory` draws
//! problems whose devices are nearly full. `--seeds` repeats the search with so many seeds. Every placement and
//! schedule is checked.

use anabranch_base::quantile::{ascending, median_by_sum};
use anabranch_placement::bound::{lower_bound, lower_bounds};
use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::exact::{ExactOptions, StopReason, optimum};
use anabranch_placement::format::{LoadedProblem, read_problems};
use anabranch_placement::generate::Random;
use anabranch_placement::graph::{GraphBuilder, Task, TaskId};
use anabranch_placement::place::Auto;
use anabranch_placement::platform::{Device, DeviceId, DeviceKind, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use std::error::Error;
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Instant;

/// Relative tolerance of comparisons: published makespans are sums in another order.
const ROUNDING: f64 = 1e-9;

fn main() -> Result<(), Box<dyn Error>> {
    let mut given: Vec<String> = std::env::args().skip(1).collect();
    let mut seeds = 1;
    if let Some(at) = given.iter().position(|argument| argument == "--seeds") {
        seeds = given.get(at + 1).ok_or("--seeds needs a number")?.parse::<NonZeroU32>()?.get().into();
        given.drain(at..=at + 1);
    }
    let usage = "name a table; see the top of the source";
    let (table, rest) = given.split_first().ok_or(usage)?;
    match table.as_str() {
        "published" => published(&read_problems(rest)?, seeds),
        "generated" => generated(range(rest)?, seeds),
        "memory" => gaps(&range(rest)?.map(tight).collect::<Result<Vec<_>, _>>()?, seeds),
        "bounds" => gaps(&read_problems(rest)?, seeds),
        _ => Err(usage.into()),
    }
}

fn range(rest: &[String]) -> Result<Range<u64>, Box<dyn Error>> {
    let text = rest.first().ok_or("give a range of seeds, such as 0..100")?;
    let (first, end) = text.split_once("..").ok_or("give a range of seeds, such as 0..100")?;
    Ok(first.parse()?..end.parse()?)
}

/// Returns the makespans of `auto` for each seed, after checks.
fn searched(problem: &Problem<'_>, seeds: u64) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut makespans = Vec::new();
    for seed in 0..seeds {
        let improved = Auto { seed, ..Auto::default() }.improve(problem, |_, _| {})?;
        let device_of = &improved.placement().device_of;
        let (placed, scheduled) =
            (check_placement(problem, device_of), check_schedule(problem, device_of, &improved.schedule));
        if let Some(violation) = placed.first().map(ToString::to_string).or(scheduled.first().map(ToString::to_string))
        {
            return Err(violation.into());
        }
        makespans.push(improved.schedule.makespan);
    }
    Ok(makespans)
}

/// Compares with the best figure of each file, and the seeds with each other.
fn published(problems: &[LoadedProblem], seeds: u64) -> Result<(), Box<dyn Error>> {
    let mut reached = vec![0u32; seeds as usize];
    let (mut always, mut ahead, mut spreads) = (0, 0, Vec::new());
    for loaded in problems {
        let figures = loaded.facts.figures.iter().filter(|(name, _)| name.starts_with("makespan"));
        let Some(best) = figures.map(|(_, &figure)| figure).reduce(f64::min) else { continue };
        let problem = loaded.problem()?;
        let started = Instant::now();
        let makespans = searched(&problem, seeds)?;
        let seconds = started.elapsed().as_secs_f64() / seeds as f64;
        for (reached, makespan) in reached.iter_mut().zip(&makespans) {
            *reached += u32::from(*makespan <= best * (1.0 + ROUNDING));
        }
        let sorted = ascending(&makespans);
        let (Some(least), Some(greatest)) = (sorted.first(), sorted.last()) else { continue };
        let (worst, spread) = (greatest / best, greatest / least);
        always += u32::from(worst <= 1.0 + ROUNDING);
        ahead += u32::from(worst < 1.0 - ROUNDING);
        spreads.push(spread);
        println!(
            "{} | {} tasks | {} devices | best published {best:.6} | auto {:.6} | worst/best {worst:.4} | worst/best seed {spread:.4} | {seconds:.2} s | bound {:.4}",
            loaded.name,
            problem.graph().task_count(),
            problem.platform().device_count(),
            makespans[0],
            lower_bound(&problem).value / makespans[0],
        );
    }
    println!("at most the best published figure, by seed: {reached:?} of {}", spreads.len());
    let counts: Vec<f64> = reached.into_iter().map(f64::from).collect();
    let (reached, spreads) = (ascending(&counts), ascending(&spreads));
    if let (Some(least), Some(median)) = (reached.first(), median_by_sum(&reached)) {
        println!("median {median}, least {least}; for every seed: {always}, and shorter: {ahead}");
    }
    if let (Some(median), Some(greatest)) = (median_by_sum(&spreads), spreads.last()) {
        println!("worst seed / best seed: median {median:.4}, greatest {greatest:.4}");
    }
    Ok(())
}

/// Compares generated problems with the optimum, or with the best of all seeds.
fn generated(range: Range<u64>, seeds: u64) -> Result<(), Box<dyn Error>> {
    let mut ratios = Vec::new();
    let (mut proven, mut optimal) = (0, 0);
    for number in range {
        let loaded = kind(number)?;
        let problem = loaded.problem()?;
        let started = Instant::now();
        let makespans = searched(&problem, seeds)?;
        let seconds = started.elapsed().as_secs_f64() / seeds as f64;
        let found = (problem.graph().task_count() <= 12)
            .then(|| optimum(&problem, &ExactOptions { nodes: 5_000_000, ..ExactOptions::default() }).ok())
            .flatten()
            .filter(|found| found.stop == StopReason::Proven);
        let best =
            found.as_ref().map_or(makespans.iter().copied().fold(f64::INFINITY, f64::min), |f| f.schedule.makespan);
        let ratio = makespans.iter().copied().fold(0.0, f64::max) / best;
        if found.is_some() {
            proven += 1;
            optimal += u32::from(ratio <= 1.0 + ROUNDING);
        }
        println!(
            "{} | {} tasks | {} devices | {} {best:.6} | first {:.6} | mean {:.6} | worst/best {ratio:.4} | {seconds:.2} s | bound {:.4}",
            loaded.name,
            problem.graph().task_count(),
            problem.platform().device_count(),
            if found.is_some() { "optimum" } else { "best" },
            makespans[0],
            makespans.iter().sum::<f64>() / makespans.len() as f64,
            lower_bound(&problem).value / best,
        );
        ratios.push(ratio);
    }
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
    println!("optimal for every seed: {optimal} of {proven} proven; worst/best: mean {mean:.4}, greatest {worst:.4}");
    Ok(())
}

/// Prints the gap of `auto` with the first seed to each bound, and its best makespan over all seeds.
fn gaps(problems: &[LoadedProblem], seeds: u64) -> Result<(), Box<dyn Error>> {
    let mut all = Vec::new();
    for loaded in problems {
        let problem = loaded.problem()?;
        let started = Instant::now();
        let bounds = lower_bounds(&problem);
        let seconds = started.elapsed().as_secs_f64();
        let Ok(makespans) = searched(&problem, seeds) else {
            println!("{} | no placement", loaded.name);
            continue;
        };
        let best = lower_bound(&problem);
        let gap = makespans[0] / best.value - 1.0;
        let each: Vec<String> = bounds.iter().map(|bound| format!("{:.4}", bound.value)).collect();
        println!(
            "{} | {} tasks | {} devices | auto {:.4} | best {:.4} | bounds {} | {} | gap {:.1} % | {seconds:.2} s",
            loaded.name,
            problem.graph().task_count(),
            problem.platform().device_count(),
            makespans[0],
            makespans.iter().copied().fold(f64::INFINITY, f64::min),
            each.join(", "),
            best.kind,
            100.0 * gap
        );
        all.push(gap);
    }
    all.sort_by(f64::total_cmp);
    if let (Some(median), Some(greatest)) = (all.get(all.len() / 2), all.last()) {
        println!("{} problems: median gap {:.1} %, greatest {:.1} %", all.len(), 100.0 * median, 100.0 * greatest);
    }
    Ok(())
}

/// Draws a problem of the kind of the published instances; every third has at most 12 tasks.
fn kind(seed: u64) -> Result<LoadedProblem, Box<dyn Error>> {
    let mut random = Random::new(seed);
    let most = if seed.is_multiple_of(3) { 12 } else { 80 };
    let (name, edges, count) = match random.below(4) {
        0 => chains(&mut random, most),
        1 => tree(&mut random, most, true),
        2 => tree(&mut random, most, false),
        _ => layers(&mut random, most),
    };
    let weight = [0.1, 0.5, 1.0, 2.0, 5.0][random.below(5) as usize];
    let mut builder = GraphBuilder::new();
    for number in 0..count {
        builder.task(Task::new(format!("t{number}")).with_operations(random.uniform(0.5, 10.0)));
    }
    for (from, to) in edges {
        builder.edge(TaskId(from), TaskId(to), (1e6 * weight * random.uniform(0.5, 10.0)) as u64);
    }
    let devices: Vec<Device> = (0..2 + random.below(6))
        .map(|number| Device::new(format!("d{number}"), DeviceKind::Cpu).with_speed(random.uniform(0.5, 4.0)))
        .collect();
    Ok(LoadedProblem::new(
        format!("{name} {seed}"),
        builder.build()?,
        linked(devices, &mut random)?,
        MemoryRule::Ignore,
    ))
}

/// Links every pair of devices at a random rate, equal in both directions.
fn linked(devices: Vec<Device>, random: &mut Random) -> Result<Platform, Box<dyn Error>> {
    let count = devices.len();
    let rates: Vec<f64> = (0..count * count).map(|_| 1e6 * random.uniform(0.5, 4.0)).collect();
    let rate = |from: DeviceId, to: DeviceId| rates[from.0.min(to.0) as usize * count + from.0.max(to.0) as usize];
    Ok(Platform::new(devices, |from, to| (0.0, rate(from, to)))?)
}

type Drawn = (&'static str, Vec<(u32, u32)>, u32);

fn chains(random: &mut Random, most: u32) -> Drawn {
    let mut edges = Vec::new();
    let mut count = 1;
    let mut ends = Vec::new();
    for _ in 0..2 + random.below(4) {
        let mut last = 0;
        for _ in 0..1 + random.below(u64::from(most) / 5) {
            if count + 1 >= most {
                break;
            }
            edges.push((last, count));
            (last, count) = (count, count + 1);
        }
        ends.push(last);
    }
    ends.sort_unstable();
    ends.dedup();
    edges.extend(ends.iter().map(|&end| (end, count)));
    ("chains", edges, count + 1)
}

fn tree(random: &mut Random, most: u32, inwards: bool) -> Drawn {
    let count = most / 2 + random.below(u64::from(most) / 2) as u32;
    let arity = 2 + random.below(2) as u32;
    let edge = |child: u32| {
        let parent = (child - 1) / arity;
        if inwards { (count - 1 - child, count - 1 - parent) } else { (parent, child) }
    };
    (if inwards { "in-tree" } else { "out-tree" }, (1..count).map(edge).collect(), count)
}

fn layers(random: &mut Random, most: u32) -> Drawn {
    let count = most / 2 + random.below(u64::from(most) / 2) as u32;
    let width = [2, 4, 8][random.below(3) as usize].min(count);
    let mut edges = Vec::new();
    for task in width..count {
        let before = task / width * width - width;
        for _ in 0..1 + random.below(3) {
            edges.push((before + random.below(u64::from(width)) as u32, task));
        }
    }
    edges.sort_unstable();
    edges.dedup();
    ("layers", edges, count)
}

/// Draws a profiled network in small: slow CPUs without a limit, fast accelerators whose memory is nearly full or too
/// small, and layers with data that are small next to the work, or large.
fn tight(seed: u64) -> Result<LoadedProblem, Box<dyn Error>> {
    let mut random = Random::new(seed);
    let most = if seed.is_multiple_of(3) { 10 } else { 120 };
    let (name, edges, count) = if random.chance(0.5) { chains(&mut random, most) } else { layers(&mut random, most) };
    let mut builder = GraphBuilder::new();
    let mut total = 0;
    for number in 0..count {
        let memory = 1 + random.below(100);
        total += memory;
        let task = Task::new(format!("t{number}")).with_operations(random.uniform(0.5, 10.0)).with_memory(memory);
        builder.task(task);
    }
    let weight = [0.1, 1.0, 10.0][random.below(3) as usize];
    for (from, to) in edges {
        builder.edge(TaskId(from), TaskId(to), (1e6 * weight * random.uniform(0.5, 10.0)) as u64);
    }
    let accelerators = 1 + random.below(4);
    let each = (total as f64 * random.uniform(0.5, 1.3) / accelerators as f64) as u64 + 100;
    let host = Device::new("host", DeviceKind::Cpu).with_speed([0.1, 0.5][random.below(2) as usize]);
    let fast = (0..accelerators)
        .map(|number| Device::new(format!("gpu{number}"), DeviceKind::Gpu).with_speed(10.0).with_memory(each));
    let platform = linked(std::iter::once(host).chain(fast).collect(), &mut random)?;
    Ok(LoadedProblem::new(format!("{name} {seed}"), builder.build()?, platform, MemoryRule::Resident))
}
