//! Assignment files: a JSON map from a task's id to its device's id.

use super::{CliError, read_file, write_file};
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::graph::TaskId;
use anabranch_placement::platform::DeviceId;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The device of each task. A key is the number of a task in the graph's file, or its position from 0 if that file has
/// no numbers. A key may also be the name of a task if no other task has it.
#[derive(Deserialize, Debug, JsonSchema)]
pub(super) struct Assignment(BTreeMap<String, DeviceName>);

/// A device, by its position from 0 or by its name.
#[derive(Deserialize, Debug, JsonSchema)]
#[serde(untagged)]
enum DeviceName {
    Number(u32),
    Name(String),
}

/// Reads the device of every task.
pub(super) fn read(path: &Path, problem: &LoadedProblem) -> Result<Vec<DeviceId>, CliError> {
    let refuse = |message: String| CliError::input(format!("{}: {message}", path.display()));
    let text = read_file(path)?;
    let Assignment(map) = serde_json::from_slice(&text).map_err(|error| {
        refuse(format!("{error}; an assignment is a JSON object from task ids to device ids, such as {{\"0\": 3}}"))
    })?;
    let count = problem.graph.task_count();
    let places = (0..count).map(|place| (number(problem, place), place as u32)).collect();
    let mut device_of = vec![None; count];
    for (name, device) in &map {
        let task = find_task(problem, &places, name).map_err(&refuse)?;
        device_of[task.index()] = Some(find_device(problem, name, device).map_err(&refuse)?);
    }
    let missing = device_of.iter().filter(|device| device.is_none()).count();
    let complete: Option<Vec<DeviceId>> = device_of.iter().copied().collect();
    complete.ok_or_else(|| {
        let first = device_of.iter().position(Option::is_none).unwrap_or(0);
        let name = &problem.graph.task(TaskId(first as u32)).name;
        refuse(format!("tasks without a device: {missing}; the first is {} ({name:?})", number(problem, first)))
    })
}

/// Writes the device of every task, in the order of the tasks, in the format of [`read`].
pub(super) fn write(path: &Path, problem: &LoadedProblem, device_of: &[DeviceId]) -> Result<(), CliError> {
    let line = |(place, device): (usize, &DeviceId)| format!("  \"{}\": {}", number(problem, place), device.0);
    let lines: Vec<String> = device_of.iter().enumerate().map(line).collect();
    write_file(path, format!("{{\n{}\n}}\n", lines.join(",\n")))
}

/// Returns the task of a name. `places` maps the numbers in the graph's file to the positions of tasks.
fn find_task(problem: &LoadedProblem, places: &BTreeMap<u64, u32>, name: &str) -> Result<TaskId, String> {
    if let Some(&place) = name.parse().ok().and_then(|number: u64| places.get(&number)) {
        return Ok(TaskId(place));
    }
    let graph = &problem.graph;
    let mut named = graph.task_ids().filter(|&task| graph.task(task).name == name);
    match (named.next(), named.next()) {
        (Some(task), None) => Ok(task),
        (Some(_), Some(_)) => Err(format!("several tasks are called {name:?}; use the task's number")),
        (None, _) => Err(format!("{:?} has no task {name:?}", problem.name)),
    }
}

/// Returns the number of the task at a position, as the graph's file gives it.
fn number(problem: &LoadedProblem, place: usize) -> u64 {
    problem.facts.task_ids.get(place).copied().unwrap_or(place as u64)
}

fn find_device(problem: &LoadedProblem, task: &str, device: &DeviceName) -> Result<DeviceId, String> {
    let platform = &problem.platform;
    let count = platform.device_count();
    match device {
        DeviceName::Number(number) if platform.contains(DeviceId(*number)) => Ok(DeviceId(*number)),
        DeviceName::Number(number) => Err(format!(
            "task {task:?} is assigned to device {number}, but the devices are 0 to {}",
            count.saturating_sub(1)
        )),
        DeviceName::Name(name) => {
            let found = platform.device_ids().find(|&device| platform.device(device).name == *name);
            found.ok_or_else(|| format!("task {task:?} is assigned to {name:?}, but no device has that name"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_placement::format::{Loaded, parse};
    use anabranch_placement::platform::{Device, DeviceKind, Platform};
    use std::fs;

    fn problem() -> LoadedProblem {
        let rows = "id,out,in,colocated,tensor,operations,memory,constraint,name\n7,9,,,1,2,3,NO,a\n9,,,,1,2,3,NO,b\n";
        let Loaded::Graph(loaded) = parse("g.csv", rows.as_bytes()).expect("a graph") else { panic!("no graph") };
        let devices = vec![Device::new("cpu0", DeviceKind::Cpu), Device::new("gpu0", DeviceKind::Gpu)];
        let platform = Platform::uniform(devices, 0.0, 1.0).expect("a platform");
        let mut problem = LoadedProblem::new("g", loaded.graph, platform, loaded.memory_rule);
        problem.facts.task_ids = loaded.task_ids;
        problem
    }

    fn read_text(text: &str) -> Result<Vec<u32>, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), text).expect("written");
        let devices = read(file.path(), &problem()).map_err(|error| error.to_string())?;
        Ok(devices.iter().map(|device| device.0).collect())
    }

    #[test]
    fn tasks_go_by_number_or_name_and_devices_too() {
        assert_eq!(read_text("{\"9\": 0, \"7\": 1}"), Ok(vec![1, 0]));
        assert_eq!(read_text("{\"b\": \"cpu0\", \"a\": \"gpu0\"}"), Ok(vec![1, 0]));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("[]", "JSON object"),
            ("{\"9\": 0}", "tasks without a device: 1; the first is 7"),
            ("{\"9\": 0, \"7\": 2}", "devices are 0 to 1"),
            ("{\"9\": 0, \"7\": \"tpu\"}", "no device has that name"),
            ("{\"0\": 0}", "no task \"0\""),
        ];
        for (text, part) in cases {
            let error = read_text(text).expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let devices = [DeviceId(1), DeviceId(0)];
        write(file.path(), &problem(), &devices).expect("written");
        assert_eq!(read(file.path(), &problem()).expect("readable"), devices);
    }
}
