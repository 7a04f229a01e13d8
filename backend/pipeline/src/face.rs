//! A running pipeline. Any number of threads push data sets, and results come out in order.

use super::error::PipelineError;
use super::line::{Line, Refused};
use super::measured::{Measured, Watch};
use super::packet::Packet;
use super::plan::PipelinePlan;
use super::wiring::Wiring;
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::lock::lock;
use anabranch_execute::ExecError;
use anabranch_ir::program::Program;
use anabranch_session::{Charge, Inputs, Outputs, ordered};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A model as a pipeline: several data sets are in flight at a time, each at another stage or on another copy of it.
///
/// Data sets are numbered from 0 as they are pushed, and results come in that order. [`Self::push`] waits while the
/// pipeline is full. A thread that both pushes data sets and takes results must not push more than
/// [`Self::max_in_flight`] ahead, or use [`Self::run_all`]. All methods may be called from several threads. A pipeline
/// that is dropped ends at once.
///
/// A model may have state ([`PipelineOptions::state`](super::PipelineOptions::state)): each stage then keeps what it
/// reads of the data set before. Inputs and results are without states.
///
/// A stage that fails ends the pipeline: results of earlier data sets come first, then the error, then nothing. If all
/// devices of a stage are of one kind, results are those of [`Session::run`](anabranch_session::Session::run) on that
/// kind, bit for bit.
///
/// ```
/// # mod anabranch {
/// #     pub mod pipeline {
/// #         pub use anabranch_pipeline::*;
/// #     }
/// #     pub use anabranch_session::{Inputs, Session, SessionConfig};
/// # }
/// use anabranch::pipeline::{Pipeline, PipelineError, PipelineOptions};
/// use anabranch::{Inputs, Session, SessionConfig};
/// use ndarray::array;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/layer.onnx");
/// let session = Session::open(model, SessionConfig::default())?;
/// let inputs = |first: f32| Inputs::new().array("x", &array![[first, 2.0, 3.0, 4.0]]);
/// let pipeline = Pipeline::open(&session, &inputs(0.0)?, &PipelineOptions::default())?;
/// println!("a result every {} s", pipeline.plan().period);
/// let sets = (0..100).map(|at| Ok(inputs(at as f32).expect("small")));
/// let mut results = Vec::new();
/// pipeline.run_all(sets, |finished| {
///     results.push(finished.outputs);
///     Ok::<(), PipelineError>(())
/// })?;
/// assert_eq!(results.len(), 100);
/// assert!(results[7].tensor("y")?.same_bits(session.run(&inputs(7.0)?)?.tensor("y")?));
/// # Ok(())
/// # }
/// ```
pub struct Pipeline {
    /// Dropped first, so that nothing runs when the other fields are dropped.
    line: Line<Packet>,
    plan: PipelinePlan,
    wiring: Wiring,
    program: Arc<Program>,
    names: Arc<[String]>,
    watch: Mutex<Watch>,
    _charge: Charge,
}

/// Name of the thread that pushes the data sets of [`Pipeline::run_all`].
const FEEDER: &str = "pipeline feeder";

/// Calls a function when it is dropped, on a panic, too.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Parts that a pipeline is made of.
pub(super) struct Parts {
    pub(super) line: Line<Packet>,
    pub(super) plan: PipelinePlan,
    pub(super) wiring: Wiring,
    pub(super) program: Arc<Program>,
    pub(super) charge: Charge,
}

/// A data set that has gone through, with its results.
#[derive(Debug)]
pub struct Finished {
    /// Number of the data set.
    pub data_set: u64,
    /// Results of the model for the data set.
    pub outputs: Outputs,
    /// Time from when the first stage began with it until the last stage finished.
    pub latency: Duration,
}

impl Pipeline {
    pub(super) fn new(Parts { line, plan, wiring, program, charge }: Parts) -> Self {
        let leaving = program.outputs.iter().zip(&wiring.outputs).filter(|(_, leaving)| leaving.is_some());
        let names = leaving.map(|(output, _)| output.name.clone()).collect();
        let fill = plan.stages.iter().map(|stage| stage.devices.len() as u64).sum();
        let watch = Mutex::new(Watch::new(fill));
        Self { line, plan, wiring, program, names, watch, _charge: charge }
    }

    /// Returns the plan with its predictions.
    pub fn plan(&self) -> &PipelinePlan {
        &self.plan
    }

    /// Number of data sets that can always be pushed before a result is taken.
    ///
    /// A thread that does both is faster if it takes several results, and then pushes several data sets.
    pub fn max_in_flight(&self) -> usize {
        self.line.capacity()
    }

    /// Pushes a data set and returns its number. Waits while the pipeline is full.
    ///
    /// # Errors
    /// If the inputs are not of the types and shapes that the pipeline was opened for, if it was finished, or if it has
    /// ended. If a failure ended it, the error is that failure. A data set that was not accepted does not end the
    /// pipeline.
    pub fn push(&self, inputs: &Inputs) -> Result<u64, PipelineError> {
        self.put(inputs, false)
    }

