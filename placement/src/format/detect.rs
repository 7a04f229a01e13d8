//! Which format a file is of, by its content.

use super::Refusal;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::fmt;

/// The formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// [`json`](super::json): ours.
    Anabranch,
    /// `thesis`: a graph as CSV.
    ThesisGraph,
    /// `thesis`: devices as CSV.
    ThesisPlatform,
    /// [`schedulers`](super::schedulers): one instance with costs and speeds.
    Related,
    /// [`schedulers`](super::schedulers): many of them by name.
    RelatedSet,
    /// [`schedulers`](super::schedulers): one instance with a table of times.
    Unrelated,
    /// [`schedulers`](super::schedulers): a list of them.
    UnrelatedSet,
    /// [`profiled`](super::profiled): a network with times on CPUs and accelerators.
    Profiled,
    /// [`wfcommons`](super::wfcommons): a workflow.
    WfCommons,
}

const EXPECTED: &str = "it should be JSON of a problem, an instance, a profiled network or a WfCommons workflow, or CSV with \
                        the 9 columns of graphs or the 5 of devices";

/// Tells the format of a file: JSON by the names of its outermost members, CSV by its number of columns. `O(length)`.
///
/// # Errors
/// Content that is of no known format, or JSON that is broken.
pub fn detect(bytes: &[u8]) -> Result<Format, Refusal> {
    let text = without_byte_order_mark(bytes);
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{' | b'[') => detect_json(text),
        _ => detect_csv(text),
    }
}

/// What stands behind a UTF-8 byte order mark, if there is one.
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

fn detect_json(text: &[u8]) -> Result<Format, Refusal> {
    let outline: Outline = serde_json::from_slice(text)?;
    let has = |names: &[&str]| names.iter().all(|name| outline.members.iter().any(|member| member == name));
    let first_has = |name: &str| outline.first.0.iter().any(|member| member == name);
    let format = match () {
        () if has(&["format"]) => Format::Anabranch,
        () if has(&["workflow"]) => Format::WfCommons,
        () if has(&["maxFPGAs", "nodes", "edges"]) => Format::Profiled,
        () if has(&["W", "BW"]) => Format::Unrelated,
        () if has(&["instances"]) => Format::UnrelatedSet,
        () if has(&["instance"]) || has(&["tasks", "deps"]) => Format::Related,
        () if first_has("instance") => Format::RelatedSet,
        () => return Err(Refusal::Unrecognised(EXPECTED)),
    };
    Ok(format)
}

/// Names that are kept of an object; what decides stands well before.
const KEPT: usize = 64;

/// The names in the outermost object, and those in its first member where that is an object too.
#[derive(Default)]
struct Outline {
    members: Vec<String>,
    first: Members,
}

/// The names in an object; empty for what is none.
#[derive(Default)]
struct Members(Vec<String>);

impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OutlineVisitor)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MembersVisitor)
    }
}

struct OutlineVisitor;

impl<'de> Visitor<'de> for OutlineVisitor {
    type Value = Outline;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline, A::Error> {
        let mut outline = Outline::default();
        while let Some(name) = map.next_key::<String>()? {
            if outline.members.is_empty() {
                outline.first = map.next_value()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            if outline.members.len() < KEPT {
                outline.members.push(name);
            }
        }
        Ok(outline)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Outline, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Outline::default())
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Members::default();
        while let Some(name) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            if members.0.len() < KEPT {
                members.0.push(name);
            }
        }
        Ok(members)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Members, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Members::default())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Members, E> {
        Ok(Members::default())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Members, E> {
        Ok(Members::default())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Members, E> {
        Ok(Members::default())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Members, E> {
        Ok(Members::default())
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Members, E> {
        Ok(Members::default())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Members, E> {
        Ok(Members::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_what_stands_in_them() {
        let cases: [(&str, Format); 11] = [
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
