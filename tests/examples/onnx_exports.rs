//! Runs exports of whole networks and compares them with ONNX Runtime's outputs.
//!
//!     python tests/onnx/exports/write.py target/onnx-exports
//!     cargo run --release -p anabranch-tests --example onnx_exports -- target/onnx-exports [--json] [--against TIMES.json] [NAME…]
//!
//! Prints a table: the greatest error relative to the greatest element of its output, and the milliseconds from the
//! file to the first result. With `--against`, the time is the median of five sessions, as the times that
//! `first_result.py` measured. Fails if an export is wrong. With names, only exports whose names contain one of them
//! are run.

use anabranch_tests::onnx_exports::{Export, Verdict, exports};
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut words, mut as_json, mut times) = (Vec::new(), false, Value::Null);
    while let Some(argument) = arguments.next() {
        match &argument[..] {
            "--json" => as_json = true,
            "--against" => match read(&arguments.next().unwrap_or_default()) {
                Ok(read) => times = read,
                Err(text) => return failure(&text),
            },
            _ => words.push(argument),
        }
    }
    let [folder, names @ ..] = &words[..] else {
        return failure("give the folder that tests/onnx/exports/write.py has written");
    };
    let mut all = match exports(Path::new(folder)) {
        Ok(all) => all,
        Err(error) => return failure(&format!("{folder}: {error}")),
    };
    all.retain(|export| names.is_empty() || names.iter().any(|name| export.name.contains(name.as_str())));
    if !as_json {
        println!(
            "| architecture | exporter | nodes | verdict | error | first ms | ONNX Runtime's |\n|---|---|---|---|---|---|---|"
        );
    }
    let sessions = NonZeroUsize::MIN.saturating_add(if times.is_null() { 0 } else { 4 });
    let (mut lines, mut agreed, mut wrong) = (Vec::new(), 0, 0);
    for export in &all {
        let verdict = export.check(sessions);
        agreed += usize::from(matches!(verdict, Verdict::Agrees(_)));
        wrong += usize::from(matches!(verdict, Verdict::Wrong(_)));
        if as_json {
            lines.push(export.json(&verdict));
        } else {
            println!("{}", row(export, &verdict, times[format!("{}.{}", export.name, export.exporter)].as_f64()));
        }
    }
    if as_json {
        println!("{:#}", json!({ "exports": lines }));
    } else {
        println!("\n{agreed} of {} agree, {wrong} are wrong.", all.len());
    }
    if wrong == 0 && agreed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn row(export: &Export, verdict: &Verdict, theirs: Option<f64>) -> String {
    let start = format!("| {} | {} |", export.name, export.exporter);
    match verdict {
        Verdict::Agrees(m) => {
            let theirs = theirs.map_or(String::new(), |time| format!("{time:.1}"));
            format!("{start} {} | agrees | {:.0e} | {:.1} | {theirs} |", m.nodes, m.error, m.first)
        }
        Verdict::Wrong(reason) => format!("{start} | wrong: {reason} | | | |"),
        Verdict::Refused(reason) => format!("{start} | refused: {reason} | | | |"),
        Verdict::Missing(reason) => format!("{start} | no export: {reason} | | | |"),
    }
}

fn read(path: &str) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))
}

fn failure(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::FAILURE
}
