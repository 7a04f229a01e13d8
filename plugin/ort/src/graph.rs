//! ONNX Runtime's graphs as ONNX messages, from which the importer makes models.

use super::api::{Api, owned};
use super::status::{Failure, Result};
use super::values::{self, Declared};
use anabranch::import::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorTypeProto, TypeProto,
    ValueInfoProto,
};
use ort_sys::{OrtGraph, OrtNode, OrtOpAttr, OrtOpAttrType as Kind, OrtValue, OrtValueInfo};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ptr;

/// A graph, as shown in the call that is being answered.
pub(crate) struct Graph {
    opsets: Vec<OperatorSetIdProto>,
    pub(crate) nodes: Vec<Node>,
    /// Names of the nodes.
    names: HashSet<String>,
    values: HashMap<String, Value>,
    /// For each value, the nodes that read it.
    readers: HashMap<String, Vec<usize>>,
    /// Names of the graph's outputs.
    outputs: BTreeSet<String>,
}

/// An operator.
pub(crate) struct Node {
    pub(crate) ort: *const OrtNode,
    pub(crate) message: NodeProto,
    /// Values of the graph that its subgraphs read.
    implicit: Vec<String>,
    /// Reason why this provider cannot compute it, from the node alone.
    pub(crate) refused: Option<String>,
}

/// A value.
struct Value {
    declared: Option<Declared>,
    /// Its elements, if they never change.
    initializer: Option<*const OrtValue>,
}

/// A part of a graph as a model, with its connections to the rest.
pub(crate) struct Part {
    pub(crate) message: ModelProto,
    /// Inputs from outside of the part, by name, in the order of the message's inputs.
    pub(crate) inputs: Vec<(String, Declared)>,
    /// Inputs whose elements never change.
    pub(crate) constants: BTreeMap<String, *const OrtValue>,
}

impl Graph {
    /// Reads a graph.
    ///
    /// # Errors
    /// If the host fails. Nodes that cannot be computed here are not errors; they hold the reason.
    pub(crate) fn read(api: Api, graph: *const OrtGraph) -> Result<Self> {
        let mut values = HashMap::new();
        let ort = api.ort;
        for info in api.list(graph, ort.Graph_GetNumInitializers, ort.Graph_GetInitializers)? {
            let name = value_name(api, info)?;
            values.insert(name, Value { initializer: initializer(api, info)?, ..Value::of(api, info)? });
        }
        for info in api.list(graph, ort.Graph_GetNumInputs, ort.Graph_GetInputs)? {
            let value = Value::of(api, info)?;
            values.entry(value_name(api, info)?).or_insert(value);
        }
        let outputs = api.list(graph, ort.Graph_GetNumOutputs, ort.Graph_GetOutputs)?;
        let outputs = outputs.into_iter().map(|info| value_name(api, info)).collect::<Result<_>>()?;
        let opsets = opsets(api, graph)?;
        let (nodes, names, readers) = Default::default();
        let mut read = Self { opsets, nodes, names, values, readers, outputs };
        for (at, node) in api.list(graph, ort.Graph_GetNumNodes, ort.Graph_GetNodes)?.into_iter().enumerate() {
            read.node(api, at, node)?;
        }
        for (at, node) in read.nodes.iter().enumerate() {
            node.read().for_each(|name| read.readers.entry(name.to_owned()).or_default().push(at));
        }
        Ok(read)
    }

