//! CSV files of graphs and devices of the thesis (Laich 2017, section 3.1.1).
//!
//! A graph row is `id, successors;.., predecessors;.., colocated;.., tensor size, operations, memory, {NO|CPU|GPU|TPU},
//! name`. An edge may be listed at either end; the two lists are united. Every task produces one datum of its tensor
//! size for all its successors. A device row is `id, memory, operations per time unit, rate to each device of a higher
//! position;.., kind`. Links are symmetric and have no latency. Files have a heading. Ids may come in any order; tasks
//! and devices are numbered by their ids.

mod write;

pub use write::{write_graph, write_platform};

use super::Refusal;
use crate::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use crate::platform::{Device, DeviceKind, DeviceKinds, Platform};
use std::collections::BTreeMap;
use std::io::Read;

/// Row with its line number.
struct Row {
    line: u64,
    fields: csv::StringRecord,
}

impl Row {
    fn text(&self, column: usize) -> &str {
        self.fields.get(column).unwrap_or("").trim()
    }

    fn number<T: std::str::FromStr>(&self, column: usize, field: &'static str) -> Result<T, Refusal> {
        self.parse(self.text(column), field, "a number")
    }

    fn numbers<T: std::str::FromStr>(&self, column: usize, field: &'static str) -> Result<Vec<T>, Refusal> {
        let parts = self.text(column).split(';').map(str::trim).filter(|part| !part.is_empty());
        parts.map(|part| self.parse(part, field, "numbers with semicolons between them")).collect()
    }

    fn parse<T: std::str::FromStr>(
        &self,
        text: &str,
        field: &'static str,
        expected: &'static str,
    ) -> Result<T, Refusal> {
        text.parse().map_err(|_| self.wrong(field, text, expected))
    }

    fn wrong(&self, field: &'static str, value: &str, expected: &'static str) -> Refusal {
        Refusal::Field { line: self.line, field, value: value.into(), expected }
    }
}

/// Returns all rows except the heading, by id.
fn rows(source: impl Read) -> Result<BTreeMap<u64, Row>, Refusal> {
    let mut reader = csv::ReaderBuilder::new().has_headers(true).flexible(true).from_reader(source);
    let mut rows = BTreeMap::new();
    for record in reader.records() {
        let fields = record?;
        let row = Row { line: fields.position().map_or(0, csv::Position::line), fields };
        let (line, id): (u64, u64) = (row.line, row.number(0, "id")?);
        if rows.insert(id, row).is_some() {
            return Err(Refusal::Twice { place: format!("line {line}"), what: "id", name: id.to_string() });
        }
    }
    Ok(rows)
}

/// Reads a graph. Also returns the tasks' ids in the file, indexed by [`TaskId`].
///
/// # Errors
/// Returns the first row with an error, or an error of the graph as a whole.
pub fn read_graph(source: impl Read) -> Result<(TaskGraph, Vec<u64>), Refusal> {
    let rows = rows(source)?;
    let ids: Vec<u64> = rows.keys().copied().collect();
    let mut builder = GraphBuilder::new();
    let mut data = Vec::with_capacity(ids.len());
    for row in rows.values() {
        let task = builder.task(read_task(row)?);
        data.push(builder.datum(task, row.number(4, "tensor size")?));
    }
    for (place, row) in rows.values().enumerate() {
        let task = TaskId(place as u32);
        for successor in neighbours(row, 1, "a successor", &ids)? {
            builder.consume(data[place], successor);
        }
        for predecessor in neighbours(row, 2, "a predecessor", &ids)? {
            builder.consume(data[predecessor.index()], task);
        }
        for colocated in neighbours(row, 3, "a colocated node", &ids)? {
            builder.colocate(task, colocated);
        }
    }
    Ok((builder.build()?, ids))
}

fn read_task(row: &Row) -> Result<Task, Refusal> {
    let allowed = match row.text(7) {
        "NO" | "" => DeviceKinds::ALL,
        "CPU" => DeviceKinds::CPU,
        "GPU" => DeviceKinds::GPU,
        "TPU" => DeviceKinds::TPU,
        other => return Err(row.wrong("device constraint", other, "NO, CPU, GPU or TPU")),
    };
    let task = Task::new(row.text(8)).with_allowed(allowed);
    Ok(task.with_operations(row.number(5, "operations")?).with_memory(row.number(6, "memory")?))
}

