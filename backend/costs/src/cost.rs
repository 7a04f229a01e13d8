//! Predicted times of a program's nodes on a device, and how far to trust them.
//!
//! Sources in order of preference:
//! - measured runs of an equal node;
//! - the law fitted to the device's measured nodes of the same family, within its reach;
//! - runs of an equal node with kernels of another version;
//! - a roofline, scaled by the ratio that measured nodes of the same family, or else of the same op, have to their
//!   rooflines.

use super::history::History;
use super::law::{Law, Point};
use super::machine::{DeviceCosts, NodeCosts, Rates};
use super::robust::{median, nine_of_ten};
use anabranch_base::lock::lock;
use anabranch_kernels::op::{Family, NodeSpec};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Source of a predicted time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// Median of measured runs of an equal node on this device.
    Measured {
        /// Number of samples.
        samples: u64,
    },
    /// Least time of runs of an equal node on this device, all of them first runs after a start.
    Cold {
        /// Number of samples.
        samples: u64,
    },
    /// Law fitted to the measured nodes of the same family.
    Fitted {
        /// Number of nodes to which the law was fitted.
        nodes: usize,
    },
    /// An equal node's time with kernels of another version.
    OtherKernels {
        /// Version of these kernels.
        version: u32,
    },
    /// Roofline, scaled by the ratio that measured nodes of the same family or op have to their rooflines.
    Scaled {
        /// Number of nodes that were compared with their rooflines.
        nodes: usize,
    },
    /// The node's work over the rates measured by this machine's calibration.
    Roofline,
    /// The node's work over assumed rates.
    Assumed,
}

impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured { samples } => write!(f, "measured ×{samples}"),
            Self::Cold { samples } => write!(f, "measured cold ×{samples}"),
            Self::Fitted { nodes } => write!(f, "fitted to {nodes} nodes"),
            Self::OtherKernels { version } => write!(f, "measured with kernels {version}"),
            Self::Scaled { nodes: 1 } => f.write_str("roofline, scaled by 1 measured node"),
            Self::Scaled { nodes } => write!(f, "roofline, scaled by {nodes} measured nodes"),
            Self::Roofline => f.write_str("roofline"),
            Self::Assumed => f.write_str("assumed"),
        }
    }
}

/// A predicted time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeCost {
    /// Predicted time in seconds.
    pub seconds: f64,
    /// Factor of a 90 % interval, from `seconds / uncertainty` to `seconds · uncertainty`; `None` if it is unknown.
    pub uncertainty: Option<f64>,
    /// Source of the prediction.
    pub source: CostSource,
}

impl NodeCost {
    /// Returns the cost on a device that is `times` times slower.
    pub fn times(self, times: f64) -> Self {
        Self { seconds: self.seconds * times, ..self }
    }
}

impl fmt::Display for NodeCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uncertainty {
            Some(uncertainty) => write!(f, "{}, within {uncertainty:.2}×", self.source),
            None => self.source.fmt(f),
        }
    }
}

impl Rates {
    /// Rates of a small present-day core, for a device without a calibration.
    pub const ASSUMED: Self =
        Self { matmul_flops: 5e10, conv_flops: 3e10, map_flops: 5e9, bandwidth: 1e10, launch: 1e-6 };

    /// Predicts the seconds of a node by its roofline (Williams, Waterman, Patterson 2009).
    ///
    /// The time is the launch plus the longer of the node's arithmetic and its memory traffic. O(1).
    pub fn predict(&self, node: &NodeSpec) -> f64 {
        let work = node.work();
        self.roofline(node.op.name(), work.flops, work.bytes())
    }

    /// Roofline time in seconds of a node of the op `op` with this many operations and bytes.
    fn roofline(&self, op: &str, flops: f64, bytes: f64) -> f64 {
        let peak = match op {
            "conv" | "conv_transpose" => self.conv_flops,
            "matmul" => self.matmul_flops,
            _ => self.map_flops,
        };
        self.launch + (flops / peak).max(bytes / self.bandwidth)
    }
}

