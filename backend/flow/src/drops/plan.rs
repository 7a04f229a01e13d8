//! Work of a run: compares the recipe with the results of earlier runs in a directory.
//!
//! An application is skipped if its command and its outputs' paths are as recorded, its inputs have the recorded
//! checksums, and all files that it made still have theirs.
//!
//! All other applications run. Applications that read their outputs may have to run: they are checked again once their
//! inputs are there, and are skipped if these are unchanged. Bytes in memory are lost between runs, so the application
//! that makes them runs if an application that reads them does.

use super::content::{Sum, sum_of_file, sum_of_texts};
use super::names::is_within;
use super::recipe::{Kind, Node, Recipe};
use super::state::{self, Records};
use super::{DropsError, refused};
use anabranch_base::cancel::CancelToken;
use anabranch_base::files::DirectoryLock;
use anabranch_base::quoted::Name;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Runs a command in a directory for the application of an id. Returns the reason if the command has not ended well.
pub type Shell<'s> = dyn Fn(&str, &Path, &str) -> Result<(), String> + Send + Sync + 's;

/// A recipe with the directory to run it in, which is locked against other processes.
pub struct PreparedRecipe<'r> {
    pub(super) recipe: &'r Recipe,
    pub(super) directory: PathBuf,
    pub(super) records: Records,
    /// By drop: reason why an application runs.
    pub(super) reasons: Vec<Option<Reason>>,
    /// By drop: content of data, if it is known before the run.
    pub(super) found: Vec<Option<Sum>>,
    /// By drop: reason why data cannot be read.
    pub(super) unreadable: Vec<Option<String>>,
    /// Runs the commands, instead of a shell of this process.
    pub(super) shell: Option<Box<Shell<'r>>>,
    _held: DirectoryLock,
}

/// Reason why an application has to run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It has not ended well before, or is not recorded.
    New,
    /// Its command, function or outputs have changed.
    Command,
    /// Its inputs have changed.
    Inputs,
    /// A file that it made or reads is missing.
    Missing(String),
    /// A file that it made has changed.
    Changed(String),
    /// It may have to run: it reads an output of this application, which runs.
    After(String),
    /// This application, which runs, reads an output that it keeps in memory only.
    Needed(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::New => f.write_str("it is new, or failed before"),
            Reason::Command => f.write_str("its command or outputs changed"),
            Reason::Inputs => f.write_str("its inputs changed"),
            Reason::Missing(output) => write!(f, "{output} is missing"),
            Reason::Changed(output) => write!(f, "{output} changed"),
            Reason::After(application) => write!(f, "after {application}, unless its result is the same"),
            Reason::Needed(application) => write!(f, "{application} needs its result in memory"),
        }
    }
}

