//! Times of a run in a form that trace viewers open: tracks with slices, flows between them, and counters.
//!
//! A [`Trace`] is built once and written in either of two formats: Chrome's trace events ([`Trace::write_chrome`]),
//! which <https://ui.perfetto.dev> and `chrome://tracing` open, and Paje ([`Trace::write_paje`]), which ViTE and
//! `pj_dump` read. Slices on a track never overlap: a device runs one node at a time, and a link moves one tensor at a
//! time.

mod chrome;
mod paje;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

/// A trace under construction. Times are nanoseconds since the run's start.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    groups: Vec<String>,
    /// Tracks with their groups.
    tracks: Vec<(Group, String)>,
    slices: Vec<Slice>,
    flows: Vec<Flow>,
    counters: Vec<Counter>,
    facts: Map<String, Value>,
}

/// A group of tracks.
#[derive(Clone, Copy, Debug)]
pub struct Group(usize);

/// A line of the trace on which slices lie.
#[derive(Clone, Copy, Debug)]
pub struct Track(usize);

/// Index of a slice in its trace.
#[derive(Clone, Copy, Debug)]
pub struct SliceId(usize);

/// An activity that took time on a track.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Track of the slice.
    pub track: Track,
    /// Name that viewers show on it.
    pub name: String,
    /// Category, by which viewers filter.
    pub category: &'static str,
    /// Start of the slice.
    pub start: u64,
    /// End of the slice, not before `start`.
    pub end: u64,
    /// Values shown when it is selected.
    pub arguments: Map<String, Value>,
}

#[derive(Clone, Debug)]
struct Flow {
    name: String,
    from: (Track, u64),
    to: (Track, u64),
}

#[derive(Clone, Debug)]
struct Counter {
    track: Track,
    name: String,
    /// Moments and values.
    samples: Vec<[u64; 2]>,
}

impl Trace {
    /// Adds a group, below the existing groups.
    pub fn group(&mut self, name: &str) -> Group {
        self.groups.push(name.to_owned());
        Group(self.groups.len() - 1)
    }

    /// Adds a track to a group, below its existing tracks.
    pub fn track(&mut self, group: Group, name: &str) -> Track {
        self.tracks.push((group, name.to_owned()));
        Track(self.tracks.len() - 1)
    }

    /// Adds a slice to its track.
    pub fn slice(&mut self, slice: Slice) -> SliceId {
        self.slices.push(Slice { end: slice.end.max(slice.start), ..slice });
        SliceId(self.slices.len() - 1)
    }

    /// Adds an arrow from one slice to another that begins no earlier.
    ///
    /// The arrow leaves at the end of the first slice, or at the end of the second if that is sooner. It arrives at the
    /// start of the second, or at the end of the first if that is later. The latter happens for streams, whose reader
    /// begins before all data have arrived. If the second slice ends before the first begins, no arrow is added: clocks
    /// of devices differ by a little.
    pub fn flow(&mut self, name: &str, from: SliceId, to: SliceId) {
        let (from, to) = (&self.slices[from.0], &self.slices[to.0]);
        // An arrow's end belongs to the slice around it. One nanosecond before a slice's end is surely within the
        // slice.
        let last = |slice: &Slice| slice.end.saturating_sub(1).max(slice.start);
        if last(to) < from.start {
            return;
        }
        let arrives = to.start.max(from.end).min(last(to));
        let leaves = last(from).min(arrives).max(from.start);
        let (from, to) = ((from.track, leaves), (to.track, arrives));
        self.flows.push(Flow { name: name.to_owned(), from, to });
    }

    /// Adds a fact about the run as a whole, such as the model's name. Only Chrome's format has a place for it.
    pub fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_owned(), value.into());
    }

    /// Adds a counter to a track: the value from each moment on, by time.
    pub fn counter(&mut self, track: Track, name: &str, samples: Vec<[u64; 2]>) {
        self.counters.push(Counter { track, name: name.to_owned(), samples });
    }
}
