//! Flows whose functions are Python's. The workers of a run call them one at a time under the interpreter's lock, which
//! is released wherever the function releases it.

use super::failure::{Failure, Result};
use super::work::watched;
use anabranch::flow::{Allocation, Flow, FlowError, FlowOptions, FlowReport, Links, Output, Scheduler, WorkerConfig};
use anabranch_report::show::{flow_chart, flow_trace};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};
use serde::Deserialize;
use serde_json::json;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

/// Operand of a flow. Readers share it: it can be passed on without the interpreter's lock.
type Operand = Arc<Py<PyAny>>;

/// A node as `anabranch.flow` declares it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Declared {
    kind: String,
    name: String,
    /// A function, a source's iterator, or a feeder's operand.
    does: Py<PyAny>,
    /// Numbers of the nodes that it reads.
    reads: Vec<usize>,
    weight: f64,
    pin: Option<u32>,
    machine: Option<u32>,
    bytes: Option<u64>,
}

/// Processes of other machines that call the functions, one per worker.
#[derive(Deserialize)]
pub(crate) struct Cluster {
    workers: Vec<u32>,
    same_machine: (f64, f64),
    other_machine: (f64, f64),
}

impl Cluster {
    pub(crate) fn worker_config(&self) -> Result<WorkerConfig> {
        let links = Links { same_machine: self.same_machine, other_machine: self.other_machine };
        Ok(WorkerConfig::of_machines(&self.workers)?.with_links(links))
    }
}

/// Options for placing and running a flow, from JSON.
#[derive(Deserialize)]
struct Options {
    workers: Option<u32>,
    machines: Option<u32>,
    /// Workers of each machine, and the links within and between machines, instead of `workers` and `machines`.
    cluster: Option<Cluster>,
    scheduler: String,
    /// Strategy for placing.
    place: String,
    /// Workers of all nodes in their order, instead of a strategy.
    allocation: Option<Vec<(String, u32)>>,
    window: Option<usize>,
    iterations: Option<u64>,
    profile: bool,
}

impl Options {
    /// Returns the workers. They are not pinned to cores: processes that functions start would be pinned, too.
    fn worker_config(&self) -> Result<WorkerConfig> {
        if let Some(cluster) = &self.cluster {
            return cluster.worker_config();
        }
        Ok(WorkerConfig::shared_out(self.workers, Some(self.machines.unwrap_or(1)))?)
    }
}

/// A finished run.
#[pyclass(frozen)]
pub(crate) struct FlowRun {
    report: FlowReport,
    scheduler: Scheduler,
}

#[pymethods]
impl FlowRun {
    /// Returns the report as JSON.
    fn data(&self) -> String {
        json!(self.report).to_string()
    }

    /// Returns each worker's activity over time, as SVG.
    fn svg(&self) -> String {
        flow_chart("flow", self.scheduler, &self.report)
    }

    /// Returns each worker's activity over time, in Chrome's trace format.
    fn trace(&self, py: Python<'_>) -> PyResult<String> {
        flow_trace(&self.report).map_err(|error| Failure::internal(error).raise(py))
    }
}

/// Returns the worker that a strategy assigns to each node, by name.
#[pyfunction]
pub(crate) fn place_flow(py: Python<'_>, nodes: Vec<Declared>, options: &str) -> PyResult<Vec<(String, u32)>> {
    watched(
        py,
        || (),
        None,
        |_| {
            let options: Options = serde_json::from_str(options).map_err(Failure::argument)?;
            let allocation = built(nodes, &Raised::default())?.place(&options.place, &options.worker_config()?)?;
            Ok(allocation.nodes().map(|(name, worker)| (name.to_owned(), worker)).collect())
        },
    )
}

/// Runs a flow. An exception of a function is raised here, with a note of node and iteration.
#[pyfunction]
pub(crate) fn run_flow(py: Python<'_>, nodes: Vec<Declared>, options: &str) -> PyResult<FlowRun> {
    let (token, raised) = (anabranch::CancelToken::new(), Raised::default());
    let run = || -> Result<_> {
        let options: Options = serde_json::from_str(options).map_err(Failure::argument)?;
        let flow = built(nodes, &raised)?;
        let (worker_config, scheduler) = (options.worker_config()?, scheduler(&options.scheduler)?);
        let allocation = match &options.allocation {
            Some(nodes) => Some(Allocation::new(nodes.iter().cloned())),
            None if scheduler.is_local() => Some(flow.place(&options.place, &worker_config)?),
            None => None,
        };
        let mut how =
            FlowOptions::default().with_workers(worker_config).with_scheduler(scheduler).with_cancel(token.clone());
        how = how.with_profile(options.profile);
        how = options.iterations.into_iter().fold(how, FlowOptions::with_iterations);
        how = options.window.into_iter().fold(how, FlowOptions::with_window);
        how = allocation.into_iter().fold(how, FlowOptions::with_allocation);
        Ok(flow.run(&how).map(|report| FlowRun { report, scheduler }))
    };
    match watched(py, || token.cancel(), None, |_| run())? {
        Ok(run) => Ok(run),
        Err(FlowError::Panicked { node, iteration, message }) => match raised.take(&message) {
            Some(error) => {
                let note = format!("in node {node:?} of the flow, iteration {iteration}");
                // If the exception takes no note, it is raised without.
                let _ = error.value(py).call_method1("add_note", (note,));
                Err(error)
            }
            None => Err(Failure::internal(message).raise(py)),
        },
        Err(error) => Err(Failure::from(error).raise(py)),
    }
}

