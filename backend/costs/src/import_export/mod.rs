//! Exports and imports costs: our own JSON, and StarPU's performance models.
//!
//! A file is checked whole before any of it is kept: after an error the store is unchanged.

mod starpu;
mod starpu_text;

use super::store::CostStore;
use anabranch_base::files;
use anabranch_base::quoted::Line;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Largest size of a file in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// Most files of a directory that are read.
const MOST_FILES: usize = 10_000;

/// A format of costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostFormat {
    /// The whole store, in its own format.
    Json,
    /// A directory of StarPU history-based performance models, format version 45, one file per op.
    ///
    /// It holds the nodes of one machine under this build's kernels, as count, mean and deviation.
    StarPu,
}

/// Reason that costs cannot be read or written: the file, the line if known, and the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Line(.0))]
pub struct ImportExportError(String);

impl ImportExportError {
    /// An error of the file system.
    fn io(path: &Path, error: &io::Error) -> Self {
        Self(format!("{}: {error}", path.display()))
    }

    /// An error in a file's content; nothing was imported.
    fn content(path: &Path, problem: &str) -> Self {
        Self(format!("{}: {problem}; nothing was imported", path.display()))
    }
}

impl CostFormat {
    /// Returns the format that a file's extension names.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    /// Writes the store's costs to a file, or to the files of a directory. Returns the number of files written.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn export(self, store: &CostStore, path: &Path) -> Result<usize, ImportExportError> {
        let refused = |error| ImportExportError::io(path, &error);
        let text = match self {
            Self::Json => store.to_json().map_err(refused)?,
            Self::StarPu => {
                fs::create_dir_all(path).map_err(refused)?;
                let models = starpu::models(store);
                for (name, text) in &models {
                    let file = path.join(name);
                    let written = files::write(&file, |file| file.write_all(text.as_bytes()));
                    written.map_err(|error| ImportExportError::io(&file, &error))?;
                }
                return Ok(models.len());
            }
        };
        files::write(path, |file| file.write_all(&text)).map_err(refused)?;
        Ok(1)
    }

    /// Reads costs from a file, or StarPU models from all files of a directory.
    ///
    /// # Errors
    /// If a file cannot be read, or any of its content is invalid.
    pub fn import(self, path: &Path) -> Result<CostStore, ImportExportError> {
        let read = |path: &Path| files::read(path, MOST_BYTES).map_err(|error| ImportExportError::io(path, &error));
        match self {
            Self::Json => parse_json(&read(path)?).map_err(|problem| ImportExportError::content(path, &problem)),
            Self::StarPu => {
                let mut store = CostStore::default();
                let files = listed(path).map_err(|error| ImportExportError::io(path, &error))?;
                for file in files {
                    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                    let model = starpu::read(&name, &read(&file)?);
                    store.merge(&model.map_err(|problem| ImportExportError::content(&file, &problem))?);
                }
                Ok(store)
            }
        }
    }
}

fn parse_json(text: &[u8]) -> Result<CostStore, String> {
    match CostStore::parse(text)? {
        (store, 0) => Ok(store),
        (_, dropped) => Err(format!("invalid entries: {dropped}")),
    }
}

