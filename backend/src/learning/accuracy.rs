//! How well a run was predicted: node by node, link by link, and as a whole.

use super::observation::observe;
use crate::execute::RunOutput;
use crate::planning::Planned;
use crate::profile::NodeCost;
use crate::program::NodeId;
use anabranch_placement::platform::DeviceId;
use std::collections::BTreeMap;

/// Nodes and links that took less time, in seconds, are too short for their error to be told from the clock's.
const SHORTEST: f64 = 1e-7;

/// A time, predicted and measured, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compared {
    /// Predicted.
    pub predicted: f64,
    /// Measured.
    pub measured: f64,
}

impl Compared {
    /// `|predicted − measured| / measured`; `None` where the measured time is too short for that to mean anything.
    pub fn error(&self) -> Option<f64> {
        (self.measured > SHORTEST).then(|| (self.predicted - self.measured).abs() / self.measured)
    }
}

/// One node of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeAccuracy {
    /// The node.
    pub node: NodeId,
    /// The device that it ran on.
    pub device: DeviceId,
    /// Its time.
    pub time: Compared,
    /// What the prediction rested on; `None` if the plan was made for a device of unknown costs.
    pub cost: Option<NodeCost>,
}

/// All transfers over one link in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkAccuracy {
    /// The sender.
    pub from: DeviceId,
    /// The receiver.
    pub to: DeviceId,
    /// Transfers.
    pub transfers: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Their times, added up.
    pub time: Compared,
    /// Mean relative error of their times.
    pub error: Option<f64>,
}

/// A run as predicted and as measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    /// The whole run.
    pub makespan: Compared,
    /// Each node, in the order in which they started.
    pub nodes: Vec<NodeAccuracy>,
    /// Each link whose transfers showed their times, by its ends: streamed ones do not, nor what nobody waited for.
    pub links: Vec<LinkAccuracy>,
}

impl Accuracy {
    /// What was predicted of a run of `planned` beside what was measured; needs the run's profile.
    pub fn of(planned: &Planned, measured: &RunOutput) -> Self {
        let plan = planned.plan();
        let predicted = plan.predicted();
        let nodes = measured.node_times().map(|(node, measured)| {
            let device = plan.device_of(node);
            let cost = planned.placed.costs[node.index()][device.index()];
            NodeAccuracy { node, device, time: Compared { predicted: predicted.busy[node.index()], measured }, cost }
        });
        Self {
            makespan: Compared { predicted: predicted.makespan, measured: measured.makespan.as_secs_f64() },
            nodes: nodes.collect(),
            links: link_accuracy(planned, measured),
        }
    }

    /// Mean absolute relative error of the nodes' times (MAPE, as a share of 1); `None` if no node was long enough to be measured.
    pub fn node_error(&self) -> Option<f64> {
        mean(self.nodes.iter().filter_map(|node| node.time.error()))
    }

    /// Mean absolute relative error of the transfers' times over all links; `None` without transfers.
    pub fn link_error(&self) -> Option<f64> {
        let errors = self.links.iter().filter_map(|link| Some((link.error?, link.transfers as f64)));
        let (sum, count) = errors.fold((0.0, 0.0), |(sum, all), (error, count)| (sum + error * count, all + count));
        (count > 0.0).then(|| sum / count)
    }
}

fn link_accuracy(planned: &Planned, measured: &RunOutput) -> Vec<LinkAccuracy> {
    let plan = planned.plan();
    let mut links: BTreeMap<(DeviceId, DeviceId), (LinkAccuracy, Vec<f64>)> = BTreeMap::new();
    for (id, measured) in observe(&planned.program, plan, measured).transfers {
        let transfer = plan.transfer(id);
        let time = Compared { predicted: plan.predicted().transfers[id.index()], measured };
        let (from, to) = (transfer.from, transfer.to);
        let none = LinkAccuracy { from, to, transfers: 0, bytes: 0, time: Compared::default(), error: None };
        let (link, errors) = links.entry((from, to)).or_insert((none, Vec::new()));
        link.transfers += 1;
        link.bytes += transfer.bytes;
        link.time.predicted += time.predicted;
        link.time.measured += time.measured;
        errors.extend(time.error());
    }
    let averaged = |(link, errors): (LinkAccuracy, Vec<f64>)| LinkAccuracy { error: mean(errors.into_iter()), ..link };
    links.into_values().map(averaged).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_measured_times() {
        let node = |predicted, measured| NodeAccuracy {
            node: NodeId(0),
            device: DeviceId(0),
            time: Compared { predicted, measured },
            cost: None,
        };
        let link = |error, transfers| LinkAccuracy {
            from: DeviceId(0),
            to: DeviceId(1),
            transfers,
            bytes: 0,
            time: Compared::default(),
            error,
        };
        let accuracy = Accuracy {
            makespan: Compared { predicted: 3.0, measured: 2.0 },
            nodes: vec![node(1.5, 1.0), node(3.0, 3.0), node(1.0, 1e-9)],
            links: vec![link(Some(0.5), 3), link(Some(0.1), 1), link(None, 2)],
        };
        assert_eq!(accuracy.makespan.error(), Some(0.5));
        assert_eq!(accuracy.node_error(), Some(0.25));
        assert!(accuracy.link_error().is_some_and(|error| (error - 0.4).abs() < 1e-12));
    }
}
