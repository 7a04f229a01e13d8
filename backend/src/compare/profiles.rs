//! Profiled runs of one plan taken as one: what is said of nodes and links, of each and of all, rests on the same medians.

use super::Median;
use crate::learning::{Accuracy, Compared};
use crate::session::Run;
use std::collections::BTreeMap;

/// Profiled runs of one plan, as predicted and as measured.
#[derive(Default)]
pub(crate) struct Profiles {
    runs: Vec<Accuracy>,
}

impl Profiles {
    /// Adds a profiled run.
    pub(crate) fn add(&mut self, run: &Run) {
        self.runs.push(run.accuracy());
    }

    /// What was predicted, beside the median of what was measured of each node, of each link, and of the whole.
    pub(crate) fn typical(&self) -> Accuracy {
        let makespan = self.runs.first().map_or(0.0, |run| run.makespan.predicted);
        let measured = median(self.runs.iter().map(|run| run.makespan.measured));
        let (mut nodes, mut links) = (BTreeMap::new(), BTreeMap::new());
        for run in &self.runs {
            run.nodes.iter().for_each(|node| nodes.entry(node.node).or_insert_with(Vec::new).push(node));
            run.links.iter().for_each(|link| links.entry((link.from, link.to)).or_insert_with(Vec::new).push(link));
        }
        let nodes = nodes.values().map(|runs| {
            let mut node = *runs[0];
            node.time.measured = median(runs.iter().map(|node| node.time.measured));
            node
        });
        let links = links.values().map(|runs| {
            let mut link = *runs[0];
            link.time.measured = median(runs.iter().map(|link| link.time.measured));
            link.off = median(runs.iter().map(|link| link.off));
            link
        });
        let makespan = Compared { predicted: makespan, measured };
        Accuracy { makespan, nodes: nodes.collect(), links: links.collect() }
    }
}

/// [`Accuracy::node_error`] and [`Accuracy::link_error`] in percent.
pub(crate) fn percents(accuracy: &Accuracy) -> [Option<f64>; 2] {
    [accuracy.node_error(), accuracy.link_error()].map(|error| error.map(|error| 100.0 * error))
}

fn median(samples: impl Iterator<Item = f64>) -> f64 {
    Median::of(&samples.collect::<Vec<_>>()).map_or(0.0, |median| median.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learning::NodeAccuracy;
    use crate::program::NodeId;
    use anabranch_placement::platform::DeviceId;

    /// The last run alone would blame the node that is predicted best, and the median of the runs' errors would be that of no run's node.
    #[test]
    fn the_worst_node_is_part_of_the_error_that_it_is_named_beside() {
        let node = |id, measured| NodeAccuracy {
            node: NodeId(id),
            device: DeviceId(0),
            time: Compared { predicted: 1.0, measured },
            cost: None,
        };
        let makespan = Compared { predicted: 2.0, measured: 2.0 };
        let run = |times: [f64; 2]| Accuracy {
            makespan,
            nodes: vec![node(0, times[0]), node(1, times[1])],
            links: Vec::new(),
        };
        let profiles = Profiles { runs: [[1.0, 2.0], [1.0, 2.0], [9.0, 2.0]].map(run).to_vec() };
        let typical = profiles.typical();
        assert_eq!(typical.worst_node().map(|node| (node.node, node.time.measured)), Some((NodeId(1), 2.0)));
        assert_eq!(percents(&typical), [Some(100.0 * (1.0 / 3.0)), None]);
        assert_eq!(Profiles::default().typical().node_error(), None);
    }
}
