//! Predicted times of a program's nodes on devices: what was measured before, else a roofline.

use super::store::{CostStore, Rates};
use anabranch_kernels::op::{Class, NodeSpec, Op};
use serde::Serialize;
use std::fmt;

/// Where a predicted time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// The mean of this many measured runs of an equal node on this device.
    Measured {
        /// Samples that the mean is made of.
        samples: u64,
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
    /// What the prediction rests on.
    pub source: CostSource,
}

impl Rates {
    /// Rates of a small present-day core, for a device that was never calibrated.
    pub const ASSUMED: Self =
        Self { matmul_flops: 5e10, conv_flops: 3e10, map_flops: 5e9, bandwidth: 1e10, launch: 1e-6 };

    /// The roofline (Williams, Waterman, Patterson 2009): a node takes as long as the slower of its arithmetic and its
    /// memory traffic, after the launch. Returns seconds. O(1).
    pub fn predict(&self, node: &NodeSpec) -> f64 {
        let work = node.work();
        let peak = match (&node.op, node.class()) {
            (Op::Conv(_) | Op::ConvTranspose(_), _) => self.conv_flops,
            (_, Class::MatMul) => self.matmul_flops,
            _ => self.map_flops,
        };
        self.launch + (work.flops / peak).max(work.bytes() / self.bandwidth)
    }
}

impl CostStore {
    /// The predicted time of a node on the device of this key: the mean of measured runs, else the roofline of the
    /// device's calibration, else that of [`Rates::ASSUMED`].
    pub fn predict(&self, device: &str, node: &NodeSpec) -> NodeCost {
        let costs = self.devices.get(device);
        if let Some(statistics) = costs.and_then(|costs| costs.nodes.get(&node.key())) {
            let source = CostSource::Measured { samples: statistics.count };
            return NodeCost { seconds: statistics.mean * 1e-9, source };
        }
        match costs.and_then(|costs| costs.rates) {
            Some(rates) => NodeCost { seconds: rates.predict(node), source: CostSource::Roofline },
            None => NodeCost { seconds: Rates::ASSUMED.predict(node), source: CostSource::Assumed },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::op::{Domain, Expression, Map, MatMul, Unary};
    use anabranch_kernels::{DType, Shape, TensorSpec};

    fn spec(dims: &[usize]) -> TensorSpec {
        TensorSpec::new(DType::F32, Shape::new(dims).expect("small"))
    }

    fn matmul() -> NodeSpec {
        let inputs = vec![spec(&[100, 200]), spec(&[200, 300])];
        NodeSpec { op: Op::MatMul(MatMul::default()), inputs, outputs: vec![spec(&[100, 300])] }
    }

    const RATES: Rates = Rates { matmul_flops: 12e6, conv_flops: 1e9, map_flops: 1e9, bandwidth: 8e6, launch: 0.5 };

    #[test]
    fn the_roofline_is_the_slower_of_arithmetic_and_traffic() {
        // 12 MFLOP against 440 KB.
        assert_eq!(RATES.predict(&matmul()), 0.5 + 1.0);
        let relu = Op::Map(Map { domain: Domain::F32, expression: Expression::unary(Unary::Relu) });
        let node = NodeSpec { op: relu, inputs: vec![spec(&[1_000_000])], outputs: vec![spec(&[1_000_000])] };
        assert_eq!(RATES.predict(&node), 0.5 + 1.0);
    }

    #[test]
    fn measured_goes_before_roofline_before_assumption() {
        let mut store = CostStore::default();
        assert_eq!(store.predict("cpu", &matmul()).source, CostSource::Assumed);
        store.devices.entry("cpu".into()).or_default().rates = Some(RATES);
        assert_eq!(store.predict("cpu", &matmul()), NodeCost { seconds: 1.5, source: CostSource::Roofline });
        store.record("cpu", &matmul().key(), 2e9, 0);
        store.record("cpu", &matmul().key(), 4e9, 0);
        let measured = NodeCost { seconds: 3.0, source: CostSource::Measured { samples: 2 } };
        assert_eq!(store.predict("cpu", &matmul()), measured);
        assert_eq!(store.predict("gpu", &matmul()).source, CostSource::Assumed);
    }
}