fn neighbours(row: &Row, column: usize, field: &'static str, ids: &[u64]) -> Result<Vec<TaskId>, Refusal> {
    let place = |id: u64| match ids.binary_search(&id) {
        Ok(place) => Ok(TaskId(place as u32)),
        Err(_) => {
            let (place, name) = (format!("line {}: {field}", row.line), id.to_string());
            Err(Refusal::Unknown { place, what: "row of id", name })
        }
    };
    row.numbers(column, field)?.into_iter().map(place).collect()
}

/// Reads a platform.
///
/// # Errors
/// Returns the first row with an error, or an error of the platform as a whole.
pub fn read_platform(source: impl Read) -> Result<Platform, Refusal> {
    let rows = rows(source)?;
    let mut devices = Vec::with_capacity(rows.len());
    let mut rates: Vec<Vec<f64>> = Vec::with_capacity(rows.len());
    for (place, row) in rows.values().enumerate() {
        devices.push(read_device(row)?);
        let higher = row.numbers(3, "rates")?;
        if higher.len() != rows.len() - place - 1 {
            return Err(row.wrong("rates", row.text(3), "one rate for each device of a higher id"));
        }
        rates.push(higher);
    }
    let rate = |one: usize, other: usize| rates[one.min(other)][one.abs_diff(other) - 1];
    Ok(Platform::new(devices, |from, to| (0.0, rate(from.index(), to.index())))?)
}

fn read_device(row: &Row) -> Result<Device, Refusal> {
    let kind = match row.text(4) {
        "CPU" => DeviceKind::Cpu,
        "GPU" => DeviceKind::Gpu,
        "TPU" => DeviceKind::Tpu,
        other => return Err(row.wrong("type", other, "CPU, GPU or TPU")),
    };
    let name = format!("device {}", row.text(0));
    let device = Device::new(name, kind).with_memory(row.number(1, "memory")?);
    Ok(device.with_speed(row.number(2, "speed")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::DeviceId;

    const HEADING: &str = "id,out,in,colocated,tensor,operations,memory,constraint,name\n";

    fn graph(rows: &str) -> Result<(TaskGraph, Vec<u64>), Refusal> {
        read_graph(format!("{HEADING}{rows}").as_bytes())
    }

    #[test]
    fn both_directions_of_an_edge_are_united() {
        let (graph, ids) = graph("30,,,,1,2,3,GPU,sink\n10,20;,,20,4,5,6,NO,source\n20,,10,,7,8,9,,\n").unwrap();
        assert_eq!(ids, [10, 20, 30]);
        assert_eq!(graph.successors(TaskId(0)), [TaskId(1)]);
        assert_eq!(graph.members(graph.unit(TaskId(1))), [TaskId(0), TaskId(1)]);
        assert_eq!(graph.task(TaskId(2)).allowed, DeviceKinds::GPU);
        let source = graph.task(TaskId(0));
        assert_eq!((source.operations, source.memory, graph.bytes(graph.outputs(TaskId(0))[0])), (5.0, 6, 4));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let cases = [
            ("1,2,,,1,1,1,NO,a", "line 2: a successor names the row of id \"2\""),
            ("1,,,,1,1,1,NO,a\n1,,,,1,1,1,NO,b", "line 3: the id \"1\" occurs twice"),
            ("1,,,,-1,1,1,NO,a", "line 2: tensor size is \"-1\""),
            ("1,,,,1,1,1,FPGA,a", "line 2: device constraint is \"FPGA\""),
            ("1,2,,,1,1,1,NO,a\n2,1,,,1,1,1,NO,b", "cycle: b -> a -> b"),
            ("x", "line 2: id is \"x\""),
        ];
        for (rows, expected) in cases {
            let error = graph(rows).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn rates_are_an_upper_triangle() {
        let platform = read_platform("h\n0,100,10,25;50,CPU\n1,100,30,40,GPU\n2,100,40,,TPU\n".as_bytes()).unwrap();
        assert_eq!(platform.rate(DeviceId(2), DeviceId(0)), 50.0);
        assert_eq!(platform.rate(DeviceId(1), DeviceId(2)), 40.0);
        assert_eq!(platform.device(DeviceId(1)).speed, 30.0);
        let short = read_platform("h\n0,100,10,25,CPU\n1,100,30,40,GPU\n2,100,40,,TPU\n".as_bytes());
        assert!(matches!(short, Err(Refusal::Field { line: 2, field: "rates", .. })));
    }
}
