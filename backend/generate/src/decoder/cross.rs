//! Input of a decoder from an encoder: hidden states, and the keys and values that cross-attention makes of them. The
//! first step of an answer computes these for all that follow.

use super::super::config::Config;
use super::super::encoder::Encoder;
use super::super::error::GenerateError;
use super::super::integers::integers;
use super::super::names::{Names, present_name};
use super::{Decoder, read};
use anabranch_execute::RunOptions;
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use anabranch_onnx::import::Dim;
use anabranch_session::{Inputs, Outputs, Session, State, Stateful};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Hidden states of an encoder, and what follows from them.
pub(super) struct Cross {
    /// The model of the first step, unless the decoder has a branch for it.
    first: Option<First>,
    /// Hidden states for the present answer: 1 × length × width.
    hidden: Option<Tensor>,
    /// Keys and values of cross-attention by the names of inputs, once there are some.
    cache: BTreeMap<String, Tensor>,
}

/// A decoder without a cache.
struct First {
    session: Session,
    names: Names,
    file: PathBuf,
}

impl Cross {
    /// Checks that a decoder, the model of its first step and an encoder fit each other.
    ///
    /// # Errors
    /// If a cache has no output that makes it, nothing computes the first step, or declared widths differ.
    pub(super) fn new(
        model: &Stateful,
        names: &Names,
        encoder: &Encoder,
        first: Option<Session>,
        config: &Config,
    ) -> Result<Self, GenerateError> {
        let file = config.encoder.as_ref().and_then(|own| own.first.as_ref());
        let first = match (first, file) {
            (Some(session), Some(file)) => {
                let names = Names::of(&session, &[], true, file)?;
                Some(First { session, names, file: file.clone() })
            }
            _ => None,
        };
        let (session, own, file): (_, _, &Path) = match &first {
            Some(first) => (&first.session, &first.names, &first.file),
            None => (model.session(), names, &config.model),
        };
        let wrong = |what: String| Err(GenerateError::file(file, what));
        if first.is_none() && own.branch.is_none() {
            return wrong(
                "the decoder has no input `use_cache_branch`, so its first step cannot be computed; name \
                 decoder_model_merged.onnx or decoder_with_past_model.onnx"
                    .into(),
            );
        }
        let state = model.pairs().iter().map(|pair| (&pair.input, pair.output.clone()));
        let cross_caches = names.cross_caches.iter().map(|name| (name, present_name(name)));
        for (input, output) in state.chain(cross_caches) {
            if session.output_info(&output).is_none() {
                return wrong(format!(
                    "there is no output `{output}` for input `{input}` of the next step; export the model again"
                ));
            }
        }
        let Some(hidden) = own.hidden.as_ref().and_then(|name| session.input_info(name)) else {
            return wrong("the decoder has no input `encoder_hidden_states`; export the model again".into());
        };
        let width = |dims: &[Dim]| if let Some(Dim::Known(width)) = dims.get(2) { Some(*width) } else { None };
        match (width(encoder.hidden()), width(hidden.dims().unwrap_or_default())) {
            (Some(made), Some(taken)) if made != taken => wrong(format!(
                "the decoder takes hidden states of {taken} numbers, but the encoder produces {made}; use both \
                 from one export"
            )),
            _ => Ok(Self { first, hidden: None, cache: BTreeMap::new() }),
        }
    }

    /// Forgets the keys and values.
    pub(super) fn forget(&mut self) {
        self.cache.clear();
    }

