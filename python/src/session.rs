//! A session: a model that Python can run any number of times, from any number of threads.

use super::cluster::{self, Stage};
use super::failure::{Failure, Result};
use super::options;
use super::pipeline::{Pipeline, State};
use super::plan::Plan;
use super::profile::Profile;
use super::tensors::{Copies, Given, Taken, borrowed, take};
use super::work::{CancelToken, released, watched};
use anabranch::compare::{CompareOptions, SeriesOptions, compare, measure};
use anabranch::pipeline::MachineTimes;
use anabranch::planning::Planned;
use anabranch::refine::{RefineOptions, Refined, refine};
use anabranch::session::{Run, StatePair};
use anabranch::{Inputs, PlatformFile, Prepared, RunOptions, TensorSpec, ValueInfo};
use anabranch_placement::format::json::write_problem;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// If the last run took less, the next is made on the caller's thread: a signal is noticed soon enough after it.
const QUICK: Duration = Duration::from_millis(5);

/// Longest time that such a run may keep the caller's thread. After that it is made again on another thread, and
/// signals are noticed meanwhile.
const SOON: Duration = Duration::from_millis(50);

/// Names, types and shapes of inputs.
type Specs = Vec<(String, TensorSpec)>;

/// An opened model. The Python class of this name, which has the documentation, holds it.
#[pyclass(frozen)]
pub(crate) struct Session {
    session: Arc<anabranch::Session>,
    /// Name of the model in pages.
    model: String,
    /// Whether plans are for the devices of a file.
    what_if: bool,
    /// The plan that was refined last, with its inputs.
    refined: Mutex<Option<(Specs, Arc<Prepared>)>>,
    /// Inputs and time of the last run; `None` if it failed.
    last: Mutex<Option<(Specs, Duration)>>,
    copies: Copies,
}

#[pymethods]
impl Session {
    #[new]
    #[pyo3(signature = (path, bytes, options))]
    fn new(py: Python<'_>, path: Option<PathBuf>, bytes: Option<&[u8]>, options: &str) -> PyResult<Self> {
        released(py, || {
            let config = options::session(options)?;
            let what_if = config.platform.is_some();
            let session = match (&path, bytes) {
                (Some(path), _) => anabranch::Session::open(path, config)?,
                (None, bytes) => anabranch::Session::from_bytes(bytes.unwrap_or_default(), config)?,
            };
            let model = path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
            Ok(Self {
                session: Arc::new(session),
                model: model.unwrap_or_else(|| "model".into()),
                what_if,
                refined: Mutex::default(),
                last: Mutex::default(),
                copies: Copies::default(),
            })
        })
    }

    /// Returns the declarations of the model's inputs and outputs, as JSON.
    fn values(&self) -> String {
        let list = |values: &[ValueInfo]| values.iter().map(described).collect::<Vec<_>>();
        json!({ "inputs": list(self.session.inputs()), "outputs": list(self.session.outputs()) }).to_string()
    }

    /// Returns the session's devices, as JSON.
    fn devices(&self, py: Python<'_>) -> PyResult<String> {
        released(py, || Ok(serde_json::to_string(self.session.inventory())?))
    }

    /// Returns the bytes that the session's plans hold on each device, in the inventory's order.
    fn held_bytes(&self) -> Vec<u64> {
        self.session.held_bytes()
    }

    /// Runs the model. `main` says whether this is the thread that handles signals.
    #[pyo3(signature = (given, token, timeout, main))]
    fn run(
        &self,
        py: Python<'_>,
        given: Vec<Given>,
        token: &CancelToken,
        timeout: Option<f64>,
        main: bool,
    ) -> PyResult<Vec<Taken>> {
        // SAFETY: the run ends within this call, and its outputs are given memory of their own in it; `given` is
        // dropped after that. The package requires of its users that no array is written while it is an input.
        let inputs = unsafe { borrowed(&given) }.map_err(|failure| failure.raise(py))?;
        let mut options = options::run(&token.0, timeout).map_err(|failure| failure.raise(py))?;
        if !main {
            return released(py, || self.timed_run(&inputs, &options));
        }
        let begun = Instant::now();
        if self.is_quick(&inputs) {
            let soon = options.clone().with_timeout(options.timeout.map_or(SOON, |timeout| timeout.min(SOON)));
            match released(py, || Ok(self.timed_run(&inputs, &soon)))? {
                Err(failure) if failure.is_timeout() && options.timeout.is_none_or(|timeout| timeout > SOON) => {}
                ran => return ran.map_err(|failure| failure.raise(py)),
            }
        }
        options.timeout = options.timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        watched(py, || token.0.cancel(), None, |_| self.timed_run(&inputs, &options))
    }