/// Returns the number of the worker that calls the function of a node.
#[pyfunction]
pub(crate) fn flow_worker() -> Option<u32> {
    anabranch::flow::current_worker()
}

pub(crate) fn scheduler(name: &str) -> Result<Scheduler> {
    Scheduler::ALL.into_iter().find(|scheduler| scheduler.name() == name).ok_or_else(|| {
        let names = Scheduler::ALL.map(Scheduler::name).join(", ");
        Failure::argument(format_args!("there is no scheduler {name:?}; the schedulers are {names}"))
    })
}

/// Builds the flow of these nodes.
fn built(nodes: Vec<Declared>, raised: &Raised) -> Result<Flow<'static>> {
    let mut flow = Flow::new();
    let mut outputs: Vec<Output<'static, Operand>> = Vec::new();
    for node in nodes {
        let Declared { kind, name, does, reads, weight, pin, machine, bytes } = node;
        let read = |number: &usize| outputs.get(*number).cloned();
        let reads: Vec<_> = reads.iter().map(read).collect::<Option<_>>().ok_or_else(|| {
            Failure::argument(format_args!("node {name:?} reads a node that is not declared before; declare it first"))
        })?;
        let (function, reads) = (Function { does, raised: raised.clone() }, &reads[..]);
        let output = match &*kind {
            "source" => flow.source(name, Items(function)),
            "feeder" => flow.feeder(name, Arc::new(function.does)),
            "filter" => flow.filter(name, reads, move |operands| function.filter(operands)),
            "serializer" => flow.serializer(name, reads, move |operands| function.call(operands)),
            _ => flow.node(name, reads, move |operands| function.call(operands)),
        };
        let output = bytes.into_iter().fold(output.weight(weight), Output::bytes);
        let output = pin.into_iter().fold(output, Output::pin);
        outputs.push(machine.into_iter().fold(output, Output::machine));
    }
    Ok(flow)
}

/// Exceptions that the functions of a run have raised.
#[derive(Clone, Default)]
struct Raised(Arc<Mutex<Vec<PyErr>>>);

impl Raised {
    /// Ends the node: keeps the exception under a number, which is the panic's message.
    fn unwind(&self, error: PyErr) -> ! {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(error);
        let number = all.len() - 1;
        drop(all);
        resume_unwind(Box::new(number.to_string()))
    }

    /// Takes the exception whose number is the panic's message.
    fn take(&self, message: &str) -> Option<PyErr> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = message.parse().ok().filter(|number: &usize| *number < all.len())?;
        Some(all.swap_remove(number))
    }
}

/// A Python function or iterator.
struct Function {
    does: Py<PyAny>,
    raised: Raised,
}

impl Function {
    fn call(&self, operands: Vec<Operand>) -> Operand {
        Arc::new(self.attached(|py| self.returned(py, operands)))
    }

    /// Calls the function; `None` means that there is no operand.
    fn filter(&self, operands: Vec<Operand>) -> Option<Operand> {
        self.attached(|py| Ok(Some(self.returned(py, operands)?).filter(|made| !made.is_none(py)))).map(Arc::new)
    }

    /// Calls the function. Drops operands without other readers while the lock is held.
    fn returned(&self, py: Python<'_>, operands: Vec<Operand>) -> PyResult<Py<PyAny>> {
        let arguments = PyTuple::new(py, operands.iter().map(|operand| operand.bind(py)))?;
        drop(operands);
        self.does.call1(py, arguments)
    }

    /// Does work under the interpreter's lock.
    fn attached<T>(&self, work: impl FnOnce(Python<'_>) -> PyResult<T>) -> T {
        match Python::try_attach(work) {
            Some(Ok(made)) => made,
            Some(Err(error)) => self.raised.unwind(error),
            None => resume_unwind(Box::new("the interpreter ends".to_owned())),
        }
    }
}

/// Items of a source.
struct Items(Function);

impl Iterator for Items {
    type Item = Operand;

    fn next(&mut self) -> Option<Operand> {
        let Self(function) = self;
        let item = function.attached(|py| {
            let mut items = function.does.bind(py).cast::<PyIterator>()?.clone();
            Ok(items.next().transpose()?.map(Bound::unbind))
        });
        item.map(Arc::new)
    }
}
