//! String labels, and maps from labels to numbers: the graph computes with indices and columns, and the outputs know
//! their labels.
//!
//! The runtime has tensors of numbers only. A classifier's class names are a list in the file. The graph is therefore
//! rewritten to the indices of that list, and each value that holds such indices carries the list. Operators that only
//! move elements pass a list on; any other operator that reads strings is rejected. `ZipMap` becomes its input, whose
//! columns have keys.

use super::attribute::Attribute;
use super::error::ImportError;
use super::graph::OPSETS;
use super::model::{Node, Output, ValueIndex};
use super::proto::{TensorProto, data_type};
use anabranch_ir::constant::Constant;
use anabranch_kernels::{DType, Shape, Tensor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

type Result<T, E = ImportError> = std::result::Result<T, E>;

/// Meaning of an output's numbers. Copies share one list, because nodes may pass on a long list many times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Labels {
    /// Each element is the index of one of these strings.
    Texts(Arc<[String]>),
    /// Each row is a map from these strings to its elements.
    TextKeys(Arc<[String]>),
    /// Each row is a map from these integers to its elements.
    IntegerKeys(Arc<[i64]>),
}

impl Labels {
    /// Returns the strings of an output's elements, in row-major order; `None` if its elements are numbers.
    pub fn texts(&self, tensor: &Tensor) -> Option<Vec<&str>> {
        let Self::Texts(texts) = self else { return None };
        let text = |index: &i64| usize::try_from(*index).ok().and_then(|index| texts.get(index)).map(String::as_str);
        tensor.elements::<i64>()?.iter().map(text).collect()
    }
}

impl fmt::Display for Labels {
    /// Formats as `indices of no, yes`, or `columns of no, yes`, with the first few labels.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let (what, mut names, count) = match self {
            Self::Texts(texts) => ("indices", texts.iter().take(SHOWN).cloned().collect::<Vec<_>>(), texts.len()),
            Self::TextKeys(keys) => ("columns", keys.iter().take(SHOWN).cloned().collect(), keys.len()),
            Self::IntegerKeys(keys) => ("columns", keys.iter().take(SHOWN).map(i64::to_string).collect(), keys.len()),
        };
        if count > SHOWN {
            names.push("…".into());
        }
        write!(f, "{what} of {}", names.join(", ").escape_debug())
    }
}

/// Operators of the standard domain whose output holds only elements of their first input.
const MOVES: [&str; 9] =
    ["Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Gather", "Slice", "Expand"];

/// Converts a constant of strings to indices, and returns both.
///
/// # Errors
/// If the number of strings differs from its shape, or a string is not UTF-8.
pub(super) fn numbered_texts(proto: &TensorProto) -> Result<(Constant, Labels)> {
    let wrong = |error: &dyn std::fmt::Display| ImportError::malformed(error.to_string());
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).map_err(|error| wrong(&error));
    let texts = proto.string_data.iter().map(text).collect::<Result<Vec<_>>>()?;
    let size = |dim: &i64| usize::try_from(*dim).map_err(|_| wrong(&format_args!("has a dimension of {dim}")));
    let dims = proto.dims.iter().map(size).collect::<Result<Vec<_>>>()?;
    let shape = Shape::new(dims).map_err(|error| wrong(&error))?;
    let indices: Vec<i64> = (0..texts.len() as i64).collect();
    let tensor = Tensor::from_elements(shape, &indices).map_err(|error| wrong(&error))?;
    Ok((tensor.into(), Labels::Texts(texts.into())))
}

/// Rewrites nodes that make or read strings, and gives outputs their labels.
///
/// Nodes are in topological order; `labels` are those of constants.
///
/// # Errors
/// If a node reads strings in a way that indices cannot replace.
pub(super) fn resolve(
    nodes: &mut [Node],
    outputs: &mut [Output],
    mut labels: BTreeMap<ValueIndex, Labels>,
) -> Result<()> {
    for node in nodes {
        let (name, operator) = (node.name.clone(), node.op_type.clone());
        number(node, &mut labels).map_err(|problem| ImportError::unsupported(problem).of_node(&name, &operator))?;
    }
    for output in outputs {
        output.labels = labels.get(&output.value).cloned();
        if let Some(labels) = &output.labels {
            output.dtype = Some(if matches!(labels, Labels::Texts(_)) { DType::I64 } else { DType::F32 });
        }
    }
    Ok(())
}

