//! Problems to simulate: graphs from files and families, on platforms from files and families.

use super::CliError;
use super::simulate::is_platform_file;
use anabranch::planning::PlatformFile;
use anabranch_placement::format::{Loaded, LoadedGraph, LoadedProblem, read as read_file};
use anabranch_placement::generate::{Devices, Family, GenerateError, Heterogeneity, Sweep};
use anabranch_placement::platform::Platform;
use anabranch_placement::problem::MemoryRule;
use std::collections::BTreeSet;
use std::path::Path;

/// A graph on a platform, perhaps drawn from a seed.
pub(super) struct Case {
    /// Name of the graph.
    pub(super) graph: String,
    /// Name of the platform.
    pub(super) devices: String,
    source: Source,
}

enum Source {
    Whole(Box<LoadedProblem>),
    Parts(GraphSource, PlatformSource),
}

#[derive(Clone)]
enum GraphSource {
    File(Box<LoadedGraph>),
    Family(Family),
}

#[derive(Clone)]
enum PlatformSource {
    /// Devices, and the unit of their times if the file has one.
    File(Platform, Option<&'static str>),
    /// Laich 2017, chapter 6.
    Random(Devices),
    /// Topcuoglu 2002, section 5.
    Heterogeneous(Sweep),
}

impl Case {
    /// Whether it depends on the seed.
    pub(super) fn draws(&self) -> bool {
        match &self.source {
            Source::Whole(_) => false,
            Source::Parts(GraphSource::File(_), PlatformSource::File(..)) => false,
            Source::Parts(GraphSource::Family(family), PlatformSource::File(..)) => family.draws(),
            Source::Parts(..) => true,
        }
    }

    /// Returns the unit of times, if a file states one.
    pub(super) fn time_unit(&self) -> Option<&str> {
        match &self.source {
            Source::Whole(problem) => problem.facts.time_unit.as_deref(),
            Source::Parts(_, PlatformSource::File(_, Some(unit))) => Some(unit),
            Source::Parts(GraphSource::File(graph), PlatformSource::File(..) | PlatformSource::Random(_)) => {
                graph.time_unit.as_deref()
            }
            Source::Parts(..) => None,
        }
    }

