//! A physical graph that can be run: the work of each application, the place of each datum, and a topological order.

use super::command::{Operand, assembled, expanded};
use super::function::{Function, KNOWN};
use super::names::Naming;
use super::{DropsError, refused};
use anabranch_base::files;
use anabranch_base::quoted::Name;
use anabranch_placement::format::{Format, detect};
use anabranch_placement::logical::{Drop, DropKind, PhysicalGraph, parse, parse_template};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A graph whose drops are known and named, ready to be run in any directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    pub(super) nodes: Vec<Node>,
    /// Indices of all nodes, each after the nodes that it reads.
    pub(super) order: Vec<usize>,
    pub(super) naming: Naming,
}

/// A drop.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) id: String,
    /// Name of the drop in the graph.
    pub(super) name: String,
    pub(super) category: String,
    /// Seconds, as given by the graph.
    pub(super) time: f64,
    /// Bytes of data, as given by the graph.
    pub(super) volume: u64,
    pub(super) kind: Kind,
    /// Indices of its inputs: data of an application, and the application of data.
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A file, relative to the directory unless it is outside.
    File(PathBuf),
    /// Bytes in memory: their content if no application makes them, and their file for commands that need one.
    Memory(Vec<u8>, PathBuf),
    /// No content. Its reader only comes after its writer.
    Null,
    /// A shell command.
    Command(String),
    Function(Function),
}

impl Kind {
    pub(super) fn is_application(&self) -> bool {
        matches!(self, Kind::Command(_) | Kind::Function(_))
    }

    /// Path of data while commands read and write them.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Kind::File(path) | Kind::Memory(_, path) => Some(path),
            _ => None,
        }
    }
}

impl Node {
    /// Returns its name with its id, which no other node has.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.name, self.id)
    }

    /// Returns a checksum of its work: the command or function, and the outputs' paths.
    pub(super) fn work(&self, recipe: &Recipe) -> String {
        let what = match &self.kind {
            Kind::Command(command) => command.clone(),
            kind => format!("{kind:?}"),
        };
        let outputs = self.outputs.iter().map(|&output| format!("{:?}", recipe.nodes[output].kind.path()));
        let texts: Vec<String> = std::iter::once(what).chain(outputs).collect();
        super::content::sum_of_texts(texts.iter().map(String::as_str))
    }
}

/// Reads the drops of a logical graph, or of a physical graph template.
///
/// # Errors
/// If the file cannot be read, or is not such a graph.
pub fn read(path: &Path) -> Result<PhysicalGraph, String> {
    let bytes = files::read(path, files::MOST_BYTES).map_err(|error| error.to_string())?;
    let is_list =
        bytes.iter().find(|byte| !byte.is_ascii_whitespace() && !b"\xef\xbb\xbf".contains(byte)) == Some(&b'[');
    if is_list {
        return parse_template(&bytes).map_err(|error| error.to_string());
    }
    match detect(&bytes).map_err(|error| error.to_string())? {
        Format::Logical => {
            let name = path.display().to_string();
            parse(&name, &bytes).and_then(|graph| graph.unroll()).map_err(|error| error.to_string())
        }
        _ => Err("has the costs of tasks but not their commands; use `anabranch simulate`, or run a logical graph of \
                  DALiuGE"
            .to_owned()),
    }
}

impl Recipe {
    /// Makes the recipe of a graph. `O(bytes of the graph)`.
    ///
    /// # Errors
    /// If applications or data are unknown: their names. If commands are missing, or name inputs and outputs that do
    /// not exist. If files may not be used, or two drops write them. If data have several writers.
    pub fn new(graph: &PhysicalGraph, naming: &Naming) -> Result<Self, DropsError> {
        let count = graph.drops().len();
        let (mut inputs, mut outputs) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for &(from, to) in graph.links() {
            outputs[from].push(to);
            inputs[to].push(from);
        }
        let node = |((drop, inputs), outputs): ((&Drop, Vec<usize>), Vec<usize>)| {
            let kind = match drop.kind {
                DropKind::Data => data(drop, naming)?,
                DropKind::Application => application(drop)?,
            };
            if drop.kind == DropKind::Data && inputs.len() > 1 {
                let writers = inputs.len();
                let told = Name(&drop.name);
                return refused(format!(
                    "drop {told} is written by {writers} applications; give each application its own drop"
                ));
            }
            let (time, volume) = (drop.time, drop.volume);
            Ok(Node {
                id: drop.id.clone(),
                name: drop.name.clone(),
                category: drop.category.clone(),
                time,
                volume,
                kind,
                inputs,
                outputs,
            })
        };
        let nodes = graph.drops().iter().zip(inputs).zip(outputs).map(node).collect::<Result<Vec<Node>, _>>()?;
        let mut recipe = Recipe { order: order(&nodes), nodes, naming: naming.clone() };
        recipe.refuse_shared_files()?;
        recipe.expand_commands()?;
        Ok(recipe)
    }

