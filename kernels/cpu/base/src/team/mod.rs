//! Team of threads that work on one kernel at a time: fork and join over numbered parts.
//!
//! The calling thread is member 0 and always works itself; the helpers are members 1, 2, …. Each member has a share of
//! consecutive parts, so that from kernel to kernel it reads what it wrote before, which is in its core's cache. A
//! member that has finished its share takes the last parts of other shares, so a slow or late helper delays no other
//! member. A call returns when all parts are done.
//!
//! An idle helper looks for more work for a while ([`Team::linger`]) and then sleeps. The next kernel of a graph
//! usually follows within microseconds, and waking a sleeping thread costs about 20 µs.

mod helper_pool;
mod rounds;
mod tiles;
mod workspace;

pub use rounds::{Memory, Part, Round};
pub use tiles::{Grid, Order, Tile};
pub use workspace::with_workspace;

use helper_pool::HelperPool;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time for which an idle helper spins before it yields its core to other threads.
const SPIN: Duration = Duration::from_micros(50);

/// Threads that run the parts of one kernel. The calling thread is a member.
///
/// Threads may share a team, but it works for one call at a time. A call that finds the team busy, for instance because
/// it comes from inside a part, runs all its parts itself.
pub struct Team {
    helpers: Option<HelperPool>,
    /// Whether there is an interrupt; read before each kernel, without a lock.
    watched: AtomicBool,
    interrupt: Mutex<Option<Interrupt>>,
}

