//! Cases of a sweep: graphs from files and families, on platforms from files and families.

use super::super::CliError;
use super::super::args::parse_size;
use anabranch_placement::format::{Loaded, LoadedGraph, LoadedProblem, read as read_file};
use anabranch_placement::generate::{Devices, FAMILIES, GenerateError, Heterogeneity, Sweep, graph_by_name};
use anabranch_placement::platform::Platform;
use anabranch_placement::problem::MemoryRule;
use anabranch_placement::quoted::Name;
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
    Family { name: String, size: u32 },
}

#[derive(Clone)]
enum PlatformSource {
    File(Platform),
    /// Laich 2017, chapter 6.
    Random(u32),
    /// Topcuoglu 2002, section 5.
    Heterogeneous(Sweep),
}

/// Families that use their seed; the others have one graph per size.
const RANDOM: [&str; 3] = ["random", "layered", "table-7.1"];

impl Case {
    /// Whether it depends on the seed.
    pub(super) fn draws(&self) -> bool {
        match &self.source {
            Source::Whole(_) => false,
            Source::Parts(GraphSource::File(_), PlatformSource::File(_)) => false,
            Source::Parts(GraphSource::Family { name, .. }, PlatformSource::File(_)) => RANDOM.contains(&name.as_str()),
            Source::Parts(..) => true,
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
            GraphSource::Family { name, size } => {
                let made = graph_by_name(name, *size, seed);
                let graph = made.ok_or_else(|| unknown_family(name))?.map_err(failed)?;
                let (memory_rule, time_unit) = (MemoryRule::SizeEstimate, None);
                LoadedGraph { name: self.graph.clone(), graph, memory_rule, time_unit, task_ids: Vec::new() }
            }
        };
        match platform {
            PlatformSource::File(platform) => Ok(graph.on(platform.clone())?),
            PlatformSource::Random(count) => {
                let platform = Devices { count: *count, ..Devices::default() }.generate(seed).map_err(failed)?;
                Ok(graph.on(platform)?)
            }
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

enum Read {
    Whole(Box<LoadedProblem>),
    Graph(String, GraphSource),
}

fn read_graphs(text: &str) -> Result<Vec<Read>, CliError> {
    if let (false, Some((name, size))) = (Path::new(text).exists(), text.split_once(':')) {
        if !FAMILIES.iter().any(|(family, _)| *family == name) {
            return Err(unknown_family(name));
        }
        let size = parse_size(size).map_err(|error| CliError::input(format!("{text}: {error}")))?;
        return Ok(vec![Read::Graph(text.into(), GraphSource::Family { name: name.into(), size })]);
    }
    match read_file(text)? {
        Loaded::Graph(graph) => Ok(vec![Read::Graph(graph.name.clone(), GraphSource::File(graph))]),
        Loaded::Problems(problems) => Ok(problems.into_iter().map(|problem| Read::Whole(Box::new(problem))).collect()),
        _ => Err(CliError::input(format!("{text} holds devices instead of a graph; name it with --devices"))),
    }
}

fn unknown_family(name: &str) -> CliError {
    let known: Vec<String> = FAMILIES.iter().map(|(family, about)| format!("{family} ({about})")).collect();
    CliError::input(format!("there is no file or family {}; the families are {}", Name(name), known.join(", ")))
}

fn read_platform(text: &str) -> Result<(String, PlatformSource), CliError> {
    let wrong = || {
        CliError::input(format!(
            "{text}: unknown devices; write a file's name, random:COUNT, related:COUNT:CCR or unrelated:COUNT:CCR"
        ))
    };
    if let (false, Some((kind, rest))) = (Path::new(text).exists(), text.split_once(':')) {
        let (count, weight) = rest.split_once(':').map_or((rest, None), |(count, weight)| (count, Some(weight)));
        let devices = count.parse().map_err(|_| wrong())?;
        let communication = weight.map_or(Ok(1.0), str::parse).map_err(|_| wrong())?;
        let heterogeneous = |heterogeneity| {
            PlatformSource::Heterogeneous(Sweep { devices, heterogeneity, communication, ..Sweep::default() })
        };
        let source = match (kind, weight) {
            ("random", None) => PlatformSource::Random(devices),
            ("related", _) => heterogeneous(Heterogeneity::Related),
            ("unrelated", _) => heterogeneous(Heterogeneity::Unrelated),
            _ => return Err(wrong()),
        };
        return Ok((text.into(), source));
    }
    match read_file(text)? {
        Loaded::Platform(platform) => {
            let stem = Path::new(text).file_stem().map_or(text.into(), |stem| stem.to_string_lossy().into_owned());
            Ok((stem, PlatformSource::File(platform)))
        }
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
    fn families_that_draw_are_known() {
        for (name, _) in FAMILIES {
            let graph = |seed| graph_by_name(name, 4, seed).expect("known").expect("a graph");
            assert_eq!(graph(1) != graph(2), RANDOM.contains(name), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_a_case_is_refused_with_the_next_step() {
        for (graphs, devices, part) in [
            (["fft:4"], &["random:x"][..], "random:COUNT"),
            (["fft:4"], &["random:3:1"], "random:COUNT"),
            (["fft:4"], &[], "--devices random:10"),
            (["fft:x"], &["random:3"], "not a whole number"),
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
