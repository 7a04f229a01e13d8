//! Residuals: deviations of measured nodes from the fitted cost model ([`law`](super::law)), and predicted deviations
//! of other nodes.
//!
//! Simple kriging (Krige 1951; Rasmussen & Williams 2006, chapter 2): deviations are a random field over the logarithms
//! of the amounts. Similar nodes deviate similarly; far from all measured nodes, nothing is known. The range of
//! similarity, and the noise of each node, are chosen by leave-one-out likelihood (chapter 5.4.2). The width of 90 %
//! intervals follows from the same comparison.

use super::robust::nine_of_ten;

/// Ranges of similarity, as differences of the amounts' natural logarithms. At the first, no two nodes are similar.
const LENGTHS: [f64; 5] = [1e-3, 0.7, 1.5, 3.0, 6.0];

/// Gain in likelihood (twice its logarithm) that a range must have over the first to be used. It pays for two more
/// parameters (Akaike 1974), so that a few nodes do not pass for a pattern.
const GAIN: f64 = 4.0;

/// Variance of the nodes' noise, over that of their common deviation.
const NOISES: [f64; 3] = [0.05, 0.3, 1.5];

/// Least half-width, a logarithm: two measurements of one machine differ by this much.
const LEAST: f64 = 0.05;

/// A law passes near its nodes, right or wrong, if they are fewer than this many times its coefficients. The half-width
/// is then at least `UNKNOWN`.
const FREEDOM: usize = 2;

/// Least half-width of a law with so few nodes: a factor of 2, as a logarithm.
const UNKNOWN: f64 = 0.7;

/// Greatest half-width.
const MOST: f64 = 3.0;

/// Deviations at measured positions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Residuals {
    /// Least positive value of each amount; zero counts as one logarithmic step below it.
    least: Vec<f64>,
    places: Vec<Vec<f64>>,
    length: f64,
    noise: f64,
    /// Inverse of the correlation matrix, and its product with the deviations.
    inverse: Vec<Vec<f64>>,
    weights: Vec<f64>,
    /// Half-width of an interval far from all positions, relative to its share of the variance.
    width: f64,
}

impl Residuals {
    /// Fits the deviations (logarithms) of nodes with these amounts from a law with `free` coefficients, fitted to the
    /// same nodes.
    ///
    /// Returns `None` if the numbers overflow. O(n³).
    pub(super) fn of(amounts: Vec<Vec<f64>>, deviations: Vec<f64>, free: usize) -> Option<Self> {
        let least = least(&amounts);
        let places: Vec<Vec<f64>> = amounts.iter().map(|amounts| place(amounts, &least)).collect();
        let choices = LENGTHS.iter().flat_map(|length| NOISES.iter().map(move |noise| (*length, *noise)));
        let judged = choices.filter_map(|(length, noise)| {
            let inverse = inverse(correlations(&places, length, noise))?;
            let weights = product(&inverse, &deviations);
            let (unlikely, width) = left_out(&inverse, &weights);
            let unlikely = if length == LENGTHS[0] { unlikely - GAIN } else { unlikely };
            let found = Self { least: least.clone(), places: places.clone(), length, noise, inverse, weights, width };
            unlikely.is_finite().then_some((unlikely, found))
        });
        let (_, mut best) = judged.min_by(|a, b| a.0.total_cmp(&b.0))?;
        // The law was fitted to each left-out node as well, so that the errors are too small.
        let count = deviations.len();
        best.width *= (count as f64 / count.saturating_sub(free).max(1) as f64).sqrt();
        if count < FREEDOM * free {
            best.width = best.width.max(UNKNOWN);
        }
        Some(best)
    }

    /// Returns the predicted deviation of a node, and the half-width of its 90 % interval; both are logarithms. O(n²).
    pub(super) fn at(&self, amounts: &[f64]) -> (f64, f64) {
        let here = place(amounts, &self.least);
        let near: Vec<f64> = self.places.iter().map(|place| correlation(place, &here, self.length)).collect();
        let deviation: f64 = near.iter().zip(&self.weights).map(|(near, weight)| near * weight).sum();
        let known: f64 = near.iter().zip(product(&self.inverse, &near)).map(|(near, known)| near * known).sum();
        let variance = (1.0 + self.noise - known).max(self.noise);
        (deviation, (self.width * variance.sqrt()).clamp(LEAST, MOST))
    }
}