/// Function that returns whether the current work should stop. Once it has returned true, it always does.
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// Guard during which the team's work may be interrupted.
pub struct Watched<'a>(&'a Team);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.watched.store(false, Ordering::Relaxed);
        *self.0.interrupt.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Team {
    /// Creates a team of `threads` threads: the calling thread and `threads − 1` helpers. Helper `i` (from 1) first
    /// calls `on_start(i)`, which can give it a name in a profile or a core of its own.
    ///
    /// If the system refuses further threads, the team is smaller; [`Self::threads`] returns its size. Results do not
    /// depend on the size.
    pub fn new(threads: usize, on_start: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self { helpers: HelperPool::new(threads.saturating_sub(1), on_start), ..Self::solo() }
    }

    /// Creates a team of the calling thread alone.
    pub fn solo() -> Self {
        Self { helpers: None, watched: AtomicBool::new(false), interrupt: Mutex::new(None) }
    }

    /// Calls `interrupt` before each part of multi-part runs until the returned guard is dropped. Once `interrupt`
    /// returns true, no further parts start. Calls still return as if all parts were done, and the memory that the
    /// missing parts would have written is unchanged. A watcher must therefore call `interrupt` after each kernel and
    /// discard all results if it returns true. There is only one watch at a time, which holds for all callers of the
    /// team: a later watch replaces it, and dropping either guard ends both.
    pub fn watch(&self, interrupt: Interrupt) -> Watched<'_> {
        *self.interrupt.lock().unwrap_or_else(PoisonError::into_inner) = Some(interrupt);
        self.watched.store(true, Ordering::Relaxed);
        Watched(self)
    }

    /// Returns the function to call before each part.
    fn interrupt(&self) -> Option<Interrupt> {
        // Relaxed: only the thread that runs kernels sets and reads it, or parts that this thread has started since.
        let watched = self.watched.load(Ordering::Relaxed);
        if watched { self.interrupt.lock().unwrap_or_else(PoisonError::into_inner).clone() } else { None }
    }

    /// Returns the number of threads, including the calling thread.
    #[inline]
    pub fn threads(&self) -> usize {
        1 + self.helpers.as_ref().map_or(0, HelperPool::helpers)
    }

    /// Sets how long idle helpers look for more work before they sleep (default: 50 µs). After the first 50 µs they
    /// yield their core to any other thread that wants it.
    pub fn linger(&self, time: Duration) {
        if let Some(helpers) = &self.helpers {
            helpers.linger(time);
        }
    }

    /// Runs `body(0)`, …, `body(parts - 1)`, each once, in any order and on any thread, and returns when all are done.
    /// If the team is [watched](Self::watch) and interrupted, it runs fewer.
    ///
    /// # Panics
    /// If a part panics. If the team has helpers, the remaining parts run first; then the panic of the part with the
    /// lowest number continues in the calling thread.
    pub fn run(&self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // Watchers check between kernels, so a single part needs no further check.
        let interrupt = if parts > 1 { self.interrupt() } else { None };
        match interrupt {
            None => self.run_all(parts, body),
            Some(interrupt) => self.run_all(parts, &|part| {
                if !interrupt() {
                    body(part);
                }
            }),
        }
    }

    fn run_all(&self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        match &self.helpers {
            Some(helpers) if parts > 1 => helpers.run(parts, body),
            _ => (0..parts).for_each(body),
        }
    }

    /// Cuts `data` into pieces of `length` elements (the last may be shorter) and runs `body(index, piece)` for each.
    pub fn run_pieces<T: Send>(&self, data: &mut [T], length: usize, body: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let grid = Grid { batch: 1, rows: 1, columns: data.len(), tile_rows: 1, tile_columns: length };
        self.run_tiles(data, grid, &|mut tile| {
            let index = tile.columns.start / length.max(1);
            body(index, tile.row(0));
        });
    }

    /// Cuts `data`, a stack of row-major matrices, into the tiles of `grid` and runs `body` on each tile.
    ///
    /// # Panics
    /// If the number of elements in `data` differs from the grid's.
    pub fn run_tiles<T: Send>(&self, data: &mut [T], grid: Grid, body: &(dyn Fn(Tile<'_, T>) + Sync)) {
        self.run_in_order(data, grid, Order::Columns, body);
    }

    /// Runs tiles like [`run_tiles`](Self::run_tiles), in this order; each thread takes neighbouring tiles.
    ///
    /// # Panics
    /// If the number of elements in `data` differs from the grid's.
    pub fn run_in_order<T: Send>(&self, data: &mut [T], grid: Grid, order: Order, body: &(dyn Fn(Tile<'_, T>) + Sync)) {
        tiles::run(self, data, grid, order, body);
    }

    /// Runs `body` on each tile of `grid`, which is one matrix, in each of the `rounds`, one round after the other. The
    /// same thread computes a tile in each round, as far as the system does not suspend threads.
    ///
    /// # Panics
    /// If a round reads the matrix that it writes or one that does not exist, or if the memory does not fit the grid.
    pub fn run_rounds<T: Send + Sync>(
        &self,
        grid: Grid,
        rounds: (usize, &(dyn Fn(usize) -> Round + Sync)),
        memory: Memory<'_, T>,
        body: &(dyn Fn(Part<'_, T>) + Sync),
    ) {
        rounds::run(self, grid, rounds, memory, body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_part_runs_exactly_once() {
        for threads in [1, 2, 4] {
            let team = Team::new(threads, |_| {});
            assert_eq!(team.threads(), threads);
            for parts in [0, 1, 2, 3, 17, 1000] {
                let counts: Vec<_> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                team.run(parts, &|part| {
                    counts[part].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{threads} threads, {parts} parts");
            }
        }
    }

    #[test]
    fn many_short_runs_lose_no_part() {
        let team = Team::new(3, |_| {});
        let sum = AtomicUsize::new(0);
        for _ in 0..20_000 {
            team.run(3, &|part| {
                sum.fetch_add(part + 1, Ordering::Relaxed);
            });
        }
        assert_eq!(sum.into_inner(), 20_000 * 6);
    }

    #[test]
    fn no_part_begins_after_an_interruption() {
        for threads in [1, 3] {
            let team = Team::new(threads, |_| {});
            let (done, left) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
            let asked = Arc::clone(&left);
            let watched = team.watch(Arc::new(move || asked.load(Ordering::SeqCst)));
            let part = |_: usize| {
                if done.fetch_add(1, Ordering::SeqCst) == 9 {
                    left.store(true, Ordering::SeqCst);
                }
            };
            team.run(10_000, &part);
            let begun = done.load(Ordering::SeqCst);
            assert!((10..10 + threads).contains(&begun), "{begun} parts on {threads} threads");
            team.run(10, &part);
            assert_eq!(done.load(Ordering::SeqCst), begun);
            team.run(1, &part);
            assert_eq!(done.load(Ordering::SeqCst), begun + 1, "what is one part is not worth asking");
            drop(watched);
            team.run(10, &part);
            assert_eq!(done.load(Ordering::SeqCst), begun + 11, "nobody asks any more");
        }
    }

    #[test]
    fn helpers_that_fell_asleep_wake_up() {
        let team = Team::new(2, |_| {});
        for linger in [SPIN, Duration::ZERO, SPIN * 2, SPIN * 40] {
            team.linger(linger);
            team.run(2, &|_| {});
            std::thread::sleep(SPIN * 20);
            let members = std::sync::Mutex::new(std::collections::HashSet::new());
            team.run(2, &|_| {
                members.lock().expect("no part panics").insert(std::thread::current().id());
                // Each part waits until the other has begun, so the helper must take one of the two.
                while members.lock().expect("no part panics").len() < 2 {
                    std::thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_after_the_other_parts() {
        let team = Team::new(2, |_| {});
        for _ in 0..50 {
            let done = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                team.run(40, &|part| {
                    if part % 20 == 7 {
                        std::panic::resume_unwind(Box::new(part));
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }));
            assert_eq!(result.expect_err("two parts panic").downcast_ref(), Some(&7usize));
            assert_eq!(done.into_inner(), 38);
        }
        team.run(2, &|_| {});
    }

    #[test]
    fn nested_and_concurrent_calls_run_serially() {
        let team = Team::new(2, |_| {});
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        team.run(4, &|_| {
                            team.run(3, &|_| {
                                sum.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 2 * 200 * 12);
    }

    #[test]
    fn each_helper_is_started_once_and_joined_by_drop() {
        let started = Arc::new(AtomicUsize::new(0));
        let team = Team::new(4, {
            let started = Arc::clone(&started);
            move |member| {
                started.fetch_add(1 << (8 * member), Ordering::Relaxed);
            }
        });
        drop(team);
        assert_eq!(started.load(Ordering::Relaxed), 0x0101_0100);
        assert_eq!(Arc::strong_count(&started), 1, "a helper still holds the start function");
    }

    #[test]
    fn pieces_cover_the_data_and_the_last_is_shorter() {
        let team = Team::new(2, |_| {});
        for (length, piece) in [(0, 3), (1, 3), (10, 3), (9, 3), (5, 100), (4, 0)] {
            let mut data = vec![0usize; length];
            team.run_pieces(&mut data, piece, &|index, part| part.fill(index + 1));
            let want: Vec<_> = (0..length).map(|i| i / piece.max(1) + 1).collect();
            assert_eq!(data, want, "{length} elements in pieces of {piece}");
        }
    }
}
