//! Two flows for π, as the integral of √(1 − x²) from −1 to 1, doubled: fork-join, and a pipeline of three stages.

use super::Program;
use crate::{Collected, Flow};
use std::ops::Range;

/// All parts at once: a node for each part, and a node that adds them up.
#[derive(Clone, Copy, Debug)]
pub struct ForkJoin {
    /// Number of points at which the function is computed.
    pub points: usize,
    /// Number of parts into which they are divided; at least one.
    pub parts: usize,
}

/// One part after the other: a source of ranges, a stage that integrates, and a stage that adds up in order.
///
/// The graph has three nodes, so a static placement alone cannot use more than three workers. The paper's scheduler
/// could not speed it up.
#[derive(Clone, Copy, Debug)]
pub struct Pipeline {
    /// Number of points at which the function is computed.
    pub points: usize,
    /// Number of parts into which they are divided; at least one.
    pub parts: usize,
}

impl Program for ForkJoin {
    type Answer = f64;

    fn name(&self) -> &'static str {
        "forkjoin"
    }

    fn flow(&self) -> (Flow<'_>, Collected<f64>) {
        let (mut flow, points) = (Flow::new(), self.points);
        let whole = flow.feeder("points", points).weight(0.0);
        let parts = ranges(points, self.parts).enumerate();
        let parts = parts.map(|(number, range)| {
            let seconds = seconds(&range);
            let part = flow.node(format!("part {number}"), &whole, move |points| integral(range.clone(), points));
            part.weight(seconds)
        });
        let parts: Vec<_> = parts.collect();
        let sum = flow.node("sum", &parts[..], |parts| parts.iter().sum::<f64>()).weight(1e-9 * self.parts as f64);
        let sum = flow.collect("kept", &sum);
        (flow, sum)
    }

    fn sequential(&self) -> f64 {
        sequential(self.points, self.parts)
    }
}

impl Program for Pipeline {
    type Answer = f64;

    fn name(&self) -> &'static str {
        "pipeline"
    }

    fn flow(&self) -> (Flow<'_>, Collected<f64>) {
        let (mut flow, points) = (Flow::new(), self.points);
        let ranges = flow.source("ranges", ranges(points, self.parts)).weight(0.0);
        let parts = flow.node("parts", &ranges, move |range| integral(range, points));
        let parts = parts.weight(seconds(&(0..points / self.parts.max(1))));
        let mut sum = 0.0;
        let sums = flow.serializer("sums", &parts, move |part| {
            sum += part;
            sum
        });
        let sums = flow.collect("kept", &sums.weight(0.0));
        (flow, sums)
    }

    fn sequential(&self) -> f64 {
        sequential(self.points, self.parts)
    }
}

fn sequential(points: usize, parts: usize) -> f64 {
    ranges(points, parts).map(|range| integral(range, points)).sum()
}

/// Assumed seconds of a part, at two nanoseconds per point.
fn seconds(range: &Range<usize>) -> f64 {
    2e-9 * range.len() as f64
}

/// Divides `points` into parts of nearly equal length.
fn ranges(points: usize, parts: usize) -> impl Iterator<Item = Range<usize>> + Send {
    let parts = parts.max(1);
    // 128 bits, for the product of two numbers of the user's.
    let start = move |part: usize| (points as u128 * part as u128 / parts as u128) as usize;
    (0..parts).map(move |part| start(part)..start(part + 1))
}

/// Returns the share of some points in the integral over all points, by the midpoint rule.
fn integral(range: Range<usize>, points: usize) -> f64 {
    let step = 2.0 / points as f64;
    let height = |point: usize| {
        let x = -1.0 + (point as f64 + 0.5) * step;
        (1.0 - x * x).max(0.0).sqrt()
    };
    2.0 * step * range.map(height).sum::<f64>()
}
