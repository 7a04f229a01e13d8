//! Rounds of the same parts, in which each round needs the whole result of the one before.
//!
//! Threads stay from the first round to the last and take the same neighbouring parts in each. The data that a part
//! reads repeatedly therefore stays in its core's cache. No thread waits for one that has not begun: its parts are
//! taken over after a short time, and a late thread joins in the current round.

use super::Team;
use super::tiles::{Grid, Tile, Tiles};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of checks whether a round has ended before parts that no member has begun are taken over: some microseconds.
const PATIENCE: usize = 256;

/// Maximum shares of parts, which are begun and counted together.
const SHARES: usize = 64;

/// Matrices of a round, by their numbers.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Matrix that all parts may read, if any.
    pub reads: Option<usize>,
    /// Matrix that the parts write, each its tile; it differs from the one that they read.
    pub writes: usize,
}

/// Memory that rounds read and write.
pub struct Memory<'a, T> {
    /// Matrices of equal size; the numbers of the second slice continue those of the first.
    pub matrices: [&'a mut [T]; 2],
    /// Memory that is divided equally among the parts.
    pub kept: &'a mut [T],
}

/// One part of a round.
pub struct Part<'a, T> {
    /// Number of the round.
    pub round: usize,
    /// Matrix that the round reads, if any.
    pub before: Option<&'a [T]>,
    /// Tile of the written matrix that belongs to the part.
    pub tile: Tile<'a, T>,
    /// Private memory of the part, which keeps its content between rounds.
    pub kept: &'a mut [T],
}

/// Runs `body` on each tile of `grid`, which is one matrix, in each of `count` rounds.
///
/// # Panics
/// If a round reads the matrix that it writes or one that does not exist, or if the memory does not fit the grid.
pub(super) fn run<T: Send + Sync>(
    team: &Team,
    grid: Grid,
    (count, rounds): (usize, &(dyn Fn(usize) -> Round + Sync)),
    memory: Memory<'_, T>,
    body: &(dyn Fn(Part<'_, T>) + Sync),
) {
    let (size, parts) = (grid.rows * grid.columns, grid.tiles());
    let [first, second] = memory.matrices.each_ref().map(|matrices| matrices.len().checked_div(size).unwrap_or(0));
    let is_sound =
        |round: &Round| round.reads != Some(round.writes) && round.reads.max(Some(round.writes)) < Some(first + second);
    assert!(
        grid.batch == 1 && (0..count).all(|round| is_sound(&rounds(round))),
        "rounds that read what they write, or that lies outside"
    );
    let stacks = memory.matrices.map(|matrices| {
        let batch = matrices.len().checked_div(size).unwrap_or(0);
        Tiles::new(matrices, Grid { batch, ..grid })
    });
    let share = memory.kept.len().checked_div(parts).unwrap_or(0);
    let kept = Grid { batch: parts, rows: 1, columns: share, tile_rows: 1, tile_columns: share };
    let kept = Tiles::new(memory.kept, kept);
    let place = |matrix: usize| if matrix < first { (&stacks[0], matrix) } else { (&stacks[1], matrix - first) };
    in_turn(team, count, parts, &|round, part| {
        let Round { reads, writes } = rounds(round);
        let before = reads.map(place);
        let (stack, matrix) = place(writes);
        // SAFETY: `in_turn` runs each part at most once in each round and begins a round when the last one has ended.
        // So no other member has this tile or the part's memory, and the matrix that is read is not written in this
        // round.
        let (before, tile, mut kept) = unsafe {
            let before = before.map(|(stack, matrix)| stack.matrix(matrix));
            (before, stack.claim(matrix * parts + part), (share > 0).then(|| kept.claim(part)))
        };
        body(Part { round, before, tile, kept: kept.as_mut().map_or(&mut [], |kept| kept.row(0)) });
    });
}

/// Runs `body(round, part)` for each part of each round, and starts a round only when the last one has ended. Once the
/// team is interrupted, rounds continue without the body.
fn in_turn(team: &Team, rounds: usize, parts: usize, body: &(dyn Fn(usize, usize) + Sync)) {
    let interrupt = team.interrupt();
    let body = &|round: usize, part: usize| {
        if interrupt.as_ref().is_none_or(|interrupt| !interrupt()) {
            body(round, part);
        }
    };
    if parts <= 1 || team.threads() == 1 {
        (0..rounds).for_each(|round| (0..parts).for_each(|part| body(round, part)));
        return;
    }
    let shares = parts.min(SHARES);
    let progress = Progress {
        begun: [const { AtomicUsize::new(0) }; SHARES],
        shares,
        done: AtomicUsize::new(0),
        members: AtomicUsize::new(0),
    };
    team.run(team.threads().min(shares), &|_| {
        progress.join(rounds, &|round, share| {
            (share * parts / shares..(share + 1) * parts / shares).for_each(|part| body(round, part));
        });
    });
}

/// Progress of the rounds.
struct Progress {
    /// Number of rounds in which each share was begun.
    begun: [AtomicUsize; SHARES],
    /// Number of shares.
    shares: usize,
    /// Number of shares that have ended, over all rounds. Each share is counted (release) after its writes, so a thread
    /// that sees the last share of a round (acquire) sees what the round wrote.
    done: AtomicUsize,
    /// Number of threads that have joined.
    members: AtomicUsize,
}

/// Shares that a thread has begun and not yet counted. Dropping counts them, so that a panic leaves no thread waiting.
struct Begun<'a>(&'a AtomicUsize, usize);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(self.1, Ordering::Release);
    }
}

