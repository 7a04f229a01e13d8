//! A trace in Chrome's trace-event format, object form: a process for each group, a thread for each track.

use super::{Group, Trace, Track};
use serde_json::{Value, json};
use std::io::{self, Write};

impl Trace {
    /// Writes the trace as JSON in Chrome's format.
    ///
    /// # Errors
    /// If `writer` fails.
    pub fn write_chrome(&self, writer: impl Write) -> io::Result<()> {
        let events: Vec<Value> = self.names().into_iter().chain(self.events()).collect();
        let trace = json!({ "displayTimeUnit": "ns", "otherData": self.facts, "traceEvents": events });
        serde_json::to_writer(writer, &trace).map_err(Into::into)
    }

    /// Returns the names and the order of groups and tracks.
    fn names(&self) -> Vec<Value> {
        let named = |name: &str, (process, thread): (usize, usize), arguments: Value| json!({ "ph": "M", "pid": process, "tid": thread, "name": name, "args": arguments });
        let mut names = Vec::new();
        for (index, name) in self.groups.iter().enumerate() {
            let process = (process(Group(index)), 0);
            names.push(named("process_name", process, json!({ "name": name })));
            names.push(named("process_sort_index", process, json!({ "sort_index": index })));
        }
        for (index, (_, name)) in self.tracks.iter().enumerate() {
            let place = self.place(Track(index));
            names.push(named("thread_name", place, json!({ "name": name })));
            names.push(named("thread_sort_index", place, json!({ "sort_index": index })));
        }
        names
    }

    /// Returns all events, sorted by time. Enclosing slices come before inner ones.
    fn events(&self) -> Vec<Value> {
        let mut events: Vec<(u64, u64, Value)> = Vec::new();
        for slice in &self.slices {
            let (pid, tid) = self.place(slice.track);
            let length = slice.end - slice.start;
            let event = json!({
                "ph": "X", "pid": pid, "tid": tid, "name": slice.name, "cat": slice.category,
                "ts": microseconds(slice.start), "dur": microseconds(length), "args": slice.arguments,
            });
            events.push((slice.start, u64::MAX - length, event));
        }
        for (id, flow) in self.flows.iter().enumerate() {
            for (phase, (track, time)) in [("s", flow.from), ("f", flow.to)] {
                let (pid, tid) = self.place(track);
                let mut event = json!({
                    "ph": phase, "id": id + 1, "pid": pid, "tid": tid, "name": flow.name, "cat": "flow",
                    "ts": microseconds(time),
                });
                if phase == "f" {
                    event["bp"] = "e".into();
                }
                events.push((time, u64::MAX, event));
            }
        }
        for counter in &self.counters {
            let (pid, _) = self.place(counter.track);
            let name = format!("{} of {}", counter.name, self.tracks[counter.track.0].1);
            for &[time, value] in &counter.samples {
                let event = json!({
                    "ph": "C", "pid": pid, "tid": 0, "name": name, "ts": microseconds(time), "args": { "value": value },
                });
                events.push((time, u64::MAX, event));
            }
        }
        events.sort_by_key(|(time, rank, _)| (*time, *rank));
        events.into_iter().map(|(_, _, event)| event).collect()
    }

    fn place(&self, track: Track) -> (usize, usize) {
        (process(self.tracks[track.0].0), track.0 + 1)
    }
}

fn process(group: Group) -> usize {
    group.0 + 1
}

/// Converts nanoseconds to microseconds, the format's unit of time.
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
