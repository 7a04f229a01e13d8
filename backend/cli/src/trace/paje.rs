//! A trace in the Paje format, version 1.3: events that say in their head which fields they have. The containers are the run, in it
//! the groups, in them the tracks; slices are states, flows are links, counters are variables.

use super::{Trace, Track};
use std::fmt::Write as _;
use std::io::{self, Write};

/// The kinds of events, each numbered by its place: name, then fields and their types.
const DEFINITIONS: [(&str, &[(&str, &str)]); 12] = [
    ("PajeDefineContainerType", &[("Alias", "string"), ("Type", "string"), ("Name", "string")]),
    ("PajeDefineStateType", &[("Alias", "string"), ("Type", "string"), ("Name", "string")]),
    ("PajeDefineVariableType", &[("Alias", "string"), ("Type", "string"), ("Name", "string"), ("Color", "color")]),
    (
        "PajeDefineLinkType",
        &[
            ("Alias", "string"),
            ("Type", "string"),
            ("StartContainerType", "string"),
            ("EndContainerType", "string"),
            ("Name", "string"),
        ],
    ),
    ("PajeDefineEntityValue", &[("Alias", "string"), ("Type", "string"), ("Name", "string"), ("Color", "color")]),
    (
        "PajeCreateContainer",
        &[("Time", "date"), ("Alias", "string"), ("Type", "string"), ("Container", "string"), ("Name", "string")],
    ),
    ("PajeDestroyContainer", &[("Time", "date"), ("Type", "string"), ("Name", "string")]),
    (
        "PajePushState",
        &[("Time", "date"), ("Type", "string"), ("Container", "string"), ("Value", "string"), ("What", "string")],
    ),
    ("PajePopState", &[("Time", "date"), ("Type", "string"), ("Container", "string")]),
    ("PajeSetVariable", &[("Time", "date"), ("Type", "string"), ("Container", "string"), ("Value", "double")]),
    (
        "PajeStartLink",
        &[
            ("Time", "date"),
            ("Type", "string"),
            ("Container", "string"),
            ("StartContainer", "string"),
            ("Value", "string"),
            ("Key", "string"),
        ],
    ),
    (
        "PajeEndLink",
        &[
            ("Time", "date"),
            ("Type", "string"),
            ("Container", "string"),
            ("EndContainer", "string"),
            ("Value", "string"),
            ("Key", "string"),
        ],
    ),
];

/// Numbers of the kinds of events.
mod kind {
    pub(super) const CONTAINER_TYPE: usize = 0;
    pub(super) const STATE_TYPE: usize = 1;
    pub(super) const VARIABLE_TYPE: usize = 2;
    pub(super) const LINK_TYPE: usize = 3;
    pub(super) const VALUE: usize = 4;
    pub(super) const CREATE: usize = 5;
    pub(super) const DESTROY: usize = 6;
    pub(super) const PUSH: usize = 7;
    pub(super) const POP: usize = 8;
    pub(super) const SET: usize = 9;
    pub(super) const START_LINK: usize = 10;
    pub(super) const END_LINK: usize = 11;
}

/// Colours of the values of states, as far as they go, then again.
const COLOURS: [&str; 8] = [
    "0.00 0.45 0.70",
    "0.90 0.62 0.00",
    "0.00 0.62 0.45",
    "0.80 0.47 0.65",
    "0.34 0.71 0.91",
    "0.84 0.37 0.00",
    "0.72 0.66 0.00",
    "0.55 0.55 0.55",
];

impl Trace {
    /// Writes the trace as text. Times are seconds with nine decimals, ascending.
    ///
    /// # Errors
    /// If `writer` fails.
    pub(crate) fn write_paje(&self, mut writer: impl Write) -> io::Result<()> {
        let mut text = String::new();
        for (number, (name, fields)) in DEFINITIONS.iter().enumerate() {
            // Writing into a String cannot fail.
            let _ = writeln!(text, "%EventDef {name} {number}");
            fields.iter().for_each(|(field, kind)| {
                let _ = writeln!(text, "% {field} {kind}");
            });
            text.push_str("%EndEventDef\n");
        }
        let mut lines = Lines { text };
        let end = self.last();
        self.types(&mut lines);
        self.containers(&mut lines);
        self.happenings(&mut lines);
        for (index, _) in self.tracks.iter().enumerate() {
            lines.put(kind::DESTROY, &[&seconds(end), "track", &track(Track(index))]);
        }
        for (index, _) in self.groups.iter().enumerate() {
            lines.put(kind::DESTROY, &[&seconds(end), "group", &format!("g{index}")]);
        }
        lines.put(kind::DESTROY, &[&seconds(end), "run", "r"]);
        writer.write_all(lines.text.as_bytes())
    }

