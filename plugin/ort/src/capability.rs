//! Selection of the nodes of a graph that this provider computes: those that lower to its kernels in a trial.

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

/// Sizes used in trials for dimensions that are known only in a run. It is enough if one size fits them all.
const TRIALS: [usize; 3] = [1, 2, 8];

/// The nodes that this provider computes, and the reasons against the others.
pub(crate) struct Claim {
    /// Parts as indices of nodes in the graph, in topological orders.
    pub(crate) parts: Vec<Vec<usize>>,
    /// Nodes that are left to other providers, with the reasons.
    pub(crate) refused: BTreeMap<usize, String>,
}

/// Reason against a part as it is.
struct Refusal {
    /// Names of the nodes that prevent any part that contains them, with the reasons; empty if they are unknown.
    nodes: Vec<(String, String)>,
    /// Reason against the part as a whole.
    why: String,
}

/// Tries which parts of a graph can be lowered.
///
/// Nodes that prevent it are refused, all that lowering reports at once, and the others are grouped again. Each time,
/// only new parts are tried.
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
        // An operator whose shapes are known late only because of its position in the part may be usable in another
        // part. One whose own shape must be computed is not.
        let hopeless = all().any(|obstacle| !obstacle.is_late);
        let in_the_way = |obstacle: &&Obstacle| if hopeless { !obstacle.is_late } else { obstacle.wanted.is_empty() };
        let mut nodes: Vec<_> = all().filter(in_the_way).map(told).collect();
        if nodes.is_empty() {
            nodes.extend(error.node().map(|node| (node.to_owned(), error.to_string())));
        }
        Self { nodes, why: error.to_string() }
    }
}

/// Returns the reason why a part cannot be lowered, if it cannot.
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

/// Lowers a part with this size for all unknown dimensions.
fn lowered(model: &Model, part: &Part, size: usize) -> std::result::Result<(), LowerError> {
    let shape = |dims: &[Option<usize>]| Shape::new(dims.iter().map(|dim| dim.unwrap_or(size)).collect::<Vec<_>>());
    let varying = part.inputs.iter().filter(|(name, _)| !part.constants.contains_key(name));
    let shapes = varying.filter_map(|(name, declared)| Some((name.clone(), shape(&declared.dims).ok()?)));
    let mut options = LowerOptions { input_shapes: shapes.collect(), fuse: Rewrites::NONE, ..LowerOptions::default() };
    match lower(model, &options) {
        // The elements of inputs that determine shapes are known only in a run. Bools are tried; other elements could
        // be anything. A part that no elements would help is refused.
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
