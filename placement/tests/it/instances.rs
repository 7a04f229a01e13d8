//! Random small problems for property tests: up to 60 tasks on up to 4 devices, with all kinds of constraints.

use anabranch_placement::cost::CostTable;
use anabranch_placement::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use anabranch_placement::platform::{Device, DeviceId, DeviceKind, DeviceKinds, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use arbtest::arbitrary::{Result, Unstructured};

/// Parts of a problem, which may turn out to have no solution.
pub(crate) struct Instance {
    pub(crate) graph: TaskGraph,
    pub(crate) platform: Platform,
    times: Vec<Option<f64>>,
    rule: MemoryRule,
}

impl Instance {
    /// Draws an instance; `None` if colocations contradict each other.
    pub(crate) fn draw(random: &mut Unstructured<'_>) -> Result<Option<Instance>> {
        let platform = draw_platform(random)?;
        let Some(graph) = draw_graph(random, &platform)? else { return Ok(None) };
        let rule = *random.choose(&[MemoryRule::SizeEstimate, MemoryRule::Resident, MemoryRule::Ignore])?;
        let mut times = Vec::new();
        for _ in 0..graph.task_count() * platform.device_count() {
            times.push(if random.ratio(1, 25)? { None } else { Some(f64::from(random.int_in_range(0..=12u8)?) / 4.0) });
        }
        Ok(Some(Instance { graph, platform, times, rule }))
    }

    /// Calls `check` with the problem, if every unit alone has a solution.
    pub(crate) fn with_problem<T>(&self, check: impl FnOnce(&Problem<'_>) -> T) -> Option<T> {
        let devices = self.platform.device_count();
        let time = |task: TaskId, device: DeviceId| self.times[task.index() * devices + device.index()];
        let costs = CostTable::from_fn(&self.graph, &self.platform, time).unwrap();
        Problem::new(&self.graph, &self.platform, &costs, self.rule).ok().map(|problem| check(&problem))
    }
}

fn draw_platform(random: &mut Unstructured<'_>) -> Result<Platform> {
    let mut devices = Vec::new();
    for number in 0..random.int_in_range(1..=4u8)? {
        let kind = *random.choose(&[DeviceKind::Cpu, DeviceKind::Gpu, DeviceKind::Tpu])?;
        let device = Device::new(format!("d{number}"), kind).with_speed(f64::from(random.int_in_range(1..=4u8)?));
        let limited = number > 0 && random.ratio(1, 3)?;
        devices.push(if limited { device.with_memory(random.int_in_range(20..=400)?) } else { device });
    }
    let mut links = Vec::new();
    for _ in 0..devices.len() * devices.len() {
        links.push((f64::from(random.int_in_range(0..=3u8)?) / 2.0, f64::from(random.int_in_range(1..=20u8)?)));
    }
    let count = devices.len();
    Ok(Platform::new(devices, |from, to| links[from.index() * count + to.index()]).unwrap())
}

fn draw_graph(random: &mut Unstructured<'_>, platform: &Platform) -> Result<Option<TaskGraph>> {
    let mut builder = GraphBuilder::new();
    let count = random.int_in_range(0..=60u32)?;
    for number in 0..count {
        let mut task = Task::new(format!("t{number}")).with_memory(random.int_in_range(0..=9)?);
        let some_device = DeviceId(random.int_in_range(0..=platform.device_count() as u32 - 1)?);
        if random.ratio(1, 8)? {
            task = task.with_allowed(DeviceKinds::from(platform.device(some_device).kind));
        } else if random.ratio(1, 12)? {
            task = task.with_pin(some_device);
        }
        builder.task(task);
    }
    for producer in 0..count {
        for _ in 0..random.int_in_range(0..=2u8)? {
            let datum = builder.datum(TaskId(producer), random.int_in_range(0..=40)?);
            for _ in 0..random.int_in_range(0..=3u8)? {
                let consumer = random.int_in_range(producer..=count - 1)?;
                if consumer > producer {
                    builder.consume(datum, TaskId(consumer));
                }
            }
        }
    }
    for _ in 0..count / 10 {
        if random.ratio(1, 2)? {
            let mut any = || random.int_in_range(0..=count - 1).map(TaskId);
            builder.colocate(any()?, any()?);
        }
    }
    Ok(builder.build().ok())
}
