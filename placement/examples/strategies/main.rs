//! Tables of every strategy under every order: makespans, traffic, gaps to the lower bound, and times of placing.
//!
//! ```text
//! cargo run --release -p anabranch-placement --example strategies -- [DIR] [--auto] [--json] [--only NAME,..]
//!     [--variants|--orders]
//! ```
//!
//! `DIR` holds `thesis/graphs/*.csv` (graphs, and `devices_*.csv`) and profiled networks in `schedulers/dnn/*.json`.
//! Figures of the thesis' own evaluation are in `thesis/fig7_4_50_devices.json`, `thesis/assignments.json` and
//! `thesis/synthetic_100_devices.json`. Missing files are skipped. Without `DIR` the graphs are this crate's test data
//! and generated synthetic graphs. `--only` restricts the strategies; `--auto` adds the strategy with a search, which
//! takes minutes. `--variants` prints only a table of the 72 variants of list schedulers. `--orders` compares only the
//! orders, on every placement of the TensorFlow graphs on 7, 10, 50 and 100 devices; it needs `DIR`.
//!
//! It is an example of this crate and not a binary of the benches, because it needs only the placement crate.

mod clock;
mod golden;
mod measure;
mod orders;
mod sources;
mod tables;
mod variants;

use golden::Golden;
use measure::{Selection, Survey};
use sources::Case;
use std::error::Error;
use std::path::PathBuf;

/// Arguments of the command line.
struct Arguments {
    directory: Option<PathBuf>,
    json: bool,
    variants: bool,
    orders: bool,
    selection: Selection,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = parse(std::env::args().skip(1))?;
    if arguments.orders {
        let directory = arguments.directory.as_deref().ok_or("--orders needs a DIR with thesis/graphs")?;
        let cases = sources::of_tensor_flow(directory, &[7, 10, 50, 100])?;
        println!("{}", orders::compare(&cases, &arguments.selection)?);
        return Ok(());
    }
    let (cases, golden) = match &arguments.directory {
        Some(directory) => (sources::in_directory(directory)?, Golden::read(directory)?),
        None => (sources::of_this_crate()?, Golden::default()),
    };
    if arguments.variants {
        print!("{}", variants::table(&cases)?);
        return Ok(());
    }
    let mut surveys = Vec::new();
    for case in &cases {
        let survey = survey(case, &golden, &arguments.selection)?;
        if !arguments.json {
            print!("{}", tables::of_survey(&survey));
        }
        surveys.push(survey);
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&surveys)?);
    } else {
        print!("{}", tables::summary(&surveys));
    }
    Ok(())
}

fn survey(case: &Case, golden: &Golden, selection: &Selection) -> Result<Survey, Box<dyn Error>> {
    let mut survey = measure::survey(case, selection)?;
    for row in &mut survey.rows {
        row.reference = golden.makespan(&survey.graph, &survey.devices, &row.strategy);
    }
    survey.corrected_heft = golden.makespan(&survey.graph, &survey.devices, "heft-corrected");
    Ok(survey)
}

fn parse(given: impl Iterator<Item = String>) -> Result<Arguments, Box<dyn Error>> {
    let selection = Selection::default();
    let mut arguments = Arguments { directory: None, json: false, variants: false, orders: false, selection };
    let mut given = given.peekable();
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--json" => arguments.json = true,
            "--variants" => arguments.variants = true,
            "--orders" => arguments.orders = true,
            "--auto" => arguments.selection.auto = true,
            "--only" => {
                let names = given.next().ok_or("--only needs names of strategies, with commas between them")?;
                arguments.selection.only = Some(names.split(',').map(Into::into).collect());
            }
            option if option.starts_with('-') => {
                return Err(format!("there is no option {option}; see the top of the source").into());
            }
            directory => arguments.directory = Some(directory.into()),
        }
    }
    Ok(arguments)
}
