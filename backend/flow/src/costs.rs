//! Measured weights: what a flow's nodes took, into the cost store and back.

use super::graph::Flow;
use super::report::FlowReport;
use anabranch_base::lock::lock;
use anabranch_costs::{CostStore, NodeCosts, Sample};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The device of the store under which the nodes of a flow are filed.
fn key(flow: &str) -> String {
    format!("workers of flow {flow}")
}

impl FlowReport {
    /// Adds what each node took in this run, as the mean of its operands, to the store, under the name of the flow; of how many nodes that
    /// was. The run must have been profiled.
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
    /// Gives each node the weight, in seconds, that the store knows of it under the name of the flow; how many it knows.
    pub fn weigh(&self, flow: &str, store: &CostStore) -> usize {
        let device = key(flow);
        let known = |name: &str| store.here().node(&device, name)?.estimate();
        let weights = self.nodes.iter().filter_map(|node| Some((node, known(&node.name)?)));
        weights.map(|(node, estimate)| lock(&node.settings).weight = estimate.nanoseconds / 1e9).count()
    }
}
