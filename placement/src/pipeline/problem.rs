//! Problem of mapping: stages, processors and rules, verified together.

use super::processors::{Link, Port, Processors};
use super::stages::Stages;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Activities of a processor that can overlap in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Communication {
    /// One at a time: receive, compute or send (the paper's model).
    #[default]
    OnePort,
    /// All at once: receive one datum, compute, and send one datum.
    Overlapped,
}

impl Communication {
    /// Buffers for each datum at either end: one for computing, and a second one for transfers if communication is
    /// overlapped.
    pub(super) fn buffers(self) -> u64 {
        match self {
            Communication::OnePort => 1,
            Communication::Overlapped => 2,
        }
    }
}

/// Extent to which stages that can be data-parallel may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Parallel {
    /// Nothing.
    #[default]
    Never,
    /// Intervals of one stage, as in the paper.
    Stage,
    /// Any interval: each processor keeps its part through all stages.
    Interval,
}

/// Set of mappings that are allowed, and the model of communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rules {
    /// Activities of a processor that can overlap in time.
    pub communication: Communication,
    /// Whether intervals of replicable stages may be replicated.
    pub replication: bool,
    /// Extent to which intervals may be data-parallel.
    pub parallel: Parallel,
}

impl Default for Rules {
    /// One-port communication, replication, and nothing data-parallel.
    fn default() -> Self {
        Rules { communication: Communication::OnePort, replication: true, parallel: Parallel::Never }
    }
}

/// Reason why a problem is rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum ProblemError {
    /// No stages or no processors.
    #[error("there are no {0}")]
    Empty(&'static str),
    /// A list of the wrong length.
    #[error("{what} has {found} entries, but should have {expected}")]
    Length { what: String, found: usize, expected: usize },
    /// More stages or processors than the limit.
    #[error("{count} {what} are too many; the limit is {limit}")]
    TooMany { what: &'static str, count: usize, limit: usize },
    /// A time that is negative, infinite or not a number.
    #[error("stage {stage:?} has the time {time} on {processor:?}; a time is finite and not negative")]
    Time { stage: String, processor: String, time: f64 },
    /// A stage that can run nowhere.
    #[error("stage {stage:?} cannot run on any processor; give it a time on one")]
    Nowhere { stage: String },
    /// A latency or bandwidth outside its range.
    #[error(
        "the link from {from} to {to} has latency {latency} and bandwidth {bandwidth}; a latency is finite and not negative, a bandwidth greater than zero"
    )]
    Link { from: String, to: String, latency: f64, bandwidth: f64 },
    /// A memory that names a processor that does not exist or that has a memory already.
    #[error("memory {memory} names processor {processor}, which does not exist or has another memory")]
    Memory { memory: usize, processor: usize },
    /// A team that names a processor that does not exist or that has a team already.
    #[error("team {team} names processor {processor}, which does not exist or has another team")]
    Team { team: usize, processor: usize },
    /// Times that are finite, but whose sum is not.
    #[error("the sum of all stage and message times exceeds the range of a number; use a larger unit of time")]
    Overflow,
    /// A serial share that is not between 0 and 1.
    #[error("stage {stage:?} has the serial share {share}; a share is from 0 to 1")]
    Serial { stage: String, share: f64 },
}

/// Most stages of a problem.
pub const MAX_STAGES: usize = 4096;
/// Most processors of a problem.
pub const MAX_PROCESSORS: usize = 1024;

/// Prefix sums over the first stages of a chain on one processor.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Before {
    seconds: f64,
    /// Part of `seconds` that a data-parallel group does not divide.
    serial: f64,
    /// Number of the stages that cannot run on the processor.
    barred: u32,
}

/// Verified stages and processors, and the rules of mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    stages: Stages,
    processors: Processors,
    rules: Rules,
    /// Prefix sums before each stage, by processor.
    before: Vec<Vec<Before>>,
}

impl Problem {
    /// Verifies that stages, processors and rules fit together. `O(stages × processors + processors²)`.
    ///
    /// # Errors
    /// Returns the first fault that is found.
    pub fn new(stages: Stages, processors: Processors, rules: Rules) -> Result<Self, ProblemError> {
        verify_sizes(&stages, &processors)?;
        verify_times(&stages, &processors)?;
        verify_links(&processors)?;
        refuse_overflow(&stages, &processors)?;
        let memories = processors.memories().iter().map(|(_, members)| members);
        verify_once(&processors, memories, |memory, processor| ProblemError::Memory { memory, processor })?;
        verify_once(&processors, processors.teams(), |team, processor| ProblemError::Team { team, processor })?;
        let before = (0..processors.count()).map(|processor| sums(&stages, processor)).collect();
        Ok(Problem { stages, processors, rules, before })
    }

    /// Returns the stages.
    pub fn stages(&self) -> &Stages {
        &self.stages
    }

    /// Returns the processors.
    pub fn processors(&self) -> &Processors {
        &self.processors
    }

    /// Returns the rules.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Returns the number of stages.
    pub fn stage_count(&self) -> usize {
        self.stages.stages.len()
    }

    /// Returns the number of processors.
    pub fn processor_count(&self) -> usize {
        self.processors.count()
    }

