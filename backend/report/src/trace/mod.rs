//! What happened when, in a form that viewers of traces open: tracks with slices, flows between them, and counters.
//!
//! A [`Trace`] is built once and written in either of two formats: Chrome's trace events ([`Trace::write_chrome`]), which
//! <https://ui.perfetto.dev> and `chrome://tracing` open, and Paje ([`Trace::write_paje`]), which ViTE and `pj_dump` read.
//! Slices on a track never overlap: a device runs one node at a time, and a link moves one tensor at a time.

mod chrome;
mod paje;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

/// A trace under construction. Times are nanoseconds since the run's start.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    groups: Vec<String>,
    /// With their groups.
    tracks: Vec<(Group, String)>,
    slices: Vec<Slice>,
    flows: Vec<Flow>,
    counters: Vec<Counter>,
}

/// What several tracks belong to.
#[derive(Clone, Copy, Debug)]
pub struct Group(usize);

/// A line of the trace on which slices lie.
#[derive(Clone, Copy, Debug)]
pub struct Track(usize);

/// The place of a slice in its trace.
#[derive(Clone, Copy, Debug)]
pub struct SliceId(usize);

/// Something that took time on a track.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Where it lies.
    pub track: Track,
    /// What viewers show on it.
    pub name: String,
    /// What kind of thing it is: viewers filter by it.
    pub category: &'static str,
    /// When it begins.
    pub start: u64,
    /// Not before `start`.
    pub end: u64,
    /// Shown when it is selected.
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
    /// Adds a group, below the ones that are there.
    pub fn group(&mut self, name: &str) -> Group {
        self.groups.push(name.to_owned());
        Group(self.groups.len() - 1)
    }

    /// Adds a track to a group, below the ones that are there.
    pub fn track(&mut self, group: Group, name: &str) -> Track {
        self.tracks.push((group, name.to_owned()));
        Track(self.tracks.len() - 1)
    }

    /// Adds a slice to its track.
    pub fn slice(&mut self, slice: Slice) -> SliceId {
        self.slices.push(Slice { end: slice.end.max(slice.start), ..slice });
        SliceId(self.slices.len() - 1)
    }

    /// Adds an arrow from one slice to another that begins no earlier than it does: from the end of the first, or from where the
    /// second ends if that is sooner, to the beginning of the second, or to where the first ends if that is later (of a stream,
    /// whose reader begins before all has arrived).
    pub fn flow(&mut self, name: &str, from: SliceId, to: SliceId) {
        let (from, to) = (&self.slices[from.0], &self.slices[to.0]);
        // An arrow's end belongs to the slice around it: one nanosecond before a slice's end is safely that slice.
        let last = |slice: &Slice| slice.end.saturating_sub(1).max(slice.start);
        let arrives = to.start.max(from.end).min(last(to));
        let leaves = last(from).min(arrives).max(from.start);
        let (from, to) = ((from.track, leaves), (to.track, arrives.max(leaves)));
        self.flows.push(Flow { name: name.to_owned(), from, to });
    }

    /// Adds a counter to a track: the value from each moment on, by time.
    pub fn counter(&mut self, track: Track, name: &str, samples: Vec<[u64; 2]>) {
        self.counters.push(Counter { track, name: name.to_owned(), samples });
    }
}
