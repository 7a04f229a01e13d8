//! `anabranch costs`: the content of the cost store.

use super::{CliError, Output, lossy, note, say, wrote};
use anabranch::Session;
use anabranch::costs::{CostFormat, CostStore, DeviceCosts, Rates, StoreError};
use anabranch::device::{DetectOptions, detect};
use anabranch_placement::quoted::Line;
use anabranch_report::run::busy_calibration;
use anabranch_report::table::Table;
use anabranch_report::text::{count, duration};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Show, locate or forget measured costs
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  anabranch costs show --top 5\n  anabranch costs --export costs.json\n  \
    anabranch costs --export ~/.starpu/sampling/codelets/45 --format starpu\n  anabranch costs --import costs.json")]
pub(crate) struct CostsCommand {
    #[command(subcommand)]
    action: Option<Action>,
    /// Write the costs to a file or a directory of StarPU models
    #[arg(long, value_name = "FILE", conflicts_with = "import")]
    export: Option<PathBuf>,
    /// Add the costs of a file or of StarPU models to the store
    #[arg(long, value_name = "FILE")]
    import: Option<PathBuf>,
    /// Set the format of the file [default: json if the name ends in .json]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Use this cost store [default: anabranch/costs.json in the XDG data directory]
    #[arg(long, value_name = "FILE", global = true)]
    costs: Option<PathBuf>,
}

/// Formats of costs.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Format {
    /// Everything that the store holds
    Json,
    /// A directory of StarPU history-based performance models (version 45), one file per operator
    Starpu,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// List devices, links, and the slowest nodes (the default)
    Show {
        /// List this many nodes per device; 0 lists all
        #[arg(long, default_value_t = 20)]
        top: usize,
        /// List only nodes whose key contains this text
        #[arg(long, value_name = "TEXT", default_value = "")]
        filter: String,
    },
    /// Print the path of the cost store
    Path,
    /// Delete all measured times; with --all, rates too
    Clear {
        /// Delete calibrated rates and links as well
        #[arg(long)]
        all: bool,
    },
}

impl CostsCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        // Changes of the store require its file; showing the store does not.
        let open = || open_file(self.costs.as_ref()).map_err(refused);
        let shown = || open_store(self.costs.as_ref()).map(|(_, store)| store);
        match (&self.export, &self.import, &self.action) {
            (Some(to), _, _) => self.export(to, shown()?, output),
            (None, Some(from), _) => {
                let (path, store) = open()?;
                self.import(from, store, &path, output)
            }
            // Also if the file cannot be opened.
            (None, None, Some(Action::Path)) => {
                let path = store_path(self.costs.as_ref()).map_err(refused)?;
                output.text_or_json(|| format!("{}\n", path.display()), &json!({ "path": lossy(&path) }))
            }
            (None, None, Some(Action::Clear { all })) => {
                let (path, mut store) = open()?;
                let forgotten = store.forget(*all);
                store.replace(&path).map_err(refused)?;
                output.text_or_json(
                    || format!("forgot {}\n", count(forgotten, "node")),
                    &json!({ "forgotten": forgotten }),
                )
            }
            (None, None, Some(Action::Show { top, filter })) => show(&shown()?, *top, filter, output),
            (None, None, None) => show(&shown()?, 20, "", output),
        }
    }

    fn export(&self, to: &Path, mut store: CostStore, output: Output) -> Result<(), CliError> {
        let format = self.cost_format(to)?;
        settle(&mut store)?;
        let files = format.export(&store, to)?;
        wrote(to);
        let text = || format!("{} written to {}\n", count(files, "file"), to.display());
        output.text_or_json(text, &json!({ "exported": lossy(to), "files": files }))
    }

    fn import(&self, from: &Path, mut store: CostStore, path: &Path, output: Output) -> Result<(), CliError> {
        let imported = self.cost_format(from)?.import(from)?;
        settle(&mut store)?;
        let nodes: usize =
            imported.machines().flat_map(|(_, machine)| machine.devices.values()).map(|d| d.nodes.len()).sum();
        store.merge(&imported);
        let others: Vec<String> =
            imported.machines().map(|m| m.0).filter(|m| *m != store.fingerprint()).map(str::to_owned).collect();
        store.save(path).map_err(refused)?;
        let text = || match others.join("; ") {
            none if none.is_empty() => format!("nodes imported: {nodes}\n"),
            others => format!(
                "nodes imported: {nodes}; costs of other machines ({others}) are kept, but not used on this \
                 machine\n"
            ),
        };
        output.text_or_json(text, &json!({ "imported": lossy(from), "nodes": nodes, "other_machines": others }))
    }

    fn cost_format(&self, path: &Path) -> Result<CostFormat, CliError> {
        let named = self.format.map(|format| match format {
            Format::Json => CostFormat::Json,
            Format::Starpu => CostFormat::StarPu,
        });
        named.or_else(|| CostFormat::of(path)).ok_or_else(|| {
            CliError::input(format!(
                "{}: the format is unknown; name it with --format json or --format starpu",
                path.display()
            ))
        })
    }
}

/// Assigns the store to this machine.
fn settle(store: &mut CostStore) -> Result<(), CliError> {
    let inventory = detect(&DetectOptions::default().without_gpu())?;
    store.settle(&inventory.fingerprint()).iter().for_each(note);
    Ok(())
}

/// Location of a command's cost store.
#[derive(Clone, Debug)]
pub(super) enum StoreFile {
    /// The file that the command line names. A failure is an error.
    Named(PathBuf),
    /// The default file. If the store fails, a command continues without it, and reports that once.
    Default(PathBuf),
    /// No file: there is no default file, or it cannot be read.
    None,
}

