//! A trace in the Paje format, version 1.3: the header of an event kind lists its fields. The containers are the run,
//! in it the groups, and in these the tracks. Slices are states, flows are links, counters are variables.

use super::{Slice, Trace, Track};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::iter;

/// Kinds of events, numbered by position: name, then fields with their types, unless they are strings.
const EVENTS: [(&str, &str); 12] = [
    ("PajeDefineContainerType", "Alias Type Name"),
    ("PajeDefineStateType", "Alias Type Name"),
    ("PajeDefineVariableType", "Alias Type Name Color:color"),
    ("PajeDefineLinkType", "Alias Type StartContainerType EndContainerType Name"),
    ("PajeDefineEntityValue", "Alias Type Name Color:color"),
    ("PajeCreateContainer", "Time:date Alias Type Container Name"),
    ("PajeDestroyContainer", "Time:date Type Name"),
    ("PajePushState", "Time:date Type Container Value What"),
    ("PajePopState", "Time:date Type Container"),
    ("PajeSetVariable", "Time:date Type Container Value:double"),
    ("PajeStartLink", "Time:date Type Container StartContainer Value Key"),
    ("PajeEndLink", "Time:date Type Container EndContainer Value Key"),
];

/// Returns names and types of an event's fields.
fn fields(of: &str) -> impl Iterator<Item = (&str, &str)> {
    of.split(' ').map(|field| field.split_once(':').unwrap_or((field, "string")))
}

/// Colours of the values of states, used in rotation.
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
    pub fn write_paje(&self, mut writer: impl Write) -> io::Result<()> {
        let mut text = String::new();
        for (number, (name, of)) in EVENTS.iter().enumerate() {
            // Writing into a String cannot fail.
            let _ = writeln!(text, "%EventDef {name} {number}");
            fields(of).for_each(|(field, kind)| _ = writeln!(text, "% {field} {kind}"));
            text.push_str("%EndEventDef\n");
        }
        self.types(&mut text);
        let containers = self.containers();
        for [alias, kind, parent, name] in &containers {
            put(&mut text, "CreateContainer", &[&seconds(0), alias, kind, parent, name]);
        }
        let happenings = self.happenings();
        let end = seconds(happenings.last().map_or(0, |last| last.0));
        text.extend(happenings.into_iter().map(|(_, line)| line));
        for [alias, kind, ..] in containers.iter().rev() {
            put(&mut text, "DestroyContainer", &[&end, kind, alias]);
        }
        writer.write_all(text.as_bytes())
    }

    fn types(&self, text: &mut String) {
        put(text, "DefineContainerType", &["run", "0", "run"]);
        put(text, "DefineContainerType", &["group", "run", "group"]);
        put(text, "DefineContainerType", &["track", "group", "track"]);
        put(text, "DefineStateType", &["state", "track", "state"]);
        put(text, "DefineLinkType", &["flow", "run", "track", "track", "tensor"]);
        for (alias, name) in self.counter_names().iter().enumerate() {
            put(text, "DefineVariableType", &[&format!("v{alias}"), "track", name, COLOURS[alias % COLOURS.len()]]);
        }
        for (number, value) in self.values().iter().enumerate() {
            put(text, "DefineEntityValue", &[&format!("s{number}"), "state", value, COLOURS[number % COLOURS.len()]]);
        }
    }

    /// Returns alias, type, parent and name of each container, behind its parent.
    fn containers(&self) -> Vec<[String; 4]> {
        let groups = self.groups.iter().enumerate().map(|(at, name)| (format!("g{at}"), "group", "r".into(), &**name));
        let tracks = self.tracks.iter().enumerate();
        let tracks = tracks.map(|(at, (group, name))| (track(Track(at)), "track", format!("g{}", group.0), &**name));
        let all = iter::once(("r".into(), "run", "0".into(), "run")).chain(groups).chain(tracks);
        all.map(|(alias, kind, parent, name)| [alias, kind.into(), parent, name.into()]).collect()
    }

    /// Returns the lines of all events with a time, sorted by it. Events of the same time are in the order of their
    /// tracks.
    fn happenings(&self) -> Vec<(u64, String)> {
        let values = self.values();
        let mut happenings: Vec<(u64, String)> = Vec::new();
        let mut note = |time: u64, event: &str, fields: &[&str]| {
            let mut line = String::new();
            put(&mut line, event, &[&[seconds(time).as_str()], fields].concat());
            happenings.push((time, line));
        };
        let mut slices: Vec<_> = self.slices.iter().collect();
        slices.sort_by_key(|slice| (slice.start, u64::MAX - slice.end));
        let mut open: Vec<Vec<u64>> = vec![Vec::new(); self.tracks.len()];
        for slice in slices {
            let (place, open) = (track(slice.track), &mut open[slice.track.0]);
            while let Some(end) = open.pop_if(|end| *end <= slice.start) {
                note(end, "PopState", &["state", &place]);
            }
            let value = values.binary_search(&state(slice)).unwrap_or_default();
            note(slice.start, "PushState", &["state", &place, &format!("s{value}"), &slice.name]);
            open.push(slice.end);
        }
        for (index, open) in open.iter().enumerate() {
            open.iter().rev().for_each(|end| note(*end, "PopState", &["state", &track(Track(index))]));
        }
        for (key, flow) in self.flows.iter().enumerate() {
            let key = key.to_string();
            note(flow.from.1, "StartLink", &["flow", "r", &track(flow.from.0), &flow.name, &key]);
            note(flow.to.1, "EndLink", &["flow", "r", &track(flow.to.0), &flow.name, &key]);
        }
        let names = self.counter_names();
        for counter in &self.counters {
            let alias = names.binary_search(&&*counter.name).unwrap_or_default();
            for [time, value] in &counter.samples {
                note(*time, "SetVariable", &[&format!("v{alias}"), &track(counter.track), &value.to_string()]);
            }
        }
        happenings.sort_by_key(|(time, _)| *time);
        happenings
    }

    /// Returns the states that occur.
    fn values(&self) -> Vec<&str> {
        distinct(self.slices.iter().map(state))
    }

    fn counter_names(&self) -> Vec<&str> {
        distinct(self.counters.iter().map(|counter| &*counter.name))
    }
}

fn distinct<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the value of a slice's state: the op of a node, otherwise its category. Few values make a readable legend.
fn state(slice: &Slice) -> &str {
    slice.arguments.get("op_name").and_then(|op| op.as_str()).unwrap_or(slice.category)
}

fn track(track: Track) -> String {
    format!("t{}", track.0)
}

fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

/// Adds the line of an event of this kind, which is named without `Paje`. Names and colours are quoted and escaped, and
/// never empty: `pj_dump` miscounts the fields of a line with an empty one.
fn put(text: &mut String, event: &str, values: &[&str]) {
    let number =
        EVENTS.iter().position(|(name, _)| name.strip_prefix("Paje") == Some(event)).expect("an event of the table");
    let _ = write!(text, "{number}");
    for (value, (name, kind)) in values.iter().zip(fields(EVENTS[number].1)) {
        if matches!(kind, "date" | "double") || matches!(name, "Alias" | "Type" | "Container" | "Key") {
            let _ = write!(text, " {value}");
        } else {
            let safe: String = value.replace('"', "'").replace(char::is_control, " ");
            let _ = write!(text, " \"{}\"", if safe.is_empty() { "?" } else { &safe });
        }
    }
    text.push('\n');
}
