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
pub(crate) struct Trace {
    groups: Vec<String>,
    tracks: Vec<TrackInfo>,
    slices: Vec<SliceInfo>,
    flows: Vec<FlowInfo>,
    counters: Vec<CounterInfo>,
}

#[derive(Clone, Debug)]
struct TrackInfo {
    group: Group,
    name: String,
}

#[derive(Clone, Debug)]
struct SliceInfo {
    track: Track,
    name: String,
    category: &'static str,
    start: u64,
    end: u64,
    arguments: Map<String, Value>,
}

#[derive(Clone, Debug)]
struct FlowInfo {
    name: String,
    from: (Track, u64),
    to: (Track, u64),
}

#[derive(Clone, Debug)]
struct CounterInfo {
    track: Track,
    name: String,
    samples: Vec<(u64, u64)>,
}

/// What several tracks belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(usize);

/// A line of the trace on which slices lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Track(usize);

/// Something that took time on a track.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slice<'a> {
    /// The track.
    pub(crate) track: Track,
    /// What stands on the slice.
    pub(crate) name: &'a str,
    /// What kind of thing it is: viewers filter by it.
    pub(crate) category: &'static str,
    /// When it began.
    pub(crate) start: u64,
    /// When it ended, not before `start`.
    pub(crate) end: u64,
}

impl Trace {
    /// Adds a group below the ones that are there.
    pub(crate) fn group(&mut self, name: &str) -> Group {
        self.groups.push(name.to_owned());
        Group(self.groups.len() - 1)
    }

    /// Adds a track to a group, below the ones that are there.
    pub(crate) fn track(&mut self, group: Group, name: &str) -> Track {
        self.tracks.push(TrackInfo { group, name: name.to_owned() });
        Track(self.tracks.len() - 1)
    }

    /// Adds a slice; `arguments` are shown when it is selected.
    pub(crate) fn slice(&mut self, slice: Slice<'_>, arguments: Map<String, Value>) {
        let Slice { track, name, category, start, end } = slice;
        let end = end.max(start);
        self.slices.push(SliceInfo { track, name: name.to_owned(), category, start, end, arguments });
    }

    /// Adds an arrow from one slice to another that begins no earlier than it does: from the end of the first, or from where the
    /// second ends if that is sooner, to the beginning of the second, or to where the first ends if that is later (of a stream,
    /// whose reader begins before all has arrived).
    pub(crate) fn flow(&mut self, name: &str, from: Slice<'_>, to: Slice<'_>) {
        // An arrow's end belongs to the slice around it: one nanosecond before a slice's end is safely that slice.
        let last = |slice: &Slice<'_>| slice.end.saturating_sub(1).max(slice.start);
        let arrives = to.start.max(from.end).min(last(&to));
        let leaves = last(&from).min(arrives).max(from.start);
        let (from, to) = ((from.track, leaves), (to.track, arrives.max(leaves)));
        self.flows.push(FlowInfo { name: name.to_owned(), from, to });
    }

    /// Adds a counter to a track: the value from each moment on. Of several at a moment the last counts.
    pub(crate) fn counter(&mut self, track: Track, name: &str, samples: impl IntoIterator<Item = (u64, u64)>) {
        let mut kept: Vec<(u64, u64)> = samples.into_iter().collect();
        kept.sort_by_key(|sample| sample.0);
        kept.reverse();
        kept.dedup_by_key(|sample| sample.0);
        kept.reverse();
        self.counters.push(CounterInfo { track, name: name.to_owned(), samples: kept });
    }
}
