//! JSON of a logical graph, as the editor EAGLE writes it: nodes, links, and the fields that matter.

use super::node::{Kind, LogicalNode, is_true};
use super::unroll::refuse_links;
use crate::format::Refusal;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most bytes of a key, a name or a category, because each drop has a copy.
const MOST_BYTES: usize = 500;
/// Most groups around a node.
const MOST_NESTED: usize = 64;

/// Logical graph: nodes in groups, and links between nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct LogicalGraph {
    /// Name of the graph.
    pub name: String,
    pub(super) nodes: Vec<LogicalNode>,
    pub(super) links: Vec<Link>,
}

/// Link, by the positions of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Whether a link into a loop goes to the first iteration only, and a link out of a loop leaves the last only.
    pub(super) loop_aware: bool,
    /// Whether the link goes from the end of an iteration to the start of the next.
    pub(super) closes_loop: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(rename = "nodeDataArray")]
    nodes: Vec<NodePart>,
    #[serde(rename = "linkDataArray")]
    links: Vec<LinkPart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodePart {
    /// Key in older files; newer files have an `id`, and parents for groups.
    key: Option<Value>,
    id: Option<Value>,
    category: String,
    category_type: Option<String>,
    /// Name in newer files; older files have a `text`.
    name: Option<String>,
    text: Option<String>,
    group: Option<Value>,
    parent_id: Option<Value>,
    #[serde(default)]
    fields: Vec<Field>,
    input_application_type: Option<String>,
    #[serde(default)]
    input_app_fields: Vec<Field>,
    /// Further members, which older files have in addition to the fields.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Field {
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
struct LinkPart {
    from: Value,
    to: Value,
    #[serde(default)]
    loop_aware: Value,
    #[serde(default, rename = "closesLoop")]
    closes_loop: Value,
}

/// Parses a logical graph; `name` becomes its name.
///
/// # Errors
/// Returns an error for JSON of another structure, for undefined or repeated keys, and for groups that contain each
/// other or are nested too deeply. Long keys and names, numbers out of range, and constructs that are not unrolled
/// (MKN, MPI, services) are errors too.
pub fn parse(name: &str, bytes: &[u8]) -> Result<LogicalGraph, Refusal> {
    let document: Document = serde_json::from_slice(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))?;
    let mut graph = LogicalGraph { name: name.into(), nodes: Vec::new(), links: Vec::new() };
    let mut reader = Reader { graph: &mut graph, groups: BTreeMap::new(), ends: BTreeMap::new() };
    let mut parents = Vec::new();
    for part in document.nodes {
        reader.node(part, &mut parents)?;
    }
    reader.nest(&parents)?;
    for link in &document.links {
        reader.link(link)?;
    }
    graph.close_loops()?;
    Ok(graph)
}

/// State of reading: the targets of keys.
struct Reader<'g> {
    graph: &'g mut LogicalGraph,
    /// Construct of each key.
    groups: BTreeMap<String, usize>,
    /// Ends of the links to and from each key; `None` if its node is not unrolled.
    ends: BTreeMap<String, Option<Ends>>,
}

#[derive(Clone, Copy)]
struct Ends {
    into: usize,
    out_of: usize,
}

