//! A decoder with its cache: tokens in, logits of the last one out.

mod cross;
mod forecast;
mod gather;
mod padded;
mod rows;

use super::cache::{Cache, fixed, grown, padded_to};
use super::config::Config;
use super::encoder::Encoder;
use super::error::GenerateError;
use super::integers::integers;
use super::names::{Names, STATE};
use anabranch_execute::RunOptions;
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use anabranch_onnx::import::Dim;
use anabranch_session::{Inputs, Outputs, Session, Stateful};
use cross::Cross;
use half::{bf16, f16};
use rows::Rows;
use std::sync::Arc;

/// A decoder, and the tokens that its cache holds.
pub(crate) struct Decoder {
    model: Stateful,
    names: Names,
    vocabulary: usize,
    /// Tokens that the model can look at, and its cache can hold.
    context: usize,
    cache: Cache,
    /// Hidden states of an encoder and what follows from them, if there is one.
    cross: Option<Cross>,
    /// The rows of the cache, if several texts share it.
    rows: Rows,
    /// Why steps are planned once per length, if padding was tried.
    note: Option<String>,
    settled: bool,
    /// The greatest capacity for which it was decided where the cache stays.
    settled_for: usize,
    /// The tokens that the cache holds.
    held: Vec<u32>,
    /// The last token's logits.
    logits: Vec<f32>,
}

impl Decoder {
    /// Binds the model's cache and finds the roles of its other inputs. A decoder behind an encoder may have a model of
    /// its own for the first step.
    ///
    /// # Errors
    /// If it has no cache, an input without a role, or other sizes than its configuration or its encoder says.
    pub(crate) fn new(
        session: Session,
        config: &Config,
        encoder: Option<(&Encoder, Option<Session>)>,
    ) -> Result<Self, GenerateError> {
        let file = &config.model;
        let state = if encoder.is_some() { &STATE[..] } else { &[] };
        let model = session.stateful(state).map_err(|error| GenerateError::file(file, error))?;
        let names = Names::of(model.session(), model.pairs(), encoder.is_some(), file)?;
        let vocabulary = check(&model, &names, config)?;
        let cross = encoder.map(|(encoder, first)| Cross::new(&model, &names, encoder, first, config)).transpose()?;
        let (cache, capacity) = match &cross {
            Some(_) if names.mask.is_none() => (Cache::Exact, usize::MAX),
            _ => (
                Cache::of(model.session(), model.pairs(), &names),
                fixed(model.session(), model.pairs()).unwrap_or(usize::MAX),
            ),
        };
        let context = config.context.min(capacity);
        let (rows, note, held, logits) = (Rows::default(), None, Vec::new(), Vec::new());
        Ok(Self {
            model,
            names,
            vocabulary,
            context,
            cache,
            cross,
            rows,
            note,
            settled: false,
            settled_for: 0,
            held,
            logits,
        })
    }

    /// Adds tokens to the cache, and returns the logits of what follows the last one.
    ///
    /// # Errors
    /// If the context has no place for them, one is none of the model's, or the run fails: then the cache holds what it
    /// held before, or nothing if the failure lost a part of it.
    pub(crate) fn feed(&mut self, tokens: &[u32], options: &RunOptions) -> Result<&mut [f32], GenerateError> {
        let added = self.add(tokens, options);
        if added.is_err() && !self.model.is_begun() {
            self.reset();
        }
        added.map(|()| &mut *self.logits)
    }

    /// Forgets all tokens.
    pub(crate) fn reset(&mut self) {
        // The mask of several texts would contradict the ids of one.
        self.model.clear();
        self.held.clear();
        self.cross.iter_mut().for_each(Cross::forget);
        if let Cache::Buffer(capacity) = &mut self.cache {
            *capacity = 0;
        }
    }

    /// The tokens that the cache holds.
    pub(crate) fn held(&self) -> &[u32] {
        &self.held
    }

    /// Returns the number of tokens that the model can look at, and its cache can hold.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// Returns why steps are planned once per length, if padding was tried.
    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Returns the number of tokens in the vocabulary.
    pub(crate) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The model with its cache.
    pub(crate) fn model(&self) -> &Stateful {
        &self.model
    }

