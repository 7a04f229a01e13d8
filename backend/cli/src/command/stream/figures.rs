//! Figures 10 and 11 of the paper: how speedups and SSLRs of random graphs are distributed, on all cores.

use super::super::interrupt::cancel_on_interrupt;
use super::super::progress::Progress;
use super::super::table::{Align, Table};
use super::super::{CliError, Output};
use super::outcome::Outcome;
use super::source::RANDOM_VOLUME;
use super::{StreamCommand, Variant};
use crate::chart::{BoxChart, BoxPanel, Boxes, Spread, page};
use anabranch_placement::generate::{RandomVolumes, Shape};
use serde::Serialize;
use serde_json::json;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// The paper's shapes, with their tasks and its numbers of processing elements (section 7.1).
const CASES: [(&str, Shape, [usize; 4]); 4] = [
    ("chain, 8 tasks", Shape::Chain { length: 8 }, [2, 4, 6, 8]),
    ("FFT, 223 tasks", Shape::FastFourierTransform { points: 32 }, [32, 64, 96, 128]),
    ("Gaussian elimination, 135 tasks", Shape::GaussianElimination { order: 16 }, [32, 64, 96, 128]),
    ("Cholesky, 120 tasks", Shape::Cholesky { tiles: 8 }, [32, 64, 96, 128]),
];

const VARIANTS: [Variant; 3] = [Variant::Lts, Variant::Rlx, Variant::None];

/// One schedule of one graph.
#[derive(Clone, Debug, Serialize)]
struct Row {
    shape: &'static str,
    seed: u64,
    elements: usize,
    variant: &'static str,
    work: u64,
    makespan: u64,
    speedup: f64,
    utilisation: f64,
    sslr: Option<f64>,
    blocks: Option<usize>,
    /// When the last task ends in simulation.
    simulated: Option<u64>,
    seconds: f64,
}

/// Schedules all graphs, and writes the charts and their data into `directory`.
pub(super) fn run(command: &StreamCommand, directory: &Path, output: Output) -> Result<(), CliError> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| CliError::input(format!("{}: {error}", path.display()));
    fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
    let graphs = command.graphs.get();
    let rows = rows(command, output)?;
    let write = |name: &str, text: &[u8]| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| failed(&path, &error))
    };
    let mut csv = csv::Writer::from_writer(Vec::new());
    for row in &rows {
        csv.serialize(row)?;
    }
    write("results.csv", &csv.into_inner().map_err(CliError::internal)?)?;
    let charts = [speedups(&rows, graphs).svg(), length_ratios(&rows, graphs).svg()];
    write("figure_10.svg", charts[0].as_bytes())?;
    write("figure_11.svg", charts[1].as_bytes())?;
    let facts = [("graphs of each shape", graphs.to_string()), ("schedules", rows.len().to_string())];
    write("index.html", page("Streaming schedules of random graphs", &facts, &charts).as_bytes())?;
    report(&rows, directory, output)
}

