//! Models with state: a session whose runs follow each other, with outputs of one run as inputs of the next.

mod home;
mod in_place;
mod resize;

use super::error::{InputError, SessionError, within_memory};
use super::inputs::{Given, Inputs};
use super::open::Session;
use super::outputs::Outputs;
use super::pairing::StatePair;
use super::prepare::Prepared;
use super::whole::RunPrediction;
use anabranch_base::interruption;
use anabranch_execute::{Deadline, RunOptions};
use anabranch_kernels::Tensor;
use in_place::Moves;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A session with state: what [`Session::stateful`] binds stays between runs.
///
/// The state is moved from run to run and stays on its device. The memory of the state before is used for the next
/// run's outputs. The first state is what is given for its inputs, else zeros. An axis along which it grows then has no
/// elements, unless [`Self::resize`] gives it some. After a run that fails, the same step can be run again: positions
/// of a cache that it has written in place are written again. If the failure has lost a state, the error says so, and
/// the next run starts from the first state.
///
/// ```
/// # mod anabranch {
/// #     pub use anabranch_kernels::{Shape, Tensor};
/// #     pub use anabranch_onnx::import;
/// #     pub use anabranch_session::{Inputs, Session, SessionConfig};
/// # }
/// use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
/// use anabranch::{Inputs, Session, SessionConfig, Shape, Tensor};
///
/// // `sum_out = sum_in + x`
/// # let value = |name: &str| ValueInfoProto::f32s(name, &[3]);
/// # let graph = GraphProto {
/// #     node: vec![NodeProto::of("Add", &["sum_in", "x"], &["sum_out"])],
/// #     input: vec![value("sum_in"), value("x")],
/// #     output: vec![value("sum_out")],
/// #     ..GraphProto::default()
/// # };
/// # let model = ModelProto::of(graph, 17).to_bytes();
/// let session = Session::from_bytes(&model, SessionConfig::default())?;
/// let mut sums = session.stateful(&[("*_out", "*_in")])?;
/// for step in 0..5 {
///     let x = Tensor::from_elements(Shape::new([3])?, &[step as f32; 3])?;
///     sums.run(&Inputs::new().tensor("x", x))?;
/// }
/// assert_eq!(sums.outputs().array::<f32>("sum_out")?.as_slice(), Some(&[10.0; 3][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Stateful {
    session: Session,
    pairs: Vec<StatePair>,
    /// The inputs of the next run: the state, once there is one, and what was given last.
    inputs: Inputs,
    /// Whether the state is there.
    begun: bool,
    outputs: Outputs,
    /// The outputs' names, and by pair the output's place among them.
    places: (Arc<[String]>, Vec<Option<usize>>),
    /// By pair, the state before the last run: memory for the next run's outputs.
    former: Vec<Option<Given>>,
    moves: Moves,
    predicted: Option<RunPrediction>,
    /// Whether it is decided where the state stays.
    settled: bool,
    /// Whether [`Self::settle`] has chosen the resident values of the session's constraints.
    own_home: bool,
    runs: u64,
}

/// A state as it was at some time: [`Stateful::snapshot`].
#[derive(Clone, Debug)]
pub struct State {
    values: BTreeMap<String, Given>,
}

impl Session {
    /// Binds outputs of each run to inputs of the next, as [`Self::state_pairs`] finds them; without any patterns, as
    /// [`Self::found_state`] does.
    ///
    /// # Errors
    /// As [`Self::state_pairs`]; also if nothing is bound.
    pub fn stateful(mut self, feeds: &[(&str, &str)]) -> Result<Stateful, SessionError> {
        let pairs = if feeds.is_empty() { self.found_state() } else { self.state_pairs(feeds)? };
        if pairs.is_empty() {
            return Err(InputError::Stateless.into());
        }
        let constraints = std::mem::take(&mut self.options.constraints);
        self.follow(constraints.with_state_in_place());
        let (inputs, outputs, former) = (Inputs::new(), Outputs::default(), vec![None; pairs.len()]);
        Ok(Stateful {
            session: self,
            pairs,
            inputs,
            begun: false,
            outputs,
            places: Default::default(),
            former,
            moves: Moves::default(),
            predicted: None,
            settled: false,
            own_home: false,
            runs: 0,
        })
    }