    fn add(&mut self, tokens: &[u32], options: &RunOptions) -> Result<(), GenerateError> {
        let end = self.held.len() + tokens.len();
        if tokens.is_empty() || end > self.context {
            let what = format!(
                "the text has {end} tokens, but the model's context is {}; give a shorter prompt",
                self.context
            );
            return Err(GenerateError::given(if tokens.is_empty() {
                "there are no tokens to continue; give some text".into()
            } else {
                what
            }));
        }
        if let Some(token) = tokens.iter().find(|token| **token as usize >= self.vocabulary) {
            let what = format!(
                "token {token} is outside of the model's vocabulary of {}; use the tokenizer of this model",
                self.vocabulary
            );
            return Err(GenerateError::given(what));
        }
        self.grow_cache(end)?;
        self.settle(&tokens[..1])?;
        match &self.cache {
            _ if self.cross.is_some() && self.held.is_empty() => self.run_first(tokens, options)?,
            // Steps of one token are many; other lengths have plans of their own anyway.
            Cache::Padded(compared) if tokens.len() == 1 && !self.held.is_empty() => {
                let capacity = padded_to(self.held.len(), self.context);
                match compared.contains(&capacity) {
                    true => self.run_padded(tokens, capacity, options)?,
                    false => self.compare(tokens, capacity, options)?,
                }
            }
            _ => self.run_exact(tokens, options)?,
        }
        self.held.extend_from_slice(tokens);
        Ok(())
    }

    /// Gives a cache that is a buffer a capacity of so many tokens.
    fn grow_cache(&mut self, tokens: usize) -> Result<(), GenerateError> {
        let Cache::Buffer(capacity) = self.cache else { return Ok(()) };
        if capacity < tokens {
            let capacity = grown(capacity, tokens, self.context);
            self.resize_cache(capacity)?;
            self.cache = Cache::Buffer(capacity);
            if capacity > self.settled_for {
                // A larger cache may not fit where the smaller one was.
                (self.settled, self.settled_for) = (false, capacity);
            }
        }
        Ok(())
    }

    /// Gives the cache a length along its growing axis. Sizes of the first cache follow from a batch of one.
    fn resize_cache(&mut self, size: usize) -> Result<(), GenerateError> {
        let ids = integers(self.model.session(), &self.names.ids, &[1, 1], &[0])?;
        Ok(self.model.resize(&Inputs::new().tensor(&self.names.ids, ids), size)?)
    }

    /// Leaves the cache on the host from now on: it is changed between steps.
    pub(crate) fn stay_on_host(&mut self) {
        self.model.stay_on_host();
        (self.settled, self.settled_for) = (true, usize::MAX);
    }

    /// Decides once where the cache stays. Most runs are of one token.
    fn settle(&mut self, token: &[u32]) -> Result<(), GenerateError> {
        if !std::mem::replace(&mut self.settled, true) {
            match self.cache {
                // Keys and values of cross-attention come from the host, too.
                _ if self.cross.is_some() => self.model.stay_on_host(),
                Cache::Padded(_) => self.model.stay_on_host(),
                _ => self.model.settle(&self.inputs(token, 0)?)?,
            }
        }
        Ok(())
    }

    /// Runs the model with a cache without padding on the left.
    fn run_exact(&mut self, tokens: &[u32], options: &RunOptions) -> Result<(), GenerateError> {
        if let Cache::Padded(_) = self.cache {
            self.model.align(self.held.len(), self.held.len())?;
        }
        self.run(tokens, 0, options)
    }

    /// Runs the model with a cache that begins with so many positions of padding.
    fn run(&mut self, tokens: &[u32], padding: usize, options: &RunOptions) -> Result<(), GenerateError> {
        let inputs = self.inputs(tokens, padding)?;
        self.model.run_with(&inputs, options)?;
        read(self.model.outputs(), &self.names.logits, [1, self.vocabulary], &mut self.logits)
    }

    /// Inputs for tokens behind a cache that begins with so many positions of padding.
    fn inputs(&self, tokens: &[u32], padding: usize) -> Result<Inputs, GenerateError> {
        self.inputs_of(self.model.session(), &self.names, tokens, padding)
    }

    /// [`Self::inputs`] for a model of these names.
    fn inputs_of(
        &self,
        session: &Session,
        names: &Names,
        tokens: &[u32],
        padding: usize,
    ) -> Result<Inputs, GenerateError> {
        let (begin, end) = (self.held.len(), self.held.len() + tokens.len());
        let mut inputs = Inputs::new();
        let mut add = |name: &str, values: &mut dyn Iterator<Item = i64>, is_row: bool| -> Result<(), GenerateError> {
            let values: Vec<i64> = values.collect();
            let dims = [1, values.len()];
            let tensor = integers(session, name, if is_row { &dims } else { &dims[1..] }, &values)?;
            inputs = std::mem::take(&mut inputs).tensor(name, tensor);
            Ok(())
        };
        add(&names.ids, &mut tokens.iter().map(|token| i64::from(*token)), true)?;
        if let Some(name) = &names.mask {
            let capacity =
                if let Cache::Buffer(capacity) | Cache::Fixed(capacity) = self.cache { capacity } else { end };
            let zeros = |count| std::iter::repeat_n(0, count);
            let after = zeros(capacity.saturating_sub(end));
            add(name, &mut zeros(padding).chain(std::iter::repeat_n(1, end)).chain(after), true)?;
        }
        for (name, is_row) in [(&names.positions, true), (&names.places, false)] {
            if let Some(name) = name {
                add(name, &mut (begin as i64..end as i64), is_row)?;
            }
        }
        if let Some(name) = &names.branch {
            // A decoder alone takes a cache without elements, too.
            inputs = inputs.tensor(name, branch(self.cross.is_none() || begin > 0)?);
        }
        match &self.cross {
            Some(cross) => cross.add(inputs, session, names),
            None => Ok(inputs),
        }
    }
}

