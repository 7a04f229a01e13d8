//! Answers to several prompts, whose steps are computed together.

use super::{Course, Ended, Generator, Piece, Prompt, Settings};
use crate::error::GenerateError;
use anabranch_execute::RunOptions;

/// Answers to several prompts in the making: [`Generator::advance_batch`].
pub struct Batch {
    courses: Vec<Course>,
    /// Places of the answers whose tokens are the rows of the cache; `None` before the first step.
    rows: Option<Vec<usize>>,
    number: u64,
}

impl Batch {
    /// The answers' courses, in the order of the prompts.
    pub fn courses(&self) -> &[Course] {
        &self.courses
    }
}

impl Generator {
    /// Starts answers to several prompts, each with its settings. Each has the tokens that it would have alone, but for
    /// logits that differ by less than rounding.
    ///
    /// # Errors
    /// As [`Self::generate`]; also if the model takes one prompt at a time.
    pub fn start_batch(&mut self, prompts: Vec<(Prompt, Settings)>) -> Result<Batch, GenerateError> {
        self.decoder.check_rows()?;
        let several = prompts.len() > 1;
        let course = |(at, (prompt, settings)): (usize, (Prompt, Settings))| {
            let named =
                |error| if several { GenerateError::given(format!("prompt {}: {error}", at + 1)) } else { error };
            self.course(prompt, &settings).map_err(named)
        };
        let courses = prompts.into_iter().enumerate().map(course).collect::<Result<Vec<_>, _>>()?;
        self.emptied().stay_on_host();
        Ok(Batch { courses, rows: None, number: self.answers })
    }

    /// The next pieces of the answers that go on, with their places among the prompts; none after all have ended.
    ///
    /// # Errors
    /// As [`Self::advance`]; also if the model turns out to take one prompt at a time.
    pub fn advance_batch(
        &mut self,
        batch: &mut Batch,
        options: &RunOptions,
    ) -> Result<Vec<(usize, Piece)>, GenerateError> {
        let mut pieces = Vec::new();
        if batch.number != self.answers {
            return Err(GenerateError::given("another answer was started since; start this one again"));
        }
        let live: Vec<usize> = (0..batch.courses.len()).filter(|at| batch.courses[*at].goes_on()).collect();
        if live.is_empty() {
            return Ok(pieces);
        }
        let chosen = match batch.rows.take() {
            None => self.begin_rows(&mut batch.courses, options),
            Some(rows) => self.step_rows(&mut batch.courses, &rows, &live, options),
        };
        match chosen {
            Ok(tokens) => {
                for (at, token) in live.iter().zip(tokens) {
                    let piece = self.take(&mut batch.courses[*at], token).transpose()?;
                    pieces.extend(piece.map(|piece| (*at, piece)));
                }
                batch.rows = Some(live.clone());
            }
            Err(error) if error.is_cancelled() => {
                live.iter().for_each(|at| batch.courses[*at].ended = Some(Ended::Cancelled));
            }
            Err(error) => {
                live.iter().for_each(|at| batch.courses[*at].finished = true);
                return Err(error);
            }
        }
        for at in live {
            let course = &mut batch.courses[at];
            if course.ended.is_some() && !course.finished {
                let piece = self.finish(course).transpose()?;
                pieces.extend(piece.map(|piece| (at, piece)));
            }
        }
        Ok(pieces)
    }

    /// Computes a batch to its end. Returns the tokens and the text of each answer, in the order of the prompts.
    ///
    /// # Errors
    /// As [`Self::advance_batch`].
    pub fn complete(
        &mut self,
        batch: &mut Batch,
        options: &RunOptions,
    ) -> Result<Vec<(Vec<u32>, String)>, GenerateError> {
        let mut made = vec![(Vec::new(), String::new()); batch.courses.len()];
        while batch.courses.iter().any(Course::goes_on) {
            for (at, piece) in self.advance_batch(batch, options)? {
                made[at].0.extend(piece.token);
                made[at].1 += &piece.text;
            }
        }
        Ok(made)
    }

    /// Computes each prompt alone and makes rows of them. Returns the first tokens.
    fn begin_rows(&mut self, courses: &mut [Course], options: &RunOptions) -> Result<Vec<u32>, GenerateError> {
        let (mut states, mut tokens) = (Vec::new(), Vec::new());
        for course in courses {
            self.decoder.reset();
            let logits = self.decoder.feed(&course.next, options)?;
            tokens.push(Self::pick(&self.config, course, logits)?);
            states.push((self.decoder.model().snapshot(), course.prompt));
            self.decoder.check_memory(&states)?;
        }
        self.decoder.join(&states)?;
        Ok(tokens)
    }

    /// Computes a step of the answers that go on. `rows` are those whose tokens the cache holds. Returns the next
    /// tokens.
    fn step_rows(
        &mut self,
        courses: &mut [Course],
        rows: &[usize],
        live: &[usize],
        options: &RunOptions,
    ) -> Result<Vec<u32>, GenerateError> {
        let left: Vec<usize> = (0..rows.len()).filter(|row| live.contains(&rows[*row])).collect();
        self.decoder.keep(&left)?;
        let fed: Vec<u32> = live.iter().flat_map(|at| courses[*at].next.iter().copied()).collect();
        let wide = self.decoder.vocabulary();
        let logits = self.decoder.step(&fed, options)?;
        let rows = live.iter().zip(logits.chunks_exact_mut(wide));
        rows.map(|(at, logits)| Self::pick(&self.config, &mut courses[*at], logits)).collect()
    }
}