    /// Adds a model's inputs that come from the encoder.
    pub(super) fn add(&self, mut inputs: Inputs, session: &Session, names: &Names) -> Result<Inputs, GenerateError> {
        let hidden = self.hidden.as_ref().ok_or_else(|| GenerateError::given("the encoder has not run"))?;
        let length = hidden.shape().dims()[1];
        if let Some(name) = &names.hidden {
            inputs = inputs.tensor(name, hidden.clone());
        }
        if let Some(name) = &names.hidden_mask {
            inputs = inputs.tensor(name, integers(session, name, &[1, length], &vec![1; length])?);
        }
        for name in &names.cross_caches {
            let tensor = match self.cache.get(name) {
                Some(tensor) => tensor.clone(),
                None => empty_cache(session, names, name, length)?,
            };
            inputs = inputs.tensor(name, tensor);
        }
        Ok(inputs)
    }

    /// Keeps the keys and values that the first step has made.
    fn keep(&mut self, outputs: &Outputs, names: &Names) -> Result<(), GenerateError> {
        for name in &names.cross_caches {
            let tensor = outputs.tensor(&*present_name(name)).map_err(GenerateError::given)?;
            self.cache.insert(name.clone(), tensor.clone());
        }
        Ok(())
    }
}

impl Decoder {
    /// Forgets all tokens, and goes on from other hidden states.
    pub(crate) fn follow_encoder(&mut self, hidden: Tensor) {
        self.reset();
        self.cross.iter_mut().for_each(|cross| cross.hidden = Some(hidden.clone()));
    }

    /// Whether it is behind an encoder.
    pub(crate) fn has_encoder(&self) -> bool {
        self.cross.is_some()
    }

    /// The session of the first step, if it is another model.
    pub(crate) fn first(&self) -> Option<&Session> {
        self.cross.as_ref()?.first.as_ref().map(|first| &first.session)
    }

    /// Computes the first tokens of an answer, and the keys and values of cross-attention.
    pub(super) fn run_first(&mut self, tokens: &[u32], options: &RunOptions) -> Result<(), GenerateError> {
        let Some(first) = self.cross.as_ref().and_then(|cross| cross.first.as_ref()) else {
            self.run(tokens, 0, options)?;
            return self.cross.iter_mut().try_for_each(|cross| cross.keep(self.model.outputs(), &self.names));
        };
        let inputs = self.inputs_of(&first.session, &first.names, tokens, 0)?;
        let run = first.session.run_with(&inputs, options).map_err(|error| GenerateError::run(&first.file, error))?;
        read(&run.outputs, &first.names.logits, [1, self.vocabulary], &mut self.logits)?;
        let state = self.model.pairs().iter().map(|pair| {
            let tensor = run.outputs.tensor(&*pair.output).map_err(GenerateError::given)?;
            Ok((pair.input.clone(), tensor.clone()))
        });
        self.model.restore(&State::new(state.collect::<Result<_, GenerateError>>()?));
        self.cross.iter_mut().try_for_each(|cross| cross.keep(&run.outputs, &self.names))
    }
}

/// A cross-attention's cache before the first step, which does not read it: as few zeros as its declared shape allows.
fn empty_cache(session: &Session, names: &Names, name: &str, length: usize) -> Result<Tensor, GenerateError> {
    let dims = |name: &str| session.input_info(name).and_then(|info| info.dims()).unwrap_or_default();
    let sources = names.hidden.iter().chain(&names.hidden_mask).filter_map(|name| dims(name).get(1));
    let lengths: Vec<&Dim> = sources.collect();
    let size = |dim: &Dim| match dim {
        Dim::Known(size) => *size,
        Dim::Symbol(_) if lengths.contains(&dim) => length,
        _ => 1,
    };
    let dtype = session.input_info(name).and_then(|info| info.dtype()).unwrap_or(DType::F32);
    let spec = TensorSpec::new(
        dtype,
        Shape::new(dims(name).iter().map(size).collect::<Vec<_>>()).map_err(GenerateError::given)?,
    );
    session.check_host_memory([(name, &spec)])?;
    let bytes = spec.bytes();
    Tensor::try_zeroed(spec).ok_or_else(|| {
        GenerateError::given(format!("input `{name}`: out of memory for {bytes} bytes; close other programs"))
    })
}
