//! Stages that work at the same time, each on threads of its own, with channels between them. The type of the items is
//! generic.
//!
//! A failure travels down the line in its data set's place. Data sets before it are finished and leave in order; data
//! sets after it are dropped. The thread that takes the results sees the failure exactly where the data set is missing.

use super::error::PipelineError;
use super::ring::{Ring, Taken, Turn};
use super::times::Times;
use anabranch_base::lock::lock;
use anabranch_execute::ExecError;
use anabranch_session::SessionError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Work of a replica on each of its data sets, which it gets with their numbers.
pub(super) type Work<T> = Box<dyn FnMut(u64, &mut T) -> Result<(), SessionError>>;

/// One of the devices that do the work of a stage.
pub(super) struct Replica<T> {
    pub(super) device: String,
    /// Makes the work, on the replica's own thread.
    pub(super) start: Box<dyn FnOnce() -> Work<T> + Send>,
}

/// A part of the work, done by its replicas.
pub(super) struct Stage<T> {
    pub(super) replicas: Vec<Replica<T>>,
    /// Whether replicas take data sets in turn. Otherwise the next free replica takes the next data set.
    pub(super) in_turn: bool,
    /// Number of data sets that may wait before it.
    pub(super) capacity: usize,
    /// Number of waiting data sets that are handed on at a time.
    pub(super) gather: usize,
}

/// A running line.
pub(super) struct Line<T> {
    shared: Arc<Shared<T>>,
    threads: Vec<JoinHandle<()>>,
    /// Number of accepted data sets, and whether more will come.
    accepted: Mutex<Accepted>,
}

#[derive(Default)]
struct Accepted {
    count: u64,
    finished: bool,
}

struct Shared<T> {
    /// One ring before each stage, and one behind the last.
    rings: Vec<Ring<Result<T, PipelineError>>>,
    /// Failure of the data set with the least number.
    failure: Mutex<Option<PipelineError>>,
    /// Times of each replica, by stage.
    times: Vec<Vec<Mutex<Times>>>,
    origin: Instant,
}

/// Reason why a data set was not accepted.
#[derive(Debug)]
pub(super) enum Refused {
    /// The line was finished.
    Finished,
    /// The line has ended, with this failure if there was one.
    Ended(Option<PipelineError>),
}

/// Position of a replica's thread in the line.
#[derive(Clone, Copy)]
struct Seat {
    stage: usize,
    replica: usize,
    turn: Option<Turn>,
}

