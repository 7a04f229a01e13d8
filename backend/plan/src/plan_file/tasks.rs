//! Plan files of other problems than programs: named tasks, placed and scheduled by the placement simulator.

use super::{DeviceEntry, FileError, NodeEntry, PlanFile, TransferEntry, VERSION};
use anabranch_placement_core::place::Placement;
use anabranch_placement_core::platform::DeviceId;
use anabranch_placement_core::problem::Problem;
use anabranch_placement_core::schedule::{Schedule, TransferSpan};
use std::collections::BTreeMap;

impl PlanFile {
    /// Returns the file of placed tasks with their predicted schedule.
    pub fn of_tasks(problem: &Problem<'_>, placement: &Placement, schedule: &Schedule) -> Self {
        let (graph, platform) = (problem.graph(), problem.platform());
        let name = |device: DeviceId| platform.device(device).name.clone();
        let node = |task: anabranch_placement_core::graph::TaskId| {
            let span = schedule.tasks[task.index()];
            NodeEntry {
                node: graph.task(task).name.clone(),
                device: name(span.device),
                reason: placement.reasons[task.index()].explained(graph, platform).to_string(),
                start_us: span.start * 1e6,
                end_us: span.end * 1e6,
            }
        };
        let transfer = |span: &TransferSpan| TransferEntry {
            value: graph.task(graph.producer(span.datum)).name.clone(),
            from: name(span.from),
            to: name(span.to),
            bytes: span.bytes,
            route: "shared".to_owned(),
            chunk_bytes: None,
            chunks: None,
        };
        let orders = schedule.device_orders(platform.device_count());
        let device = |(device, order): (DeviceId, Vec<anabranch_placement_core::graph::TaskId>)| DeviceEntry {
            device: name(device),
            kind: Some(platform.device(device).kind),
            limit_bytes: None,
            peak_bytes: 0,
            resident_bytes: 0,
            staying_bytes: None,
            order: order.into_iter().map(|task| graph.task(task).name.clone()).collect(),
        };
        Self {
            version: VERSION,
            strategy: placement.strategy.to_owned(),
            nodes: graph.task_ids().map(node).collect(),
            devices: platform.device_ids().zip(orders).map(device).collect(),
            blocks: None,
            transfers: schedule.transfers.iter().map(transfer).collect(),
            makespan_us: schedule.makespan * 1e6,
            traffic_bytes: schedule.traffic,
            candidates: Vec::new(),
            simulation: None,
        }
    }

    /// Returns the device of each of the nodes with these names, as an index into `devices`.
    ///
    /// # Errors
    /// If the file does not name exactly these nodes, or names unknown devices.
    pub fn assigned(&self, nodes: &[&str], devices: &[&str]) -> Result<Vec<DeviceId>, FileError> {
        if self.version > VERSION {
            return Err(FileError(format!(
                "the plan's format {} is newer than this program's {VERSION}; use the program that wrote the plan",
                self.version
            )));
        }
        let places: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(place, name)| (*name, place)).collect();
        let mut assigned: Vec<Option<DeviceId>> = vec![None; nodes.len()];
        for NodeEntry { node: name, device, .. } in &self.nodes {
            let node = *places.get(&**name).ok_or_else(|| {
                let other = "which the model does not have; the plan was made for another model";
                FileError(format!("the plan names a node {name:?}, {other}"))
            })?;
            let place = devices.iter().position(|known| known == device).ok_or_else(|| {
                FileError(format!(
                    "the plan puts node {name:?} on {device:?}, but the devices are {}",
                    devices.join(", ")
                ))
            })?;
            if assigned[node].replace(DeviceId(place as u32)).is_some() {
                return Err(FileError(format!("the plan names node {name:?} twice")));
            }
        }
        let missing = |node: usize| {
            let why = "the plan was made for another model, or a line is missing";
            FileError(format!("the plan has no device for node {:?}; {why}", nodes[node]))
        };
        assigned.iter().enumerate().map(|(node, device)| device.ok_or_else(|| missing(node))).collect()
    }
}
