//! The roles of a decoder's inputs and outputs, by the names that exporters give them.

use super::error::GenerateError;
use anabranch_session::{Session, StatePair};
use std::path::Path;

/// Names of a decoder's inputs and outputs, by their purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) ids: String,
    pub(crate) mask: Option<String>,
    pub(crate) positions: Option<String>,
    /// Whether there is a cache to read, of merged decoders.
    pub(crate) branch: Option<String>,
    pub(crate) logits: String,
}

impl Names {
    /// The roles of all inputs that are no state.
    ///
    /// # Errors
    /// If there are no ids or no logits, or an input has another role.
    pub(crate) fn of(session: &Session, state: &[StatePair], file: &Path) -> Result<Self, GenerateError> {
        let free = |name: &str| state.iter().all(|pair| pair.input != name);
        let inputs: Vec<_> = session.inputs().iter().filter(|input| free(input.name())).collect();
        let find = |names: &[&str]| {
            inputs.iter().map(|input| input.name()).find(|name| names.contains(name)).map(str::to_owned)
        };
        let list = |names: Vec<&str>| names.join(", ");
        let ids = find(&["input_ids", "input_tokens", "ids"]).ok_or_else(|| {
            let known = list(session.inputs().iter().map(|input| input.name()).collect());
            GenerateError::file(file, format!("the model has no input `input_ids`, but {known}; it is no decoder"))
        })?;
        let logits = session.outputs().iter().map(|output| output.name()).find(|name| *name == "logits");
        let logits = logits.ok_or_else(|| {
            let known = list(session.outputs().iter().map(|output| output.name()).take(4).collect());
            GenerateError::file(file, format!("the model has no output `logits`, but {known}; export its head, too"))
        })?;
        let names = Self {
            ids,
            mask: find(&["attention_mask"]),
            positions: find(&["position_ids"]),
            branch: find(&["use_cache_branch"]),
            logits: logits.to_owned(),
        };
        let known = [Some(&names.ids), names.mask.as_ref(), names.positions.as_ref(), names.branch.as_ref()];
        match inputs
            .iter()
            .find(|input| !input.is_optional() && !known.iter().flatten().any(|name| *name == input.name()))
        {
            None => Ok(names),
            Some(input) => Err(GenerateError::file(
                file,
                format!(
                    "input `{}` is neither ids, mask, positions nor a cache with an output `present.…`; export a decoder alone",
                    input.name()
                ),
            )),
        }
    }
}
