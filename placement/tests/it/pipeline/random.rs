//! Random problems and mappings.

use anabranch_placement::pipeline::{
    Communication, Interval, Link, Mapping, Parallel, Problem, Processors, Rules, Sharing, Stage, StageKind, Stages,
};
use arbtest::arbitrary::{Result, Unstructured};

/// Kinds of links of a platform.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Links {
    Alike,
    Different,
}

pub(crate) fn problem(
    random: &mut Unstructured<'_>,
    stages: usize,
    processors: usize,
    links: Links,
) -> Result<Problem> {
    let stages = random.int_in_range(1..=stages)?;
    let processors = random.int_in_range(1..=processors)?;
    let alike = random.ratio(1, 3)?;
    let time = |random: &mut Unstructured<'_>| Ok(f64::from(random.int_in_range(0..=20u8)?) / 4.0);
    let mut list = Vec::new();
    for number in 0..stages {
        let mut times = Vec::new();
        let first = time(random)?;
        for processor in 0..processors {
            let barred = processor > 0 && random.ratio(1, 8)?;
            times.push(if alike {
                Some(first)
            } else if barred {
                None
            } else {
                Some(time(random)?)
            });
        }
        let kind = *random.choose(&[StageKind::Monolithic, StageKind::Replicable, StageKind::DataParallel])?;
        let stage = Stage::new(number.to_string(), times).with_kind(kind).with_memory(random.int_in_range(0..=9)?, 1);
        list.push(stage.with_serial(*random.choose(&[0.0, 0.0, 0.25, 1.0])?));
    }
    let data = (0..=stages).map(|_| random.int_in_range(0..=8u64)).collect::<Result<Vec<u64>>>()?;
    let names = (0..processors).map(|it| it.to_string()).collect();
    let mut drawn = Vec::new();
    for _ in 0..(processors + 1).pow(2) {
        let link = Link { latency: f64::from(random.int_in_range(0..=2u8)?) / 8.0, bandwidth: 4.0 };
        drawn.push(if links == Links::Alike { drawn.first().copied().unwrap_or(link) } else { link });
    }
    let mut next = drawn.into_iter();
    let mut processors_with_links = Processors::new(names, |_, _| next.next().unwrap_or(Link::FREE));
    if random.ratio(1, 3)? {
        let bytes = random.int_in_range(20..=60)?;
        processors_with_links = processors_with_links.with_memory(bytes, (0..processors.div_ceil(2)).collect());
    }
    if random.ratio(1, 3)? {
        let first = random.int_in_range(1..=processors)?;
        processors_with_links = processors_with_links.with_team((0..first).collect());
        if random.arbitrary()? {
            processors_with_links = processors_with_links.with_team((first..processors).collect());
        }
    }
    let rules = Rules {
        communication: *random.choose(&[Communication::OnePort, Communication::Overlapped])?,
        replication: random.arbitrary()?,
        parallel: *random.choose(&[Parallel::Never, Parallel::Stage, Parallel::Interval])?,
    };
    Ok(Problem::new(Stages::new(list, data), processors_with_links, rules).expect("drawn within the ranges"))
}

pub(crate) fn mapping(random: &mut Unstructured<'_>, problem: &Problem) -> Result<Mapping> {
    let mut free: Vec<usize> = (0..problem.processor_count()).collect();
    let (mut start, mut intervals) = (0, Vec::new());
    while start < problem.stage_count() && !free.is_empty() {
        let end = random.int_in_range(start + 1..=problem.stage_count())?;
        let mut processors = Vec::new();
        for _ in 0..random.int_in_range(1..=free.len())? {
            processors.push(free.swap_remove(random.choose_index(free.len())?));
        }
        let several = *random.choose(&[Sharing::Replicated, Sharing::DataParallel])?;
        let sharing = if processors.len() == 1 { Sharing::Single } else { several };
        intervals.push(Interval { stages: start..end, processors, sharing });
        start = end;
    }
    Ok(Mapping { intervals })
}
