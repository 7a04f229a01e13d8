//! Report file: the nodes of a session that were claimed, their devices, and the reasons against the others.

use super::capability::Claim;
use super::graph::Graph;
use anabranch::files;
use anabranch::session::Prepared;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Report of a provider up to now.
pub(crate) struct Report {
    path: Option<PathBuf>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    devices: Vec<String>,
    parts: Vec<Value>,
    others: Vec<Value>,
    plans: Vec<Value>,
}

impl Report {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, told: Mutex::default() }
    }

    /// Whether a report is written.
    pub(crate) fn is_wanted(&self) -> bool {
        self.path.is_some()
    }

    /// Adds the claimed nodes of a graph, under their names in errors and plans, and the reasons against the others.
    pub(crate) fn claimed(&self, graph: &Graph, claim: &Claim) -> io::Result<()> {
        let name = |at: &usize| graph.nodes[*at].message.name.clone();
        let part = |part: &Vec<usize>| json!({ "nodes": part.iter().map(name).collect::<Vec<_>>() });
        let other = |(at, why): (&usize, &String)| json!({ "node": name(at), "operator": graph.nodes[*at].message.op_type, "why": why });
        self.tell(|told| {
            told.parts.extend(claim.parts.iter().map(part));
            told.others.extend(claim.refused.iter().map(other));
        })
    }

    /// Adds the plan of a part.
    pub(crate) fn planned(&self, part: &str, prepared: &Prepared) -> io::Result<()> {
        let plan = prepared.plan();
        let place = |node| {
            let device = plan.device(plan.device_of(node));
            json!({ "node": prepared.program.node(node).name, "device": device.name })
        };
        let nodes: Vec<_> = prepared.program.node_ids().map(place).collect();
        let input = |value| prepared.program.value(value).spec.to_string();
        let inputs: Vec<_> = prepared.program.inputs.iter().copied().map(input).collect();
        let predicted = plan.predicted().makespan;
        self.tell(|told| {
            told.devices = plan.devices().iter().map(|device| device.name.clone()).collect();
            told.plans.push(json!({ "part": part, "inputs": inputs, "predicted_seconds": predicted, "nodes": nodes }));
        })
    }

    fn tell(&self, add: impl FnOnce(&mut Told)) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut told);
        let all = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "devices": told.devices,
            "parts": told.parts,
            "others": told.others,
            "plans": told.plans,
        });
        files::write(path, |out| serde_json::to_writer_pretty(out, &all).map_err(io::Error::from))
    }
}
