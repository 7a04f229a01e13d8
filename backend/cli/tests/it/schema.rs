//! Validates JSON for tests, with the part of JSON Schema (2020-12) that the command's schemas use. An unknown keyword
//! fails, so that none is ignored.

use serde_json::{Map, Value};

/// Returns the faults of a value, each with its position; empty if it matches the schema.
pub(crate) fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(schema, schema, value, "", &mut faults);
    faults
}

fn check(root: &Value, schema: &Value, value: &Value, place: &str, faults: &mut Vec<String>) {
    let schema = schema.as_object().unwrap_or_else(|| panic!("{place}: a schema is an object: {schema}"));
    let mut fail = |what: String| faults.push(format!("{place}: {what}: {value}"));
    for (keyword, wanted) in schema {
        let text = |wanted: &Value| wanted.as_str().expect("a text").to_owned();
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" => {}
            "const" if value != wanted => fail(format!("is not {wanted}")),
            "enum" if !wanted.as_array().expect("values").contains(value) => fail(format!("is none of {wanted}")),
            "minimum" if value.as_f64() < wanted.as_f64() && value.is_number() => fail(format!("is below {wanted}")),
            "type" => {
                let types = wanted.as_array().cloned().unwrap_or_else(|| vec![wanted.clone()]);
                if !types.iter().any(|kind| is_of(value, &text(kind))) {
                    fail(format!("is not of type {wanted}"));
                }
            }
            "required" => {
                let names = wanted.as_array().expect("names").iter().map(text);
                let missing: Vec<_> = names.filter(|name| value.is_object() && value.get(name).is_none()).collect();
                if !missing.is_empty() {
                    fail(format!("has no {missing:?}"));
                }
            }
            "anyOf" => {
                let mut fits = wanted.as_array().expect("schemas").iter();
                let fits = fits.any(|one| {
                    let mut inside = Vec::new();
                    check(root, one, value, place, &mut inside);
                    inside.is_empty()
                });
                if !fits {
                    fail("is as none of anyOf".into());
                }
            }
            "const" | "enum" | "minimum" | "$ref" | "properties" | "additionalProperties" | "items" => {}
            other => panic!("the schema's keyword `{other}` is not known to this check"),
        }
    }
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("no {reference}"));
        check(root, target, value, place, faults);
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        values.iter().enumerate().for_each(|(at, item)| check(root, items, item, &format!("{place}/{at}"), faults));
    }
    if let Some(members) = value.as_object() {
        check_members(root, schema, members, place, faults);
    }
}

fn check_members(
    root: &Value,
    schema: &Map<String, Value>,
    members: &Map<String, Value>,
    place: &str,
    faults: &mut Vec<String>,
) {
    for (name, member) in members {
        let place = format!("{place}/{name}");
        match (schema.get("properties").and_then(|known| known.get(name)), schema.get("additionalProperties")) {
            (Some(known), _) => check(root, known, member, &place, faults),
            (None, Some(Value::Bool(false))) => faults.push(format!("{place}: is not known")),
            (None, Some(others)) => check(root, others, member, &place, faults),
            (None, None) => {}
        }
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("no type `{other}`"),
    }
}

#[test]
fn what_is_not_as_the_schema_says_is_told_with_its_place() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {
            "a": { "type": "array", "items": { "$ref": "#/$defs/n" } },
            "b": { "anyOf": [{ "const": 1 }, { "enum": ["x", null] }] },
        },
        "$defs": { "n": { "type": ["integer", "null"], "minimum": 0 } },
    });
    for (value, wrong) in [
        (serde_json::json!({ "a": [1, null], "b": "x" }), None),
        (serde_json::json!({ "a": [] , "b": 1 }), None),
        (serde_json::json!({ "a": [1.5] }), Some("/a/0: is not of type")),
        (serde_json::json!({ "a": [-1] }), Some("/a/0: is below 0")),
        (serde_json::json!({ "b": null }), Some("has no [\"a\"]")),
        (serde_json::json!({ "a": [], "b": 2 }), Some("/b: is as none of anyOf")),
        (serde_json::json!({ "a": [], "c": 2 }), Some("/c: is not known")),
        (serde_json::json!([]), Some(": is not of type")),
    ] {
        let found = faults(&schema, &value);
        match wrong {
            None => assert!(found.is_empty(), "{found:?}"),
            Some(part) => assert!(found.len() == 1 && found[0].contains(part), "{found:?}"),
        }
    }
}