/// Rewrites one node, and records the labels of its outputs.
fn number(node: &mut Node, labels: &mut BTreeMap<ValueIndex, Labels>) -> Result<(), String> {
    let given = node.input(0).and_then(|value| labels.get(&value));
    let texts = match given {
        Some(Labels::Texts(texts)) => Some(Arc::clone(texts)),
        Some(_) => return Err("it reads maps, but only outputs can be maps".into()),
        None => None,
    };
    if node.all_inputs().skip(usize::from(given.is_some())).any(|value| labels.contains_key(&value)) {
        return Err("it reads strings, but only numbers are supported".into());
    }
    let made = match (&node.domain[..], &node.op_type[..], texts) {
        ("ai.onnx.ml", "TreeEnsembleClassifier", None) => classes(node, "classlabels_int64s")?,
        ("ai.onnx.ml", "LinearClassifier" | "SVMClassifier", None) => classes(node, "classlabels_ints")?,
        ("ai.onnx.ml", "LabelEncoder", texts) => encoder(node, texts.as_deref())?,
        ("ai.onnx.ml", "ZipMap", None) => Some(zipped(node)?),
        ("ai.onnx.ml", "ArrayFeatureExtractor", Some(texts)) => Some(Labels::Texts(texts)),
        ("", operator, Some(texts)) if MOVES.contains(&operator) => Some(Labels::Texts(texts)),
        ("", "Cast", Some(texts)) if matches!(node.int("to"), Ok(Some(data_type::STRING))) => {
            (node.op_type, node.attributes) = ("Identity".into(), BTreeMap::new());
            Some(Labels::Texts(texts))
        }
        (_, _, Some(_)) => return Err("it reads strings, but only numbers are supported".into()),
        _ => None,
    };
    if let (Some(made), Some(value)) = (made, node.output(0)) {
        labels.insert(value, made);
    }
    Ok(())
}

/// Takes a list of strings out of the node; `None` if it is missing or empty.
fn taken(node: &mut Node, name: &str) -> Result<Option<Vec<String>>, String> {
    let texts = node.strings(name).map_err(|error| error.to_string())?;
    let texts: Option<Vec<String>> = texts.map(|texts| texts.into_iter().map(str::to_owned).collect());
    node.attributes.remove(name);
    Ok(texts.filter(|texts| !texts.is_empty()))
}

/// The numbers `0..count` as an attribute.
fn numbered(count: usize) -> Attribute {
    Attribute::Ints((0..count as i64).collect())
}

/// Converts a classifier's labels to numbers, if they are strings.
fn classes(node: &mut Node, name: &str) -> Result<Option<Labels>, String> {
    let Some(texts) = taken(node, "classlabels_strings")? else { return Ok(None) };
    if texts.len() < 2 {
        return Err("its only class is a string".into());
    }
    node.attributes.insert(name.into(), numbered(texts.len()));
    Ok(Some(Labels::Texts(texts.into())))
}