/// Predicts the nodes of one device. Each family's law is fitted once, at its first use.
#[derive(Debug)]
pub struct Predictor<'a> {
    costs: Option<&'a DeviceCosts>,
    key: &'a str,
    laws: Laws,
}

/// Fitted laws of all devices of a machine, by the device's key, the family and the op. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Laws(Arc<Mutex<BTreeMap<LawKey, Known>>>);

type LawKey = (String, &'static str, &'static str);

/// Knowledge about a family, from its measured nodes.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    law: Option<Law>,
    scale: Option<Scale>,
}

/// Fewer nodes than this say little about how much others differ.
const FEW: usize = 5;

/// Least uncertainty of a scale from fewer than `FEW` nodes.
const FEW_UNCERTAINTY: f64 = 2.0;

/// Least uncertainty of a scale from at least `FEW` nodes.
const LEAST_UNCERTAINTY: f64 = 1.1;

/// Ratios of measured times to rooflines.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    /// Median ratio.
    ratio: f64,
    /// Factor within which 90 % of the ratios lie.
    uncertainty: f64,
    nodes: usize,
}

impl<'a> Predictor<'a> {
    /// Creates a predictor from a device's costs, if any are known.
    pub fn new(costs: Option<&'a DeviceCosts>) -> Self {
        Self { costs, key: "", laws: Laws::default() }
    }

    /// Creates a predictor of the device with this key that shares its laws with other predictors of the same costs.
    pub fn sharing(laws: &Laws, costs: Option<&'a DeviceCosts>, key: &'a str) -> Self {
        Self { costs, key, laws: laws.clone() }
    }

    /// Returns the rates measured by calibration.
    pub fn rates(&self) -> Option<Rates> {
        self.costs.and_then(|costs| costs.rates)
    }

    /// Predicts the time of a node.
    ///
    /// O(log nodes), and once for each family O(k³) for its k measured nodes, of which 48 count at most.
    pub fn predict(&self, node: &NodeSpec) -> NodeCost {
        let equal = self.costs.and_then(|costs| costs.nodes.get(&node.key())).map(Arc::as_ref);
        if let Some(cost) = equal
            .and_then(|costs| costs.versions.get(&anabranch_kernels::VERSION))
            .and_then(|history| measured(history))
        {
            return cost;
        }
        let family = node.family();
        let mut laws = lock(&self.laws.0);
        let place = laws.entry((self.key.to_owned(), family.name, node.op.name()));
        let known = place.or_insert_with(|| self.known(&family, node.op.name()));
        let fitted = known.law.as_ref().and_then(|law| {
            let (seconds, uncertainty) = law.predict(&family.amounts)?;
            Some(NodeCost { seconds, uncertainty: Some(uncertainty), source: CostSource::Fitted { nodes: law.points } })
        });
        fitted.or_else(|| equal.and_then(of_other_kernels)).unwrap_or_else(|| self.roofline(node, known.scale))
    }

    /// Fits the law and the scale of a family to its warm nodes that were measured with this build's kernels. Without
    /// such nodes, the scale comes from nodes of the same op.
    fn known(&self, family: &Family, op: &str) -> Known {
        let nodes = || self.costs.into_iter().flat_map(|costs| costs.nodes.values()).map(Arc::as_ref);
        let seconds = |node: &NodeCosts| Some(node.versions.get(&anabranch_kernels::VERSION)?.median()? * 1e-9);
        let count = family.amounts.len();
        let alike = || nodes().filter(|node| node.family == family.name && node.amounts.len() == count);
        let points: Vec<Point> = alike().filter_map(|node| Some((node.amounts.clone(), seconds(node)?))).collect();
        let current = |node: &NodeCosts| node.versions.get(&anabranch_kernels::VERSION)?.estimate();
        let scatter = |node: &NodeCosts| Some(current(node)?.uncertainty.ln());
        let scatter = median(&alike().filter_map(scatter).collect::<Vec<_>>()).unwrap_or(0.0);
        let rates = self.rates().unwrap_or(Rates::ASSUMED);
        let ratio = |node: &NodeCosts| Some(seconds(node)? / rates.roofline(op, node.flops, node.bytes));
        let family = Scale::of(alike().filter_map(ratio));
        let scale = family.or_else(|| Scale::of(nodes().filter(|node| node.op == op).filter_map(ratio)));
        Known { law: Law::of(points, scatter), scale }
    }

