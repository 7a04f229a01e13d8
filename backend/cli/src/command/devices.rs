//! `anabranch devices`: the devices of this machine, for people. For programs, the inventory serializes itself.

use super::args::DeviceArgs;
use super::hints::notes;
use super::{CliError, Output};
use anabranch::device::{
    CacheSummary, CpuDevice, GpuDevice, GpuFeatures, Host, Inventory, detect, format_bytes, format_list,
};
use anabranch_report::text::{WIDTH, count, shortened, wrapped};
use clap::Args;
use std::fmt::Write;

/// Indentation of the text of a block.
const INDENT: usize = 8;

/// List the CPU devices and GPUs that plans can use
#[derive(Args, Clone, Debug)]
pub(crate) struct DevicesCommand {
    #[command(flatten)]
    devices: DeviceArgs,
}

impl DevicesCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let inventory = detect(&self.devices.options()?)?;
        output.text_or_json(|| table(&inventory), &inventory)
    }
}

/// Returns the inventory as text: a block for the host, a line for each device, and the notes. No line is longer than
/// 100 columns.
pub(crate) fn table(inventory: &Inventory) -> String {
    let mut text = host_block(&inventory.host);
    text.push('\n');
    text.push_str(&device_lines(inventory));
    if !inventory.notes.is_empty() {
        text.push('\n');
    }
    notes(inventory).iter().for_each(|note| text.push_str(&wrap("note", note)));
    text
}

fn host_block(host: &Host) -> String {
    let mut lines = vec![
        format!("{} ({}, {})", host.model, host.os, host.arch),
        [
            count(host.packages, "package"),
            count(host.numa.len(), "NUMA node"),
            count(host.cores, "core"),
            count(host.pus, "hardware thread"),
        ]
        .join(", "),
    ];
    let caches = [("L1d", host.l1d), ("L2", host.l2), ("L3", host.l3)];
    let caches: Vec<String> = caches.into_iter().filter_map(|(level, cache)| Some(cache_text(level, cache?))).collect();
    if !caches.is_empty() {
        lines.push(caches.join(", "));
    }
    lines.push(memory_text(host));
    if host.numa.len() > 1 {
        let nodes: Vec<String> =
            host.numa.iter().map(|node| format!("{}: {}", node.index, format_bytes(node.memory))).collect();
        lines.push(format!("NUMA node {}", nodes.join(", ")));
    }
    let threads = if host.allowed_pus.contains([',', '-']) { "threads" } else { "thread" };
    let cores = count(host.allowed_cores, "core");
    lines.push(format!("this process may use {cores} (hardware {threads} {})", host.allowed_pus));
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        text.push_str(&wrap(if at == 0 { "host" } else { "" }, line));
    }
    text
}

fn cache_text(level: &str, cache: CacheSummary) -> String {
    let size = format_bytes(cache.bytes);
    match (cache.cores, cache.count) {
        (1, _) => format!("{level} {size} a core"),
        (cores, 1) => format!("{level} {size} for {}", self::count(cores, "core")),
        (cores, number) => format!("{level} {number} × {size}, each for {}", self::count(cores, "core")),
    }
}

fn memory_text(host: &Host) -> String {
    let mut text = format!("{} of memory", format_bytes(host.memory));
    if let Some(available) = host.memory_available {
        // Cannot fail: this writes to a string.
        let _ = write!(text, ", {} available", format_bytes(available));
    }
    if let Some(limit) = host.memory_limit {
        let _ = write!(text, ", limited to {} by the control group", format_bytes(limit));
    }
    text
}

