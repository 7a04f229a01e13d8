//! A pipeline at work: data sets go in on one side, from any number of threads, and results come out on the other, in order.

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

/// A model as a pipeline: several data sets are under way at a time, each at another stage or on another copy of it.
///
/// Data sets are numbered from 0 as they are pushed, and results come in that order. [`Self::push`] waits while the pipeline is full: so
/// who pushes and takes results on the same thread must not push more than [`Self::room`] ahead, or uses [`Self::run_all`]. All
/// methods may be called from several threads. Dropped, a pipeline ends at once.
///
/// A stage that fails ends the pipeline: results of the data sets before come first, then the error, and then no more. Where all
/// devices of a stage are of one kind, results are those of [`Session::run`](anabranch_session::Session::run) on that kind, bit for bit.
///
/// ```
/// # mod anabranch {
/// #     pub mod pipeline {
/// #         pub use anabranch_pipeline::*;
/// #     }
/// #     pub use anabranch_session::{Inputs, Session, SessionOptions};
/// # }
/// use anabranch::pipeline::{Pipeline, PipelineError, PipelineOptions};
/// use anabranch::{Inputs, Session, SessionOptions};
/// use ndarray::array;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/layer.onnx");
/// let session = Session::open(model, SessionOptions::default())?;
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
    /// First, so that nothing runs when the rest goes.
    line: Line<Packet>,
    plan: PipelinePlan,
    wiring: Wiring,
    program: Arc<Program>,
    names: Arc<[String]>,
    watch: Mutex<Watch>,
    _charge: Charge,
}

/// The name of the thread that pushes the data sets of [`Pipeline::run_all`].
const FEEDER: &str = "pipeline feeder";

/// Does something when it goes, in whichever way.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What a pipeline is made of.
pub(super) struct Parts {
    pub(super) line: Line<Packet>,
    pub(super) plan: PipelinePlan,
    pub(super) wiring: Wiring,
    pub(super) program: Arc<Program>,
    pub(super) charge: Charge,
}

/// A data set that has gone through.
#[derive(Debug)]
pub struct Finished {
    /// Its number.
    pub data_set: u64,
    /// What the model made of it.
    pub outputs: Outputs,
    /// From when the first stage began with it until the last was done.
    pub latency: Duration,
}

impl Pipeline {
    pub(super) fn new(Parts { line, plan, wiring, program, charge }: Parts) -> Self {
        let names = program.outputs.iter().map(|output| output.name.clone()).collect();
        let fill = plan.stages.iter().map(|stage| stage.devices.len() as u64).sum();
        let watch = Mutex::new(Watch::new(fill));
        Self { line, plan, wiring, program, names, watch, _charge: charge }
    }

    /// What it does, and what is predicted of it.
    pub fn plan(&self) -> &PipelinePlan {
        &self.plan
    }

    /// How many data sets can be pushed in any case before a result is taken.
    pub fn room(&self) -> usize {
        self.line.room()
    }

    /// Pushes a data set, waiting for room; gives its number.
    ///
    /// # Errors
    /// If the inputs are not of the types and shapes that the pipeline was opened for, it was finished, or it has ended: then with the
    /// failure that ended it. A data set that was not taken does not end the pipeline.
    pub fn push(&self, inputs: &Inputs) -> Result<u64, PipelineError> {
        let given = ordered(inputs, &self.program, |_| true)?;
        let ended = |text: &str| PipelineError::from(ExecError::new(ErrorKind::Cancelled, text));
        self.line.push(Packet::new(&given, &self.wiring)).map_err(|refused| match refused {
            Refused::Finished => ended("the pipeline was finished: it takes no more data sets"),
            Refused::Ended(Some(failure)) => failure,
            Refused::Ended(None) => ended("the pipeline was cancelled"),
        })
    }

    /// Says that no more data sets will come. Those that were pushed are finished.
    pub fn finish(&self) {
        self.line.finish();
    }

    /// Ends the pipeline at once: what is in it is dropped, and [`Self::next`] gives no more.
    pub fn cancel(&self) {
        self.line.close();
    }

    /// The next result, in order, waiting for it. `None` once a finished pipeline is empty, after a failure, and after
    /// [`Self::cancel`].
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

    /// All further results, in order; see [`Self::next`].
    pub fn results(&self) -> impl Iterator<Item = Result<Finished, PipelineError>> + '_ {
        std::iter::from_fn(|| self.next())
    }

    /// Pushes all data sets on a thread of its own, finishes, and gives the results to `each` on this one. Ends at the first error: of a data set,
    /// of a stage, or of `each`. Results of the data sets before an error of `inputs` come first. A panic of either ends it too, and goes
    /// on to the caller.
    ///
    /// # Errors
    /// The first error.
    pub fn run_all<E: From<PipelineError> + Send>(
        &self,
        mut inputs: impl Iterator<Item = Result<Inputs, E>> + Send,
        mut each: impl FnMut(Finished) -> Result<(), E>,
    ) -> Result<(), E> {
        thread::scope(|scope| {
            // On a panic, too: else the feeder would wait for room for ever, and the scope for the feeder.
            let cancelling = OnDrop(|| self.cancel());
            let feed = move || {
                // On a panic, too: else whoever takes the results would wait for ever.
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

    /// Data sets that wait before each stage at this moment: where many do, the stage is slower than those before it.
    pub fn waiting(&self) -> Vec<usize> {
        self.line.waiting()
    }

    /// What was measured by now.
    pub fn measured(&self) -> Measured {
        lock(&self.watch).measured(&self.plan, self.line.times(), self.line.origin())
    }
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("plan", &self.plan.how).finish_non_exhaustive()
    }
}
