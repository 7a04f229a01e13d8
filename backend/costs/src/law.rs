//! Fitted cost model of a kernel class (*family*): a device's time as a linear function (*law*) of the class's amounts,
//! such as operations and moved elements, fitted to measured nodes; and the nodes' deviations from it.
//!
//! `t = c₀ + Σ cᵢ·aᵢ`, all c ≥ 0, is fitted by least squares of `ln t` (Gauss–Newton, each step a non-negative
//! least-squares problem). Errors are therefore relative, and symmetric above and below. Outliers weigh less (Huber
//! 1964). Nodes with similar amounts have similar deviations: see [`Residuals`].

use super::residuals::Residuals;

/// Fewest nodes for a law.
const FEWEST: usize = 5;

/// Most nodes to which a law is fitted: the residuals take time cubic in their number.
const MOST: usize = 48;

/// Largest factor beyond the measured amounts to which a law extends.
const REACH: f64 = 16.0;

/// Greater logarithmic errors weigh less, and none counts more than three times this.
const LARGE: f64 = 0.5;

/// Steps of the fit. Each step is a problem of a few unknowns.
const STEPS: usize = 25;

/// Weight of a coefficient's square, relative to the equations that contain the coefficient. Amounts that always occur
/// together thus share the time.
const RIDGE: f64 = 1e-6;

/// Rounds of coordinate descent. Each round sets every unknown to its best value while the others are fixed.
const ROUNDS: usize = 100;

/// Factor, as a logarithm, by which a node's time in a network differs from an equal node's time elsewhere, because its
/// neighbours leave other data in the caches.
///
/// Without this, intervals held 88 and 97 of 100 nodes of seven networks that nothing was fitted to, in two runs.
const CONTEXT: f64 = 0.1;

/// Seconds by which a node's time depends on the node before it.
///
/// After a node of another kind, its code comes from a slower cache and its branches are not predicted yet. Small
/// products, copies and normalisations vary by about half of this.
const COLD_CODE: f64 = 0.25e-6;

/// Shortest predicted time, in seconds.
const SHORTEST: f64 = 1e-9;

/// A measured node: its family's amounts, and its seconds.
pub(super) type Point = (Vec<f64>, f64);

/// A fitted law.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Law {
    /// Constant seconds, then seconds per unit of each amount.
    coefficients: Vec<f64>,
    /// Greatest measured value of each amount.
    most: Vec<f64>,
    residuals: Residuals,
    /// Factor, as a logarithm, by which runs of one node differ.
    scatter: f64,
    /// Number of nodes to which the law was fitted.
    pub(super) points: usize,
}

impl Law {
    /// Fits a law to these points, which differ from run to run by the factor e^`scatter`; `None` if they are too few.
    ///
    /// O(p³) for p ≤ 48 points; from more points, 48 are chosen evenly.
    pub(super) fn of(mut points: Vec<Point>, scatter: f64) -> Option<Self> {
        points.retain(|(amounts, seconds)| {
            *seconds > 0.0 && amounts.iter().all(|amount| amount.is_finite() && *amount >= 0.0)
        });
        let all = points.len();
        if all < FEWEST {
            return None;
        }
        points.sort_by(|a, b| a.1.total_cmp(&b.1));
        if all > MOST {
            points = (0..MOST).map(|at| points[at * (all - 1) / (MOST - 1)].clone()).collect();
        }
        let most = greatest(&points);
        let coefficients = fit(&points, &most);
        let deviations = points.iter().map(|(amounts, seconds)| (seconds / at(&coefficients, amounts)).ln()).collect();
        let free = coefficients.iter().filter(|coefficient| **coefficient > 0.0).count();
        let fitted = points.len();
        let residuals = Residuals::of(points.into_iter().map(|(amounts, _)| amounts).collect(), deviations, free)?;
        Some(Self { coefficients, most, residuals, scatter, points: fitted })
    }

    /// Returns the seconds and the factor of a 90 % interval, if the law extends to these amounts.
    pub(super) fn predict(&self, amounts: &[f64]) -> Option<(f64, f64)> {
        let reached =
            amounts.len() == self.most.len() && amounts.iter().zip(&self.most).all(|(a, most)| *a <= REACH * most);
        let (deviation, uncertainty) = self.residuals.at(amounts);
        let seconds = at(&self.coefficients, amounts) * deviation.exp();
        let uncertainty = uncertainty.hypot(self.scatter).hypot(CONTEXT).hypot((COLD_CODE / seconds).ln_1p());
        reached.then(|| (seconds, uncertainty.exp()))
    }
}

fn at(coefficients: &[f64], amounts: &[f64]) -> f64 {
    let own: f64 = coefficients[1..].iter().zip(amounts).map(|(coefficient, amount)| coefficient * amount).sum();
    (coefficients[0] + own).max(SHORTEST)
}

fn greatest(points: &[Point]) -> Vec<f64> {
    let mut most: Vec<f64> = vec![0.0; points[0].0.len()];
    for (amounts, _) in points {
        most.iter_mut().zip(amounts).for_each(|(most, amount)| *most = most.max(*amount));
    }
    most
}

