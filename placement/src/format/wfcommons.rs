//! Workflows of the WfCommons project: JSON of schema 1.2 to 1.6.
//!
//! From version 1.5 on, `workflow.specification` lists tasks (`id`, `parents`, `children`, `inputFiles`, `outputFiles`)
//! and files (`id`, `sizeInBytes`). `workflow.execution` holds the time of each task (`runtimeInSeconds`). In version
//! 1.4 all of this is part of the tasks in `workflow.tasks`. Their `files` have a `link` that says input or output, and
//! tasks refer to each other by name. Versions 1.2 and 1.3 have `runtime` instead of `runtimeInSeconds`, and `size`
//! instead of `sizeInBytes`, in the same units. Version 1.2 has `workflow.jobs` instead of `workflow.tasks`.
//!
//! A task's operations are the seconds that it took, so a device of speed 1 is like the original machine. Each file and
//! task that writes it make a datum for the file's readers. If several tasks write the file, a reader gets it from the
//! writers that are its parents, and from all writers if none is. If a child reads nothing of a parent, the parent
//! sends it a datum of 0 bytes. Files that no task writes are available everywhere. Data about machines, cores and
//! memory are not used: the memory of a process does not stay on a device after its end.

use super::Refusal;
use super::amount::bytes;
use super::detect::without_byte_order_mark;
use crate::graph::{DatumId, GraphBuilder, Task, TaskGraph, TaskId};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Most pairs of a task that writes a file and a task that reads it.
const MOST_USES: u64 = 1 << 25;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instance {
    schema_version: Option<String>,
    workflow: Workflow,
}

#[derive(Deserialize)]
struct Workflow {
    specification: Option<Specification>,
    execution: Option<Execution>,
    #[serde(alias = "jobs")]
    tasks: Option<Vec<OldTask>>,
}

