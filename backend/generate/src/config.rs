//! The configuration beside a model, as onnxruntime-genai (`genai_config.json`) and optimum (`config.json`,
//! `generation_config.json`) write it.

mod encoder;
mod rules;

use super::error::GenerateError;
use super::read::{json, json_if_there};
use super::rules::Rules;
use super::sample::{Choice, Settings};
pub use encoder::EncoderConfig;
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// Tokens, heads and layers at most: no model has more, and sums and products of them stay small.
const MOST: u64 = 1 << 31;

/// Configuration of a model, as its folder states it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The model's file.
    pub model: PathBuf,
    /// Tokens that the model can look at, prompt and answer together.
    pub context: usize,
    /// Number of tokens in the vocabulary, if the folder states it.
    pub vocabulary: Option<usize>,
    /// Layers with a cache, if it is said.
    pub layers: Option<usize>,
    /// Heads of keys and values, if it is said.
    pub heads: Option<usize>,
    /// Elements of a head, if it is said.
    pub head_size: Option<usize>,
    /// The token that a text begins with, if it is said.
    pub begin: Option<u32>,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
    /// Default choice of tokens.
    pub settings: Settings,
    /// Tokens that are forced or forbidden.
    pub rules: Rules,
    /// The encoder, if the model has one.
    pub encoder: Option<EncoderConfig>,
    /// The file that says so.
    pub file: PathBuf,
}

/// Model files of optimum's exports, the first that is there counts.
const FILES: [&str; 6] = [
    "model.onnx",
    "decoder_model_merged.onnx",
    "decoder_with_past_model.onnx",
    "onnx/model.onnx",
    "onnx/decoder_model_merged.onnx",
    "onnx/decoder_with_past_model.onnx",
];

