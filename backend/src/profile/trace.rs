//! Traces in the Chrome trace-event format, which <https://ui.perfetto.dev> and `chrome://tracing` open.
//!
//! One track a device and a link; slices on a track never overlap, because a device runs one node at a time and a link
//! moves one tensor at a time. Flows lead from the producer of a tensor over its transfer to its consumer.

use serde::Serialize;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// The process id under which all tracks stand.
const PROCESS: u32 = 1;

/// A trace under construction.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    events: Vec<Value>,
    tracks: u32,
    flows: u32,
}

/// A line of the trace on which slices lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track(u32);

/// Something that took time on a track.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice<'a> {
    /// The track.
    pub track: Track,
    /// What stands on the slice.
    pub name: &'a str,
    /// What kind of thing it is: viewers filter by it.
    pub category: &'a str,
    /// Nanoseconds since the run's start.
    pub start: u64,
    /// Nanoseconds since the run's start, not before `start`.
    pub end: u64,
}

impl Trace {
    /// A trace of a process with this name.
    pub fn new(process: &str) -> Self {
        let mut trace = Self::default();
        trace.metadata("process_name", 0, json!({ "name": process }));
        trace
    }

    /// Adds a track below the ones that are there.
    pub fn track(&mut self, name: &str) -> Track {
        self.tracks += 1;
        let track = self.tracks;
        self.metadata("thread_name", track, json!({ "name": name }));
        self.metadata("thread_sort_index", track, json!({ "sort_index": track }));
        Track(track)
    }

    /// Adds a slice; `arguments` are shown when it is selected.
    pub fn slice(&mut self, slice: Slice<'_>, arguments: Map<String, Value>) {
        let duration = slice.end.saturating_sub(slice.start);
        self.events.push(json!({
            "ph": "X", "pid": PROCESS, "tid": slice.track.0, "name": slice.name, "cat": slice.category,
            "ts": microseconds(slice.start), "dur": microseconds(duration), "args": arguments,
        }));
    }

    /// Adds an arrow from the slice that ends at `(track, time)` to the slice that starts at the other such place.
    pub fn flow(&mut self, from: (Track, u64), to: (Track, u64)) {
        self.flows += 1;
        // A flow's end binds to the slice around it: one nanosecond inside the slice is safely that slice.
        let ends = [("s", from.0, from.1.saturating_sub(1)), ("f", to.0, to.1)];
        for (phase, track, time) in ends {
            self.events.push(json!({
                "ph": phase, "bp": "e", "id": self.flows, "pid": PROCESS, "tid": track.0, "name": "tensor",
                "cat": "flow", "ts": microseconds(time),
            }));
        }
    }

    /// Adds a value of a counter, drawn as a step line under `name`.
    pub fn counter(&mut self, name: &str, time: u64, value: u64) {
        self.events.push(json!({
            "ph": "C", "pid": PROCESS, "tid": 0, "name": name, "ts": microseconds(time), "args": { "value": value },
        }));
    }

    /// Writes the trace as one JSON object.
    ///
    /// # Errors
    /// If `writer` fails.
    pub fn write(&self, writer: impl Write) -> io::Result<()> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct File<'a> {
            display_time_unit: &'static str,
            trace_events: &'a [Value],
        }
        serde_json::to_writer(writer, &File { display_time_unit: "ns", trace_events: &self.events }).map_err(Into::into)
    }

    fn metadata(&mut self, name: &str, track: u32, arguments: Value) {
        self.events.push(json!({ "ph": "M", "pid": PROCESS, "tid": track, "name": name, "args": arguments }));
    }
}

/// The format's unit of time, with nanoseconds as fractions.
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_flows_and_counters_are_written_in_the_format() {
        let mut trace = Trace::new("run");
        let (cpu, link) = (trace.track("cpu0"), trace.track("cpu0 -> gpu0"));
        trace.slice(Slice { track: cpu, name: "conv", category: "node", start: 1_500, end: 4_000 }, Map::new());
        trace.flow((cpu, 4_000), (link, 4_100));
        trace.counter("bytes", 10, 7);
        let mut text = Vec::new();
        trace.write(&mut text).expect("a vector takes all");
        let read: Value = serde_json::from_slice(&text).expect("valid JSON");
        let events = read["traceEvents"].as_array().expect("an array");
        let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).collect::<Vec<_>>();
        assert_eq!((of("M").len(), of("X").len(), of("s").len(), of("f").len(), of("C").len()), (5, 1, 1, 1, 1));
        assert_eq!((&of("X")[0]["ts"], &of("X")[0]["dur"]), (&json!(1.5), &json!(2.5)));
        assert_eq!(of("s")[0]["id"], of("f")[0]["id"]);
        assert_eq!(of("s")[0]["ts"], json!(3.999));
    }
}
