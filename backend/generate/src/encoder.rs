//! The encoder of an encoder-decoder model: tokens or features in, hidden states out.

use super::config::{Config, EncoderConfig};
use super::error::GenerateError;
use super::integers::integers;
use super::prompt::Prompt;
use anabranch_execute::RunOptions;
use anabranch_kernels::{Tensor, TensorSpec};
use anabranch_onnx::import::Dim;
use anabranch_session::{Inputs, Session, SessionConfig};

/// Output of an encoder.
pub(crate) const HIDDEN: &str = "last_hidden_state";

/// An encoder in its file.
pub(crate) struct Encoder {
    session: Session,
    config: EncoderConfig,
    /// Whether it takes features instead of tokens.
    is_of_features: bool,
    has_mask: bool,
}

/// Input of an encoder for an answer.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Tokens(Vec<u32>),
    Features(Tensor),
}

impl Encoder {
    /// Opens the encoder of a model, and finds the roles of its inputs.
    ///
    /// # Errors
    /// If it is missing, takes something else than text or features, or makes no hidden states.
    pub(crate) fn open(config: &EncoderConfig, options: SessionConfig) -> Result<Self, GenerateError> {
        let file = &config.model;
        let session = Session::open(file, options)?;
        let wrong = |what: String| Err(GenerateError::file(file, what));
        if session.output_info(HIDDEN).is_none() {
            let known: Vec<_> = session.outputs().iter().map(|output| output.name()).take(4).collect();
            return wrong(format!(
                "the encoder has the outputs {} instead of `{HIDDEN}`; export it again",
                known.join(", ")
            ));
        }
        let known = |name: &str| session.input_info(name).is_some();
        let (is_of_features, has_mask) = (known(FEATURES), known(MASK));
        if is_of_features == known(IDS) {
            let known: Vec<_> = session.inputs().iter().map(|input| input.name()).take(4).collect();
            let what = format!("the encoder takes {}", known.join(", "));
            return wrong(format!("{what}, but only text (`{IDS}`) and features (`{FEATURES}`) are supported"));
        }
        let other = |name: &&str| ![FEATURES, IDS].contains(name) && (is_of_features || *name != MASK);
        if let Some(name) =
            session.inputs().iter().filter(|input| !input.is_optional()).map(|input| input.name()).find(other)
        {
            return wrong(format!("input `{name}` of the encoder is not ids, mask or features; export it again"));
        }
        Ok(Self { session, config: config.clone(), is_of_features, has_mask })
    }

    /// The session that runs it.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Whether it takes features, and text goes to the decoder.
    pub(crate) fn is_of_features(&self) -> bool {
        self.is_of_features
    }

    /// Returns the dimensions of the hidden states, as far as they are declared.
    pub(crate) fn hidden(&self) -> &[Dim] {
        self.session.output_info(HIDDEN).and_then(|info| info.dims()).unwrap_or_default()
    }

    /// Divides a prompt into what the encoder takes and the tokens that the decoder begins with.
    ///
    /// # Errors
    /// If the prompt is of another kind than the encoder takes, or of another size.
    pub(crate) fn split(&self, prompt: Prompt, config: &Config) -> Result<(Source, Vec<u32>), GenerateError> {
        let start = self.config.start;
        match prompt.features {
            None if self.is_of_features => Err(GenerateError::given(format!(
                "the model's encoder needs features ({}); give them with --features FILE.npy, or features= in Python",
                self.wanted()
            ))),
            None => {
                self.check_tokens(&prompt.tokens, config)?;
                Ok((Source::Tokens(prompt.tokens), config.rules.begin(start)))
            }
            Some(features) => {
                self.check_features(features.spec())?;
                let begin = match prompt.tokens {
                    tokens if tokens.first() == Some(&start) => tokens,
                    tokens if tokens.is_empty() => config.rules.begin(start),
                    _ if config.rules.is_open() => {
                        return Err(GenerateError::given(format!(
                            "the model chooses a token before the decoder's text, such as its language; begin \
                             the text with token {start} and that token"
                        )));
                    }
                    tokens => [config.rules.begin(start), tokens].concat(),
                };
                Ok((Source::Features(features), begin))
            }
        }
    }

