//! A decoder with its cache: tokens in, logits of the last one out.

mod forecast;
mod padded;

use super::cache::{Cache, fixed, grown, padded_to};
use super::config::Config;
use super::error::GenerateError;
use super::names::Names;
use anabranch_execute::RunOptions;
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use anabranch_onnx::import::Dim;
use anabranch_session::{Inputs, Session, Stateful};
use half::{bf16, f16};

/// A decoder, and the tokens that its cache holds.
pub(crate) struct Decoder {
    model: Stateful,
    names: Names,
    vocabulary: usize,
    /// Tokens that the model can look at, and its cache can hold.
    context: usize,
    cache: Cache,
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
    /// Binds the model's cache and finds the roles of its other inputs.
    ///
    /// # Errors
    /// If it has no cache, an input without a role, or other sizes than its configuration says.
    pub(crate) fn new(session: Session, config: &Config) -> Result<Self, GenerateError> {
        let file = &config.model;
        let model = session.stateful(&[]).map_err(|error| GenerateError::file(file, error))?;
        let names = Names::of(model.session(), model.pairs(), file)?;
        let vocabulary = check(&model, &names, config)?;
        let cache = Cache::of(model.session(), model.pairs(), &names);
        let capacity = fixed(model.session(), model.pairs()).unwrap_or(usize::MAX);
        let (context, logits) = (config.context.min(capacity), Vec::new());
        Ok(Self {
            model,
            names,
            vocabulary,
            context,
            cache,
            note: None,
            settled: false,
            settled_for: 0,
            held: Vec::new(),
            logits,
        })
    }

    /// Adds tokens to the cache, and returns the logits of what follows the last one.
    ///
    /// # Errors
    /// If the context has no place for them, one is none of the model's, or the run fails: then the cache holds what it
    /// held before, or nothing if the failure lost a part of it.
    pub(crate) fn feed(&mut self, tokens: &[u32], options: &RunOptions) -> Result<&[f32], GenerateError> {
        let added = self.add(tokens, options);
        if added.is_err() && !self.model.is_begun() {
            self.reset();
        }
        added.map(|()| &*self.logits)
    }