    fn roofline(&self, node: &NodeSpec, scale: Option<Scale>) -> NodeCost {
        let rates = self.rates();
        let seconds = rates.unwrap_or(Rates::ASSUMED).predict(node);
        match scale {
            Some(Scale { ratio, uncertainty, nodes }) => NodeCost {
                seconds: seconds * ratio,
                // A single node does not show how much others differ.
                uncertainty: (nodes > 1).then_some(uncertainty),
                source: CostSource::Scaled { nodes },
            },
            None => {
                let source = if rates.is_some() { CostSource::Roofline } else { CostSource::Assumed };
                NodeCost { seconds, uncertainty: None, source }
            }
        }
    }
}

impl Scale {
    fn of(ratios: impl Iterator<Item = f64>) -> Option<Self> {
        let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect();
        let ratio = median(&ratios)?;
        let off: Vec<f64> = ratios.iter().map(|other| (other / ratio).ln()).collect();
        let nodes = off.len();
        let least = if nodes < FEW { FEW_UNCERTAINTY } else { LEAST_UNCERTAINTY };
        Some(Self { ratio, uncertainty: nine_of_ten(&off)?.exp().max(least), nodes })
    }
}

fn measured(history: &History) -> Option<NodeCost> {
    let estimate = history.estimate()?;
    let source = match estimate.cold {
        true => CostSource::Cold { samples: estimate.samples },
        false => CostSource::Measured { samples: estimate.samples },
    };
    Some(NodeCost { seconds: estimate.seconds(), uncertainty: Some(estimate.uncertainty), source })
}

