//! Plausible elements of missing inputs: row numbers within the model's tables, and masks that hide nothing.

use anabranch_ir::random::random_within;
use anabranch_kernels::{Tensor, TensorSpec};
use anabranch_onnx::import::{Input, Model, Node, ValueIndex};
use std::collections::BTreeMap;

/// Operators that pass on the elements of their first input, possibly in another order and type.
const HANDING_ON: [&str; 10] =
    ["Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Slice", "Concat"];

/// Operators that look up rows of tables: name, input of the indices, input of the table.
const TAKING_ROWS: [(&str, usize, usize); 3] =
    [("Gather", 1, 0), ("EmbedLayerNormalization", 0, 2), ("EmbedLayerNormalization", 1, 4)];

/// Number of rows of the smallest constant table that an input's elements index, by the inputs' names. O(nodes).
pub(super) fn tables(model: &Model) -> BTreeMap<String, u64> {
    let mut rows: BTreeMap<ValueIndex, u64> = BTreeMap::new();
    for node in model.nodes.iter().rev() {
        for (places, count) in taken_rows(model, node) {
            narrow(&mut rows, places, count);
        }
        let bound = node.output(0).and_then(|output| rows.get(&output).copied());
        if let Some(bound) = bound.filter(|_| HANDING_ON.contains(&&*node.op_type)) {
            let all = if node.op_type == "Concat" { node.inputs.len() } else { 1 };
            node.inputs.iter().take(all).flatten().for_each(|value| narrow(&mut rows, *value, bound));
        }
    }
    let bound = |input: &Input| Some((input.name.clone(), *rows.get(&input.value)?));
    model.inputs.iter().filter_map(bound).collect()
}

/// Values whose elements are indices into tables of a node, with the tables' rows.
fn taken_rows(model: &Model, node: &Node) -> Vec<(ValueIndex, u64)> {
    let of_operator = TAKING_ROWS.iter().filter(|(operator, ..)| *operator == node.op_type);
    let rows = of_operator.filter_map(|(_, places, table)| {
        let table = model.initializers.get(&node.input(*table)?)?.shape().dims();
        let axis = node.int("axis").ok()?.unwrap_or(0);
        let axis = if axis < 0 { axis.checked_add(i64::try_from(table.len()).ok()?)? } else { axis };
        Some((node.input(*places)?, *table.get(usize::try_from(axis).ok()?)? as u64))
    });
    rows.collect()
}

fn narrow(rows: &mut BTreeMap<ValueIndex, u64>, value: ValueIndex, bound: u64) {
    let known = rows.entry(value).or_insert(bound);
    *known = bound.min(*known);
}

/// Seeded elements of an input: row numbers below `rows` if given, ones for an integer mask, else 0 or 1 for integers.
pub(super) fn tensor(name: &str, spec: &TensorSpec, seed: u64, rows: Option<u64>) -> Option<Tensor> {
    let is_mask = name.to_ascii_lowercase().contains("mask");
    random_within(name, spec, seed, rows.map_or(if is_mask { 1..2 } else { 0..2 }, |rows| 0..rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::{DType, Shape};
    use anabranch_onnx::import::proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
    };
    use anabranch_onnx::import::{from_bytes, proto::DimensionProto};

    #[test]
    fn ids_are_places_of_the_smallest_table_that_they_reach() {
        let ids = |name: &str| ValueInfoProto::tensor(name, data_type::INT64, vec![DimensionProto::symbol("n")]);
        let graph = GraphProto {
            node: vec![
                NodeProto::of("Cast", &["ids"], &["cast"]).with(AttributeProto::int("to", data_type::INT32)),
                NodeProto::of("Gather", &["words", "cast"], &["a"]),
                NodeProto::of("Gather", &["kinds", "types"], &["b"]).with(AttributeProto::int("axis", -2)),
                NodeProto::of("Gather", &["words", "types"], &["c"]),
                NodeProto::of("Neg", &["free"], &["d"]),
            ],
            input: ["ids", "types", "free"].map(ids).into(),
            output: ["a", "b", "c", "d"].map(|name| ValueInfoProto { name: name.into(), r#type: None }).into(),
            initializer: vec![
                TensorProto::f32s("words", &[30, 2], &[0.0; 60]),
                TensorProto::f32s("kinds", &[1, 2], &[0.0; 2]),
            ],
            ..GraphProto::default()
        };
        let model = from_bytes(&ModelProto::of(graph, 17).to_bytes(), None).expect("sound");
        let tables = tables(&model);
        assert_eq!(tables, BTreeMap::from([("ids".to_owned(), 30), ("types".to_owned(), 1)]));
        let spec = TensorSpec::new(DType::I64, Shape::new([500]).expect("small"));
        let most = |name: &str| {
            let made = tensor(name, &spec, 1, tables.get(name).copied()).expect("some bytes");
            made.elements::<i64>().expect("as asked").iter().copied().max()
        };
        assert_eq!([most("ids"), most("types"), most("free")], [Some(29), Some(0), Some(1)]);
        assert_eq!(tensor("attention_mask", &spec, 1, None).expect("bytes").elements::<i64>(), Some(&[1; 500][..]));
    }
}
