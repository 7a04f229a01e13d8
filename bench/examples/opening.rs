//! Time of a model from its file to its first result, as an ONNX file and compiled: opening, planning with weights, and
//! the first run.
//!
//! Each repetition is a separate process, because drivers and libraries are loaded once per process; the files are in
//! the system's cache. The figures are medians.
//!
//! `cargo run --release -p anabranch-bench --example opening -- MODEL.onnx… [--repeat N]`

use anabranch::{Inputs, Session, SessionConfig};
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Measured parts of a process, in milliseconds; the last is the whole process.
const PARTS: [&str; 6] = ["open", "ready", "first run", "second run", "sum", "process"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--once") {
        return once(Path::new(arguments.get(1).ok_or("--once names a file")?));
    }
    let mut repeat = 11;
    if let Some(at) = arguments.iter().position(|argument| argument == "--repeat") {
        repeat = arguments.get(at + 1).ok_or("--repeat has a number")?.parse()?;
        arguments.drain(at..=at + 1);
    }
    let folder = tempfile::tempdir()?;
    println!("| model | file | MiB | {} |\n|---|---|--:|{}", PARTS.join(" | "), "--:|".repeat(PARTS.len()));
    for model in arguments.iter().map(Path::new) {
        let compiled = folder.path().join("model.anabranch");
        let session = Session::open(model, SessionConfig::default())?;
        let inputs = session.fill_random(Inputs::new(), 0)?;
        session.compile(&inputs, &compiled, "")?;
        for (what, file) in [("source", model), ("compiled", compiled.as_path())] {
            let mut runs = (0..repeat).map(|_| measured(file)).collect::<Result<Vec<_>, _>>()?;
            let medians = (0..PARTS.len()).map(|part| {
                runs.sort_by(|one, other| one[part].total_cmp(&other[part]));
                format!("{:.1}", runs[runs.len() / 2][part])
            });
            let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let size = std::fs::metadata(file)?.len() as f64 / f64::from(1 << 20);
            println!("| {name} | {what} | {size:.1} | {} |", medians.collect::<Vec<_>>().join(" | "));
        }
    }
    Ok(())
}

/// Returns the times of a process that opens a file and runs it.
fn measured(file: &Path) -> Result<[f64; PARTS.len()], Box<dyn Error>> {
    let begun = Instant::now();
    let output = Command::new(std::env::current_exe()?).arg("--once").arg(file).output()?;
    let process = milliseconds(begun);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let told = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    let [open, ready, first, second] = told[..] else { return Err("a process tells four times".into()) };
    Ok([open, ready, first, second, open + ready + first, process])
}

/// Opens a file, makes it ready, and runs it twice; prints the time of each step.
fn once(file: &Path) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let session = Session::open(file, SessionConfig::default())?;
    let open = milliseconds(begun);
    let inputs = session.fill_random(Inputs::new(), 0)?;
    let begun = Instant::now();
    let prepared = session.prepare(&inputs)?;
    let ready = milliseconds(begun);
    let mut runs = Vec::new();
    for _ in 0..2 {
        let begun = Instant::now();
        session.run(&inputs)?;
        runs.push(milliseconds(begun));
    }
    drop(prepared);
    println!("{open} {ready} {} {}", runs[0], runs[1]);
    Ok(())
}

fn milliseconds(since: Instant) -> f64 {
    1e3 * since.elapsed().as_secs_f64()
}
