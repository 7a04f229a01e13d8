//! Runs a DALiuGE graph that was compared with the results of earlier runs ([`PreparedRecipe`]).
//!
//! Each drop is a node of a flow, which delivers nothing if it, or a drop that it reads, has failed.

use super::DropsError;
use super::content::{self, Budget, MemoryDrop, Sum, remove, sum_of_file, sum_of_texts};
use super::outcome::{DropReport, Failed, Outcome};
use super::plan::PreparedRecipe;
use super::recipe::{Kind, Node};
use super::shell;
use super::state::{DropState, Record, Records, now};
use crate::{Flow, FlowError, FlowOptions, Output};
use anabranch_base::cancel::CancelToken;
use anabranch_base::files;
use anabranch_base::lock::lock;
use anabranch_base::quoted::Name;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Name of the node that nodes without inputs read.
const START: &str = "(start)";
/// Shortest time between two writes of the states during a run.
const SAVED_EVERY: Duration = Duration::from_secs(1);
/// Least ratio of the time between two writes to the time of a write.
const SAVED_SHARE: u32 = 20;
/// Failures that are reported with the drops that depend on them.
const TOLD: usize = 100;

/// Content of a datum.
#[derive(Clone, Debug)]
struct Datum {
    sum: Sum,
    /// Bytes of a memory drop that was made in this run.
    held: Option<Arc<MemoryDrop>>,
}

/// Operand of a drop: its content, or the contents of all outputs.
type Token = Arc<[Datum]>;

impl PreparedRecipe<'_> {
    /// Runs the applications that have to run.
    ///
    /// `prepare` may weigh and place the flow, and returns the options of its run. `done` is called with the label of
    /// each application that has finished. When this returns, the file of states and all outputs are written, even if
    /// the flow failed.
    ///
    /// # Errors
    /// If a flow cannot be run: its own error. The error of `prepare`. If a node panics, or the file of states cannot
    /// be written. Failed applications and cancellation are part of the outcome instead.
    pub fn run<E: From<DropsError>>(
        &self,
        token: &CancelToken,
        done: &(dyn Fn(&str) + Sync),
        prepare: impl FnOnce(&Flow<'_>) -> Result<FlowOptions, E>,
    ) -> Result<Outcome, E> {
        let run = Run::new(self, token, done);
        let flow = run.flow();
        let options = prepare(&flow)?.with_cancel(token.clone()).with_iterations(1).with_window(1);
        let ended = match flow.run(&options) {
            Err(error) if !may_have_begun(&error) => return Err(DropsError::Flow(error).into()),
            ended => ended,
        };
        let is_cancelled = matches!(ended, Err(FlowError::Cancelled));
        let folder = self.directory.join(self.recipe.naming.memory_folder());
        // The folder is empty by now, or was never made.
        let _ = std::fs::remove_dir(folder);
        let outcome = run.finish(is_cancelled)?;
        match ended {
            Ok(report) => Ok(Outcome { flow: Some(report), ..outcome }),
            Err(_) if is_cancelled => Ok(outcome),
            Err(error) => Err(DropsError::Flow(error).into()),
        }
    }
}

struct Run<'r> {
    prepared: &'r PreparedRecipe<'r>,
    token: &'r CancelToken,
    done: &'r (dyn Fn(&str) + Sync),
    budget: Arc<Budget>,
    /// By drop: index of a datum among its application's outputs.
    positions: Vec<usize>,
    log: Mutex<Log>,
}

/// Records of the run so far.
struct Log {
    records: Records,
    /// By drop.
    seen: Vec<Seen>,
    saved: Instant,
    pause: Duration,
}

#[derive(Clone, Default)]
struct Seen {
    is_reached: bool,
    kept: bool,
    seconds: Option<f64>,
    failure: Option<String>,
}

impl<'r> Run<'r> {
    fn new(prepared: &'r PreparedRecipe<'r>, token: &'r CancelToken, done: &'r (dyn Fn(&str) + Sync)) -> Self {
        let nodes = &prepared.recipe.nodes;
        let mut positions = vec![0; nodes.len()];
        for node in nodes.iter().filter(|node| node.kind.is_application()) {
            node.outputs.iter().enumerate().for_each(|(position, &output)| positions[output] = position);
        }
        let record = |node: &Node| {
            let mut known = prepared.records.get(&node.id).cloned().unwrap_or_default();
            // Outputs that it made by another command may belong to another application by now.
            if node.kind.is_application() && known.work != Some(node.work(prepared.recipe)) {
                known.forget();
            }
            (node.id.clone(), Record { state: unreached(node), ..known })
        };
        let records = nodes.iter().map(record).collect();
        let log = Log { records, seen: vec![Seen::default(); nodes.len()], saved: Instant::now(), pause: SAVED_EVERY };
        Run { prepared, token, done, budget: Budget::new(), positions, log: Mutex::new(log) }
    }

