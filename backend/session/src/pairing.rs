//! Pairs of outputs and inputs: an output of a run is an input of the next run, by patterns or by exporters' names.

use super::error::{InputError, SessionError};
use super::open::Session;
use super::value_info::ValueInfo;
use anabranch_base::suggest::did_you_mean;
use anabranch_onnx::import::Dim;

/// An output of a model that is an input of its next run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePair {
    /// The output's name.
    pub output: String,
    /// The input's name.
    pub input: String,
    /// The axis along which the state grows from run to run, if there is one.
    pub growing: Option<usize>,
}

/// Names of outputs and inputs as exporters of language models and recurrent models pair them; `*` stands for the same
/// text in both. The first pattern that finds an input counts.
const KNOWN: [(&str, &str); 14] = [
    ("present.*", "past_key_values.*"),
    ("present_key_values.*", "past_key_values.*"),
    ("present.*", "past.*"),
    ("present_*", "past_*"),
    ("present*", "past*"),
    ("*_out", "*_in"),
    ("out_*", "in_*"),
    ("*_output", "*_input"),
    ("new_*", "old_*"),
    ("new_*", "*"),
    ("next_*", "*"),
    ("*_next", "*"),
    ("*_n", "*_0"),
    ("*n", "*0"),
];

/// Patterns of ambiguous names: such a pair is bound only if no declared axis grows.
const LOOSE: [(&str, &str); 3] = [("*_out", "*"), ("*N", "*"), ("*n", "*")];

impl Session {
    /// The outputs that patterns bind to inputs: `("present.*", "past_key_values.*")` binds `present.0.key` to
    /// `past_key_values.0.key`, and so on for all that `*` can stand for. A pattern without `*` is a name. O(patterns ·
    /// outputs · inputs).
    ///
    /// # Errors
    /// If a pattern matches no output, an output has no input of the wanted name, their types or shapes differ, or two
    /// outputs are for one input.
    pub fn state_pairs(&self, feeds: &[(&str, &str)]) -> Result<Vec<StatePair>, SessionError> {
        let mut pairs: Vec<StatePair> = Vec::new();
        for (from, to) in feeds {
            let mut is_name = false;
            for output in self.outputs() {
                let Some(name) = renamed(output.name(), from, to) else { continue };
                let input = self.inputs().iter().find(|input| input.name() == name);
                let input = input.ok_or_else(|| unknown(self.inputs(), "input", &name, Some(output.name())))?;
                let pair = paired(output, input)?;
                is_name = true;
                if pairs.contains(&pair) {
                    continue;
                }
                if let Some(other) = pairs.iter().find(|other| other.input == pair.input) {
                    let (input, outputs) = (pair.input.clone(), [other.output.clone(), pair.output.clone()]);
                    return Err(InputError::FedTwice { input, outputs }.into());
                }
                pairs.push(pair);
            }
            if !is_name {
                return Err(unknown(self.outputs(), "output", from, None).into());
            }
        }
        Ok(pairs)
    }

    /// The outputs that are inputs of the next run by their names, as exporters give them, and by their types and
    /// shapes; none if the model has no state that is known by its names. O(outputs · inputs).
    pub fn found_state(&self) -> Vec<StatePair> {
        let mut pairs: Vec<StatePair> = Vec::new();
        for output in self.outputs() {
            let find = |(from, to): &(&str, &str)| {
                let name = renamed(output.name(), from, to)?;
                let input = self.inputs().iter().find(|input| input.name() == name && input.name() != output.name())?;
                paired(output, input).ok()
            };
            let loose = |patterns: &(&str, &str)| find(patterns).filter(|pair| pair.growing.is_none());
            let pair = KNOWN.iter().find_map(find).or_else(|| LOOSE.iter().find_map(loose));
            pairs.extend(pair.filter(|pair| pairs.iter().all(|other| other.input != pair.input)));
        }
        pairs
    }
}

/// The name that `to` makes of a name that matches `from`: both have one `*` or none.
fn renamed(name: &str, from: &str, to: &str) -> Option<String> {
    let Some((before, after)) = from.split_once('*') else { return (name == from).then(|| to.to_owned()) };
    let stem = name.strip_prefix(before)?.strip_suffix(after)?;
    Some(to.replacen('*', stem, 1))
}

/// Pairs an output with an input that can take it.
///
/// # Errors
/// If what the model declares of them differs.
fn paired(output: &ValueInfo, input: &ValueInfo) -> Result<StatePair, InputError> {
    let unlike = || InputError::Unlike { output: output.to_string(), input: input.to_string() };
    let tensors = output.kind().is_tensor() && input.kind().is_tensor();
    if !tensors || output.dtype().is_some_and(|dtype| input.dtype() != Some(dtype)) {
        return Err(unlike());
    }
    let mut growing = None;
    if let Some((made, wanted)) = output.dims().zip(input.dims()) {
        if made.len() != wanted.len() {
            return Err(unlike());
        }
        for (axis, dims) in made.iter().zip(wanted).enumerate() {
            match dims {
                (Dim::Known(made), Dim::Known(wanted)) if made != wanted => return Err(unlike()),
                (Dim::Symbol(made), Dim::Symbol(wanted)) if made != wanted => growing = growing.max(Some(axis)),
                _ => {}
            }
        }
    }
    Ok(StatePair { output: output.name().to_owned(), input: input.name().to_owned(), growing })
}

fn unknown(known: &[ValueInfo], role: &'static str, name: &str, fed: Option<&str>) -> InputError {
    const SHOWN: usize = 8;
    let names = || known.iter().map(ValueInfo::name);
    let more = if known.len() > SHOWN { ", …" } else { "" };
    let listed = names().take(SHOWN).collect::<Vec<_>>().join(", ");
    let meant = did_you_mean(name, names());
    let fed = fed.map_or_else(String::new, |output| format!(" for output `{output}`"));
    InputError::NoState { role, name: name.to_owned(), fed, known: format!("{listed}{more}"), meant }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_the_same_text_in_both_names() {
        for (name, from, to, want) in [
            ("present.0.key", "present.*", "past_key_values.*", Some("past_key_values.0.key")),
            ("present.0.key", "present.*.key", "past.*.key", Some("past.0.key")),
            ("hn", "*n", "*0", Some("h0")),
            ("state", "state", "memory", Some("memory")),
            ("states", "state", "memory", None),
            ("pre", "pre*re", "x*", None),
            ("logits", "present.*", "past.*", None),
        ] {
            assert_eq!(renamed(name, from, to).as_deref(), want, "{name}");
        }
    }
}