    /// Returns the plan that runs with such inputs follow. Inputs that are not given are as the model declares them.
    fn plan(&self, py: Python<'_>, given: Vec<Given>) -> PyResult<Plan> {
        self.with_filled(py, &given, &[], None, |inputs, _| {
            Ok(Plan::new(Arc::clone(&self.session), self.model.clone(), self.planned(inputs)?))
        })
    }

    /// Runs and measures. Inputs that are not given are random.
    #[pyo3(signature = (given, repeat, warmup, learn, progress))]
    fn profile(
        &self,
        py: Python<'_>,
        given: Vec<Given>,
        repeat: u32,
        warmup: u32,
        learn: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Profile> {
        self.watching(py, &given, progress.as_ref(), |inputs, run, step| {
            let prepared = self.prepared(inputs)?;
            let options = SeriesOptions::default().with_runs(Some(repeat.max(1)), Some(warmup)).with_run(run);
            let series = measure(&self.session, inputs, &prepared, &options, &mut |run| {
                if learn && !run.measured.events.is_empty() {
                    self.session.learn(run);
                }
                step();
            })?;
            Profile::new(&self.session, &self.model, &series)
        })
    }

    /// Runs the model in each of these configurations in turn. Returns the comparison as JSON, and as a page.
    #[pyo3(signature = (given, places, orders, streams, runs, progress))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn compare(
        &self,
        py: Python<'_>,
        given: Vec<Given>,
        places: Vec<String>,
        orders: Vec<String>,
        streams: Vec<String>,
        runs: (u32, u32, u32),
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(String, String)> {
        self.watching(py, &given, progress.as_ref(), |inputs, run, step| {
            let configurations = options::configurations(&self.session.choice(), &places, &orders, &streams)?;
            let (repeat, warmup, rounds) = runs;
            let options = CompareOptions::new(self.model.clone(), configurations)
                .with_runs(repeat.max(1), warmup)
                .with_refine(rounds)
                .with_run(run);
            let comparison = compare(&self.session, inputs, &options, step)?;
            let page = anabranch_report::show::comparison(&self.session, &comparison);
            Ok((serde_json::to_string(&comparison)?, page))
        })
    }

    /// Runs, learns and places again, in rounds. Later runs with inputs of these shapes follow the plan that is kept.
    #[pyo3(signature = (given, rounds, repeat, threshold, progress))]
    fn refine(
        &self,
        py: Python<'_>,
        given: Vec<Given>,
        rounds: u32,
        repeat: u32,
        threshold: f64,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(String, Plan)> {
        self.watching(py, &given, progress.as_ref(), |inputs, run, step| {
            let options = RefineOptions::new(rounds.max(1), repeat.max(1)).with_threshold(threshold).with_run(run);
            let Refined { planned, series, refinement } = refine(&self.session, inputs, &options, step)?;
            let mut told = serde_json::to_value(&refinement)?;
            told["measured_ms"] = json!(series.measured_ms);
            told["predicted_ms"] = json!(series.predicted.map(|predicted| predicted.makespan * 1e3));
            // If elements determine shapes, a plan depends on them, too. Types and shapes would not identify it.
            if self.session.deciding_inputs().is_empty() {
                *lock(&self.refined) = Some((specs(inputs), Arc::clone(&series.run.prepared)));
            }
            Ok((told.to_string(), Plan::new(Arc::clone(&self.session), self.model.clone(), planned)))
        })
    }

    /// Opens a pipeline for inputs of these shapes.
    #[pyo3(signature = (given, choice, channels, state))]
    fn pipeline(
        &self,
        py: Python<'_>,
        given: Vec<Given>,
        choice: (String, String),
        channels: (usize, bool),
        state: State,
    ) -> PyResult<Pipeline> {
        let options = Pipeline::options(&self.session, (&choice.0, &choice.1), channels, &state);
        let options = options.map_err(|failure| failure.raise(py))?;
        let state = options.state.clone();
        self.with_filled(py, &given, &state, None, |inputs, _| {
            Pipeline::open(Arc::clone(&self.session), inputs, &options)
        })
    }

    /// Returns the times of the model's nodes on each device of this machine, as JSON.
    fn times(&self, py: Python<'_>, given: Vec<Given>, measure: bool, state: State) -> PyResult<String> {
        let state = cluster::divided_state(&self.session, &state).map_err(|failure| failure.raise(py))?;
        self.with_filled(py, &given, &state.pairs, None, |inputs, _| {
            Ok(serde_json::to_string(&MachineTimes::of(&self.session, inputs, measure)?)?)
        })
    }

    /// Divides the model into stages on the devices of these machines (JSON), and returns the stages as JSON. Wanted
    /// are a goal, and whether stages may be replicated and may run at the same time for one input.
    fn divide(
        &self,
        py: Python<'_>,
        given: Vec<Given>,
        machines: &str,
        wanted: (String, bool, bool),
        state: State,
    ) -> PyResult<String> {
        let state = cluster::divided_state(&self.session, &state).map_err(|failure| failure.raise(py))?;
        self.with_filled(py, &given, &state.pairs, None, |inputs, _| {
            cluster::divided(&self.session, inputs, machines, &state, wanted)
        })
    }

    /// Opens one stage of the model for inputs of these shapes, on one device.
    fn stage(
        &self,
        py: Python<'_>,
        given: Vec<Given>,
        stages: Vec<Vec<String>>,
        at: usize,
        device: &str,
        state: State,
    ) -> PyResult<Stage> {
        let state = cluster::divided_state(&self.session, &state).map_err(|failure| failure.raise(py))?;
        self.with_filled(py, &given, &state.pairs, None, |inputs, _| {
            Stage::open(Arc::clone(&self.session), inputs, (&stages, at, device), &state)
        })
    }

    /// Returns the problem of placing the model, as the simulator's JSON.
    fn problem(&self, py: Python<'_>, given: Vec<Given>) -> PyResult<String> {
        self.with_filled(py, &given, &[], None, |inputs, _| {
            let mut problem = self.session.problem(inputs)?;
            problem.name.clone_from(&self.model);
            let mut text = Vec::new();
            write_problem(&problem, &mut text).map_err(Failure::internal)?;
            String::from_utf8(text).map_err(Failure::internal)
        })
    }

    /// Returns the devices and links as a platform file, as JSON.
    fn platform(&self, py: Python<'_>) -> PyResult<String> {
        let (inventory, costs) = (self.session.inventory(), self.session.costs());
        released(py, || Ok(serde_json::to_string(&PlatformFile::of(inventory, costs.here()))?))
    }

    /// Measures the devices whose rates are not known.
    fn calibrate(&self, py: Python<'_>) -> PyResult<()> {
        watched(py, || (), None, |_| Ok(self.session.calibrate()?))
    }

    /// Adds the learned costs to the cost store in a file.
    fn save_costs(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        released(py, || self.session.save_costs(&path).map_err(Failure::argument))
    }
}

impl Session {
    fn timed_run(&self, inputs: &Inputs, options: &RunOptions) -> Result<Vec<Taken>> {
        let begun = Instant::now();
        let ran = self.run_refined(inputs, options);
        match &mut *lock(&self.last) {
            // A run that failed has no time.
            last if ran.is_err() => *last = None,
            Some((of, time)) if is_of(of, inputs) => *time = begun.elapsed(),
            last => *last = Some((specs(inputs), begun.elapsed())),
        }
        Ok(take(ran?.outputs, &self.copies))
    }

    /// Runs the plan that was refined for such inputs, or the session's own.
    fn run_refined(&self, inputs: &Inputs, options: &RunOptions) -> Result<Run> {
        if let Some(prepared) = self.refined_for(inputs) {
            match self.session.run_prepared(&prepared, inputs, options) {
                // It uses a GPU that the session no longer uses.
                Err(error) if self.session.replaces(&error) => *lock(&self.refined) = None,
                ran => return Ok(ran?),
            }
        }
        Ok(self.session.run_with(inputs, options)?)
    }

    fn refined_for(&self, inputs: &Inputs) -> Option<Arc<Prepared>> {
        let refined = lock(&self.refined);
        refined.as_ref().filter(|(of, _)| is_of(of, inputs)).map(|(_, prepared)| Arc::clone(prepared))
    }

    fn prepared(&self, inputs: &Inputs) -> Result<Arc<Prepared>> {
        self.refined_for(inputs).map_or_else(|| Ok(self.session.prepare(inputs)?), Ok)
    }

    fn planned(&self, inputs: &Inputs) -> Result<Arc<Planned>> {
        match self.what_if {
            true => Ok(Arc::new(self.session.plan(inputs)?)),
            false => Ok(Arc::clone(self.prepared(inputs)?.planned())),
        }
    }

    fn is_quick(&self, inputs: &Inputs) -> bool {
        lock(&self.last).as_ref().is_some_and(|(of, took)| *took < QUICK && is_of(of, inputs))
    }

    /// Does work like [`Self::with_filled`], and passes it run options whose runs stop on an interruption.
    fn watching<T: Send>(
        &self,
        py: Python<'_>,
        given: &[Given],
        progress: Option<&Bound<'_, PyAny>>,
        work: impl FnOnce(&Inputs, RunOptions, &mut dyn FnMut()) -> Result<T> + Send,
    ) -> PyResult<T> {
        let token = anabranch::CancelToken::new();
        let run = RunOptions::default().with_cancel(token.clone());
        self.with_filled(py, given, &[], Some((&token, progress)), move |inputs, step| work(inputs, run, step))
    }

    /// Does long work with the given inputs, and random inputs for the others.
    fn with_filled<T: Send>(
        &self,
        py: Python<'_>,
        given: &[Given],
        state: &[StatePair],
        watch: Option<(&anabranch::CancelToken, Option<&Bound<'_, PyAny>>)>,
        work: impl FnOnce(&Inputs, &mut dyn FnMut()) -> Result<T> + Send,
    ) -> PyResult<T> {
        // SAFETY: everything that reads the inputs ends within this call, and no returned value holds any: plans and
        // profiles hold no tensors.
        let inputs = unsafe { borrowed(given) }.map_err(|failure| failure.raise(py))?;
        let stop = || watch.iter().for_each(|(token, _)| token.cancel());
        let progress = watch.and_then(|(_, progress)| progress);
        let filled = || self.session.fill_random(self.session.with_first_state(state, inputs)?, 0);
        watched(py, stop, progress, |step| work(&filled()?, step))
    }
}

fn described(value: &ValueInfo) -> Value {
    let dim = |dim: &anabranch::Dim| match dim {
        anabranch::Dim::Known(size) => json!(size),
        anabranch::Dim::Symbol(name) => json!(name),
        anabranch::Dim::Unknown => Value::Null,
    };
    json!({
        "name": value.name(),
        "kind": value.kind().name(),
        "dtype": value.dtype().map(|dtype| dtype.name()),
        "shape": value.dims().map(|dims| dims.iter().map(dim).collect::<Vec<_>>()),
        "optional": value.is_optional(),
        "labels": value.labels(),
    })
}

fn specs(inputs: &Inputs) -> Specs {
    inputs.specs().map(|(name, spec)| (name.to_owned(), spec.clone())).collect()
}

fn is_of(specs: &Specs, inputs: &Inputs) -> bool {
    specs.iter().map(|(name, spec)| (name.as_str(), spec)).eq(inputs.specs())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
