//! Builds a [`Model`] from a decoded file: values get indices, all rules of a graph are checked, and nodes are sorted.

use super::declared::{Declared, declared_input, declared_output, has_labels};
use super::error::{ImportError, Name, Result};
use super::functions::Functions;
use super::labels::{self, Labels};
use super::model::{Input, Kind, Model, Node, Output, ValueIndex};
use super::parameters;
use super::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto, data_type};
use super::sort::Needs;
use super::subgraph::check_branches;
use super::tensor::TensorReader;
use crate::part::Part;
use anabranch_ir::constant::Constant;
use anabranch_ir::names::Names;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Supported versions of the standard operators.
pub const OPSETS: std::ops::RangeInclusive<i64> = 1..=28;

/// Domain of classical machine learning, and the supported versions of its operators.
const ML: (&str, std::ops::RangeInclusive<i64>) = ("ai.onnx.ml", 1..=5);

/// Builds the model that `proto` describes.
///
/// O(nodes log nodes + values), plus the tensors' bytes. If `problems` are gathered instead of fatal, faulty parts are
/// left out; a faulty node stays, with its operator alone.
pub(super) fn build(proto: &ModelProto, tensors: &mut TensorReader<'_>, problems: &mut Problems) -> Result<Model> {
    let graph = proto
        .graph
        .as_ref()
        .ok_or_else(|| ImportError::malformed("holds no graph; check that the file is complete, or export it again"))?;
    let opsets = match opsets(proto, graph) {
        Ok(opsets) => opsets,
        Err(problem) => {
            problems.note(Err(problem))?;
            BTreeMap::from([(String::new(), *OPSETS.end())])
        }
    };
    let mut builder = Builder::new(opsets, Functions::of(proto, tensors.limits()));
    for tensor in &graph.initializer {
        if tensor.data_type == data_type::STRING {
            problems.note(builder.texts(tensor))?;
            continue;
        }
        problems.note(builder.initializer(&tensor.name, || tensors.read_constant(tensor)))?;
    }
    for sparse in &graph.sparse_initializer {
        let name = sparse.values.as_ref().map_or("", |values| &values.name);
        problems.note(builder.initializer(name, || tensors.read_sparse(sparse).map(Constant::from)))?;
    }
    for input in &graph.input {
        problems.note(builder.input(input))?;
    }
    for node in &graph.node {
        problems.note(builder.node(node, tensors))?;
    }
    for output in &graph.output {
        problems.note(builder.output(output))?;
    }
    match builder.order(|_| true) {
        // A reader of a part that was left out is not a problem of its own.
        Err(_) if problems.any() => {}
        ordered => problems.note(ordered)?,
    }
    problems.note(labels::resolve(&mut builder.nodes, &mut builder.outputs, std::mem::take(&mut builder.labels)))?;
    for output in graph.output.iter().filter(|output| has_labels(output)) {
        let labelled = |own: &Output| own.name == output.name && own.labels.is_some();
        if !builder.outputs.iter().any(labelled) {
            problems.note(declared_output(output).map(|_| ()).map_err(|error| error.of("output", &output.name)))?;
        }
    }
    problems.note(apart(builder.inputs.iter().map(|input| (&*input.name, input.kind)), "input"))?;
    problems.note(apart(builder.outputs.iter().map(|output| (&*output.name, output.kind)), "output"))?;
    Ok(Model {
        name: graph.name.clone(),
        producer: format!("{} {}", proto.producer_name, proto.producer_version).trim().to_owned(),
        opsets: builder.opsets,
        values: unique(builder.values),
        inputs: builder.inputs,
        outputs: builder.outputs,
        nodes: builder.nodes,
        initializers: builder.initializers,
    })
}

/// Rejects a value with the name of a part of another one: an element of the sequence `s` is given as `s[0]`.
fn apart<'n>(values: impl Iterator<Item = (&'n str, Kind)> + Clone, role: &'static str) -> Result<()> {
    let whole: BTreeSet<_> = values.clone().filter(|(_, kind)| !kind.is_tensor()).map(|(name, _)| name).collect();
    let clash = values.into_iter().find_map(|(name, _)| Some((name, whole.get(Part::of(name)?.0)?)));
    clash.map_or(Ok(()), |(name, of)| {
        let problem = format!("has the name of a part of the sequence or optional {}; rename it", Name(of));
        Err(ImportError::unsupported(problem).of(role, name))
    })
}

