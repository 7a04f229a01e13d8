//! Time of a whole model: on the CPU, on the GPU, and placed on both by HEFT with measured costs.
//!
//! The models are those of the directory in `ANABRANCH_MODELS` (files `*.onnx`, each with an `.npz` of its inputs as
//! `in__NAME`), else the bundled ones. A real GPU is used if there is one, else the software adapter, whose speed means
//! nothing.

use anabranch::costs::CostStore;
use anabranch::execute::RunOptions;
use anabranch::{Session, SessionConfig};
use anabranch_bench::models::{inputs_beside, models};
use criterion::{Criterion, criterion_group, criterion_main};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn whole_models(criterion: &mut Criterion) {
    let bundled = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let directory = std::env::var_os("ANABRANCH_MODELS").map_or_else(bundled, PathBuf::from);
    for file in models(&directory).expect("the models' directory can be read") {
        let name = file.file_stem().expect("a model file has a name").to_string_lossy().into_owned();
        let mut group = criterion.benchmark_group(format!("model/{name}"));
        let mut costs = CostStore::default();
        let inputs = inputs_beside(&file).expect("readable").expect("a model's inputs are beside it");
        for place in ["cpu", "gpu", "heft"] {
            let Ok(strategy) = place.parse();
            let options =
                SessionConfig::default().with_software_gpu(true).with_strategy(strategy).with_costs(costs.clone());
            let session = Session::open(&file, options).expect("a bundled model opens");
            let profiled = RunOptions::default().with_profile(true);
            // The first run touches memory for the first time, so its times are not learned.
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
