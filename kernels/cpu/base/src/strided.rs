//! Strided reads and writes of rows, which resizing and transposed convolution share.
//!
//! All functions are inlined always, for use in [`Loop`](super::vector::Loop)s.

use super::vector::{Isa, LANES};

/// Computes `sums[i] += weight · source[i · step]`, as far as both slices reach.
#[inline(always)]
pub fn add_every<I: Isa>(sums: &mut [f32], source: &[f32], step: usize, weight: f32) {
    let add = |(sum, x): (&mut f32, &f32)| *sum = I::fused(weight, *x, *sum);
    match step {
        1 => add_line::<I>(sums, source, weight),
        // Pairs become vectors; a step of unknown length does not.
        2 => {
            let (pairs, rest) = source.as_chunks::<2>();
            let (whole, last) = sums.split_at_mut(sums.len().min(pairs.len()));
            whole.iter_mut().zip(pairs).for_each(|(sum, [x, _])| add((sum, x)));
            last.iter_mut().zip(rest).for_each(add);
        }
        _ => sums.iter_mut().zip(source.iter().step_by(step)).for_each(add),
    }
}

/// Computes `sums[i] += weight · source[i]`, as far as both slices reach. Lines are often shorter than what the
/// compiler makes of a loop over elements, so the last elements are a vector, too.
#[inline(always)]
fn add_line<I: Isa>(sums: &mut [f32], source: &[f32], weight: f32) {
    let count = sums.len().min(source.len());
    let (blocks, rest) = sums[..count].as_chunks_mut::<LANES>();
    let (sources, last) = source[..count].as_chunks::<LANES>();
    let weight = I::splat(weight);
    for (sum, x) in blocks.iter_mut().zip(sources) {
        I::store(I::fused_lanes(weight, I::load(x), I::load(sum)), sum);
    }
    if !rest.is_empty() {
        let zero = I::splat(0.0);
        I::store_part(I::fused_lanes(weight, I::load_part(last, zero), I::load_part(rest, zero)), rest);
    }
}

/// Writes each element `times` times in a row. `out` has exactly as many elements.
#[inline(always)]
pub fn repeat(elements: &[f32], times: usize, out: &mut [f32]) {
    // Arrays become vectors; chunks of unknown length do not.
    match times {
        1 => out.copy_from_slice(elements),
        2 => out.as_chunks_mut().0.iter_mut().zip(elements).for_each(|(out, x)| *out = [*x; 2]),
        4 => out.as_chunks_mut().0.iter_mut().zip(elements).for_each(|(out, x)| *out = [*x; 4]),
        _ => out.chunks_exact_mut(times.max(1)).zip(elements).for_each(|(out, x)| out.fill(*x)),
    }
}

/// Interleaves parts: part `p` holds the columns whose remainder by the number of parts is `p`. Each part has `length`
/// elements, the number of columns divided by the number of parts and rounded up.
#[inline(always)]
pub fn interleave(parts: &[f32], length: usize, out: &mut [f32]) {
    match parts.len().checked_div(length) {
        None => {}
        Some(1) => out.copy_from_slice(parts),
        Some(2) => {
            let (even, odd) = parts.split_at(length);
            let (pairs, rest) = out.as_chunks_mut::<2>();
            pairs.iter_mut().zip(even.iter().zip(odd)).for_each(|(pair, (even, odd))| *pair = [*even, *odd]);
            rest.iter_mut().zip(&even[length - 1..]).for_each(|(last, even)| *last = *even);
        }
        Some(4) if out.len().is_multiple_of(4) => {
            let (low, high) = parts.split_at(2 * length);
            let ((a, b), (c, d)) = (low.split_at(length), high.split_at(length));
            let columns = a.iter().zip(b).zip(c.iter().zip(d));
            for (four, ((a, b), (c, d))) in out.as_chunks_mut::<4>().0.iter_mut().zip(columns) {
                *four = [*a, *b, *c, *d];
            }
        }
        Some(count) => {
            for (at, part) in parts.chunks_exact(length).enumerate() {
                out.iter_mut().skip(at).step_by(count).zip(part).for_each(|(out, x)| *out = *x);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::{Loop, vectorised};

    struct Both<'a>(&'a [f32], usize, &'a mut [f32], &'a mut [f32]);

    impl Loop for Both<'_> {
        type Output = ();

        #[inline(always)]
        fn run<I: Isa>(self) {
            let Self(source, step, sums, out) = self;
            add_every::<I>(sums, source, step, 2.0);
            interleave(source, source.len().checked_div(step).unwrap_or(0), out);
        }
    }

    #[test]
    fn elements_come_from_and_go_to_every_step() {
        for step in 1..6 {
            for length in [0, 1, 2, 7, 16, 33] {
                for missing in 0..step.min(length * step + 1) {
                    let source: Vec<f32> = (0..step * length).map(|i| i as f32).collect();
                    let (mut sums, mut out) = (vec![1.0; length + 2], vec![-1.0; step * length - missing]);
                    vectorised(Both(&source, step, &mut sums, &mut out));
                    for (i, sum) in sums.iter().enumerate() {
                        assert_eq!(*sum, 1.0 + if i < length { 2.0 * (i * step) as f32 } else { 0.0 });
                    }
                    for (column, found) in out.iter().enumerate() {
                        assert_eq!(*found, source[column % step * length + column / step], "{column} by {step}");
                    }
                }
            }
        }
    }
}
