//! Results of the thesis' own evaluation, from runs of its public code.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Makespans under PCT by graph, devices and strategy; the mean of several runs if there are several.
#[derive(Default)]
pub(crate) struct Golden {
    makespans: BTreeMap<(String, String, String), f64>,
}

/// Distribution over runs on 50 devices.
#[derive(Deserialize)]
struct Distribution {
    graph: String,
    devices: u32,
    partitioner: String,
    scheduler: String,
    makespan_mean: f64,
}

/// One run on other devices.
#[derive(Deserialize)]
struct Assignment {
    graph: String,
    devices: String,
    partitioner: String,
    #[serde(rename = "PCT")]
    pct: Range,
}

#[derive(Deserialize)]
struct Range {
    makespan_min: f64,
}

/// One run on a synthetic graph.
#[derive(Deserialize)]
struct Synthetic {
    graph: String,
    devices: u32,
    code: String,
    partitioner: String,
    makespan: f64,
}

/// Names of strategies in the published code, with our names.
const NAMES: [(&str, &str); 15] = [
    ("Hash", "hash"),
    ("Hashing", "hash"),
    ("HEFT", "heft"),
    ("HEFT-corrected", "heft-corrected"),
    ("HeftPartitioning", "heft"),
    ("BatchSplit", "batch"),
    ("RangeBasedImportancePartitioning", "batch"),
    ("CP", "cp"),
    ("AssignLongestPath", "cp"),
    ("ICP", "icp"),
    ("DividePathPartitioning", "icp"),
    ("MITE", "mite"),
    ("WeightFunctionPartitioning", "mite"),
    ("DFS", "dfs"),
    ("DFSPartitioning", "dfs"),
];

impl Golden {
    /// Reads the files that exist, out of three.
    pub(crate) fn read(directory: &Path) -> Result<Self, Box<dyn Error>> {
        let mut golden = Golden::default();
        for run in read::<Assignment>(&directory.join("thesis/assignments.json"))? {
            golden.insert(&run.graph, &run.devices, &run.partitioner, run.pct.makespan_min);
        }
        // Means replace single runs.
        for run in read::<Distribution>(&directory.join("thesis/fig7_4_50_devices.json"))? {
            if run.scheduler == "PCT" {
                golden.insert(&run.graph, &format!("devices_{}", run.devices), &run.partitioner, run.makespan_mean);
            }
        }
        for run in read::<Synthetic>(&directory.join("thesis/synthetic_100_devices.json"))? {
            let partitioner = if run.code.starts_with("corrected") { "HEFT-corrected" } else { &run.partitioner };
            golden.insert(&run.graph, &format!("devices_{}", run.devices), partitioner, run.makespan);
        }
        Ok(golden)
    }

    fn insert(&mut self, graph: &str, devices: &str, partitioner: &str, makespan: f64) {
        if let Some((_, strategy)) = NAMES.iter().find(|(published, _)| *published == partitioner) {
            let key = (key(graph), devices.trim_end_matches(".csv").into(), (*strategy).into());
            self.makespans.insert(key, makespan);
        }
    }

    /// Returns the makespan of `strategy`.
    pub(crate) fn makespan(&self, graph: &str, devices: &str, strategy: &str) -> Option<f64> {
        self.makespans.get(&(key(graph), devices.into(), strategy.into())).copied()
    }
}

/// Normalises a graph's name, which differs slightly between the files.
fn key(graph: &str) -> String {
    let graph = graph.trim_end_matches(".csv").trim_end_matches("_seed0").trim_end_matches("_graph");
    match graph.strip_prefix("graph") {
        Some(number) => format!("synthetic_{number}"),
        None => graph.into(),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Box<dyn Error>> {
    if !path.is_file() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&std::fs::read(path)?).map_err(|error| format!("{}: {error}", path.display()).into())
}
