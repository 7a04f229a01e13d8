//! Computes for task graphs the fewest devices of their platform, or the fewest cores and alike devices, with bounds.

use super::super::args::{named_once, refuse_given};
use super::super::interrupt::end_on_interrupt;
use super::super::simulate::on_devices;
use super::super::{CliError, Output, write_with};
use super::{CORES, FitCommand, Goal};
use anabranch::device::format_bytes;
use anabranch::files;
use anabranch_placement::evaluate::memory_over_time;
use anabranch_placement::footprint::check::{check_cores, check_devices, check_partitioning};
use anabranch_placement::footprint::{
    Capacity, FewestCores, FewestDevices, FewestPartitions, FootprintError, LiveBytes, Part, Partitioning, Problem,
    best_schedule, fewest_cores, fewest_devices, fewest_of_platform, fewest_partitions, live_bytes, zero_and_merge,
};
use anabranch_placement::format::{Format, Loaded, LoadedProblem, detect, parse};
use anabranch_placement::logical::{self, PhysicalGraph, Workload};
use anabranch_placement::pipeline::Link;
use anabranch_placement::place::{Auto, Placer};
use anabranch_placement::quoted::Line;
use anabranch_report::table::Table;
use anabranch_report::text::count;
use anabranch_report::trial::{TrialError, nanoseconds, strategy, with_unit};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Most partitions that are listed, the greatest first.
const MOST_PARTS: usize = 20;
/// Placements that `auto` simulates for each set of devices: few, because there are many sets.
const SEARCHED: u64 = 1000;

pub(super) struct Graph<'c> {
    pub(super) path: &'c Path,
    pub(super) command: &'c FitCommand,
    pub(super) goal: Goal,
}

/// A graph without devices.
struct Alone {
    name: String,
    workload: Workload,
    time_unit: Option<String>,
    /// Physical graph from which it was made.
    physical: Option<PhysicalGraph>,
}