/// Settings of numbers that lead to other tokens, and the numbers with which they do not.
const NUMBERS: [(&str, f64); 10] = [
    ("num_beams", 1.0),
    ("num_beam_groups", 1.0),
    ("num_return_sequences", 1.0),
    ("no_repeat_ngram_size", 0.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("encoder_repetition_penalty", 1.0),
    ("guidance_scale", 1.0),
    ("penalty_alpha", 0.0),
    ("min_length", 0.0),
    ("min_new_tokens", 0.0),
];

/// As [`NUMBERS`], for tokens that are drawn.
const NUMBERS_OF_DRAWS: [(&str, f64); 4] =
    [("min_p", 0.0), ("typical_p", 1.0), ("epsilon_cutoff", 0.0), ("eta_cutoff", 0.0)];

/// Other settings that lead to other tokens.
const OTHERS: [&str; 9] = [
    "sequence_bias",
    "force_words_ids",
    "constraints",
    "exponential_decay_length_penalty",
    "watermarking_config",
    "dola_layers",
    "token_healing",
    "stop_strings",
    "max_time",
];

impl Config {
    /// Reads the configuration of a folder. `model` names another file of it as the model.
    ///
    /// # Errors
    /// If there is none, it contradicts itself, or it asks for what is not supported.
    pub fn read(folder: &Path, model: Option<&Path>) -> Result<Self, GenerateError> {
        let genai = folder.join("genai_config.json");
        let optimum = folder.join("config.json");
        let read = match (genai.exists(), optimum.exists()) {
            (true, _) => genai_config(folder, &genai),
            (_, true) => optimum_config(folder, &optimum, model.is_some()),
            _ if !folder.exists() => Err(GenerateError::file(folder, "the folder does not exist; name another")),
            _ => Err(GenerateError::file(
                folder,
                "the folder holds neither genai_config.json nor config.json; name a folder that \
                 onnxruntime-genai or optimum exported",
            )),
        };
        let mut config = read?;
        if let Some(model) = model {
            config.model = within(folder, model, &config.file)?;
        }
        if let Some(encoder) = &mut config.encoder {
            encoder.find(&config.model)?;
        }
        config.checked()
    }

    fn checked(mut self) -> Result<Self, GenerateError> {
        if self.context < 2 {
            let what = format!("the model's context is {} tokens, but at least 2 are needed", self.context);
            return Err(GenerateError::file(&self.file, what));
        }
        self.settings.max_length = self.settings.max_length.min(self.context);
        self.settings.check().map_err(|what| GenerateError::file(&self.file, what))?;
        let start = self.encoder.as_ref().map(|encoder| &encoder.start);
        let named = self.ends.iter().chain(&self.begin).chain(start).chain(self.rules.tokens());
        let beyond = named.copied().find(|token| self.vocabulary.is_some_and(|count| *token as usize >= count));
        if let Some(token) = beyond {
            let what = format!("token {token} is outside of the vocabulary of {} tokens", self.vocabulary.unwrap_or(0));
            return Err(GenerateError::file(&self.file, what));
        }
        Ok(self)
    }
}

fn genai_config(folder: &Path, path: &Path) -> Result<Config, GenerateError> {
    let value = json(path)?;
    let fields = Fields { value: &value, file: path };
    let (model, search) = (fields.at("model"), fields.at("search"));
    let decoder = model.at("decoder");
    if !model.value["vision"].is_null() || !model.value["speech"].is_null() {
        return Err(GenerateError::file(path, "images and sound are not supported; name a folder with only a decoder"));
    }
    if !model.value["encoder"].is_null() {
        let what = "encoders exported by onnxruntime-genai are not supported; export the model with optimum";
        return Err(GenerateError::file(path, what));
    }
    let name = decoder.value["filename"].as_str();
    let name = name
        .ok_or_else(|| GenerateError::file(path, "model.decoder.filename, the name of the model's file, is missing"))?;
    let context = model.size("context_length")?.or(search.size("max_length")?);
    Ok(Config {
        model: within(folder, Path::new(name), path)?,
        context: context.ok_or_else(|| GenerateError::file(path, "model.context_length is missing"))?,
        vocabulary: model.size("vocab_size")?,
        layers: decoder.size("num_hidden_layers")?,
        heads: decoder.size("num_key_value_heads")?,
        head_size: decoder.size("head_size")?,
        begin: model.tokens("bos_token_id")?.first().copied(),
        ends: model.tokens("eos_token_id")?,
        settings: search.settings(search.size("max_length")?)?,
        rules: Rules::default(),
        encoder: None,
        file: path.to_owned(),
    })
}

fn optimum_config(folder: &Path, path: &Path, is_named: bool) -> Result<Config, GenerateError> {
    let value = json(path)?;
    let whole = Fields { value: &value, file: path };
    let fields = if value["text_config"].is_object() { whole.at("text_config") } else { whole };
    let has_encoder = value["is_encoder_decoder"] == true;
    let beside = folder.join("generation_config.json");
    let own = json_if_there(&beside)?;
    let search = Fields { value: own.as_ref().unwrap_or(&value), file: if own.is_some() { &beside } else { path } };
    let files = if has_encoder { &encoder::FILES[..] } else { &FILES[..] };
    let found = files.iter().map(|name| folder.join(name)).find(|file| file.exists());
    let none_of_them = || {
        let what = format!("the folder holds none of {}; name the model with --model", files.join(", "));
        GenerateError::file(folder, what)
    };
    let first = |names: &[&str]| -> Result<Option<usize>, GenerateError> {
        let mut sizes = names.iter().map(|name| fields.size(name));
        sizes.find(|size| !matches!(size, Ok(None))).unwrap_or(Ok(None))
    };
    let positions =
        ["max_target_positions", "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"];
    // Relative positions have no end, and T5 is said to have been trained with so many.
    let context = first(&positions)?.or(has_encoder.then_some(encoder::LENGTH));
    let heads = first(&["decoder_attention_heads", "num_attention_heads", "n_head", "num_heads"])?;
    let width = first(&["hidden_size", "n_embd", "d_model"])?;
    let of_width = width.zip(heads).and_then(|(width, heads)| width.checked_div(heads));
    let ends = search.tokens("eos_token_id")?;
    let begin = fields.tokens("bos_token_id")?.first().copied();
    Ok(Config {
        model: if is_named { folder.to_owned() } else { found.ok_or_else(none_of_them)? },
        context: context.ok_or_else(|| GenerateError::file(path, "max_position_embeddings is missing"))?,
        vocabulary: first(&["vocab_size"])?,
        layers: first(&["num_decoder_layers", "decoder_layers", "num_hidden_layers", "n_layer", "num_layers"])?,
        heads: first(&["num_key_value_heads"])?.or(heads),
        head_size: first(&["d_kv", "head_dim"])?.or(of_width),
        begin,
        ends: if ends.is_empty() { fields.tokens("eos_token_id")? } else { ends },
        settings: search.settings(search.size("max_length")?.filter(|_| own.is_some()))?,
        rules: search.rules(has_encoder)?,
        encoder: has_encoder.then(|| EncoderConfig::read(fields, search, begin)).transpose()?,
        file: path.to_owned(),
    })
}

/// A file beneath a folder.
fn within(folder: &Path, name: &Path, file: &Path) -> Result<PathBuf, GenerateError> {
    match name.components().all(|part| matches!(part, Component::Normal(_))) && name.file_name().is_some() {
        true => Ok(folder.join(name)),
        false => {
            let what = format!("the model's file `{}` is outside of this folder; name a file inside", name.display());
            Err(GenerateError::file(file, what))
        }
    }
}

/// An object of a file.
#[derive(Clone, Copy)]
struct Fields<'v> {
    value: &'v Value,
    file: &'v Path,
}