/// Head of a column, and its greatest width.
type Column = (&'static str, usize);
const COLUMNS: [Column; 6] =
    [("device", 8), ("kind", 10), ("what", 30), ("abilities", 20), ("memory", 9), ("near", 13)];

fn device_lines(inventory: &Inventory) -> String {
    let several_cpus = inventory.cpus.len() > 1;
    let cpus = inventory.cpus.iter().map(cpu_cells);
    let gpus = inventory.gpus.iter().map(|gpu| gpu_cells(gpu, several_cpus));
    let rows: Vec<[String; 6]> =
        std::iter::once(COLUMNS.map(|(head, _)| head.to_owned())).chain(cpus).chain(gpus).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width_of(&rows, column);
            let _ = write!(line, "{:<width$}  ", shortened(cell, width));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Width of the widest cell, but at most the column's greatest width.
fn width_of(rows: &[[String; 6]], column: usize) -> usize {
    let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    widest.min(COLUMNS[column].1)
}

fn cpu_cells(cpu: &CpuDevice) -> [String; 6] {
    [
        cpu.name.clone(),
        "cpu".to_owned(),
        cpu.description.clone(),
        format!("{}, L3 {}", count(cpu.cores, "core"), l3_text(cpu)),
        format_bytes(cpu.memory),
        format!("NUMA {}", format_list(&cpu.numa)),
    ]
}

fn l3_text(cpu: &CpuDevice) -> String {
    match cpu.l3 {
        None => "none".to_owned(),
        Some(cache) if cache.count == 1 => format_bytes(cache.bytes),
        Some(cache) => format!("{}×{}", cache.count, format_bytes(cache.bytes)),
    }
}

fn gpu_cells(gpu: &GpuDevice, several_cpus: bool) -> [String; 6] {
    let near = match &gpu.near[..] {
        _ if gpu.kind.shares_host_memory() => "host memory".to_owned(),
        near if several_cpus => near.join(" "),
        _ => gpu.pci.map(|address| address.to_string()).unwrap_or_default(),
    };
    [
        gpu.name.clone(),
        gpu.kind.to_string(),
        format!("{}, {}", gpu.description, gpu.driver_info),
        abilities(gpu.features, gpu.subgroup_size),
        format_bytes(gpu.memory),
        near,
    ]
}

fn abilities(features: GpuFeatures, subgroup_size: [u32; 2]) -> String {
    let [least, most] = subgroup_size;
    let subgroup = if least == most { format!("sg {least}") } else { format!("sg {least}-{most}") };
    let words = [
        (features.shader_f16, "f16"),
        (features.cooperative_matrix, "matrix"),
        (features.subgroup, subgroup.as_str()),
        (features.timestamp_query, "time"),
    ];
    words.iter().filter(|(there, _)| *there).map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

/// Returns `text` under the head `head`.
fn wrap(head: &str, text: &str) -> String {
    let mut block = String::new();
    for (at, line) in wrapped(text, WIDTH - INDENT).iter().enumerate() {
        let _ = writeln!(block, "{:<INDENT$}{line}", if at == 0 { head } else { "" });
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch::device::{CpuGranularity, DetectOptions};

    fn inventory(cpu_granularity: CpuGranularity) -> Inventory {
        let options = DetectOptions::default().with_cpu_granularity(cpu_granularity).with_software_gpu(true);
        detect(&options).expect("no device is named")
    }

    #[test]
    fn every_device_has_a_line_and_every_line_fits() {
        let mut inventory = inventory(CpuGranularity::Core);
        let long = "a processor with a name that goes on and on, as they do in marketing, ".repeat(3);
        inventory.host.model = long.clone();
        inventory.cpus[0].description = long.clone();
        inventory.cpus[0].numa = (0..64).step_by(2).collect();
        inventory.host.allowed_pus = "0,2,4,6,8,".repeat(40);
        inventory.notes = vec![long, "short".to_owned()];
        let text = table(&inventory);
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        for device in inventory.devices() {
            let lines = text.lines().filter(|line| line.split(' ').next() == Some(device.name()));
            assert_eq!(lines.count(), 1, "{}: {text}", device.name());
        }
        assert!(text.ends_with("\nnote    short\n"), "{text}");
    }

    #[test]
    fn the_host_is_told_in_words() {
        let mut host = inventory(CpuGranularity::L3).host;
        host.packages = 2;
        host.numa.clear();
        host.cores = 1;
        host.l1d = Some(CacheSummary { bytes: 48 << 10, count: 8, cores: 1 });
        host.l2 = None;
        host.l3 = Some(CacheSummary { bytes: 32 << 20, count: 2, cores: 4 });
        host.memory = 16 << 30;
        host.memory_available = None;
        host.memory_limit = Some(3 << 29);
        let text = host_block(&host);
        assert!(text.contains("2 packages, 0 NUMA nodes, 1 core, "), "{text}");
        assert!(text.contains("        L1d 48 KiB a core, L3 2 × 32 MiB, each for 4 cores\n"), "{text}");
        assert!(text.contains("        16 GiB of memory, limited to 1.5 GiB by the control group\n"), "{text}");
    }

    #[test]
    fn abilities_are_named_only_where_they_are() {
        let some = GpuFeatures { shader_f16: true, subgroup: true, ..GpuFeatures::default() };
        assert_eq!(abilities(some, [8, 8]), "f16 sg 8");
        assert_eq!(abilities(some, [16, 32]), "f16 sg 16-32");
        assert_eq!(abilities(GpuFeatures::default(), [8, 8]), "");
    }

    #[test]
    fn the_inventory_serialises_everything_but_handles() {
        let inventory = inventory(CpuGranularity::L3);
        let json = serde_json::to_value(&inventory).expect("an inventory is plain data");
        assert_eq!(json["cpus"][0]["name"], "cpu0");
        assert!(json["host"]["memory"].as_u64().is_some_and(|bytes| bytes > 0));
        assert_eq!(json["gpus"].as_array().map(Vec::len), Some(inventory.gpus.len()));
        assert!(json["gpus"].as_array().is_some_and(|gpus| gpus.iter().all(|gpu| gpu.get("adapter").is_none())));
    }
}
