//! How well a run was predicted: node by node, link by link, and as a whole.

use super::observation::observe;
use anabranch_costs::NodeCost;
use anabranch_execute::RunOutput;
use anabranch_ir::program::NodeId;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::Route;
use anabranch_planning::Planned;
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
    /// `(predicted − measured) / measured`: positive where the prediction was too long. `None` where the measured time is too short
    /// for that to mean anything.
    pub fn error(&self) -> Option<f64> {
        (self.measured > SHORTEST).then(|| (self.predicted - self.measured) / self.measured)
    }

    /// The accuracy of both together.
    fn and(self, other: Self) -> Self {
        Self { predicted: self.predicted + other.predicted, measured: self.measured + other.measured }
    }

    /// Seconds between the two.
    fn off(&self) -> f64 {
        (self.predicted - self.measured).abs()
    }
}

/// One node of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeAccuracy {
    /// The number of its plan among those of the run (`Run::plans`): 0 unless the model runs in phases.
    pub plan: usize,
    /// How often it was run: more than once in the body of a loop that runs in phases. Its times are those of all these runs.
    pub runs: usize,
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
    /// Seconds by which each was predicted too long or too short, added up.
    pub off: f64,
}

impl LinkAccuracy {
    fn add(&mut self, other: &Self) {
        self.transfers += other.transfers;
        self.bytes += other.bytes;
        self.time = self.time.and(other.time);
        self.off += other.off;
    }
}

/// A run as predicted and as measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    /// The whole run.
    pub makespan: Compared,
    /// Each node, in the order in which they started.
    pub nodes: Vec<NodeAccuracy>,
    /// Each link with the copies over it that showed their times, by its ends: streams do not.
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
            let time = Compared { predicted: predicted.busy[node.index()], measured };
            NodeAccuracy { plan: 0, runs: 1, node, device, time, cost }
        });
        Self {
            makespan: Compared { predicted: predicted.makespan, measured: measured.makespan.as_secs_f64() },
            nodes: nodes.collect(),
            links: link_accuracy(planned, measured),
        }
    }

    /// That of a run that followed several plans, which are given with their numbers, in order. The times of a plan that was run several
    /// times are added up.
    pub fn joined<'p>(makespan: Compared, parts: impl Iterator<Item = (usize, &'p Planned, &'p RunOutput)>) -> Self {
        let (mut nodes, mut links) = (Vec::<NodeAccuracy>::new(), BTreeMap::<_, LinkAccuracy>::new());
        let mut places = BTreeMap::new();
        for (plan, planned, measured) in parts {
            let part = Self::of(planned, measured);
            for node in part.nodes {
                let place = *places.entry((plan, node.node)).or_insert(nodes.len());
                match nodes.get_mut(place) {
                    Some(known) => (known.runs, known.time) = (known.runs + 1, known.time.and(node.time)),
                    None => nodes.push(NodeAccuracy { plan, ..node }),
                }
            }
            for link in part.links {
                let add = |known: &mut LinkAccuracy| known.add(&link);
                links.entry((link.from, link.to)).and_modify(add).or_insert(link);
            }
        }
        Self { makespan, nodes, links: links.into_values().collect() }
    }

    /// By how much of their measured time nodes were predicted too long or too short: `Σ |predicted − measured| / Σ measured`. A long
    /// node counts for as much as it takes; a mean of relative errors would be that of the shortest. `None` if nothing was measured.
    pub fn node_error(&self) -> Option<f64> {
        share(self.nodes.iter().map(|node| (node.time.off(), node.time.measured)))
    }

    /// [`Self::node_error`] and [`Self::link_error`] in percent.
    pub fn error_percents(&self) -> [Option<f64>; 2] {
        [self.node_error(), self.link_error()].map(|error| error.map(|error| 100.0 * error))
    }

    /// The node whose prediction was off by most seconds.
    pub fn worst_node(&self) -> Option<&NodeAccuracy> {
        self.nodes.iter().max_by(|one, other| one.time.off().total_cmp(&other.time.off()))
    }

    /// The same as [`Self::node_error`] of the transfers over all links.
    pub fn link_error(&self) -> Option<f64> {
        share(self.links.iter().map(|link| (link.off, link.time.measured)))
    }
}

fn link_accuracy(planned: &Planned, measured: &RunOutput) -> Vec<LinkAccuracy> {
    let plan = planned.plan();
    let mut links: BTreeMap<(DeviceId, DeviceId), LinkAccuracy> = BTreeMap::new();
    for (id, measured) in observe(&planned.program, plan, measured).transfers {
        let (transfer, (start, end)) = (plan.transfer(id), plan.predicted().transfers[id.index()]);
        // What is read in place shows how long a thread took to wake: no link's time.
        if transfer.route == Route::Shared {
            continue;
        }
        let time = Compared { predicted: end - start, measured };
        let (from, to) = (transfer.from, transfer.to);
        let none = LinkAccuracy { from, to, transfers: 0, bytes: 0, time: Compared::default(), off: 0.0 };
        let link = links.entry((from, to)).or_insert(none);
        link.transfers += 1;
        link.bytes += transfer.bytes;
        link.time.predicted += time.predicted;
        link.time.measured += time.measured;
        link.off += time.off();
    }
    links.into_values().collect()
}

/// Of pairs, the sum of the first over that of the second, where that is a time.
fn share(pairs: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (off, measured) = pairs.fold((0.0, 0.0), |(off, all), pair| (off + pair.0, all + pair.1));
    (measured > SHORTEST).then(|| off / measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(predicted: f64, measured: f64) -> NodeAccuracy {
        let time = Compared { predicted, measured };
        NodeAccuracy { plan: 0, runs: 1, node: NodeId(0), device: DeviceId(0), time, cost: None }
    }

    fn of(nodes: Vec<NodeAccuracy>, links: Vec<LinkAccuracy>) -> Accuracy {
        Accuracy { makespan: Compared { predicted: 1.5, measured: 2.0 }, nodes, links }
    }

    #[test]
    fn errors_are_shares_of_the_measured_time() {
        // A node of a microsecond that was thought to take a hundred is no news beside one of a second.
        let accuracy = of(vec![node(1.5, 1.0), node(2.0, 3.0), node(1e-4, 1e-6)], Vec::new());
        assert_eq!(accuracy.makespan.error(), Some(-0.25), "it took longer than predicted");
        assert!(accuracy.node_error().is_some_and(|error| (error - 0.375).abs() < 1e-4), "{:?}", accuracy.node_error());
        assert_eq!(accuracy.worst_node().map(|node| node.time.measured), Some(3.0));
        assert_eq!((accuracy.link_error(), of(Vec::new(), Vec::new()).node_error()), (None, None));
    }

    #[test]
    fn links_count_for_the_time_that_they_take() {
        let link = |off, measured| LinkAccuracy {
            from: DeviceId(0),
            to: DeviceId(1),
            transfers: 1,
            bytes: 0,
            time: Compared { predicted: measured, measured },
            off,
        };
        assert_eq!(of(Vec::new(), vec![link(1.0, 3.0), link(0.5, 1.0)]).link_error(), Some(0.375));
    }
}
