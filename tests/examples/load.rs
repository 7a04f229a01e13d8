//! Runs a load and prints its result, as in `bench/RELIABILITY.md`:
//! `cargo run --release -p anabranch-tests --example load -- 100000 8`.

use anabranch_tests::load::{Process, load};

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (runs, threads) = (numbers.next().unwrap_or(100_000), numbers.next().unwrap_or(8));
    let report = load(runs, threads);
    println!("| runs | threads | open files | resident MiB |\n|---:|---:|---:|---:|");
    for (at, Process { threads, files, resident }) in report.held.iter().step_by(5) {
        println!("| {at} | {threads} | {files} | {:.1} |", *resident as f64 / 1024.0);
    }
    println!("\n{} of {runs} runs right; {:+.2} KiB in each thousand runs", report.right, report.slope());
    report.wrong.iter().for_each(|problem| println!("{problem}"));
    std::process::exit(i32::from(!report.wrong.is_empty()));
}