    fn node(&mut self, api: Api, at: usize, ort: *const OrtNode) -> Result<()> {
        let mut refused = None;
        let message = message_of(api, ort, &mut refused)?;
        let implicit_infos = api.list(ort, api.ort.Node_GetNumImplicitInputs, api.ort.Node_GetImplicitInputs)?;
        let mut implicit = Vec::new();
        for info in &implicit_infos {
            implicit.push(value_name(api, *info)?);
        }
        // SAFETY: `ort` is of the call that is being answered.
        if api.get(0, |out| unsafe { (api.ort.Node_GetNumSubgraphs)(ort, out) })? > 0 {
            refused.get_or_insert_with(|| "its subgraphs are offered separately".into());
        }
        let inputs = api.list(ort, api.ort.Node_GetNumInputs, api.ort.Node_GetInputs)?;
        let outputs = api.list(ort, api.ort.Node_GetNumOutputs, api.ort.Node_GetOutputs)?;
        for info in inputs.into_iter().chain(outputs).chain(implicit_infos) {
            let name = value_name(api, info)?;
            if name.is_empty() {
                continue;
            }
            let value = match self.values.entry(name) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(Value::of(api, info)?),
            };
            if value.declared.is_none() {
                refused.get_or_insert_with(|| "it has a value of an unsupported type".into());
            }
        }
        // Names identify nodes in errors and plans.
        let mut message = message;
        if message.name.is_empty() || !self.names.insert(message.name.clone()) {
            message.name = format!("{}{}_{at}", message.name, message.op_type);
            self.names.insert(message.name.clone());
        }
        self.nodes.push(Node { ort, message, implicit, refused });
        Ok(())
    }

    /// Returns, for each node, the nodes that make its inputs.
    pub(crate) fn makers(&self) -> Vec<Vec<usize>> {
        let mut maker = HashMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            node.message.output.iter().for_each(|name| _ = maker.insert(name.as_str(), at));
        }
        let of = |node: &Node| {
            let made = node.read().filter_map(|name| maker.get(name).copied());
            made.collect::<BTreeSet<usize>>().into_iter().collect()
        };
        self.nodes.iter().map(of).collect()
    }

    /// Returns some nodes, in a topological order, as a model. Takes time only for these nodes, because there may be
    /// many parts.
    pub(crate) fn part(&self, nodes: &[usize]) -> Part {
        let inside: HashSet<usize> = nodes.iter().copied().collect();
        let messages = nodes.iter().map(|node| &self.nodes[*node]);
        let made: BTreeSet<&str> = messages.clone().flat_map(|node| &node.message.output).map(String::as_str).collect();
        let (mut inputs, mut constants, mut seen) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        for name in messages.clone().flat_map(Node::read).filter(|name| !made.contains(name)) {
            let Some(Value { declared: Some(declared), initializer }) = self.values.get(name) else { continue };
            if seen.insert(name) {
                inputs.push((name.to_owned(), declared.clone()));
                constants.extend(initializer.map(|value| (name.to_owned(), value)));
            }
        }
        let is_read_outside =
            |name: &String| self.readers.get(name).is_some_and(|all| all.iter().any(|at| !inside.contains(at)));
        let made = messages.clone().flat_map(|node| &node.message.output);
        let given = made.filter(|name| self.outputs.contains(*name) || is_read_outside(name));
        let info = |name: &str, code: i64| {
            let tensor = TensorTypeProto { elem_type: code, shape: None };
            ValueInfoProto {
                name: name.to_owned(),
                r#type: Some(TypeProto { tensor_type: Some(tensor), ..TypeProto::default() }),
            }
        };
        let untyped = |name: &String| ValueInfoProto { name: name.clone(), r#type: None };
        let graph = GraphProto {
            name: "part".into(),
            node: messages.map(|node| node.message.clone()).collect(),
            input: inputs.iter().map(|(name, declared)| info(name, values::code(declared.dtype))).collect(),
            output: given.map(untyped).collect(),
            ..GraphProto::default()
        };
        let message = ModelProto { opset_import: self.opsets.clone(), ..ModelProto::of(graph, 0) };
        Part { message, inputs, constants }
    }
}

impl Node {
    /// Returns the names of the values that the node and its subgraphs read.
    fn read(&self) -> impl Iterator<Item = &str> {
        self.message.input.iter().chain(&self.implicit).map(String::as_str).filter(|name| !name.is_empty())
    }
}

