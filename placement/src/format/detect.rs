//! Detection of a file's format by its content.

use super::Refusal;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// Formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// [`json`](super::json): the format of this crate.
    Anabranch,
    /// `thesis`: a graph as CSV.
    ThesisGraph,
    /// `thesis`: devices as CSV.
    ThesisPlatform,
    /// [`schedulers`](super::schedulers): one instance with costs and speeds.
    Related,
    /// [`schedulers`](super::schedulers): several related instances by name.
    RelatedSet,
    /// [`schedulers`](super::schedulers): one instance with a table of times.
    Unrelated,
    /// [`schedulers`](super::schedulers): a list of unrelated instances.
    UnrelatedSet,
    /// [`profiled`](super::profiled): a network with times on CPUs and accelerators.
    Profiled,
    /// [`saga`](super::saga): an instance of SAGA or DAGBench.
    Saga,
    /// [`wfcommons`](super::wfcommons): a workflow.
    WfCommons,
    /// [`logical`](crate::logical): a logical graph of DALiuGE.
    Logical,
}

const EXPECTED: &str = "it should be JSON of a problem, an instance, a profiled network, a WfCommons workflow or a logical graph, \
                        or CSV with the 9 columns of graphs or the 5 of devices";

/// Detects the format of a file: JSON by the names of its outermost members, CSV by its number of columns. `O(length)`.
///
/// # Errors
/// Returns an error for content of no known format, and for invalid JSON.
pub fn detect(bytes: &[u8]) -> Result<Format, Refusal> {
    let text = without_byte_order_mark(bytes);
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => detect_object(text),
        // No format is a list. Parsing the list first reports invalid JSON as such.
        Some(b'[') => serde_json::from_slice(text).map(|IgnoredAny| Err(Refusal::Unrecognised(EXPECTED)))?,
        _ => detect_csv(text),
    }
}

/// Returns the text after a UTF-8 byte order mark, if there is one.
pub(super) fn without_byte_order_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

fn detect_csv(text: &[u8]) -> Result<Format, Refusal> {
    let heading = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    match heading.iter().filter(|&&byte| byte == b',').count() + 1 {
        9 => Ok(Format::ThesisGraph),
        5 => Ok(Format::ThesisPlatform),
        _ => Err(Refusal::Unrecognised(EXPECTED)),
    }
}

fn detect_object(text: &[u8]) -> Result<Format, Refusal> {
    let there = |member: &Member| member.is_some();
    let format = match serde_json::from_slice(text)? {
        Outline { format: Some(_), .. } => Format::Anabranch,
        Outline { workflow: Some(_), .. } => Format::WfCommons,
        Outline { task_graph: Some(_), network: Some(_), .. } => Format::Saga,
        Outline { logical_nodes: Some(_), logical_links: Some(_), .. } => Format::Logical,
        Outline { accelerators: Some(_), nodes: Some(_), edges: Some(_), .. } => Format::Profiled,
        Outline { times: Some(_), rates: Some(_), .. } => Format::Unrelated,
        Outline { instances: Some(_), .. } => Format::UnrelatedSet,
        Outline { instance, tasks, deps, .. } if there(&instance) || there(&tasks) && there(&deps) => Format::Related,
        _ if first_is_entry(text) => Format::RelatedSet,
        _ => return Err(Refusal::Unrecognised(EXPECTED)),
    };
    Ok(format)
}

type Member = Option<IgnoredAny>;

/// Members of the outermost object that distinguish the formats.
#[derive(Deserialize)]
struct Outline {
    format: Member,
    workflow: Member,
    task_graph: Member,
    network: Member,
    #[serde(rename = "nodeDataArray")]
    logical_nodes: Member,
    #[serde(rename = "linkDataArray")]
    logical_links: Member,
    #[serde(rename = "maxFPGAs")]
    accelerators: Member,
    nodes: Member,
    edges: Member,
    #[serde(rename = "W")]
    times: Member,
    #[serde(rename = "BW")]
    rates: Member,
    instances: Member,
    instance: Member,
    tasks: Member,
    deps: Member,
}

/// Whether the first member is an object with an instance.
fn first_is_entry(text: &[u8]) -> bool {
    serde_json::Deserializer::from_slice(text).deserialize_map(FirstIsEntry).unwrap_or(false)
}

struct FirstIsEntry;

impl<'de> Visitor<'de> for FirstIsEntry {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let first: Option<(IgnoredAny, Outline)> = map.next_entry()?;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(first.is_some_and(|(_, entry)| entry.instance.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_what_stands_in_them() {
        let cases: [(&str, Format); 13] = [
            ("{\"name\": \"x\", \"task_graph\": {}, \"network\": {}}", Format::Saga),
            ("{\"modelData\": {}, \"nodeDataArray\": [], \"linkDataArray\": []}", Format::Logical),
            ("{\"format\": \"anabranch-problem\"}", Format::Anabranch),
            ("\u{feff} \n{\"name\": \"x\", \"workflow\": {}}", Format::WfCommons),
            ("{\"maxFPGAs\": 1, \"nodes\": [], \"edges\": []}", Format::Profiled),
            ("{\"n\": 1, \"W\": [], \"BW\": []}", Format::Unrelated),
            ("{\"source\": null, \"instances\": []}", Format::UnrelatedSet),
            ("{\"tasks\": [], \"deps\": []}", Format::Related),
            ("{\"instance\": {}}", Format::Related),
            ("{\"chains\": {\"instance\": {}}, \"trees\": 1}", Format::RelatedSet),
            ("Id,out,in,colocated,tensor,operations,RAM,constraint,name\n", Format::ThesisGraph),
            ("id,RAM,speed,rates,type", Format::ThesisPlatform),
            ("a,b,c,d,e\n1,2", Format::ThesisPlatform),
        ];
        for (text, expected) in cases {
            assert_eq!(detect(text.as_bytes()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = "[".repeat(100_000);
        assert!(matches!(detect(deep.as_bytes()), Err(Refusal::Json(_))));
    }
}
