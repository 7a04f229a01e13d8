//! Scales from values to pixels, with their ticks.

/// A scale from values to pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// Returns a scale from 0 at pixel `from` to `high` at pixel `to`.
    pub(crate) fn linear(high: f64, from: f64, to: f64) -> Self {
        let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
        Scale { low: 0.0, high, from, to, logarithmic: false }
    }

    /// Returns a logarithmic scale from the power of ten below `low` at pixel `from` to `high` at pixel `to`.
    pub(crate) fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
        let low = if low > 0.0 && low < high { low } else { high / 10.0 };
        // Bars start at the low end; the least value must still be visible.
        let low = 10f64.powf((low / 1.5).log10().floor());
        Scale { low, high, from, to, logarithmic: true }
    }

    /// Returns the pixel of a value. Values beyond the scale are clamped to its ends.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => value / self.high,
        };
        self.from + (self.to - self.from) * if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns about `count` round values: 1, 2, 2.5 or 5 times a power of ten apart, or the powers of ten of a
    /// logarithmic scale.
    pub(crate) fn ticks(&self, count: usize) -> Vec<f64> {
        if self.logarithmic {
            return self.powers(count);
        }
        let raw = self.high / count.max(1) as f64;
        let power = 10f64.powf(raw.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&step| step >= raw * 0.999);
        let step = step.unwrap_or(raw);
        let last = (self.high / step * (1.0 + 1e-9)).floor() as usize;
        (0..=last.min(1000)).map(|number| number as f64 * step).collect()
    }

    fn powers(&self, count: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().round() as i32, self.high.log10().floor() as i32);
        let step = ((last - first).max(0) as usize / count.max(1) + 1).min(300);
        (first..=last).step_by(step).map(|exponent| 10f64.powi(exponent)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(Scale::linear(143.0, 0.0, 100.0).ticks(5), [0.0, 50.0, 100.0]);
        assert_eq!(Scale::linear(10.0, 0.0, 100.0).ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Scale::logarithmic(0.004, 7.0, 0.0, 1.0).ticks(8), [0.001, 0.01, 0.1, 1.0]);
        for high in [0.0, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
            for scale in [Scale::linear(high, 0.0, 1.0), Scale::logarithmic(high, high, 0.0, 1.0)] {
                assert!(scale.ticks(6).len() <= 14, "{high}");
            }
        }
    }

    #[test]
    fn values_become_pixels_between_the_ends() {
        let linear = Scale::linear(10.0, 100.0, 200.0);
        assert_eq!([0.0, 5.0, 10.0, 11.0, -1.0].map(|value| linear.at(value)), [100.0, 150.0, 200.0, 200.0, 100.0]);
        let logarithmic = Scale::logarithmic(1.5, 1000.0, 0.0, 3.0);
        assert_eq!([1.0, 0.0].map(|value| logarithmic.at(value)), [0.0, 0.0]);
        assert!((logarithmic.at(10.0) - 1.0).abs() < 1e-12);
    }
}
