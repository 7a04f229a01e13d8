//! Accuracy of a run's prediction: node by node, link by link, and as a whole.

use super::observation::observe;
use anabranch_costs::NodeCost;
use anabranch_execute::RunOutput;
use anabranch_ir::program::NodeId;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::Route;
use anabranch_planning::Planned;
use std::collections::BTreeMap;

/// Shortest time, in seconds, of nodes and links whose error is meaningful; below it the clock's error dominates.
const SHORTEST: f64 = 1e-7;

/// A time, predicted and measured, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compared {
    /// Predicted seconds.
    pub predicted: f64,
    /// Measured seconds.
    pub measured: f64,
}

impl Compared {
    /// Returns `(predicted − measured) / measured`, which is positive if the prediction was too long. `None` if the
    /// measured time is too short for a meaningful error.
    pub fn error(&self) -> Option<f64> {
        (self.measured > SHORTEST).then(|| (self.predicted - self.measured) / self.measured)
    }

    /// Adds both times of two comparisons.
    fn and(self, other: Self) -> Self {
        Self { predicted: self.predicted + other.predicted, measured: self.measured + other.measured }
    }

    /// Seconds between prediction and measurement.
    fn off(&self) -> f64 {
        (self.predicted - self.measured).abs()
    }
}

/// One node of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeAccuracy {
    /// Number of the node's plan among the plans of the run (`Run::plans`): 0 unless the model runs in phases.
    pub plan: usize,
    /// Number of the node's runs: more than one in the body of a loop that runs in phases. The times are sums over
    /// these runs.
    pub runs: usize,
    /// The node.
    pub node: NodeId,
    /// Device that ran the node.
    pub device: DeviceId,
    /// Time of the node.
    pub time: Compared,
    /// Predicted cost and its source; `None` if the plan was made for a device of unknown costs.
    pub cost: Option<NodeCost>,
}

/// All transfers over one link in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkAccuracy {
    /// Sending device.
    pub from: DeviceId,
    /// Receiving device.
    pub to: DeviceId,
    /// Number of transfers.
    pub transfers: usize,
    /// Sum of their bytes.
    pub bytes: u64,
    /// Sum of their times.
    pub time: Compared,
    /// Sum of the absolute errors of the predictions, in seconds.
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
    /// All nodes, in the order in which they started.
    pub nodes: Vec<NodeAccuracy>,
    /// All links with copies whose times are known, by their ends; streams do not show their times.
    pub links: Vec<LinkAccuracy>,
}

impl Accuracy {
    /// Compares the prediction of a run of `planned` with the measurement; needs the run's profile.
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

    /// Joins the accuracies of a run that followed several plans, which are given with their numbers, in order.
    ///
    /// If a plan was run several times, its times are added up.
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

    /// Returns the prediction error of nodes relative to their measured time: `Σ |predicted − measured| / Σ measured`.
    ///
    /// Nodes count by their time; the shortest nodes would dominate a mean of relative errors. `None` if nothing was
    /// measured.
    pub fn node_error(&self) -> Option<f64> {
        share(self.nodes.iter().map(|node| (node.time.off(), node.time.measured)))
    }

    /// Returns [`Self::node_error`] and [`Self::link_error`] in percent.
    pub fn error_percents(&self) -> [Option<f64>; 2] {
        [self.node_error(), self.link_error()].map(|error| error.map(|error| 100.0 * error))
    }

    /// Returns the node with the greatest absolute error.
    pub fn worst_node(&self) -> Option<&NodeAccuracy> {
        self.nodes.iter().max_by(|one, other| one.time.off().total_cmp(&other.time.off()))
    }

    /// Returns the prediction error of transfers over all links, relative to their measured time; see
    /// [`Self::node_error`].
    pub fn link_error(&self) -> Option<f64> {
        share(self.links.iter().map(|link| (link.off, link.time.measured)))
    }
}

fn link_accuracy(planned: &Planned, measured: &RunOutput) -> Vec<LinkAccuracy> {
    let plan = planned.plan();
    let mut links: BTreeMap<(DeviceId, DeviceId), LinkAccuracy> = BTreeMap::new();
    for (id, measured) in observe(&planned.program, plan, measured).transfers {
        let (transfer, (start, end)) = (plan.transfer(id), plan.predicted().transfers[id.index()]);
        // A value that is read in place shows the wake-up of a thread, not the time of a link.
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

/// Ratio of the sums of the first and second members of pairs, if the second sum is long enough.
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
        // A microsecond node predicted to take 100 µs does not matter next to a node of a second.
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
