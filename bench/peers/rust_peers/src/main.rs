//! Measurements of other Rust runtimes, rten and tract: from opening a model to its first result, the peak of memory
//! until then, and further runs.
//!
//! `bench/peers/run` builds and calls it: `rust-peers rten|tract MODEL THREADS SECONDS DIRECTORY
//! NAME:TYPE:SIZES:FILE…`, with one argument at the end per input. The argument has f32 or i64, sizes such as `1x80`,
//! and a file of its elements. It prints all samples as one line of JSON. It writes each output's elements, as f32,
//! into a file of the directory named by its position.

#[path = "../../../src/turns.rs"]
mod turns;

mod rten_side;
mod tract_side;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use turns::{Failure, in_turn};

/// Input of a model.
pub struct Input {
    name: String,
    sizes: Vec<usize>,
    elements: Elements,
}

/// Elements in row-major order.
pub enum Elements {
    F32(Vec<f32>),
    I64(Vec<i64>),
}

/// Open model with its inputs.
pub trait Opened {
    /// Runs it, and drops the outputs.
    fn run(&mut self) -> Result<(), Failure>;

    /// Returns the outputs of one more run.
    fn outputs(&mut self) -> Result<Vec<Vec<f32>>, Failure>;
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let first: &dyn Error = failure.as_ref();
            let causes = std::iter::successors(Some(first), |cause: &&dyn Error| (*cause).source());
            let causes: Vec<String> = causes.map(|cause| cause.to_string().replace('\n', " ")).collect();
            eprintln!("{}", causes.join(": "));
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [runtime, model, threads, seconds, directory, given @ ..] = &arguments[..] else {
        return Err("usage: rust-peers rten|tract MODEL THREADS SECONDS DIRECTORY NAME:TYPE:SIZES:FILE...".into());
    };
    let (model, threads, seconds) = (Path::new(model), threads.parse()?, seconds.parse()?);
    let inputs = given.iter().map(|text| read(text)).collect::<Result<Vec<_>, _>>()?;
    let before = peak_memory()?;
    let started = Instant::now();
    let mut opened: Box<dyn Opened> = match runtime.as_str() {
        "rten" => Box::new(rten_side::Rten::open(model, threads, inputs)?),
        "tract" => Box::new(tract_side::Tract::open(model, threads, inputs)?),
        _ => return Err(format!("{runtime} is no runtime; rten and tract are").into()),
    };
    let open = started.elapsed().as_secs_f64();
    opened.run()?;
    let first = started.elapsed().as_secs_f64();
    let peak = peak_memory()?;
    let further = in_turn(&mut [Box::new(|| opened.run())], seconds)?.remove(0);
    for (at, output) in opened.outputs()?.iter().enumerate() {
        let bytes: Vec<u8> = output.iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(Path::new(directory).join(at.to_string()), bytes)?;
    }
    println!(
        "{{\"facts\": {{\"peak_before\": {before}, \"peak\": {peak}}}, \
         \"samples\": {{\"open\": [{open}], \"first\": [{first}], \"further\": {further:?}}}}}"
    );
    Ok(())
}

/// Returns the input that an argument describes.
fn read(text: &str) -> Result<Input, Failure> {
    let parts: Vec<&str> = text.splitn(4, ':').collect();
    let [name, kind, sizes, file] = parts[..] else {
        return Err(format!("{text} is not NAME:TYPE:SIZES:FILE").into());
    };
    let sizes = sizes.split('x').filter(|size| !size.is_empty()).map(str::parse).collect::<Result<Vec<_>, _>>()?;
    let bytes = std::fs::read(file)?;
    let elements = match kind {
        "f32" => Elements::F32(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()),
        "i64" => Elements::I64(bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()),
        _ => return Err(format!("input {name} is of type {kind}; f32 and i64 are known").into()),
    };
    Ok(Input { name: name.to_owned(), sizes, elements })
}

/// Returns the maximum bytes that this process has had in memory so far.
fn peak_memory() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("/proc/self/status has no VmHWM")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}