/// Makes names unique. Graphs within nodes may use a name again, which then gets a number.
fn unique(names: Vec<&str>) -> Arc<[String]> {
    let mut taken = Names::default();
    names.into_iter().map(|name| taken.unique(name.to_owned())).collect()
}

/// Problems of a file: the first problem ends the reading, or problems are gathered.
#[derive(Debug)]
pub(super) struct Problems {
    pub(super) found: Vec<ImportError>,
    /// Most problems that are gathered before the next ends the reading.
    most: usize,
}

impl Problems {
    /// Creates a list in which the first problem is fatal.
    pub(super) fn fatal() -> Self {
        Self { found: Vec::new(), most: 0 }
    }

    /// Creates a list that gathers up to `most` problems.
    pub(super) fn gathered(most: usize) -> Self {
        Self { found: Vec::new(), most }
    }

    fn any(&self) -> bool {
        !self.found.is_empty()
    }

    fn note(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(problem) if self.found.len() < self.most => {
                self.found.push(problem);
                Ok(())
            }
            result => result,
        }
    }
}

/// Returns the versions that a graph imports. A graph without standard operators needs no version of these.
fn opsets(proto: &ModelProto, graph: &GraphProto) -> Result<BTreeMap<String, i64>> {
    let mut opsets = opsets_of(&proto.opset_import)?;
    // The first two versions of the file format have no operator sets: version 1 is implied.
    if opsets.is_empty() && (1..3).contains(&proto.ir_version) {
        opsets.insert(String::new(), 1);
    }
    if let Some(version) = opsets.get(ML.0).filter(|version| !ML.1.contains(version)) {
        let (domain, (oldest, newest)) = (ML.0, ML.1.into_inner());
        let text = format!(
            "uses version {version} of the domain {domain}, but only versions {oldest} to {newest} are supported"
        );
        return Err(ImportError::unsupported(text));
    }
    let has_standard = graph.node.iter().any(|node| standard(&node.domain).is_empty());
    if opsets.contains_key(ML.0) && !has_standard {
        opsets.entry(String::new()).or_insert(*OPSETS.end());
    }
    match opsets.get("") {
        None => Err(ImportError::malformed(
            "does not state the version of the standard operators; export it with an `opset_import`",
        )),
        Some(version) if OPSETS.contains(version) => Ok(opsets),
        Some(version) => {
            let (oldest, newest) = OPSETS.into_inner();
            Err(ImportError::unsupported(format!(
                "uses opset {version}, but only opsets {oldest} to {newest} are supported; convert it with \
                 `onnx.version_converter`"
            )))
        }
    }
}

/// Returns the stated version of each domain's operators that a graph or function uses.
pub(super) fn opsets_of(imports: &[OperatorSetIdProto]) -> Result<BTreeMap<String, i64>> {
    let mut opsets = BTreeMap::new();
    for import in imports {
        let domain = standard(&import.domain);
        if opsets.insert(domain.to_owned(), import.version).is_some_and(|other| other != import.version) {
            let domain = Name(domain);
            let problem = format!("gives two versions for the operator domain {domain}; export it again");
            return Err(ImportError::malformed(problem));
        }
    }
    Ok(opsets)
}

/// Returns the domain's name, empty for both names of the standard domain.
pub(super) fn standard(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// Origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Input,
    Initializer,
    /// The node at this position in the file.
    Node(u32),
}

/// The graph under construction.
pub(super) struct Builder<'p> {
    pub(super) functions: Functions<'p>,
    opsets: BTreeMap<String, i64>,
    /// Index of each name. Used only for look-ups, so that its order has no effect.
    pub(super) index: HashMap<&'p str, ValueIndex>,
    /// Values of the nested graph that is being read.
    pub(super) own: BTreeSet<ValueIndex>,
    values: Vec<&'p str>,
    makers: Vec<Option<Maker>>,
    node_names: HashSet<String>,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    pub(super) nodes: Vec<Node>,
    initializers: BTreeMap<ValueIndex, Constant>,
    /// Strings of constants, by value.
    labels: BTreeMap<ValueIndex, Labels>,
}

