//! Reading of a physical graph template: drops that DALiuGE's translator or [`PhysicalGraph::write`] wrote.

use super::document::text;
use super::node::{Kind, LogicalNode};
use super::physical::{Drop, DropKind, PhysicalGraph};
use super::unroll::{MAX_DROPS, refuse_links};
use crate::format::Refusal;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Most bytes of an id, a name or a category: an id may be composed of two others.
const MOST_BYTES: usize = 2000;

type Entry = Map<String, Value>;

/// Parses a physical graph template: a list of drops, each with an `oid`, a category, and the `oid`s of linked drops.
///
/// Links are in the order of the applications and of their lists `inputs` and `outputs`. Entries without an `oid` are
/// not drops. `O(bytes · log)`.
///
/// # Errors
/// Returns an error for JSON of another structure, drops of unknown kind, repeated drops, and links to undefined drops
/// or drops of equal kind. Streams, numbers out of range and drops that wait for each other are errors too. So are more
/// than [`MAX_DROPS`] drops or [`MAX_LINKS`](super::MAX_LINKS) links.
pub fn parse_template(bytes: &[u8]) -> Result<PhysicalGraph, Refusal> {
    let mut entries: Vec<Entry> = serde_json::from_slice(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))?;
    entries.retain(|entry| entry.contains_key("oid"));
    let count = entries.len() as u64;
    if count > MAX_DROPS {
        return Err(Refusal::TooMany { what: "drops", count, limit: MAX_DROPS });
    }
    let drops: Vec<Drop> = entries.iter().map(drop_of).collect::<Result<_, _>>()?;
    let mut places = BTreeMap::new();
    for (place, drop) in drops.iter().enumerate() {
        if places.insert(drop.id.as_str(), place).is_some() {
            return Err(Refusal::Twice { place: "the template".into(), what: "drop", name: drop.id.clone() });
        }
    }
    let links = links(&entries, &drops, &places)?;
    PhysicalGraph::of(drops, links)
}

fn drop_of(entry: &Entry) -> Result<Drop, Refusal> {
    let said =
        |names: &[&str]| names.iter().filter_map(|name| entry.get(*name)).map(text).find(|text| !text.is_empty());
    let id = said(&["oid"]).ok_or(Refusal::Missing { place: "a drop of the template".into(), what: "oid" })?;
    let name = said(&["name", "nm"]).unwrap_or_else(|| id.clone());
    let category = said(&["category", "storage", "app", "dropclass"]).unwrap_or_default();
    for text in [&id, &name, &category] {
        if text.len() > MOST_BYTES {
            let (count, limit) = (text.len() as u64, MOST_BYTES as u64);
            return Err(Refusal::TooMany { what: "bytes in an oid, name or category", count, limit });
        }
    }
    let place = || format!("drop {name:?} ({id})");
    // Older templates have other names for the type.
    let kind = match said(&["categoryType", "type"]).as_deref() {
        Some("plain" | "data") => Kind::Data,
        Some("app") => Kind::Application,
        _ if category == "GroupBy" => Kind::Application,
        said => match Kind::of(&category, said) {
            Some(kind @ (Kind::Data | Kind::Application)) => kind,
            _ => return Err(Refusal::Unsupported { place: place(), what: format!("a {category}") }),
        },
    };
    let is_plain = |value: &Value| !(value.is_array() || value.is_object() || value.is_null());
    let plain = entry.iter().filter(|(_, value)| is_plain(value));
    let mut fields: BTreeMap<String, String> = plain.map(|(name, value)| (name.clone(), text(value))).collect();
    if let Some(weight) = said(&["weight"]) {
        let weighed = if kind == Kind::Data { "data_volume" } else { "execution_time" };
        fields.entry(weighed.to_owned()).or_insert(weight);
    }
    let rank = entry.get("rank").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let context = rank.iter().skip(1).filter_map(Value::as_u64).collect();
    let node = LogicalNode::new(&id, &name, kind, &category, &fields).map_err(|error| error.at(&place()))?;
    Ok(Drop { id, ..Drop::of(&node, context) })
}