impl Value {
    fn of(api: Api, info: *const OrtValueInfo) -> Result<Self> {
        Ok(Self { declared: values::declared(api, info)?, initializer: None })
    }
}

/// Returns a value's name; empty for a value that is left out.
pub(crate) fn value_name(api: Api, info: *const OrtValueInfo) -> Result<String> {
    if info.is_null() {
        return Ok(String::new());
    }
    // SAFETY: `info` is of the call that is being answered.
    api.text(|out| unsafe { (api.ort.GetValueInfoName)(info, out) })
}

/// Returns the elements of an initialiser that cannot be overridden.
fn initializer(api: Api, info: *const OrtValueInfo) -> Result<Option<*const OrtValue>> {
    // SAFETY: `info` is of the call that is being answered.
    unsafe {
        if !api.get(false, |out| (api.ort.ValueInfo_IsConstantInitializer)(info, out))? {
            return Ok(None);
        }
        let value = api.get(ptr::null(), |out| (api.ort.ValueInfo_GetInitializerValue)(info, out))?;
        Ok(Some(value).filter(|value| !value.is_null()))
    }
}

fn opsets(api: Api, graph: *const OrtGraph) -> Result<Vec<OperatorSetIdProto>> {
    // SAFETY: `graph` is of the call that is being answered; there is room for as many as there are.
    unsafe {
        let count = api.get(0, |out| (api.ort.Graph_GetNumOperatorSets)(graph, out))?;
        let (mut domains, mut versions) = (vec![ptr::null(); count], vec![0; count]);
        api.done((api.ort.Graph_GetOperatorSets)(graph, domains.as_mut_ptr(), versions.as_mut_ptr(), count))?;
        let set = |(domain, version)| OperatorSetIdProto { domain: owned(domain), version };
        Ok(domains.into_iter().zip(versions).map(set).collect())
    }
}

/// Returns a node as a message. Sets `refused` to the reason if it cannot be computed here.
fn message_of(api: Api, node: *const OrtNode, refused: &mut Option<String>) -> Result<NodeProto> {
    let ort = api.ort;
    let names = |infos: Vec<*const OrtValueInfo>| {
        infos.into_iter().map(|info| value_name(api, info)).collect::<Result<Vec<_>>>()
    };
    // SAFETY: `node` is of the call that is being answered.
    let mut message = unsafe {
        NodeProto {
            name: api.text(|out| (ort.Node_GetName)(node, out))?,
            op_type: api.text(|out| (ort.Node_GetOperatorType)(node, out))?,
            domain: api.text(|out| (ort.Node_GetDomain)(node, out))?,
            input: names(api.list(node, ort.Node_GetNumInputs, ort.Node_GetInputs)?)?,
            output: names(api.list(node, ort.Node_GetNumOutputs, ort.Node_GetOutputs)?)?,
            ..NodeProto::default()
        }
    };
    for attribute in api.list(node, ort.Node_GetNumAttributes, ort.Node_GetAttributes)? {
        // SAFETY: `attribute` is of the call that is being answered.
        let name = api.text(|out| unsafe { (ort.OpAttr_GetName)(attribute, out) })?;
        match attribute_of(api, attribute, &name)? {
            Ok(Some(attribute)) => message.attribute.push(attribute),
            Ok(None) => {}
            Err(why) => _ = refused.get_or_insert(why),
        }
    }
    Ok(message)
}

