//! A language model under memory limits of a GPU: what `auto` decides beside each number of layers that a person could
//! put on the GPU. All times are predicted; nothing runs.
//!
//! Run `cargo run --release -p anabranch-bench --example offload -- FOLDER PLATFORM GPU --layers 12`; it prints a table
//! in Markdown. A number of layers means: all nodes of these layers that the GPU computes are there, and their caches;
//! with one more than there are, also the embedding and the head. All else is on the CPU.

use anabranch::SessionConfig;
use anabranch::generate::{Generator, Sample, forecast};
use anabranch::planning::{Constraints, PlatformFile, Strategy};
use clap::Parser;
use std::error::Error;
use std::path::PathBuf;

/// Predicted rates of decoding: auto, and each number of layers on a GPU
#[derive(Parser, Debug)]
struct Arguments {
    /// Folder of the language model
    folder: PathBuf,
    /// Platform file
    platform: PathBuf,
    /// The GPU of the platform whose memory is limited
    gpu: String,
    /// Layers of the model
    #[arg(long)]
    layers: usize,
    /// Tokens in the cache
    #[arg(long, default_value_t = 1024)]
    cache: usize,
    /// Limits, in parts of what the plan without a limit holds
    #[arg(long, value_delimiter = ',', default_values_t = [1.0, 0.9, 0.75, 0.6, 0.5, 0.35, 0.25, 0.1])]
    parts: Vec<f64>,
}

impl Arguments {
    /// Tokens per second of decoding, and the bytes that the GPU holds; `None` if there is no plan.
    fn rate(
        &self,
        strategy: Strategy,
        constraints: Constraints,
        platform: &PlatformFile,
    ) -> Result<Option<(f64, u64)>, Box<dyn Error>> {
        let options = SessionConfig::default().without_gpu().with_strategy(strategy).with_constraints(constraints);
        let mut generator = Generator::open(&self.folder, None, options)?;
        let sample = Sample { prompt: 1, tokens: self.cache };
        let found = match forecast(&mut generator, sample, Some(platform)) {
            Err(error) if error.session().is_some_and(|session| session.is_infeasible()) => return Ok(None),
            found => found?.decode.ok_or("no plan of decoding")?,
        };
        let plan = found.plan();
        let at = plan.devices().iter().position(|device| device.name == self.gpu).ok_or("no such GPU")?;
        Ok(Some((1.0 / plan.predicted().makespan, plan.memory().devices()[at].peak())))
    }

    /// Constraints that leave so many layers to the GPU.
    fn manual(&self, count: usize) -> Constraints {
        let layers = (0..self.layers).fold(Constraints::default(), |all, layer| match layer < count {
            true => {
                let states = ["key", "value"].map(|part| format!("{layer}.{part}"));
                states.iter().fold(all, |all, state| {
                    let [past, present] = ["past_key_values", "present"].map(|of| format!("{of}.{state}"));
                    all.with_resident(past, &self.gpu).with_resident(present, &self.gpu)
                })
            }
            false => all.with_pin(format!("*layers.{layer}/*"), "cpu0"),
        });
        let around = ["*embed*", "*lm_head*", &format!("*layers.{}/*", self.layers)];
        let around = if count > self.layers { &[][..] } else { &around[..] };
        around.iter().fold(layers, |all, pattern| all.with_pin(*pattern, "cpu0"))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut platform = PlatformFile::read(&arguments.platform)?;
    let limit = |platform: &mut PlatformFile, bytes: Option<u64>| {
        platform.devices.iter_mut().filter(|device| device.name == arguments.gpu).for_each(|gpu| gpu.memory = bytes);
    };
    limit(&mut platform, None);
    let auto: Strategy = "auto".parse()?;
    let (_, whole) = arguments.rate(auto.clone(), Constraints::default(), &platform)?.ok_or("no plan")?;
    println!("| limit, MiB | auto, tokens/s | held, MiB | best number of layers | tokens/s | auto by it |");
    println!("|--:|--:|--:|--:|--:|--:|");
    for part in &arguments.parts {
        let bytes = (whole as f64 * part) as u64;
        limit(&mut platform, Some(bytes));
        let mut best: Option<(usize, f64)> = None;
        for count in 0..=arguments.layers + 1 {
            let found = arguments.rate(Strategy::GPU, arguments.manual(count), &platform)?;
            if let Some((rate, _)) = found.filter(|(rate, _)| best.is_none_or(|(_, least)| *rate > least)) {
                best = Some((count, rate));
            }
        }
        let Some((rate, held)) = arguments.rate(auto.clone(), Constraints::default(), &platform)? else {
            println!("| {:.0} | none | | | | |", bytes as f64 / f64::from(1 << 20));
            continue;
        };
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let [limit, held] = [bytes, held].map(mebibytes);
        let best = best.map_or("none | |".to_owned(), |(count, own)| format!("{count} | {own:.1} | {:.3}", rate / own));
        println!("| {limit:.0} | {rate:.1} | {held:.0} | {best} |");
    }
    Ok(())
}