/// Converts string keys and values to numbers: keys to indices of the input's strings, values to indices of a list of
/// their own.
fn encoder(node: &mut Node, read: Option<&[String]>) -> Result<Option<Labels>, String> {
    if let Some(classes) = taken(node, "classes_strings")? {
        // Version 1 maps strings to their numbers, or back.
        let (keys, values) =
            if read.is_some() { ("keys_strings", "values_int64s") } else { ("keys_int64s", "values_strings") };
        let texts = Attribute::Strings(classes.iter().map(|text| text.clone().into_bytes()).collect());
        for (name, texts_here) in [(keys, read.is_some()), (values, read.is_none())] {
            let list = if texts_here { texts.clone() } else { numbered(classes.len()) };
            node.attributes.insert(name.into(), list);
        }
        node.version = 2;
    }
    let made = match taken(node, "values_strings")? {
        Some(mut values) => {
            let default = node.string("default_string").map_err(|error| error.to_string())?;
            let default = default.unwrap_or("_Unused").to_owned();
            node.attributes.insert("values_int64s".into(), numbered(values.len()));
            node.attributes.insert("default_int64".into(), Attribute::Int(values.len() as i64));
            values.push(default);
            Some(Labels::Texts(values.into()))
        }
        None => None,
    };
    match (taken(node, "keys_strings")?, read) {
        (Some(keys), Some(texts)) => {
            // The first of equal keys counts; a string without a key gets a key without a value.
            let mut places = HashMap::new();
            keys.iter().enumerate().for_each(|(at, key)| _ = places.entry(key.as_str()).or_insert(at));
            let found: Vec<Option<usize>> = texts.iter().map(|text| places.get(text.as_str()).copied()).collect();
            let own =
                (0..texts.len() as i64).zip(&found).filter(|(_, at)| at.is_some()).map(|(index, _)| index).collect();
            node.attributes.insert("keys_int64s".into(), Attribute::Ints(own));
            let order: Vec<usize> = found.into_iter().flatten().collect();
            reordered(node, &order)?;
        }
        (Some(_), None) => return Err("its input is strings, but only numbers are supported".into()),
        (None, Some(_)) => return Err("it reads strings, but its keys are numbers".into()),
        (None, None) => {}
    }
    Ok(made)
}

/// Keeps only the values of these keys, in this order.
fn reordered(node: &mut Node, order: &[usize]) -> Result<(), String> {
    fn picked<T: Clone>(list: &[T], order: &[usize]) -> Option<Vec<T>> {
        order.iter().map(|at| list.get(*at).cloned()).collect()
    }
    let short = || "it has fewer values than keys".to_owned();
    for name in ["values_int64s", "values_floats"] {
        let picked = match node.attributes.get(name) {
            Some(Attribute::Ints(list)) => Attribute::Ints(picked(list, order).ok_or_else(short)?),
            Some(Attribute::Floats(list)) => Attribute::Floats(picked(list, order).ok_or_else(short)?),
            _ => continue,
        };
        node.attributes.insert(name.into(), picked);
        return Ok(());
    }
    Err("its values are not integers, floats or strings".into())
}

