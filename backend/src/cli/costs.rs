//! `anabranch costs`: what the cost store knows.

use super::table::{Align, Table, duration};
use super::{CliError, Output};
use crate::profile::CostStore;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;

/// Show, locate or forget measured costs
#[derive(Args, Clone, Debug)]
pub(crate) struct CostsCommand {
    #[command(subcommand)]
    action: Option<Action>,
    /// The cost store [default: anabranch/costs.json in the XDG data directory]
    #[arg(long, value_name = "FILE", global = true)]
    costs: Option<PathBuf>,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// List devices, links, and the nodes that take longest (the default)
    Show {
        /// Nodes to list for each device; 0 lists all
        #[arg(long, default_value_t = 20)]
        top: usize,
        /// Only nodes whose key contains this text
        #[arg(long, value_name = "TEXT", default_value = "")]
        filter: String,
    },
    /// Print the file's path
    Path,
    /// Forget all measurements; calibrations too, with --all
    Clear {
        /// Forget calibrated rates and links as well
        #[arg(long)]
        all: bool,
    },
}

impl CostsCommand {
    /// Runs the command.
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let path = store_path(self.costs.as_ref())?;
        let loaded = CostStore::load(&path)?;
        loaded.warnings.iter().for_each(|warning| eprintln!("anabranch: {warning}"));
        match &self.action {
            Some(Action::Path) => output.text_or_json(&path.display().to_string(), &json!({ "path": path })),
            Some(Action::Clear { all }) => {
                let mut store = loaded.store;
                let forgotten: usize = store.devices.values().map(|device| device.nodes.len()).sum();
                match all {
                    true => store = CostStore::default(),
                    false => store.devices.values_mut().for_each(|device| device.nodes.clear()),
                }
                store.save(&path)?;
                output.text_or_json(&format!("forgot {forgotten} nodes"), &json!({ "forgotten": forgotten }))
            }
            Some(Action::Show { top, filter }) => show(&loaded.store, *top, filter, output),
            None => show(&loaded.store, 20, "", output),
        }
    }
}

/// The store that the command line names, or the default one.
pub(crate) fn store_path(named: Option<&PathBuf>) -> Result<PathBuf, CliError> {
    Ok(match named {
        Some(path) => path.clone(),
        None => CostStore::default_path()?,
    })
}

fn show(store: &CostStore, top: usize, filter: &str, output: Output) -> Result<(), CliError> {
    if output.json {
        return output.json(&serde_json::to_value(store).map_err(CliError::internal)?);
    }
    let mut text = String::new();
    for (key, device) in &store.devices {
        text.push_str(&format!("{key}\n"));
        if let Some(rates) = device.rates {
            text.push_str(&format!(
                "  matmul {:.1} GFLOP/s, conv {:.1} GFLOP/s, element-wise {:.1} GFLOP/s, memory {:.1} GB/s, launch {}\n",
                rates.matmul_flops / 1e9,
                rates.conv_flops / 1e9,
                rates.map_flops / 1e9,
                rates.bandwidth / 1e9,
                duration(rates.launch)
            ));
        }
        let mut nodes: Vec<_> = device.nodes.iter().filter(|(key, _)| key.contains(filter)).collect();
        nodes.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean).then(a.0.cmp(b.0)));
        let all = nodes.len();
        let shown = if top == 0 { all } else { top.min(all) };
        let mut table = Table::new(&[
            ("mean", Align::Right),
            ("± dev", Align::Right),
            ("runs", Align::Right),
            ("node", Align::Left),
        ]);
        for (key, statistics) in nodes.into_iter().take(shown) {
            let (mean, deviation) = (statistics.mean * 1e-9, statistics.deviation() * 1e-9);
            table.row([duration(mean), duration(deviation), statistics.count.to_string(), key.clone()]);
        }
        text.push_str(&table.to_string());
        if shown < all {
            text.push_str(&format!("  … and {} more; --top 0 lists all\n", all - shown));
        }
    }
    for (key, link) in &store.links {
        text.push_str(&format!("{key}: {} + {:.2} GB/s\n", duration(link.latency), link.rate / 1e9));
    }
    if text.is_empty() {
        text.push_str("the cost store is empty; `anabranch run` and `anabranch profile` fill it\n");
    }
    output.text(&text)
}