/// Returns the negative log-likelihood (twice) of the deviations, each given all others, and the half-width of a 90 %
/// interval for a variance of 1.
fn left_out(inverse: &[Vec<f64>], weights: &[f64]) -> (f64, f64) {
    let count = weights.len() as f64;
    let variances = || inverse.iter().enumerate().map(|(i, row)| 1.0 / row[i]);
    let errors: Vec<f64> = weights.iter().zip(variances()).map(|(weight, variance)| weight * variance).collect();
    let scale = errors.iter().zip(variances()).map(|(error, variance)| error * error / variance).sum::<f64>() / count;
    let unlikely = variances().map(f64::ln).sum::<f64>() + count * scale.max(1e-12).ln();
    let normed: Vec<f64> = errors.iter().zip(variances()).map(|(error, variance)| error / variance.sqrt()).collect();
    (unlikely, nine_of_ten(&normed).unwrap_or(0.0))
}

fn least(amounts: &[Vec<f64>]) -> Vec<f64> {
    let positive =
        |at: usize| amounts.iter().filter_map(move |amounts| amounts.get(at)).filter(|amount| **amount > 0.0);
    let count = amounts.first().map_or(0, Vec::len);
    (0..count).map(|at| positive(at).copied().fold(f64::INFINITY, f64::min)).collect()
}

fn place(amounts: &[f64], least: &[f64]) -> Vec<f64> {
    let log =
        |(amount, least): (&f64, &f64)| if least.is_finite() { (amount / least).max((-1f64).exp()).ln() } else { 0.0 };
    amounts.iter().zip(least).map(log).collect()
}

fn correlation(a: &[f64], b: &[f64], length: f64) -> f64 {
    let distance: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    (-distance / (2.0 * length * length)).exp()
}

fn correlations(places: &[Vec<f64>], length: f64, noise: f64) -> Vec<Vec<f64>> {
    let row = |(i, a): (usize, &Vec<f64>)| -> Vec<f64> {
        let own = |j: usize| if i == j { noise } else { 0.0 };
        places.iter().enumerate().map(|(j, b)| correlation(a, b, length) + own(j)).collect()
    };
    places.iter().enumerate().map(row).collect()
}

fn product(matrix: &[Vec<f64>], vector: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
}

/// Inverse of a positive definite matrix by Gauss–Jordan elimination without pivoting; `None` if the matrix is not
/// positive definite.
fn inverse(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    for k in 0..matrix.len() {
        let pivot = matrix[k][k];
        if !(pivot.is_finite() && pivot > 1e-12) {
            return None;
        }
        matrix[k][k] = 1.0;
        matrix[k].iter_mut().for_each(|x| *x /= pivot);
        let row = matrix[k].clone();
        for (_, other) in matrix.iter_mut().enumerate().filter(|(i, _)| *i != k) {
            let factor = std::mem::replace(&mut other[k], 0.0);
            other.iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
        }
    }
    Some(matrix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_times_its_matrix_is_one() {
        let matrix = vec![vec![4.0, 1.0, 0.5], vec![1.0, 3.0, 0.2], vec![0.5, 0.2, 2.0]];
        let inverted = inverse(matrix.clone()).expect("positive definite");
        for i in 0..3 {
            let unit = product(&matrix, &inverted[i]);
            assert!(unit.iter().enumerate().all(|(j, x)| (x - f64::from(u8::from(i == j))).abs() < 1e-12), "{unit:?}");
        }
        assert_eq!(inverse(vec![vec![1.0, 1.0], vec![1.0, 1.0]]), None);
    }

    #[test]
    fn nodes_alike_deviate_alike_and_far_ones_not() {
        let amounts: Vec<Vec<f64>> = (0..12).map(|i| vec![10f64.powf(f64::from(i) / 2.0)]).collect();
        let deviations = (0..12).map(|i| if i < 6 { 0.4 } else { -0.4 }).collect();
        let residuals = Residuals::of(amounts, deviations, 1).expect("sound");
        assert!(residuals.at(&[10.0]).0 > 0.25 && residuals.at(&[1e5]).0 < -0.25);
        let (far, width) = residuals.at(&[1e14]);
        assert!(far.abs() < 0.05 && width > residuals.at(&[1e5]).1, "{far} ± {width}");
    }

    #[test]
    fn nine_of_ten_lie_within_the_interval() {
        // Deviations without a pattern, from a fixed sequence.
        let wild = |i: usize| ((i * 7919 + 13) % 101) as f64 / 101.0 - 0.5;
        let amounts = |i: usize| vec![1.0 + (i * 31 % 97) as f64, 1.0 + (i * 57 % 89) as f64];
        let residuals = Residuals::of((0..40).map(amounts).collect(), (0..40).map(wild).collect(), 2).expect("sound");
        let held = |i: &usize| {
            let (deviation, width) = residuals.at(&amounts(*i));
            (wild(*i) - deviation).abs() <= width
        };
        let inside = (40..90).filter(held).count();
        assert!((40..=50).contains(&inside), "{inside} of 50");
    }
}
