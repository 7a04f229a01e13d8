//! Convolutions of 8-bit integers over three axes, with zero points that are constant or known to a run alone.

use super::kind::{I32, KINDS, Kind};
use super::{Case, Given, check};
use anabranch::import::proto::{AttributeProto, NodeProto, data_type};
use anabranch_kernels::DType;

const I8: Kind = KINDS[0];
const U8: Kind = KINDS[4];
const IMAGE: [usize; 5] = [2, 4, 4, 5, 6];
const FILTERS: usize = 6;
const KERNEL: [usize; 3] = [3, 2, 3];

/// A window, with borders that are given or follow from the sizes.
struct Window {
    group: usize,
    strides: [usize; 3],
    dilations: [usize; 3],
    pads: [usize; 6],
    auto: &'static str,
}

const WINDOWS: [Window; 4] = [
    Window { group: 1, strides: [1; 3], dilations: [1; 3], pads: [0; 6], auto: "VALID" },
    Window { group: 2, strides: [2, 1, 3], dilations: [1; 3], pads: [1, 0, 2, 3, 1, 0], auto: "NOTSET" },
    Window { group: 1, strides: [1, 2, 1], dilations: [2, 1, 2], pads: [1, 0, 2, 3, 1, 0], auto: "NOTSET" },
    Window { group: 2, strides: [1; 3], dilations: [1; 3], pads: [1, 0, 1, 1, 1, 1], auto: "SAME_UPPER" },
];

impl Window {
    fn made(&self) -> [usize; 3] {
        std::array::from_fn(|axis| {
            let extent = (KERNEL[axis] - 1) * self.dilations[axis] + 1;
            (IMAGE[axis + 2] + self.pads[axis] + self.pads[axis + 3] - extent) / self.strides[axis] + 1
        })
    }

    fn node(&self, operator: &str, inputs: &[&str]) -> NodeProto {
        let list = |name, sizes: &[usize]| {
            AttributeProto::ints(name, &sizes.iter().map(|size| *size as i64).collect::<Vec<_>>())
        };
        let node = NodeProto::of(operator, inputs, &["y"])
            .with(AttributeProto::int("group", self.group as i64))
            .with(AttributeProto::string("auto_pad", self.auto))
            .with(list("strides", &self.strides))
            .with(list("dilations", &self.dilations));
        if self.auto == "NOTSET" { node.with(list("pads", &self.pads)) } else { node }
    }

    /// Computes the definition.
    fn sums(&self, x: &[i128], zero: i128, weights: &[i128], zeros: &[i128], bias: &[i128]) -> Vec<i128> {
        let [images, channels, sizes @ ..] = IMAGE;
        let in_each = channels / self.group;
        let cells =
            |[a, b, c]: [usize; 3]| (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| [i, j, k])));
        let flat = |[i, j, k]: [usize; 3], [_, b, c]: [usize; 3]| (i * b + j) * c + k;
        let mut sums = Vec::new();
        for (image, filter) in (0..images).flat_map(|image| (0..FILTERS).map(move |filter| (image, filter))) {
            let first = filter / (FILTERS / self.group) * in_each;
            for to in cells(self.made()) {
                let mut sum = bias[filter];
                for (channel, tap) in (0..in_each).flat_map(|channel| cells(KERNEL).map(move |tap| (channel, tap))) {
                    let at: [Option<usize>; 3] = std::array::from_fn(|axis| {
                        let at = to[axis] * self.strides[axis] + tap[axis] * self.dilations[axis];
                        at.checked_sub(self.pads[axis]).filter(|at| *at < sizes[axis])
                    });
                    // Elements of the border are zero points.
                    let [Some(i), Some(j), Some(k)] = at else { continue };
                    let plane = (image * channels + first + channel) * sizes.iter().product::<usize>();
                    let weight = (filter * in_each + channel) * KERNEL.iter().product::<usize>();
                    let weight = weights[weight + flat(tap, KERNEL)] - zeros[filter];
                    sum += (x[plane + flat([i, j, k], sizes)] - zero) * weight;
                }
                sums.push(sum);
            }
        }
        sums
    }
}

fn scale(name: &'static str, value: f32) -> Given {
    let (code, dtype, data) = (data_type::FLOAT, DType::F32, value.to_le_bytes().to_vec());
    Given { name, code, dtype, dims: Vec::new(), data, fixed: true }
}

#[test]
fn convolutions_over_three_axes_are_exact() {
    for (at, window) in WINDOWS.iter().enumerate() {
        let (x_kind, weight_kind) = if at % 2 == 0 { (U8, I8) } else { (I8, I8) };
        let in_each = IMAGE[1] / window.group;
        let dims = [FILTERS, in_each, KERNEL[0], KERNEL[1], KERNEL[2]];
        let some = |kind: Kind, count: usize| -> Vec<i128> {
            (0..count as i128).map(|i| kind.least() + (i * 7919 + 13) % 251).collect()
        };
        let x = some(x_kind, IMAGE.iter().product());
        let weights = some(weight_kind, dims.iter().product());
        let (zero, zeros) = (x_kind.least() + 77, [3, -4, 0, 127, -128, 9]);
        let bias = [5, -6, 0, 1000, -2000, 1];
        let plain = window.sums(&x, 0, &weights, &[0; FILTERS], &[0; FILTERS]);
        let centred = window.sums(&x, zero, &weights, &zeros, &[0; FILTERS]);
        let rounded = |sum: i128| ((sum as f64 / 1024.0).round_ties_even() as i128 - 5).clamp(-128, 127);
        let quantized: Vec<i128> = window.sums(&x, zero, &weights, &zeros, &bias).into_iter().map(rounded).collect();
        let cases = |zero: &str, prefix: &str| {
            let named = |mut node: NodeProto, output: &str| {
                node.output[0] = format!("{prefix} {output}");
                node
            };
            let scaled = ["x", "scale", zero, "w", "scale", "wz", "ys", "yz", "b"];
            [
                Case::of(named(window.node("ConvInteger", &["x", "w"]), "plain"), I32, &plain),
                Case::of(named(window.node("ConvInteger", &["x", "w", zero, "wz"]), "centred"), I32, &centred),
                Case::of(named(window.node("QLinearConv", &scaled), "rounded"), I8, &quantized),
            ]
        };
        let given = [
            Given::new("x", x_kind, &IMAGE, &x),
            Given::new("w", weight_kind, &dims, &weights),
            Given::new("run", x_kind, &[], &[zero]),
            Given::fixed("known", x_kind, &[], &[zero]),
            Given::fixed("wz", weight_kind, &[FILTERS], &zeros),
            Given::fixed("b", I32, &[FILTERS], &bias),
            Given::fixed("yz", I8, &[], &[-5]),
            scale("scale", 0.25),
            scale("ys", 64.0),
        ];
        let all: Vec<Case> = cases("run", "run").into_iter().chain(cases("known", "known")).collect();
        check(&format!("window {at}"), &all, &given);
    }
}