/// Returns the keys of a map; the node passes on its input.
fn zipped(node: &mut Node) -> Result<Labels, String> {
    let keys = match taken(node, "classlabels_strings")? {
        Some(texts) => Labels::TextKeys(texts.into()),
        None => {
            let keys = node.ints("classlabels_int64s").map_err(|error| error.to_string())?.unwrap_or_default();
            Labels::IntegerKeys(keys.into())
        }
    };
    (node.domain, node.op_type) = (String::new(), "Identity".into());
    (node.version, node.attributes) = (*OPSETS.end(), BTreeMap::new());
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto};
    use crate::{Model, from_bytes};

    fn ml(operator: &str, input: &str, outputs: &[&str], attributes: Vec<AttributeProto>) -> NodeProto {
        let node = NodeProto { domain: "ai.onnx.ml".into(), ..NodeProto::of(operator, &[input], outputs) };
        attributes.into_iter().fold(node, NodeProto::with)
    }

    /// A model whose outputs are not declared as tensors.
    fn model(node: Vec<NodeProto>, outputs: &[&str]) -> Result<Model, String> {
        let declared = |name: &&str| ValueInfoProto { name: (*name).into(), r#type: Some(TypeProto::default()) };
        let graph = GraphProto {
            node,
            input: vec![ValueInfoProto::f32s("x", &[2, 1])],
            output: outputs.iter().map(declared).collect(),
            ..GraphProto::default()
        };
        let mut model = ModelProto::of(graph, 17);
        model.opset_import.push(crate::proto::OperatorSetIdProto { domain: "ai.onnx.ml".into(), version: 3 });
        from_bytes(&model.to_bytes(), None).map_err(|error| error.to_string())
    }

    fn classifier() -> NodeProto {
        ml(
            "LinearClassifier",
            "x",
            &["label", "scores"],
            vec![AttributeProto::strings("classlabels_strings", &["no", "yes"])],
        )
    }

    #[test]
    fn texts_become_indices_and_maps_columns() {
        let zip =
            ml("ZipMap", "scores", &["map"], vec![AttributeProto::strings("classlabels_strings", &["no", "yes"])]);
        let same = NodeProto::of("Identity", &["label"], &["same"]);
        let model = model(vec![classifier(), zip, same], &["same", "map"]).expect("sound");
        let texts = || -> Arc<[String]> { ["no".to_owned(), "yes".to_owned()].into() };
        let labels: Vec<_> = model.outputs.iter().map(|output| output.labels.clone()).collect();
        assert_eq!(labels, [Some(Labels::Texts(texts())), Some(Labels::TextKeys(texts()))]);
        let json = serde_json::to_string(&labels).expect("lists");
        assert_eq!(json, r#"[{"texts":["no","yes"]},{"text_keys":["no","yes"]}]"#);
        assert_eq!(serde_json::from_str::<Vec<Option<Labels>>>(&json).expect("lists"), labels);
        assert_eq!(model.nodes[0].ints("classlabels_ints").expect("a list"), Some(&[0, 1][..]));
        assert_eq!(model.nodes[1].op_type, "Identity");
        let (named, indices) = (Labels::Texts(texts()), Tensor::from_i64s(&[1, 0]));
        assert_eq!(named.texts(&indices), Some(vec!["yes", "no"]));
        assert_eq!(Labels::Texts(texts()).texts(&Tensor::from_i64s(&[2])), None);
    }

    #[test]
    fn nodes_that_pass_on_a_list_share_it() {
        let same = [("label", "a"), ("a", "b"), ("b", "c")].map(|(from, to)| NodeProto::of("Identity", &[from], &[to]));
        let nodes = std::iter::once(classifier()).chain(same).collect();
        let model = model(nodes, &["label", "c"]).expect("sound");
        let lists: Vec<_> = model.outputs.iter().map(|output| output.labels.clone()).collect();
        let [Some(Labels::Texts(one)), Some(Labels::Texts(other))] = &lists[..] else { panic!("two lists of texts") };
        assert!(Arc::ptr_eq(one, other));
    }

    #[test]
    fn texts_are_encoded_by_their_keys() {
        let keys = AttributeProto::strings("keys_strings", &["yes", "other", "no"]);
        let values = AttributeProto::ints("values_int64s", &[10, 20, 30]);
        let model =
            model(vec![classifier(), ml("LabelEncoder", "label", &["y"], vec![keys, values])], &[]).expect("sound");
        assert_eq!(model.nodes[1].ints("keys_int64s").expect("a list"), Some(&[0, 1][..]));
        assert_eq!(model.nodes[1].ints("values_int64s").expect("a list"), Some(&[30, 10][..]));
    }

    #[test]
    fn what_reads_texts_otherwise_is_refused_by_name() {
        let cases = [
            (vec![classifier(), NodeProto::of("Abs", &["label"], &["y"])], "Abs_1"),
            (vec![classifier(), NodeProto::of("Add", &["scores", "label"], &["y"])], "Add_1"),
        ];
        for (nodes, name) in cases {
            let error = model(nodes, &[]).expect_err("it reads strings");
            assert!(error.contains(name) && error.contains("strings"), "{error}");
        }
        let error = model(vec![NodeProto::of("Abs", &["x"], &["y"])], &["y"]).expect_err("no tensor");
        assert!(error.contains("has an unsupported type"), "{error}");
    }
}
