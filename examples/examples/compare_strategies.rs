//! Predicted and measured makespan of a bundled model under each strategy, on the devices of this machine.
//!
//!     cargo run --release -p anabranch-examples --example compare_strategies

use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::execute::RunOptions;
use anabranch::{Inputs, Session, SessionConfig};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/unet.onnx");
    let mut costs = None;
    println!("{:8} {:>12} {:>12}", "place", "predicted", "measured");
    for place in ["cpu", "gpu", "heft", "mite", "cp"] {
        let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Core).with_software_gpu(true);
        let options = SessionConfig::default()
            .with_devices(devices)
            .with_strategy(place.parse()?)
            .with_costs(costs.take().unwrap_or_default());
        let session = Session::open(&model, options)?;
        let inputs = session.fill_random(Inputs::new(), 1)?;
        let profiled = RunOptions::default().with_profile(true);
        session.run_with(&inputs, &profiled)?;
        let run = session.run_with(&inputs, &profiled)?;
        // The next strategy plans with the times measured under this one.
        session.learn(&run);
        costs = Some(session.costs());
        let predicted = run.prepared.plan().predicted().makespan * 1e3;
        println!("{place:8} {predicted:9.3} ms {:9.3} ms", run.took().as_secs_f64() * 1e3);
    }
    Ok(())
}
