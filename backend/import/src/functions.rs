//! Functions defined in a model: a call is replaced by the nodes of the function's body, with their own names.
//!
//! A body sees its function's inputs and its own results, and nothing of the graph that calls it. The function states
//! the versions of the operators in its body. Calls within a body are replaced in turn; a function that calls itself,
//! even indirectly, is rejected. The nodes and bytes that calls add to a model are counted before they are created,
//! because bodies that call each other twice grow exponentially.

mod size;

use self::size::{Size, bytes_of};
use super::Limits;
use super::attribute::Attribute;
use super::error::{ImportError, Name, Result};
use super::graph::{Builder, Maker, OPSETS, check_node_names, opsets_of, standard};
use super::model::{Node, ValueIndex};
use super::parameters;
use super::proto::{AttributeProto, FunctionProto, ModelProto, NodeProto};
use super::tensor::TensorReader;
use anabranch_kernels::Tensor;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Deepest nesting of functions and graphs around a call: reading and lowering them recurses.
pub const DEEPEST: usize = 32;

/// Domain, name and overload by which a function is called.
type Key<'p> = (&'p str, &'p str, &'p str);

/// Functions of a model, and the calls that are being replaced.
pub(super) struct Functions<'p> {
    /// Functions by key; `None` stands for several functions of one name.
    known: HashMap<Key<'p>, Option<&'p FunctionProto>>,
    /// Calls around the node that is being read, outermost first.
    calls: Vec<Call<'p>>,
    /// Number of graphs and calls around that node.
    depth: usize,
    nodes: Budget,
    bytes: Budget,
    /// Tensors of bodies, each in memory once: by the address of its message, which outlives this.
    tensors: HashMap<*const (), Tensor>,
}

/// Amount that calls may add, and the limit behind it.
struct Budget {
    left: u64,
    limit: u64,
    what: &'static str,
}

/// One call of a function.
struct Call<'p> {
    key: Key<'p>,
    /// Name of the call, which prefixes the names of its nodes.
    name: String,
    /// Inputs that are left out.
    absent: HashSet<&'p str>,
    /// Values of the function's parameters.
    parameters: BTreeMap<String, Attribute>,
    versions: BTreeMap<String, i64>,
}

impl<'p> Functions<'p> {
    pub(super) fn of(model: &'p ModelProto, limits: &Limits) -> Self {
        let mut known = HashMap::new();
        for function in &model.functions {
            let key = (standard(&function.domain), &*function.name, &*function.overload);
            known.entry(key).and_modify(|other| *other = None).or_insert(Some(function));
        }
        let budget = |limit, what| Budget { left: limit, limit, what };
        let (nodes, bytes) = (budget(limits.nodes, "nodes"), budget(limits.structure_bytes, "structure_bytes"));
        Self { known, calls: Vec::new(), depth: 0, nodes, bytes, tensors: HashMap::new() }
    }

    /// Returns the name of a node, prefixed by the call that it comes from.
    pub(super) fn qualified(&self, name: &str) -> String {
        self.calls.last().map_or_else(|| name.to_owned(), |call| format!("{}/{name}", call.name))
    }

    /// Returns the version of a domain's operators that the current function states, if it does.
    pub(super) fn version(&self, domain: &str) -> Option<i64> {
        self.calls.last()?.versions.get(domain).copied()
    }

    /// Whether the name is that of an input that the current call leaves out.
    ///
    /// # Errors
    /// If the name is unknown in the current function.
    pub(super) fn leaves_out(&self, name: &str) -> Result<bool> {
        match self.calls.last() {
            Some(call) if call.absent.contains(name) => Ok(true),
            Some(call) => Err(ImportError::malformed(format!(
                "reads {}, but the function {} has no such value or input",
                Name(name),
                Name(call.key.1)
            ))),
            None => Ok(false),
        }
    }

    /// Returns the value of the parameter that an attribute refers to; `None` if neither the call nor the function
    /// gives one.
    ///
    /// # Errors
    /// If there is no function around the attribute, or its value is a graph that was used already.
    pub(super) fn parameter(&mut self, name: &str) -> Result<Option<Attribute>> {
        let Some(call) = self.calls.last_mut() else {
            return Err(ImportError::malformed("refers to the parameter of a function, but is outside of a function"));
        };
        match call.parameters.get_mut(name) {
            None => Ok(None),
            // The graph may be nested deeper here than where it was read.
            Some(Attribute::Graph(Ok(graph))) if self.depth + graph.height > DEEPEST => Err(too_deep()),
            // The values of a graph are its own, so that it can be used only once.
            Some(graph @ Attribute::Graph(_)) => {
                Ok(Some(std::mem::replace(graph, Attribute::Other("a subgraph that is used twice"))))
            }
            Some(value) => {
                let value = value.clone();
                self.bytes.take(bytes_of(&value))?;
                Ok(Some(value))
            }
        }
    }