/// Lists the file itself, or all files of the directory by name.
fn listed(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
        if files.len() > MOST_FILES {
            return Err(io::Error::other(format!("it has more than {MOST_FILES} files")));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{History, LinkCosts, MachineCosts, NodeCosts, Sample};
    use std::collections::BTreeMap;

    /// A store with nodes of two ops on a CPU and a GPU, and a link with sizes.
    pub(super) fn filled() -> CostStore {
        let mut store = CostStore::default();
        store.settle("a machine, with \"quotes\"");
        let history = |times: &[f64]| {
            let mut history = History::default();
            for time in times {
                assert!(history.add(Sample { nanoseconds: *time, cold: false, at: 7 }));
            }
            history.add(Sample { nanoseconds: 9e5, cold: true, at: 8 });
            history
        };
        let node = |op: &str, times: &[f64]| NodeCosts {
            op: op.into(),
            flops: 2e6,
            bytes: 4096.0,
            versions: BTreeMap::from([(anabranch_kernels::VERSION, Box::new(history(times)))]),
            ..NodeCosts::default()
        };
        let here = store.here_mut();
        let cpu = here.devices.entry("cpu | A, B".into()).or_default();
        cpu.nodes.insert("matmul f32[2,3]".into(), node("matmul", &[1000.0, 1200.0, 1100.0]).into());
        cpu.nodes.insert("map f32[4]".into(), node("map", &[500.0, 510.0]).into());
        let gpu = here.devices.entry("gpu | C".into()).or_default();
        gpu.nodes.insert("matmul f32[2,3]".into(), node("matmul", &[70.0, 71.0, 75.0]).into());
        let mut link = LinkCosts::affine(1e-5, 1e9);
        link.record(1024, Sample { nanoseconds: 2e4, cold: false, at: 9 });
        link.record_streamed(1 << 20, Sample { nanoseconds: 2e6, cold: false, at: 9 });
        here.links.insert(MachineCosts::link_key("cpu | A, B", "gpu | C"), link);
        store
    }

    fn exported_and_imported(format: CostFormat, name: &str) -> CostStore {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join(name);
        format.export(&filled(), &path).expect("writable");
        let mut store = format.import(&path).expect("readable");
        store.settle(filled().fingerprint());
        store
    }

    #[test]
    fn json_gives_back_what_was_exported() {
        assert_eq!(exported_and_imported(CostFormat::Json, "costs.json"), filled());
    }

    #[test]
    fn starpu_gives_back_counts_means_and_deviations() {
        let (store, filled) = (exported_and_imported(CostFormat::StarPu, "45"), filled());
        for (device, costs) in &filled.here().devices {
            for (key, node) in &costs.nodes {
                let back = &store.here().devices[device].nodes[key];
                assert_eq!((&back.op, back.flops, back.bytes), (&node.op, node.flops, node.bytes));
                let (ours, theirs) =
                    (&node.versions[&anabranch_kernels::VERSION], store.here().node(device, key).expect("it"));
                assert_eq!(ours.count, theirs.count);
                assert!((ours.mean - theirs.mean).abs() < 1e-5 * ours.mean, "{key}");
                assert!((ours.deviation() - theirs.deviation()).abs() < 1e-3 * ours.mean, "{key}");
            }
        }
    }

    #[test]
    fn a_second_import_changes_nothing() {
        let mut twice = filled();
        twice.merge(&filled());
        assert_eq!(twice, filled());
    }

    #[test]
    fn every_truncation_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let whole = directory.path().join("whole");
        CostFormat::StarPu.export(&filled(), &whole.with_extension("d")).expect("writable");
        CostFormat::Json.export(&filled(), &whole.with_extension("json")).expect("writable");
        let model =
            fs::read_dir(whole.with_extension("d")).expect("a directory").next().expect("a file").expect("it").path();
        let cases = [(CostFormat::StarPu, model), (CostFormat::Json, whole.with_extension("json"))];
        for (format, path) in cases {
            let text = fs::read(&path).expect("readable");
            let cut = directory.path().join("matmul.cut");
            for length in (0..text.len().saturating_sub(2)).step_by(7) {
                fs::write(&cut, &text[..length]).expect("writable");
                assert!(format.import(&cut).is_err(), "{format:?} cut at {length}");
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let missing = Path::new("/nonexistent/costs.json");
        let error = CostFormat::Json.import(missing).expect_err("no such file").to_string();
        assert!(error.starts_with("/nonexistent/costs.json: "), "{error}");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("costs.json");
        fs::write(&file, "{\"version\": 77}").expect("writable");
        let error = CostFormat::Json.import(&file).expect_err("a newer format").to_string();
        assert!(error.contains("format is 77") && error.contains("nothing was imported"), "{error}");
    }
}