    /// Forgets all tokens.
    pub(crate) fn reset(&mut self) {
        self.model.reset();
        self.held.clear();
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
            let what = format!("{end} tokens, of which the model can look at {}; give a shorter prompt", self.context);
            return Err(GenerateError::given(if tokens.is_empty() {
                "there is no token to begin with".into()
            } else {
                what
            }));
        }
        if let Some(token) = tokens.iter().find(|token| **token as usize >= self.vocabulary) {
            let what =
                format!("token {token} is none of the model's {}; the tokenizer is another model's", self.vocabulary);
            return Err(GenerateError::given(what));
        }
        self.grow_cache(end)?;
        self.settle(&tokens[..1])?;
        match &self.cache {
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
            // Sizes of the first cache follow from a batch of one.
            let ids = Inputs::new().tensor(&self.names.ids, self.integers(&self.names.ids, vec![0])?);
            self.model.resize(&ids, capacity)?;
            self.cache = Cache::Buffer(capacity);
            if capacity > self.settled_for {
                // A larger cache may not fit where the smaller one was.
                (self.settled, self.settled_for) = (false, capacity);
            }
        }
        Ok(())
    }

    /// Decides once where the cache stays. Most runs are of one token.
    fn settle(&mut self, token: &[u32]) -> Result<(), GenerateError> {
        if !std::mem::replace(&mut self.settled, true) {
            match self.cache {
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
        self.read()
    }

    /// Inputs for tokens behind a cache that begins with so many positions of padding.
    fn inputs(&self, tokens: &[u32], padding: usize) -> Result<Inputs, GenerateError> {
        let end = self.held.len() + tokens.len();
        let mut inputs = Inputs::new();
        let mut add = |name: &str, values: &mut dyn Iterator<Item = i64>| -> Result<(), GenerateError> {
            let tensor = self.integers(name, values.collect())?;
            inputs = std::mem::take(&mut inputs).tensor(name, tensor);
            Ok(())
        };
        add(&self.names.ids, &mut tokens.iter().map(|token| i64::from(*token)))?;
        if let Some(name) = &self.names.mask {
            let capacity =
                if let Cache::Buffer(capacity) | Cache::Fixed(capacity) = self.cache { capacity } else { end };
            let zeros = |count| std::iter::repeat_n(0, count);
            let after = zeros(capacity.saturating_sub(end));
            add(name, &mut zeros(padding).chain(std::iter::repeat_n(1, end)).chain(after))?;
        }
        if let Some(name) = &self.names.positions {
            add(name, &mut (self.held.len() as i64..end as i64))?;
        }
        if let Some(name) = &self.names.branch {
            let spec = TensorSpec::new(DType::Bool, Shape::new([1]).map_err(GenerateError::given)?);
            let flag = std::sync::Arc::new(anabranch_kernels::Buffer::copied(&[1]));
            inputs = inputs.tensor(name, Tensor::new(spec, flag).map_err(GenerateError::given)?);
        }
        Ok(inputs)
    }

    /// One row of integers of the type that an input has.
    fn integers(&self, name: &str, values: Vec<i64>) -> Result<Tensor, GenerateError> {
        let shape = Shape::new([1, values.len()]).map_err(GenerateError::given)?;
        let dtype = self.model.session().input_info(name).and_then(|info| info.dtype());
        let made = match dtype {
            Some(DType::I64) => Tensor::from_elements(shape, &values),
            Some(DType::I32) => {
                Tensor::from_elements(shape, &values.iter().map(|value| *value as i32).collect::<Vec<_>>())
            }
            Some(DType::F32) => {
                Tensor::from_elements(shape, &values.iter().map(|value| *value as f32).collect::<Vec<_>>())
            }
            other => {
                let other = other.map_or("?", DType::name);
                return Err(GenerateError::given(format!("input `{name}` is of {other}; export it with i64")));
            }
        };
        made.map_err(GenerateError::given)
    }

    /// Takes the last row of the logits.
    fn read(&mut self) -> Result<(), GenerateError> {
        let logits = self.model.outputs().tensor(&*self.names.logits).map_err(GenerateError::given)?;
        let dims = logits.shape().dims();
        let wide = dims.last().copied().unwrap_or(0);
        if wide < self.vocabulary || dims.iter().product::<usize>() == 0 {
            let what =
                format!("`{}` is {}, of fewer than {} tokens", self.names.logits, logits.spec(), self.vocabulary);
            return Err(GenerateError::given(format!("{what}; the configuration is another model's")));
        }
        self.logits.clear();
        fn last<T: Copy>(all: Option<&[T]>, wide: usize) -> impl Iterator<Item = T> {
            let all = all.unwrap_or_default();
            all[all.len() - wide.min(all.len())..].iter().copied()
        }
        match logits.dtype() {
            DType::F32 => self.logits.extend(last(logits.elements::<f32>(), wide)),
            DType::F16 => self.logits.extend(last(logits.elements::<f16>(), wide).map(f16::to_f32)),
            DType::BF16 => self.logits.extend(last(logits.elements::<bf16>(), wide).map(bf16::to_f32)),
            other => return Err(GenerateError::given(format!("`{}` is of {other}; export floats", self.names.logits))),
        }
        // Columns beyond the vocabulary only pad the matrix.
        self.logits.truncate(self.vocabulary);
        Ok(())
    }
}

/// Compares the model with its configuration. Returns how many tokens there are.
fn check(model: &Stateful, names: &Names, config: &Config) -> Result<usize, GenerateError> {
    let wrong =
        |what: String| GenerateError::file(&config.file, format!("{what}; the configuration is another model's"));
    let session = model.session();
    if let Some(layers) = config.layers.filter(|layers| ![*layers, 2 * layers].contains(&model.pairs().len())) {
        let count = model.pairs().len();
        return Err(wrong(format!(
            "{layers} layers are said to have a key and a value each, and the model has {count} states"
        )));
    }
    for pair in model.pairs() {
        let dims = session.input_info(&pair.input).and_then(|info| info.dims()).unwrap_or_default();
        for (axis, what, said) in [(1, "heads", config.heads), (3, "elements a head", config.head_size)] {
            if let (Some(Dim::Known(size)), Some(said), 4) = (dims.get(axis), said, dims.len())
                && *size != said
            {
                return Err(wrong(format!("`{}` has {size} {what}, and {said} are said", pair.input)));
            }
        }
    }
    let made = session.output_info(&names.logits).and_then(|info| info.dims()).and_then(|dims| dims.last());
    match (made, config.vocabulary) {
        (Some(Dim::Known(made)), Some(said)) if *made < said => {
            Err(wrong(format!("the model has logits of {made} tokens, and {said} are said")))
        }
        (_, Some(said)) => Ok(said),
        (Some(Dim::Known(made)), None) => Ok(*made),
        _ => Err(GenerateError::file(&config.file, "vocab_size is missing; it says how many tokens there are")),
    }
}

#[cfg(test)]
mod tests;
