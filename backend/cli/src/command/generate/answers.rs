//! Answers: printed as they come, or as JSON at the end.

use super::super::{CliError, Output, is_quiet, note, say};
use super::{failed, settle};
use anabranch::Tensor;
use anabranch::execute::{CancelToken, RunOptions};
use anabranch::generate::{Course, Ended, Generator, Message, Prompt, Settings};
use anabranch_report::text::count;
use serde::Serialize;
use std::io::{self, BufRead, IsTerminal};

/// Model and settings that make answers.
pub(super) struct Answers {
    pub(super) generator: Generator,
    pub(super) settings: Settings,
    pub(super) run: RunOptions,
    pub(super) output: Output,
    pub(super) system: Option<String>,
    pub(super) chat: bool,
}

/// A prompt: a text, and features with the file that they are from.
pub(super) struct Asked {
    pub(super) text: String,
    pub(super) features: Option<(String, Tensor)>,
}

/// An answer.
#[derive(Clone, Debug, Serialize)]
struct Answer {
    prompt: String,
    /// The file of the features.
    #[serde(skip_serializing_if = "Option::is_none")]
    features: Option<String>,
    text: String,
    tokens: Vec<u32>,
    /// Tokens of the prompt that were computed.
    prompt_tokens: usize,
    ended: Option<Ended>,
    first_token_ms: f64,
    /// Rate of the tokens after the first.
    tokens_per_second: Option<f64>,
}

#[derive(Serialize)]
struct Report {
    model: String,
    answers: Vec<Answer>,
    /// Plans that were made for all of them.
    plans: u64,
    notes: Vec<String>,
}

impl Answers {
    /// Answers prompts one after the other.
    pub(super) fn all(mut self, asked: Vec<Asked>, token: &CancelToken) -> Result<(), CliError> {
        let mut answers = Vec::new();
        let count = asked.len();
        for (at, Asked { text, features }) in asked.into_iter().enumerate() {
            let (file, features) = features.unzip();
            if count > 1 {
                self.title(at, file.as_ref().unwrap_or(&text))?;
            }
            let prompt = Prompt { tokens: self.tokens(&text)?, features };
            let answer = self.answer(&text, prompt, &self.settings_of(at), false)?;
            answers.push(Answer { features: file, ..answer });
            if token.is_cancelled() {
                break;
            }
        }
        self.report(answers)?;
        settle(token)
    }

    /// Answers prompts in batches of this size.
    pub(super) fn together(mut self, asked: &[Asked], size: usize, token: &CancelToken) -> Result<(), CliError> {
        let mut answers: Vec<Answer> = Vec::new();
        for asked in asked.chunks(size) {
            let first = answers.len();
            let prompts = asked.iter().zip(first..).map(|(asked, at)| {
                let prompt = Prompt { tokens: self.tokens(&asked.text)?, features: None };
                Ok((prompt, self.settings_of(at)))
            });
            let prompts = prompts.collect::<Result<Vec<_>, CliError>>()?;
            let mut batch = self.generator.start_batch(prompts).map_err(failed)?;
            let made = self.generator.complete(&mut batch, &self.run).map_err(failed)?;
            for (((asked, course), (tokens, text)), at) in asked.iter().zip(batch.courses()).zip(made).zip(first..) {
                self.title(at, &asked.text)?;
                if !self.output.json {
                    self.output.text(&format!("{text}\n"))?;
                    if !is_quiet() {
                        say(figures(course));
                    }
                }
                answers.push(Answer::of(&asked.text, text, tokens, course));
            }
            if token.is_cancelled() {
                break;
            }
        }
        self.report(answers)?;
        settle(token)
    }