    /// [`Self::push`], and lets the sequence of this data set begin with the first state again.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_first(&self, inputs: &Inputs) -> Result<u64, PipelineError> {
        self.put(inputs, true)
    }

    /// Waits until [`Self::push`] need not wait, for at most `most`, and returns whether that is so.
    ///
    /// A thread that must look after something else meanwhile calls this before it pushes. If several threads push,
    /// another may take the place.
    pub fn has_room_within(&self, most: Duration) -> bool {
        self.line.has_room_within(most)
    }

    /// Waits until [`Self::next`] need not wait, for at most `most`, and returns whether that is so.
    ///
    /// If several threads take results, another may take this one.
    pub fn has_result_within(&self, most: Duration) -> bool {
        self.line.has_result_within(most)
    }

    fn put(&self, inputs: &Inputs, is_first: bool) -> Result<u64, PipelineError> {
        let given = ordered(inputs, &self.program, |at| self.wiring.inputs[at].is_some());
        let given = given.map_err(|cause| PipelineError::refused(self.line.next_number(), cause))?;
        let packet = Packet { is_first, ..Packet::new(&given, &self.wiring) };
        let ended = |text: &str| PipelineError::from(ExecError::new(ErrorKind::Cancelled, text));
        self.line.push(packet).map_err(|refused| match refused {
            Refused::Finished => ended("the pipeline was finished and takes no more samples"),
            Refused::Ended(Some(failure)) => failure,
            Refused::Ended(None) => ended("the pipeline was cancelled"),
        })
    }

    /// Announces that no more data sets will come. Data sets that were pushed are completed.
    pub fn finish(&self) {
        self.line.finish();
    }

    /// Ends the pipeline at once: drops the data sets in it, and [`Self::next`] returns `None` from then on.
    pub fn cancel(&self) {
        self.line.close();
    }

    /// Waits for the next result in order.
    ///
    /// Returns `None` once a finished pipeline is empty, after a failure, and after [`Self::cancel`].
    ///
    /// # Errors
    /// The failure of the first data set that did not go through.
    pub fn next(&self) -> Option<Result<Finished, PipelineError>> {
        let (data_set, packet) = self.line.next()?;
        Some(packet.and_then(|packet| {
            let results = packet.results(&self.wiring)?;
            let latency = packet.begun.zip(packet.done).map_or(Duration::ZERO, |(begun, done)| done - begun);
            lock(&self.watch).add(data_set, packet.done, latency);
            Ok(Finished { data_set, outputs: Outputs::new(Arc::clone(&self.names), results), latency })
        }))
    }

    /// Returns all further results in order; see [`Self::next`].
    pub fn results(&self) -> impl Iterator<Item = Result<Finished, PipelineError>> + '_ {
        std::iter::from_fn(|| self.next())
    }

    /// Pushes all data sets on a thread of its own, and calls `each` with the results on the calling thread.
    ///
    /// Ends at the first error of `inputs`, of a stage, or of `each`. Results of data sets before an error of `inputs`
    /// come first. A panic of `inputs` or `each` ends the pipeline, too, and reaches the caller.
    ///
    /// # Errors
    /// The first error.
    pub fn run_all<E: From<PipelineError> + Send>(
        &self,
        mut inputs: impl Iterator<Item = Result<Inputs, E>> + Send,
        mut each: impl FnMut(Finished) -> Result<(), E>,
    ) -> Result<(), E> {
        thread::scope(|scope| {
            // Needed on a panic, too: otherwise the feeder waits for room forever, and the scope waits for the feeder.
            let cancelling = OnDrop(|| self.cancel());
            let feed = move || {
                // Needed on a panic, too: otherwise the thread that takes the results waits forever.
                let _finishing = OnDrop(|| self.finish());
                inputs.try_for_each(|inputs| self.push(&inputs?).map(drop).map_err(E::from))
            };
            let feeder = thread::Builder::new().name(FEEDER.into()).spawn_scoped(scope, feed);
            let feeder = feeder.map_err(|error| PipelineError::from(ExecError::no_thread(FEEDER, &error)))?;
            let drained = self.results().try_for_each(|result| each(result?));
            match drained {
                Ok(()) => std::mem::forget(cancelling),
                Err(_) => drop(cancelling),
            }
            let fed = feeder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            drained.and(fed)
        })
    }

    /// Number of data sets that wait before each stage now. If many wait, the stage is slower than those before it.
    pub fn waiting(&self) -> Vec<usize> {
        self.line.waiting()
    }

    /// Returns the measurements up to now.
    pub fn measured(&self) -> Measured {
        lock(&self.watch).measured(&self.plan, self.line.times(), self.line.origin())
    }
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("plan", &self.plan.how).finish_non_exhaustive()
    }
}