    /// Number of applications.
    pub fn application_count(&self) -> usize {
        self.nodes.iter().filter(|node| node.kind.is_application()).count()
    }

    /// Number of drops.
    pub fn drop_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of links between them.
    pub fn link_count(&self) -> usize {
        self.nodes.iter().map(|node| node.inputs.len()).sum()
    }

    /// Returns the application that makes a datum.
    pub(super) fn maker(&self, data: usize) -> Option<usize> {
        self.nodes[data].inputs.first().copied()
    }

    /// Checks that each file has at most one writer. It may have many readers under several names.
    fn refuse_shared_files(&self) -> Result<(), DropsError> {
        let mut files: BTreeMap<&Path, usize> = BTreeMap::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let Some(path) = node.kind.path() else { continue };
            let Some(other) = files.insert(path, place) else { continue };
            if self.maker(place).or(self.maker(other)).is_some() {
                let (one, other, path) = (self.nodes[other].label(), node.label(), path.to_string_lossy());
                return refused(format!(
                    "drops {} and {} have the same file, {}; put {{uid}} or {{index}} into its path",
                    Name(&one),
                    Name(&other),
                    Name(&path)
                ));
            }
        }
        Ok(())
    }

    fn expand_commands(&mut self) -> Result<(), DropsError> {
        for place in 0..self.nodes.len() {
            let node = &self.nodes[place];
            let Kind::Command(command) = &node.kind else { continue };
            let operand = |&place: &usize| {
                let node = &self.nodes[place];
                Operand { id: &node.id, path: node.kind.path().map(Path::to_owned) }
            };
            let (inputs, outputs): (Vec<_>, Vec<_>) =
                (node.inputs.iter().map(operand).collect(), node.outputs.iter().map(operand).collect());
            match expanded(command, &inputs, &outputs) {
                Ok(command) => self.nodes[place].kind = Kind::Command(command),
                Err(why) => return refused(format!("the command of {}: {why}", Name(&node.label()))),
            }
        }
        Ok(())
    }
}

/// Returns the first of some fields that has a value.
fn field<'d>(drop: &'d Drop, names: &[&str]) -> Option<&'d str> {
    let said = names.iter().filter_map(|name| drop.fields.get(*name)).map(|text| text.trim());
    said.into_iter().find(|text| !text.is_empty() && *text != "None")
}

/// Returns the last part of the class that DALiuGE would give a drop, or its category if the graph names no class.
fn class(drop: &Drop) -> &str {
    let said = field(drop, &["dropclass", "appclass", "Appclass", "Application Class", "Application class", "app"]);
    said.and_then(|class| class.rsplit('.').next()).unwrap_or(&drop.category)
}

fn data(drop: &Drop, naming: &Naming) -> Result<Kind, DropsError> {
    let category = if drop.category == "Data" { class(drop) } else { &drop.category };
    match category {
        "File" | "file" | "FileDROP" => {
            Ok(Kind::File(naming.file(drop, field(drop, &["filepath", "File Path", "File path"]))?))
        }
        "Memory" | "memory" | "SharedMemory" | "InMemoryDROP" | "SharedMemoryDROP" => {
            let bytes = field(drop, &["pydata"]).unwrap_or_default().as_bytes().to_vec();
            Ok(Kind::Memory(bytes, naming.memory(drop)))
        }
        "Null" | "null" | "NullDROP" => Ok(Kind::Null),
        other => refused(format!(
            "drop {} holds {}, which is not supported; use File, Memory, SharedMemory or Null",
            Name(&drop.name),
            Name(other)
        )),
    }
}

fn application(drop: &Drop) -> Result<Kind, DropsError> {
    let class = match drop.category.as_str() {
        category @ ("BashShellApp" | "GroupBy") => category,
        _ => class(drop),
    };
    let told = Name(&drop.name);
    if class == "BashShellApp" {
        return match assembled(&drop.fields) {
            Some(command) => Ok(Kind::Command(command)),
            None => refused(format!("application {told} has no command; give it one in its field `command`")),
        };
    }
    match Function::of(class, |names| field(drop, names)) {
        Ok(Some(function)) => Ok(Kind::Function(function)),
        Ok(None) => refused(format!(
            "application {told} is {}, which is not supported; use BashShellApp with a command, or {KNOWN}",
            Name(class)
        )),
        Err(why) => refused(format!("application {told}: {why}")),
    }
}

/// Returns all nodes, each after the nodes that it reads. A physical graph has no cycles.
fn order(nodes: &[Node]) -> Vec<usize> {
    let mut missing: Vec<usize> = nodes.iter().map(|node| node.inputs.len()).collect();
    let mut order: Vec<usize> = (0..nodes.len()).filter(|&place| missing[place] == 0).collect();
    let mut next = 0;
    while let Some(&place) = order.get(next) {
        next += 1;
        for &reader in &nodes[place].outputs {
            missing[reader] -= 1;
            if missing[reader] == 0 {
                order.push(reader);
            }
        }
    }
    order
}
