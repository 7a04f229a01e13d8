//! Problems to measure, and their simulation rules.

use anabranch_placement::format::{LoadedProblem, read_problems};
use anabranch_placement::generate::{Devices, Layered};
use anabranch_placement::problem::MemoryRule;
use anabranch_placement::rules::Rules;
use std::error::Error;
use std::path::{Path, PathBuf};

/// One problem.
pub(crate) struct Case {
    /// Name of the graph.
    pub(crate) graph: String,
    /// Name of the devices.
    pub(crate) devices: String,
    /// Graph, devices and costs.
    pub(crate) problem: LoadedProblem,
    /// Costs of sends and contention of links.
    pub(crate) rules: Rules,
}

/// Returns the problems of a folder: TensorFlow graphs of the thesis on 7 and 50 devices, synthetic graphs on 100, and
/// all profiled networks.
pub(crate) fn in_directory(directory: &Path) -> Result<Vec<Case>, Box<dyn Error>> {
    let mut cases = of_tensor_flow(directory, &[7, 50])?;
    cases.extend(on_devices(directory, &[100], |name| name.starts_with("synthetic"))?);
    for network in files(&directory.join("schedulers/dnn"), "inference.json")? {
        cases.extend(of_network(&network)?);
    }
    Ok(cases)
}

/// Returns the TensorFlow graphs of a folder on these numbers of devices.
pub(crate) fn of_tensor_flow(directory: &Path, devices: &[u32]) -> Result<Vec<Case>, Box<dyn Error>> {
    on_devices(directory, devices, |name| name.ends_with("_graph") && !name.starts_with("fig"))
}

/// Returns the graphs of the thesis whose name is `wanted`, each on these numbers of devices.
fn on_devices(directory: &Path, devices: &[u32], wanted: impl Fn(&str) -> bool) -> Result<Vec<Case>, Box<dyn Error>> {
    let graphs = directory.join("thesis/graphs");
    let mut cases = Vec::new();
    for graph in files(&graphs, ".csv")?.iter().filter(|graph| wanted(&stem(graph))) {
        for count in devices {
            cases.push(of_thesis(graph, &graphs.join(format!("devices_{count}.csv")))?);
        }
    }
    Ok(cases)
}

/// Returns the thesis' smallest graph, and newly generated synthetic graphs; graph 5 has the parameters of graph 4.
pub(crate) fn of_this_crate() -> Result<Vec<Case>, Box<dyn Error>> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let graph = data.join("convolutional_network_graph.csv");
    let mut cases =
        vec![of_thesis(&graph, &data.join("devices_7.csv"))?, of_thesis(&graph, &data.join("devices_50.csv"))?];
    for (number, count) in [1, 2, 3, 4, 6].map(|number| (number, 100)).into_iter().chain([(2, 7), (3, 7)]) {
        let graph = Layered::table_7_1(number).ok_or("table 7.1 has six graphs")?.generate(0)?;
        let platform = Devices { count, ..Devices::default() }.generate(0)?;
        let name = format!("layered {number}");
        let problem = LoadedProblem::new(name.clone(), graph, platform, MemoryRule::SizeEstimate);
        cases.push(Case { graph: name, devices: format!("{count} devices"), problem, rules: Rules::THESIS });
    }
    Ok(cases)
}

fn of_thesis(graph: &Path, devices: &Path) -> Result<Case, Box<dyn Error>> {
    let problem = read_problems(&[graph, devices])?.remove(0);
    Ok(Case { graph: stem(graph), devices: stem(devices), problem, rules: Rules::THESIS })
}

fn of_network(network: &Path) -> Result<Vec<Case>, Box<dyn Error>> {
    let case = |problem: LoadedProblem| Case {
        graph: problem.name.clone(),
        devices: format!("{} devices", problem.platform.device_count()),
        problem,
        rules: Rules::default(),
    };
    Ok(read_problems(&[network])?.into_iter().map(case).collect())
}

/// Returns the files of a folder with this suffix, by name; none if the folder does not exist.
fn files(folder: &Path, suffix: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    if folder.is_dir() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
