//! Names for errors of a run: the place of a failure, and the wait-for graph of a stalled run.

use super::error::FailureSite;
use super::run_channels::{Doing, RunChannels, Wait};
use super::supervise::Blame;
use super::worker_program::{Awaited, PortSpec};
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{ExecError, Plan, Step};
use std::sync::Arc;

/// Data that names workers and steps.
#[derive(Debug)]
pub(super) struct Diagnosis {
    pub(super) plan: Arc<Plan>,
    pub(super) program: Arc<Program>,
    pub(super) ports: Vec<PortSpec>,
}

impl Diagnosis {
    /// Describes for each waiting worker its step, and the workers that it waits for.
    pub(super) fn wait_for_graph(&self, channels: &RunChannels) -> String {
        let waiting = |(worker, (_, doing)): (usize, (u64, Doing))| match doing {
            Doing::Waiting(wait) => Some(self.waiting(worker, wait)),
            Doing::Idle | Doing::Working => None,
        };
        channels.look().enumerate().filter_map(waiting).collect::<Vec<_>>().join("; ")
    }

    fn waiting(&self, worker: usize, wait: Wait) -> String {
        let port = &self.ports[worker];
        let (openers, step, lacks) = match wait {
            Wait::Gate(gate) => (&port.gates[gate as usize].openers, port.gates[gate as usize].step, String::new()),
            Wait::Channel(channel) => {
                let channel = &port.channels[channel as usize];
                let value = &self.program.value(channel.value).name;
                let lacks = match channel.what {
                    Awaited::Chunk => format!(" with a chunk of {value:?} to come"),
                    Awaited::EmptyBuffer => format!(" with no empty buffer for a chunk of {value:?}"),
                };
                (&channel.on, channel.step, lacks)
            }
        };
        let mut on: Vec<String> = openers.iter().map(|from| self.worker_name(*from as usize)).collect();
        on.sort();
        on.dedup();
        let (worker, step, on) = (self.worker_name(worker), self.step_name(worker, step), on.join(", "));
        format!("{worker} waits at {step}{lacks} for {on}")
    }

    fn worker_name(&self, worker: usize) -> String {
        let devices = self.plan.devices();
        let name = |device: DeviceId| &devices[device.index()].name;
        match devices.get(worker) {
            Some(device) => device.name.clone(),
            None => {
                let link = &self.plan.links()[worker - devices.len()];
                format!("{} -> {}", name(link.from), name(link.to))
            }
        }
    }

    /// Describes a worker's step of its worker program.
    fn step_name(&self, worker: usize, step: u32) -> String {
        let devices = self.plan.devices().len();
        if worker >= devices {
            let link = &self.plan.links()[worker - devices];
            let value = link.transfers.get(step as usize).map(|id| self.plan.transfer(*id).value);
            return value.map_or_else(String::new, |value| format!("value {:?}", self.program.value(value).name));
        }
        let own = |step: &&Step| match step {
            Step::Node(node) => self.plan.device_of(*node).index() == worker,
            Step::Input(index) => self.plan.input_device(*index).index() == worker,
            Step::Output(index) => self.plan.output_device(*index).index() == worker,
            Step::Transfer(_) => false,
        };
        match self.plan.steps().iter().filter(own).nth(step as usize) {
            Some(Step::Node(node)) => format!("node {:?}", self.program.node(*node).name),
            Some(Step::Output(index)) => format!("output {:?}", self.program.outputs[*index].name),
            Some(Step::Input(_) | Step::Transfer(_)) | None => "its end".into(),
        }
    }

    /// First node on a device that reads a value, in the program's order.
    fn reader(&self, value: ValueId, device: DeviceId) -> Option<NodeId> {
        let reads =
            |node: &NodeId| self.program.node(*node).inputs.contains(&value) && self.plan.device_of(*node) == device;
        self.program.node_ids().find(reads)
    }

    /// Adds names to a failure: for a transfer, the node that made its value, or else the node that reads it.
    pub(super) fn named(&self, Blame { worker, failure }: Blame) -> ExecError {
        let node = match failure.place {
            FailureSite::Node(node) => Some(self.program.node(node).model_name().to_owned()),
            FailureSite::Transfer(id) => {
                let transfer = self.plan.transfer(id);
                let node = match self.program.value(transfer.value).origin {
                    Origin::Node(node) => Some(node),
                    Origin::Input | Origin::Constant(_) => self.reader(transfer.value, transfer.to),
                };
                node.map(|node| self.program.node(node).model_name().to_owned())
            }
            FailureSite::Nowhere => None,
        };
        let devices = self.plan.devices();
        let device = worker.map(|worker| match devices.get(worker as usize) {
            Some(device) => device.name.clone(),
            // Only the GPU can fail on a link.
            None => {
                let link = &self.plan.links()[worker as usize - devices.len()];
                let gpu = |end: &&DeviceId| self.plan.device(**end).kind != DeviceKind::Cpu;
                let end = [link.from, link.to].iter().find(gpu).copied().unwrap_or(link.to);
                self.plan.device(end).name.clone()
            }
        });
        failure.error.at(node, device)
    }
}