impl Graph<'_> {
    pub(super) fn run(&self, output: Output) -> Result<(), CliError> {
        end_on_interrupt()?;
        if let Some(devices) = &self.command.devices_file {
            return self.on_only(&on_devices(self.path, devices)?, output);
        }
        let name = self.path.display().to_string();
        let bytes = files::read(self.path, files::MOST_BYTES).map_err(|error| CliError::in_file(self.path, error))?;
        let refused = |error| CliError::in_file(self.path, error);
        if detect(&bytes).map_err(refused)? == Format::Logical {
            let physical = logical::parse(&name, &bytes).and_then(|graph| graph.unroll()).map_err(refused)?;
            let workload = physical.workload(self.command.alike.data_cores.unwrap_or(0)).map_err(refused)?;
            return self.on_alike(&Alone { name, workload, time_unit: None, physical: Some(physical) }, output);
        }
        match parse(&name, &bytes)? {
            Loaded::Graph(loaded) => {
                self.command.alike.refuse_logical("a graph that is not logical")?;
                let times = loaded.graph.tasks().iter().map(|task| task.operations).collect();
                let workload = Workload { cores: vec![1; loaded.graph.task_count()], times, graph: loaded.graph };
                self.on_alike(&Alone { name, workload, time_unit: loaded.time_unit, physical: None }, output)
            }
            Loaded::Problems(problems) => self.on_only(&problems, output),
            _ => Err(CliError::input(format!("{name} does not hold a graph; name the graph first, then the devices"))),
        }
    }

    /// Solves the problem of a file that holds only one.
    fn on_only(&self, problems: &[LoadedProblem], output: Output) -> Result<(), CliError> {
        match problems {
            [one] => self.on_platform(one, output),
            several => {
                let (name, count) = (self.path.display(), several.len());
                Err(CliError::input(format!("{name} has {count} problems; copy one of them into a separate file")))
            }
        }
    }

    /// Returns the deadline in a graph's unit of time.
    fn deadline(&self, best: f64, unit: Option<&str>) -> Result<f64, CliError> {
        let millisecond = nanoseconds(unit).map(|unit| 1e6 / unit);
        let millisecond = match (self.goal, millisecond, unit) {
            (_, Some(millisecond), _) => millisecond,
            // If the graph does not name its unit, the deadline is in that unit.
            (Goal::Within(_), ..) | (.., None) => 1.0,
            (Goal::Deadline(_), None, Some(unit)) => {
                return Err(self.about(format!(
                    "--deadline is in milliseconds, but the graph's time unit {unit:?} is not one of s, ms, us, \
                     µs and ns; use --within instead"
                )));
            }
        };
        Ok(self.goal.deadline(best, millisecond))
    }

    fn about(&self, error: impl std::fmt::Display) -> CliError {
        CliError::in_file(self.path, error)
    }

    /// Finds the fewest devices of the graph's platform.
    fn on_platform(&self, loaded: &LoadedProblem, output: Output) -> Result<(), CliError> {
        self.command.alike.refuse("a graph with devices of its own")?;
        let mut loaded = loaded.clone();
        self.command.rules.apply(&mut loaded);
        for (name, bytes) in named_once("--memory", &self.command.devices.memory)? {
            if !loaded.platform.limit(&name, bytes) {
                let known: Vec<_> = loaded.platform.devices().iter().map(|device| device.name.as_str()).collect();
                return Err(
                    self.about(format!("--memory: there is no device {name}; the devices are {}", known.join(", ")))
                );
            }
        }
        let problem = self.command.rules.problem(&loaded).map_err(|error| self.about(error))?;
        let auto = Auto { evaluations: Some(SEARCHED), seed: 0 };
        let placers = self.command.place.iter().map(|name| strategy(name, auto));
        let placers = placers.collect::<Result<Vec<Box<dyn Placer>>, TrialError>>()?;
        let placers: Vec<&dyn Placer> = placers.iter().map(AsRef::as_ref).collect();
        let best = best_schedule(&problem, &placers);
        let best =
            best.ok_or_else(|| self.about("no strategy finds a placement; name other strategies with --place"))?;
        let reached = best.1.makespan;
        let unit = loaded.facts.time_unit.as_deref();
        let deadline = self.deadline(reached, unit)?;
        let subset = fewest_of_platform(&problem, best, deadline, &placers).ok_or_else(|| {
            let (deadline, reached) = (with_unit(unit, deadline), with_unit(unit, reached));
            self.about(format!("no strategy meets {deadline}; the best takes {reached} on all devices"))
        })?;
        let memory = memory_over_time(&problem, &subset.schedule);
        let busy = subset.schedule.busy(problem.platform().device_count());
        let peaks: Vec<u64> = memory.iter().map(|held| held.iter().map(|held| held.bytes).max().unwrap_or(0)).collect();
        let live = live_bytes(&loaded.graph).map_err(|error| self.about(error))?;
        let devices = subset.devices.iter().map(|&device| {
            let place = device.index();
            json!({"name": loaded.platform.device(device).name, "busy": busy[place], "peak_memory": peaks[place]})
        });
        let value = json!({
            "graph": loaded.name, "tasks": loaded.graph.task_count(), "platform_devices": problem.platform().device_count(),
            "time_unit": unit, "best": reached, "deadline": deadline, "devices": devices.collect::<Vec<_>>(),
            "bound": subset.bound, "strategy": subset.strategy, "makespan": subset.schedule.makespan, "live_bytes": live,
        });
        let text = || {
            let mut table = Table::new("device | >busy | >of the makespan | >peak memory");
            for &device in &subset.devices {
                let share = 100.0 * busy[device.index()] / subset.schedule.makespan.max(f64::MIN_POSITIVE);
                table.row([
                    loaded.platform.device(device).name.clone(),
                    with_unit(unit, busy[device.index()]),
                    format!("{share:.1} %"),
                    format_bytes(peaks[device.index()]),
                ]);
            }
            format!(
                "{}: {}; {} on all {}, at most {}\n\n{} of them do, by {}, in {}; {} at least are needed\n\n{table}{}",
                Line(&loaded.name),
                count(loaded.graph.task_count(), "task"),
                with_unit(unit, reached),
                count(problem.platform().device_count(), "device"),
                with_unit(unit, deadline),
                subset.devices.len(),
                subset.strategy,
                with_unit(unit, subset.schedule.makespan),
                subset.bound,
                live_text(&live),
            )
        };
        output.text_or_json(text, &value)
    }

    /// Finds the fewest cores and alike devices.
    fn on_alike(&self, alone: &Alone, output: Output) -> Result<(), CliError> {
        let alike = &self.command.alike;
        let named = !self.command.devices.memory.is_empty();
        refuse_given(&[(named, "--memory", "use --device-memory")], "devices without names")?;
        let capacity = Capacity { cores: alike.cores.unwrap_or(CORES), memory: alike.device_memory };
        let usual = if alone.physical.is_some() { 1.0 } else { f64::INFINITY };
        let link = Link { latency: alike.latency.unwrap_or(0.0), bandwidth: alike.bandwidth.unwrap_or(usual) };
        let Workload { graph, cores, times } = &alone.workload;
        let problem =
            Problem::new(graph, cores.clone(), times.clone(), capacity, link).map_err(|error| self.about(error))?;
        let path = problem.longest_path(|_, _| false);
        let unit = alone.time_unit.as_deref();
        let deadline = self.deadline(path, unit)?;
        let answers = Answers::new(&problem, deadline).map_err(|error| self.about(error))?;
        if let Some(wrong) = answers.wrong(&problem) {
            return Err(CliError::internal(format!("the checker rejects a result: {wrong}")));
        }
        if let (Some(path), Some(physical)) = (&alike.physical, &alone.physical) {
            write_with(path, |file| physical.write(Some(&answers.zeroed), file).map_err(std::io::Error::other))?;
        }
        let live = live_bytes(graph).map_err(|error| self.about(error))?;
        let mut value = answers.json();
        value["graph"] = json!(alone.name);
        value["tasks"] = json!(graph.task_count());
        value["time_unit"] = json!(unit);
        value["live_bytes"] = json!(live);
        value["work"] = json!(problem.work());
        value["longest_path"] = json!(path);
        value["deadline"] = json!(deadline);
        value["cores_a_device"] = json!(capacity.cores);
        let text = || {
            format!(
                "{}: {}, longest path {}, work {} core × time; at most {}\n\n{}{}",
                alone.name,
                count(graph.task_count(), "task"),
                with_unit(unit, path),
                anabranch_report::text::amount(problem.work()),
                with_unit(unit, deadline),
                answers.text(unit, capacity.cores),
                live_text(&live),
            )
        };
        output.text_or_json(text, &value)
    }
}

