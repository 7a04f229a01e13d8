//! `anabranch profile`: measures every node on every kind of device.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs, StreamArgs, Streamed};
use super::interrupt::cancel_on_interrupt;
use super::open::{self, Opened, open};
use super::progress::Progress;
use super::{CliError, Output};
use anabranch::costs::{Estimate, History};
use anabranch::execute::RunOptions;
use anabranch::session::Run;
use anabranch_kernels::op::NodeSpec;
use anabranch_placement::platform::DeviceKind;
use anabranch_report::table::Table;
use anabranch_report::text::duration;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Measure every node on every kind of device, and keep the times
#[derive(Args, Clone, Debug)]
pub(crate) struct ProfileCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Measure this many runs per kind of device, after one warm-up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl ProfileCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let options = RunOptions::default().with_cancel(cancel_on_interrupt()?).with_profile(true);
        let (mut nodes, mut last) = (Vec::new(), None);
        for kind in ["cpu", "gpu"] {
            for stream in self.modes() {
                let streaming = StreamArgs { stream: Some(stream), ..self.place.streaming.clone() };
                let place = PlaceArgs { place: Some(kind.to_owned()), streaming, ..self.place.clone() };
                let opened = open(&self.devices, None, &self.model, &place, true)?;
                if kind == "gpu" && opened.session.inventory().gpus.is_empty() {
                    open::print_all_notes(&opened.session, Output { json: false });
                    break;
                }
                let again = !nodes.is_empty() && stream == Streamed::Always;
                if again && opened.session.prepare(&opened.inputs)?.blocks.is_empty() {
                    continue;
                }
                let run = self.measure(&opened, kind, &options, output)?;
                opened.save_costs()?;
                let later = run.later.iter().flat_map(|later| &later.runs).map(|run| &run.planned.program);
                let programs = [&run.prepared.program].into_iter().chain(later);
                let all = programs.flat_map(|program| &program.nodes);
                nodes.extend(all.map(|node| (node.name.clone(), node.spec.clone())));
                last = Some(opened);
            }
        }
        let mut seen = BTreeSet::new();
        nodes.retain(|(name, spec)| seen.insert((name.clone(), spec.key())));
        last.map_or(Ok(()), |opened| show(&open::model_name(&self.model), &opened, &nodes, output))
    }

    /// Returns the modes to measure: to find the gain of streaming, nodes are measured alone and in blocks.
    fn modes(&self) -> Vec<Streamed> {
        match self.place.streaming.stream {
            None | Some(Streamed::Auto) => vec![Streamed::Off, Streamed::Always],
            Some(mode) => vec![mode],
        }
    }

    fn measure(&self, opened: &Opened, kind: &str, options: &RunOptions, output: Output) -> Result<Run, CliError> {
        let progress = Progress::new(output, kind, u64::from(self.repeat));
        let run = || opened.session.run_with(&opened.inputs, options);
        let mut last = run()?;
        for _ in 0..self.repeat {
            last = run()?;
            opened.session.learn(&last);
            progress.advance();
        }
        Ok(last)
    }
}

/// Lists each node with its median times on the fastest CPU device and the fastest GPU.
fn show(model: &str, opened: &Opened, nodes: &[(String, NodeSpec)], output: Output) -> Result<(), CliError> {
    let costs = opened.session.costs();
    let inventory = opened.session.inventory();
    let keys: Vec<(DeviceKind, String)> = (inventory.cpus.iter().map(|d| (DeviceKind::Cpu, d.key.to_string())))
        .chain(inventory.gpus.iter().map(|d| (DeviceKind::Gpu, d.key.to_string())))
        .collect();
    let measured = |kind: DeviceKind, key: &str| -> Option<Estimate> {
        let histories =
            keys.iter().filter(|(k, _)| *k == kind).filter_map(|(_, device)| costs.here().node(device, key));
        histories.filter_map(History::estimate).next()
    };
    let mut table = Table::new(">cpu | >gpu | >runs | class | op | node");
    let mut rows: Vec<Value> = Vec::new();
    for (node, spec) in nodes {
        let key = spec.key();
        let (cpu, gpu) = (measured(DeviceKind::Cpu, &key), measured(DeviceKind::Gpu, &key));
        let text = |s: Option<Estimate>| s.map_or("–".into(), |s| duration(s.seconds()));
        let runs = cpu.map_or(0, |s| s.samples).max(gpu.map_or(0, |s| s.samples));
        let (class, op) = (spec.class(), spec.op.name());
        table.row([text(cpu), text(gpu), runs.to_string(), class.to_string(), op.to_owned(), node.clone()]);
        rows.push(json!({ "node": node, "op": op, "class": class, "work": spec.work(), "cpu": cpu, "gpu": gpu }));
    }
    let text = || format!("{model}: median time of each node\n\n{table}");
    output.text_or_json(text, &json!({ "model": model, "nodes": rows }))
}
