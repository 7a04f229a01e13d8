//! Text from a language model, piece by piece.

use super::failure::Failure;
use super::options;
use super::tensors::{Given, copied};
use super::work::{CancelToken, released, watched};
use anabranch::RunOptions;
use anabranch::generate::{Course, GenerateError, Message, Overrides, Prompt, Settings};
use pyo3::prelude::*;
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A token with the text that it completes.
type Piece = (Option<u32>, String);

/// A language model. The Python class of this name, which has the documentation, holds one.
#[pyclass(frozen)]
pub(crate) struct Generator(Mutex<Answering>);

/// A model, and the answer that was begun last.
struct Answering {
    generator: anabranch::generate::Generator,
    course: Option<Course>,
    /// Number of answers that were begun.
    number: u64,
}

#[pymethods]
impl Generator {
    #[new]
    #[pyo3(signature = (folder, model, options))]
    fn new(py: Python<'_>, folder: PathBuf, model: Option<PathBuf>, options: &str) -> PyResult<Self> {
        released(py, || {
            let options = options::session(options)?;
            let generator = anabranch::generate::Generator::open(&folder, model.as_deref(), options)?;
            Ok(Self(Mutex::new(Answering { generator, course: None, number: 0 })))
        })
    }

    /// Returns the configuration of the folder, as JSON.
    fn config(&self) -> String {
        let answering = self.lock();
        let config = answering.generator.config();
        let model = config.model.display().to_string();
        json!({ "model": model, "context": config.context, "vocabulary": config.vocabulary, "ends": config.ends })
            .to_string()
    }

    fn encode(&self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        released(py, || Ok(self.lock().generator.encode(text)?))
    }

    /// The tokens of messages: roles and texts.
    fn encode_chat(&self, py: Python<'_>, messages: Vec<(String, String)>) -> PyResult<Vec<u32>> {
        let messages: Vec<_> = messages.into_iter().map(|(role, content)| Message { role, content }).collect();
        released(py, || Ok(self.lock().generator.encode_chat(&messages)?))
    }

    fn decode(&self, py: Python<'_>, tokens: Vec<u32>) -> PyResult<String> {
        released(py, || Ok(self.lock().generator.decode(&tokens)))
    }

    /// Begins an answer, and ends the one before. Gives its number. `features` is empty or one array.
    fn start(
        &self,
        py: Python<'_>,
        prompt: Vec<u32>,
        features: Vec<Given>,
        overrides: &str,
        go_on: bool,
    ) -> PyResult<u64> {
        let features =
            copied(&features).map_err(|failure| failure.raise(py))?.iter().map(|(_, tensor)| tensor.clone()).next();
        released(py, || {
            let overrides: Overrides = serde_json::from_str(overrides).map_err(Failure::argument)?;
            let mut answering = self.lock();
            let settings = answering.generator.config().settings.with(&overrides);
            let course = answering.generator.start(Prompt { tokens: prompt, features }, &settings, go_on)?;
            answering.course = Some(course);
            answering.number += 1;
            Ok(answering.number)
        })
    }

    /// Answers prompts together, and ends the answer before. Returns tokens, text and end of each, as JSON.
    fn batch(&self, py: Python<'_>, prompts: Vec<Vec<u32>>, overrides: &str, token: &CancelToken) -> PyResult<String> {
        watched(
            py,
            || token.0.cancel(),
            None,
            |_| {
                let overrides: Overrides = serde_json::from_str(overrides).map_err(Failure::argument)?;
                let mut answering = self.lock();
                let settings = answering.generator.config().settings.with(&overrides);
                let of = |(at, prompt): (u64, &Vec<u32>)| {
                    (prompt.into(), Settings { seed: settings.seed.wrapping_add(at), ..settings.clone() })
                };
                let mut batch = answering.generator.start_batch((0..).zip(&prompts).map(of).collect())?;
                answering.course = None;
                answering.number += 1;
                let options = RunOptions::default().with_cancel(token.0.clone());
                let made = answering.generator.complete(&mut batch, &options)?;
                let data = made.iter().zip(batch.courses());
                let data = data
                    .map(|((tokens, text), course)| json!({ "tokens": tokens, "text": text, "ended": course.ended() }));
                Ok(data.collect::<serde_json::Value>().to_string())
            },
        )
    }

    /// The next piece of the answer of this number.
    fn next(&self, py: Python<'_>, number: u64, token: &CancelToken) -> PyResult<Option<Piece>> {
        watched(
            py,
            || token.0.cancel(),
            None,
            |_| {
                let mut answering = self.lock();
                let Answering { generator, course, number: last } = &mut *answering;
                let course = course.as_mut().filter(|_| *last == number).ok_or_else(over)?;
                let options = RunOptions::default().with_cancel(token.0.clone());
                let piece = generator.advance(course, &options).transpose()?;
                Ok(piece.map(|piece| (piece.token, piece.text)))
            },
        )
    }

    /// Returns the present state of the answer with this number, as JSON.
    fn data(&self, py: Python<'_>, number: u64) -> PyResult<String> {
        released(py, || {
            let answering = self.lock();
            let course = answering.course.as_ref().filter(|_| answering.number == number).ok_or_else(over)?;
            let timing = course.timing();
            Ok(json!({
                "ended": course.ended(),
                "prompt_tokens": timing.prompt,
                "first_token": timing.first.as_secs_f64(),
                "tokens_per_second": timing.rate(),
                "plans": answering.generator.plans_made(),
            })
            .to_string())
        })
    }
}

impl Generator {
    fn lock(&self) -> MutexGuard<'_, Answering> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn over() -> Failure {
    Failure::argument(
        "another answer of this generator was started, which ended this one; read one answer before you start \
         the next",
    )
}

impl From<GenerateError> for Failure {
    fn from(error: GenerateError) -> Self {
        match error.session() {
            Some(session) => session.clone().into(),
            None => Self::new(error.kind(), error),
        }
    }
}
