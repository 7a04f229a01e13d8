//! The law between an op's work and its time on one device, fitted robustly to the nodes that were measured.
//!
//! Two laws are tried, affine `a + b·x` and power `a·x^b`, each by the repeated-median-like estimator of Theil and Sen: the median of
//! the slopes of all pairs, then the median of the intercepts. The one whose relative errors have the lower median is kept. It
//! speaks only between the least and the greatest work measured.

use super::robust::median;

/// Nodes that a law needs at least.
const FEWEST: usize = 4;

/// Nodes that a law is fitted to at most; the pairs are their square.
const MOST: usize = 64;

/// The greatest work must be this much more than the least: else a line says nothing.
const SPAN: f64 = 2.0;

/// A law worse than this, in the median, predicts nothing.
const WORST: f64 = 1.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Law {
    Affine { start: f64, slope: f64 },
    Power { factor: f64, exponent: f64 },
}

/// A fitted law.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fit {
    law: Law,
    least: f64,
    most: f64,
    /// Nodes that it was fitted to.
    pub(super) points: usize,
    /// The 90 % quantile of the relative errors at the points.
    half_width: f64,
}

impl Fit {
    /// The better law through points of (work, seconds); `None` if they are too few, too near to each other, or follow neither.
    /// O(p²) for p ≤ 64 points; of more, an even choice.
    pub(super) fn of(points: Vec<(f64, f64)>) -> Option<Self> {
        let mut points: Vec<_> = points.into_iter().filter(|(work, time)| *work > 0.0 && *time > 0.0).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let all = points.len();
        if all > MOST {
            points = (0..MOST).map(|at| points[at * (all - 1) / (MOST - 1)]).collect();
        }
        let (least, most) = (points.first()?.0, points.last()?.0);
        if points.len() < FEWEST || most < SPAN * least {
            return None;
        }
        let law = |law: Option<Law>| {
            let law = law?;
            let mut errors: Vec<f64> = points
                .iter()
                .map(|(work, time)| (law.at(*work) - time).abs() / time)
                .filter(|e| e.is_finite())
                .collect();
            errors.sort_by(f64::total_cmp);
            (errors.len() == points.len()).then_some((law, errors))
        };
        let candidates = [law(affine(&points)), law(power(&points))];
        let (law, errors) = candidates.into_iter().flatten().min_by(|a, b| {
            let middle = |errors: &[f64]| median(errors).unwrap_or(f64::INFINITY);
            middle(&a.1).total_cmp(&middle(&b.1))
        })?;
        let half_width = errors[(errors.len() * 9).div_ceil(10) - 1].min(1.0);
        (median(&errors)? <= WORST).then_some(Self { law, least, most, points: all, half_width })
    }

    /// Seconds and relative half-width for this much work, if it is in the range.
    pub(super) fn predict(&self, work: f64) -> Option<(f64, f64)> {
        let seconds = self.law.at(work);
        let inside = work >= self.least && work <= self.most && seconds.is_finite() && seconds > 0.0;
        inside.then_some((seconds, self.half_width))
    }
}

impl Law {
    fn at(&self, work: f64) -> f64 {
        match self {
            Self::Affine { start, slope } => start + slope * work,
            Self::Power { factor, exponent } => factor * work.powf(*exponent),
        }
    }
}

fn affine(points: &[(f64, f64)]) -> Option<Law> {
    let (start, slope) = line(points)?;
    // Time neither falls with work nor is negative before it.
    (slope >= 0.0 && start >= 0.0).then_some(Law::Affine { start, slope })
}

fn power(points: &[(f64, f64)]) -> Option<Law> {
    let logarithms: Vec<_> = points.iter().map(|(work, time)| (work.ln(), time.ln())).collect();
    let (start, exponent) = line(&logarithms)?;
    (exponent >= 0.0).then_some(Law::Power { factor: start.exp(), exponent })
}

/// Theil (1950) and Sen (1968): intercept and slope.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let pairs = points.iter().enumerate().flat_map(|(at, a)| points[at + 1..].iter().map(move |b| (a, b)));
    let slopes: Vec<f64> = pairs.filter(|(a, b)| b.0 > a.0).map(|(a, b)| (b.1 - a.1) / (b.0 - a.0)).collect();
    let slope = median(&slopes)?;
    let intercepts: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    Some((median(&intercepts)?, slope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_with_a_wild_point_is_found() {
        let mut points: Vec<_> = (1..=20).map(|x| (f64::from(x) * 1e3, 1e-6 + f64::from(x) * 1e-6)).collect();
        points[7].1 = 1.0;
        let fit = Fit::of(points).expect("a law");
        let (seconds, _) = fit.predict(10_500.0).expect("inside");
        assert!((seconds - 11.5e-6).abs() < 1e-7, "{seconds}");
        let cubes = (1..=9).map(|x| (f64::from(x), f64::from(x).powi(3))).collect();
        let (seconds, width) = Fit::of(cubes).expect("a law").predict(4.5).expect("inside");
        assert!((seconds - 91.125).abs() < 1e-6 && width < 1e-6);
    }

    #[test]
    fn few_near_or_falling_points_give_no_law() {
        assert_eq!(Fit::of(vec![(1.0, 1.0), (2.0, 2.0), (4.0, 4.0)]), None);
        assert_eq!(Fit::of((0..9).map(|x| (1.0 + f64::from(x) * 0.01, 1.0)).collect()), None);
        assert_eq!(Fit::of((1..9).map(|x| (f64::from(x), 1.0 / f64::from(x))).collect()), None);
    }

    #[test]
    fn laws_do_not_speak_outside_their_range() {
        let fit = Fit::of((1..9).map(|x| (f64::from(x), f64::from(x))).collect()).expect("a law");
        assert!(fit.predict(8.5).is_none() && fit.predict(0.5).is_none() && fit.predict(4.0).is_some());
    }
}
