//! Several texts in one cache: a step computes a token of each.
//!
//! Each text is computed alone up to its first token. Then the caches become the rows of one. A cache that steps
//! concatenate is padded on the left up to the capacity of the longest row, as that of one text is. Masks and
//! positions differ by row. A cache that is a buffer begins with each row's own tokens, whose number its mask states.
//! The first step of each capacity is computed for the shortest and the longest row alone, too, and the logits are
//! compared.

use super::super::cache::{Cache, grown, padded_to};
use super::super::error::GenerateError;
use super::super::integers::integers;
use super::gather::{End, Piece, gathered};
use super::padded::{difference, matters, tolerance};
use super::{Decoder, read};
use anabranch_execute::RunOptions;
use anabranch_kernels::Tensor;
use anabranch_onnx::import::Dim;
use anabranch_session::{Inputs, State, StatePair};
use std::collections::{BTreeMap, BTreeSet};

/// The rows of a cache.
#[derive(Default)]
pub(super) struct Rows {
    /// Tokens that each row holds.
    held: Vec<usize>,
    /// Capacities of which a step was compared with those of rows alone, whether the rows were of unlike lengths, and
    /// whether there were several.
    compared: BTreeSet<(usize, bool, bool)>,
}

impl Rows {
    fn is_unlike(&self) -> bool {
        self.held.iter().any(|held| *held != self.held[0])
    }

    /// Whether a step of such rows was compared. Rows of one length do not show what unlike ones do, and one row shows
    /// less than several.
    fn is_compared(&self, size: usize) -> bool {
        let [unlike, several] = [self.is_unlike(), self.held.len() > 1];
        self.compared.iter().any(|own| own.0 == size && own.1 >= unlike && own.2 >= several)
    }
}

impl Decoder {
    /// Sees that the model takes several texts at once.
    ///
    /// # Errors
    /// If it does not; the error says why and what to do.
    pub(crate) fn check_rows(&self) -> Result<(), GenerateError> {
        let session = self.model.session();
        let is_one = |name: &str| {
            let dims = session.input_info(name).and_then(|info| info.dims());
            matches!(dims.and_then(<[Dim]>::first), Some(Dim::Known(_)))
        };
        let inputs = [&self.names.ids].into_iter().chain(&self.names.mask).chain(&self.names.positions);
        let mut bound = self.model.pairs().iter();
        let why = if self.cross.is_some() {
            "it has an encoder".to_owned()
        } else if let Some(name) =
            inputs.chain(self.model.pairs().iter().map(|pair| &pair.input)).find(|name| is_one(name))
        {
            format!("the first axis of input `{name}` has a fixed size")
        } else if self.names.mask.is_none() {
            "it has no attention mask, which hides the padding of shorter texts".to_owned()
        } else if let Some(note) = &self.note {
            note.clone()
        } else if let Some(name) = &self.names.places {
            format!("input `{name}` has one position for all texts")
        } else if let Some(pair) = bound.find(|pair| self.axis(pair).is_none()) {
            format!("state `{}` is not a growing cache", pair.input)
        } else {
            return Ok(());
        };
        Err(GenerateError::given(format!("the model takes one prompt at a time: {why}; give prompts one at a time")))
    }

    /// Checks that there is memory for these states and for one cache of them.
    ///
    /// # Errors
    /// If there is not.
    pub(crate) fn check_memory(&self, states: &[(State, usize)]) -> Result<(), GenerateError> {
        let mut specs = Vec::new();
        for (state, _) in states {
            specs.extend(state.tensors()?.into_values().map(|tensor| tensor.spec().clone()));
        }
        let named = specs.iter().chain(&specs).map(|spec| ("the caches of all prompts", spec));
        Ok(self.model.session().check_host_memory(named)?)
    }

