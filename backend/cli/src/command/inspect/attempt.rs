//! One attempt at a model: sizes of open dimensions, elements of the inputs that determine shapes, and the progress of
//! the model with them.

use super::candidates::open_names;
use anabranch::RunOptions;
use anabranch::import::Dim;
use anabranch::lower::Obstacle;
use anabranch::session::{ErrorKind, Inputs, Session, SessionError};
use anabranch_kernels::{DType, Tensor, TensorSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of random inputs for an attempt.
const MOST_BYTES: usize = 256 << 20;

/// Most bytes of weights with which a model in phases is run. Only a run shows whether its later phases are possible.
const MOST_WEIGHTS: u64 = 1 << 30;

/// Time limit of such a run.
const RUN_TIME: Duration = Duration::from_secs(3);

/// Sizes and elements to try with a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    /// Sizes by symbol, or by input and axis.
    pub(super) sizes: BTreeMap<String, usize>,
    /// Elements of inputs that determine shapes, if these are not random.
    pub(super) elements: BTreeMap<String, Elements>,
    /// Nodes that no size suits: the search looks at what comes after them.
    pub(super) hopeless: Arc<BTreeSet<String>>,
}

/// Elements of an input that determines shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Elements {
    Ones,
    Zeros,
    /// 0, 1, 2 and so on, as for axes.
    Places,
    /// −1, then ones: a shape with all elements along its first axis.
    Rest,
}

/// Result of an attempt.
pub(super) struct Outcome {
    pub(super) attempt: Attempt,
    pub(super) result: Result<Tried, SessionError>,
    /// Number, from 1, of the first node that the sizes do not suit. `usize::MAX` if there is none, 0 if no node was
    /// reached.
    pub(super) reached: usize,
}

/// A model that can be lowered.
pub(super) struct Tried {
    pub(super) inputs: Inputs,
    /// Whether it runs in phases.
    pub(super) phases: bool,
}

impl Elements {
    pub(super) const ALL: [Self; 4] = [Self::Ones, Self::Zeros, Self::Places, Self::Rest];

    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Ones => "all 1",
            Self::Zeros => "all 0",
            Self::Places => "0, 1, 2 …",
            Self::Rest => "-1, 1, 1 …",
        }
    }

    /// Returns a tensor of these elements; `None` for a type that cannot determine shapes.
    fn tensor(self, spec: &TensorSpec) -> Option<Tensor> {
        let element = |at: usize| match self {
            Self::Ones => 1,
            Self::Zeros => 0,
            Self::Places => at as i64,
            Self::Rest => {
                if at == 0 {
                    -1
                } else {
                    1
                }
            }
        };
        let elements = (0..spec.shape.elements()).map(element);
        let shape = spec.shape.clone();
        match spec.dtype {
            DType::I64 => Tensor::from_elements(shape, &elements.collect::<Vec<_>>()).ok(),
            DType::I32 => {
                Tensor::from_elements(shape, &elements.map(|element| element as i32).collect::<Vec<_>>()).ok()
            }
            DType::F32 => {
                Tensor::from_elements(shape, &elements.map(|element| element as f32).collect::<Vec<_>>()).ok()
            }
            _ => None,
        }
    }
}

impl Outcome {
    /// Tries a model with the given inputs.
    pub(super) fn of(session: &Session, given: &Inputs, seed: u64, attempt: Attempt) -> Self {
        let result = tried(session, given, seed, &attempt);
        Self::new(session, attempt, result)
    }

    /// Returns this outcome with these nodes passed over.
    pub(super) fn past(self, session: &Session, hopeless: BTreeSet<String>) -> Self {
        let attempt = Attempt { hopeless: Arc::new(hopeless), ..self.attempt };
        Self::new(session, attempt, self.result)
    }

    fn new(session: &Session, attempt: Attempt, result: Result<Tried, SessionError>) -> Self {
        let reached = match &result {
            Ok(_) => usize::MAX,
            Err(error) => unsuited(session, error, &attempt).map_or(beyond(session, error), |(at, _)| at + 1),
        };
        Self { attempt, result, reached }
    }

    /// Whether the sizes suit all nodes.
    pub(super) fn passes(&self) -> bool {
        self.reached == usize::MAX
    }

    /// Returns the reason of the first unsuited node, without its name and sizes.
    pub(super) fn reason(&self, session: &Session) -> Option<String> {
        let obstacle = self.unsuited(session)?;
        let words = obstacle.reason.split(' ').scan("", |before, word| Some((std::mem::replace(before, word), word)));
        let kept = words.map(|(before, word)| match before {
            "input" => word.to_owned(),
            _ => word.replace(|c: char| c.is_ascii_digit(), ""),
        });
        Some(format!("{}: {}", obstacle.node, kept.collect::<Vec<_>>().join(" ")))
    }

    /// Returns the first node that the sizes do not suit.
    pub(super) fn unsuited(&self, session: &Session) -> Option<Obstacle> {
        let error = self.result.as_ref().err()?;
        unsuited(session, error, &self.attempt).map(|(_, obstacle)| obstacle)
    }
}

