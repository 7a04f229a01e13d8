//! Measured weights: moves the times of a flow's nodes into the cost store and back.

use super::graph::Flow;
use super::report::FlowReport;
use anabranch_base::lock::lock;
use anabranch_costs::{CostStore, NodeCosts, Sample};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the store's device under which the nodes of a flow are filed.
fn key(flow: &str) -> String {
    format!("workers of flow {flow}")
}

impl FlowReport {
    /// Adds each node's time in this run to the store, under the name of the flow, and returns the number of nodes.
    ///
    /// A node's time is the mean over its operands. The run must have been profiled.
    pub fn learn(&self, flow: &str, store: &mut CostStore) -> usize {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let nodes = &mut store.here_mut().devices.entry(key(flow)).or_default().nodes;
        let measured = self.nodes.iter().filter(|node| node.operands > 0 && node.busy_ns > 0);
        measured
            .map(|node| {
                let costs = Arc::make_mut(nodes.entry(node.name.clone()).or_default());
                *costs = NodeCosts { op: "function".to_owned(), ..std::mem::take(costs) };
                let history = costs.versions.entry(anabranch_kernels::VERSION).or_default();
                let nanoseconds = node.busy_ns as f64 / node.operands as f64;
                history.add(Sample { nanoseconds, cold: false, at })
            })
            .filter(|is_taken| *is_taken)
            .count()
    }
}

impl Flow<'_> {
    /// Sets the weight of each node to the seconds that the store holds for it under the name of the flow, and returns
    /// the number of these nodes.
    pub fn weigh(&self, flow: &str, store: &CostStore) -> usize {
        let device = key(flow);
        let known = |name: &str| store.here().node(&device, name)?.estimate();
        let weights = self.nodes.iter().filter_map(|node| Some((node, known(&node.name)?)));
        weights.map(|(node, estimate)| lock(&node.settings).weight = estimate.nanoseconds / 1e9).count()
    }
}