    /// Makes one cache of texts' states and the numbers of their tokens.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn join(&mut self, states: &[(State, usize)]) -> Result<(), GenerateError> {
        let tensors = states.iter().map(|(state, _)| state.tensors()).collect::<Result<Vec<_>, _>>()?;
        let sources: Vec<_> = tensors.iter().zip(states).map(|(tensors, (_, held))| (tensors, 0, *held)).collect();
        let width = sources.iter().map(|(.., held)| *held).max().unwrap_or(0);
        if let Cache::Buffer(capacity) = &mut self.cache {
            *capacity = grown(0, width, self.context);
        }
        let state = self.joined(&sources)?;
        self.held.clear();
        self.model.restore(&state);
        self.rows.held = sources.iter().map(|(.., held)| *held).collect();
        Ok(())
    }

    /// Leaves these rows of the cache, in ascending order.
    ///
    /// # Errors
    /// If there is no memory for what is left.
    pub(crate) fn keep(&mut self, rows: &[usize]) -> Result<(), GenerateError> {
        if rows.len() < self.rows.held.len() {
            let state = self.left(rows)?;
            self.model.restore(&state);
            self.rows.held = rows.iter().map(|row| self.rows.held[*row]).collect();
        }
        Ok(())
    }

    /// Adds a token to each row. Returns the logits of what follows, a row after the other.
    ///
    /// # Errors
    /// If the run fails, or a row alone has other logits: the model does not take padding.
    pub(crate) fn step(&mut self, tokens: &[u32], options: &RunOptions) -> Result<&mut [f32], GenerateError> {
        let width = self.rows.held.iter().copied().max().unwrap_or(0);
        let size = self.size_for_rows(width)?;
        match self.rows.is_compared(size) {
            true => self.run_rows(tokens, size, options)?,
            false => self.compare_rows(tokens, size, options)?,
        }
        self.rows.held.iter_mut().for_each(|held| *held += 1);
        Ok(&mut self.logits)
    }

    /// Gives the cache a capacity for a token more in each row, and returns its length.
    fn size_for_rows(&mut self, width: usize) -> Result<usize, GenerateError> {
        match self.cache {
            Cache::Fixed(capacity) => Ok(capacity),
            Cache::Buffer(capacity) if capacity > width => Ok(capacity),
            Cache::Buffer(capacity) => {
                let capacity = grown(capacity, width + 1, self.context);
                self.model.resize(&Inputs::new(), capacity)?;
                self.cache = Cache::Buffer(capacity);
                Ok(capacity)
            }
            Cache::Padded(_) | Cache::Exact => {
                let size = padded_to(width, self.context);
                self.model.align(size, width)?;
                Ok(size)
            }
        }
    }

    /// Runs a step of all rows, and of the shortest and the longest alone. The logits of both must agree.
    fn compare_rows(&mut self, tokens: &[u32], size: usize, options: &RunOptions) -> Result<(), GenerateError> {
        let before = self.model.snapshot();
        let by_length = |row: &usize| self.rows.held[*row];
        let ends = [(0..tokens.len()).min_by_key(by_length), (0..tokens.len()).max_by_key(by_length)];
        let mut alone = Vec::new();
        for row in ends.into_iter().flatten().collect::<BTreeSet<_>>() {
            alone.push((row, self.run_alone(row, tokens[row], options)));
            self.model.restore(&before);
        }
        let refused = |why: String| {
            GenerateError::given(format!("the model takes one prompt at a time: {why}; give prompts one at a time"))
        };
        let alone = alone.into_iter().map(|(row, ran)| Ok((row, ran?))).collect::<Result<Vec<_>, GenerateError>>()?;
        match self.run_rows(tokens, size, options) {
            Err(error) if !matters(error.kind()) => return Err(refused(format!("next to other prompts, {error}"))),
            ran => ran?,
        }
        let tolerated = tolerance(self.model.session(), self.model.pairs(), &self.names);
        for (row, logits) in alone {
            let apart = difference(&logits, &self.logits[row * self.vocabulary..][..self.vocabulary]);
            if apart.is_nan() || apart > tolerated {
                return Err(refused(format!(
                    "next to other prompts, logits differ by {apart:.1e} of the greatest, but only \
                     {tolerated:.0e} is tolerated"
                )));
            }
        }
        self.rows.compared.insert((size, self.rows.is_unlike(), self.rows.held.len() > 1));
        Ok(())
    }

    /// Returns the logits of a row's step without the others.
    fn run_alone(&mut self, row: usize, token: u32, options: &RunOptions) -> Result<Vec<f32>, GenerateError> {
        let (alone, own) = (self.left(&[row])?, self.rows.held[row]);
        let all = std::mem::replace(&mut self.rows.held, vec![own]);
        self.model.restore(&alone);
        let ran = self.run_rows(&[token], self.length_of(own), options);
        self.rows.held = all;
        ran.map(|()| self.logits.clone())
    }

    /// Runs a step of all rows over a cache of this length.
    fn run_rows(&mut self, tokens: &[u32], size: usize, options: &RunOptions) -> Result<(), GenerateError> {
        let (session, names, held) = (self.model.session(), &self.names, &self.rows.held);
        let count = held.len();
        let row = |name: &str, values: &[i64]| integers(session, name, &[count, values.len() / count.max(1)], values);
        let ids: Vec<i64> = tokens.iter().map(|token| i64::from(*token)).collect();
        let mut inputs = Inputs::new().tensor(&names.ids, row(&names.ids, &ids)?);
        if let Some(name) = &names.mask {
            let is_padded = matches!(self.cache, Cache::Padded(_) | Cache::Exact);
            let of_row = |held: &usize| -> Vec<i64> {
                match is_padded {
                    true => (0..=size).map(|at| i64::from(at + held >= size)).collect(),
                    false => (0..size).map(|at| i64::from(at <= *held)).collect(),
                }
            };
            inputs = inputs.tensor(name, row(name, &held.iter().flat_map(of_row).collect::<Vec<_>>())?);
        }
        if let Some(name) = &names.positions {
            inputs = inputs.tensor(name, row(name, &held.iter().map(|held| *held as i64).collect::<Vec<_>>())?);
        }
        if let Some(name) = &names.branch {
            inputs = inputs.tensor(name, super::branch(true)?);
        }
        self.model.run_with(&inputs, options)?;
        read(self.model.outputs(), &self.names.logits, [count, self.vocabulary], &mut self.logits)
    }

    /// Returns the axis of a state along which tokens lie, if there is one.
    fn axis(&self, pair: &StatePair) -> Option<usize> {
        // GroupQueryAttention alone takes a buffer of a fixed capacity.
        if let Cache::Fixed(_) = self.cache { Some(2) } else { pair.growing.filter(|axis| *axis > 0) }
    }

    /// Returns the length of a cache for rows of so many tokens.
    fn length_of(&self, width: usize) -> usize {
        match self.cache {
            Cache::Buffer(capacity) | Cache::Fixed(capacity) => capacity,
            Cache::Padded(_) | Cache::Exact => width,
        }
    }

    /// Returns the state of these rows alone.
    fn left(&self, rows: &[usize]) -> Result<State, GenerateError> {
        let state = self.model.snapshot();
        let tensors = state.tensors()?;
        self.joined(&rows.iter().map(|row| (&tensors, *row, self.rows.held[*row])).collect::<Vec<_>>())
    }

    /// Returns one state of rows of others, with the numbers of their tokens.
    fn joined(&self, sources: &[(&BTreeMap<&str, Tensor>, usize, usize)]) -> Result<State, GenerateError> {
        let end = if let Cache::Padded(_) | Cache::Exact = self.cache { End::Back } else { End::Front };
        let size = self.length_of(sources.iter().map(|(.., held)| *held).max().unwrap_or(0));
        let mut made = BTreeMap::new();
        for pair in self.model.pairs() {
            let axis = self.axis(pair).ok_or_else(|| GenerateError::given("the cache does not grow"))?;
            let piece = |(tensors, row, held): &(&BTreeMap<&'_ str, Tensor>, usize, usize)| {
                let tensor = tensors.get(&*pair.input).ok_or_else(|| GenerateError::given("the cache is lost"))?;
                Ok(Piece { tensor: tensor.clone(), row: *row, kept: *held })
            };
            let pieces = sources.iter().map(piece).collect::<Result<Vec<_>, GenerateError>>()?;
            let tensor = gathered(&pieces, axis, size, end).ok_or_else(|| {
                GenerateError::given(format!("out of memory for `{}` of all prompts; give a lower --batch", pair.input))
            })?;
            made.insert(pair.input.clone(), tensor);
            self.model.session().check_host_memory(made.iter().map(|(name, tensor)| (&**name, tensor.spec())))?;
        }
        Ok(State::new(made))
    }
}
