//! Opens a model, runs it on random inputs, and prints where its nodes ran.
//!
//!     cargo run --release -p anabranch-examples --example run_model [MODEL.onnx]
use anabranch::execute::RunOptions;
use anabranch::{Inputs, Session, SessionConfig};
use std::collections::BTreeMap;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/convnet.onnx");
    let model = std::env::args_os().nth(1).map_or(bundled, Into::into);
    let options = SessionConfig::default().with_software_gpu(true);
    let session = Session::open(model, options)?;
    let inputs = session.fill_random(Inputs::new(), 1)?;
    let run = session.run_with(&inputs, &RunOptions::default().with_profile(true))?;

    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, device) in run.measured.executed() {
        *nodes.entry(&run.prepared.plan().device(device).name).or_default() += 1;
    }
    println!("nodes by device: {nodes:?}");
    println!("predicted {:.3} ms", run.prepared.plan().predicted().makespan * 1e3);
    println!("measured  {:.3} ms", run.took().as_secs_f64() * 1e3);
    for (name, tensor) in run.outputs.iter() {
        println!("output {name}: {}", tensor.spec());
    }
    Ok(())
}
