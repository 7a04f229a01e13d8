//! What stages are mapped to: processors, the links between them and to the outside, the memories that they share, and the teams in which
//! they can work at one data set.

/// A link in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Seconds before the first byte moves.
    pub latency: f64,
    /// Bytes a second; infinite where transfers take their latency alone.
    pub bandwidth: f64,
}

impl Link {
    /// A link that takes no time.
    pub const FREE: Link = Link { latency: 0.0, bandwidth: f64::INFINITY };

    /// Seconds for `bytes`.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.latency + bytes / self.bandwidth
    }
}

/// One end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Where data sets come from and results go: as many transfers at a time as there are takers.
    Outside,
    /// A processor, by its place.
    Processor(usize),
}

/// Processors with their links and memories.
#[derive(Debug, Clone, PartialEq)]
pub struct Processors {
    names: Vec<String>,
    /// From × to, the outside last.
    links: Vec<Link>,
    /// Bytes of each memory, and the processors that work in it.
    memories: Vec<(u64, Vec<usize>)>,
    /// Processors that can be a data-parallel group; where there are no teams, any can.
    teams: Vec<Vec<usize>>,
}

impl Processors {
    /// Processors with the links that `link` says, which is asked for every two different ports but the outside with itself.
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

    /// Processors whose links are all alike: *communication homogeneous*.
    pub fn uniform(names: Vec<String>, link: Link) -> Self {
        Processors::new(names, |_, _| link)
    }

    /// The same with a memory of `bytes` that `processors` work in, each of which works in one memory at most.
    pub fn with_memory(mut self, bytes: u64, processors: Vec<usize>) -> Self {
        self.memories.push((bytes, processors));
        self
    }

    /// The same with a team: processors of one memory, so that a datum comes to a data-parallel group of them, and leaves it, as one. Where
    /// there are teams, only processors of one team can be a group; each is in one team at most.
    pub fn with_team(mut self, processors: Vec<usize>) -> Self {
        self.teams.push(processors);
        self
    }

    /// Number of processors.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// What people call them.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The link from one port to another; free from a port to itself.
    pub fn link(&self, from: Port, to: Port) -> Link {
        let place = |port| match port {
            Port::Outside => self.count(),
            Port::Processor(place) => place,
        };
        self.links[place(from) * (self.count() + 1) + place(to)]
    }

    /// Bytes of each memory with a limit, and the processors that work in it.
    pub fn memories(&self) -> &[(u64, Vec<usize>)] {
        &self.memories
    }

    /// The teams; none where any processors can be a data-parallel group.
    pub fn teams(&self) -> &[Vec<usize>] {
        &self.teams
    }

    /// Whether these can be a data-parallel group.
    pub(super) fn can_group(&self, processors: &[usize]) -> bool {
        let all_in = |team: &Vec<usize>| processors.iter().all(|processor| team.contains(processor));
        self.teams.is_empty() || self.teams.iter().any(all_in)
    }
}