impl<'p> Builder<'p> {
    fn new(opsets: BTreeMap<String, i64>, functions: Functions<'p>) -> Self {
        let (index, own, values, makers, node_names) = Default::default();
        let (inputs, outputs, nodes, initializers, labels) = Default::default();
        Self { functions, opsets, index, own, values, makers, node_names, inputs, outputs, nodes, initializers, labels }
    }

    fn initializer(&mut self, name: &'p str, read: impl FnOnce() -> Result<Constant>) -> Result<()> {
        let wrong = |error: ImportError| error.of("initializer", name);
        checked_name(name).map_err(wrong)?;
        let value = self.make(name, Maker::Initializer).map_err(|_| wrong(given_twice()))?;
        self.initializers.insert(value, read().map_err(wrong)?);
        Ok(())
    }

    /// Adds a constant of strings, which becomes their indices.
    fn texts(&mut self, proto: &'p TensorProto) -> Result<()> {
        let (indices, texts) = labels::numbered_texts(proto).map_err(|error| error.of("initializer", &proto.name))?;
        self.initializer(&proto.name, || Ok(indices))?;
        let value = self.value(&proto.name);
        self.labels.insert(value, texts);
        Ok(())
    }

    fn input(&mut self, proto: &'p ValueInfoProto) -> Result<()> {
        let name = &proto.name;
        let wrong = |error: ImportError| error.of("input", name);
        checked_name(name).map_err(wrong)?;
        // An initialiser of the same name is the input's default.
        let (value, optional) = match self.make(name, Maker::Input) {
            Ok(value) => (value, false),
            Err((value, Maker::Initializer)) => (value, true),
            Err(_) => return Err(wrong(given_twice())),
        };
        self.makers[value.index()] = Some(Maker::Input);
        let Declared { kind, dtype, dims } = declared_input(proto).map_err(wrong)?;
        if optional && !kind.is_tensor() {
            return Err(wrong(ImportError::malformed("is a sequence or an optional, but its default is a tensor")));
        }
        self.inputs.push(Input { name: name.clone(), value, kind, dtype, dims, optional });
        Ok(())
    }

    fn output(&mut self, proto: &'p ValueInfoProto) -> Result<()> {
        let name = &proto.name;
        let wrong = |error: ImportError| error.of("output", name);
        checked_name(name).map_err(wrong)?;
        let value = self.value(name);
        if self.makers[value.index()].is_none() {
            let problem = "it has no source: no node, input or initializer has that name";
            return Err(wrong(ImportError::malformed(problem)));
        }
        // Whether outputs have labels is known when all nodes are in order.
        let declared = if has_labels(proto) { Ok(Declared::default()) } else { declared_output(proto) };
        let Declared { kind, dtype, dims } = declared.map_err(wrong)?;
        self.outputs.push(Output { name: name.clone(), value, kind, dtype, dims, labels: None });
        Ok(())
    }

    /// Adds a node, or the nodes of the function that it calls; a faulty node stays as its operator alone.
    pub(super) fn node(&mut self, proto: &'p NodeProto, tensors: &mut TensorReader<'_>) -> Result<()> {
        let position = self.nodes.len() as u32;
        let name = self.node_name(proto, position);
        let made = match self.functions.called(proto) {
            Some(key) => self.call(proto, key, &name, tensors),
            None => self.whole_node(proto, &name, position, tensors).map(|node| self.nodes.push(node)),
        };
        if made.is_err() {
            // Missing outputs of a faulty node are not further problems.
            let maker = Maker::Node(self.nodes.len() as u32);
            for output in &proto.output {
                if let Some(value) = self.index.get(output.as_str()).filter(|value| !self.is_made(**value)) {
                    self.makers[value.index()] = Some(maker);
                }
            }
            let bare = self.bare(proto, name);
            self.nodes.push(bare);
        }
        made
    }

