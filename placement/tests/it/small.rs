//! Small problems, and a search that tries everything.

use anabranch_placement::check::check_placement;
use anabranch_placement::cost::CostTable;
use anabranch_placement::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use anabranch_placement::platform::{Device, DeviceId, DeviceKind, DeviceKinds, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use arbtest::arbitrary::{Result, Unstructured};

/// Draws a problem of up to `most` tasks on up to three devices with all kinds of constraints; some devices are
/// identical. Calls `check` with it, if every unit alone has a solution.
pub(crate) fn with_problem(random: &mut Unstructured<'_>, most: u32, check: impl FnOnce(&Problem<'_>)) -> Result<()> {
    let platform = draw_platform(random)?;
    let Some(graph) = draw_graph(random, &platform, most)? else { return Ok(()) };
    let uniform = random.ratio(1, 3)?;
    let mut times = Vec::new();
    for _ in 0..graph.task_count() {
        let of_task = f64::from(random.int_in_range(0..=12u8)?);
        for _ in 0..platform.device_count() {
            let own = f64::from(random.int_in_range(0..=12u8)?);
            times.push(if random.ratio(1, 16)? { None } else { Some(if uniform { of_task } else { own }) });
        }
    }
    let time = |task: TaskId, device: DeviceId| times[task.index() * platform.device_count() + device.index()];
    let costs = CostTable::from_fn(&graph, &platform, time).unwrap();
    let rule = *random.choose(&[MemoryRule::SizeEstimate, MemoryRule::Resident, MemoryRule::Ignore])?;
    if let Ok(problem) = Problem::new(&graph, &platform, &costs, rule) {
        check(&problem);
    }
    Ok(())
}

fn draw_platform(random: &mut Unstructured<'_>) -> Result<Platform> {
    let count = random.int_in_range(1..=3u8)?;
    let (alike, limited) = (random.ratio(1, 3)?, random.ratio(1, 2)?);
    let mut devices = Vec::new();
    let mut links = Vec::new();
    for number in 0..count {
        let kind = if alike { DeviceKind::Cpu } else { *random.choose(&[DeviceKind::Cpu, DeviceKind::Gpu])? };
        let device = Device::new(format!("d{number}"), kind);
        devices.push(if limited { device.with_memory(random.int_in_range(10..=40)?) } else { device });
        for _ in 0..count {
            let link = (f64::from(random.int_in_range(0..=2u8)?), f64::from(random.int_in_range(1..=8u8)?));
            links.push(if alike { links.first().copied().unwrap_or(link) } else { link });
        }
    }
    Ok(Platform::new(devices, |from, to| links[from.index() * usize::from(count) + to.index()]).unwrap())
}

fn draw_graph(random: &mut Unstructured<'_>, platform: &Platform, most: u32) -> Result<Option<TaskGraph>> {
    let mut builder = GraphBuilder::new();
    let count = random.int_in_range(0..=most)?;
    for number in 0..count {
        let mut task = Task::new(format!("t{number}")).with_memory(random.int_in_range(0..=9)?);
        let some_device = DeviceId(random.int_in_range(0..=platform.device_count() as u32 - 1)?);
        if random.ratio(1, 6)? {
            task = task.with_allowed(DeviceKinds::from(platform.device(some_device).kind));
        } else if random.ratio(1, 8)? {
            task = task.with_pin(some_device);
        }
        builder.task(task);
    }
    for producer in 0..count {
        for _ in 0..random.int_in_range(0..=2u8)? {
            let datum = builder.datum(TaskId(producer), random.int_in_range(0..=12)?);
            for consumer in producer + 1..count {
                if random.ratio(1, 3)? {
                    builder.consume(datum, TaskId(consumer));
                }
            }
        }
    }
    if count > 1 && random.ratio(1, 2)? {
        let mut any = || random.int_in_range(0..=count - 1).map(TaskId);
        builder.colocate(any()?, any()?);
    }
    Ok(builder.build().ok())
}

/// Returns the least makespan over all placements that the checker accepts and all orders of the tasks. Each task
/// starts as soon as its data and the tasks before it permit. Returns `None` if no placement is accepted.
pub(crate) fn least_makespan(problem: &Problem<'_>) -> Option<f64> {
    let (tasks, devices) = (problem.graph().task_count(), problem.platform().device_count());
    let mut best = None;
    for number in 0..devices.pow(tasks as u32) {
        let place = |task: usize| DeviceId((number / devices.pow(task as u32) % devices) as u32);
        let device_of: Vec<DeviceId> = (0..tasks).map(place).collect();
        if check_placement(problem, &device_of).is_empty() {
            let ends = vec![None; tasks];
            let makespan = least_from(problem, &device_of, &ends, &vec![0.0; devices]);
            best = Some(best.map_or(makespan, |best: f64| best.min(makespan)));
        }
    }
    best
}

/// Tries every task that can be next.
fn least_from(problem: &Problem<'_>, device_of: &[DeviceId], ends: &[Option<f64>], free: &[f64]) -> f64 {
    let graph = problem.graph();
    let mut best = f64::INFINITY;
    for task in graph.task_ids().filter(|task| ends[task.index()].is_none()) {
        let device = device_of[task.index()];
        let mut start = Some(free[device.index()]);
        for &datum in graph.inputs(task) {
            let producer = graph.producer(datum);
            let transfer = problem.transfer_time(graph.bytes(datum), device_of[producer.index()], device);
            start = ends[producer.index()].and_then(|end| Some((end + transfer).max(start?)));
        }
        if let Some(start) = start {
            let (mut ends, mut free) = (ends.to_vec(), free.to_vec());
            let end = start + problem.time(task, device);
            (ends[task.index()], free[device.index()]) = (Some(end), end);
            best = best.min(least_from(problem, device_of, &ends, &free));
        }
    }
    if best.is_finite() { best } else { free.iter().copied().fold(0.0, f64::max) }
}
