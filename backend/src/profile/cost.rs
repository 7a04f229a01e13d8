//! Predicted times of a program's nodes on a device, and how far to trust them.
//!
//! First what was measured of an equal node; then the law that the device's measured nodes of the same op follow, within the range
//! of their work; then what kernels of another version took; then a roofline, lowered to what the device's measured nodes of the same
//! op reach of theirs.

use super::fit::Fit;
use super::history::History;
use super::machine::{DeviceCosts, NodeCosts, Rates};
use super::robust::median;
use anabranch_kernels::op::NodeSpec;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

/// Where a predicted time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// Measured runs of an equal node on this device: their median.
    Measured {
        /// Samples that it rests on.
        samples: u64,
    },
    /// Runs of an equal node on this device, all of them the first after a start: the least of them.
    Cold {
        /// Samples that it rests on.
        samples: u64,
    },
    /// Interpolated between measured nodes of the same op with less and with more work.
    Fitted {
        /// Nodes that the law was fitted to.
        nodes: usize,
    },
    /// An equal node's time with kernels of another version.
    OtherKernels {
        /// Their version.
        version: u32,
    },
    /// The roofline, times what measured nodes of the same op take of theirs.
    Scaled {
        /// Nodes that were compared with their rooflines.
        nodes: usize,
    },
    /// The node's work over the rates measured by this machine's calibration.
    Roofline,
    /// The node's work over rates that nobody measured.
    Assumed,
}

impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured { samples } => write!(f, "measured ×{samples}"),
            Self::Cold { samples } => write!(f, "measured cold ×{samples}"),
            Self::Fitted { nodes } => write!(f, "fitted to {nodes} nodes"),
            Self::OtherKernels { version } => write!(f, "measured with kernels {version}"),
            Self::Scaled { nodes } => write!(f, "roofline as of {nodes} nodes"),
            Self::Roofline => f.write_str("roofline"),
            Self::Assumed => f.write_str("assumed"),
        }
    }
}

/// A predicted time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeCost {
    /// Seconds.
    pub seconds: f64,
    /// Half the width of the 95 % confidence interval, relative to `seconds`; `None` where nobody knows.
    pub half_width: Option<f64>,
    /// What the prediction rests on.
    pub source: CostSource,
}

impl NodeCost {
    /// The cost on a device that takes so many times as long.
    pub fn times(self, times: f64) -> Self {
        Self { seconds: self.seconds * times, ..self }
    }
}

impl fmt::Display for NodeCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.half_width {
            Some(width) => write!(f, "{} ± {:.0} %", self.source, 100.0 * width),
            None => self.source.fmt(f),
        }
    }
}

impl Rates {
    /// Rates of a small present-day core, for a device that was never calibrated.
    pub const ASSUMED: Self =
        Self { matmul_flops: 5e10, conv_flops: 3e10, map_flops: 5e9, bandwidth: 1e10, launch: 1e-6 };

    /// The roofline (Williams, Waterman, Patterson 2009): a node takes as long as the slower of its arithmetic and its
    /// memory traffic, after the launch. Returns seconds. O(1).
    pub fn predict(&self, node: &NodeSpec) -> f64 {
        let work = node.work();
        self.roofline(node.op.name(), work.flops, work.bytes())
    }

    /// The roofline of a node of the op called `op` with so many operations and bytes.
    fn roofline(&self, op: &str, flops: f64, bytes: f64) -> f64 {
        let peak = match op {
            "conv" | "conv_transpose" => self.conv_flops,
            "matmul" => self.matmul_flops,
            _ => self.map_flops,
        };
        self.launch + (flops / peak).max(bytes / self.bandwidth)
    }
}

/// Predicts the nodes of one device. The laws of its ops are fitted once, when they are first asked for.
#[derive(Debug)]
pub struct Predictor<'a> {
    costs: Option<&'a DeviceCosts>,
    fits: RefCell<BTreeMap<&'static str, Laws>>,
}

/// What the measured nodes of one op tell of others.
#[derive(Clone, Debug, PartialEq)]
struct Laws {
    fit: Option<Fit>,
    /// The median of their times over their rooflines, the 90 % quantile of the deviations from it, and how many they are.
    scale: Option<(f64, f64, usize)>,
}

impl<'a> Predictor<'a> {
    /// A predictor from what is known of a device, if anything is.
    pub fn new(costs: Option<&'a DeviceCosts>) -> Self {
        Self { costs, fits: RefCell::default() }
    }

    /// The time of a node. O(log nodes), and once for each op O(k²) for its k measured nodes.
    pub fn predict(&self, node: &NodeSpec) -> NodeCost {
        let equal = self.costs.and_then(|costs| costs.nodes.get(&node.key()));
        if let Some(cost) = equal.and_then(|costs| costs.versions.get(&anabranch_kernels::VERSION)).and_then(measured) {
            return cost;
        }
        let op = node.op.name();
        let mut fits = self.fits.borrow_mut();
        let laws = fits.entry(op).or_insert_with(|| self.laws(op));
        laws.fitted(node).or_else(|| equal.and_then(of_other_kernels)).unwrap_or_else(|| self.roofline(node, laws))
    }