    fn whole_node(
        &mut self,
        proto: &'p NodeProto,
        name: &str,
        position: u32,
        tensors: &mut TensorReader<'_>,
    ) -> Result<Node> {
        let wrong = |error: ImportError| error.of_node(name, &proto.op_type);
        check_node_names(proto).map_err(wrong)?;
        let mut node = self.bare(proto, name.to_owned());
        for input in &proto.input {
            node.inputs.push(self.read(input).map_err(wrong)?);
        }
        for output in &proto.output {
            node.outputs.push(match output.as_str() {
                "" => None,
                output => Some(match self.make(output, Maker::Node(position)) {
                    Ok(value) => value,
                    Err((_, maker)) => return Err(wrong(self.made_twice(output, maker, name))),
                }),
            });
        }
        without_trailing_gaps(&mut node.inputs);
        without_trailing_gaps(&mut node.outputs);
        parameters::read(&proto.attribute, &mut node, self, tensors)?;
        check_branches(&node).map_err(|error| error.of_node(name, &proto.op_type))?;
        Ok(node)
    }

    /// Returns the node without inputs, outputs and attributes.
    pub(super) fn bare(&self, proto: &NodeProto, name: String) -> Node {
        let (inputs, outputs, attributes) = Default::default();
        let domain = standard(&proto.domain);
        // A domain without a stated version has version 1.
        let version = self.functions.version(domain).or_else(|| self.opsets.get(domain).copied()).unwrap_or(1);
        let (op_type, domain) = (proto.op_type.clone(), domain.to_owned());
        Node { name, op_type, domain, version, inputs, outputs, attributes }
    }

    /// Returns a unique name of a node: the file's, or one made from operator and position.
    pub(super) fn node_name(&mut self, proto: &NodeProto, position: u32) -> String {
        let mut name = match proto.name.as_str() {
            "" => self.functions.qualified(&format!("{}_{position}", proto.op_type)),
            name => self.functions.qualified(name),
        };
        while self.node_names.contains(&name) {
            name = format!("{name}#{position}");
        }
        self.node_names.insert(name.clone());
        name
    }

    /// Returns the value of an input's name; `None` if it is left out.
    ///
    /// # Errors
    /// If the name is in a function and unknown there.
    pub(super) fn read(&mut self, name: &'p str) -> Result<Option<ValueIndex>> {
        match self.index.get(name) {
            _ if name.is_empty() => Ok(None),
            Some(value) => Ok(Some(*value)),
            None => Ok(if self.functions.leaves_out(name)? { None } else { Some(self.value(name)) }),
        }
    }

    /// Returns the value `name`, which the node `by` will make.
    ///
    /// # Errors
    /// If it is made already.
    pub(super) fn unmade(&mut self, name: &'p str, by: &str) -> Result<ValueIndex> {
        let value = self.value(name);
        match self.makers[value.index()] {
            None => Ok(value),
            Some(maker) => Err(self.made_twice(name, maker, by)),
        }
    }

    /// Whether a value has a maker.
    pub(super) fn is_made(&self, value: ValueIndex) -> bool {
        self.makers[value.index()].is_some()
    }

    /// Records the maker of a value without one.
    pub(super) fn made(&mut self, value: ValueIndex, maker: Maker) {
        self.makers[value.index()] = Some(maker);
    }

    /// Returns the index of the value `name`.
    pub(super) fn value(&mut self, name: &'p str) -> ValueIndex {
        match self.index.get(name) {
            Some(value) => *value,
            None => {
                let value = self.new_value(name);
                self.index.insert(name, value);
                value
            }
        }
    }

    /// Returns an index for one more value of this name.
    pub(super) fn new_value(&mut self, name: &'p str) -> ValueIndex {
        let next = u32::try_from(self.values.len())
            .expect("fields of the file, and bytes of what functions add, are fewer than 2³²");
        self.values.push(name);
        self.makers.push(None);
        ValueIndex(next)
    }

