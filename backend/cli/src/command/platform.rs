//! `anabranch platform`: the devices and links of this machine, as a file to edit and plan for.

use super::args::DeviceArgs;
use super::costs::open_store;
use super::files::file_of;
use super::{CliError, Output, note, pretty, write_file};
use anabranch::costs::MachineCosts;
use anabranch::device::{detect, format_bytes};
use anabranch::planning::PlatformFile;
use anabranch_report::table::Table;
use anabranch_report::text::duration;
use clap::Args;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  anabranch platform
  anabranch platform --software-gpu -o other.json       # then edit: a faster GPU, a slower link, less memory
  anabranch place model.onnx --platform other.json      # predict for the machine of that file

In the file, `times` multiplies a device's times (0.5 is twice as fast). `key` names the device of the cost store whose
times it uses. `rates` are its roofline: if you edit one, the roofline replaces all measured times of the device.
`\"extends\": true` takes missing entries from this machine. `anabranch simulate` takes the file, too.
`anabranch formats platform` describes all fields.";

/// A built-in example of a machine, for `--platform NAME`.
pub(super) struct Example {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    text: &'static str,
}

/// The built-in examples. Each adds GPUs to the devices of this machine.
///
/// Their rates are those that kernels reach on a graphics card of 10 teraflops in `f32`, behind PCIe 3.
pub(super) const EXAMPLES: [Example; 2] = [
    Example { name: "one-gpu", about: "one assumed GPU of 8 GiB", text: include_str!("../platforms/one-gpu.json") },
    Example {
        name: "two-gpus",
        about: "two assumed GPUs of 8 GiB each",
        text: include_str!("../platforms/two-gpus.json"),
    },
];

impl Example {
    pub(super) fn file(&self) -> Result<PlatformFile, CliError> {
        serde_json::from_str(self.text).map_err(CliError::internal)
    }
}

/// Show or write the devices and links that plans are made for
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct PlatformCommand {
    /// Write the devices and links to this file
    #[arg(short, long, value_name = "FILE.json", value_parser = file_of(&["json"]))]
    output: Option<PathBuf>,
    /// Use this cost store [default: anabranch/costs.json in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl PlatformCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let inventory = detect(&self.devices.options()?)?;
        let (_, mut store) = open_store(self.costs.as_ref())?;
        store.settle(&inventory.fingerprint()).iter().for_each(note);
        let file = PlatformFile::of(&inventory, store.here());
        match &self.output {
            Some(path) => write_file(path, pretty(&file)?),
            None => output.text_or_json(|| table(&file, store.here()), &file),
        }
    }
}

fn table(file: &PlatformFile, known: &MachineCosts) -> String {
    let mut devices = Table::new("device | kind | >memory | rates | >nodes measured | key");
    for device in &file.devices {
        let key = device.key.as_deref().unwrap_or_default();
        let costs = known.devices.get(key);
        devices.row([
            device.name.clone(),
            device.kind.map(|kind| kind.to_string()).unwrap_or_default(),
            device.memory.map_or("all".into(), format_bytes),
            if costs.is_some_and(|costs| costs.rates.is_some()) { "measured" } else { "assumed" }.into(),
            costs.map_or(0, |costs| costs.nodes.len()).to_string(),
            key.to_owned(),
        ]);
    }
    let mut links = Table::new("link | >latency | >rate");
    for link in &file.links {
        links.row([
            format!("{} -> {}", link.from, link.to),
            link.latency.map_or(String::new(), duration),
            link.rate.map_or(String::new(), |rate| format!("{}/s", format_bytes(rate as u64))),
        ]);
    }
    if file.links.is_empty() { devices.to_string() } else { format!("{devices}\n{links}") }
}