    /// Answers the lines of standard input, each with all that was said before, until there are no more.
    pub(super) fn talk(mut self, token: &CancelToken) -> Result<(), CliError> {
        let mut said: Vec<Message> = self.system.iter().map(|text| Message::new("system", text)).collect();
        let mut answers: Vec<Answer> = Vec::new();
        // Tokens of the chat so far: each message and its answer may have as many more as a prompt and its answer.
        let mut length = 0usize;
        let is_terminal = io::stdin().is_terminal() && !self.output.json;
        loop {
            if is_terminal {
                eprint!("> ");
            }
            let mut line = String::new();
            match io::stdin().lock().read_line(&mut line) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(CliError::input(format!("standard input: {error}; write UTF-8 text"))),
            }
            if token.is_cancelled() {
                break;
            }
            let line = line.trim_end();
            if line.is_empty() {
                continue;
            }
            said.push(Message::new("user", line));
            let tokens = self.generator.encode_chat(&said).map_err(failed)?;
            let (asked, context) = (tokens.len(), self.generator.config().context);
            if asked >= context {
                self.report(answers)?;
                let reached = format!("the chat has reached the model's context of {context} tokens");
                let next = "start a new chat, with the relevant part of this one";
                return Err(CliError::input(format!("{reached}: the chat and this message have {asked}; {next}")));
            }
            let settings = Settings {
                seed: self.settings.seed.wrapping_add(answers.len() as u64),
                max_length: self.settings.max_length.saturating_add(length).min(context),
                ..self.settings.clone()
            };
            let answer = self.answer(line, Prompt { tokens, features: None }, &settings, true)?;
            said.push(Message::new("assistant", &answer.text));
            length = asked + answer.tokens.len();
            answers.push(answer);
            if token.is_cancelled() {
                break;
            }
        }
        self.report(answers)?;
        settle(token)
    }

    /// Prints the number and the beginning of a prompt.
    fn title(&self, at: usize, text: &str) -> Result<(), CliError> {
        if self.output.json {
            return Ok(());
        }
        let beginning: String = text.lines().next().unwrap_or_default().chars().take(70).collect();
        self.output.text(&format!("{}{}: {beginning}\n", if at > 0 { "\n" } else { "" }, at + 1))
    }

    /// The tokens of a prompt.
    fn tokens(&self, text: &str) -> Result<Vec<u32>, CliError> {
        let tokens = match self.chat {
            true => self.generator.encode_chat(&self.messages(text)),
            false => self.generator.encode(text),
        };
        tokens.map_err(failed)
    }

    /// The settings of a prompt, which has a seed of its own.
    fn settings_of(&self, at: usize) -> Settings {
        Settings { seed: self.settings.seed.wrapping_add(at as u64), ..self.settings.clone() }
    }

    fn messages(&self, prompt: &str) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new("system", text));
        system.chain([Message::new("user", prompt)]).collect()
    }

    /// Answers a prompt, and prints the text as it comes.
    fn answer(&mut self, text: &str, prompt: Prompt, settings: &Settings, go_on: bool) -> Result<Answer, CliError> {
        let asked = text;
        let mut course = self.generator.start(prompt, settings, go_on).map_err(failed)?;
        let (mut text, mut chosen) = (String::new(), Vec::new());
        while let Some(piece) = self.generator.advance(&mut course, &self.run) {
            let piece = piece.map_err(failed)?;
            text += &piece.text;
            chosen.extend(piece.token);
            if !self.output.json && !piece.text.is_empty() && !self.output.is_read(&piece.text)? {
                break;
            }
        }
        if !self.output.json {
            self.output.text("\n")?;
            if !is_quiet() {
                say(figures(&course));
            }
            self.generator.note().into_iter().for_each(note);
        }
        Ok(Answer::of(asked, text, chosen, &course))
    }

    fn report(&self, answers: Vec<Answer>) -> Result<(), CliError> {
        if !self.output.json {
            return Ok(());
        }
        let model = super::super::lossy(&self.generator.config().model);
        let plans = self.generator.plans_made();
        let notes = self.generator.note().into_iter().map(str::to_owned).collect();
        self.output.json(&Report { model, answers, plans, notes })
    }
}

impl Answer {
    fn of(prompt: &str, text: String, tokens: Vec<u32>, course: &Course) -> Self {
        let timing = course.timing();
        Self {
            prompt: prompt.to_owned(),
            features: None,
            text,
            tokens,
            prompt_tokens: timing.prompt,
            ended: course.ended(),
            first_token_ms: timing.first.as_secs_f64() * 1e3,
            tokens_per_second: timing.rate(),
        }
    }
}

/// Returns the times of an answer, as one line.
fn figures(course: &Course) -> String {
    let timing = course.timing();
    let ended = match course.ended() {
        Some(Ended::Length) => "; it has the greatest length",
        Some(Ended::Context) => "; it fills the model's context",
        Some(Ended::Stop) => "; a stop text ended it",
        Some(Ended::Cancelled) => "; it was interrupted",
        Some(Ended::End) | None => "",
    };
    let more = timing.rate().map_or_else(String::new, |rate| {
        format!(", then {} at {rate:.1} tokens per second", count(timing.more, "token"))
    });
    let first = timing.first.as_secs_f64() * 1e3;
    format!("prompt of {}, first token after {first:.1} ms{more}{ended}", count(timing.prompt, "token"))
}