/// Returns the links that applications list, in their order, and then the additional links that data list.
fn links(entries: &[Entry], drops: &[Drop], places: &BTreeMap<&str, usize>) -> Result<Vec<(usize, usize)>, Refusal> {
    let (mut links, mut known) = (Vec::new(), BTreeSet::new());
    for kind in [DropKind::Application, DropKind::Data] {
        let [into, out_of, streams] = match kind {
            DropKind::Application => ["inputs", "outputs", "streamingInputs"],
            DropKind::Data => ["producers", "consumers", "streamingConsumers"],
        };
        for (place, (entry, drop)) in entries.iter().zip(drops).enumerate().filter(|(_, (_, drop))| drop.kind == kind) {
            let at = || format!("drop {:?} ({})", drop.name, drop.id);
            if !listed(entry, streams).is_empty() {
                return Err(Refusal::Unsupported { place: at(), what: "linked by a stream".into() });
            }
            for (list, is_input) in [(into, true), (out_of, false)] {
                for other in listed(entry, list) {
                    let found = places.get(other.as_str()).copied();
                    let other = found.ok_or_else(|| Refusal::Unknown { place: at(), what: "drop", name: other })?;
                    if drops[other].kind == kind {
                        let what = format!("linked to {:?}, which is of its own kind", drops[other].name);
                        return Err(Refusal::Unsupported { place: at(), what });
                    }
                    let link = if is_input { (other, place) } else { (place, other) };
                    if known.insert(link) {
                        links.push(link);
                        refuse_links(links.len() as u64)?;
                    }
                }
            }
        }
    }
    Ok(links)
}

/// Returns the drops of a list; with ports, they are objects whose members' names are the drops.
fn listed(entry: &Entry, list: &str) -> Vec<String> {
    let list = entry.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let names = |entry: &Value| match entry {
        Value::Object(ports) => ports.keys().cloned().collect(),
        other => vec![text(other)],
    };
    list.iter().flat_map(names).collect()
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> Result<PhysicalGraph, String> {
        parse_template(value.to_string().as_bytes()).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn what_is_written_is_read_again() {
        let graph = json!({"nodeDataArray": [
            {"key": -1, "name": "raw", "category": "File", "categoryType": "Data",
                "fields": [{"name": "data_volume", "value": "7"}, {"name": "filepath", "value": "raw.txt"}]},
            {"key": -2, "name": "parts", "category": "Scatter", "fields": [{"name": "num_of_copies", "value": "3"}]},
            {"key": -3, "name": "work", "category": "BashShellApp", "categoryType": "Application", "group": -2,
                "fields": [{"name": "execution_time", "value": "2.5"}, {"name": "num_cpus", "value": "2"}]}
        ], "linkDataArray": [{"from": -1, "to": -3}]});
        let physical = parse("test", graph.to_string().as_bytes()).and_then(|graph| graph.unroll()).unwrap();
        let mut written = Vec::new();
        physical.write(None, &mut written).unwrap();
        let read = parse_template(&written).unwrap();
        assert_eq!((read.links(), read.drops().len()), (physical.links(), 4));
        for (read, drop) in read.drops().iter().zip(physical.drops()) {
            let facts = |drop: &Drop| (drop.id.clone(), drop.kind, drop.context.clone(), drop.cores, drop.volume);
            assert_eq!((facts(read), read.time), (facts(drop), drop.time));
            assert_eq!(read.fields.get("filepath"), drop.fields.get("filepath"));
        }
    }

    #[test]
    fn lists_say_the_order_and_ports_are_no_drops() {
        let template = json!([
            {"oid": "b", "type": "plain", "storage": "File"},
            {"oid": "a", "type": "plain", "storage": "File"},
            {"oid": "app", "type": "app", "app": "dlg.apps.simple.CopyApp", "inputs": ["a", {"b": "port"}], "outputs": ["c"]},
            {"oid": "c", "categoryType": "Data", "category": "Memory", "producers": [{"app": "port"}]},
            {"rmode": "0"}
        ]);
        assert_eq!(read(&template).unwrap().links(), [(1, 2), (0, 2), (2, 3)]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let data = |oid: &str, list: &str, other: &str| json!({"oid": oid, "categoryType": "Data", "category": "File", list: [other]});
        let app = |oid: &str, list: &str, other: &str| json!({"oid": oid, "categoryType": "Application", "category": "X", list: [other]});
        for (template, part) in [
            (json!([data("a", "consumers", "nobody")]), "\"nobody\""),
            (json!([data("a", "consumers", "b"), data("b", "x", "")]), "own kind"),
            (json!([data("a", "x", ""), data("a", "x", "")]), "twice"),
            (json!([app("a", "streamingInputs", "b")]), "stream"),
            (json!([data("d", "producers", "a"), app("a", "inputs", "d")]), "cycle"),
            (json!([{"oid": "a", "category": "MKN"}]), "a MKN"),
            (json!([{"oid": "x".repeat(2001), "category": "File"}]), "bytes"),
            (json!([{"oid": "a", "category": "File", "weight": -1}]), "data_volume"),
            (json!({"oid": "a"}), "expected a sequence"),
        ] {
            let refusal = read(&template).unwrap_err();
            assert!(refusal.contains(part), "{template}: {refusal}");
        }
    }
}