    /// Adds the first state of these pairs to inputs, where they do not have it: zeros, whose sizes these inputs and
    /// the options tell. A growing axis whose size they do not tell has no elements.
    ///
    /// # Errors
    /// If a size is not told, or there is no memory.
    pub fn with_first_state(&self, pairs: &[StatePair], mut inputs: Inputs) -> Result<Inputs, SessionError> {
        within_memory(|| self.begin_state(pairs, &mut inputs))?;
        Ok(inputs)
    }

    /// Makes the first state of what is not given.
    fn begin_state(&self, pairs: &[StatePair], inputs: &mut Inputs) -> Result<(), SessionError> {
        let mut specs = Vec::new();
        for StatePair { input, growing, .. } in pairs.iter().filter(|pair| inputs.given(&pair.input).is_none()) {
            specs.push((input, self.first_state(input, *growing, inputs)?));
        }
        self.check_host_memory(specs.iter().map(|(name, spec)| (&***name, spec)))?;
        let zeros = specs.into_iter().map(|(name, spec)| {
            let bytes = spec.bytes();
            Ok((name, Tensor::try_zeroed(spec).ok_or_else(|| InputError::NoMemory { name: name.clone(), bytes })?))
        });
        for (name, zeros) in zeros.collect::<Result<Vec<_>, InputError>>()? {
            inputs.exchange(name, Given::Host(zeros));
        }
        Ok(())
    }
}

impl Stateful {
    /// Runs the model with these inputs and the state, and keeps its next state.
    ///
    /// An input of the state that is given replaces the state. An input that is not given keeps the value of the last
    /// run that had it.
    ///
    /// # Errors
    /// As [`Session::run`]; also if the state's first shape is not known.
    pub fn run(&mut self, inputs: &Inputs) -> Result<&Outputs, SessionError> {
        self.run_with(inputs, &RunOptions::default())
    }

    /// [`Self::run`] with these options; without a profile.
    ///
    /// # Errors
    /// As [`Self::run`]; also if the run is cancelled or takes too long.
    pub fn run_with(&mut self, inputs: &Inputs, options: &RunOptions) -> Result<&Outputs, SessionError> {
        let options = RunOptions { asked: options.asked.or_else(|| Some(Instant::now())), ..options.clone() };
        let is_first = !self.begun;
        let replaced = self.inputs.take_over(inputs);
        let run = self.begin_own().and_then(|()| self.run_once(&options));
        if run.is_err() {
            if is_first {
                // The failed inputs may have decided the first state's sizes.
                self.reset();
            }
            self.inputs.give_back(inputs, replaced);
        }
        let plan = run.map_err(|error| self.without_lost(error))?;
        self.predicted = plan.rest.is_none().then(|| RunPrediction::of(&plan));
        self.runs += 1;
        self.place_outputs();
        for ((pair, place), former) in self.pairs.iter().zip(&self.places.1).zip(&mut self.former) {
            let place = place.ok_or_else(|| InputError::Unmade { name: pair.output.clone() })?;
            *former = self.inputs.exchange(&pair.input, self.outputs.found(place));
        }
        Ok(&self.outputs)
    }

    /// Forgets the whole state if a failure has lost a part of it, and adds that to the error.
    fn without_lost(&mut self, error: SessionError) -> SessionError {
        match self.pairs.iter().find(|pair| self.begun && self.inputs.given(&pair.input).is_none()) {
            Some(StatePair { input, .. }) => {
                let error = error.with_lost_state(input);
                self.reset();
                error
            }
            None => error,
        }
    }