impl<T: Send + 'static> Line<T> {
    /// Starts the threads of all stages.
    ///
    /// The line holds up to `results` finished data sets that were not taken yet, and hands on `gather` at a time.
    ///
    /// # Errors
    /// If the system gives no more threads.
    pub(super) fn start(stages: Vec<Stage<T>>, results: usize, gather: usize) -> Result<Self, SessionError> {
        let rings = stages.iter().map(|stage| (stage.capacity, stage.gather)).chain([(results, gather)]);
        let times = stages.iter().map(|stage| stage.replicas.iter().map(|_| Mutex::default()).collect());
        let shared = Arc::new(Shared {
            rings: rings.map(|(capacity, gather)| Ring::new(capacity, gather)).collect(),
            failure: Mutex::default(),
            times: times.collect(),
            origin: Instant::now(),
        });
        let mut line = Self { shared, threads: Vec::new(), accepted: Mutex::default() };
        for (at, stage) in stages.into_iter().enumerate() {
            let of = stage.replicas.len() as u64;
            for (number, replica) in stage.replicas.into_iter().enumerate() {
                let turn = stage.in_turn.then_some(Turn { taker: number as u64, of });
                let (shared, seat) = (Arc::clone(&line.shared), Seat { stage: at, replica: number, turn });
                let name = format!("stage {at} on {}", replica.device);
                let thread = thread::Builder::new().name(name.clone()).spawn(move || shared.serve(seat, replica));
                line.threads.push(thread.map_err(|error| ExecError::no_thread(&name, &error))?);
            }
        }
        Ok(line)
    }

    /// Number of data sets that can be pushed before a result is taken.
    pub(super) fn capacity(&self) -> usize {
        self.shared.rings.iter().map(Ring::capacity).fold(0, usize::saturating_add)
    }

    /// Puts a data set into the line and returns its number. Waits while the line is full.
    pub(super) fn push(&self, item: T) -> Result<u64, Refused> {
        let number = {
            let mut accepted = lock(&self.accepted);
            if accepted.finished {
                return Err(Refused::Finished);
            }
            accepted.count += 1;
            accepted.count - 1
        };
        match self.shared.rings[0].put(number, Ok(item)) {
            Ok(()) => Ok(number),
            Err(_) => Err(Refused::Ended(lock(&self.shared.failure).clone())),
        }
    }

    /// Waits until a data set can be pushed without waiting, for at most `most`, and returns whether that is so.
    pub(super) fn has_room_within(&self, most: Duration) -> bool {
        let (finished, number) = {
            let accepted = lock(&self.accepted);
            (accepted.finished, accepted.count)
        };
        // A finished line refuses data sets at once.
        finished || self.shared.rings[0].has_room_within(number, most)
    }

    /// Waits until [`next`](Self::next) need not wait, for at most `most`, and returns whether that is so.
    pub(super) fn has_result_within(&self, most: Duration) -> bool {
        self.shared.rings.last().is_none_or(|results| results.has_item_within(most))
    }

    /// Returns the number of the next data set.
    pub(super) fn next_number(&self) -> u64 {
        lock(&self.accepted).count
    }

    /// Announces that no more data sets will come.
    pub(super) fn finish(&self) {
        let mut accepted = lock(&self.accepted);
        accepted.finished = true;
        self.shared.rings[0].finish(accepted.count);
    }

    /// Returns the next result in order; `None` after the last, after a failure, and once the line was closed.
    pub(super) fn next(&self) -> Option<(u64, Result<T, PipelineError>)> {
        let results = self.shared.rings.last()?;
        match results.take(None) {
            Taken::Item(number, result) => {
                if result.is_err() {
                    results.close();
                }
                Some((number, result))
            }
            Taken::End(_) | Taken::Closed => None,
        }
    }

    /// Ends the line and drops the data sets in it.
    pub(super) fn close(&self) {
        self.shared.rings.iter().for_each(Ring::close);
    }

    /// Returns the times at which each replica worked, by stage.
    pub(super) fn times(&self) -> Vec<Vec<Times>> {
        self.shared.times.iter().map(|stage| stage.iter().map(|times| lock(times).clone()).collect()).collect()
    }

    /// Returns the number of data sets that wait before each stage.
    pub(super) fn waiting(&self) -> Vec<usize> {
        let rings = &self.shared.rings;
        rings[..rings.len() - 1].iter().map(Ring::waiting).collect()
    }

    /// Returns when the line was started. Its times count from then.
    pub(super) fn origin(&self) -> Instant {
        self.shared.origin
    }
}

impl<T> Shared<T> {
    /// Runs a replica until the line ends.
    fn serve(&self, seat: Seat, replica: Replica<T>) {
        let (before, after) = (&self.rings[seat.stage], &self.rings[seat.stage + 1]);
        let Replica { device, start } = replica;
        let mut work = match catch_unwind(AssertUnwindSafe(start)) {
            Ok(work) => work,
            // There is no data set to blame yet: the replica fails at its first.
            Err(payload) => {
                let error: SessionError = ExecError::panicked(&*payload).into();
                Box::new(move |_, _: &mut T| Err(error.clone()))
            }
        };
        loop {
            let (number, item) = match before.take(seat.turn) {
                Taken::Item(number, item) => (number, item),
                Taken::End(total) => return after.finish(total),
                Taken::Closed => return,
            };
            let result = item.and_then(|mut item| {
                let begun = self.origin.elapsed();
                let attempt = catch_unwind(AssertUnwindSafe(|| work(number, &mut item)));
                let done = attempt.unwrap_or_else(|payload| Err(ExecError::panicked(&*payload).into()));
                done.map_err(|cause| PipelineError::at(number, seat.stage, &device, cause))?;
                lock(&self.times[seat.stage][seat.replica]).add(number, begun, self.origin.elapsed());
                Ok(item)
            });
            // Noted before the failure leaves: it ends other stages, and a thread that pushes then asks for the reason.
            let failed = result.as_ref().err().inspect(|failure| self.note(failure)).is_some();
            let left = after.put(number, result);
            // Data sets behind this one are lost in any case. A thread that waits to send one sees that the ring is
            // closed.
            if failed || left.is_err() {
                return before.close();
            }
        }
    }

    /// Keeps a failure for threads that push.
    fn note(&self, failure: &PipelineError) {
        let mut known = lock(&self.failure);
        if known.as_ref().is_none_or(|known| failure.data_set() < known.data_set()) {
            *known = Some(failure.clone());
        }
    }
}

impl<T> Drop for Line<T> {
    fn drop(&mut self) {
        self.shared.rings.iter().for_each(Ring::close);
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to end.
            let _ = thread.join();
        }
    }
}