/// Returns an attribute as a message, `None` for a graph, or the reason why it cannot be read.
fn attribute_of(
    api: Api,
    attribute: *const OrtOpAttr,
    name: &str,
) -> Result<std::result::Result<Option<AttributeProto>, String>> {
    // SAFETY: `attribute` is of the call that is being answered; the tensor is released once, after it was copied.
    let kind = api.get(Kind::ORT_OP_ATTR_UNDEFINED, |out| unsafe { (api.ort.OpAttr_GetType)(attribute, out) })?;
    let of = |kind| elements(api, attribute, kind);
    Ok(Ok(Some(match kind {
        Kind::ORT_OP_ATTR_INT => AttributeProto::int(name, of(kind)?.into_i64s().first().copied().unwrap_or(0)),
        Kind::ORT_OP_ATTR_INTS => AttributeProto::ints(name, &of(kind)?.into_i64s()),
        Kind::ORT_OP_ATTR_FLOAT => AttributeProto::float(name, of(kind)?.into_f32s().first().copied().unwrap_or(0.0)),
        Kind::ORT_OP_ATTR_FLOATS => AttributeProto::floats(name, &of(kind)?.into_f32s()),
        Kind::ORT_OP_ATTR_STRING => AttributeProto::string(name, &String::from_utf8_lossy(&of(kind)?.0)),
        Kind::ORT_OP_ATTR_STRINGS => {
            let bytes = of(kind)?.0;
            let texts: Vec<_> = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            // Each string ends with a zero byte.
            let texts: Vec<&str> = texts.iter().take(texts.len() - 1).map(AsRef::as_ref).collect();
            AttributeProto::strings(name, &texts)
        }
        Kind::ORT_OP_ATTR_TENSOR => {
            // SAFETY: as above.
            let tensor = unsafe {
                let value =
                    api.get(ptr::null_mut(), |out| (api.ort.OpAttr_GetTensorAttributeAsOrtValue)(attribute, out))?;
                let tensor = tensor_message(api, value, "");
                (api.ort.ReleaseValue)(value);
                tensor
            };
            match tensor {
                Ok(tensor) => AttributeProto::tensor(name, tensor),
                Err(why) => return Ok(Err(why.to_string())),
            }
        }
        Kind::ORT_OP_ATTR_GRAPH => return Ok(Ok(None)),
        Kind::ORT_OP_ATTR_UNDEFINED => {
            return Ok(Err(format!("its attribute `{name}` has an unknown type")));
        }
    })))
}

/// Bytes of an attribute.
struct Elements(Vec<u8>);

impl Elements {
    fn into_i64s(self) -> Vec<i64> {
        self.0.as_chunks().0.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect()
    }

    fn into_f32s(self) -> Vec<f32> {
        self.0.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
    }
}

fn elements(api: Api, attribute: *const OrtOpAttr, kind: Kind) -> Result<Elements> {
    // Aligned for the largest elements that the function writes: integers of 8 bytes.
    let mut words = vec![0u64; 8];
    let mut size = 0;
    // SAFETY: `attribute` is of the call that is being answered; the function writes no more than the given size.
    unsafe {
        let read = |words: &mut Vec<u64>, size: &mut usize| {
            api.done((api.ort.ReadOpAttr)(attribute, kind, words.as_mut_ptr().cast(), words.len() * 8, size))
        };
        if let Err(failure) = read(&mut words, &mut size) {
            // It was too small, and `size` is the required size.
            if size <= words.len() * 8 {
                return Err(failure);
            }
            words.resize(size.div_ceil(8), 0);
            read(&mut words, &mut size)?;
        }
    }
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    Ok(Elements(bytes.take(size).collect()))
}

/// Returns a copy of a tensor as a message.
fn tensor_message(api: Api, value: *const OrtValue, name: &str) -> Result<TensorProto> {
    // SAFETY: `value` is of the call that is being answered, and only read in it.
    let tensor = unsafe { values::tensor(api, value, name) }?;
    let dims: std::result::Result<Vec<i64>, _> = tensor.shape().dims().iter().map(|dim| i64::try_from(*dim)).collect();
    let dims = dims.map_err(|_| Failure::new(format_args!("`{name}` is too large")))?;
    Ok(TensorProto::raw(name, values::code(tensor.dtype()), &dims, tensor.bytes().to_vec()))
}