impl<'r> PreparedRecipe<'r> {
    /// Examines a directory, and makes it if it does not exist. If `fresh` is true, no application is skipped.
    ///
    /// Reads every file of the graph once.
    ///
    /// # Errors
    /// If the directory cannot be used, or another process runs a graph in it. If an absolute path lies in it, or the
    /// file of states is not valid. Also if the run is cancelled.
    pub fn new(recipe: &'r Recipe, directory: &Path, fresh: bool, token: &CancelToken) -> Result<Self, DropsError> {
        let told = |error: std::io::Error| DropsError::Refused(format!("{}: {error}", directory.display()));
        fs::create_dir_all(directory).map_err(told)?;
        let directory = fs::canonicalize(directory).map_err(told)?;
        for node in &recipe.nodes {
            // Otherwise one file would have two names.
            if let Kind::File(path) = &node.kind
                && path.is_absolute()
                && is_within(&directory, path)
            {
                return refused(format!(
                    "drop {} has the file {}, which lies within the directory of the run; write it relative to the directory",
                    Name(&node.label()),
                    Name(&path.to_string_lossy())
                ));
            }
        }
        let path = directory.join(recipe.naming.state_file());
        let held = DirectoryLock::beside(&path).map_err(told)?;
        let records = state::load(&path)?;
        // Left over from a process that was killed.
        match fs::remove_dir_all(directory.join(recipe.naming.memory_folder())) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(told(error)),
            _ => {}
        }
        let count = recipe.nodes.len();
        let mut prepared = PreparedRecipe {
            recipe,
            directory,
            records: if fresh { Records::new() } else { records },
            reasons: vec![None; count],
            found: vec![None; count],
            unreadable: vec![None; count],
            shell: None,
            _held: held,
        };
        prepared.look(token)?;
        prepared.decide();
        prepared.spread();
        Ok(prepared)
    }

    /// Sets who runs the commands (default: a shell on this machine), such as a process of another machine that shares
    /// the directory.
    pub fn with_shell(self, shell: Box<Shell<'r>>) -> Self {
        PreparedRecipe { shell: Some(shell), ..self }
    }

    /// Checks that no application overwrites a file, such as the file of the graph.
    ///
    /// # Errors
    /// If an application does.
    pub fn keeps(&self, file: &Path) -> Result<(), DropsError> {
        let Ok(file) = fs::canonicalize(file) else { return Ok(()) };
        let is_over = |(place, node): &(usize, &Node)| {
            let path = node.kind.path().filter(|_| self.recipe.maker(*place).is_some());
            path.and_then(|path| fs::canonicalize(self.directory.join(path)).ok()).is_some_and(|path| path == file)
        };
        match self.recipe.nodes.iter().enumerate().find(is_over) {
            None => Ok(()),
            Some((_, node)) => refused(format!(
                "drop {} would overwrite {}, the file of the graph; rename one of them",
                Name(&node.label()),
                Name(&file.to_string_lossy())
            )),
        }
    }

    /// Returns the applications that may run, by label, each with the reason. Each comes after the applications that it
    /// reads from.
    pub fn due(&self) -> impl Iterator<Item = (String, &Reason)> {
        let due = |&place: &usize| Some((self.recipe.nodes[place].label(), self.reasons[place].as_ref()?));
        self.recipe.order.iter().filter_map(due)
    }

    /// Whether an application can be skipped: its record is valid, and its inputs still have this sum.
    pub(super) fn is_as_before(&self, place: usize, inputs: &str) -> bool {
        let node = &self.recipe.nodes[place];
        let record = self.records.get(&node.id);
        let is_same = record.is_some_and(|record| record.inputs.as_deref() == Some(inputs));
        let is_held = |&output: &usize| {
            let data = &self.recipe.nodes[output];
            !matches!(data.kind, Kind::Memory(..)) || data.outputs.is_empty()
        };
        is_same && self.refuted(node).is_none() && (self.reasons[place].is_none() || node.outputs.iter().all(is_held))
    }

    /// Returns the checksum of an application's inputs, from those of each input.
    pub(super) fn sum_of_inputs<'s>(&self, place: usize, sums: impl Iterator<Item = &'s str>) -> String {
        let ids = self.recipe.nodes[place].inputs.iter().map(|&input| self.recipe.nodes[input].id.as_str());
        sum_of_texts(ids.zip(sums).flat_map(|(id, sum)| [id, sum]))
    }

    /// Reads all files, and finds the content of data that no application makes.
    fn look(&mut self, token: &CancelToken) -> Result<(), DropsError> {
        let recipe = self.recipe;
        for (place, node) in recipe.nodes.iter().enumerate() {
            let is_made = !node.inputs.is_empty();
            let recorded = || self.records.get(&node.id).and_then(state::Record::sum);
            self.found[place] = match &node.kind {
                // If an output was never completed, its file does not count as the application's.
                Kind::File(_) if is_made && recorded().is_none() => None,
                Kind::File(path) => match sum_of_file(&self.directory.join(path), token) {
                    Ok(found) => found,
                    Err(_) if token.is_cancelled() => return Err(DropsError::Cancelled),
                    Err(error) => {
                        self.unreadable[place] = Some(error.to_string());
                        None
                    }
                },
                Kind::Memory(bytes, _) if !is_made => Some(Sum::of(bytes)),
                Kind::Null if !is_made => Some(Sum::of(&[])),
                Kind::Memory(..) | Kind::Null => recorded(),
                Kind::Command(_) | Kind::Function(_) => None,
            };
        }
        Ok(())
    }

    /// Finds the applications that have to run even if all other applications are skipped.
    fn decide(&mut self) {
        let recipe = self.recipe;
        for (place, node) in recipe.nodes.iter().enumerate().filter(|(_, node)| node.kind.is_application()) {
            self.reasons[place] = self.refuted(node).or_else(|| self.unlike(place, node));
        }
    }

    /// Returns the reason if an application's inputs have changed. Outputs of other applications are checked after
    /// these have run.
    fn unlike(&self, place: usize, node: &Node) -> Option<Reason> {
        let is_absent = |input: &&usize| self.found[**input].is_none() && self.recipe.maker(**input).is_none();
        if let Some(&input) = node.inputs.iter().find(is_absent) {
            return Some(Reason::Missing(self.recipe.nodes[input].label()));
        }
        let sum = |&input: &usize| Some(self.found[input].as_ref()?.checksum.as_str());
        let sums: Vec<&str> = node.inputs.iter().map(sum).collect::<Option<_>>()?;
        let inputs = self.sum_of_inputs(place, sums.into_iter());
        let is_same = self.records.get(&node.id)?.inputs.as_deref() == Some(&inputs);
        (!is_same).then_some(Reason::Inputs)
    }

    /// Returns the reason if an application's results cannot be kept, regardless of its inputs.
    fn refuted(&self, node: &Node) -> Option<Reason> {
        let record = self.records.get(&node.id).filter(|record| record.work.is_some() && record.inputs.is_some());
        let Some(record) = record else { return Some(Reason::New) };
        if record.work != Some(node.work(self.recipe)) {
            return Some(Reason::Command);
        }
        node.outputs.iter().find_map(|&output| {
            let data = &self.recipe.nodes[output];
            let recorded = self.records.get(&data.id).and_then(state::Record::sum);
            match (&self.found[output], recorded) {
                (Some(found), Some(recorded)) if *found == recorded => None,
                (Some(_), _) => Some(Reason::Changed(data.label())),
                (None, _) => Some(Reason::Missing(data.label())),
            }
        })
    }

    /// Adds applications that read outputs of applications that run, and applications whose outputs in memory are read.
    /// `O(links)`.
    fn spread(&mut self) {
        let recipe = self.recipe;
        let nodes = &recipe.nodes;
        let mut due: Vec<usize> = (0..nodes.len()).filter(|&place| self.reasons[place].is_some()).collect();
        while let Some(place) = due.pop() {
            let label = || nodes[place].label();
            let readers = nodes[place].outputs.iter().flat_map(|&output| &nodes[output].outputs);
            let in_memory = |input: &&usize| matches!(nodes[**input].kind, Kind::Memory(..));
            let makers = nodes[place].inputs.iter().filter(in_memory).filter_map(|&input| recipe.maker(input));
            let others: Vec<(usize, bool)> =
                readers.map(|&reader| (reader, true)).chain(makers.map(|maker| (maker, false))).collect();
            for (other, is_after) in others {
                if self.reasons[other].is_none() {
                    self.reasons[other] = Some(if is_after { Reason::After(label()) } else { Reason::Needed(label()) });
                    due.push(other);
                }
            }
        }
    }

    /// Returns the reason why data that no application makes are missing.
    pub(super) fn absence(&self, place: usize) -> String {
        let node = &self.recipe.nodes[place];
        let path = node.kind.path().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        match &self.unreadable[place] {
            Some(why) => format!("{} cannot be read: {why}", Name(&path)),
            None => format!("there is no file {}; put it there, or link an application that makes it", Name(&path)),
        }
    }

    /// Writes the records of all drops.
    pub(super) fn save(&self, records: &Records) -> Result<(), DropsError> {
        state::save(&self.directory.join(self.recipe.naming.state_file()), records)
    }
}

impl std::fmt::Debug for PreparedRecipe<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedRecipe")
            .field("directory", &self.directory)
            .field("reasons", &self.reasons)
            .finish_non_exhaustive()
    }
}