    /// Computes the hidden states.
    ///
    /// # Errors
    /// If the run fails.
    pub(crate) fn run(&self, source: &Source, options: &RunOptions) -> Result<Tensor, GenerateError> {
        let inputs = match source {
            Source::Tokens(tokens) => {
                let count = tokens.len();
                let row = |name: &str, values: Vec<i64>| integers(&self.session, name, &[1, count], &values);
                let ids = tokens.iter().map(|token| i64::from(*token)).collect();
                let inputs = Inputs::new().tensor(IDS, row(IDS, ids)?);
                if self.has_mask { inputs.tensor(MASK, row(MASK, vec![1; count])?) } else { inputs }
            }
            Source::Features(features) => Inputs::new().tensor(FEATURES, features.clone()),
        };
        let run =
            self.session.run_with(&inputs, options).map_err(|error| GenerateError::run(&self.config.model, error))?;
        let hidden = run.outputs.tensor(HIDDEN).map_err(GenerateError::given)?;
        match hidden.shape().dims() {
            [1, length, _] if *length > 0 => Ok(hidden.clone()),
            _ => {
                let what = format!("`{HIDDEN}` is {}, but 1 × length × width is expected", hidden.spec());
                Err(GenerateError::file(&self.config.model, format!("{what}; export the encoder again")))
            }
        }
    }

    fn check_tokens(&self, tokens: &[u32], config: &Config) -> Result<(), GenerateError> {
        let (count, vocabulary) = (tokens.len(), config.vocabulary.unwrap_or(usize::MAX));
        if count == 0 {
            return Err(GenerateError::given("the prompt has no token; give some text"));
        }
        if let Some(most) = self.config.length.filter(|most| count > *most) {
            return Err(GenerateError::given(format!(
                "the prompt has {count} tokens, but the model's encoder takes at most {most}; give a shorter prompt"
            )));
        }
        match tokens.iter().find(|token| **token as usize >= vocabulary) {
            Some(token) => Err(GenerateError::given(format!(
                "token {token} is outside of the model's vocabulary of {vocabulary}; use the tokenizer of this model"
            ))),
            None => Ok(()),
        }
    }

    /// Sees that features have a type and a shape that the encoder takes.
    ///
    /// # Errors
    /// If they have not, or the encoder takes text.
    pub(crate) fn check_features(&self, features: &TensorSpec) -> Result<(), GenerateError> {
        if !self.is_of_features {
            let what = "the model's encoder takes text instead of features; give only a prompt";
            return Err(GenerateError::given(what));
        }
        let info = self.session.input_info(FEATURES);
        let is_of_type = info.and_then(|info| info.dtype()) == Some(features.dtype);
        let dims = features.shape.dims();
        let fits = |(size, wanted): (&usize, Option<usize>)| wanted.is_none_or(|wanted| wanted == *size);
        match is_of_type && dims.len() == 3 && dims.iter().zip(self.sizes()).all(fits) {
            true => Ok(()),
            false => Err(GenerateError::given(format!(
                "the features are {features}, but the model's encoder takes {}; compute them with the model's \
                 processor",
                self.wanted()
            ))),
        }
    }

    /// Sizes of features, as far as model and configuration tell them.
    fn sizes(&self) -> [Option<usize>; 3] {
        let dims = self.session.input_info(FEATURES).and_then(|info| info.dims()).unwrap_or_default();
        let declared = |at: usize| if let Some(Dim::Known(size)) = dims.get(at) { Some(*size) } else { None };
        [Some(1), declared(1).or(self.config.mels), declared(2).or(self.config.frames)]
    }

    /// The features that the encoder takes, for errors.
    fn wanted(&self) -> String {
        let dtype = self.session.input_info(FEATURES).and_then(|info| info.dtype());
        let sizes = self.sizes().map(|size| size.map_or_else(|| "?".to_owned(), |size| size.to_string()));
        format!("{}[{}]", dtype.map_or("?", |dtype| dtype.name()), sizes.join("×"))
    }
}

const IDS: &str = "input_ids";
const MASK: &str = "attention_mask";
const FEATURES: &str = "input_features";
