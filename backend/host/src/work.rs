//! Resources of an operator: a team of threads, cancellation, and a budget of memory.

use crate::Fault;
use anabranch_base::bytes::exact_bytes;
use anabranch_kernels::Buffer;
use anabranch_kernels::cpu::{Interrupt, Team};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes, elements or indices that a part of an operator processes: a millisecond at most. Small in tests, so that
/// small inputs have parts.
pub(super) const PART: usize = if cfg!(test) { 1 << 5 } else { 1 << 16 };

/// Threads, interrupt and memory of one operator.
///
/// Steps are divided into parts by sizes alone, so that results do not depend on the number of threads. After each run
/// of parts an operator checks whether it was interrupted: parts may then have been left out.
pub struct Work<'a> {
    team: &'a Team,
    interrupt: Option<&'a Interrupt>,
    limit: u64,
    /// Remaining bytes of the limit. Memory that an operator has taken counts until its end.
    left: AtomicU64,
}

impl<'a> Work<'a> {
    /// Creates work on a team, which the caller makes watch `interrupt`, with at most `limit` bytes.
    pub fn new(team: &'a Team, interrupt: Option<&'a Interrupt>, limit: u64) -> Self {
        Self { team, interrupt, limit, left: AtomicU64::new(limit) }
    }

    /// Returns the number of threads that work at the same time.
    pub(super) fn threads(&self) -> usize {
        self.team.threads()
    }

    /// Checks that the run continues.
    ///
    /// # Errors
    /// If the operator was interrupted. The caller knows the reason, and reports that instead.
    pub fn look(&self) -> Result<(), Fault> {
        match self.interrupt.is_some_and(|interrupt| interrupt()) {
            false => Ok(()),
            true => Err(Fault::invalid("it was interrupted")),
        }
    }

    /// Runs all parts on the team.
    ///
    /// # Errors
    /// If the operator was interrupted.
    pub fn run(&self, parts: usize, body: impl Fn(usize) + Sync) -> Result<(), Fault> {
        self.team.run(parts, &body);
        self.look()
    }

    /// Runs `body` on pieces of `length` elements of `data`, with their numbers.
    ///
    /// # Errors
    /// If the operator was interrupted.
    pub(super) fn pieces<T: Send>(
        &self,
        data: &mut [T],
        length: usize,
        body: impl Fn(usize, &mut [T]) + Sync,
    ) -> Result<(), Fault> {
        self.team.run_pieces(data, length, &body);
        self.look()
    }

    /// Runs `body` on each item, with its number.
    ///
    /// # Errors
    /// If the operator was interrupted.
    pub fn each<T: Send>(&self, items: Vec<T>, body: impl Fn(usize, T) + Sync) -> Result<(), Fault> {
        let items: Vec<_> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
        self.run(items.len(), |part| {
            let item = items[part].lock().unwrap_or_else(PoisonError::into_inner).take();
            item.into_iter().for_each(|item| body(part, item));
        })
    }

    /// Sorts on the team; see [`sort`](anabranch_kernels::cpu::sorted::sort).
    ///
    /// # Errors
    /// If the operator was interrupted, or memory is short.
    pub(super) fn sort<T: Copy + Send + Sync>(
        &self,
        items: &mut [T],
        run: usize,
        compare: impl Fn(&T, &T) -> std::cmp::Ordering + Sync,
    ) -> Result<(), Fault> {
        let mut spare = self.list(items.len())?;
        spare.extend_from_slice(items);
        anabranch_kernels::cpu::sorted::sort(self.team, items, &mut spare, run, compare);
        self.look()
    }

    /// Takes bytes of the budget.
    ///
    /// # Errors
    /// If the budget is too small.
    pub fn charge(&self, bytes: usize) -> Result<(), Fault> {
        let take = |left: u64| left.checked_sub(bytes as u64);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let found = |left: u64| {
            let needed = (self.limit - left).saturating_add(bytes as u64);
            let [needed, limit] = [needed, self.limit].map(exact_bytes);
            Fault::memory(format!(
                "its inputs, results and working memory take at least {needed}, but the limit is {limit}; raise \
                 it (--memory), or give smaller inputs"
            ))
        };
        taken.map(drop).map_err(found)
    }

    /// Creates an empty list with this capacity.
    ///
    /// # Errors
    /// If memory is short.
    pub fn list<T>(&self, capacity: usize) -> Result<Vec<T>, Fault> {
        let bytes = capacity.saturating_mul(size_of::<T>());
        self.charge(bytes)?;
        let mut list = Vec::new();
        list.try_reserve_exact(capacity).map_err(|_| short(bytes))?;
        Ok(list)
    }

    /// Creates a list of this many equal elements.
    ///
    /// # Errors
    /// If memory is short.
    pub fn filled<T: Clone>(&self, element: T, count: usize) -> Result<Vec<T>, Fault> {
        let mut list = self.list(count)?;
        list.resize(count, element);
        Ok(list)
    }

    /// Creates a buffer of zeros.
    ///
    /// # Errors
    /// If memory is short.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer, Fault> {
        self.charge(bytes)?;
        Buffer::try_zeroed(bytes).ok_or_else(|| short(bytes))
    }
}

fn short(bytes: usize) -> Fault {
    Fault::memory(format!("it needs {} more, but the system has less memory left", exact_bytes(bytes as u64)))
}
