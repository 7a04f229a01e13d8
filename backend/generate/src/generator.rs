//! Public interface of text generation: opens the folder of a language model, and answers prompts token by token.
//!
//! A [`Generation`] is an iterator that borrows the generator. A [`Course`] is an answer in progress without that
//! borrow, which [`Generator::advance`] continues.

mod batch;

use super::chat::{Message, Template};
use super::config::Config;
use super::decoder::Decoder;
use super::encoder::{Encoder, Source};
use super::error::GenerateError;
use super::prompt::Prompt;
use super::sample::{Sampler, Settings};
use super::stop::Stops;
use super::stream::Stream;
use super::vocabulary::Vocabulary;
use anabranch_execute::RunOptions;
use anabranch_kernels::TensorSpec;
use anabranch_session::{Session, SessionConfig, Stateful};
pub use batch::Batch;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most bytes of a prompt per token of the context: hardly any token is longer.
const BYTES_PER_TOKEN: usize = 256;

/// Most bytes of a prompt.
const MOST_BYTES: usize = 16 << 20;

/// A language model in a folder, as onnxruntime-genai or optimum export it, ready to go on from prompts.
///
/// ```no_run
/// # mod anabranch { pub use anabranch_session::SessionConfig; pub mod generate { pub use anabranch_generate::Generator; } }
/// use anabranch::SessionConfig;
/// use anabranch::generate::Generator;
///
/// let mut generator = Generator::open("model".as_ref(), None, SessionConfig::default())?;
/// let prompt = generator.encode("The river")?;
/// let settings = generator.config().settings.clone();
/// for piece in generator.generate(&prompt, &settings)? {
///     print!("{}", piece?.text);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Generator {
    config: Config,
    vocabulary: Vocabulary,
    template: Option<Template>,
    encoder: Option<Encoder>,
    decoder: Decoder,
    /// Whether the cache holds less than the model can look at.
    is_limited: bool,
    /// Number of answers that were begun.
    answers: u64,
}

/// A token of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The token, or `None` for text that was held back when the end came.
    pub token: Option<u32>,
    /// The text that it completes: often less or more than the token's own.
    pub text: String,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The model chose a token that ends texts.
    End,
    /// The text had the most tokens that it may have.
    Length,
    /// Prompt and text filled the model's context.
    Context,
    /// A stop text was found.
    Stop,
    /// The run was cancelled.
    Cancelled,
}

/// Times of one text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// Tokens of the prompt that were computed; those that the cache held already were not.
    pub prompt: usize,
    /// From the start to the first token.
    pub first: Duration,
    /// Tokens after the first.
    pub more: usize,
    /// For these.
    pub took: Duration,
}

impl Timing {
    /// Tokens after the first, per second; `None` without any.
    pub fn rate(&self) -> Option<f64> {
        (self.more > 0).then(|| self.more as f64 / self.took.as_secs_f64().max(1e-9))
    }
}

/// An answer in the making, apart from the generator that makes it: [`Generator::advance`].
pub struct Course {
    /// Its number among the generator's answers.
    number: u64,
    sampler: Sampler,
    stops: Stops,
    stream: Stream,
    settings: Settings,
    /// Input of an encoder that is still to run.
    source: Option<Source>,
    /// Tokens that are still to be computed.
    next: Vec<u32>,
    /// Tokens before the answer.
    prompt: usize,
    /// Tokens of prompt and answer.
    length: usize,
    ended: Option<Ended>,
    finished: bool,
    begun: Instant,
    timing: Timing,
}

/// An answer in the making: an iterator of its pieces.
pub struct Generation<'g> {
    generator: &'g mut Generator,
    course: Course,
    options: RunOptions,
}

