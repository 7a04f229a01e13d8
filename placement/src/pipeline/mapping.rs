//! Assignment of stages to processors, and its validity.

use super::problem::{Parallel, Problem};
use super::stages::{StageKind, Stages};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Way in which the processors of an interval share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// One processor runs every data set.
    Single,
    /// Processor `k mod q` of `q` runs input `k`.
    Replicated,
    /// Each runs a part of every input, in proportion to its rate, except for the serial share of a stage.
    DataParallel,
}

/// Consecutive stages and the processors that run them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Range of stages; the end is exclusive.
    pub stages: Range<usize>,
    /// Processors, in the order in which replicas take their turns.
    pub processors: Vec<usize>,
    /// Way in which the processors share the interval.
    pub sharing: Sharing,
}

impl Interval {
    /// Number of inputs that the interval works on at once: the replicas, and 1 for a single processor or a group.
    pub fn replicas(&self) -> usize {
        if self.sharing == Sharing::Replicated { self.processors.len() } else { 1 }
    }
}

/// All intervals, in the order in which data pass them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// The intervals, which cover all stages without gaps.
    pub intervals: Vec<Interval>,
}

/// Fault of a mapping. Stages, intervals and processors count from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum MappingError {
    /// Intervals leave stages out or cover them twice.
    #[error("interval {interval} begins at stage {start}, but should begin at {expected} and not be empty")]
    Cover { interval: usize, start: usize, expected: usize },
    /// Stages at the end that no interval covers.
    #[error("the intervals end at stage {end}, but there are {stages} stages")]
    Rest { end: usize, stages: usize },
    /// A number of processors that does not fit the interval's sharing.
    #[error("interval {interval} has {count} processors, which its sharing does not allow")]
    Count { interval: usize, count: usize },
    /// A processor that does not exist.
    #[error("interval {interval} names processor {processor}, which does not exist")]
    Unknown { interval: usize, processor: usize },
    /// A processor twice.
    #[error("processor {processor} is used twice, the second time by interval {interval}")]
    Twice { interval: usize, processor: usize },
    /// A stage that cannot be shared in this way, because of its kind or the rules.
    #[error("stage {stage} does not allow the sharing of interval {interval}")]
    Kind { interval: usize, stage: usize },
    /// A data-parallel group of processors that are not of one team.
    #[error("interval {interval} is data-parallel on processors of different teams")]
    Team { interval: usize },
    /// A stage that cannot run on its processor.
    #[error("stage {stage} cannot run on processor {processor}")]
    CannotRun { stage: usize, processor: usize },
    /// A memory that is too small for the mapping.
    #[error("memory {memory} holds {limit} bytes, but the mapping needs {needed}")]
    Memory { memory: usize, needed: u64, limit: u64 },
}

impl Mapping {
    /// Returns the mapping of all stages to one interval.
    pub fn whole(stages: usize, processors: Vec<usize>, sharing: Sharing) -> Self {
        Mapping { intervals: vec![Interval { stages: 0..stages, processors, sharing }] }
    }

    /// Verifies the mapping for `problem`. `O(stages × processors)`.
    ///
    /// # Errors
    /// Returns the first fault that is found.
    pub fn verify(&self, problem: &Problem) -> Result<(), MappingError> {
        self.verify_structure(problem)?;
        for (memory, &(limit, _)) in problem.processors().memories().iter().enumerate() {
            let needed = self.bytes_in(problem, memory);
            if needed > limit {
                return Err(MappingError::Memory { memory, needed, limit });
            }
        }
        Ok(())
    }

