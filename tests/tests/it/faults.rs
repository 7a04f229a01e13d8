//! Every small input that once failed gives its right outputs in all configurations. `tests/data/faults/README.md`
//! describes their origin.

use anabranch::Tensor;
use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::execute::RunOptions;
use anabranch::lower::Rewrites;
use anabranch::plan::{PlanOptions, StreamMode};
use anabranch::session::{Inputs, Outputs, Session, SessionConfig};
use anabranch_report::npy::read_npz;
use anabranch_tests::{one_cpu, options};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// A pair: the model's file, its inputs, and the right outputs.
struct Pair {
    name: String,
    model: PathBuf,
    inputs: Inputs,
    outputs: Vec<(String, Tensor)>,
}

/// Returns the maximum relative difference of a float. Integers and booleans must be equal.
fn tolerance(name: &str) -> f64 {
    match name {
        // Sums of 64 bits, whose order is not NumPy's.
        name if name.starts_with("f64_") => 1e-12,
        // Exponentials of 32 bits.
        "nan_literal" => 1e-6,
        _ => 0.0,
    }
}

fn pairs() -> Vec<Pair> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/faults");
    let files = std::fs::read_dir(&folder).expect("the folder is there").map(|entry| entry.expect("readable").path());
    let mut models: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "onnx")).collect();
    models.sort();
    assert!(models.len() > 1, "{} holds no pairs", folder.display());
    models.into_iter().map(Pair::read).collect()
}

impl Pair {
    fn read(model: PathBuf) -> Self {
        let name = model.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let (mut inputs, mut outputs) = (Inputs::new(), Vec::new());
        for (key, tensor) in read_npz(&model.with_extension("npz")).expect("beside the model") {
            match (key.strip_prefix("in__"), key.strip_prefix("out__")) {
                (Some(input), _) => inputs = inputs.tensor(input, tensor),
                (None, Some(output)) => outputs.push((output.to_owned(), tensor)),
                (None, None) => panic!("{name}: unexpected member {key}"),
            }
        }
        Self { name, model, inputs, outputs }
    }

    fn open(&self, options: SessionConfig) -> Session {
        Session::open(&self.model, options).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Checks that a session gives the right outputs, twice.
    fn require(&self, way: &str, session: &Session) {
        for _ in 0..2 {
            match session.run(&self.inputs) {
                Ok(outputs) => self.compare(way, &outputs),
                Err(error) => panic!("{} {way}: {error}", self.name),
            }
        }
    }

    fn compare(&self, way: &str, outputs: &Outputs) {
        for (output, want) in &self.outputs {
            let found = outputs.tensor(output).unwrap_or_else(|error| panic!("{} {way}: {error}", self.name));
            let (name, tolerance) = (format!("{} {way}: {output}", self.name), tolerance(&self.name));
            assert_eq!(found.spec(), want.spec(), "{name}");
            let pairs = numbers(found).zip(numbers(want)).map(|(found, want)| found.into_iter().zip(want).enumerate());
            match pairs {
                None => assert!(found.same_bits(want), "{name}"),
                Some(mut pairs) => {
                    let wrong = pairs.find(|(_, (found, want))| !is_right(*found, *want, tolerance));
                    assert!(wrong.is_none(), "{name}: at, (found, right): {wrong:?}");
                }
            }
        }
    }
}

/// Whether a float is right: it has the same bits, both are NaN, or it is near enough.
fn is_right(found: f64, want: f64, tolerance: f64) -> bool {
    let same = found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan());
    same || (tolerance > 0.0 && (found - want).abs() <= tolerance * want.abs())
}

/// Returns the elements of a tensor of floats.
fn numbers(tensor: &Tensor) -> Option<Vec<f64>> {
    if let Some(elements) = tensor.elements::<f32>() {
        return Some(elements.iter().map(|element| f64::from(*element)).collect());
    }
    if let Some(elements) = tensor.elements::<half::f16>() {
        return Some(elements.iter().map(|element| element.to_f64()).collect());
    }
    if let Some(elements) = tensor.elements::<half::bf16>() {
        return Some(elements.iter().map(|element| element.to_f64()).collect());
    }
    tensor.elements::<f64>().map(<[f64]>::to_vec)
}

fn threads(count: usize) -> SessionConfig {
    one_cpu().with_threads(NonZeroUsize::new(count).expect("some"))
}

fn all(way: &str, options: impl Fn() -> SessionConfig) {
    for pair in pairs() {
        pair.require(way, &pair.open(options()));
    }
}

#[test]
fn as_it_is_with_one_thread_and_with_two() {
    all("with one thread", || threads(1));
    all("with two threads", || threads(2));
}

#[test]
fn as_it_is_once_costs_were_learnt() {
    for pair in pairs() {
        let session = pair.open(threads(2));
        for _ in 0..4 {
            let profiled = RunOptions::default().with_profile(true);
            let run =
                session.run_with(&pair.inputs, &profiled).unwrap_or_else(|error| panic!("{}: {error}", pair.name));
            session.learn(&run);
        }
        let mut learnt = pair.open(threads(2).with_costs(session.costs()));
        pair.require("with costs that were learnt", &learnt);
        learnt = pair.open(options("auto").with_costs(session.costs()));
        pair.require("placed with costs that were learnt", &learnt);
    }
}

#[test]
fn unfused() {
    all("unfused", || one_cpu().with_fusion(Rewrites::NONE));
}

#[test]
fn streamed() {
    let streamed = |devices: DetectOptions| {
        let plan = PlanOptions::default().with_streaming(StreamMode::Always);
        SessionConfig::default().with_devices(devices).with_plan(plan)
    };
    all("streamed on one device", || streamed(DetectOptions::default().without_gpu()));
    let cores = || DetectOptions::default().with_cpu_granularity(CpuGranularity::Core);
    all("streamed over cores", || streamed(cores().without_gpu()));
    all("streamed over a GPU", || streamed(cores().with_software_gpu(true)));
}

#[test]
fn on_the_software_gpu() {
    all("on the software GPU", || options("gpu"));
}

#[test]
fn compiled() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (pair, options) in
        pairs().into_iter().flat_map(|pair| [threads(2), options("gpu")].map(|of| (pair.model.clone(), of)))
    {
        let pair = Pair::read(pair);
        let file = folder.path().join(&pair.name).with_extension("anabranch");
        let compiled = pair.open(options.clone()).compile(&pair.inputs, &file, "a test");
        compiled.unwrap_or_else(|error| panic!("{}: {error}", pair.name));
        let session = Session::open(&file, options).unwrap_or_else(|error| panic!("{}: {error}", pair.name));
        assert!(session.compiled().is_some(), "{}: it is opened from its source", pair.name);
        pair.require("compiled", &session);
    }
}