impl Generator {
    /// Opens the model in a folder; `model` names another file of it than its configuration does.
    ///
    /// # Errors
    /// If files are missing, contradict each other, or the model is no decoder with a cache.
    pub fn open(folder: &Path, model: Option<&Path>, options: SessionConfig) -> Result<Self, GenerateError> {
        let mut config = Config::read(folder, model)?;
        let (vocabulary, template) = (Vocabulary::read(folder)?, Template::read(folder)?);
        let own = config.encoder.as_ref();
        let encoder = own.map(|own| Encoder::open(own, options.clone())).transpose()?;
        let first = own.and_then(|own| own.first.as_ref());
        let first = first.map(|file| Session::open(file, options.clone())).transpose()?;
        let with_first = encoder.as_ref().map(|encoder| (encoder, first));
        let decoder = Decoder::new(Session::open(&config.model, options)?, &config, with_first)?;
        if vocabulary.len() > decoder.vocabulary() {
            let (own, others) = (decoder.vocabulary(), vocabulary.len());
            let what = format!("the tokenizer has {others} tokens, but the configuration has {own}; export both again");
            return Err(GenerateError::file(&config.file, what));
        }
        let is_limited = decoder.context() < config.context;
        config.context = decoder.context();
        config.settings.max_length = config.settings.max_length.min(config.context);
        Ok(Self { config, vocabulary, template, encoder, decoder, is_limited, answers: 0 })
    }

    /// Returns the configuration of the folder. Its context is never more than the cache can hold.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The model with its cache.
    pub fn model(&self) -> &Stateful {
        self.decoder.model()
    }

    /// The session that runs the model; of a model with an encoder, its decoder.
    pub fn session(&self) -> &Session {
        self.decoder.model().session()
    }