    /// Verifies everything except memory.
    pub(super) fn verify_structure(&self, problem: &Problem) -> Result<(), MappingError> {
        let stages = problem.stage_count();
        let (mut next, mut used) = (0, vec![false; problem.processor_count()]);
        for (place, interval) in self.intervals.iter().enumerate() {
            let Range { start, end } = interval.stages;
            if start != next || end <= start {
                return Err(MappingError::Cover { interval: place, start, expected: next });
            }
            if end > stages {
                return Err(MappingError::Rest { end, stages });
            }
            next = end;
            verify_sharing(problem, place, interval)?;
            for &processor in &interval.processors {
                let seen = used.get_mut(processor).ok_or(MappingError::Unknown { interval: place, processor })?;
                if std::mem::replace(seen, true) {
                    return Err(MappingError::Twice { interval: place, processor });
                }
                let cannot = |&stage: &usize| problem.stages().stages[stage].times[processor].is_none();
                if let Some(stage) = interval.stages.clone().find(cannot) {
                    return Err(MappingError::CannotRun { stage, processor });
                }
            }
        }
        if next != stages {
            return Err(MappingError::Rest { end: next, stages });
        }
        Ok(())
    }

    /// Returns the bytes over the limits, summed over all memories.
    pub(super) fn excess(&self, problem: &Problem) -> u64 {
        let memories = problem.processors().memories().iter().enumerate();
        let over =
            |(memory, &(limit, _)): (usize, &(u64, Vec<usize>))| self.bytes_in(problem, memory).saturating_sub(limit);
        memories.map(over).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of a memory that the mapping uses.
    ///
    /// The weights of the stages that run in the memory count once. For each processor, the greatest activations of its
    /// stages count, together with the data that it receives and sends (twice if communication is overlapped). A
    /// data-parallel group counts as one processor in each of its memories.
    pub fn bytes_in(&self, problem: &Problem, memory: usize) -> u64 {
        let members = &problem.processors().memories()[memory].1;
        let buffers = problem.rules().communication.buffers();
        let Stages { stages, data } = problem.stages();
        let mut bytes = 0u64;
        for interval in &self.intervals {
            let here = interval.processors.iter().filter(|processor| members.contains(processor)).count() as u64;
            if here == 0 {
                continue;
            }
            let copies = if interval.sharing == Sharing::DataParallel { 1 } else { here };
            let own = &stages[interval.stages.clone()];
            let passing = data[interval.stages.start].saturating_add(data[interval.stages.end]);
            let most = own.iter().map(|stage| stage.activations).max().unwrap_or(0);
            let each = most.saturating_add(passing.saturating_mul(buffers));
            let weights = own.iter().fold(0u64, |sum, stage| sum.saturating_add(stage.weights));
            bytes = bytes.saturating_add(weights).saturating_add(each.saturating_mul(copies));
        }
        bytes
    }
}

fn verify_sharing(problem: &Problem, place: usize, interval: &Interval) -> Result<(), MappingError> {
    let (count, rules) = (interval.processors.len(), problem.rules());
    let fits = match interval.sharing {
        Sharing::Single => count == 1,
        Sharing::Replicated | Sharing::DataParallel => count >= 1,
    };
    if !fits {
        return Err(MappingError::Count { interval: place, count });
    }
    if count == 1 {
        return Ok(());
    }
    let first = interval.stages.start;
    let least = match interval.sharing {
        Sharing::Single => return Ok(()),
        Sharing::Replicated if !rules.replication => return Err(MappingError::Kind { interval: place, stage: first }),
        Sharing::Replicated => StageKind::Replicable,
        Sharing::DataParallel => StageKind::DataParallel,
    };
    let long = match rules.parallel {
        _ if interval.sharing == Sharing::Replicated => false,
        Parallel::Never => true,
        Parallel::Stage => interval.stages.len() > 1,
        Parallel::Interval => false,
    };
    let wrong = |&stage: &usize| long || problem.stages().stages[stage].kind < least;
    if let Some(stage) = interval.stages.clone().find(wrong) {
        return Err(MappingError::Kind { interval: place, stage });
    }
    match interval.sharing == Sharing::DataParallel && !problem.processors().can_group(&interval.processors) {
        true => Err(MappingError::Team { interval: place }),
        false => Ok(()),
    }
}
