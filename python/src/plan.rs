//! A plan, as data and as pictures.

use super::failure::{Failure, Result};
use super::work::released;
use anabranch::planning::Planned;
use anabranch::session::RunPrediction;
use anabranch_placement::platform::DeviceId;
use anabranch_report::show;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// The plan for one set of input shapes.
#[pyclass(frozen)]
pub(crate) struct Plan {
    session: Arc<anabranch::Session>,
    model: String,
    planned: Arc<Planned>,
}

impl Plan {
    pub(crate) fn new(session: Arc<anabranch::Session>, model: String, planned: Arc<Planned>) -> Self {
        Self { session, model, planned }
    }

    fn facts(&self) -> Value {
        let plan = self.planned.plan();
        let device = |(at, device): (usize, &anabranch::plan::PlanDevice)| {
            let nodes = || self.planned.program.node_ids().filter(|node| plan.device_of(*node) == DeviceId(at as u32));
            json!({
                "device": device.name,
                "kind": device.kind,
                "nodes": nodes().count(),
                "busy_ms": nodes().map(|node| plan.predicted().busy[node.index()]).sum::<f64>() * 1e3,
                "peak_bytes": plan.memory().devices()[at].peak(),
                "limit_bytes": device.limit,
            })
        };
        json!({
            "model": self.model,
            "strategy": plan.strategy(),
            "predicted_ms": plan.predicted().makespan * 1e3,
            "predicted_interval_ms": RunPrediction::of(&self.planned).telling_interval().map(|(low, high)| [low * 1e3, high * 1e3]),
            "place_ms": self.planned.place_time.as_secs_f64() * 1e3,
            "traffic_bytes": plan.traffic().moved().bytes,
            "whole": self.planned.rest().is_none(),
            "devices": plan.devices().iter().enumerate().map(device).collect::<Vec<_>>(),
        })
    }

    /// Returns a row for each node, in the order of the program.
    fn nodes(&self) -> Vec<Value> {
        let (program, plan) = (&self.planned.program, self.planned.plan());
        let row = |id: anabranch::program::NodeId| {
            let (node, device) = (program.node(id), plan.device_of(id));
            let (start, end) = plan.predicted().nodes[id.index()];
            let cost = self.planned.placed.costs[id.index()][device.index()].as_ref();
            json!({
                "node": node.name,
                "op": node.spec.op.name(),
                "device": plan.device(device).name,
                "start_ms": start * 1e3,
                "end_ms": end * 1e3,
                "busy_ms": plan.predicted().busy[id.index()] * 1e3,
                "cost": cost.map(|cost| cost.source.to_string()),
                "reason": plan.reason(id),
            })
        };
        program.node_ids().map(row).collect()
    }
}

#[pymethods]
impl Plan {
    /// Returns the plan as data: its figures, a row for each node, and the editable file. All are JSON.
    fn data(&self, py: Python<'_>) -> PyResult<(String, String, String)> {
        released(py, || -> Result<_> {
            let (facts, nodes) = (self.facts().to_string(), serde_json::to_string(&self.nodes())?);
            Ok((facts, nodes, serde_json::to_string_pretty(&self.planned.plan_file())?))
        })
    }

    /// Returns the program in Graphviz' language.
    fn dot(&self, py: Python<'_>) -> PyResult<String> {
        released(py, || Ok(anabranch_report::plan::dot(&self.planned)))
    }

    /// Returns the page that `anabranch place --report` writes.
    fn page(&self, py: Python<'_>) -> PyResult<String> {
        released(py, || show::page(&self.session, &self.model, &self.planned, None).map_err(Failure::internal))
    }
}