    fn types(&self, lines: &mut Lines) {
        lines.put(kind::CONTAINER_TYPE, &["run", "0", "run"]);
        lines.put(kind::CONTAINER_TYPE, &["group", "run", "group"]);
        lines.put(kind::CONTAINER_TYPE, &["track", "group", "track"]);
        lines.put(kind::STATE_TYPE, &["state", "track", "state"]);
        lines.put(kind::LINK_TYPE, &["flow", "run", "track", "track", "tensor"]);
        for (alias, name) in self.counter_names().iter().enumerate() {
            lines.put(kind::VARIABLE_TYPE, &[&format!("v{alias}"), "track", name, COLOURS[alias % COLOURS.len()]]);
        }
        for (number, value) in self.values().iter().enumerate() {
            lines.put(kind::VALUE, &[&format!("s{number}"), "state", value, COLOURS[number % COLOURS.len()]]);
        }
    }

    fn containers(&self, lines: &mut Lines) {
        lines.put(kind::CREATE, &[&seconds(0), "r", "run", "0", "run"]);
        for (index, group) in self.groups.iter().enumerate() {
            lines.put(kind::CREATE, &[&seconds(0), &format!("g{index}"), "group", "r", group]);
        }
        for (index, info) in self.tracks.iter().enumerate() {
            let group = format!("g{}", info.group.0);
            lines.put(kind::CREATE, &[&seconds(0), &track(Track(index)), "track", &group, &info.name]);
        }
    }

    /// Everything that has a time, by it; what has the same, in the order of its track.
    fn happenings(&self, lines: &mut Lines) {
        let values = self.values();
        let mut happenings: Vec<(u64, Lines)> = Vec::new();
        let mut note = |time: u64, number: usize, fields: &[&str]| {
            let mut line = Lines::default();
            line.put(number, &[&[seconds(time).as_str()], fields].concat());
            happenings.push((time, line));
        };
        let mut slices: Vec<_> = self.slices.iter().collect();
        slices.sort_by_key(|slice| (slice.start, u64::MAX - slice.end));
        let mut open: Vec<Vec<u64>> = vec![Vec::new(); self.tracks.len()];
        for slice in slices {
            let (place, open) = (track(slice.track), &mut open[slice.track.0]);
            while let Some(end) = open.pop_if(|end| *end <= slice.start) {
                note(end, kind::POP, &["state", &place]);
            }
            let value = values.iter().position(|value| *value == state(slice)).unwrap_or_default();
            note(slice.start, kind::PUSH, &["state", &place, &format!("s{value}"), &slice.name]);
            open.push(slice.end);
        }
        for (index, open) in open.iter().enumerate() {
            open.iter().rev().for_each(|end| note(*end, kind::POP, &["state", &track(Track(index))]));
        }
        for (key, flow) in self.flows.iter().enumerate() {
            let key = key.to_string();
            note(flow.from.1, kind::START_LINK, &["flow", "r", &track(flow.from.0), &flow.name, &key]);
            note(flow.to.1, kind::END_LINK, &["flow", "r", &track(flow.to.0), &flow.name, &key]);
        }
        let names = self.counter_names();
        for counter in &self.counters {
            let alias = names.iter().position(|name| *name == counter.name).unwrap_or_default();
            for (time, value) in &counter.samples {
                note(*time, kind::SET, &[&format!("v{alias}"), &track(counter.track), &value.to_string()]);
            }
        }
        happenings.sort_by_key(|(time, _)| *time);
        happenings.into_iter().for_each(|(_, line)| lines.text.push_str(&line.text));
    }

    /// The states that occur.
    fn values(&self) -> Vec<&str> {
        let mut values: Vec<&str> = self.slices.iter().map(state).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    fn counter_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.counters.iter().map(|counter| counter.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// When nothing happens any more.
    fn last(&self) -> u64 {
        let samples = self.counters.iter().filter_map(|counter| counter.samples.last()).map(|sample| sample.0);
        self.slices
            .iter()
            .map(|slice| slice.end)
            .chain(self.flows.iter().map(|flow| flow.to.1))
            .chain(samples)
            .max()
            .unwrap_or(0)
    }
}

/// The value of a slice's state: the op of a node, else its category. Few values make a legend that can be read.
fn state(slice: &super::SliceInfo) -> &str {
    slice.arguments.get("op_name").and_then(|op| op.as_str()).unwrap_or(slice.category)
}

fn track(track: Track) -> String {
    format!("t{}", track.0)
}

fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

/// Lines of the file.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    /// A line with an event of this kind. Names and colours are in quotes, which no text can leave, and never empty: `pj_dump`
    /// miscounts the fields of a line with an empty one.
    fn put(&mut self, number: usize, fields: &[&str]) {
        let _ = write!(self.text, "{number}");
        for (field, (name, kind)) in fields.iter().zip(DEFINITIONS[number].1) {
            let bare = matches!(*kind, "date" | "double") || matches!(*name, "Alias" | "Type" | "Container" | "Key");
            match bare {
                true => {
                    let _ = write!(self.text, " {field}");
                }
                false => {
                    let safe = |c: char| {
                        if c == '"' {
                            '\''
                        } else if c.is_control() {
                            ' '
                        } else {
                            c
                        }
                    };
                    let safe: String = field.chars().map(safe).collect();
                    let _ = write!(self.text, " \"{}\"", if safe.is_empty() { "?" } else { &safe });
                }
            }
        }
        self.text.push('\n');
    }
}
