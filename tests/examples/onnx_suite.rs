//! Runs the backend tests of the package `onnx` and compares the passing tests with the committed list.
//!
//!     python tests/onnx/write_suite.py target/onnx-suite
//!     python tests/onnx/write_contributed.py target/onnx-suite
//!     cargo run -p anabranch-tests --example onnx_suite -- target/onnx-suite [--gpu] [--list] [NAME…]
//!
//! Prints refusals by operator and reason, and counts. Fails if a test is wrong or panics, or if a test of the list
//! does not pass. `--list` writes three files again: the list, the refused tests, and the results per operator. `--gpu`
//! runs on the software GPU, without a list. With names, only tests whose names contain one of them are run.

use anabranch_tests::onnx_suite::{Outcome, Report, Target, cases, operators, run};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (flags, words): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|word| word.starts_with("--"));
    let [root, names @ ..] = &words[..] else {
        eprintln!("give the folder that the scripts in tests/onnx have written");
        return ExitCode::FAILURE;
    };
    let flag = |name: &str| flags.iter().any(|flag| *flag == name);
    let target = if flag("--gpu") { Target::Gpu } else { Target::Cpu };
    let whole = names.is_empty() && target == Target::Cpu;
    if flag("--list") && !whole {
        eprintln!("--list is made of all tests, on the CPU: leave out --gpu and names");
        return ExitCode::FAILURE;
    }
    let mut all = match cases(Path::new(root)) {
        Ok(all) => all,
        Err(error) => {
            eprintln!("{root}: {error}");
            return ExitCode::FAILURE;
        }
    };
    all.retain(|case| names.is_empty() || names.iter().any(|name| case.name.contains(name.as_str())));

    // Panics are outcomes, which the report lists.
    std::panic::set_hook(Box::new(|_| {}));
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let outcomes = run(&all, target, threads);
    let report = Report::new(&all, &outcomes);
    print!("{report}");
    if !names.is_empty() {
        all.iter().zip(&outcomes).for_each(|(case, outcome)| println!("{}: {outcome:?}", case.name));
    }

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx");
    let list = folder.join("passing.txt");
    if flag("--list") {
        std::fs::write(&list, report.passing()).expect("the repository can be written to");
        std::fs::write(folder.join("refused.txt"), report.refused()).expect("the repository can be written to");
        let shown = operators::write(&operators::tallies(&all, &outcomes));
        std::fs::write(folder.join("operators.txt"), shown).expect("the repository can be written to");
    }
    let listed = if whole { std::fs::read_to_string(&list).unwrap_or_default() } else { String::new() };
    let faults = report.faults(&listed);
    faults.iter().for_each(|fault| println!("{fault}"));
    let new = report.passing().lines().filter(|name| !listed.lines().any(|known| known == *name)).count();
    if whole && new > 0 {
        println!("{new} tests pass that are not listed; --list adds them");
    }
    if faults.is_empty() && outcomes.contains(&Outcome::Passed) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