impl<'v> Fields<'v> {
    fn at(self, name: &str) -> Self {
        Self { value: &self.value[name], file: self.file }
    }

    fn wrong(self, name: &str, wanted: &str) -> GenerateError {
        let mut found = self.value[name].to_string();
        if found.len() > 40 {
            found = "something else".to_owned();
        }
        GenerateError::file(self.file, format!("`{name}` is {found}; it must be {wanted}"))
    }

    fn size(self, name: &str) -> Result<Option<usize>, GenerateError> {
        match &self.value[name] {
            Value::Null => Ok(None),
            value => match value.as_u64().filter(|size| *size <= MOST) {
                Some(size) => Ok(Some(size as usize)),
                None => Err(self.wrong(name, "a whole number, at most 2147483648")),
            },
        }
    }

    fn number(self, name: &str, default: f64) -> Result<f64, GenerateError> {
        match &self.value[name] {
            Value::Null => Ok(default),
            value => value.as_f64().ok_or_else(|| self.wrong(name, "a number")),
        }
    }

    /// One token, several, or none.
    fn tokens(self, name: &str) -> Result<Vec<u32>, GenerateError> {
        let wrong = || self.wrong(name, "a token's number, or a list of them");
        let token = |value: &Value| value.as_u64().and_then(|token| u32::try_from(token).ok()).ok_or_else(wrong);
        match &self.value[name] {
            Value::Null => Ok(Vec::new()),
            Value::Array(tokens) => tokens.iter().map(token).collect(),
            value => Ok(vec![token(value)?]),
        }
    }

    /// Refuses settings that would lead to other tokens.
    fn only_supported(self) -> Result<(), GenerateError> {
        let is_drawn = self.value["do_sample"] == true;
        for (name, neutral) in NUMBERS.iter().chain(NUMBERS_OF_DRAWS.iter().filter(|_| is_drawn)) {
            if self.number(name, *neutral)? != *neutral {
                return Err(self.wrong(name, &format!("{neutral}: anything else is not supported")));
            }
        }
        let is_empty = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        match OTHERS.iter().find(|name| !is_empty(&self.value[**name])) {
            Some(name) => Err(self.wrong(name, "null: it is not supported")),
            None => Ok(()),
        }
    }

    /// Returns the choice of tokens.
    fn settings(self, max_length: Option<usize>) -> Result<Settings, GenerateError> {
        self.only_supported()?;
        let choice = match self.value["do_sample"] == true {
            false => Choice::Greedy,
            true => Choice::Sample {
                temperature: self.number("temperature", 1.0)?,
                top_k: self.size("top_k")?.filter(|count| *count > 0),
                top_p: self.number("top_p", 1.0)?,
            },
        };
        Ok(Settings {
            choice,
            repetition_penalty: self.number("repetition_penalty", 1.0)?,
            max_length: max_length.unwrap_or(usize::MAX),
            ..Settings::default()
        })
    }
}

#[cfg(test)]
mod tests;
