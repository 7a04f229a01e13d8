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
    /// Positions without an axis of the batch.
    pub(crate) places: Option<String>,
    /// Whether there is a cache to read, of merged decoders.
    pub(crate) branch: Option<String>,
    /// Hidden states of an encoder, and the mask of its text.
    pub(crate) hidden: Option<String>,
    pub(crate) hidden_mask: Option<String>,
    /// Keys and values of cross-attention, which one run computes for all that follow.
    pub(crate) cross_caches: Vec<String>,
    pub(crate) logits: String,
}

/// Outputs and inputs with the state of a decoder behind an encoder: its self-attention's cache.
pub(crate) const STATE: [(&str, &str); 2] = [
    ("present.*.decoder.key", "past_key_values.*.decoder.key"),
    ("present.*.decoder.value", "past_key_values.*.decoder.value"),
];

/// Returns the output that makes a cross-attention's cache for an input.
pub(crate) fn present_name(past: &str) -> String {
    past.replacen("past_key_values", "present", 1)
}

impl Names {
    /// The roles of all inputs that are no state. Hidden states and their caches are roles only behind an encoder.
    ///
    /// # Errors
    /// If there are no ids or no logits, or an input has another role.
    pub(crate) fn of(
        session: &Session,
        state: &[StatePair],
        has_encoder: bool,
        file: &Path,
    ) -> Result<Self, GenerateError> {
        let free = |name: &str| state.iter().all(|pair| pair.input != name);
        let inputs: Vec<_> = session.inputs().iter().filter(|input| free(input.name())).collect();
        let find = |names: &[&str]| {
            inputs.iter().map(|input| input.name()).find(|name| names.contains(name)).map(str::to_owned)
        };
        let encoder = |name: &str| if has_encoder { find(&[name]) } else { None };
        let is_crossed =
            |name: &&str| has_encoder && name.starts_with("past_key_values.") && name.contains(".encoder.");
        let list = |names: Vec<&str>| names.join(", ");
        let ids = find(&["input_ids", "decoder_input_ids", "input_tokens", "ids"]).ok_or_else(|| {
            let known = list(session.inputs().iter().map(|input| input.name()).collect());
            GenerateError::file(
                file,
                format!("the model has the inputs {known} instead of `input_ids`; name a decoder"),
            )
        })?;
        let logits = session.outputs().iter().map(|output| output.name()).find(|name| *name == "logits");
        let logits = logits.ok_or_else(|| {
            let known = list(session.outputs().iter().map(|output| output.name()).take(4).collect());
            GenerateError::file(
                file,
                format!("the model has the outputs {known} instead of `logits`; export it with its head"),
            )
        })?;
        let names = Self {
            ids,
            mask: find(&["attention_mask", "decoder_attention_mask"]),
            positions: find(&["position_ids"]),
            places: find(&["cache_position"]),
            branch: find(&["use_cache_branch"]),
            hidden: encoder("encoder_hidden_states"),
            hidden_mask: encoder("encoder_attention_mask"),
            cross_caches: inputs.iter().map(|input| input.name()).filter(is_crossed).map(str::to_owned).collect(),
            logits: logits.to_owned(),
        };
        let unknown = |name: &&str| !names.all().any(|known| known == *name);
        match inputs.iter().filter(|input| !input.is_optional()).map(|input| input.name()).find(unknown) {
            None => Ok(names),
            Some(name) => {
                let roles = if has_encoder { "ids, mask, positions, hidden states" } else { "ids, mask, positions" };
                let next = if has_encoder { "export it again" } else { "export only a decoder" };
                let what = format!("input `{name}` is neither {roles} nor a cache with an output `present.…`; {next}");
                Err(GenerateError::file(file, what))
            }
        }
    }

    /// Iterates over all inputs with a role.
    fn all(&self) -> impl Iterator<Item = &String> {
        let given = [&self.mask, &self.positions, &self.places, &self.branch, &self.hidden, &self.hidden_mask];
        [&self.ids].into_iter().chain(given.into_iter().flatten()).chain(&self.cross_caches)
    }
}