/// The truth that there is a cache to read, or that there is none.
fn branch(has_cache: bool) -> Result<Tensor, GenerateError> {
    let spec = TensorSpec::new(DType::Bool, Shape::new([1]).map_err(GenerateError::given)?);
    Tensor::new(spec, Arc::new(Buffer::copied(&[u8::from(has_cache)]))).map_err(GenerateError::given)
}

/// Takes the logits of the last position of each text.
fn read(
    outputs: &Outputs,
    name: &str,
    [texts, vocabulary]: [usize; 2],
    into: &mut Vec<f32>,
) -> Result<(), GenerateError> {
    let logits = outputs.tensor(name).map_err(GenerateError::given)?;
    let dims = logits.shape().dims();
    let (count, wide) = (dims.iter().product::<usize>(), dims.last().copied().unwrap_or(0));
    if wide < vocabulary || count == 0 {
        let what = format!("`{name}` is {}, but the vocabulary has {vocabulary} tokens", logits.spec());
        return Err(GenerateError::given(format!("{what}; use the configuration of this model")));
    }
    if texts > 1 && (dims[0] != texts || count != texts * wide) {
        let what = format!("`{name}` is {}, but one token of each of {texts} texts is given", logits.spec());
        return Err(GenerateError::given(format!("{what}; give prompts one at a time")));
    }
    into.clear();
    // Columns beyond the vocabulary only pad the matrix.
    fn last<T: Copy>(all: Option<&[T]>, each: usize, wide: usize, own: usize) -> impl Iterator<Item = T> {
        all.unwrap_or_default().chunks_exact(each).flat_map(move |text| text[each - wide..][..own].iter().copied())
    }
    let each = count / texts;
    match logits.dtype() {
        DType::F32 => into.extend(last(logits.elements::<f32>(), each, wide, vocabulary)),
        DType::F16 => into.extend(last(logits.elements::<f16>(), each, wide, vocabulary).map(f16::to_f32)),
        DType::BF16 => into.extend(last(logits.elements::<bf16>(), each, wide, vocabulary).map(bf16::to_f32)),
        other => {
            return Err(GenerateError::given(format!(
                "`{name}` has type {other}, but a float type is needed; export it with floats"
            )));
        }
    }
    Ok(())
}

/// Compares the model with its configuration. Returns how many tokens there are.
fn check(model: &Stateful, names: &Names, config: &Config) -> Result<usize, GenerateError> {
    let wrong =
        |what: String| GenerateError::file(&config.file, format!("{what}; use the configuration of this model"));
    let session = model.session();
    if let Some(layers) = config.layers.filter(|layers| ![*layers, 2 * layers].contains(&model.pairs().len())) {
        let count = model.pairs().len();
        return Err(wrong(format!(
            "the configuration has {layers} layers with a key and a value each, but the model has {count} states"
        )));
    }
    for pair in model.pairs() {
        let dims = session.input_info(&pair.input).and_then(|info| info.dims()).unwrap_or_default();
        for (axis, what, said) in [(1, "heads", config.heads), (3, "elements a head", config.head_size)] {
            if let (Some(Dim::Known(size)), Some(said), 4) = (dims.get(axis), said, dims.len())
                && *size != said
            {
                return Err(wrong(format!("`{}` has {size} {what}, but the configuration has {said}", pair.input)));
            }
        }
    }
    let made = session.output_info(&names.logits).and_then(|info| info.dims()).and_then(|dims| dims.last());
    match (made, config.vocabulary) {
        (Some(Dim::Known(made)), Some(said)) if *made < said => {
            Err(wrong(format!("the model has logits of {made} tokens, but the configuration has {said}")))
        }
        (_, Some(said)) => Ok(said),
        (Some(Dim::Known(made)), None) => Ok(*made),
        _ => Err(GenerateError::file(&config.file, "vocab_size, the number of tokens, is missing")),
    }
}

#[cfg(test)]
mod tests;
