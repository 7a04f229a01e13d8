//! Exports of whole networks, as `tests/onnx/exports/write.py` writes them: each is run once and compared with ONNX
//! Runtime's outputs.

use crate::one_cpu;
use anabranch::Tensor;
use anabranch::compare::floats;
use anabranch::import::load;
use anabranch::session::{Inputs, Session};
use anabranch_report::npy::read_npz;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// An export, or a note that it is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Export {
    /// Architecture, and the transformation of its export, such as `gpt2` or `gpt2-half`.
    pub name: String,
    /// Exporter: `ts` traces TorchScript, `dy` uses `torch.export`.
    pub exporter: String,
    path: PathBuf,
}

/// Result of an export.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// All outputs are within the bound of their references.
    Agrees(Measured),
    /// An output is not within the bound; the text says which output and how.
    Wrong(String),
    /// The model or its inputs were rejected, with this text.
    Refused(String),
    /// PyTorch, ONNX's tools or ONNX Runtime could not make the export, for this reason.
    Missing(String),
}

/// Measurements of an export's run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Number of nodes in the file's main graph.
    pub nodes: usize,
    /// Greatest error of an output, relative to its greatest element.
    pub error: f64,
    /// Milliseconds from the file to the first result, the median of all sessions.
    pub first: f64,
}

/// Returns the exports in a folder, by name.
///
/// # Errors
/// If the folder cannot be read.
pub fn exports(folder: &Path) -> io::Result<Vec<Export>> {
    let mut exports = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = file.strip_suffix(".onnx").or_else(|| file.strip_suffix(".txt"));
        if let Some((name, exporter)) = stem.and_then(|stem| stem.rsplit_once('.')) {
            exports.push(Export { name: name.to_owned(), exporter: exporter.to_owned(), path: path.clone() });
        }
    }
    exports.sort();
    Ok(exports)
}

impl Export {
    /// Loads the export in `sessions` sessions, runs each once on one CPU device of all cores, and compares the outputs
    /// of the last run.
    pub fn check(&self, sessions: NonZeroUsize) -> Verdict {
        if self.path.extension().is_some_and(|extension| extension == "txt") {
            return Verdict::Missing(fs::read_to_string(&self.path).unwrap_or_default().trim().to_owned());
        }
        let arrays = match read_npz(&self.path.with_extension("npz")) {
            Ok(arrays) => arrays,
            Err(error) => return Verdict::Missing(error.to_string()),
        };
        let given = arrays.iter().filter_map(|(key, tensor)| Some((key.strip_prefix("in__")?, tensor.clone())));
        let inputs = given.fold(Inputs::new(), |all, (name, tensor)| all.tensor(name, tensor));
        let mut times = Vec::with_capacity(sessions.get());
        let outputs = loop {
            let began = Instant::now();
            let outputs = Session::open(&self.path, one_cpu()).and_then(|session| session.run(&inputs));
            times.push(began.elapsed().as_secs_f64() * 1e3);
            match outputs {
                Ok(outputs) if times.len() == sessions.get() => break outputs,
                Ok(_) => {}
                Err(error) => {
                    let text = error.to_string();
                    let start = format!("{}: ", self.path.display());
                    return Verdict::Refused(text.strip_prefix(&start).unwrap_or(&text).to_owned());
                }
            }
        };
        times.sort_by(f64::total_cmp);
        let mut error = 0f64;
        for (name, expected) in arrays.iter().filter_map(|(key, tensor)| Some((key.strip_prefix("out__")?, tensor))) {
            let found = outputs.tensor(name).map_err(|error| error.to_string());
            match found.and_then(|found| self.error(found, expected)) {
                Ok(own) => error = error.max(own),
                Err(text) => return Verdict::Wrong(format!("output {name}: {text}")),
            }
        }
        Verdict::Agrees(Measured { nodes: self.nodes(), error, first: times[times.len() / 2] })
    }

    fn nodes(&self) -> usize {
        load(&self.path).map_or(0, |model| model.nodes.len())
    }

    /// Returns the allowed difference of an element, relative to the output's greatest. 16-bit floats round to 2⁻¹¹ in
    /// each operator. If an 8-bit integer is rounded up instead of down, it differs by a whole step, and so do the
    /// values computed from it.
    pub fn bound(&self) -> f64 {
        match self.name.split_once('-') {
            None => 1e-4,
            Some((_, "half")) => 1e-2,
            Some(_) => 0.1,
        }
    }

    /// Returns the greatest error relative to the greatest element, if it is within the bound.
    fn error(&self, found: &Tensor, expected: &Tensor) -> Result<f64, String> {
        if found.spec() != expected.spec() {
            return Err(format!("{} instead of {}", found.spec(), expected.spec()));
        }
        let (Some(found), Some(expected)) = (floats(found), floats(expected)) else {
            return if found.bytes() == expected.bytes() { Ok(0.0) } else { Err("other elements".into()) };
        };
        let greatest =
            expected.iter().filter(|value| value.is_finite()).fold(0f64, |most, value| most.max(value.abs()));
        let mut error = 0f64;
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let same = found == expected || found.is_nan() && expected.is_nan();
            let difference = if same { 0.0 } else { (found - expected).abs() };
            if difference.is_nan() || difference > self.bound() * greatest + 1e-5 {
                return Err(format!("element {at} is {found}, not {expected}; the greatest is {greatest}"));
            }
            error = error.max(difference);
        }
        Ok(if greatest > 0.0 { error / greatest } else { error })
    }

    /// Returns the export and its verdict as JSON.
    pub fn json(&self, verdict: &Verdict) -> Value {
        let mut line = json!({ "architecture": self.name, "exporter": self.exporter, "bound": self.bound() });
        let (kind, fields) = match verdict {
            Verdict::Agrees(m) => ("agrees", json!({ "nodes": m.nodes, "error": m.error, "first_ms": m.first })),
            Verdict::Wrong(reason) => ("wrong", json!({ "reason": reason })),
            Verdict::Refused(reason) => ("refused", json!({ "reason": reason })),
            Verdict::Missing(reason) => ("missing", json!({ "reason": reason })),
        };
        line["verdict"] = json!(kind);
        fields.as_object().into_iter().flatten().for_each(|(key, value)| line[key] = value.clone());
        line
    }
}
