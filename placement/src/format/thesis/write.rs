//! Writing of the CSV files of the thesis.

use crate::format::WriteError;
use crate::graph::{TaskGraph, TaskId};
use crate::platform::{DeviceKind, DeviceKinds, Platform};
use std::io::Write;

const GRAPH_HEADING: [&str; 9] = [
    "Id",
    "(Outgoing) node",
    "(Incoming) node",
    "Colocation nodes",
    "#tensorSize",
    "#operations",
    "RAM storage",
    "Device constraint",
    "name",
];
const PLATFORM_HEADING: [&str; 5] = ["Id", "RAM", "#operations", "communication speed", "type"];

fn no_place(what: String) -> WriteError {
    WriteError::Unrepresentable { format: "the CSV of Laich 2017", what }
}

/// Writes a graph; tasks are numbered from 0.
///
/// Reading it again gives an equal graph, with two exceptions. Tasks without outputs get a datum of size 0 without
/// consumers, and names lose blanks at their ends.
///
/// # Errors
/// Returns an error if the target fails, or for a task that produces several data, is pinned, or allows a set of kinds
/// that the format cannot express.
pub fn write_graph(graph: &TaskGraph, target: impl Write) -> Result<(), WriteError> {
    let mut writer = csv::Writer::from_writer(target);
    writer.write_record(GRAPH_HEADING)?;
    for id in graph.task_ids() {
        let task = graph.task(id);
        if task.pinned.is_some() {
            return Err(no_place(format!("the pin of task {:?}", task.name)));
        }
        let size = match graph.outputs(id) {
            [] => 0,
            &[datum] => graph.bytes(datum),
            several => return Err(no_place(format!("the {} data of task {:?}", several.len(), task.name))),
        };
        let others: Vec<TaskId> =
            graph.members(graph.unit(id)).iter().copied().filter(|&member| member != id).collect();
        writer.write_record([
            id.0.to_string(),
            joined(graph.successors(id)),
            joined(graph.predecessors(id)),
            joined(&others),
            size.to_string(),
            task.operations.to_string(),
            task.memory.to_string(),
            constraint(task.allowed).ok_or_else(|| no_place(format!("the kinds of task {:?}", task.name)))?.into(),
            task.name.clone(),
        ])?;
    }
    Ok(writer.flush()?)
}

fn joined(tasks: &[TaskId]) -> String {
    tasks.iter().map(|task| task.0.to_string()).collect::<Vec<_>>().join(";")
}

fn constraint(allowed: DeviceKinds) -> Option<&'static str> {
    match allowed {
        DeviceKinds::ALL => Some("NO"),
        DeviceKinds::CPU => Some("CPU"),
        DeviceKinds::GPU => Some("GPU"),
        DeviceKinds::TPU => Some("TPU"),
        _ => None,
    }
}

/// Writes a platform; devices are numbered from 0 and lose their names.
///
/// # Errors
/// Returns an error if the target fails, and for a device without a memory limit or of kind `other`. Also returns an
/// error for a latency, for a link whose directions differ, and for a network.
pub fn write_platform(platform: &Platform, target: impl Write) -> Result<(), WriteError> {
    if platform.network().is_some() {
        return Err(no_place("links that transfers share".into()));
    }
    let mut writer = csv::Writer::from_writer(target);
    writer.write_record(PLATFORM_HEADING)?;
    for id in platform.device_ids() {
        let device = platform.device(id);
        let mut rates = Vec::new();
        for other in platform.device_ids().filter(|other| other.0 > id.0) {
            let link = || format!("{:?} and {:?}", device.name, platform.device(other).name);
            if platform.latency(id, other) > 0.0 || platform.latency(other, id) > 0.0 {
                return Err(no_place(format!("the latency between {}", link())));
            }
            if platform.rate(id, other) != platform.rate(other, id) {
                return Err(no_place(format!("the two rates between {}", link())));
            }
            rates.push(platform.rate(id, other).to_string());
        }
        let kind = match device.kind {
            DeviceKind::Cpu => "CPU",
            DeviceKind::Gpu => "GPU",
            DeviceKind::Tpu => "TPU",
            DeviceKind::Other => return Err(no_place(format!("the kind of device {:?}", device.name))),
        };
        let memory = device.memory.ok_or_else(|| no_place(format!("the unlimited memory of {:?}", device.name)))?;
        let (id, memory, speed) = (id.0.to_string(), memory.to_string(), device.speed.to_string());
        writer.write_record([id, memory, speed, rates.join(";"), kind.into()])?;
    }
    Ok(writer.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::thesis::{read_graph, read_platform};
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceId};

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let rows = "30,,10,20,1,2.5,3,GPU,sink\n10,20,,,4,5,6,NO,\"a, b\"\n20,30,10,,7,8,9,NO,\n";
        let heading = "id,out,in,colocated,tensor,operations,memory,constraint,name\n";
        let (graph, _) = read_graph(format!("{heading}{rows}").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        write_graph(&graph, &mut bytes).unwrap();
        assert_eq!(read_graph(bytes.as_slice()).unwrap().0, graph);

        let platform = read_platform("h\n0,100,10.5,25;50,CPU\n1,100,30,40,GPU\n2,100,40,,TPU\n".as_bytes()).unwrap();
        bytes.clear();
        write_platform(&platform, &mut bytes).unwrap();
        assert_eq!(read_platform(bytes.as_slice()).unwrap(), platform);
    }

    #[test]
    fn what_has_no_place_is_refused_by_name() {
        let refusal = |change: fn(&mut GraphBuilder)| {
            let mut builder = GraphBuilder::new();
            change(&mut builder);
            write_graph(&builder.build().unwrap(), Vec::new()).unwrap_err().to_string()
        };
        let pinned = refusal(|builder| {
            builder.task(Task::new("a").with_pin(DeviceId(0)));
        });
        assert!(pinned.contains("pin of task \"a\""), "{pinned}");
        let kinds = refusal(|builder| {
            builder.task(Task::new("a").with_allowed(DeviceKinds::CPU.union(DeviceKinds::GPU)));
        });
        assert!(kinds.contains("kinds of task \"a\""), "{kinds}");
        let several = refusal(|builder| {
            let task = builder.task(Task::new("a"));
            builder.datum(task, 1);
            builder.datum(task, 1);
        });
        assert!(several.contains("2 data of task \"a\""), "{several}");

        let device = |kind| Device::new("d", kind).with_memory(1);
        let cases = [
            (vec![Device::new("d", DeviceKind::Cpu)], 0.0, "unlimited memory"),
            (vec![device(DeviceKind::Other)], 0.0, "kind"),
            (vec![device(DeviceKind::Cpu); 2], 0.5, "latency"),
        ];
        for (devices, latency, expected) in cases {
            let platform = Platform::uniform(devices, latency, 1.0).unwrap();
            let error = write_platform(&platform, Vec::new()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let devices = vec![device(DeviceKind::Cpu); 2];
        let platform = Platform::new(devices, |from, _| (0.0, f64::from(from.0) + 1.0)).unwrap();
        assert!(write_platform(&platform, Vec::new()).unwrap_err().to_string().contains("two rates"));
    }
}