/// All rows, by shape, seed, processing elements and variant.
fn rows(command: &StreamCommand, output: Output) -> Result<Vec<Row>, CliError> {
    let graphs = command.graphs.get() as usize;
    let count = CASES.len() * graphs;
    let progress = Progress::new(output, "graphs", count as u64);
    let cancel = cancel_on_interrupt()?;
    let threads = command.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let mut done: Vec<Option<Vec<Row>>> = vec![None; count];
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.clamp(1, count) {
            let (sender, next, cancel) = (sender.clone(), &next, &cancel);
            scope.spawn(move || {
                loop {
                    let unit = next.fetch_add(1, Ordering::Relaxed);
                    let ends = unit >= count || cancel.is_cancelled();
                    if ends || sender.send((unit, graph_rows(unit, graphs, command.steps))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Leaving the loop drops the receiver, which ends the threads at their next result.
        for (unit, rows) in receiver {
            done[unit] = Some(rows?);
            progress.advance();
        }
        Ok::<(), CliError>(())
    })?;
    if cancel.is_cancelled() {
        return Err(CliError::interrupted());
    }
    Ok(done.into_iter().flatten().flatten().collect())
}

/// All schedules of one graph: graph `unit % graphs` of shape `unit / graphs`.
fn graph_rows(unit: usize, graphs: usize, steps: u64) -> Result<Vec<Row>, CliError> {
    let (name, shape, counts) = CASES[unit / graphs];
    let seed = (unit % graphs) as u64;
    let graph = RandomVolumes { shape, volume: RANDOM_VOLUME }.generate(seed)?;
    let mut rows = Vec::new();
    for elements in counts {
        for variant in VARIANTS {
            let outcome = Outcome::of(&graph, elements, variant, steps)?;
            let streaming = outcome.streaming.as_ref();
            rows.push(Row {
                shape: name,
                seed,
                elements,
                variant: variant.name(),
                work: graph.work(),
                makespan: outcome.makespan(),
                speedup: outcome.speedup(),
                utilisation: outcome.utilisation(),
                sslr: outcome.length_ratio(),
                blocks: streaming.map(|streaming| streaming.schedule.blocks().count()),
                simulated: streaming.and_then(|streaming| Some(streaming.proof.as_ref().ok()?.makespan)),
                seconds: outcome.seconds(),
            });
        }
    }
    Ok(rows)
}

/// The rows of one shape on so many processing elements, of one variant.
fn of<'r>(rows: &'r [Row], shape: &str, elements: usize, variant: Variant) -> impl Iterator<Item = &'r Row> {
    let shape = shape.to_owned();
    rows.iter().filter(move |row| row.shape == shape && row.elements == elements && row.variant == variant.name())
}

/// Figure 10: speedups, with the utilisation of the processing elements as a note.
fn speedups(rows: &[Row], graphs: u32) -> BoxChart {
    let boxes = |shape: &str, elements: usize, variant: Variant| {
        let speedups: Vec<f64> = of(rows, shape, elements, variant).map(|row| row.speedup).collect();
        let spread = Spread::of(&speedups)?;
        let note = format!("{:.2} ({:.0} %)", spread.median, 100.0 * spread.median / elements as f64);
        Some((spread, note))
    };
    chart(
        "Speedup over one processing element",
        "median, and its part of the processing elements",
        graphs,
        &VARIANTS,
        boxes,
    )
}

/// Figure 11: streaming schedule length ratios.
fn length_ratios(rows: &[Row], graphs: u32) -> BoxChart {
    let boxes = |shape: &str, elements: usize, variant: Variant| {
        let ratios: Vec<f64> = of(rows, shape, elements, variant).filter_map(|row| row.sslr).collect();
        let spread = Spread::of(&ratios)?;
        let note = format!("{:.2}", spread.median);
        Some((spread, note))
    };
    chart("Makespan over streaming depth (SSLR)", "median", graphs, &VARIANTS[..2], boxes)
}

fn chart(
    title: &str,
    note: &str,
    graphs: u32,
    variants: &[Variant],
    boxes: impl Fn(&str, usize, Variant) -> Option<(Spread, String)>,
) -> BoxChart {
    let group = |shape: &str, elements: usize| Boxes {
        name: format!("{elements} PEs"),
        boxes: variants.iter().map(|&variant| boxes(shape, elements, variant)).collect(),
    };
    let panel = |&(shape, _, counts): &(&str, Shape, [usize; 4])| BoxPanel {
        title: shape.to_owned(),
        groups: counts.map(|elements| group(shape, elements)).into(),
    };
    BoxChart {
        title: title.into(),
        subtitle: format!(
            "{graphs} random graphs of each shape, seeds from 0; boxes from quartile to quartile with the median, whiskers to the \
             farthest values within 1.5 times their distance, the five farthest beyond as dots; at the right {note}"
        ),
        value: title.into(),
        format: |value| format!("{value}"),
        series: variants.iter().map(|variant| variant.name().to_owned()).collect(),
        panels: CASES.iter().map(panel).collect(),
    }
}

/// Medians, and what was simulated.
fn report(rows: &[Row], directory: &Path, output: Output) -> Result<(), CliError> {
    let median = |values: Vec<f64>| Spread::of(&values).map(|spread| spread.median);
    let mut table = Table::new(&[
        ("shape", Align::Left),
        ("PEs", Align::Right),
        ("variant", Align::Left),
        ("speedup", Align::Right),
        ("use", Align::Right),
        ("SSLR", Align::Right),
        ("blocks", Align::Right),
        ("simulated", Align::Right),
    ]);
    let mut values = Vec::new();
    for (shape, _, counts) in CASES {
        for elements in counts {
            for variant in VARIANTS {
                let group: Vec<&Row> = of(rows, shape, elements, variant).collect();
                let of_group =
                    |value: fn(&Row) -> Option<f64>| median(group.iter().filter_map(|row| value(row)).collect());
                let speedup = of_group(|row| Some(row.speedup));
                let sslr = of_group(|row| row.sslr);
                let blocks = of_group(|row| row.blocks.map(|blocks| blocks as f64));
                let simulated = group.iter().filter(|row| row.simulated.is_some()).count();
                let text = |value: Option<f64>, digits: usize| {
                    value.map_or(String::new(), |value| format!("{value:.digits$}"))
                };
                table.row([
                    shape.to_owned(),
                    elements.to_string(),
                    variant.name().to_owned(),
                    text(speedup, 3),
                    speedup.map_or(String::new(), |speedup| format!("{:.0} %", 100.0 * speedup / elements as f64)),
                    text(sslr, 3),
                    text(blocks, 1),
                    if variant == Variant::None { String::new() } else { format!("{simulated}/{}", group.len()) },
                ]);
                values.push(json!({
                    "shape": shape, "elements": elements, "variant": variant.name(), "graphs": group.len(),
                    "median_speedup": speedup, "median_sslr": sslr, "median_blocks": blocks, "simulated": simulated,
                }));
            }
        }
    }
    let streaming = rows.iter().filter(|row| row.blocks.is_some());
    let (all, simulated) = (streaming.clone().count(), streaming.filter(|row| row.simulated.is_some()).count());
    let note = format!(
        "{simulated} of {all} streaming schedules were simulated element by element, none deadlocks; charts and data are in {}\n",
        directory.display()
    );
    match output.json {
        true => {
            output.json(&json!({ "directory": directory, "streaming": all, "simulated": simulated, "medians": values }))
        }
        false => output.text(&format!("{table}{note}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_a_row_for_each_number_of_elements_and_variant() {
        let rows = graph_rows(1, 2, 1 << 24).expect("chain of seed 1");
        assert_eq!((rows.len(), rows[0].shape, rows[0].seed), (12, "chain, 8 tasks", 1));
        assert!(rows.iter().all(|row| (row.variant == "no streaming") == row.simulated.is_none()));
        let svg = speedups(&rows, 1).svg();
        assert_eq!(svg.matches("8 PEs, SB-RLX: median").count(), 1);
        assert!(!length_ratios(&rows, 1).svg().contains("no streaming: median"));
    }

    #[test]
    fn cases_have_the_tasks_that_they_name() {
        for (name, shape, _) in CASES {
            let graph = RandomVolumes { shape, volume: 8 }.generate(0).expect("canonical");
            assert!(name.contains(&format!(", {} tasks", graph.node_count())), "{name}");
        }
    }
}
