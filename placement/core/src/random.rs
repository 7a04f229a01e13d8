//! Random numbers that are reproducible on every machine: xoshiro256** seeded by SplitMix64 (Blackman and Vigna 2021).

use anabranch_base::random::SplitMix64;
use std::ops::RangeInclusive;

/// Stream of random numbers. Not for cryptography.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Creates the first stream of a seed.
    pub fn new(seed: u64) -> Self {
        Random::stream(seed, 0)
    }

    /// Creates one of many independent streams of a seed: drawing from one does not affect another.
    pub fn stream(seed: u64, number: u64) -> Self {
        let first = SplitMix64::new(seed).bits();
        let mut mixer = SplitMix64::new(first ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03));
        // SplitMix64 never returns zero four times in a row, and all zeros is the only state that xoshiro must not
        // have.
        Random { state: std::array::from_fn(|_| mixer.bits()) }
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Returns a uniform number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Multiply and shift (Lemire 2019). Rejecting low parts removes the bias towards some results.
        let rejected = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.bits()) * u128::from(bound);
            if product as u64 >= rejected {
                return (product >> 64) as u64;
            }
        }
    }

    /// Returns a uniform number of `range`; the start of an empty range.
    pub fn between(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let width = range.end().saturating_sub(*range.start());
        match width.checked_add(1) {
            Some(count) => range.start() + self.below(count),
            None => self.bits(),
        }
    }

    /// Returns a uniform number from 0 (inclusive) to 1 (exclusive), in steps of 2^-53.
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Returns a uniform number from `low` to `high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.fraction()
    }

    /// Returns true with probability `probability`.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the published generator for the state 1, 2, 3, 4.
    #[test]
    fn the_generator_is_the_published_one() {
        let mut random = Random { state: [1, 2, 3, 4] };
        assert_eq!([(); 4].map(|()| random.bits()), [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, number| Random::stream(seed, number).bits();
        assert_eq!(first(1, 0), Random::new(1).bits());
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 1), first(2, 1));
    }

    #[test]
    fn ranges_are_kept_and_filled() {
        let mut random = Random::new(7);
        let mut seen = [0; 6];
        for _ in 0..6000 {
            seen[random.below(6) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
        assert_eq!((random.below(0), random.below(1), random.between(&(9..=9))), (0, 0, 9));
        assert!((0..100).all(|_| (3..=5).contains(&random.between(&(3..=5)))));
        assert!((0..100).all(|_| (0.25..=0.5).contains(&random.uniform(0.25, 0.5))));
        random.between(&(0..=u64::MAX));
        assert!(!random.chance(0.0) && random.chance(1.0));
    }
}