    /// The laws of the op's nodes that this build's kernels were measured on while warm.
    fn laws(&self, op: &str) -> Laws {
        let nodes = self.costs.into_iter().flat_map(|costs| costs.nodes.values()).filter(|node| node.op == op);
        let measured =
            nodes.filter_map(|node| Some((node, node.versions.get(&anabranch_kernels::VERSION)?.median()? * 1e-9)));
        let measured: Vec<_> = measured.collect();
        let points = measured.iter().map(|(node, seconds)| (amount(node.flops, node.bytes), *seconds)).collect();
        let rates = self.costs.and_then(|costs| costs.rates).unwrap_or(Rates::ASSUMED);
        let ratio = |(node, seconds): &(&NodeCosts, f64)| seconds / rates.roofline(op, node.flops, node.bytes);
        let mut ratios: Vec<f64> = measured.iter().map(ratio).filter(|ratio| ratio.is_finite()).collect();
        let scale = median(&ratios).filter(|scale| *scale > 0.0).map(|scale| {
            ratios.iter_mut().for_each(|ratio| *ratio = (*ratio / scale - 1.0).abs());
            ratios.sort_by(f64::total_cmp);
            (scale, ratios[(ratios.len() * 9).div_ceil(10) - 1], ratios.len())
        });
        Laws { fit: Fit::of(points), scale }
    }

    fn roofline(&self, node: &NodeSpec, laws: &Laws) -> NodeCost {
        let rates = self.costs.and_then(|costs| costs.rates);
        let seconds = rates.unwrap_or(Rates::ASSUMED).predict(node);
        match laws.scale {
            Some((scale, spread, nodes)) => NodeCost {
                seconds: seconds * scale,
                // One node does not say how much others differ.
                half_width: (nodes > 1).then_some(spread.min(1.0)),
                source: CostSource::Scaled { nodes },
            },
            None => {
                let source = if rates.is_some() { CostSource::Roofline } else { CostSource::Assumed };
                NodeCost { seconds, half_width: None, source }
            }
        }
    }
}

impl Laws {
    fn fitted(&self, node: &NodeSpec) -> Option<NodeCost> {
        let (fit, work) = (self.fit.as_ref()?, node.work());
        let (seconds, half_width) = fit.predict(amount(work.flops, work.bytes()))?;
        Some(NodeCost { seconds, half_width: Some(half_width), source: CostSource::Fitted { nodes: fit.points } })
    }
}

/// A node's work in one number: operations, or bytes where these are more.
fn amount(flops: f64, bytes: f64) -> f64 {
    flops.max(bytes)
}

fn measured(history: &History) -> Option<NodeCost> {
    let estimate = history.estimate()?;
    let source = match estimate.cold {
        true => CostSource::Cold { samples: estimate.samples },
        false => CostSource::Measured { samples: estimate.samples },
    };
    Some(NodeCost { seconds: estimate.nanoseconds * 1e-9, half_width: Some(estimate.half_width), source })
}

/// The newest kernels' time, without confidence: what it says of this build's kernels is not known.
fn of_other_kernels(node: &NodeCosts) -> Option<NodeCost> {
    let (version, history) = node.versions.last_key_value()?;
    let seconds = history.estimate()?.nanoseconds * 1e-9;
    Some(NodeCost { seconds, half_width: None, source: CostSource::OtherKernels { version: *version } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{CostStore, MachineCosts, Sample};
    use crate::program::{floats, map};
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
        // 12 MFLOP against 440 KB.
        assert_eq!(RATES.predict(&matmul()), 0.5 + 1.0);
        assert_eq!(RATES.predict(&relu(1_000_000)), 0.5 + 1.0);
    }

    #[test]
    fn measured_goes_before_cold_before_roofline_before_assumption() {
        let mut store = CostStore::default();
        let costs = store.here_mut();
        assert_eq!(predict(costs, "cpu", &matmul()).source, CostSource::Assumed);
        costs.devices.entry("cpu".into()).or_default().rates = Some(RATES);
        let roofline = NodeCost { seconds: 1.5, half_width: None, source: CostSource::Roofline };
        assert_eq!(predict(costs, "cpu", &matmul()), roofline);
        record(costs, &matmul(), 9.0, true);
        assert_eq!(predict(costs, "cpu", &matmul()).source, CostSource::Cold { samples: 1 });
        [2.0, 4.0, 3.0].iter().for_each(|seconds| record(costs, &matmul(), *seconds, false));
        let measured = predict(costs, "cpu", &matmul());
        assert_eq!((measured.seconds, measured.source), (3.0, CostSource::Measured { samples: 3 }));
        assert!(measured.half_width.is_some_and(|width| width > 0.0 && width <= 1.0));
        assert_eq!(predict(costs, "gpu", &matmul()).source, CostSource::Assumed);
    }

    #[test]
    fn unseen_sizes_are_fitted_between_measured_ones_only() {
        let mut costs = MachineCosts::default();
        for elements in [1000, 2000, 4000, 8000, 16_000] {
            record(&mut costs, &relu(elements), 1e-6 + elements as f64 * 1e-9, false);
        }
        let inside = predict(&costs, "cpu", &relu(3000));
        assert_eq!(inside.source, CostSource::Fitted { nodes: 5 });
        assert!((inside.seconds - 4e-6).abs() < 0.5e-6, "{inside:?}");
        // Outside, the roofline is lowered to what the op reaches of it.
        let outside = predict(&costs, "cpu", &relu(64_000));
        assert_eq!(outside.source, CostSource::Scaled { nodes: 5 });
        assert!(outside.seconds > 32e-6 && outside.seconds < 128e-6, "{outside:?}");
        assert_eq!(predict(&costs, "cpu", &matmul()).source, CostSource::Assumed);
    }

    #[test]
    fn other_kernels_are_named_as_such() {
        let mut costs = MachineCosts::default();
        record(&mut costs, &matmul(), 2.0, false);
        let versions =
            &mut costs.devices.get_mut("cpu").expect("recorded").nodes.get_mut(&matmul().key()).expect("it").versions;
        let history = versions.remove(&anabranch_kernels::VERSION).expect("recorded");
        versions.insert(0, history);
        let cost = predict(&costs, "cpu", &matmul());
        assert_eq!(cost, NodeCost { seconds: 2.0, half_width: None, source: CostSource::OtherKernels { version: 0 } });
    }
}