    /// Returns a tensor of an attribute; a tensor of a body is read once.
    pub(super) fn tensor<P>(&mut self, proto: &P, read: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        if self.calls.is_empty() {
            return read();
        }
        let place = std::ptr::from_ref(proto).cast();
        if let Some(tensor) = self.tensors.get(&place) {
            return Ok(tensor.clone());
        }
        let tensor = read()?;
        self.tensors.insert(place, tensor.clone());
        Ok(tensor)
    }

    /// Enters a graph within a node.
    pub(super) fn enter(&mut self) {
        self.depth += 1;
    }

    /// Leaves a graph within a node.
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Returns the function that a node calls, if it calls one.
    pub(super) fn called(&self, node: &'p NodeProto) -> Option<Key<'p>> {
        let key = (standard(&node.domain), &*node.op_type, &*node.overload);
        self.known.contains_key(&key).then_some(key)
    }

    /// Returns the function of this name, if it may be called here and the budgets allow its body.
    fn admit(&mut self, key: Key<'p>, name: &str) -> Result<&'p FunctionProto> {
        let Some(function) = self.known.get(&key).copied().flatten() else {
            return Err(ImportError::malformed("calls a function that the model defines twice"));
        };
        if let Some(at) = self.calls.iter().position(|call| call.key == key) {
            let names = self.calls[at..].iter().map(|call| Name(call.key.1).to_string());
            let path: Vec<_> = names.chain([Name(key.1).to_string()]).collect();
            return Err(ImportError::malformed(format!("calls a function within itself: {}", path.join(" → "))));
        }
        if self.depth >= DEEPEST {
            return Err(too_deep());
        }
        let Size { nodes, bytes } = Size::of(function);
        self.nodes.take(nodes)?;
        // The call's name is stored with each node, and in the list of names.
        self.bytes.take(bytes.saturating_add(nodes.saturating_mul(2 * name.len() as u64)))?;
        Ok(function)
    }
}

impl Budget {
    fn take(&mut self, count: u64) -> Result<()> {
        let (limit, what) = (self.limit, self.what);
        let over = || {
            let words = format!("the model's functions exceed {limit} when their calls are inlined");
            ImportError::over(what, words)
        };
        self.left = self.left.checked_sub(count).ok_or_else(over)?;
        Ok(())
    }
}

impl<'p> Builder<'p> {
    /// Replaces the call `proto` by the function's body, under the name `name`.
    pub(super) fn call(
        &mut self,
        proto: &'p NodeProto,
        key: Key<'p>,
        name: &str,
        tensors: &mut TensorReader<'_>,
    ) -> Result<()> {
        let wrong = |error: ImportError| error.of_node(name, &proto.op_type);
        check_node_names(proto).map_err(wrong)?;
        let function = self.functions.admit(key, name).map_err(wrong)?;
        let versions = opsets_of(&function.opset_import).map_err(wrong)?;
        if let Some(version) = versions.get("").filter(|version| !OPSETS.contains(version)) {
            return Err(wrong(ImportError::unsupported(format!("calls a function that uses opset {version}"))));
        }
        let inputs = self.bound(proto, function).map_err(wrong)?;
        let outputs = self.given_back(proto, function, name).map_err(wrong)?;
        // Values that the call gives to parameters are read in the call's scope, default values within the function.
        let mut given = self.bare(proto, name.to_owned());
        parameters::read(&proto.attribute, &mut given, self, tensors)?;
        let (index, absent) = self.scope(function, &inputs, &outputs);
        let outer = std::mem::replace(&mut self.index, index);
        let call = Call { key, name: name.to_owned(), absent, parameters: given.attributes, versions };
        self.functions.calls.push(call);
        self.functions.enter();
        let result = self.body(function, proto, name, &outputs, tensors);
        self.functions.leave();
        self.functions.calls.pop();
        self.index = outer;
        result
    }

    /// Pairs the function's inputs with the call's values.
    fn bound(
        &mut self,
        proto: &'p NodeProto,
        function: &'p FunctionProto,
    ) -> Result<Vec<(&'p str, Option<ValueIndex>)>> {
        let (given, known) = (named(&proto.input), function.input.len());
        if given > known {
            return Err(ImportError::malformed(format!("gives {given} inputs to a function with {known} inputs")));
        }
        let mut seen = HashSet::new();
        let mut inputs = Vec::with_capacity(function.input.len());
        for (at, input) in function.input.iter().enumerate() {
            if input.is_empty() || !seen.insert(input) {
                let problem = format!("calls a function whose input {} has an empty or repeated name", Name(input));
                return Err(ImportError::malformed(problem));
            }
            let given = proto.input.get(at).map_or(Ok(None), |given| self.read(given))?;
            inputs.push((input.as_str(), given));
        }
        Ok(inputs)
    }

    /// Pairs the function's output names with the call's output values; `None` for unused outputs.
    fn given_back(
        &mut self,
        proto: &'p NodeProto,
        function: &'p FunctionProto,
        name: &str,
    ) -> Result<Vec<(&'p str, Option<ValueIndex>)>> {
        let (wanted, known) = (named(&proto.output), function.output.len());
        if wanted > known {
            return Err(ImportError::malformed(format!("reads {wanted} outputs of a function with {known} outputs")));
        }
        let mut outputs = Vec::with_capacity(function.output.len());
        let mut seen = HashSet::new();
        for (at, output) in function.output.iter().enumerate() {
            let value = match proto.output.get(at).map_or("", String::as_str) {
                "" => None,
                wanted => Some(self.unmade(wanted, name)?),
            };
            if value.is_some_and(|value| !seen.insert(value)) {
                return Err(ImportError::malformed("produces one value twice"));
            }
            outputs.push((output.as_str(), value));
        }
        Ok(outputs)
    }

    /// Returns the meanings of names within the function, and the inputs that are left out.
    fn scope(
        &mut self,
        function: &'p FunctionProto,
        inputs: &[(&'p str, Option<ValueIndex>)],
        outputs: &[(&'p str, Option<ValueIndex>)],
    ) -> (HashMap<&'p str, ValueIndex>, HashSet<&'p str>) {
        let mut index: HashMap<_, _> = inputs.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
        let absent: HashSet<_> = inputs.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| *name).collect();
        for (name, value) in outputs {
            if let Some(value) = value.filter(|_| !absent.contains(name)) {
                index.entry(name).or_insert(value);
            }
        }
        let made = function.node.iter().flat_map(|node| node.output.iter().map(String::as_str));
        for name in made.filter(|name| !name.is_empty() && !absent.contains(name)) {
            if !index.contains_key(name) {
                let value = self.new_value(name);
                self.own.insert(value);
                index.insert(name, value);
            }
        }
        (index, absent)
    }

    /// Adds the nodes of the function's body, and copies for outputs that have another name within it.
    fn body(
        &mut self,
        function: &'p FunctionProto,
        proto: &'p NodeProto,
        name: &str,
        outputs: &[(&'p str, Option<ValueIndex>)],
        tensors: &mut TensorReader<'_>,
    ) -> Result<()> {
        let wrong = |problem: String| Err(ImportError::malformed(problem).of_node(name, &proto.op_type));
        self.defaults(&function.attribute_proto, proto, name, tensors)?;
        let inputs: HashSet<_> = function.input.iter().collect();
        if let Some(made) = function.node.iter().flat_map(|node| &node.output).find(|made| inputs.contains(made)) {
            return wrong(format!("calls a function that produces its own input {}", Name(made)));
        }
        for node in &function.node {
            self.node(node, tensors)?;
        }
        for (output, value) in outputs {
            let Some(value) = *value else { continue };
            match self.index.get(output) {
                Some(made) if *made == value => {}
                Some(made) => self.copied(*made, value),
                None => {
                    return wrong(format!(
                        "reads the output {} of a function, which is an input that the call leaves out",
                        Name(output)
                    ));
                }
            }
            if !self.is_made(value) {
                return wrong(format!("calls a function whose output {} no node produces", Name(output)));
            }
        }
        Ok(())
    }

    /// Sets parameters that the call does not give to the function's values.
    fn defaults(
        &mut self,
        protos: &'p [AttributeProto],
        call: &'p NodeProto,
        name: &str,
        tensors: &mut TensorReader<'_>,
    ) -> Result<()> {
        let mut defaults = self.bare(call, name.to_owned());
        parameters::read(protos, &mut defaults, self, tensors)?;
        if let Some(call) = self.functions.calls.last_mut() {
            defaults.attributes.into_iter().for_each(|(name, value)| _ = call.parameters.entry(name).or_insert(value));
        }
        Ok(())
    }

    /// Adds a node that passes a value on under another name.
    fn copied(&mut self, from: ValueIndex, to: ValueIndex) {
        let position = self.nodes.len() as u32;
        let proto = NodeProto::of("Identity", &[], &[]);
        let name = self.node_name(&proto, position);
        let node = Node { inputs: vec![Some(from)], outputs: vec![Some(to)], ..self.bare(&proto, name) };
        self.nodes.push(node);
        self.made(to, Maker::Node(position));
    }
}

/// Number of values up to the last with a name.
fn named(values: &[String]) -> usize {
    values.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1)
}

fn too_deep() -> ImportError {
    ImportError::limit(format!("functions and graphs nested more than {DEEPEST} deep"))
}