    /// Iterates over all sessions of the model's files: the decoder, its first step, the encoder.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        [self.session()].into_iter().chain(self.decoder.first()).chain(self.encoder.as_ref().map(Encoder::session))
    }

    /// Returns the number of plans that were made for all files of the model.
    pub fn plans_made(&self) -> u64 {
        self.sessions().map(Session::plans_made).sum()
    }

    /// Returns why each length of the cache is planned, if padding was tried and the model does not take it.
    pub fn note(&self) -> Option<&str> {
        self.decoder.note()
    }

    /// The decoder, whose cache the caller fills.
    pub(crate) fn emptied(&mut self) -> &mut Decoder {
        self.answers += 1;
        self.decoder.reset();
        &mut self.decoder
    }

    /// Computes a prompt alone, and returns the decoder behind it.
    ///
    /// # Errors
    /// If the encoder takes no text, or a run fails.
    pub(crate) fn prefill(&mut self, tokens: &[u32], options: &RunOptions) -> Result<&mut Decoder, GenerateError> {
        self.emptied();
        match &self.encoder {
            Some(encoder) => {
                let (source, begin) = encoder.split(tokens.into(), &self.config)?;
                self.decoder.follow_encoder(encoder.run(&source, options)?);
                self.decoder.feed(&begin, options)?;
            }
            None => {
                self.decoder.feed(tokens, options)?;
            }
        }
        Ok(&mut self.decoder)
    }

    /// Returns the number of tokens that the decoder begins with behind an encoder of text.
    pub(crate) fn begin(&self) -> usize {
        self.config.encoder.as_ref().map_or(0, |encoder| self.config.rules.begin(encoder.start).len())
    }

    /// The tokens of a text. Those that the tokenizer adds around it belong to them, unless the text is the beginning
    /// of what a decoder behind features says.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, GenerateError> {
        self.encoded(text, !self.takes_features())
    }

    /// Whether the model's encoder takes features instead of text.
    pub fn takes_features(&self) -> bool {
        self.encoder.as_ref().is_some_and(Encoder::is_of_features)
    }

    /// Encodes a text that may fit the context. The tokenizer takes a hundred bytes of memory per byte of text, so a
    /// text that is too long for any tokens is refused before.
    fn encoded(&self, text: &str, special: bool) -> Result<Vec<u32>, GenerateError> {
        let of_encoder = self.config.encoder.as_ref().and_then(|encoder| encoder.length);
        let context = self.config.context.max(of_encoder.unwrap_or(0));
        let most = context.saturating_mul(BYTES_PER_TOKEN).min(MOST_BYTES);
        if text.len() > most {
            let bytes = text.len();
            let text = format!(
                "the prompt has {bytes} bytes, too many for a context of {context} tokens; give a shorter prompt"
            );
            return Err(GenerateError::given(text));
        }
        self.vocabulary.encode(text, special)
    }

    /// Sees that the model's encoder takes features of such a type and shape.
    ///
    /// # Errors
    /// If it does not, or there is no such encoder.
    pub fn check_features(&self, features: &TensorSpec) -> Result<(), GenerateError> {
        self.encoder.as_ref().ok_or_else(no_encoder)?.check_features(features)
    }

    /// The text of tokens.
    pub fn decode(&self, tokens: &[u32]) -> String {
        self.vocabulary.decode(tokens)
    }

    /// The tokens of messages, as the chat template puts them.
    ///
    /// # Errors
    /// If there is no template, or it fails.
    pub fn encode_chat(&self, messages: &[Message]) -> Result<Vec<u32>, GenerateError> {
        let template = self.template.as_ref().ok_or_else(|| {
            GenerateError::file(
                &self.config.file,
                "there is no chat template next to it (chat_template.jinja, or in tokenizer_config.json); give the \
                 prompt without --chat",
            )
        })?;
        self.encoded(&template.render(messages)?, false)
    }

    /// Begins an answer to a prompt.
    ///
    /// # Errors
    /// If a setting has no sense, the prompt leaves no room for an answer, or the encoder does not take it.
    pub fn generate(
        &mut self,
        prompt: impl Into<Prompt>,
        settings: &Settings,
    ) -> Result<Generation<'_>, GenerateError> {
        let course = self.start(prompt, settings, false)?;
        Ok(Generation { generator: self, course, options: RunOptions::default() })
    }

    /// Starts an answer as a course. If `go_on`, the beginning of the prompt that the cache holds is not computed
    /// again.
    ///
    /// # Errors
    /// As [`Self::generate`].
    pub fn start(
        &mut self,
        prompt: impl Into<Prompt>,
        settings: &Settings,
        go_on: bool,
    ) -> Result<Course, GenerateError> {
        let mut course = self.course(prompt.into(), settings)?;
        let held = self.decoder.held();
        // The cache of a decoder behind an encoder belongs to one source.
        let goes_on = go_on && !held.is_empty() && course.source.is_none();
        match course.next.strip_prefix(held).filter(|behind| goes_on && !behind.is_empty()) {
            Some(behind) => {
                course.timing.prompt = behind.len();
                course.next = behind.to_vec();
                self.answers += 1;
            }
            None => {
                self.emptied();
            }
        }
        course.number = self.answers;
        Ok(course)
    }

    /// An answer of which nothing is computed.
    fn course(&self, prompt: Prompt, settings: &Settings) -> Result<Course, GenerateError> {
        let mut sampler = Sampler::new(settings).map_err(GenerateError::given)?;
        let (source, prompt) = self.split(prompt)?;
        let context = self.config.context;
        let most = settings.max_length.min(context);
        if self.is_limited && settings.max_length > context && settings.max_length < usize::MAX {
            let what = format!("the maximum length of prompt and answer is {} tokens", settings.max_length);
            return Err(GenerateError::given(format!(
                "{what}, but the model's cache holds {context}; give a maximum length of {context} or less"
            )));
        }
        if prompt.is_empty() {
            return Err(GenerateError::given(
                "the prompt is empty, and the model has no token to start with; give some text",
            ));
        }
        if prompt.len() >= most {
            let what = format!(
                "the prompt has {} tokens, but the maximum length of prompt and answer is {most}",
                prompt.len()
            );
            let next = match most == context {
                true => "this is the model's context; give a shorter prompt",
                false => "give a shorter prompt, or a greater maximum length",
            };
            return Err(GenerateError::given(format!("{what}; {next}")));
        }
        prompt.iter().for_each(|token| sampler.see(*token));
        let computed = if let Some(Source::Tokens(tokens)) = &source { tokens.len() } else { prompt.len() };
        Ok(Course {
            number: 0,
            sampler,
            stops: Stops::new(&settings.stops),
            stream: Stream::default(),
            settings: Settings { max_length: most, ..settings.clone() },
            timing: Timing { prompt: computed, ..Timing::default() },
            source,
            prompt: prompt.len(),
            length: prompt.len(),
            next: prompt,
            ended: None,
            finished: false,
            begun: Instant::now(),
        })
    }

    /// Returns what the encoder takes of a prompt, and the tokens that the decoder begins with.
    fn split(&self, prompt: Prompt) -> Result<(Option<Source>, Vec<u32>), GenerateError> {
        match (&self.encoder, prompt.features) {
            (Some(encoder), features) => {
                let (source, begin) = encoder.split(Prompt { tokens: prompt.tokens, features }, &self.config)?;
                Ok((Some(source), begin))
            }
            (None, Some(_)) => Err(no_encoder()),
            (None, None) => match self.config.begin {
                Some(begin) if prompt.tokens.is_empty() => Ok((None, vec![begin])),
                _ => Ok((None, prompt.tokens)),
            },
        }
    }

    /// The next piece of the answer that was begun last; `None` after its end.
    ///
    /// # Errors
    /// If another answer was begun since, which has the cache now; if a run fails, or computes no probabilities. A
    /// cancelled run is an end, and no error.
    pub fn advance(&mut self, course: &mut Course, options: &RunOptions) -> Option<Result<Piece, GenerateError>> {
        if course.finished {
            return None;
        }
        if course.ended.is_some() {
            return self.finish(course);
        }
        match self.choose(course, options) {
            Ok(token) => self.take(course, token),
            Err(error) if error.is_cancelled() => {
                course.ended = Some(Ended::Cancelled);
                self.finish(course)
            }
            Err(error) => {
                course.finished = true;
                Some(Err(error))
            }
        }
    }

    /// Computes what is to be computed, and chooses the next token.
    fn choose(&mut self, course: &mut Course, options: &RunOptions) -> Result<u32, GenerateError> {
        if course.number != self.answers {
            return Err(GenerateError::given("another answer was started since; start this one again"));
        }
        if let (Some(encoder), Some(source)) = (&self.encoder, &course.source) {
            self.decoder.follow_encoder(encoder.run(source, options)?);
            course.source = None;
        }
        let logits = self.decoder.feed(&course.next, options)?;
        Self::pick(&self.config, course, logits)
    }

    /// Chooses a token by logits.
    fn pick(config: &Config, course: &mut Course, logits: &mut [f32]) -> Result<u32, GenerateError> {
        config.rules.apply(course.length, course.prompt, course.settings.max_length, logits);
        let wrong = |what| GenerateError::file(&config.model, format!("{what} (at {})", course.length));
        let token = course.sampler.choose(logits).map_err(wrong)?;
        course.next.clear();
        course.sampler.see(token);
        course.next.push(token);
        let passed = course.begun.elapsed();
        match course.timing.first.is_zero() {
            true => course.timing.first = passed.max(Duration::from_nanos(1)),
            false => {
                course.timing.more += 1;
                course.timing.took = passed.saturating_sub(course.timing.first);
            }
        }
        Ok(token)
    }

    /// Makes a piece of a token.
    fn take(&mut self, course: &mut Course, token: u32) -> Option<Result<Piece, GenerateError>> {
        if !course.settings.ignore_ends && self.config.ends.contains(&token) {
            course.ended = Some(Ended::End);
            return self.finish(course);
        }
        course.length += 1;
        let (text, stopped) = course.stops.add(&course.stream.add(&self.vocabulary, token));
        if stopped {
            (course.ended, course.finished) = (Some(Ended::Stop), true);
        } else if course.length >= course.settings.max_length {
            let is_context = course.settings.max_length >= self.config.context;
            course.ended = Some(if is_context { Ended::Context } else { Ended::Length });
        }
        Some(Ok(Piece { token: Some(token), text }))
    }

    /// The text that was held back.
    fn finish(&mut self, course: &mut Course) -> Option<Result<Piece, GenerateError>> {
        course.finished = true;
        let (text, stopped) = course.stops.add(&course.stream.finish(&self.vocabulary));
        let text = if stopped { text } else { text + &course.stops.finish() };
        (!text.is_empty()).then_some(Ok(Piece { token: None, text }))
    }
}

fn no_encoder() -> GenerateError {
    GenerateError::given("the model has no encoder for the features; give only a prompt")
}

impl Course {
    /// Whether there is another token to compute.
    fn goes_on(&self) -> bool {
        self.ended.is_none() && !self.finished
    }

    /// Why the text ended, once it has.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Returns the times so far.
    pub fn timing(&self) -> Timing {
        self.timing
    }
}

impl Generation<'_> {
    /// Makes its runs with these options.
    pub fn with_run(self, options: RunOptions) -> Self {
        Self { options, ..self }
    }

    /// The answer's course.
    pub fn course(&self) -> &Course {
        &self.course
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Piece, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.generator.advance(&mut self.course, &self.options)
    }
}
