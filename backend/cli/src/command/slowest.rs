//! Where the time of a run goes: the slowest nodes, and what each of the model's operators takes in all.

use super::report::summed;
use super::table::{Table, digits, duration, shortened};
use anabranch::compare::Series;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Characters of a node's name that the table shows.
const WIDEST: usize = 48;

/// The medians of the profiled runs. Times in milliseconds; shares are of all nodes' times, in percent.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Slowest {
    nodes: Vec<NodeTime>,
    operators: Vec<OperatorTime>,
}

#[derive(Clone, Debug, Serialize)]
struct NodeTime {
    node: String,
    op: String,
    device: String,
    predicted_ms: f64,
    measured_ms: f64,
    share_percent: f64,
}

/// All nodes of the same operators of the model.
#[derive(Clone, Debug, Serialize)]
struct OperatorTime {
    operators: String,
    nodes: usize,
    measured_ms: f64,
    share_percent: f64,
}

impl Slowest {
    /// The slowest `count` nodes, and all operators.
    pub(super) fn of(series: &Series, count: usize) -> Self {
        let (program, plan) = (&series.last.prepared.program, series.last.prepared.plan());
        let total = summed(series.accuracy.nodes.iter().map(|node| node.time.measured));
        let share = |seconds: f64| if total > 0.0 { 100.0 * seconds / total } else { 0.0 };
        let mut sorted: Vec<_> = series.accuracy.nodes.iter().collect();
        sorted.sort_by(|one, other| other.time.measured.total_cmp(&one.time.measured).then(one.node.cmp(&other.node)));
        let mut by_operators: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        for accuracy in &sorted {
            let computed = program.node(accuracy.node).operators.iter().filter(|operator| !operator.folded);
            let kinds: Vec<_> = computed.map(|operator| operator.kind.as_str()).collect();
            let (nodes, seconds) = by_operators.entry(kinds.join("+")).or_default();
            (*nodes, *seconds) = (*nodes + 1, *seconds + accuracy.time.measured);
        }
        let operator = |(operators, (nodes, seconds))| OperatorTime {
            operators,
            nodes,
            measured_ms: seconds * 1e3,
            share_percent: share(seconds),
        };
        let mut operators: Vec<_> = by_operators.into_iter().map(operator).collect();
        operators.sort_by(|one, other| other.measured_ms.total_cmp(&one.measured_ms));
        let node = |accuracy: &&anabranch::learning::NodeAccuracy| NodeTime {
            node: program.node(accuracy.node).name.clone(),
            op: program.node(accuracy.node).spec.op.name().to_owned(),
            device: plan.device(accuracy.device).name.clone(),
            predicted_ms: accuracy.time.predicted * 1e3,
            measured_ms: accuracy.time.measured * 1e3,
            share_percent: share(accuracy.time.measured),
        };
        Self { nodes: sorted.iter().take(count).map(node).collect(), operators }
    }
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ms: f64| duration(ms * 1e-3);
        let percent = |share: f64| format!("{} %", digits(share, 1));
        let mut nodes = Table::new(">measured | >share | >predicted | device | op | slowest nodes");
        for NodeTime { node, op, device, predicted_ms, measured_ms, share_percent } in &self.nodes {
            let (measured, predicted) = (ms(*measured_ms), ms(*predicted_ms));
            let node = shortened(node, WIDEST);
            nodes.row([measured, percent(*share_percent), predicted, device.clone(), op.clone(), node]);
        }
        let mut operators = Table::new(">measured | >share | >nodes | operators");
        for OperatorTime { operators: kinds, nodes, measured_ms, share_percent } in &self.operators {
            operators.row([ms(*measured_ms), percent(*share_percent), nodes.to_string(), shortened(kinds, WIDEST)]);
        }
        write!(f, "{nodes}\n{operators}")
    }
}
