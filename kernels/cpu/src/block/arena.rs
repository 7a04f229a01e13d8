//! Positions of the buffers that pass between members. A buffer's memory is reused as soon as it has been read for the
//! last time, so that all buffers stay in the core's own caches.

use anabranch_op::tensor::ALIGNMENT;

/// Lifetime of a buffer: when it is written, when it is read for the last time, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) written: usize,
    pub(super) read: usize,
    pub(super) bytes: usize,
}

/// Gives each buffer, in the order in which they are written, the lowest free position, and returns the total number of
/// bytes. Buffers that are alive at the same time do not overlap. A buffer is alive from its write to its last read,
/// both included. O(n² log n).
pub(super) fn places(lifetimes: &[Lifetime]) -> (Vec<usize>, usize) {
    let mut placed: Vec<(usize, Lifetime)> = Vec::new();
    for lifetime in lifetimes {
        let mut alive: Vec<_> = placed.iter().filter(|(_, other)| other.read >= lifetime.written).collect();
        alive.sort_by_key(|(place, _)| *place);
        let mut place = 0;
        for (start, other) in alive {
            if place + lifetime.bytes <= *start {
                break;
            }
            place = place.max((start + other.bytes).next_multiple_of(ALIGNMENT));
        }
        placed.push((place, *lifetime));
    }
    let end = placed.iter().map(|(place, lifetime)| place + lifetime.bytes).max().unwrap_or(0);
    (placed.into_iter().map(|(place, _)| place).collect(), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(written: usize, read: usize, bytes: usize) -> Lifetime {
        Lifetime { written, read, bytes }
    }

    #[test]
    fn a_chain_needs_two_buffers() {
        let chain: Vec<_> = (0..9).map(|at| lifetime(at, at + 1, 1000)).collect();
        let (places, bytes) = super::places(&chain);
        assert_eq!(places, [0, 1024, 0, 1024, 0, 1024, 0, 1024, 0]);
        assert_eq!(bytes, 2024);
    }

    #[test]
    fn no_two_buffers_alive_at_once_overlap() {
        arbtest::arbtest(|u| {
            let mut lifetimes = Vec::new();
            for at in 0..u.int_in_range(0..=12)? {
                lifetimes.push(lifetime(at, at + u.int_in_range(1..=4)?, u.int_in_range(0..=300)?));
            }
            let (places, bytes) = super::places(&lifetimes);
            for (i, a) in lifetimes.iter().enumerate() {
                assert!(places[i] % ALIGNMENT == 0 && places[i] + a.bytes <= bytes);
                for (j, b) in lifetimes.iter().enumerate().take(i) {
                    let together = b.read >= a.written;
                    let apart = places[i] + a.bytes <= places[j] || places[j] + b.bytes <= places[i];
                    assert!(apart || !together, "{lifetimes:?}: {places:?}");
                }
            }
            Ok(())
        })
        .budget_ms(100);
    }
}