impl Reader<'_> {
    /// Adds the nodes for an entry. `parents` gets the key of the group of each added node.
    fn node(&mut self, part: NodePart, parents: &mut Vec<Option<String>>) -> Result<(), Refusal> {
        let missing = || Refusal::Missing { place: format!("a {} of nodeDataArray", part.category), what: "key" };
        let key = text(part.key.as_ref().or(part.id.as_ref()).ok_or_else(missing)?);
        let name = part.name.clone().or(part.text.clone()).unwrap_or_else(|| key.clone());
        let place = || format!("node {name:?} ({key})");
        let is_plain = |value: &Value| !(value.is_array() || value.is_object() || value.is_null());
        let others = part.others.iter().filter(|(_, value)| is_plain(value));
        let mut fields: BTreeMap<String, String> = others.map(|(name, value)| (name.clone(), text(value))).collect();
        fields.extend(part.fields.iter().map(|field| (field.name.clone(), text(&field.value))));
        let parent =
            part.group.as_ref().or(part.parent_id.as_ref()).map(text).filter(|group| !group.is_empty() && group != "0");
        let kind = Kind::of(&part.category, part.category_type.as_deref());
        if kind.is_some() {
            let application = part.input_application_type.as_deref().unwrap_or_default();
            [key.as_str(), name.as_str(), part.category.as_str(), application].into_iter().try_for_each(refuse_long)?;
        }
        let ends = match kind {
            None => None,
            Some(Kind::Unsupported) => {
                return Err(Refusal::Unsupported { place: place(), what: format!("a {}", part.category) });
            }
            Some(kind) if kind.is_group() => {
                let construct =
                    LogicalNode::new(&key, &name, kind, &part.category, &fields).map_err(|error| error.at(&place()))?;
                let at = self.push(construct, parent.clone(), parents);
                self.groups.insert(key.clone(), at);
                let application = part.input_application_type.as_deref().unwrap_or_default();
                match application {
                    "" | "None" | "Unknown" | "UnknownApplication" => Some(Ends { into: at, out_of: at }),
                    _ if !matches!(kind, Kind::Scatter | Kind::Gather) => Some(Ends { into: at, out_of: at }),
                    category => {
                        // The embedded application of a construct, if it has one: before a scatter, or first within a
                        // gather.
                        fields
                            .extend(part.input_app_fields.iter().map(|field| (field.name.clone(), text(&field.value))));
                        let mut application = LogicalNode::new(&key, &name, Kind::Application, category, &fields)
                            .map_err(|error| error.at(&place()))?;
                        application.starts_group = kind == Kind::Gather;
                        let group = if kind == Kind::Gather { Some(key.clone()) } else { parent };
                        let app = self.push(application, group, parents);
                        Some(Ends { into: if kind == Kind::Gather { at } else { app }, out_of: app })
                    }
                }
            }
            Some(kind) => {
                let node =
                    LogicalNode::new(&key, &name, kind, &part.category, &fields).map_err(|error| error.at(&place()))?;
                let at = self.push(node, parent, parents);
                Some(Ends { into: at, out_of: at })
            }
        };
        match self.ends.insert(key.clone(), ends) {
            None => Ok(()),
            Some(_) => Err(Refusal::Twice { place: "nodeDataArray".into(), what: "key", name: key }),
        }
    }

    fn push(&mut self, node: LogicalNode, parent: Option<String>, parents: &mut Vec<Option<String>>) -> usize {
        self.graph.nodes.push(node);
        parents.push(parent);
        self.graph.nodes.len() - 1
    }

    /// Finds the groups of the nodes.
    fn nest(&mut self, parents: &[Option<String>]) -> Result<(), Refusal> {
        for (at, parent) in parents.iter().enumerate() {
            let Some(key) = parent else { continue };
            let place = || format!("node {:?}", self.graph.nodes[at].name);
            let group = self.groups.get(key).copied();
            let group = group.ok_or_else(|| Refusal::Unknown { place: place(), what: "group", name: key.clone() })?;
            self.graph.nodes[at].group = Some(group);
        }
        for at in 0..parents.len() {
            let (mut outer, mut depth) = (self.graph.nodes[at].group, 0);
            while let Some(group) = outer {
                (outer, depth) = (self.graph.nodes[group].group, depth + 1);
                if depth > MOST_NESTED {
                    let place = format!("the group of node {:?}", self.graph.nodes[at].name);
                    let what = format!("within itself, or in more than {MOST_NESTED} groups");
                    return Err(Refusal::Unsupported { place, what });
                }
            }
        }
        Ok(())
    }

    fn link(&mut self, link: &LinkPart) -> Result<(), Refusal> {
        let end = |key: &Value| {
            let key = text(key);
            let found = self.ends.get(&key).copied();
            found.ok_or(Refusal::Unknown { place: "linkDataArray".into(), what: "node", name: key })
        };
        // Links of nodes that are not unrolled are dropped.
        if let (Some(from), Some(to)) = (end(&link.from)?, end(&link.to)?) {
            let (from, to) = (from.out_of, to.into);
            let (loop_aware, closes_loop) = (is_true(&text(&link.loop_aware)), is_true(&text(&link.closes_loop)));
            self.graph.links.push(Link { from, to, loop_aware, closes_loop });
        }
        Ok(())
    }
}

impl LogicalGraph {
    /// Adds the links from the end of an iteration to the start of the next, if a loop's children are marked so.
    fn close_loops(&mut self) -> Result<(), Refusal> {
        let mut starts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (start, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.starts_group) {
            node.group.into_iter().for_each(|group| starts.entry(group).or_default().push(start));
        }
        let mut places: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (place, link) in self.links.iter().enumerate() {
            places.entry((link.from, link.to)).or_insert(place);
        }
        for (end, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.ends_group) {
            let Some(group) = node.group.filter(|&group| self.nodes[group].kind == Kind::Loop) else { continue };
            for &start in starts.get(&group).into_iter().flatten() {
                match places.get(&(end, start)) {
                    Some(&place) => self.links[place].closes_loop = true,
                    None => {
                        self.links.push(Link { from: end, to: start, loop_aware: false, closes_loop: true });
                        refuse_links(self.links.len() as u64)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Rejects a string that is too long to copy into each drop.
fn refuse_long(text: &str) -> Result<(), Refusal> {
    let (count, limit) = (text.len() as u64, MOST_BYTES as u64);
    let what = "bytes in a key, name or category";
    if count > limit { Err(Refusal::TooMany { what, count, limit }) } else { Ok(()) }
}

/// Returns a value as a string; for an object with a `value`, the string of that value.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Object(object) if object.contains_key("value") => text(&object["value"]),
        other => other.to_string(),
    }
}
