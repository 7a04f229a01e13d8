//! Division of a run's time: the slowest nodes, and the total of each of the model's operators.

use anabranch::compare::Series;
use anabranch::learning::NodeAccuracy;
use anabranch::plan::HOST;
use anabranch_report::run::summed;
use anabranch_report::table::Table;
use anabranch_report::text::{digits, duration, shortened};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Most characters of a node's name in the table.
const WIDEST: usize = 48;

/// The slowest nodes of the run shown, in all phases. Times in milliseconds; shares in percent of all nodes and host
/// steps.
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
    /// Number of its runs: more than one in a loop's body that runs in phases.
    runs: usize,
    /// Null for operators that the host computes between plans.
    predicted_ms: Option<f64>,
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
    /// Returns the slowest `count` nodes, and all operators.
    pub(super) fn of(series: &Series, count: usize) -> Self {
        let mut nodes = nodes(series);
        nodes.extend(host_operators(series));
        let total = summed(nodes.iter().map(|(node, _)| node.measured_ms));
        let share = |ms: f64| if total > 0.0 { 100.0 * ms / total } else { 0.0 };
        nodes.sort_by(|(one, _), (other, _)| other.measured_ms.total_cmp(&one.measured_ms));
        let mut by_operators: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        for (node, kinds) in &mut nodes {
            node.share_percent = share(node.measured_ms);
            let (nodes, ms) = by_operators.entry(std::mem::take(kinds)).or_default();
            (*nodes, *ms) = (*nodes + 1, *ms + node.measured_ms);
        }
        let operator = |(operators, (nodes, measured_ms))| OperatorTime {
            operators,
            nodes,
            measured_ms,
            share_percent: share(measured_ms),
        };
        let mut operators: Vec<_> = by_operators.into_iter().map(operator).collect();
        operators.sort_by(|one, other| other.measured_ms.total_cmp(&one.measured_ms));
        Self { nodes: nodes.into_iter().take(count).map(|(node, _)| node).collect(), operators }
    }
}

/// Returns the nodes of all plans, each with the operators that it computes.
fn nodes(series: &Series) -> Vec<(NodeTime, String)> {
    let plans = series.run.plans();
    let node = |accuracy: &NodeAccuracy| {
        let (planned, id) = (plans[accuracy.plan], accuracy.node);
        let node = planned.program.node(id);
        let computed = node.operators.iter().filter(|operator| !operator.folded);
        let kinds: Vec<_> = computed.map(|operator| operator.kind.as_str()).collect();
        let time = NodeTime {
            node: node.name.clone(),
            op: node.spec.op.name().to_owned(),
            device: planned.plan().device(accuracy.device).name.clone(),
            runs: accuracy.runs,
            predicted_ms: Some(accuracy.time.predicted * 1e3),
            measured_ms: accuracy.time.measured * 1e3,
            share_percent: 0.0,
        };
        (time, kinds.join("+"))
    };
    series.accuracy.nodes.iter().map(node).collect()
}

/// Returns the steps of the host between plans. The passes of a loop are added up.
fn host_operators(series: &Series) -> Vec<(NodeTime, String)> {
    let device = series.run.prepared.plan().device(HOST).name.clone();
    let mut steps: BTreeMap<&str, (NodeTime, String)> = BTreeMap::new();
    for step in series.run.host_operators() {
        let none = || {
            let (node, op) = (step.name.clone(), "host operator".to_owned());
            let time = NodeTime {
                node,
                op,
                device: device.clone(),
                runs: 0,
                predicted_ms: None,
                measured_ms: 0.0,
                share_percent: 0.0,
            };
            (time, step.operator.clone())
        };
        let (time, _) = steps.entry(&step.name).or_insert_with(none);
        time.runs += 1;
        time.measured_ms += step.took.as_secs_f64() * 1e3;
    }
    steps.into_values().collect()
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ms: f64| duration(ms * 1e-3);
        let percent = |share: f64| format!("{} %", digits(share, 1));
        let mut nodes = Table::new(">measured | >share | >predicted | device | op | slowest nodes");
        for NodeTime { node, op, device, runs, predicted_ms, measured_ms, share_percent } in &self.nodes {
            let (measured, predicted) = (ms(*measured_ms), predicted_ms.map_or("–".into(), ms));
            let times = if *runs > 1 { format!(", {runs} runs") } else { String::new() };
            let node = shortened(node, WIDEST) + &times;
            nodes.row([measured, percent(*share_percent), predicted, device.clone(), op.clone(), node]);
        }
        let mut operators = Table::new(">measured | >share | >nodes | operators");
        for OperatorTime { operators: kinds, nodes, measured_ms, share_percent } in &self.operators {
            operators.row([ms(*measured_ms), percent(*share_percent), nodes.to_string(), shortened(kinds, WIDEST)]);
        }
        write!(f, "of the run shown\n{nodes}\n{operators}")
    }
}
