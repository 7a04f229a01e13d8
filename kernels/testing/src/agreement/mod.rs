//! Checks every kernel against its op's definition in `f64`, on random shapes and with special values.
//!
//! Sizes include 0, 1, primes and more than a tile.
//!
//! `is_near` alone holds the error bound: half a unit of `f32` for each rounding, of the sum of the terms'
//! magnitudes. Maps have their own tables (`kernel.rs` in the crate of maps, `gpu/expression.rs`), as have recurrent
//! layers and ops that make integers.

mod cases;
mod reference;

use crate::kernels::numbers;
use anabranch_op::op::{NodeSpec, Op};
use anabranch_op::tensor::Tensor;
use cases::{CASES, Case, Random};
use reference::{Want, outputs};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Processor on which a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Side {
    /// A CPU.
    Cpu,
    /// A GPU, whose functions and divisions are less accurate.
    Gpu,
}

/// Computes a node; `None` if this processor does not compute it.
pub type Compute = fn(&NodeSpec, &[Tensor]) -> Option<Vec<f32>>;

/// Whether an element agrees with its op's definition, up to rounding. If sums of finite terms may have exceeded the
/// greatest number on the way, the result may be infinite too. A special value has no error.
fn is_near(side: Side, want: &Want, got: f32) -> bool {
    let Want { value, scale, roundings } = *want;
    if scale >= f64::from(f32::MAX) && !got.is_finite() {
        return true;
    }
    if !value.is_finite() {
        return f64::from(got) == value || (got.is_nan() && value.is_nan());
    }
    // GPUs have functions and divisions with errors of a few units, and may flush subnormal numbers to zero.
    let units = if side == Side::Gpu { 4.0 } else { 1.0 } * roundings;
    let least = f64::from(f32::MIN_POSITIVE) * if side == Side::Gpu { roundings.max(1.0) } else { roundings };
    (f64::from(got) - value).abs() <= units * f64::from(f32::EPSILON) / 2.0 * scale + least
}

/// Whether a convolution may use the Winograd algorithm, whose bound is 10⁻⁵ of the greatest output.
fn is_filtered(node: &NodeSpec) -> bool {
    matches!(&node.op, Op::Conv(_)) && node.inputs[1].shape.dims()[2..] == [3, 3]
}

/// Computes the node and compares every element.
fn agrees(side: Side, compute: Compute, name: &str, node: &NodeSpec, inputs: &[Tensor]) {
    let values: Vec<Vec<f64>> = inputs.iter().map(numbers).collect();
    let mut wants = outputs(node, &values);
    if is_filtered(node) {
        let greatest = wants.iter().fold(0.0, |most: f64, want| most.max(want.value.abs()));
        let scale = greatest * 1e-5 / f64::from(f32::EPSILON);
        wants.iter_mut().for_each(|want| *want = Want { scale: want.scale.max(scale), ..*want });
    }
    let Some(got) = compute(node, inputs) else { return };
    assert_eq!(got.len(), wants.len(), "{name}");
    for (at, (got, want)) in got.iter().zip(&wants).enumerate() {
        assert!(is_near(side, want, *got), "{side:?} {name}: element {at} is {got:e}, not {want:?}, of {}", node.key());
    }
}

/// Returns the failure of [`agrees`] for a node, so that all failures can be reported, not only the first.
fn disagreement(side: Side, compute: Compute, name: &str, node: &NodeSpec, inputs: &[Tensor]) -> Option<String> {
    let caught = catch_unwind(AssertUnwindSafe(|| agrees(side, compute, name, node, inputs)));
    caught.err().map(|text| text.downcast().map_or_else(|_| name.to_owned(), |text| *text))
}

/// Checks every case `times` times, with numbers in −1…1 and with special numbers.
///
/// # Panics
/// If a result differs from its definition.
pub fn all_agree(side: Side, compute: Compute, times: u64) {
    let (mut random, mut told) = (Random(7), Vec::new());
    for (name, Case { make, is_special }) in CASES {
        for time in 0..times {
            let node = make(&mut random);
            let plain = cases::inputs(&node, &mut random, &[]);
            told.extend(disagreement(side, compute, name, &node, &plain));
            if !is_special || is_filtered(&node) {
                continue;
            }
            // Subnormal numbers are zeros on some GPUs, and so are their products with large numbers.
            let special = if side == Side::Cpu { cases::SPECIAL } else { &cases::SPECIAL[2..] };
            let few = &special[time as usize % special.len()..][..1];
            for special in [few, special] {
                told.extend(disagreement(side, compute, name, &node, &cases::inputs(&node, &mut random, special)));
            }
        }
    }
    assert!(told.is_empty(), "{} disagreements:\n{}", told.len(), told[..told.len().min(40)].join("\n"));
}