    /// Returns the problem for a seed.
    pub(super) fn problem(&self, seed: u64) -> Result<LoadedProblem, CliError> {
        let (graph, platform) = match &self.source {
            Source::Whole(problem) => return Ok((**problem).clone()),
            Source::Parts(graph, platform) => (graph, platform),
        };
        let failed = |error: GenerateError| CliError::input(format!("{} on {}: {error}", self.graph, self.devices));
        let graph = match graph {
            GraphSource::File(graph) => (**graph).clone(),
            GraphSource::Family(family) => {
                let graph = family.generate(seed).map_err(failed)?;
                let (memory_rule, time_unit) = (MemoryRule::SizeEstimate, None);
                LoadedGraph { name: self.graph.clone(), graph, memory_rule, time_unit, task_ids: Vec::new() }
            }
        };
        match platform {
            PlatformSource::File(platform, unit) => {
                let mut problem = graph.on(platform.clone())?;
                problem.facts.time_unit = unit.map(str::to_owned).or(problem.facts.time_unit);
                Ok(problem)
            }
            PlatformSource::Random(devices) => Ok(graph.on(devices.generate(seed).map_err(failed)?)?),
            PlatformSource::Heterogeneous(sweep) => sweep.problem(&self.graph, graph.graph, seed).map_err(failed),
        }
    }
}

/// Returns the cases: every graph without devices on all platforms, and the whole problems.
pub(super) fn read(graphs: &[String], devices: &[String]) -> Result<Vec<Case>, CliError> {
    let platforms: Vec<(String, PlatformSource)> =
        devices.iter().map(|text| read_platform(text)).collect::<Result<_, _>>()?;
    let mut cases = Vec::new();
    for text in graphs {
        for graph in read_graphs(text)? {
            match graph {
                Read::Whole(problem) => cases.push(Case {
                    graph: problem.name.clone(),
                    devices: "own".into(),
                    source: Source::Whole(problem),
                }),
                Read::Graph(..) if platforms.is_empty() => {
                    let message = format!("{text} has no devices; name some, for example --devices random:10");
                    return Err(CliError::input(message));
                }
                Read::Graph(name, source) => cases.extend(platforms.iter().map(|(devices, platform)| Case {
                    graph: name.clone(),
                    devices: devices.clone(),
                    source: Source::Parts(source.clone(), platform.clone()),
                })),
            }
        }
    }
    let mut seen = BTreeSet::new();
    match cases.iter().find(|case| !seen.insert((&case.graph, &case.devices))) {
        None => Ok(cases),
        Some(case) => {
            let (graph, devices) = (&case.graph, &case.devices);
            let message =
                format!("{graph} on {devices} occurs twice, but results are identified by these names; rename one");
            Err(CliError::input(message))
        }
    }
}

/// Returns the problem of a graph on devices, each from a file or a family, for a seed.
pub(super) fn problem(graph: &str, devices: Option<&str>, seed: u64) -> Result<LoadedProblem, CliError> {
    match (read_graphs(graph)?.pop(), devices) {
        (Some(Read::Graph(name, source)), Some(devices)) => {
            let (devices, platform) = read_platform(devices)?;
            Case { graph: name, devices, source: Source::Parts(source, platform) }.problem(seed)
        }
        (_, None) => Err(CliError::input(format!("{graph} has no devices; name some, for example random:10"))),
        (_, Some(devices)) => Err(CliError::input(format!("{graph} has its own devices; leave out {devices}"))),
    }
}

enum Read {
    Whole(Box<LoadedProblem>),
    Graph(String, GraphSource),
}

fn read_graphs(text: &str) -> Result<Vec<Read>, CliError> {
    if is_generator(text) {
        let family: Family = text.parse().map_err(|error| CliError::input(format!("{text}: {error}")))?;
        return Ok(vec![Read::Graph(family.to_string(), GraphSource::Family(family))]);
    }
    match read_file(text)? {
        Loaded::Graph(graph) => Ok(vec![Read::Graph(graph.name.clone(), GraphSource::File(graph))]),
        Loaded::Problems(problems) => Ok(problems.into_iter().map(|problem| Read::Whole(Box::new(problem))).collect()),
        _ => Err(CliError::input(format!("{text} holds devices instead of a graph; name it with --devices"))),
    }
}

/// Whether a text is no file, but spells a family of graphs or devices.
pub(super) fn is_generator(text: &str) -> bool {
    text.contains(':') && !Path::new(text).exists()
}

fn read_platform(text: &str) -> Result<(String, PlatformSource), CliError> {
    let wrong = || {
        CliError::input(format!(
            "{text}: unknown devices; write a file's name, random:COUNT, related:COUNT:CCR or unrelated:COUNT:CCR"
        ))
    };
    if let (true, Some((kind, rest))) = (is_generator(text), text.split_once(':')) {
        if kind == "random" {
            let devices: Devices = rest.parse().map_err(|error| CliError::input(format!("{text}: {error}")))?;
            return Ok((format!("random:{devices}"), PlatformSource::Random(devices)));
        }
        let (count, weight) = rest.split_once(':').map_or((rest, None), |(count, weight)| (count, Some(weight)));
        let devices = count.parse().map_err(|_| wrong())?;
        let communication = weight.map_or(Ok(1.0), str::parse).map_err(|_| wrong())?;
        let heterogeneous = |heterogeneity| {
            PlatformSource::Heterogeneous(Sweep { devices, heterogeneity, communication, ..Sweep::default() })
        };
        let source = match kind {
            "related" => heterogeneous(Heterogeneity::Related),
            "unrelated" => heterogeneous(Heterogeneity::Unrelated),
            _ => return Err(wrong()),
        };
        return Ok((text.into(), source));
    }
    let path = Path::new(text);
    let stem = path.file_stem().map_or(text.into(), |stem| stem.to_string_lossy().into_owned());
    if is_platform_file(path)? {
        let platform = PlatformFile::read(path)?.platform().map_err(|error| CliError::in_file(path, error))?;
        return Ok((stem, PlatformSource::File(platform, Some("s"))));
    }
    match read_file(text)? {
        Loaded::Platform(platform) => Ok((stem, PlatformSource::File(platform, None))),
        _ => Err(CliError::input(format!("{text} does not hold devices"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(graphs: &[&str], devices: &[&str]) -> String {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        read(&owned(graphs), &owned(devices)).map(|_| ()).expect_err("refused").to_string()
    }

    #[test]
    fn families_on_families_are_drawn_by_seed() {
        let cases = read(&["fft:4".into(), "layered:3".into()], &["random:5".into(), "unrelated:3:0.5".into()]);
        let cases = cases.expect("four cases");
        assert_eq!(cases.len(), 4);
        assert!(cases.iter().all(Case::draws));
        let problem = |seed| cases[3].problem(seed).expect("a problem");
        assert_eq!(problem(1), problem(1));
        assert_ne!(problem(1), problem(2));
        assert_eq!(problem(1).platform.device_count(), 3);
        assert_eq!(cases[0].problem(0).expect("a problem").platform.device_count(), 5);
    }

    #[test]
    fn parameters_are_named_alike_however_they_are_written() {
        let cases = read(&["layered:3,limit=10,tasks=5".into()], &["random:5,rate=10-60,cpu-share=0.5".into()]);
        let case = &cases.expect("a case")[0];
        assert_eq!((case.graph.as_str(), case.devices.as_str()), ("layered:3,tasks=5-5", "random:5,cpu-share=0.5"));
        assert_eq!(case.problem(0).expect("a problem").graph.task_count(), 15);
    }

    #[test]
    fn what_cannot_be_a_case_is_refused_with_the_next_step() {
        for (graphs, devices, part) in [
            (["fft:4"], &["random:x"][..], "size is `x`"),
            (["fft:4"], &["random:3:1"], "size is `3:1`"),
            (["fft:4"], &["alike:3"], "random:COUNT"),
            (["fft:4"], &["random:3,cpus=1"], "memory-times-speed"),
            (["layered:4,width=3"], &["random:3"], "edge-probability"),
            (["layered:4"], &["random:3", "random:03"], "twice"),
            (["fft:4"], &[], "--devices random:10"),
            (["fft:x"], &["random:3"], "whole number"),
            (["fftt:4"], &["random:3"], "cholesky"),
            (["missing.csv"], &["random:3"], "missing.csv"),
            (["fft:4"], &["random:3", "random:3"], "twice"),
        ] {
            let message = message(&graphs, devices);
            assert!(message.contains(part), "{message}");
        }
        let odd = read(&["fft:5".into()], &["random:3".into()]).expect("a case")[0].problem(0);
        assert!(odd.expect_err("5 is no power of two").to_string().contains("fft:5 on random:3"));
    }
}