#[derive(Deserialize)]
struct Specification {
    tasks: Vec<SpecifiedTask>,
    #[serde(default)]
    files: Vec<File>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecifiedTask {
    name: Option<String>,
    id: String,
    #[serde(default)]
    parents: Vec<String>,
    #[serde(default)]
    children: Vec<String>,
    #[serde(default)]
    input_files: Vec<String>,
    #[serde(default)]
    output_files: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    id: String,
    size_in_bytes: f64,
}

#[derive(Deserialize)]
struct Execution {
    tasks: Vec<ExecutedTask>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecutedTask {
    id: String,
    runtime_in_seconds: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldTask {
    name: String,
    id: Option<String>,
    #[serde(default)]
    parents: Vec<String>,
    #[serde(default)]
    children: Vec<String>,
    #[serde(default)]
    files: Vec<OldFile>,
    #[serde(alias = "runtime")]
    runtime_in_seconds: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldFile {
    name: String,
    #[serde(default)]
    path: String,
    #[serde(alias = "size")]
    size_in_bytes: f64,
    link: String,
}

/// Task in either form.
struct Step {
    name: String,
    seconds: f64,
    parents: Vec<String>,
    children: Vec<String>,
    reads: Vec<String>,
    writes: Vec<String>,
}

/// Tasks that write each file, with the datum that each makes of it.
type Written<'a> = BTreeMap<&'a str, Vec<(TaskId, DatumId)>>;

/// Common result of both forms.
struct Steps {
    steps: Vec<Step>,
    /// Tasks by each name that refers to them; `None` if several have the name.
    ids: BTreeMap<String, Option<TaskId>>,
    sizes: BTreeMap<String, f64>,
    /// Path of the tasks in the file.
    place: &'static str,
}

/// Parses a workflow.
///
/// # Errors
/// Returns an error for JSON of another structure, another version, tasks without a run time, or names that are
/// undefined or repeated. Also returns an error for numbers out of range and for a cycle.
pub fn parse(bytes: &[u8]) -> Result<TaskGraph, Refusal> {
    let instance: Instance = serde_json::from_slice(without_byte_order_mark(bytes))?;
    let known = "a schema from 1.2 to 1.6";
    match instance.schema_version.as_deref() {
        Some("1.2" | "1.3" | "1.4" | "1.5" | "1.6") => {}
        Some(found) => return Err(Refusal::Version { found: found.into(), known }),
        None => return Err(Refusal::Unversioned { field: "schemaVersion", known }),
    }
    let steps = match instance.workflow {
        Workflow { specification: Some(specification), execution, .. } => Steps::specified(specification, execution)?,
        Workflow { tasks: Some(tasks), .. } => Steps::old(tasks)?,
        _ => return Err(Refusal::Missing { place: "workflow".into(), what: "specification and no tasks" }),
    };
    steps.build()
}

impl Steps {
    fn new(place: &'static str) -> Self {
        Steps { steps: Vec::new(), ids: BTreeMap::new(), sizes: BTreeMap::new(), place }
    }

    fn specified(specification: Specification, execution: Option<Execution>) -> Result<Self, Refusal> {
        let mut all = Steps::new("workflow.specification.tasks");
        for (number, file) in specification.files.into_iter().enumerate() {
            if all.sizes.insert(file.id.clone(), file.size_in_bytes).is_some() {
                let place = format!("workflow.specification.files[{number}]");
                return Err(Refusal::Twice { place, what: "file", name: file.id });
            }
        }
        let execution = execution
            .ok_or_else(|| Refusal::Missing { place: "workflow".into(), what: "execution, which has the run times" })?;
        let mut seconds = BTreeMap::new();
        for (number, task) in execution.tasks.into_iter().enumerate() {
            if seconds.insert(task.id.clone(), task.runtime_in_seconds).is_some() {
                let place = format!("workflow.execution.tasks[{number}]");
                return Err(Refusal::Twice { place, what: "task", name: task.id });
            }
        }
        for task in specification.tasks {
            let missing = || Refusal::Missing { place: format!("task {:?}", task.id), what: "run time" };
            let seconds = seconds.get(&task.id).copied().ok_or_else(missing)?;
            all.name(&task.id)?;
            all.steps.push(Step {
                name: task.name.unwrap_or(task.id),
                seconds,
                parents: task.parents,
                children: task.children,
                reads: task.input_files,
                writes: task.output_files,
            });
        }
        Ok(all)
    }

    fn old(tasks: Vec<OldTask>) -> Result<Self, Refusal> {
        let mut all = Steps::new("workflow.tasks");
        for task in tasks {
            let missing = || Refusal::Missing { place: format!("task {:?}", task.name), what: "run time" };
            let seconds = task.runtime_in_seconds.ok_or_else(missing)?;
            all.name_loosely(&task.name);
            if let Some(id) = task.id.filter(|id| *id != task.name) {
                all.name_loosely(&id);
            }
            let (mut reads, mut writes) = (Vec::new(), Vec::new());
            for file in task.files {
                let name = file.path + &file.name;
                all.sizes.entry(name.clone()).or_insert(file.size_in_bytes);
                if file.link.eq_ignore_ascii_case("input") { reads.push(name) } else { writes.push(name) }
            }
            let (parents, children) = (task.parents, task.children);
            all.steps.push(Step { name: task.name, seconds, parents, children, reads, writes });
        }
        Ok(all)
    }

    /// Gives the next step the name `id`, which must be unique.
    fn name(&mut self, id: &str) -> Result<(), Refusal> {
        let next = TaskId(self.steps.len() as u32);
        match self.ids.insert(id.into(), Some(next)) {
            None => Ok(()),
            Some(_) => {
                Err(Refusal::Twice { place: format!("{}[{}]", self.place, next.0), what: "task", name: id.into() })
            }
        }
    }

    /// Gives the next step the name `name`, which may become ambiguous.
    fn name_loosely(&mut self, name: &str) {
        let next = TaskId(self.steps.len() as u32);
        self.ids.entry(name.into()).and_modify(|known| *known = None).or_insert(Some(next));
    }

    fn look_up(&self, number: usize, name: &str) -> Result<TaskId, Refusal> {
        let place = || format!("{}[{number}]", self.place);
        match self.ids.get(name) {
            Some(Some(id)) => Ok(*id),
            Some(None) => Err(Refusal::Twice { place: place(), what: "task", name: name.into() }),
            None => Err(Refusal::Unknown { place: place(), what: "task", name: name.into() }),
        }
    }

    fn build(self) -> Result<TaskGraph, Refusal> {
        let mut builder = GraphBuilder::new();
        for step in &self.steps {
            builder.task(Task::new(&step.name).with_operations(step.seconds));
        }
        let links = self.links()?;
        let written = self.add_written(&mut builder)?;
        self.check_uses(&written)?;
        let mut served = BTreeSet::new();
        for (number, step) in self.steps.iter().enumerate() {
            let reader = TaskId(number as u32);
            for file in &step.reads {
                self.size(number, file)?;
                let writers = written.get(file.as_str()).map_or(&[][..], Vec::as_slice);
                let is_parent = |&&(writer, _): &&(TaskId, DatumId)| links.contains(&(writer, reader));
                let any_parent = writers.iter().any(|pair| is_parent(&pair));
                for &(writer, datum) in writers.iter().filter(|pair| !any_parent || is_parent(pair)) {
                    if writer != reader {
                        builder.consume(datum, reader);
                        served.insert((writer, reader));
                    }
                }
            }
        }
        let mut signals = BTreeMap::new();
        for &(parent, child) in links.difference(&served) {
            let signal = *signals.entry(parent).or_insert_with(|| builder.datum(parent, 0));
            builder.consume(signal, child);
        }
        Ok(builder.build()?)
    }

    /// Returns every pair of a parent and its child, whether the parent or the child names the other.
    fn links(&self) -> Result<BTreeSet<(TaskId, TaskId)>, Refusal> {
        let mut links = BTreeSet::new();
        for (number, step) in self.steps.iter().enumerate() {
            let task = TaskId(number as u32);
            for parent in &step.parents {
                links.insert((self.look_up(number, parent)?, task));
            }
            for child in &step.children {
                links.insert((task, self.look_up(number, child)?));
            }
        }
        Ok(links)
    }

    /// Makes a datum of every file and task that writes it, and lists them by file.
    fn add_written(&self, builder: &mut GraphBuilder) -> Result<Written<'_>, Refusal> {
        let mut written = Written::new();
        for (number, step) in self.steps.iter().enumerate() {
            let writer = TaskId(number as u32);
            for file in &step.writes {
                let size = self.size(number, file)?;
                let writers = written.entry(file).or_default();
                // All entries of a task are consecutive.
                if writers.last().is_none_or(|&(last, _)| last != writer) {
                    writers.push((writer, builder.datum(writer, size)));
                }
            }
        }
        Ok(written)
    }

    /// Refuses files with so many writers and readers that their pairs would fill the memory.
    fn check_uses(&self, written: &Written<'_>) -> Result<(), Refusal> {
        let files = self.steps.iter().flat_map(|step| &step.reads);
        let writers = files.filter_map(|file| written.get(file.as_str())).map(|writers| writers.len() as u64);
        let count = writers.fold(0, u64::saturating_add);
        if count > MOST_USES {
            return Err(Refusal::TooMany { what: "pairs of a writer and a reader", count, limit: MOST_USES });
        }
        Ok(())
    }

    fn size(&self, number: usize, file: &str) -> Result<u64, Refusal> {
        let place = || format!("{}[{number}]", self.place);
        let unknown = || Refusal::Unknown { place: place(), what: "file", name: file.into() };
        let size = self.sizes.get(file).copied().ok_or_else(unknown)?;
        bytes(size, 1.0, || format!("size of file {file:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = include_str!("../../tests/data/formats/workflow_1.6.json");
    const OLDEST: &str = include_str!("../../tests/data/formats/workflow_1.2.json");
    const OLD: &str = include_str!("../../tests/data/formats/workflow_1.4.json");

    /// Version 1.3 has the tasks of version 1.4 and the members of version 1.2.
    #[test]
    fn older_versions_have_other_names_for_the_same() {
        let new = parse(NEW.as_bytes()).unwrap();
        assert_eq!(parse(OLDEST.as_bytes()).unwrap(), new);
        let third = OLDEST.replace("\"1.2\"", "\"1.3\"").replace("\"jobs\"", "\"tasks\"");
        assert_eq!(parse(third.as_bytes()).unwrap(), new);
        let both = OLDEST.replace("\"runtime\": 10,", "\"runtime\": 10, \"runtimeInSeconds\": 10,");
        assert!(parse(both.as_bytes()).unwrap_err().to_string().contains("duplicate field"));
    }

    /// Both files describe one graph: split → left, right → join, without a file from split to right.
    #[test]
    fn both_forms_give_the_same_graph() {
        let [new, old] = [NEW, OLD].map(|text| parse(text.as_bytes()).unwrap());
        assert_eq!(new, old);
        let names: Vec<&str> = new.tasks().iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["split", "left", "right", "join"]);
        assert_eq!(new.tasks().iter().map(|task| task.operations).collect::<Vec<_>>(), [4.25, 10.0, 12.5, 1.0]);
        let data = |task: u32| {
            let outputs = new.outputs(TaskId(task)).iter();
            outputs.map(|&datum| (new.bytes(datum), new.consumers(datum).to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(data(0), [(512, vec![TaskId(1)]), (0, vec![TaskId(2)])]);
        assert_eq!(data(1), [(64, vec![TaskId(3)])]);
        assert_eq!(data(3), [(128, vec![])]);
    }

    #[test]
    fn a_file_of_several_writers_comes_from_parents() {
        let text = "{\"schemaVersion\": \"1.5\", \"workflow\": {\"specification\": {\"tasks\": [{\"id\": \"a\", \"children\": [\"c\"], \
                    \"outputFiles\": [\"log\", \"log\"]}, {\"id\": \"b\", \"outputFiles\": [\"log\"]}, {\"id\": \"c\", \
                    \"inputFiles\": [\"log\"], \"outputFiles\": [\"log\"]}, {\"id\": \"d\", \"inputFiles\": [\"log\"]}], \"files\": \
                    [{\"id\": \"log\", \"sizeInBytes\": 7}]}, \"execution\": {\"tasks\": [{\"id\": \"a\", \"runtimeInSeconds\": 1}, \
                    {\"id\": \"b\", \"runtimeInSeconds\": 1}, {\"id\": \"c\", \"runtimeInSeconds\": 1}, {\"id\": \"d\", \
                    \"runtimeInSeconds\": 1}]}}}";
        let graph = parse(text.as_bytes()).unwrap();
        assert_eq!(graph.predecessors(TaskId(2)), [TaskId(0)]);
        assert_eq!(graph.predecessors(TaskId(3)), [0, 1, 2].map(TaskId));
        assert_eq!(graph.datum_count(), 3);
    }

    #[test]
    fn a_file_of_too_many_writers_and_readers_is_refused() {
        let (mut tasks, mut times) = (Vec::new(), Vec::new());
        for number in 0..6000 {
            tasks.push(format!("{{\"id\": \"w{number}\", \"outputFiles\": [\"log\"]}}"));
            tasks.push(format!("{{\"id\": \"r{number}\", \"inputFiles\": [\"log\"]}}"));
            times.extend(["w", "r"].map(|kind| format!("{{\"id\": \"{kind}{number}\", \"runtimeInSeconds\": 1}}")));
        }
        let text = format!(
            "{{\"schemaVersion\": \"1.5\", \"workflow\": {{\"specification\": {{\"tasks\": [{}], \"files\": [{{\"id\": \"log\", \
             \"sizeInBytes\": 7}}]}}, \"execution\": {{\"tasks\": [{}]}}}}}}",
            tasks.join(", "),
            times.join(", ")
        );
        let error = parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("36000000 pairs of a writer and a reader"), "{error}");
    }

    #[test]
    fn a_file_that_occurs_twice_is_refused() {
        let files = NEW.replacen(
            "\"files\": [",
            "\"files\": [{\"id\": \"twice\", \"sizeInBytes\": 1}, {\"id\": \"twice\", \"sizeInBytes\": 2}, ",
            1,
        );
        assert_ne!(files, NEW);
        let error = parse(files.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("workflow.specification.files[1]: the file \"twice\" occurs twice"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            (NEW, "\"1.6\"", "\"1.1\"", "version 1.1"),
            (NEW, "\"schemaVersion\"", "\"version\"", "has no `schemaVersion`, but must have a schema from 1.2"),
            (NEW, "\"id\": \"ID2\", \"runtime", "\"id\": \"ID9\", \"runtime", "task \"ID2\" has no run time"),
            (
                NEW,
                "\"parents\": [\"ID1\"]",
                "\"parents\": [\"ID7\"]",
                "workflow.specification.tasks[1] names the task \"ID7\"",
            ),
            (
                NEW,
                "\"id\": \"chunk\", \"sizeInBytes\": 512",
                "\"id\": \"x\", \"sizeInBytes\": 512",
                "the file \"chunk\"",
            ),
            (NEW, "512", "-512", "size of file \"chunk\" is -512"),
            (NEW, "4.25", "-4.25", "-4.25 operations"),
            (NEW, "\"execution\"", "\"executed\"", "no execution"),
            (NEW, "\"specification\"", "\"specified\"", "no specification"),
            (OLD, "\"runtimeInSeconds\": 4.25, ", "", "task \"split\" has no run time"),
            (OLD, "\"name\": \"right\"", "\"name\": \"left\"", "the task \"left\" occurs twice"),
            (OLD, "\"parents\": []", "\"parents\": [\"join\"]", "cycle"),
        ];
        for (text, from, to, expected) in cases {
            assert!(text.contains(from), "{from}");
            let error = parse(text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
