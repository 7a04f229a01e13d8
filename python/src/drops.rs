//! Graphs of commands and files whose commands are run by Python: a process of each worker runs them.

use super::failure::{Failure, Result};
use super::flow::{Cluster, scheduler};
use super::work::{CancelToken, released, watched};
use anabranch::drops::{Naming, PreparedRecipe, Recipe, read};
use anabranch::flow::FlowOptions;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Options for a graph, from JSON.
#[derive(Deserialize)]
struct Options {
    directory: PathBuf,
    cluster: Cluster,
    scheduler: String,
    /// Strategy for placing.
    place: String,
    fresh: bool,
    outside: bool,
}

/// Runs a command, and waits for its end. Returns the reason if it has not ended well.
#[pyfunction]
pub(crate) fn run_command(
    py: Python<'_>,
    command: &str,
    directory: &str,
    id: &str,
    token: &CancelToken,
) -> PyResult<Option<String>> {
    let work = || Ok(anabranch::drops::run_command(command, Path::new(directory), id, &token.0).err());
    released(py, work)
}

/// Runs a graph. `shell` is called with a command, the directory and the application's id, and returns the reason if
/// the command has not ended well. Returns the outcome as JSON.
#[pyfunction]
pub(crate) fn run_graph(
    py: Python<'_>,
    graph: PathBuf,
    options: &str,
    shell: Py<PyAny>,
    token: &CancelToken,
) -> PyResult<String> {
    let token = token.0.clone();
    let call = |command: &str, directory: &Path, id: &str| {
        let call = |py: Python<'_>| {
            let told = shell.call1(py, (command, directory.to_string_lossy(), id))?;
            told.extract::<Option<String>>(py)
        };
        match Python::try_attach(call) {
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some(text))) => Err(text),
            Some(Err(error)) => Err(Python::attach(|py| error.value(py).to_string())),
            None => Err("the interpreter ends".to_owned()),
        }
    };
    let run = || -> Result<String> {
        let options: Options = serde_json::from_str(options).map_err(Failure::argument)?;
        let stem = graph.file_stem().unwrap_or_default().to_string_lossy();
        let in_file = |error: &dyn std::fmt::Display| Failure::argument(format_args!("{}: {error}", graph.display()));
        let physical = read(&graph).map_err(|error| in_file(&error))?;
        let naming = Naming::of(&stem).with_outside(options.outside);
        let recipe = Recipe::new(&physical, &naming).map_err(|error| in_file(&error))?;
        let prepared = PreparedRecipe::new(&recipe, &options.directory, options.fresh, &token)?;
        prepared.keeps(&graph)?;
        let prepared = prepared.with_shell(Box::new(&call));
        let (worker_config, scheduler) = (options.cluster.worker_config()?, scheduler(&options.scheduler)?);
        let outcome = prepared.run(&token, &|_| (), |flow| {
            let how = FlowOptions::default().with_workers(worker_config.clone()).with_scheduler(scheduler);
            Ok::<_, Failure>(match scheduler.is_local() {
                true => how.with_allocation(flow.place(&options.place, &worker_config)?),
                false => how,
            })
        })?;
        let failure = |failed: &anabranch::drops::Failed| {
            json!({ "drop": failed.drop, "why": failed.why, "dependents": failed.dependents,
                "dependent_count": failed.dependent_count })
        };
        Ok(json!({
            "drops": outcome.drops, "ran": outcome.ran(), "kept": outcome.kept(), "cancelled": outcome.is_cancelled,
            "failures": outcome.failures().iter().map(failure).collect::<Vec<_>>(), "flow": outcome.flow,
        })
        .to_string())
    };
    watched(py, || token.cancel(), None, |_| run())
}