    /// Returns the seconds of some stages on one processor for one input; infinite if one of the stages cannot run
    /// there.
    pub fn seconds(&self, processor: usize, stages: Range<usize>) -> f64 {
        let (before, after) = (self.before[processor][stages.start], self.before[processor][stages.end]);
        if after.barred > before.barred { f64::INFINITY } else { after.seconds - before.seconds }
    }

    /// Returns the part of the seconds of some stages on a processor that a data-parallel group does not divide.
    pub(super) fn serial_seconds(&self, processor: usize, stages: Range<usize>) -> f64 {
        self.before[processor][stages.end].serial - self.before[processor][stages.start].serial
    }

    /// Returns the seconds of some stages for one input on a data-parallel group: the serial part on its slowest
    /// processor, plus the inverse of the sum of the rates. `group` lists numbers of processors, each with a processor
    /// that stands for them.
    pub(super) fn group_seconds(&self, group: impl Iterator<Item = (usize, usize)>, stages: Range<usize>) -> f64 {
        let (mut serial, mut rates) = (0.0f64, 0.0);
        for (count, processor) in group {
            let own = self.serial_seconds(processor, stages.clone());
            serial = serial.max(own);
            rates += count as f64 / (self.seconds(processor, stages.clone()) - own).max(0.0);
        }
        serial + 1.0 / rates
    }
}

fn sums(stages: &Stages, processor: usize) -> Vec<Before> {
    let mut sum = Before::default();
    let mut sums = vec![sum];
    for stage in &stages.stages {
        match stage.times[processor] {
            Some(time) => (sum.seconds, sum.serial) = (sum.seconds + time, sum.serial + time * stage.serial),
            None => sum.barred += 1,
        }
        sums.push(sum);
    }
    sums
}

fn verify_sizes(stages: &Stages, processors: &Processors) -> Result<(), ProblemError> {
    let sizes = [("stages", stages.stages.len(), MAX_STAGES), ("processors", processors.count(), MAX_PROCESSORS)];
    for (what, count, limit) in sizes {
        if count == 0 {
            return Err(ProblemError::Empty(what));
        }
        if count > limit {
            return Err(ProblemError::TooMany { what, count, limit });
        }
    }
    let times = stages.stages.iter().map(|stage| (stage.name.clone(), stage.times.len(), processors.count()));
    let data = ("data".to_owned(), stages.data.len(), stages.stages.len() + 1);
    for (what, found, expected) in times.chain([data]) {
        if found != expected {
            return Err(ProblemError::Length { what, found, expected });
        }
    }
    Ok(())
}

fn verify_times(stages: &Stages, processors: &Processors) -> Result<(), ProblemError> {
    for stage in &stages.stages {
        for (time, processor) in stage.times.iter().zip(processors.names()) {
            if let Some(time) = time.filter(|time| !(*time >= 0.0 && time.is_finite())) {
                return Err(ProblemError::Time { stage: stage.name.clone(), processor: processor.clone(), time });
            }
        }
        if !(0.0..=1.0).contains(&stage.serial) {
            return Err(ProblemError::Serial { stage: stage.name.clone(), share: stage.serial });
        }
        if stage.times.iter().all(Option::is_none) {
            return Err(ProblemError::Nowhere { stage: stage.name.clone() });
        }
    }
    Ok(())
}

fn verify_links(processors: &Processors) -> Result<(), ProblemError> {
    let ports = || (0..processors.count()).map(Port::Processor).chain([Port::Outside]);
    let name = |port| match port {
        Port::Outside => "outside".to_owned(),
        Port::Processor(place) => format!("{:?}", processors.names()[place]),
    };
    for (from, to) in ports().flat_map(|from| ports().map(move |to| (from, to))) {
        let Link { latency, bandwidth } = processors.link(from, to);
        if !(latency >= 0.0 && latency.is_finite() && bandwidth > 0.0) {
            return Err(ProblemError::Link { from: name(from), to: name(to), latency, bandwidth });
        }
    }
    Ok(())
}

/// Rejects times whose sums overflow, with a margin for simulation and replication.
fn refuse_overflow(stages: &Stages, processors: &Processors) -> Result<(), ProblemError> {
    let ports = || (0..processors.count()).map(Port::Processor).chain([Port::Outside]);
    let most = stages.data.iter().copied().max().unwrap_or(0) as f64;
    let message = |(from, to)| {
        let Link { latency, bandwidth } = processors.link(from, to);
        latency + most / bandwidth
    };
    let longest = ports().flat_map(|from| ports().map(move |to| (from, to))).map(message).fold(0.0, f64::max);
    let work: f64 = stages.stages.iter().flat_map(|stage| stage.times.iter().flatten()).sum();
    let rounds = (MAX_STAGES * MAX_PROCESSORS) as f64;
    let sum = (work + longest * stages.data.len() as f64) * rounds;
    if sum.is_finite() { Ok(()) } else { Err(ProblemError::Overflow) }
}

/// Verifies that each processor of these sets exists and is in one set only.
fn verify_once<'a>(
    processors: &Processors,
    sets: impl IntoIterator<Item = &'a Vec<usize>>,
    refusal: impl Fn(usize, usize) -> ProblemError,
) -> Result<(), ProblemError> {
    let mut taken = vec![false; processors.count()];
    for (set, members) in sets.into_iter().enumerate() {
        for &processor in members {
            match taken.get_mut(processor) {
                Some(taken) if !*taken => *taken = true,
                _ => return Err(refusal(set, processor)),
            }
        }
    }
    Ok(())
}