/// Results on alike devices.
struct Answers {
    parallelism: u64,
    zeroed: Partitioning,
    cores: FewestCores,
    partitions: Result<FewestPartitions, FootprintError>,
    devices: Result<FewestDevices, FootprintError>,
}

impl Answers {
    fn new(problem: &Problem<'_>, deadline: f64) -> Result<Self, FootprintError> {
        let cores = fewest_cores(problem, deadline)?;
        let [zeroed, merged] = zero_and_merge(problem);
        let devices = fewest_devices(problem, &merged, deadline);
        let partitions = fewest_partitions(problem, merged, deadline);
        Ok(Answers { parallelism: problem.parallelism(), zeroed, cores, partitions, devices })
    }

    /// Returns the first violation that the checker finds.
    fn wrong(&self, problem: &Problem<'_>) -> Option<String> {
        let mut violations = check_partitioning(problem, &self.zeroed);
        if let Ok(partitions) = &self.partitions {
            violations.extend(check_partitioning(problem, &partitions.partitioning));
        }
        if let Ok(devices) = &self.devices {
            violations.extend(check_devices(problem, devices));
        }
        violations.extend(check_cores(problem, &self.cores));
        violations.first().map(ToString::to_string)
    }

    fn json(&self) -> Value {
        let partitions = match &self.partitions {
            Ok(found) => json!({"count": found.partitioning.parts.len(), "bound": found.bound,
                "completion": found.partitioning.completion, "movement": found.partitioning.movement}),
            Err(error) => json!({"none": error.to_string()}),
        };
        let devices = match &self.devices {
            Ok(found) => json!({"count": found.devices, "bound": found.bound, "makespan": found.timetable.makespan,
                "device_of": found.timetable.device_of}),
            Err(error) => json!({"none": error.to_string()}),
        };
        json!({
            "parallelism": self.parallelism,
            "cores": {"count": self.cores.cores, "bound": self.cores.bound, "makespan": self.cores.timetable.makespan},
            "partitions": partitions,
            "devices": devices,
            "zeroed": self.zeroed,
        })
    }

    fn text(&self, unit: Option<&str>, cores_a_device: u64) -> String {
        let mut table = Table::new("what | >fewest | >no fewer than | >ends after");
        table.row([
            "cores of one device".into(),
            self.cores.cores.to_string(),
            self.cores.bound.to_string(),
            with_unit(unit, self.cores.timetable.makespan),
        ]);
        let mut notes = String::new();
        let mut none = |error: &FootprintError| {
            let error = format!("{error}\n");
            notes.push_str(if notes.ends_with(&error) { "" } else { &error });
            ["none".into(), String::new(), String::new()]
        };
        let [number, bound, end] = match &self.devices {
            Ok(found) => {
                [found.devices.to_string(), found.bound.to_string(), with_unit(unit, found.timetable.makespan)]
            }
            Err(error) => none(error),
        };
        let devices = format!("devices of {}", count(cores_a_device, "core"));
        table.row([devices, number, bound, end]);
        let [number, bound, end] = match &self.partitions {
            Ok(found) => {
                let partitioning = &found.partitioning;
                [
                    partitioning.parts.len().to_string(),
                    found.bound.to_string(),
                    with_unit(unit, partitioning.completion),
                ]
            }
            Err(error) => none(error),
        };
        table.row(["partitions in which none waits".into(), number, bound, end]);
        let mut text = format!("{table}{notes}\nat most {} cores work at a time, in any order\n", self.parallelism);
        let zeroed = &self.zeroed;
        let _ = writeln!(
            text,
            "edge zeroing alone: {}, {} moved, ends after {}",
            count(zeroed.parts.len(), "partition"),
            format_bytes(zeroed.movement),
            with_unit(unit, zeroed.completion),
        );
        let mut parts: Vec<(usize, &Part)> = zeroed.parts.iter().enumerate().collect();
        parts.sort_by_key(|(place, part)| (std::cmp::Reverse(part.tasks.len()), *place));
        let mut table = Table::new("partition | >tasks | >cores at a time | >memory");
        for (place, part) in parts.iter().take(MOST_PARTS) {
            table.row([
                place.to_string(),
                part.tasks.len().to_string(),
                part.parallelism.to_string(),
                format_bytes(part.memory),
            ]);
        }
        let _ = write!(text, "\n{table}");
        if parts.len() > MOST_PARTS {
            let _ = writeln!(text, "  … and {} smaller; --json lists all", parts.len() - MOST_PARTS);
        }
        text
    }
}

fn live_text(live: &LiveBytes) -> String {
    let [least, most] = [live.each_order, live.any_order].map(format_bytes);
    format!("\ndata take {least} at least and {most} at most, in any order\n")
}