impl Progress {
    /// Takes part in all rounds from the current one on.
    fn join(&self, rounds: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        let (member, shares) = (self.members.fetch_add(1, Ordering::Relaxed), self.shares);
        let mut patience = PATIENCE;
        loop {
            let round = self.done.load(Ordering::Acquire) / shares;
            if round >= rounds {
                return;
            }
            let members = self.members.load(Ordering::Relaxed);
            self.take(round, member * shares / members..(member + 1) * shares / members, body);
            patience = PATIENCE.min(2 * patience);
            while !self.has_ended(round, patience) {
                // The threads that own these shares may sleep, and then they sleep for many rounds.
                match self.take(round, 0..shares, body) {
                    true => patience = PATIENCE / 32,
                    false => std::thread::yield_now(),
                }
            }
        }
    }

    /// Runs all shares of the range that no member has begun, and returns whether there were any.
    fn take(&self, round: usize, shares: Range<usize>, body: &(dyn Fn(usize, usize) + Sync)) -> bool {
        let mut begun = Begun(&self.done, 0);
        for share in shares {
            // Relaxed: it only decides who runs the share. The data that the share needs became visible with the end of
            // the last round.
            let own = self.begun[share].compare_exchange(round, round + 1, Ordering::Relaxed, Ordering::Relaxed);
            if own.is_ok() {
                begun.1 += 1;
                body(round, share);
            }
        }
        begun.1 > 0
    }

    /// Checks up to `looks` times whether the round has ended, and returns whether it has.
    fn has_ended(&self, round: usize, looks: usize) -> bool {
        let end = (round + 1) * self.shares;
        (0..looks).any(|_| {
            std::hint::spin_loop();
            self.done.load(Ordering::Acquire) >= end
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use std::time::Duration;

    /// Every round sums what the last round wrote; every part also counts its rounds.
    fn sums(threads: usize, rounds: usize, [rows, columns, width]: [usize; 3]) -> Vec<u64> {
        let team = Team::new(threads, |_| {});
        let grid = Grid { batch: 1, rows, columns, tile_rows: rows, tile_columns: width };
        let (mut first, mut second) = (vec![0u64; 2 * rows * columns], vec![0u64; rows * columns]);
        let mut kept = vec![0; grid.tiles()];
        let order = |at: usize| Round { reads: (at > 0).then(|| (at + 2) % 3), writes: at % 3 };
        let memory = Memory { matrices: [&mut first, &mut second], kept: &mut kept };
        run(&team, grid, (rounds, &order), memory, &|mut part| {
            assert_eq!(part.kept[0], part.round as u64, "a part was left out or run twice");
            part.kept[0] += 1;
            let sum = part.before.map_or(0, |before| before.iter().fold(0u64, |sum, x| sum.wrapping_add(*x)));
            for row in 0..rows {
                let column = part.tile.columns.start;
                for (at, out) in part.tile.row(row).iter_mut().enumerate() {
                    *out = sum.wrapping_mul(31).wrapping_add((row * columns + column + at) as u64);
                }
            }
        });
        assert!(kept.iter().all(|count| *count == rounds as u64));
        [first, second].concat()
    }

    #[test]
    fn every_round_sees_the_whole_of_the_one_before() {
        for sizes in [[1, 16, 3], [3, 40, 1], [1, 200, 1], [2, 5, 8], [1, 1, 1]] {
            for rounds in [0, 1, 2, 500] {
                let want = sums(1, rounds, sizes);
                for threads in [2, 3, 5] {
                    assert_eq!(sums(threads, rounds, sizes), want, "{threads} threads, {rounds} rounds of {sizes:?}");
                }
            }
        }
    }

    #[test]
    fn inside_of_another_part_one_thread_runs_all() {
        let team = Team::new(2, |_| {});
        team.run(4, &|_| {
            let mut matrix = [0u8; 8];
            let grid = Grid { batch: 1, rows: 1, columns: 8, tile_rows: 1, tile_columns: 2 };
            let memory = Memory { matrices: [&mut matrix, &mut []], kept: &mut [] };
            let round = |_| Round { reads: None, writes: 0 };
            run(&team, grid, (50, &round), memory, &|mut part| part.tile.row(0)[0] += 1);
            assert_eq!(matrix, [50, 0, 50, 0, 50, 0, 50, 0]);
        });
    }

    #[test]
    fn no_thread_comes_that_has_no_part() {
        let team = Team::new(4, |_| {});
        let members = Mutex::new(HashSet::new());
        in_turn(&team, 400, 2, &|_, _| {
            std::thread::sleep(Duration::from_micros(50));
            members.lock().expect("no part panics").insert(std::thread::current().id());
        });
        let members = members.into_inner().expect("no part panics");
        assert!(members.len() <= 2, "{} threads for two parts", members.len());
    }

    #[test]
    fn a_panic_ends_the_rounds() {
        let team = Team::new(2, |_| {});
        for at in [0, 30] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                in_turn(&team, 50, 8, &|round, part| {
                    if (round, part) == (at, 5) {
                        std::panic::resume_unwind(Box::new(()));
                    }
                });
            }));
            assert!(result.is_err());
        }
    }

    #[test]
    #[should_panic(expected = "read what they write")]
    fn a_round_that_reads_what_it_writes_is_refused() {
        let grid = Grid { batch: 1, rows: 1, columns: 2, tile_rows: 1, tile_columns: 1 };
        let memory = Memory { matrices: [&mut [0u8; 2], &mut []], kept: &mut [] };
        run(&Team::solo(), grid, (1, &|_| Round { reads: Some(0), writes: 0 }), memory, &|_| {});
    }
}
