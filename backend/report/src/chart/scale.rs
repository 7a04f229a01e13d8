//! Scales from values to pixels, with their ticks.

/// A scale from values to pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
    base: Base,
}

/// Base of the powers that count as round numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// For most values.
    Ten,
    /// For bytes.
    Two,
}

impl Base {
    fn power(self, exponent: i32) -> f64 {
        if self == Self::Ten { 10f64.powi(exponent) } else { 2f64.powi(exponent) }
    }

    fn exponent(self, value: f64) -> f64 {
        if self == Self::Ten { value.log10() } else { value.log2() }
    }

    /// Returns the greatest power that is at most a value.
    fn below(self, value: f64) -> f64 {
        self.power(self.exponent(value).floor() as i32)
    }
}

impl Scale {
    /// Returns a scale from 0 at pixel `from` to `high` at pixel `to`.
    pub(crate) fn linear(high: f64, from: f64, to: f64) -> Self {
        let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
        Scale { low: 0.0, high, from, to, logarithmic: false, base: Base::Ten }
    }

    /// Returns a logarithmic scale from the power of `base` below `low` at pixel `from` to `high` at pixel `to`.
    pub(crate) fn logarithmic(low: f64, high: f64, from: f64, to: f64, base: Base) -> Self {
        let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
        let low = if low > 0.0 && low < high { low } else { high / 10.0 };
        // Bars start at the low end; the least value must still be visible.
        let low = base.below(low / 1.5);
        Scale { low, high, from, to, logarithmic: true, base }
    }

    /// Sets the base of round numbers (default: ten).
    #[must_use]
    pub(crate) fn with_base(self, base: Base) -> Self {
        Self { base, ..self }
    }

    /// Returns the pixel of a value. Values beyond the scale are clamped to its ends.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => value / self.high,
        };
        self.from + (self.to - self.from) * if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Whether a value lies beyond the scale's end.
    pub(crate) fn is_beyond(&self, value: f64) -> bool {
        value > self.high
    }

    /// Returns about `count` round values: 1, 2, 2.5 or 5 times a power of ten apart, or a power of two for bytes, or
    /// the powers of a logarithmic scale.
    pub(crate) fn ticks(&self, count: usize) -> Vec<f64> {
        if self.logarithmic {
            return self.powers(count);
        }
        let raw = self.high / count.max(1) as f64;
        let power = self.base.below(raw);
        let factors: &[f64] = if self.base == Base::Ten { &[1.0, 2.0, 2.5, 5.0, 10.0] } else { &[1.0, 2.0] };
        let step = factors.iter().map(|factor| factor * power).find(|&step| step >= raw * 0.999);
        let step = step.unwrap_or(raw);
        let last = (self.high / step * (1.0 + 1e-9)).floor() as usize;
        (0..=last.min(1000)).map(|number| number as f64 * step).collect()
    }

    fn powers(&self, count: usize) -> Vec<f64> {
        let exponent = |value: f64| self.base.exponent(value);
        let (first, last) = (exponent(self.low).round() as i32, exponent(self.high).floor() as i32);
        let step = ((last - first).max(0) as usize / count.max(1) + 1).min(300);
        (first..=last).step_by(step).map(|exponent| self.base.power(exponent)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(Scale::linear(143.0, 0.0, 100.0).ticks(5), [0.0, 50.0, 100.0]);
        assert_eq!(Scale::linear(10.0, 0.0, 100.0).ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Scale::logarithmic(0.004, 7.0, 0.0, 1.0, Base::Ten).ticks(8), [0.001, 0.01, 0.1, 1.0]);
        let kib = 1024.0;
        assert_eq!(
            Scale::linear(385.0 * kib, 0.0, 1.0).with_base(Base::Two).ticks(4),
            [0.0, 128.0 * kib, 256.0 * kib, 384.0 * kib]
        );
        assert_eq!(Scale::logarithmic(900.0, 8.0 * kib, 0.0, 1.0, Base::Two).ticks(3), [512.0, 2048.0, 8192.0]);
        for high in [0.0, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
            for scale in [Scale::linear(high, 0.0, 1.0), Scale::logarithmic(high, high, 0.0, 1.0, Base::Ten)] {
                assert!(scale.ticks(6).len() <= 14, "{high}");
            }
        }
    }

    #[test]
    fn values_become_pixels_between_the_ends() {
        let linear = Scale::linear(10.0, 100.0, 200.0);
        assert_eq!([0.0, 5.0, 10.0, 11.0, -1.0].map(|value| linear.at(value)), [100.0, 150.0, 200.0, 200.0, 100.0]);
        let logarithmic = Scale::logarithmic(1.5, 1000.0, 0.0, 3.0, Base::Ten);
        assert_eq!([1.0, 0.0].map(|value| logarithmic.at(value)), [0.0, 0.0]);
        assert!((logarithmic.at(10.0) - 1.0).abs() < 1e-12);
    }
}
