//! Small inputs that once gave wrong results give right ones now, whichever way they are run.

use anabranch::Tensor;
use anabranch::compare::Tolerance;
use anabranch::lower::Rewrites;
use anabranch::plan::StreamMode;
use anabranch::session::{Inputs, Session, SessionOptions};
use anabranch_cli::npy::read_npz;
use anabranch_tests::{one_cpu, options};
use std::fs;
use std::path::{Path, PathBuf};

/// What `--expect` allows where nothing else is asked for, of 64-bit floats far less.
fn tolerance(expected: &Tensor) -> Tolerance {
    match expected.dtype() {
        anabranch::DType::F64 => Tolerance { rtol: 1e-12, atol: 0.0 },
        _ => Tolerance { rtol: 1e-3, atol: 1e-5 },
    }
}

/// The pairs, by their models' files.
fn pairs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/faults");
    let files = fs::read_dir(folder).expect("the folder is committed").map(|file| file.expect("readable").path());
    let mut models: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "onnx")).collect();
    models.sort();
    assert!(models.len() >= 3);
    models
}

/// A pair's inputs and right outputs.
fn arrays(model: &Path) -> (Inputs, Vec<(String, Tensor)>) {
    let (mut inputs, mut outputs) = (Inputs::new(), Vec::new());
    for (key, tensor) in read_npz(&model.with_extension("npz")).expect("the arrays are committed") {
        match (key.strip_prefix("in__"), key.strip_prefix("out__")) {
            (Some(name), _) => inputs = inputs.tensor(name, tensor),
            (None, Some(name)) => outputs.push((name.to_owned(), tensor)),
            (None, None) => panic!("{}: unexpected member {key}", model.display()),
        }
    }
    (inputs, outputs)
}

fn require(model: &Path, how: &str, session: &Session) {
    let (name, (inputs, expected)) = (model.display(), arrays(model));
    let outputs = session.run(&inputs).unwrap_or_else(|error| panic!("{name} {how}: {error}"));
    for (output, expected) in &expected {
        let found = outputs.tensor(output).unwrap_or_else(|error| panic!("{name} {how}: {error}"));
        let verdict = tolerance(expected).compare(found, expected);
        verdict.unwrap_or_else(|difference| panic!("{name} {how}: output {output}: {difference}"));
    }
}

fn run_all(how: &str, options: &SessionOptions) {
    for model in pairs() {
        let session = Session::open(&model, options.clone());
        require(&model, how, &session.unwrap_or_else(|error| panic!("{} {how}: {error}", model.display())));
    }
}

#[test]
fn plainly() {
    run_all("plainly", &one_cpu());
}

#[test]
fn unfused() {
    run_all("unfused", &one_cpu().with_fusion(Rewrites::NONE));
}

#[test]
fn streamed() {
    let mut options = one_cpu();
    options.plan.streaming = StreamMode::Always;
    run_all("streamed", &options);
}

#[test]
fn on_the_software_gpu() {
    run_all("on the software GPU", &options("gpu"));
}

#[test]
fn compiled() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("model.anabranch");
    for model in pairs() {
        let session = Session::open(&model, one_cpu()).expect("opens");
        let compiled = session.compile(&arrays(&model).0, &file, "a test");
        compiled.unwrap_or_else(|error| panic!("{} compiled: {error}", model.display()));
        require(&model, "compiled", &Session::open(&file, one_cpu()).expect("as compiled"));
    }
}