/// Fits the coefficients, none of which is negative.
fn fit(points: &[Point], most: &[f64]) -> Vec<f64> {
    // Time and amounts are scaled by their maxima, so that the ridge weighs all coefficients equally.
    let scale = |amounts: &[f64]| -> Vec<f64> {
        let parts = amounts.iter().zip(most).map(|(amount, most)| if *most > 0.0 { amount / most } else { 0.0 });
        std::iter::once(1.0).chain(parts).collect()
    };
    let rows: Vec<Vec<f64>> = points.iter().map(|(amounts, _)| scale(amounts)).collect();
    let mut unknowns = vec![0.0; most.len() + 1];
    for step in 0..STEPS {
        let mut equations = Normal::new(unknowns.len());
        for (row, (_, seconds)) in rows.iter().zip(points) {
            let law: f64 = row.iter().zip(&unknowns).map(|(x, c)| x * c).sum();
            let around = if step == 0 || law <= 0.0 { *seconds } else { law };
            let error = (seconds / around).ln().clamp(-3.0 * LARGE, 3.0 * LARGE);
            let weight = (LARGE / error.abs()).min(1.0);
            equations.add(&row.iter().map(|x| x / around).collect::<Vec<_>>(), 1.0 + error, weight);
        }
        unknowns = equations.solve(unknowns);
    }
    let mut coefficients = unknowns;
    for (coefficient, most) in coefficients[1..].iter_mut().zip(most) {
        *coefficient = if *most > 0.0 { *coefficient / most } else { 0.0 };
    }
    coefficients
}

/// The normal equations of a weighted least-squares problem.
struct Normal {
    products: Vec<Vec<f64>>,
    right: Vec<f64>,
}

impl Normal {
    fn new(unknowns: usize) -> Self {
        Self { products: vec![vec![0.0; unknowns]; unknowns], right: vec![0.0; unknowns] }
    }

    fn add(&mut self, row: &[f64], value: f64, weight: f64) {
        for (i, x) in row.iter().enumerate() {
            row.iter().zip(&mut self.products[i]).for_each(|(y, product)| *product += weight * x * y);
            self.right[i] += weight * x * value;
        }
    }

    /// Solves for non-negative unknowns, from an initial guess, by coordinate descent. The problem is convex, so that
    /// the descent cannot cycle.
    fn solve(&self, mut unknowns: Vec<f64>) -> Vec<f64> {
        for _ in 0..ROUNDS {
            for i in 0..unknowns.len() {
                let own = self.products[i][i];
                let others: f64 =
                    self.products[i].iter().zip(&unknowns).map(|(p, u)| p * u).sum::<f64>() - own * unknowns[i];
                unknowns[i] = if own > 0.0 { ((self.right[i] - others) / (own * (1.0 + RIDGE))).max(0.0) } else { 0.0 };
            }
        }
        unknowns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of 1 µs plus 1 ns per operation and 4 ns per row, of many shapes.
    fn sound() -> Vec<Point> {
        let sizes = [(1, 1), (2, 1), (8, 5), (30, 3), (100, 90), (300, 10), (1000, 20), (5000, 2000), (20_000, 100)];
        let seconds = |a: f64, b: f64| 1e-6 + a * 1e-9 + b * 4e-9;
        sizes
            .map(|(a, b)| (f64::from(a) * 100.0, f64::from(b) * 100.0))
            .map(|(a, b)| (vec![a, b], seconds(a, b)))
            .to_vec()
    }

    #[test]
    fn a_law_is_found_and_reaches_beyond_what_was_measured() {
        let law = Law::of(sound(), 0.0).expect("a law");
        for (amounts, want) in [([5e4, 2e4], 131e-6), ([1e7, 1e5], 10_401e-6), ([100.0, 100.0], 1.5e-6)] {
            let (seconds, uncertainty) = law.predict(&amounts).expect("within reach");
            assert!((seconds / want - 1.0).abs() < 0.02, "{seconds} for {want}");
            assert!((1.0..1.25).contains(&uncertainty), "{uncertainty}");
        }
        let (_, uncertainty) = Law::of(sound(), 0.5).and_then(|law| law.predict(&[5e4, 2e4])).expect("a law");
        assert!((0.5..0.54).contains(&uncertainty.ln()), "runs differ: {uncertainty}");
        assert!(law.predict(&[1e9, 1e5]).is_none(), "too far beyond");
        assert!(law.predict(&[1e3]).is_none(), "of another family");
    }

    #[test]
    fn a_wild_point_moves_little_and_widens() {
        let mut points = sound();
        points[4].1 *= 50.0;
        let law = Law::of(points, 0.0).expect("a law");
        let (seconds, uncertainty) = law.predict(&[1e6, 2e4]).expect("within reach");
        assert!((seconds / 1081e-6 - 1.0).abs() < 0.3, "{seconds}");
        assert!(uncertainty > 1.2, "{uncertainty}");
    }

    #[test]
    fn what_the_amounts_do_not_tell_is_told_by_nodes_alike() {
        // From 1000 rows on, nodes are twice as slow as the law.
        let point = |(a, b): (f64, f64)| (vec![a, b], (1e-6 + a * 1e-9) * if b > 1000.0 { 2.0 } else { 1.0 });
        let grid = (0..6).flat_map(|i| (0..6).map(move |j| (4f64.powi(i) * 1e3, 4f64.powi(j) * 40.0)));
        let law = Law::of(grid.map(point).collect(), 0.0).expect("a law");
        for sizes in [(3e4, 60.0), (3e4, 25_000.0), (3e5, 100.0)] {
            let (amounts, want) = point(sizes);
            let (seconds, _) = law.predict(&amounts).expect("within reach");
            assert!((seconds / want - 1.0).abs() < 0.2, "{sizes:?}: {seconds} for {want}");
        }
    }

    #[test]
    fn few_points_and_what_is_no_time_give_no_law() {
        assert_eq!(Law::of(sound()[..4].to_vec(), 0.0), None);
        assert_eq!(Law::of(vec![(vec![1.0], 0.0); 9], 0.0), None);
        assert_eq!(Law::of(vec![(vec![f64::NAN], 1.0); 9], 0.0), None);
        assert!(
            Law::of(vec![(vec![1.0], 1.0); 9], 0.0)
                .is_some_and(|law| law.predict(&[1.0]).is_some_and(|(s, _)| (s - 1.0).abs() < 1e-3))
        );
    }
}
