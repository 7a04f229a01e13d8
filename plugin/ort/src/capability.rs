//! Which parts of a graph are ours: those that lower to kernels of ours when it is tried.

use super::api::Api;
use super::graph::{Graph, Part};
use super::parts::parts;
use super::status::Result;
use super::values;
use anabranch::import::{self, Model};
use anabranch::lower::{LowerError, LowerOptions, Obstacle, Rewrites, lower};
use anabranch::{DType, Shape, Tensor, TensorSpec};
use anabranch_kernels::Buffer;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Sizes that dimensions which only the run tells have in trials. One that fits them all together is enough.
const TRIALS: [usize; 3] = [1, 2, 8];

/// What is ours and why the rest is not.
pub(crate) struct Claim {
    /// Nodes by their places in the graph, in topological orders.
    pub(crate) parts: Vec<Vec<usize>>,
    /// The nodes that stay with others.
    pub(crate) refused: BTreeMap<usize, String>,
}

/// Why a part is not ours as it is.
struct Refusal {
    /// The nodes that are in the way in whichever part, by name, each with why; none if that is not known.
    nodes: Vec<(String, String)>,
    /// Why the part as a whole is not.
    why: String,
}

/// Tries which parts of a graph lower. Nodes that are in the way are refused, all that lowering tells of at once, and the rest is parted
/// anew: each time, only the parts that are new are tried.
///
/// # Errors
/// If the host fails.
pub(crate) fn claim(api: Api, graph: &Graph) -> Result<Claim> {
    let makers = graph.makers();
    let places: HashMap<&str, usize> = (0..).zip(&graph.nodes).map(|(at, node)| (&*node.message.name, at)).collect();
    let alone = graph.nodes.iter().enumerate();
    let mut refused: BTreeMap<usize, String> =
        alone.filter_map(|(at, node)| Some((at, node.refused.clone()?))).collect();
    let mut sound = BTreeSet::new();
    loop {
        let ours: Vec<bool> = (0..graph.nodes.len()).map(|node| !refused.contains_key(&node)).collect();
        let parts = parts(&makers, &ours);
        let before = refused.len();
        for part in &parts {
            if sound.contains(part) {
                continue;
            }
            match tried(api, &graph.part(part))? {
                None => _ = sound.insert(part.clone()),
                Some(Refusal { nodes, why }) => {
                    let known = refused.len();
                    refused.extend(nodes.into_iter().filter_map(|(name, why)| Some((*places.get(&*name)?, why))));
                    if refused.len() == known {
                        refused.extend(part.iter().map(|at| (*at, why.clone())));
                    }
                }
            }
        }
        if refused.len() == before {
            return Ok(Claim { parts, refused });
        }
    }
}

impl Refusal {
    fn of(error: &LowerError) -> Self {
        let told = |obstacle: &Obstacle| {
            let Obstacle { node, operator, reason, .. } = obstacle;
            (node.clone(), format!("node {node:?} ({operator}): {reason}"))
        };
        let all = || error.obstacles().iter();
        // What is late only because of where it is in the part may be sound elsewhere; what must be computed to tell its shape is not.
        let hopeless = all().any(|obstacle| !obstacle.is_late);
        let in_the_way = |obstacle: &&Obstacle| if hopeless { !obstacle.is_late } else { obstacle.wanted.is_empty() };
        let mut nodes: Vec<_> = all().filter(in_the_way).map(told).collect();
        if nodes.is_empty() {
            nodes.extend(error.node().map(|node| (node.to_owned(), error.to_string())));
        }
        Self { nodes, why: error.to_string() }
    }
}

/// Why a part does not lower, if it does not.
fn tried(api: Api, part: &Part) -> Result<Option<Refusal>> {
    let mut model = match import::from_message(&part.message) {
        Ok(model) => model,
        Err(error) => {
            let node = error.node().map(|node| (node.to_owned(), error.to_string()));
            return Ok(Some(Refusal { nodes: node.into_iter().collect(), why: error.to_string() }));
        }
    };
    for (name, value) in &part.constants {
        // SAFETY: the constant is read while the call that shows the graph is answered, and no longer.
        model.fix_input(name, unsafe { values::constant(api, *value, name) }?);
    }
    let mut first = None;
    for size in TRIALS {
        match lowered(&model, part, size) {
            Ok(()) => return Ok(None),
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    Ok(first.as_ref().map(Refusal::of))
}

/// Lowers a part where dimensions that are not known have this size.
fn lowered(model: &Model, part: &Part, size: usize) -> std::result::Result<(), LowerError> {
    let shape = |dims: &[Option<usize>]| Shape::new(dims.iter().map(|dim| dim.unwrap_or(size)).collect::<Vec<_>>());
    let varying = part.inputs.iter().filter(|(name, _)| !part.constants.contains_key(name));
    let shapes = varying.filter_map(|(name, declared)| Some((name.clone(), shape(&declared.dims).ok()?)));
    let mut options = LowerOptions { input_shapes: shapes.collect(), fuse: Rewrites::NONE, ..LowerOptions::default() };
    match lower(model, &options) {
        // The elements of inputs that decide shapes are known in a run. Truth values are tried; other elements could be any. What no
        // elements would help is refused.
        Err(error) if !error.deciding_inputs().is_empty() && error.obstacles().iter().all(|other| other.is_late) => {
            let spec = |name: &str| {
                let (_, declared) = part.inputs.iter().find(|(input, _)| input == name)?;
                Some(TensorSpec::new(declared.dtype, options.input_shapes.get(name)?.clone()))
            };
            let deciding: Option<BTreeMap<_, _>> =
                error.deciding_inputs().iter().map(|name| Some((name.to_string(), spec(name)?))).collect();
            let Some(deciding) = deciding.filter(|all| all.values().all(|spec| spec.dtype == DType::Bool)) else {
                return Ok(());
            };
            for truth in [false, true] {
                let tensor = |spec: &TensorSpec| {
                    Tensor::new(spec.clone(), Arc::new(Buffer::copied(&vec![truth.into(); spec.bytes()])))
                };
                let fixed = deciding.iter().filter_map(|(name, spec)| Some((name.clone(), tensor(spec).ok()?)));
                options.fixed = fixed.collect();
                lower(model, &options)?;
            }
            Ok(())
        }
        result => result.map(|_| ()),
    }
}
