//! Facts of a model that `anabranch inspect` lists: name, operator sets, inputs, outputs, state, operators, parameters.

use super::{Table, amount, format_bytes};
use anabranch::constant::Constant;
use anabranch::import::{Attribute, Dim, Node, Subgraph, ValueIndex};
use anabranch::session::{Session, StatePair, ValueInfo};
use anabranch_placement::quoted::Line;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Facts of a model, whether it runs or not.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Facts {
    name: String,
    producer: String,
    /// Version of each domain's operators.
    opsets: BTreeMap<String, i64>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    /// Outputs that are inputs of a next run by their names.
    state: Vec<ListedState>,
    /// The most frequent first; those of branches and bodies included.
    operators: Vec<Operator>,
    /// Parameters by element type.
    parameters: BTreeMap<String, Parameters>,
}

/// An output that is an input of the next run.
#[derive(Clone, Debug, Serialize)]
struct ListedState {
    output: String,
    input: String,
    /// The axis along which it grows, if there is one.
    growing: Option<usize>,
}

/// Pairs of a state that are listed.
const LISTED: usize = 4;

#[derive(Clone, Debug, Serialize)]
struct Value {
    name: String,
    /// `tensor`, `sequence`, `optional` or `optional sequence`. Type and dimensions are those of its tensors.
    kind: &'static str,
    dtype: Option<String>,
    /// Numbers, symbols or `?`; `None` if not even their count is declared.
    dims: Option<Vec<String>>,
    optional: bool,
    #[serde(skip)]
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Operator {
    operator: String,
    domain: String,
    count: usize,
}

/// Constants of one element type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Parameters {
    tensors: usize,
    elements: u64,
    bytes: u64,
}

impl Facts {
    pub(super) fn of(session: &Session) -> Self {
        let model = session.model();
        let (mut counts, mut parameters) = (BTreeMap::new(), BTreeMap::new());
        add_constants(&model.initializers, &mut parameters);
        add_nodes(&model.nodes, &mut counts, &mut parameters);
        let operator = |((domain, operator), count): ((String, String), usize)| Operator { operator, domain, count };
        let mut operators: Vec<_> = counts.into_iter().map(operator).collect();
        operators.sort_by_key(|operator| std::cmp::Reverse(operator.count));
        let named = |(domain, version): (&String, &i64)| (standard(domain).to_owned(), *version);
        Self {
            name: model.name.clone(),
            producer: model.producer.clone(),
            opsets: model.opsets.iter().map(named).collect(),
            inputs: session.inputs().iter().map(Value::of).collect(),
            outputs: session.outputs().iter().map(Value::of).collect(),
            state: session.found_state().into_iter().map(ListedState::of).collect(),
            operators,
            parameters,
        }
    }
}

fn standard(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

fn add_constants(constants: &BTreeMap<ValueIndex, Constant>, parameters: &mut BTreeMap<String, Parameters>) {
    for constant in constants.values() {
        let of_type = parameters.entry(constant.dtype().to_string()).or_default();
        of_type.tensors += 1;
        of_type.elements = of_type.elements.saturating_add(constant.shape().elements() as u64);
        of_type.bytes = of_type.bytes.saturating_add(constant.bytes() as u64);
    }
}

/// Adds the operators of nodes. Recursion is bounded by the import's limit on the depth of subgraphs.
fn add_nodes(
    nodes: &[Node],
    counts: &mut BTreeMap<(String, String), usize>,
    parameters: &mut BTreeMap<String, Parameters>,
) {
    for node in nodes {
        *counts.entry((standard(&node.domain).to_owned(), node.op_type.clone())).or_default() += 1;
        for attribute in node.attributes.values() {
            if let Attribute::Graph(Ok(graph)) = attribute {
                let Subgraph { nodes, initializers, .. } = &**graph;
                add_constants(initializers, parameters);
                add_nodes(nodes, counts, parameters);
            }
        }
    }
}

impl ListedState {
    fn of(pair: StatePair) -> Self {
        Self { output: pair.output, input: pair.input, growing: pair.growing }
    }
}

impl Value {
    fn of(info: &ValueInfo) -> Self {
        Self {
            name: info.name().to_owned(),
            kind: info.kind().name(),
            dtype: info.dtype().map(|dtype| dtype.to_string()),
            dims: info.dims().map(|dims| dims.iter().map(Dim::to_string).collect()),
            optional: info.is_optional(),
            text: info.to_string(),
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opsets: Vec<_> = self.opsets.iter().map(|(domain, version)| format!("{domain} {version}")).collect();
        let producer = if self.producer.is_empty() { "unknown producer" } else { &self.producer };
        writeln!(f, "  {}\n", Line(format!("{producer}; operators of {}", opsets.join(", "))))?;
        for (role, values) in [("input", &self.inputs), ("output", &self.outputs)] {
            for value in values {
                let optional = if value.optional { " (optional)" } else { "" };
                writeln!(f, "  {role:<6}  {}{optional}", value.text)?;
            }
        }
        for ListedState { output, input, growing } in self.state.iter().take(LISTED) {
            let growing = growing.map_or_else(String::new, |axis| format!(", which grows along axis {axis}"));
            writeln!(f, "  {:<6}  {}", "state", Line(format!("{output} becomes {input}{growing}")))?;
        }
        if let Some(more) = self.state.len().checked_sub(LISTED).filter(|more| *more > 0) {
            writeln!(f, "  {:<6}  and {more} more", "")?;
        }
        let mut parameters = Table::new("parameters | >tensors | >elements | >bytes");
        for (dtype, Parameters { tensors, elements, bytes }) in &self.parameters {
            parameters.row([dtype.clone(), tensors.to_string(), amount(*elements as f64), format_bytes(*bytes)]);
        }
        let mut operators = Table::new(">nodes | operator | domain");
        for Operator { operator, domain, count } in &self.operators {
            operators.row([count.to_string(), operator.clone(), domain.clone()]);
        }
        write!(f, "\n{parameters}\n{operators}")
    }
}