    /// Records the maker of the value `name`; fails with the value and its present maker if it has one.
    pub(super) fn make(&mut self, name: &'p str, maker: Maker) -> std::result::Result<ValueIndex, (ValueIndex, Maker)> {
        let value = self.value(name);
        match self.makers[value.index()] {
            Some(first) => Err((value, first)),
            None => {
                self.makers[value.index()] = Some(maker);
                Ok(value)
            }
        }
    }

    fn made_twice(&self, value: &str, maker: Maker, by: &str) -> ImportError {
        let (value, first) = (Name(value), self.describe(maker, by));
        ImportError::malformed(format!("produces {value}, but {first} produces it already; rename one of them"))
    }

    /// Describes a maker; the node that is being read is called `current`.
    fn describe(&self, maker: Maker, current: &str) -> String {
        match maker {
            Maker::Input => "an input".to_owned(),
            Maker::Initializer => "an initializer".to_owned(),
            Maker::Node(at) => {
                let name = self.nodes.get(at as usize).map_or(current, |node| node.name.as_str());
                format!("node {}", Name(name))
            }
        }
    }

    /// Checks that every value of the graph (for which `own` holds) that is read is made, and puts each node after the
    /// makers of its inputs.
    pub(super) fn order(&mut self, own: impl Fn(ValueIndex) -> bool) -> Result<()> {
        let mut needs = Needs::default();
        for node in &self.nodes {
            for input in node.all_inputs().filter(|input| own(*input)) {
                if self.makers[input.index()].is_none() {
                    let missing = Name(self.values[input.index()]);
                    let problem = format!("reads {missing}, but no node, input or initializer provides it");
                    return Err(ImportError::malformed(problem).of_node(&node.name, &node.op_type));
                }
            }
            let read = node.all_inputs().filter(|input| own(*input));
            needs.push(read.filter_map(|input| match self.makers[input.index()] {
                Some(Maker::Node(maker)) => Some(maker),
                _ => None,
            }));
        }
        let order = needs.order().map_err(|cycle| self.cycle_error(&cycle))?;
        if order.is_sorted() {
            return Ok(());
        }
        let mut nodes: Vec<_> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        self.nodes = order.iter().filter_map(|at| nodes[*at as usize].take()).collect();
        Ok(())
    }

    fn cycle_error(&self, cycle: &[u32]) -> ImportError {
        const SHOWN: usize = 4;
        let node = |at: &u32| &self.nodes[*at as usize];
        // Each node of the cycle needs the next node, so that data flows in the opposite direction.
        let mut path: Vec<_> = cycle.iter().rev().take(SHOWN).map(|at| Name(&node(at).name).to_string()).collect();
        if cycle.len() > SHOWN {
            path.push("…".to_owned());
        }
        path.push(path[0].clone());
        let first = node(&cycle[cycle.len() - 1]);
        let problem = format!("waits for its own output: {}", path.join(" → "));
        ImportError::malformed(problem).of_node(&first.name, &first.op_type)
    }
}

fn without_trailing_gaps(values: &mut Vec<Option<ValueIndex>>) {
    let used = values.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    values.truncate(used);
}

pub(super) fn given_twice() -> ImportError {
    ImportError::malformed("is defined twice; each name must denote one value")
}

fn checked_name(name: &str) -> Result<()> {
    if name.is_empty() { Err(ImportError::malformed("has no name")) } else { without_controls(name) }
}

/// Rejects control characters in names: names go to terminals, tables and other files, where these do harm, and no
/// exporter writes them.
pub(super) fn without_controls(name: &str) -> Result<()> {
    match name.chars().any(char::is_control) {
        true => Err(ImportError::malformed("has a control character in its name")),
        false => Ok(()),
    }
}

pub(super) fn check_node_names(proto: &NodeProto) -> Result<()> {
    let named = |what: &'static str| move |error: ImportError| error.map(|text| format!("{what} {text}"));
    checked_name(&proto.op_type).map_err(named("its operator"))?;
    without_controls(&proto.name).map_err(named("it"))?;
    without_controls(&proto.domain).map_err(named("its domain"))?;
    proto.input.iter().try_for_each(|name| without_controls(name)).map_err(named("an input"))?;
    proto.output.iter().try_for_each(|name| without_controls(name)).map_err(named("an output"))
}

#[cfg(test)]
mod tests;
