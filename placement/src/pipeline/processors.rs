//! Processors that stages are mapped to: links between them and to the outside, shared memories, and teams. A team can
//! work on one input together.

/// A link in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Time before the first byte moves, in seconds.
    pub latency: f64,
    /// Bandwidth in bytes per second; infinite if a transfer takes its latency only.
    pub bandwidth: f64,
}

impl Link {
    /// A link that takes no time.
    pub const FREE: Link = Link { latency: 0.0, bandwidth: f64::INFINITY };

    /// Returns the seconds of a transfer of `bytes`.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.latency + bytes / self.bandwidth
    }
}

/// One end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Source of inputs and destination of results; it serves any number of transfers at once.
    Outside,
    /// A processor, by its number.
    Processor(usize),
}

/// Processors with their links and memories.
#[derive(Debug, Clone, PartialEq)]
pub struct Processors {
    names: Vec<String>,
    /// Links by source × destination; the outside comes last.
    links: Vec<Link>,
    /// Bytes of each memory with a limit, and the processors that work in it.
    memories: Vec<(u64, Vec<usize>)>,
    /// Processors that can form a data-parallel group; if there are no teams, any processors can.
    teams: Vec<Vec<usize>>,
}

impl Processors {
    /// Creates processors without memory limits and teams. `link` is called for all pairs of two different ports.
    pub fn new(names: Vec<String>, mut link: impl FnMut(Port, Port) -> Link) -> Self {
        let count = names.len();
        let port = |place: usize| if place == count { Port::Outside } else { Port::Processor(place) };
        let between = |place: usize| {
            let (from, to) = (place / (count + 1), place % (count + 1));
            if from == to { Link::FREE } else { link(port(from), port(to)) }
        };
        let links = (0..(count + 1) * (count + 1)).map(between).collect();
        Processors { names, links, memories: Vec::new(), teams: Vec::new() }
    }

    /// Creates processors whose links are all identical: *communication homogeneous*.
    pub fn uniform(names: Vec<String>, link: Link) -> Self {
        Processors::new(names, |_, _| link)
    }

    /// Adds a memory of `bytes` in which `processors` work (default: no memory limits). A processor may be in one
    /// memory only.
    pub fn with_memory(mut self, bytes: u64, processors: Vec<usize>) -> Self {
        self.memories.push((bytes, processors));
        self
    }

    /// Adds a team: processors of one memory (default: no teams, so that any processors can form a data-parallel
    /// group).
    ///
    /// A data-parallel group of a team receives and sends a datum as a whole. If there are teams, only processors of
    /// one team can form a group. A processor may be in one team only.
    pub fn with_team(mut self, processors: Vec<usize>) -> Self {
        self.teams.push(processors);
        self
    }

    /// Returns the number of processors.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns the names of the processors.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the link from one port to another; free from a port to itself.
    pub fn link(&self, from: Port, to: Port) -> Link {
        let place = |port| match port {
            Port::Outside => self.count(),
            Port::Processor(place) => place,
        };
        self.links[place(from) * (self.count() + 1) + place(to)]
    }

    /// Returns the bytes of each memory with a limit, and the processors that work in it.
    pub fn memories(&self) -> &[(u64, Vec<usize>)] {
        &self.memories
    }

    /// Returns the teams; empty if any processors can form a data-parallel group.
    pub fn teams(&self) -> &[Vec<usize>] {
        &self.teams
    }

    /// Whether these processors can form a data-parallel group.
    pub(super) fn can_group(&self, processors: &[usize]) -> bool {
        let all_in = |team: &Vec<usize>| processors.iter().all(|processor| team.contains(processor));
        self.teams.is_empty() || self.teams.iter().any(all_in)
    }
}