    fn flow(&self) -> Flow<'_> {
        let recipe = self.prepared.recipe;
        let mut flow = Flow::new();
        let start = flow.feeder(START, Token::from([])).weight(0.0);
        let mut ports: Vec<Option<Output<'_, Token>>> = vec![None; recipe.nodes.len()];
        for &place in &recipe.order {
            let node = &recipe.nodes[place];
            let mut reads: Vec<Output<'_, Token>> =
                node.inputs.iter().filter_map(|&input| ports[input].clone()).collect();
            if reads.is_empty() {
                reads.push(start.clone());
            }
            let step = move |operands: Vec<Token>| self.step(place, &operands);
            let port = flow.filter(node.label(), &reads[..], step).weight(node.time).bytes(node.volume);
            ports[place] = Some(port);
        }
        flow
    }

    /// Returns the operand of a drop; `None` if it has failed or reads a drop that has.
    fn step(&self, place: usize, operands: &[Token]) -> Option<Token> {
        let node = self.node(place);
        if node.kind.is_application() {
            let inputs: Vec<&Datum> = operands.iter().filter_map(|token| token.first()).collect();
            let made = self.application(place, &inputs);
            (self.done)(&node.label());
            return made;
        }
        let made = operands.first().and_then(|token| token.get(self.positions[place]));
        match made {
            Some(datum) => Some(Token::from([datum.clone()])),
            None => self.given(place),
        }
    }

    /// Returns a datum that no application makes.
    fn given(&self, place: usize) -> Option<Token> {
        let (node, found) = (self.node(place), self.prepared.found[place].clone());
        let held = match &node.kind {
            Kind::Memory(bytes, _) => self.budget.hold(bytes.clone()).map(Some),
            _ => Ok(None),
        };
        let datum = match (found, held) {
            (Some(sum), Ok(held)) => Ok(Datum { sum, held }),
            (None, _) => Err(self.prepared.absence(place)),
            (_, Err(why)) => Err(why),
        };
        let mut log = lock(&self.log);
        log.seen[place].is_reached = true;
        let record = log.record(node);
        match datum {
            Ok(datum) => {
                record.complete(&datum.sum);
                Some(Token::from([datum]))
            }
            Err(why) => {
                record.forget();
                record.state = DropState::Error;
                log.seen[place].failure = Some(why);
                None
            }
        }
    }

    fn application(&self, place: usize, inputs: &[&Datum]) -> Option<Token> {
        let sum = self.prepared.sum_of_inputs(place, inputs.iter().map(|datum| datum.sum.checksum.as_str()));
        if self.prepared.is_as_before(place, &sum) {
            return self.keep(place);
        }
        self.begin(place);
        let since = Instant::now();
        let made = self.clear(place).and_then(|()| self.make(place, inputs, &sum));
        let seconds = since.elapsed().as_secs_f64();
        if made.is_err() {
            // A failed application's partial outputs must not be used.
            let _ = self.clear(place);
        }
        self.end(place, seconds, &sum, made)
    }

    /// Skips an application: takes the results of an earlier run.
    fn keep(&self, place: usize) -> Option<Token> {
        let node = self.node(place);
        let mut log = lock(&self.log);
        log.seen[place] = Seen { is_reached: true, kept: true, ..Seen::default() };
        log.record(node).state = DropState::Finished;
        for &output in &node.outputs {
            log.seen[output].is_reached = true;
            log.record(self.node(output)).state = DropState::Completed;
        }
        let datum = |&output: &usize| Some(Datum { sum: self.prepared.found[output].clone()?, held: None });
        node.outputs.iter().map(datum).collect()
    }

    fn begin(&self, place: usize) {
        let node = self.node(place);
        let mut log = lock(&self.log);
        log.record(node).begin(DropState::Running);
        for &output in &node.outputs {
            log.record(self.node(output)).begin(DropState::Writing);
        }
    }

    /// Removes the files at an application's outputs, and makes their folders.
    fn clear(&self, place: usize) -> Result<(), String> {
        let PreparedRecipe { recipe, directory, .. } = self.prepared;
        for &output in &self.node(place).outputs {
            if let Some(path) = self.path(output) {
                let told = |error| format!("its output {}: {error}", Name(&path.to_string_lossy()));
                recipe.naming.refuse_outside(directory, &path).map_err(told)?;
                remove(&path).and_then(|()| files::make_directory(&path)).map_err(told)?;
            }
        }
        Ok(())
    }

    /// Runs a command or function, and completes its outputs.
    fn make(&self, place: usize, inputs: &[&Datum], sum: &str) -> Result<Token, String> {
        let node = self.node(place);
        let made = match &node.kind {
            Kind::Command(command) => {
                for (&input, datum) in node.inputs.iter().zip(inputs) {
                    if let (Kind::Memory(..), Some(path)) = (&self.node(input).kind, self.path(input)) {
                        let told = |error| format!("its input {}: {error}", Name(&path.to_string_lossy()));
                        self.held(input, datum)?.put(&path).map_err(told)?;
                    }
                }
                let directory = &self.prepared.directory;
                match &self.prepared.shell {
                    Some(shell) => shell(command, directory, &node.id)?,
                    None => shell::run_command(command, directory, &node.id, self.token)?,
                }
                None
            }
            Kind::Function(function) => {
                let mut contents = node.inputs.iter().zip(inputs).map(|(&input, datum)| self.content(input, datum));
                Some(function.call(&mut contents, self.token)?)
            }
            _ => None,
        };
        node.outputs.iter().map(|&output| self.output(place, output, made.as_deref(), sum)).collect()
    }

    /// Returns the content of an input, for a function.
    fn content(&self, input: usize, datum: &Datum) -> Result<Vec<u8>, String> {
        match (&self.node(input).kind, self.path(input)) {
            (Kind::Memory(..), _) => Ok(self.held(input, datum)?.bytes().to_vec()),
            (Kind::File(_), Some(path)) => files::read(&path, content::MOST_MEMORY)
                .map_err(|error| format!("its input {}: {error}", Name(&path.to_string_lossy()))),
            _ => Ok(Vec::new()),
        }
    }

    fn held<'d>(&self, input: usize, datum: &'d Datum) -> Result<&'d Arc<MemoryDrop>, String> {
        let absent = || {
            format!(
                "the bytes of {} are not in memory; run everything again (--fresh)",
                Name(&self.node(input).label())
            )
        };
        datum.held.as_ref().ok_or_else(absent)
    }

    /// Returns the content of one output of an application: the given bytes of a function, or the file of a command.
    fn output(&self, place: usize, output: usize, made: Option<&[u8]>, sum: &str) -> Result<Datum, String> {
        let (node, path) = (self.node(output), self.path(output));
        let told = |error: std::io::Error| format!("its output {}: {error}", Name(&node.label()));
        match (&node.kind, path) {
            (Kind::File(_), Some(path)) => {
                if let Some(bytes) = made {
                    files::write(&path, |file| file.write_all(bytes)).map_err(told)?;
                }
                let found = sum_of_file(&path, self.token).map_err(|error| match error.kind() {
                    ErrorKind::InvalidInput => format!(
                        "it has written {}, which is not a regular file; remove it, and let the command write \
                         one file, such as an archive of a folder",
                        Name(&path.to_string_lossy())
                    ),
                    _ => told(error),
                })?;
                let absent = || format!("it succeeded, but did not write {}", Name(&path.to_string_lossy()));
                Ok(Datum { sum: found.ok_or_else(absent)?, held: None })
            }
            (Kind::Memory(..), Some(path)) => {
                let bytes = match made {
                    Some(bytes) => bytes.to_vec(),
                    None => written(&path, self.budget.left()).map_err(|error| match error.kind() {
                        ErrorKind::FileTooLarge => content::too_much(),
                        _ => told(error),
                    })?,
                };
                Ok(Datum { sum: Sum::of(&bytes), held: Some(self.budget.hold(bytes)?) })
            }
            // Data without content: readers only depend on this command with these inputs.
            _ => {
                let work = self.node(place).work(self.prepared.recipe);
                Ok(Datum { sum: Sum { checksum: sum_of_texts([work.as_str(), sum]), bytes: 0 }, held: None })
            }
        }
    }

    /// Records the outcome of an application.
    fn end(&self, place: usize, seconds: f64, sum: &str, made: Result<Token, String>) -> Option<Token> {
        let node = self.node(place);
        let state = match &made {
            Ok(_) => DropState::Finished,
            Err(_) if self.token.is_cancelled() => DropState::Cancelled,
            Err(_) => DropState::Error,
        };
        let mut log = lock(&self.log);
        log.seen[place] = Seen { is_reached: true, seconds: Some(seconds), ..Seen::default() };
        let record = log.record(node);
        (record.state, record.seconds, record.at) = (state, Some(seconds), Some(now()));
        if made.is_ok() {
            (record.work, record.inputs) = (Some(node.work(self.prepared.recipe)), Some(sum.to_owned()));
        }
        for (position, &output) in node.outputs.iter().enumerate() {
            log.seen[output].is_reached = true;
            let record = log.record(self.node(output));
            match &made {
                Ok(made) => record.complete(&made[position].sum),
                Err(_) => record.state = state,
            }
        }
        let made = made.map_err(|why| log.seen[place].failure = (state == DropState::Error).then_some(why)).ok();
        self.save_at_times(&mut log);
        made
    }

    /// Writes the states at intervals, so that a run that is killed is not lost entirely.
    fn save_at_times(&self, log: &mut Log) {
        if log.saved.elapsed() >= log.pause {
            let since = Instant::now();
            // If the states cannot be written now, the write at the end reports the error.
            let _ = self.prepared.save(&log.records);
            (log.saved, log.pause) = (Instant::now(), SAVED_EVERY.max(since.elapsed() * SAVED_SHARE));
        }
    }

    /// Writes the states at the end.
    fn finish(self, is_cancelled: bool) -> Result<Outcome, DropsError> {
        let recipe = self.prepared.recipe;
        let mut log = self.log.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        // If the last application was cancelled and delivers nothing, the flow itself came to its end.
        let is_cancelled = is_cancelled || log.records.values().any(|record| record.state == DropState::Cancelled);
        let (mut drops, mut failures) = (Vec::with_capacity(recipe.nodes.len()), Vec::new());
        for (place, node) in recipe.nodes.iter().enumerate() {
            let seen = std::mem::take(&mut log.seen[place]);
            let record = log.record(node);
            if !seen.is_reached && !is_cancelled {
                record.state = DropState::Skipped;
            }
            if let Some(why) = seen.failure.clone().filter(|_| failures.len() < TOLD) {
                failures.push(Failed::new(recipe, place, why));
            }
            let sum = record.sum().filter(|_| record.state == DropState::Completed);
            drops.push(DropReport {
                id: node.id.clone(),
                name: node.name.clone(),
                category: node.category.clone(),
                application: node.kind.is_application(),
                state: record.state,
                kept: seen.kept,
                seconds: seen.seconds,
                bytes: sum.as_ref().map(|sum| sum.bytes),
                checksum: sum.map(|sum| sum.checksum),
                path: match &node.kind {
                    Kind::File(path) => Some(path.to_string_lossy().into_owned()),
                    _ => None,
                },
                failure: seen.failure,
            });
        }
        self.prepared.save(&log.records)?;
        Ok(Outcome { drops, flow: None, is_cancelled, failures })
    }

    fn node(&self, place: usize) -> &'r Node {
        &self.prepared.recipe.nodes[place]
    }

    /// Path of a datum while commands read and write it.
    fn path(&self, place: usize) -> Option<PathBuf> {
        Some(self.prepared.directory.join(self.node(place).kind.path()?))
    }
}

impl Log {
    fn record(&mut self, node: &Node) -> &mut Record {
        self.records.entry(node.id.clone()).or_default()
    }
}

/// Whether a run with this error may have run an application.
fn may_have_begun(error: &FlowError) -> bool {
    matches!(error, FlowError::Panicked { .. } | FlowError::Cancelled | FlowError::NoThread { .. })
}

/// Returns the state of a drop that was not reached.
fn unreached(node: &Node) -> DropState {
    if node.kind.is_application() { DropState::NotRun } else { DropState::Initialized }
}

/// Returns the bytes that a command has written for a memory drop; empty if it wrote no file.
fn written(path: &std::path::Path, most: u64) -> std::io::Result<Vec<u8>> {
    let bytes = match files::read(path, most) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    remove(path)?;
    Ok(bytes)
}