/// Time of the newest other kernels, without an uncertainty: its relation to this build's kernels is unknown.
fn of_other_kernels(node: &NodeCosts) -> Option<NodeCost> {
    let (version, history) = node.versions.last_key_value()?;
    let seconds = history.estimate()?.seconds();
    Some(NodeCost { seconds, uncertainty: None, source: CostSource::OtherKernels { version: *version } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CostStore, MachineCosts, Sample};
    use anabranch_ir::program::{floats, map};
    use anabranch_kernels::op::{Expression, MatMul, Op, Unary};

    fn matmul() -> NodeSpec {
        let inputs = vec![floats(&[100, 200]), floats(&[200, 300])];
        NodeSpec { op: Op::MatMul(MatMul::default()), inputs, outputs: vec![floats(&[100, 300])] }
    }

    fn relu(elements: usize) -> NodeSpec {
        let spec = floats(&[elements]);
        NodeSpec { op: map(Expression::unary(Unary::Relu)), inputs: vec![spec.clone()], outputs: vec![spec] }
    }

    const RATES: Rates = Rates { matmul_flops: 12e6, conv_flops: 1e9, map_flops: 1e9, bandwidth: 8e6, launch: 0.5 };

    fn record(costs: &mut MachineCosts, node: &NodeSpec, seconds: f64, cold: bool) {
        assert!(costs.record("cpu", node, Sample { nanoseconds: seconds * 1e9, cold, at: 0 }));
    }

    fn predict(costs: &MachineCosts, device: &str, node: &NodeSpec) -> NodeCost {
        Predictor::new(costs.devices.get(device)).predict(node)
    }

    #[test]
    fn the_roofline_is_the_slower_of_arithmetic_and_traffic() {
        // The node has 12 MFLOP and 440 KB.
        assert_eq!(RATES.predict(&matmul()), 0.5 + 1.0);
        assert_eq!(RATES.predict(&relu(1_000_000)), 0.5 + 1.0);
    }

    #[test]
    fn measured_goes_before_cold_before_roofline_before_assumption() {
        let mut store = CostStore::default();
        let costs = store.here_mut();
        assert_eq!(predict(costs, "cpu", &matmul()).source, CostSource::Assumed);
        costs.devices.entry("cpu".into()).or_default().rates = Some(RATES);
        let roofline = NodeCost { seconds: 1.5, uncertainty: None, source: CostSource::Roofline };
        assert_eq!(predict(costs, "cpu", &matmul()), roofline);
        record(costs, &matmul(), 9.0, true);
        assert_eq!(predict(costs, "cpu", &matmul()).source, CostSource::Cold { samples: 1 });
        [2.0, 4.0, 3.0].iter().for_each(|seconds| record(costs, &matmul(), *seconds, false));
        let measured = predict(costs, "cpu", &matmul());
        assert_eq!((measured.seconds, measured.source), (3.0, CostSource::Measured { samples: 3 }));
        assert!(measured.uncertainty.is_some_and(|uncertainty| uncertainty > 1.0 && uncertainty <= 2.0));
        assert_eq!(predict(costs, "gpu", &matmul()).source, CostSource::Assumed);
    }

    #[test]
    fn unseen_sizes_follow_the_law_of_their_family_as_far_as_it_reaches() {
        let mut costs = MachineCosts::default();
        for elements in [1000, 2000, 4000, 8000, 16_000] {
            // A single sample would not show how much runs differ.
            (0..6).for_each(|_| record(&mut costs, &relu(elements), 1e-6 + elements as f64 * 1e-9, false));
        }
        for elements in [3000, 64_000] {
            let fitted = predict(&costs, "cpu", &relu(elements));
            assert_eq!(fitted.source, CostSource::Fitted { nodes: 5 });
            assert!((fitted.seconds / (1e-6 + elements as f64 * 1e-9) - 1.0).abs() < 0.1, "{fitted:?}");
            assert!(fitted.uncertainty.is_some_and(|uncertainty| uncertainty < 1.5), "{fitted:?}");
        }
        // Beyond the law's reach, the roofline is scaled by the family's ratio.
        let outside = predict(&costs, "cpu", &relu(640_000));
        assert_eq!(outside.source, CostSource::Scaled { nodes: 5 });
        assert!(outside.seconds > 320e-6 && outside.seconds < 1280e-6, "{outside:?}");
        assert_eq!(predict(&costs, "cpu", &matmul()).source, CostSource::Assumed);
    }

    #[test]
    fn families_of_one_op_are_told_apart_and_stand_in_for_each_other() {
        let product = |rows: usize, depth: usize| {
            let inputs = vec![floats(&[rows, depth]), floats(&[depth, 50])];
            NodeSpec { op: Op::MatMul(MatMul::default()), inputs, outputs: vec![floats(&[rows, 50])] }
        };
        let mut costs = MachineCosts::default();
        for (rows, rate) in [(1, 1e9), (40, 50e9)] {
            for depth in [20, 50, 90, 200, 700] {
                let node = product(rows, depth);
                record(&mut costs, &node, node.work().flops / rate, false);
            }
        }
        for (rows, rate) in [(1, 1e9), (40, 50e9)] {
            let node = product(rows, 400);
            let cost = predict(&costs, "cpu", &node);
            assert!((cost.seconds / (node.work().flops / rate) - 1.0).abs() < 0.1, "{rows} rows: {cost:?}");
        }
        let batched = NodeSpec {
            op: Op::MatMul(MatMul::default()),
            inputs: vec![floats(&[6, 9, 9]), floats(&[6, 9, 9])],
            outputs: vec![floats(&[6, 9, 9])],
        };
        assert_eq!(predict(&costs, "cpu", &batched).source, CostSource::Scaled { nodes: 10 });
    }

    #[test]
    fn other_kernels_are_named_as_such() {
        let mut costs = MachineCosts::default();
        record(&mut costs, &matmul(), 2.0, false);
        let node = costs.devices.get_mut("cpu").expect("recorded").nodes.get_mut(&matmul().key()).expect("it");
        let versions = &mut Arc::make_mut(node).versions;
        let history = versions.remove(&anabranch_kernels::VERSION).expect("recorded");
        versions.insert(0, history);
        let cost = predict(&costs, "cpu", &matmul());
        assert_eq!(cost, NodeCost { seconds: 2.0, uncertainty: None, source: CostSource::OtherKernels { version: 0 } });
    }
}