    fn run_once(&mut self, options: &RunOptions) -> Result<Arc<Prepared>, SessionError> {
        if !self.settled {
            let deadline = Deadline::new(options, options.asked.unwrap_or_else(Instant::now));
            interruption::under(deadline.watch(), || self.settle(&Inputs::new()))?;
        }
        self.place_outputs();
        for (place, former) in self.places.1.iter().zip(&mut self.former) {
            if let (Some(place), Some(former)) = (place, former.take()) {
                self.outputs.write_over(*place, former);
            }
        }
        self.session.run_with_state((&self.pairs, &mut self.moves), &mut self.inputs, &mut self.outputs, options)
    }

    /// Finds the places of the pairs' outputs, if these are not those of the run before.
    fn place_outputs(&mut self) {
        let names = self.outputs.names();
        if !Arc::ptr_eq(names, &self.places.0) {
            let of: BTreeMap<&String, usize> = names.iter().zip(0..).collect();
            let places = self.pairs.iter().map(|pair| of.get(&pair.output).copied()).collect();
            self.places = (Arc::clone(names), places);
        }
    }

    /// Adds the first state to inputs, if they do not have it: zeros, whose sizes these inputs and the options tell.
    ///
    /// # Errors
    /// If a size is not told, or there is no memory.
    pub fn with_first(&self, inputs: Inputs) -> Result<Inputs, SessionError> {
        self.session.with_first_state(&self.pairs, inputs)
    }

    /// Forgets the state and the given values of its inputs: the next run starts from the first state.
    pub fn reset(&mut self) {
        let pairs = &self.pairs;
        self.inputs.forget(|name| pairs.iter().any(|pair| pair.input == name));
        self.begun = false;
    }

    /// [`Self::reset`], and forgets all other inputs, too: none of them decides the sizes of the next first state.
    pub fn clear(&mut self) {
        self.inputs = Inputs::new();
        self.begun = false;
    }

    /// The state as it is now, by the names of its inputs; empty before the first run. Its memory is shared until the
    /// next run.
    pub fn snapshot(&self) -> State {
        let value = |pair: &StatePair| Some((pair.input.clone(), self.inputs.given(&pair.input)?.clone()));
        State { values: self.pairs.iter().filter_map(value).collect() }
    }

    /// Goes on from a former state of this model, or of another with the same state. A value that it lacks is an error
    /// of the next run.
    pub fn restore(&mut self, state: &State) {
        self.reset();
        for (name, given) in &state.values {
            self.inputs.exchange(name, given.clone());
        }
        self.begun = !state.values.is_empty();
    }

    /// Whether there is a state: of a run, of [`Self::restore`] or of [`Self::resize`]. A failure that loses a part of
    /// the state ends it.
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// The last run's outputs, with the state that it made.
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// The session that runs.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the bound pairs.
    pub fn pairs(&self) -> &[StatePair] {
        &self.pairs
    }

    /// Returns the prediction of the last run's plan; `None` before the first run and for a model that runs in phases.
    pub fn predicted(&self) -> Option<RunPrediction> {
        self.predicted
    }

    /// Returns the number of completed runs.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Bytes of the state.
    pub fn bytes(&self) -> u64 {
        let given = self.pairs.iter().filter_map(|pair| self.inputs.given(&pair.input));
        given.map(|given| given.spec().bytes() as u64).sum()
    }

    /// Sees that there is a state.
    fn begin_own(&mut self) -> Result<(), SessionError> {
        if !self.begun {
            let mut inputs = std::mem::take(&mut self.inputs);
            let begun = within_memory(|| self.session.begin_state(&self.pairs, &mut inputs));
            self.inputs = inputs;
            begun?;
            self.begun = true;
        }
        Ok(())
    }
}

impl State {
    /// A state of these tensors, by the names of the inputs that are bound.
    pub fn new(tensors: BTreeMap<String, Tensor>) -> Self {
        Self { values: tensors.into_iter().map(|(name, tensor)| (name, Given::Host(tensor))).collect() }
    }

    /// The tensors by the names of their inputs; copies of those on GPUs.
    ///
    /// # Errors
    /// If a GPU was lost, or there is no memory for a copy.
    pub fn tensors(&self) -> Result<BTreeMap<&str, Tensor>, SessionError> {
        self.values.iter().map(|(name, given)| Ok((&**name, given.on_host()?))).collect()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_on_gpu;
