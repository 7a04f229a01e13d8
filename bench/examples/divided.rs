//! A batch on each device alone, and its rows divided among all devices: times, rates and their ratios in one run.
//!
//! Run `cargo run --release -p anabranch-bench --example divided -- MODEL.onnx --rows 32 --cpu-devices core`; it prints
//! a table in Markdown. The first dimension of all inputs is the batch, also in models with a fixed batch. Devices are
//! measured first, and each plan is profiled, learned from and made again. Then all plans run in turn.
//! `--emulate cpu1=2,cpu2=4` slows CPU devices down. The last lines compare the rate of the divided batch with the sum
//! of the rates of the devices, and its time with the prediction.

use anabranch::execute::RunOptions;
use anabranch::import::{self, Dim};
use anabranch::planning::{PlanChoice, Strategy};
use anabranch::session::{Inputs, Prepared};
use anabranch::{Session, SessionConfig};
use clap::Parser;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

/// Times of a batch on each device alone and divided among them
#[derive(Parser, Debug)]
struct Arguments {
    /// ONNX model
    model: PathBuf,
    /// Rows of the batch
    #[arg(long, default_value_t = 32)]
    rows: usize,
    /// Sizes of other dimensions, as in seq=128
    #[arg(long)]
    dims: Option<String>,
    /// Parts of the batch
    #[arg(long, default_value = "auto")]
    parts: String,
    /// Division of the CPUs
    #[arg(long, default_value = "machine")]
    cpu_devices: String,
    /// Devices to use
    #[arg(long)]
    devices: Option<String>,
    /// Factors by which CPU devices are slowed down
    #[arg(long)]
    emulate: Option<String>,
    /// Rounds of profiled runs before the measurement
    #[arg(long, default_value_t = 3)]
    learn: usize,
    /// Measured runs of each plan
    #[arg(long, default_value_t = 15)]
    runs: usize,
}

/// Symbol of the first dimension of all inputs.
const BATCH: &str = "rows";

/// A plan and its measured seconds.
struct Entry {
    name: String,
    session: Session,
    choice: PlanChoice,
    prepared: Option<Arc<Prepared>>,
    seconds: Vec<f64>,
}

impl Arguments {
    fn config(&self, split: bool) -> Result<SessionConfig, Box<dyn Error>> {
        let mut config = SessionConfig::default().with_calibration(true);
        config.set("cpu_devices", &self.cpu_devices)?;
        let given = [("devices", &self.devices), ("emulate", &self.emulate), ("dims", &self.dims)];
        for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            config.set(name, value)?;
        }
        if split {
            config.set("split", &format!("{BATCH}={}", self.parts))?;
        }
        Ok(config.with_dim(BATCH, self.rows))
    }

    fn open(&self, name: &str, split: bool) -> Result<Entry, Box<dyn Error>> {
        let mut model = import::load(&self.model)?;
        for input in &mut model.inputs {
            let first = input.dims.as_mut().and_then(|dims| dims.first_mut());
            first.into_iter().for_each(|first| *first = Dim::Symbol(BATCH.into()));
        }
        let session = Session::new(model, self.config(split)?)?;
        let choice = match split {
            true => session.choice(),
            false => PlanChoice { strategy: Strategy::Device(name.to_owned()), ..session.choice() },
        };
        Ok(Entry { name: name.to_owned(), session, choice, prepared: None, seconds: Vec::new() })
    }
}

impl Entry {
    /// Plans with the present costs, and learns from a profiled run that is not the plan's first.
    fn learn(&mut self, inputs: &Inputs) -> Result<(), Box<dyn Error>> {
        self.plan(inputs)?;
        let prepared = self.prepared.as_ref().ok_or("it was planned")?;
        for _ in 0..3 {
            let run = self.session.run_prepared(prepared, inputs, &RunOptions::default().with_profile(true))?;
            self.session.learn(&run);
        }
        Ok(())
    }

    fn plan(&mut self, inputs: &Inputs) -> Result<(), Box<dyn Error>> {
        self.prepared = None;
        let planned = self.session.plan_with(inputs, &self.choice)?;
        self.prepared = Some(self.session.ready(&planned)?);
        Ok(())
    }

    fn run(&mut self, inputs: &Inputs) -> Result<(), Box<dyn Error>> {
        let prepared = self.prepared.as_ref().ok_or("it was planned")?;
        let run = self.session.run_prepared(prepared, inputs, &RunOptions::default())?;
        if !run.is_cold() {
            self.seconds.push(run.took().as_secs_f64());
        }
        Ok(())
    }

    fn median(&mut self) -> f64 {
        self.seconds.sort_by(f64::total_cmp);
        self.seconds[self.seconds.len() / 2]
    }

    fn predicted(&self) -> f64 {
        self.prepared.as_ref().map_or(0.0, |prepared| prepared.plan().predicted().makespan)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut divided = arguments.open("divided", true)?;
    let inputs = divided.session.fill_random(Inputs::new(), 1)?;
    let names: Vec<String> = divided.session.inventory().devices().map(|device| device.name().to_owned()).collect();
    let mut entries = names.iter().map(|name| arguments.open(name, false)).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..arguments.learn {
        divided.learn(&inputs)?;
        for entry in &mut entries {
            entry.learn(&inputs)?;
        }
    }
    entries.push(divided);
    for entry in &mut entries {
        entry.plan(&inputs)?;
    }
    for _ in 0..=arguments.runs {
        for entry in &mut entries {
            entry.run(&inputs)?;
        }
    }
    println!("| rows on | median ms | least ms | predicted ms | rows/s |\n|---|---|---|---|---|");
    let (mut rates, mut peaks) = (Vec::new(), Vec::new());
    for entry in &mut entries {
        let (median, predicted) = (entry.median(), entry.predicted());
        let parts = entry.prepared.as_ref().and_then(|prepared| prepared.divided.as_ref().map(|it| it.parts.clone()));
        let parts = parts.iter().flatten().map(|(name, rows)| format!(" {name}:{rows}")).collect::<String>();
        let rate = arguments.rows as f64 / median;
        let [median, least, predicted] = [median, entry.seconds[0], predicted].map(|seconds| 1e3 * seconds);
        println!("| {}{parts} | {median:.3} | {least:.3} | {predicted:.3} | {rate:.1} |", entry.name);
        rates.push(rate);
        peaks.push(1.0 / least);
    }
    for (name, rates) in [("median", rates), ("least", peaks)] {
        let (together, alone) = rates.split_last().ok_or("there is a plan")?;
        let (sum, best) = (alone.iter().sum::<f64>(), alone.iter().copied().fold(0.0, f64::max));
        let [speedup, share] = [together / best, together / sum];
        println!("\ndivided, by {name} times: {speedup:.2} × the best device, {share:.3} of the sum of the rates");
    }
    Ok(())
}
