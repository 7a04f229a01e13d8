//! Backend tests of the package `onnx` and further tests, as the scripts in `tests/onnx` write them: each is found, run
//! and compared separately.

mod compare;
pub mod operators;
mod report;

pub use report::Report;

use crate::{one_cpu, options};
use anabranch::constant::Constant;
use anabranch::import::{ImportError, item_in_file};
use anabranch::session::{Inputs, Session, SessionConfig, SessionError};
use anabranch::{Item, Kind};
use compare::{same, tolerance};
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Test: a model with inputs and the expected outputs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// Kind and name of the test, such as `node/test_abs`.
    pub name: String,
    folder: PathBuf,
}

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All outputs are within the test's tolerance.
    Passed,
    /// An output differs from the expected one; the text says which output and how.
    Wrong(String),
    /// The model or an input was rejected.
    Refused(Refusal),
    /// The test panicked with this message.
    Panicked(String),
}

/// Reason why a test was not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Operator of the refusal, if there is one.
    pub operator: String,
    /// Reason without names and numbers, so that equal reasons have equal texts.
    pub reason: String,
}

/// Device on which tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One CPU device of one thread.
    Cpu,
    /// Software GPU alone.
    Gpu,
}

impl Target {
    fn options(self) -> SessionConfig {
        match self {
            Self::Cpu => one_cpu().with_threads(NonZeroUsize::MIN),
            Self::Gpu => options("gpu"),
        }
    }
}

/// Returns the tests in a folder of kinds, by name.
///
/// # Errors
/// If the folder cannot be read.
pub fn cases(root: &Path) -> io::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for kind in folders(root)? {
        for folder in folders(&kind)? {
            let name = folder.strip_prefix(root).expect("it was found there").display().to_string();
            cases.push(Case { name, folder });
        }
    }
    cases.sort();
    Ok(cases)
}

fn folders(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let paths: io::Result<Vec<_>> = fs::read_dir(parent)?.map(|entry| Ok(entry?.path())).collect();
    Ok(paths?.into_iter().filter(|path| path.is_dir()).collect())
}

/// Runs tests on `threads` threads, and returns their outcomes in the same order. A test that panics fails alone.
pub fn run(cases: &[Case], target: Target, threads: NonZeroUsize) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Option<Outcome>>> = cases.iter().map(|_| Mutex::default()).collect();
    thread::scope(|scope| {
        for _ in 0..threads.get() {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(case) = cases.get(index)
                {
                    *outcomes[index].lock().expect("nothing panics while it is held") = Some(case.run(target));
                }
            });
        }
    });
    let outcome = |outcome: Mutex<Option<Outcome>>| outcome.into_inner().ok().flatten();
    outcomes.into_iter().map(|slot| outcome(slot).expect("each case is run")).collect()
}

impl Case {
    /// Runs the test with all its data.
    pub fn run(&self, target: Target) -> Outcome {
        match catch_unwind(AssertUnwindSafe(|| self.outcome(target))) {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(outcome)) => outcome,
            Err(payload) => {
                let text = payload.downcast_ref::<String>().cloned();
                let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
                Outcome::Panicked(text.unwrap_or_default())
            }
        }
    }

    /// Returns the inputs of one of the test's data sets.
    fn inputs(&self, set: &Path, session: &Session) -> Result<Inputs, Outcome> {
        let wanted = session.inputs().iter().filter(|input| !input.is_optional());
        let files = |at: usize| Some(set.join(format!("input_{at}.pb"))).filter(|path| path.is_file());
        let mut given = wanted.enumerate().map_while(|(at, info)| Some((info, files(at)?)));
        given.try_fold(Inputs::new(), |all, (info, file)| Ok(all.item(info.name(), item(&file, info.kind())?)))
    }

    fn outcome(&self, target: Target) -> Result<(), Outcome> {
        let session = Session::open(self.folder.join("model.onnx"), target.options()).map_err(|e| refused(&e))?;
        let tolerance = tolerance(&self.folder.join("data.json"));
        let mut sets = folders(&self.folder).expect("the folder is there");
        sets.sort();
        let mut compared = 0;
        for set in sets {
            let inputs = self.inputs(&set, &session)?;
            let outputs = session.run(&inputs).map_err(|e| refused(&e))?;
            for (index, info) in session.outputs().iter().enumerate() {
                let file = set.join(format!("output_{index}.pb"));
                if !file.is_file() {
                    break;
                }
                let found = outputs.item(info.name()).map_err(|error| Outcome::Wrong(error.to_string()))?;
                let same = same(tolerance, &found, &item(&file, info.kind())?);
                same.map_err(|text| Outcome::Wrong(format!("output {index}: {text}")))?;
                compared += 1;
            }
        }
        if compared == 0 { Err(Outcome::Wrong("there is no output to compare".into())) } else { Ok(()) }
    }
}

/// Returns the value of this kind in a file.
fn item(file: &Path, kind: Kind) -> Result<Item, Outcome> {
    let refused = |error: ImportError| Outcome::from(Refusal::of(error.reason()));
    let load = |constant: &Constant| constant.load().map_err(|error| Refusal::of(&error.to_string()).into());
    Ok(match item_in_file(file, kind).map_err(refused)? {
        Item::Tensor(constant) => Item::Tensor(load(&constant)?),
        Item::Sequence(list) => Item::Sequence(Arc::new(list.iter().map(load).collect::<Result<_, Outcome>>()?)),
        Item::Absent => Item::Absent,
    })
}

fn refused(error: &SessionError) -> Outcome {
    let text = error.to_string();
    let text = error.file().and_then(|file| text.strip_prefix(&format!("{}: ", file.display()))).unwrap_or(&text);
    Refusal::of(text).into()
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Refusal {
    /// Parses a refusal's text: errors of a node have its operator in parentheses.
    fn of(text: &str) -> Self {
        let (operator, reason) = match text.split_once("(`").and_then(|(_, rest)| rest.split_once("`)")) {
            Some((operator, reason)) => (operator, reason),
            None => ("", text),
        };
        Self { operator: operator.to_owned(), reason: general(reason) }
    }
}

/// Returns a reason without the parts that differ from test to test: names, numbers, and the hint after the semicolon.
fn general(reason: &str) -> String {
    let reason = reason.trim_start_matches(" is not supported: ").trim_start_matches([':', ' ']);
    let reason = reason.split(';').next().unwrap_or_default();
    let named = reason.split('`').enumerate().map(|(at, part)| if at % 2 == 1 { "…" } else { part });
    let mut general = String::new();
    for symbol in named.collect::<String>().chars() {
        let symbol = if symbol.is_ascii_digit() { '#' } else { symbol };
        if !(symbol == '#' && general.ends_with('#')) {
            general.push(symbol);
        }
    }
    general
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_one_reason_have_one_text() {
        let refusal = Refusal::of("node `n1` (`Foo`) is not supported: an axis of 12 in `x`; 3 others");
        assert_eq!(refusal, Refusal { operator: "Foo".into(), reason: "an axis of # in …".into() });
        let refusal = Refusal::of("/tmp/m.onnx: input `x`: elements of type string are not supported");
        assert_eq!(refusal.operator, "");
    }
}
