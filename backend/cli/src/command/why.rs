//! `anabranch place --why NODE`: the reason for a node's device, and the inputs that it waits for there.

use super::CliError;
use anabranch::device::format_bytes;
use anabranch::did_you_mean;
use anabranch::plan::Route;
use anabranch::planning::Planned;
use anabranch::program::{Node, NodeId, Origin};
use anabranch::session::Session;
use anabranch_placement::platform::{DeviceId, DeviceKind};
use anabranch_report::table::Table;
use anabranch_report::text::{count, duration};
use serde::Serialize;
use std::fmt;

/// Most names that are listed if none matches.
const SHOWN: usize = 8;

/// Explanation of a node's place. Times in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Why {
    node: String,
    op: String,
    /// Operators of the model in it.
    operators: Vec<String>,
    device: String,
    reason: String,
    start_ms: f64,
    end_ms: f64,
    /// Times of the node on each device.
    devices: Vec<Choice>,
    /// Inputs from other nodes.
    inputs: Vec<Input>,
}

/// A device that the node could have had.
#[derive(Clone, Debug, Serialize)]
struct Choice {
    device: String,
    time_ms: Option<f64>,
    /// Basis of the time, or the reason why the node cannot run there.
    basis: String,
}

/// A value that it waits for.
#[derive(Clone, Debug, Serialize)]
struct Input {
    from: String,
    device: String,
    bytes: u64,
    made_ms: f64,
    /// Route of the value.
    route: &'static str,
}

impl Why {
    /// Explains the node of this name, or the node that contains this operator of the model.
    pub(super) fn of(session: &Session, planned: &Planned, name: &str) -> Result<Self, CliError> {
        let (program, plan) = (&planned.program, planned.plan());
        let id = found(planned, name)?;
        let node = program.node(id);
        let device = plan.device_of(id);
        let (start, end) = plan.predicted().nodes[id.index()];
        let refusal = || session.gpu_refusals(program).swap_remove(id.index()).map(|refusal| refusal.to_string());
        let choice = |(index, described): (usize, &anabranch::plan::PlanDevice)| {
            let cost = planned.placed.costs[id.index()][index];
            let no_kernel = || match described.kind {
                DeviceKind::Gpu => refusal().unwrap_or_else(|| "not allowed there".into()),
                _ => "cannot run there".into(),
            };
            Choice {
                device: described.name.clone(),
                time_ms: cost.map(|cost| cost.seconds * 1e3),
                basis: cost.map_or_else(no_kernel, |cost| cost.source.to_string()),
            }
        };
        let operators = node.operators.iter().map(|operator| format!("{} ({})", operator.name, operator.kind));
        Ok(Self {
            node: node.name.clone(),
            op: node.spec.op.name().to_owned(),
            operators: operators.collect(),
            device: plan.device(device).name.clone(),
            reason: plan.reason(id).to_owned(),
            start_ms: start * 1e3,
            end_ms: end * 1e3,
            devices: plan.devices().iter().enumerate().map(choice).collect(),
            inputs: inputs(planned, node, device),
        })
    }
}

/// Returns the node that a name means: its own, otherwise one of an operator, otherwise the only one that contains it.
fn found(planned: &Planned, name: &str) -> Result<NodeId, CliError> {
    let program = &planned.program;
    let of = |fits: &dyn Fn(&Node) -> bool| program.node_ids().filter(|id| fits(program.node(*id))).collect::<Vec<_>>();
    let own = |node: &Node| node.name == name || node.operators.iter().any(|operator| operator.name == name);
    let near = |node: &Node| node.name.contains(name) || node.operators.iter().any(|other| other.name.contains(name));
    let exact = of(&own);
    let ids = if exact.is_empty() { of(&near) } else { exact };
    match ids[..] {
        [id] => Ok(id),
        _ => {
            let all = if ids.is_empty() { of(&|_| true) } else { ids.clone() };
            let names: Vec<_> = all.iter().take(SHOWN).map(|id| format!("`{}`", program.node(*id).name)).collect();
            let more =
                if all.len() > SHOWN { format!(" and {}", count(all.len() - SHOWN, "other")) } else { String::new() };
            let (said, names) =
                (if ids.is_empty() { "no node is called" } else { "several nodes are called" }, names.join(", "));
            let meant = did_you_mean(name, all.iter().map(|id| program.node(*id).name.as_str()));
            let meant = if ids.is_empty() { meant } else { String::new() };
            Err(CliError::input(format!(
                "{said} `{name}`{meant}; there are {names}{more}: `anabranch place` lists all"
            )))
        }
    }
}

fn inputs(planned: &Planned, node: &Node, device: DeviceId) -> Vec<Input> {
    let (program, plan) = (&planned.program, planned.plan());
    let input = |value: &anabranch::program::ValueId| {
        let Origin::Node(from) = program.value(*value).origin else { return None };
        let there = plan.device_of(from);
        let transfer = plan.transfers().iter().find(|transfer| transfer.value == *value && transfer.to == device);
        let route = match transfer.map(|transfer| &transfer.route) {
            None => "made here",
            Some(Route::Shared) => "read in place",
            Some(_) if transfer.is_some_and(|transfer| transfer.stream().is_some()) => "streamed",
            Some(_) => "copied",
        };
        Some(Input {
            from: program.node(from).name.clone(),
            device: plan.device(there).name.clone(),
            bytes: program.value(*value).spec.bytes() as u64,
            made_ms: plan.predicted().nodes[from.index()].1 * 1e3,
            route,
        })
    };
    node.inputs.iter().filter_map(input).collect()
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ms: f64| duration(ms * 1e-3);
        let (start, end) = (ms(self.start_ms), ms(self.end_ms));
        writeln!(f, "{} ({}) runs on {}, predicted from {start} to {end}", self.node, self.op, self.device)?;
        writeln!(f, "because    {}", self.reason)?;
        writeln!(f, "operators  {}\n", self.operators.join(", "))?;
        let mut devices = Table::new("device | >it would take | as");
        for Choice { device, time_ms, basis } in &self.devices {
            devices.row([device.clone(), time_ms.map_or("–".into(), ms), basis.clone()]);
        }
        let mut inputs = Table::new("reads of | on | >bytes | >made at | how");
        for Input { from, device, bytes, made_ms, route } in &self.inputs {
            inputs.row([from.clone(), device.clone(), format_bytes(*bytes), ms(*made_ms), (*route).into()]);
        }
        write!(f, "{devices}")?;
        if self.inputs.is_empty() {
            writeln!(f, "\nit reads only inputs and constants")
        } else {
            write!(f, "\n{inputs}")
        }
    }
}