fn tried(session: &Session, given: &Inputs, seed: u64, attempt: &Attempt) -> Result<Tried, SessionError> {
    let mut inputs = session.fill_sized(given.clone(), seed, &attempt.sizes)?;
    for (name, elements) in &attempt.elements {
        if let Some(tensor) = inputs.find(name).and_then(|random| elements.tensor(random.spec())) {
            inputs = inputs.tensor(name, tensor);
        }
    }
    let phases = session.check(&inputs)?;
    if phases && weights(session) <= MOST_WEIGHTS {
        match session.run_with(&inputs, &RunOptions::default().with_timeout(RUN_TIME)) {
            Err(error) if is_of_model(&error) => return Err(error),
            // A kernel that fails on random elements, or exceeds the time limit, does not disprove the sizes.
            _ => {}
        }
    }
    Ok(Tried { inputs, phases })
}

fn weights(session: &Session) -> u64 {
    session.model().initializers.values().map(|constant| constant.bytes() as u64).sum()
}

/// Whether random inputs of these sizes are small enough.
pub(super) fn is_small(session: &Session, given: &Inputs, attempt: &Attempt) -> bool {
    let random = session.inputs().iter().filter(|input| given.find(input.name()).is_none());
    let bytes = random.map(|input| {
        let declared = input
            .dims()
            .unwrap_or_default()
            .iter()
            .filter_map(|dim| if let Dim::Known(size) = dim { Some(*size) } else { None });
        let open =
            open_names(input, attempt).into_iter().flatten().filter_map(|name| attempt.sizes.get(&name).copied());
        let elements = declared.chain(open).fold(1usize, usize::saturating_mul);
        elements.saturating_mul(input.dtype().map_or(1, DType::size))
    });
    bytes.fold(0usize, usize::saturating_add) <= MOST_BYTES
}

fn is_of_model(error: &SessionError) -> bool {
    matches!(error.kind(), ErrorKind::Model | ErrorKind::Unsupported | ErrorKind::Dimension)
}

/// The nodes that refuse inputs of each of these sizes in the same words: sizes do not matter to them.
pub(super) fn hopeless(
    session: &Session,
    given: &Inputs,
    seed: u64,
    base: &Attempt,
    sizes: &[usize],
) -> BTreeSet<String> {
    let refusals = |size: &usize| {
        let all = base.sizes.keys().map(|name| (name.clone(), *size)).collect();
        let attempt = Attempt { sizes: all, ..base.clone() };
        let inputs =
            is_small(session, given, &attempt).then(|| session.fill_sized(given.clone(), seed, &attempt.sizes))?;
        let error = inputs.and_then(|inputs| session.check(&inputs)).err();
        let obstacles = error.iter().flat_map(SessionError::obstacles);
        let by_itself = obstacles.filter(|obstacle| !obstacle.is_unsupported && obstacle.wanted.is_empty());
        Some(by_itself.map(|obstacle| (obstacle.node.clone(), obstacle.reason.clone())).collect::<BTreeSet<_>>())
    };
    let common = sizes.iter().filter_map(refusals).reduce(|one, other| &one & &other).unwrap_or_default();
    // Random elements may be to blame.
    if session.deciding_inputs().iter().any(|name| given.find(name).is_none()) {
        return BTreeSet::new();
    }
    common.into_iter().map(|(node, _)| node).collect()
}

/// The first node, with its position, that stops a model by the sizes of its inputs or their elements.
fn unsuited(session: &Session, error: &SessionError, attempt: &Attempt) -> Option<(usize, Obstacle)> {
    let nodes = &session.model().nodes;
    let position = |name: &str| nodes.iter().position(|node| node.name == name);
    let by_sizes = error.obstacles().iter().filter(|obstacle| !obstacle.is_unsupported || !obstacle.wanted.is_empty());
    let by_sizes = by_sizes.filter(|obstacle| !attempt.hopeless.contains(&obstacle.node));
    let placed = by_sizes.map(|obstacle| (position(&obstacle.node).unwrap_or(nodes.len()), obstacle.clone()));
    placed.min_by_key(|(at, _)| *at).or_else(|| {
        let name = error.node().filter(|_| error.obstacles().is_empty() && is_of_model(error))?;
        let at = position(name)?;
        let (node, operator) = (name.to_owned(), nodes[at].op_type.clone());
        let reason = error.to_string();
        Some((at, Obstacle { node, operator, reason, is_unsupported: false, is_late: false, wanted: Vec::new() }))
    })
}

/// Returns the position of an error without such a node: behind all nodes if only operators are not supported or a file
/// could not be read.
fn beyond(session: &Session, error: &SessionError) -> usize {
    let is_elsewhere = !error.obstacles().is_empty() || !session.problems().is_empty();
    if is_elsewhere { usize::MAX } else { 0 }
}
