//! How long does a whole model take, on the CPU, on the GPU, and placed over both by HEFT with measured costs?
//!
//! Models are those of the directory in `ANABRANCH_MODELS` (files `*.onnx`, each with its inputs as `in__NAME` in an `.npz`
//! beside it), else the bundled ones. A real GPU is used if there is one, else the software adapter, whose speed means nothing.

use anabranch::device::DetectOptions;
use anabranch::execute::RunOptions;
use anabranch::profile::CostStore;
use anabranch::{Inputs, Session, SessionOptions};
use anabranch_cli::npy::read_npz;
use criterion::{Criterion, criterion_group, criterion_main};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The models' files, by name.
fn models() -> Vec<PathBuf> {
    let bundled = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let directory = std::env::var_os("ANABRANCH_MODELS").map_or_else(bundled, PathBuf::from);
    let entries = std::fs::read_dir(&directory).expect("the models' directory can be read");
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "onnx"));
    files.sort();
    files
}

/// The inputs beside a model.
fn inputs(file: &Path) -> Inputs {
    let arrays = read_npz(&file.with_extension("npz")).expect("a model's inputs are beside it");
    arrays.into_iter().fold(Inputs::new(), |inputs, (key, tensor)| match key.strip_prefix("in__") {
        Some(name) => inputs.tensor(name, tensor),
        None => inputs,
    })
}

fn whole_models(criterion: &mut Criterion) {
    for file in models() {
        let name = file.file_stem().expect("a model file has a name").to_string_lossy().into_owned();
        let mut group = criterion.benchmark_group(format!("model/{name}"));
        let mut costs = CostStore::default();
        let inputs = inputs(&file);
        for place in ["cpu", "gpu", "heft"] {
            let Ok(strategy) = place.parse();
            let options = SessionOptions::default()
                .with_devices(DetectOptions::default().with_software_gpu(true))
                .with_strategy(strategy)
                .with_costs(costs.clone());
            let session = Session::open(&file, options).expect("a bundled model opens");
            let profiled = RunOptions::default().with_profile(true);
            // Nothing is learnt from the first run, which touches memory for the first time.
            session.run(&inputs).expect("runs");
            for _ in 0..5 {
                let run = session.run_with(&inputs, &profiled).expect("runs");
                session.learn(&run);
            }
            costs = session.costs();
            group.bench_function(place, |bencher| bencher.iter(|| session.run(&inputs).expect("runs")));
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = whole_models
}
criterion_main!(benches);