impl StoreFile {
    /// Checks that the store can be written, before anything is measured for it.
    pub(super) fn ready(&self) -> Result<(), CliError> {
        self.keep(CostStore::ready)
    }

    /// Adds the learned costs to the file.
    pub(super) fn save(&self, store: &mut CostStore) -> Result<(), CliError> {
        self.keep(|path| store.save(path))
    }

    /// Adds the costs that a session has learned to the file.
    pub(super) fn save_costs(&self, session: &Session) -> Result<(), CliError> {
        session.calibration_load().as_ref().and_then(busy_calibration).iter().for_each(note);
        self.keep(|path| session.save_costs(path))
    }

    fn keep(&self, write: impl FnOnce(&Path) -> Result<(), StoreError>) -> Result<(), CliError> {
        match self {
            Self::Named(path) => write(path).map_err(refused),
            Self::Default(path) => {
                if let Err(error) = write(path) {
                    note(format_args!("measurements are not saved: {error} (--costs FILE)"));
                }
                Ok(())
            }
            Self::None => Ok(()),
        }
    }
}

/// Returns the path of the store that the command line names, or of the default store.
fn store_path(named: Option<&PathBuf>) -> Result<PathBuf, StoreError> {
    named.map_or_else(CostStore::default_path, |path| Ok(path.clone()))
}

/// Opens the store that the command line names, or the default store, and reads it.
///
/// If the default store cannot be read, the store is empty, and measurements are not kept.
pub(super) fn open_store(named: Option<&PathBuf>) -> Result<(StoreFile, CostStore), CliError> {
    match open_file(named) {
        Ok((path, store)) if named.is_some() => Ok((StoreFile::Named(path), store)),
        Ok((path, store)) => Ok((StoreFile::Default(path), store)),
        Err(error) if named.is_none() => {
            note(format_args!("there is no cost store, so measurements are not saved: {error} (--costs FILE)"));
            Ok((StoreFile::None, CostStore::default()))
        }
        Err(error) => Err(refused(error)),
    }
}

/// Returns the path and the content of the store's file.
fn open_file(named: Option<&PathBuf>) -> Result<(PathBuf, CostStore), StoreError> {
    let path = store_path(named)?;
    let loaded = CostStore::load(&path)?;
    loaded.warnings.iter().for_each(|warning| say(format_args!("anabranch: {warning}")));
    Ok((path, loaded.store))
}

pub(super) fn refused(error: StoreError) -> CliError {
    CliError::input(format!("{error} (--costs FILE)"))
}

fn show(store: &CostStore, top: usize, filter: &str, output: Output) -> Result<(), CliError> {
    let here = detect(&DetectOptions::default().without_gpu())?.fingerprint();
    if output.json {
        return output.json(store);
    }
    let mut text = String::new();
    for (fingerprint, costs) in store.machines() {
        let machine = if fingerprint.is_empty() { "a machine without a name" } else { fingerprint };
        let which = if fingerprint == here { "this machine" } else { "another machine; its costs are not used here" };
        text.push_str(&format!("{} ({which})\n", Line(machine)));
        for (key, device) in &costs.devices {
            text.push_str(&format!("\n{}\n", Line(key)));
            device.rates.iter().for_each(|rates| text.push_str(&rates_line(rates)));
            text.push_str(&nodes_table(device, top, filter));
        }
        for (key, link) in &costs.links {
            let (latency, rate) = (duration(link.latency), link.rate / 1e9);
            text.push_str(&format!(
                "{}: {latency} + {rate:.2} GB/s, {} measured\n",
                Line(key),
                count(link.sizes.len(), "size")
            ));
        }
    }
    if text.is_empty() {
        text.push_str("the cost store is empty; `anabranch run`, `calibrate` and `profile` fill it\n");
    }
    output.text(&text)
}

fn rates_line(rates: &Rates) -> String {
    format!(
        "  matmul {:.1} GFLOP/s, conv {:.1} GFLOP/s, element-wise {:.1} GFLOP/s, memory {:.1} GB/s, launch {}\n",
        rates.matmul_flops / 1e9,
        rates.conv_flops / 1e9,
        rates.map_flops / 1e9,
        rates.bandwidth / 1e9,
        duration(rates.launch)
    )
}

/// Returns a table of the nodes whose keys contain `filter`, the longest first; `top` of them, or all if that is 0.
fn nodes_table(device: &DeviceCosts, top: usize, filter: &str) -> String {
    let chosen = device.nodes.iter().filter(|(key, _)| key.contains(filter));
    let mut nodes: Vec<_> = chosen
        .flat_map(|(key, node)| node.versions.iter().map(move |(version, history)| (key, *version, history)))
        .filter_map(|(key, version, history)| Some((key, version, history, history.estimate()?)))
        .collect();
    nodes.sort_by(|a, b| b.3.nanoseconds.total_cmp(&a.3.nanoseconds).then(a.0.cmp(b.0)));
    let all = nodes.len();
    let shown = if top == 0 { all } else { top.min(all) };
    let mut table = Table::new(">median | >± | >mean | >runs | >cold | >kernels | node");
    for (key, version, history, estimate) in nodes.into_iter().take(shown) {
        let dash = |known: bool, text: String| if known { text } else { "–".to_owned() };
        table.row([
            duration(estimate.seconds()),
            format!("{:.0} %", 100.0 * estimate.half_width),
            dash(history.count > 0, duration(history.mean * 1e-9)),
            history.count.to_string(),
            dash(history.cold.count > 0, duration(history.cold.mean * 1e-9)),
            version.to_string(),
            key.clone(),
        ]);
    }
    let more =
        if shown < all { format!("  … and {} more (--top 0 lists all)\n", all - shown) } else { String::new() };
    format!("{table}{more}")
}
