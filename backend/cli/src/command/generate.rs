//! `anabranch generate`: text from a language model, and how fast it comes.

mod answers;
pub(super) mod forecast;
pub(super) mod rates;

use super::args::{DeviceArgs, FuseArgs, LimitArgs, ModelArgs, PlaceArgs, PrecisionArgs, WhatIfArgs, parse_size};
use super::images::ImageArgs;
use super::interrupt::cancel_on_interrupt;
use super::open;
use super::progress::waiting;
use super::{CliError, MORE, Output};
use anabranch::TensorSpec;
use anabranch::execute::{CancelToken, RunOptions};
use anabranch::generate::{GenerateError, Generator, Overrides};
use anabranch_report::npy::read_npy_if;
use answers::Asked;
use clap::Args;
use rates::{Bench, parse_bench};
use std::num::NonZeroUsize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  anabranch generate model --prompt 'The river'
  anabranch generate model --chat --system 'Answer in one sentence.' --temperature 0.7 --seed 1
  anabranch generate model --prompt-file a.txt --prompt-file b.txt --max-length 200 --json
  anabranch generate model --prompt-file a.txt --prompt-file b.txt --batch 2
  anabranch generate whisper --features speech.npy
  anabranch generate model --bench 512,128 --bench 512,1024 --place auto --memory gpu0=6GiB
  anabranch generate model --bench 512,128 --platform one-gpu --memory gpuA=2GiB    # predicted, nothing runs

A folder holds genai_config.json (onnxruntime-genai) or config.json (optimum), tokenizer.json, and the model. A model with an encoder (T5,
Whisper) has several files. Several prompts are answered one after the other, or in batches. The same seed gives the same tokens, on any number of
threads. Ctrl-C ends an answer, with exit code 130.";

/// Generate text with a language model
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct GenerateCommand {
    /// Folder that onnxruntime-genai or optimum exported
    folder: PathBuf,
    /// Use this file of the folder as the model [default: from its configuration]
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    model: Option<PathBuf>,
    /// Continue this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,
    /// Continue the text of a file; may be repeated
    #[arg(long, value_name = "FILE")]
    prompt_file: Vec<PathBuf>,
    /// Answer encoder features from a .npy file; may be repeated
    ///
    /// This is for models such as Whisper: f32, 1 x mels x frames, as the model's processor computes them from sound. A
    /// --prompt is then the beginning of the decoder's text.
    #[arg(long, value_name = "FILE", conflicts_with = "chat")]
    features: Vec<PathBuf>,
    /// Use the chat template; without a prompt, chat line by line
    #[arg(long)]
    chat: bool,
    /// Begin the chat with this text, in the role `system`
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Answer this many prompts together
    ///
    /// Texts are printed when all of them have ended. Each is the text that its prompt has alone, unless logits differ
    /// by less than rounding.
    #[arg(long, value_name = "N", default_value = "1", conflicts_with_all = ["features", "bench"], value_parser = parse_size::<NonZeroUsize>)]
    batch: NonZeroUsize,
    #[command(flatten)]
    choice: ChoiceArgs,
    /// Measure a prompt of P tokens and N more; may be repeated
    ///
    /// Prints the tokens per second of each, with intervals, and the prediction of the plans. Tokens are given; none is
    /// chosen.
    #[arg(long, value_name = "P,N", value_parser = parse_bench, conflicts_with_all = ["prompt", "prompt_file", "features", "chat"], help_heading = "Measuring")]
    bench: Vec<Bench>,
    /// Repeat each measurement N times
    #[arg(long, value_name = "N", default_value = "5", requires = "bench", value_parser = parse_size::<NonZeroUsize>, help_heading = "Measuring")]
    repeat: NonZeroUsize,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    fuse: FuseArgs,
    #[command(flatten)]
    precision: PrecisionArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
}

/// Choice of tokens, and ends of a text.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Choosing tokens")]
struct ChoiceArgs {
    /// Draw tokens at this temperature; 0 takes the most probable
    ///
    /// Default: the value of generation_config.json or genai_config.json, else 0.
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Draw among the K most probable tokens
    #[arg(long, value_name = "K", value_parser = parse_size::<NonZeroUsize>)]
    top_k: Option<NonZeroUsize>,
    /// Draw among the most probable tokens of total probability P
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Make repeated tokens less probable by this factor [default: 1]
    #[arg(long, value_name = "FACTOR", hide_short_help = true)]
    repetition_penalty: Option<f64>,
    /// Set the seed of the draws; each further prompt adds 1
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = parse_size::<u64>)]
    seed: u64,
    /// End before this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Limit the tokens of prompt and answer together [default: as configured]
    #[arg(long, value_name = "N", value_parser = parse_size::<usize>)]
    max_length: Option<usize>,
}

impl GenerateCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let texts = self.texts()?;
        if texts.is_empty() && self.features.is_empty() && !self.chat && self.bench.is_empty() {
            return Err(CliError::input(
                "there is no prompt; give --prompt TEXT, --prompt-file FILE, --features FILE or --chat",
            ));
        }
        if texts.is_empty() && self.batch.get() > 1 {
            return Err(CliError::input("--batch needs several prompts; give --prompt TEXT or --prompt-file FILE"));
        }
        if texts.len() > 1 && !self.features.is_empty() {
            return Err(CliError::input("several prompts and features are given; give one --prompt for all features"));
        }
        let platform = self.what_if.read()?;
        let is_forecast = platform.is_some();
        if is_forecast && self.bench.is_empty() {
            return Err(CliError::input(
                "--platform predicts rates and generates no text; give --bench P,N, such as --bench 512,128",
            ));
        }
        let (config, _) = open::config(&self.devices, platform, &self.model_args(), &self.place, false)?;
        let open = || Generator::open(&self.folder, self.model.as_deref(), config);
        let mut generator = waiting(output, "opening the model", open).map_err(failed)?;
        generator.sessions().for_each(|session| open::print_notes(session, output));
        if is_forecast {
            return forecast::print(&mut generator, &self.bench, output);
        }
        let token = cancel_on_interrupt()?;
        let run = RunOptions::default().with_cancel(token.clone());
        if !self.bench.is_empty() {
            return rates::print(&mut generator, &self.bench, self.repeat.get(), &run, output);
        }
        let asked = self.asked(&generator, texts)?;
        let settings = generator.config().settings.with(&self.choice.overrides());
        let answered =
            answers::Answers { generator, settings, run, output, system: self.system.clone(), chat: self.chat };
        match asked.is_empty() {
            true => answered.talk(&token),
            false if self.batch.get() > 1 && asked.len() > 1 => answered.together(&asked, self.batch.get(), &token),
            false => answered.all(asked, &token),
        }
    }

    /// Returns texts and features, of which each has an answer.
    fn asked(&self, generator: &Generator, texts: Vec<String>) -> Result<Vec<Asked>, CliError> {
        if self.features.is_empty() {
            return Ok(texts.into_iter().map(|text| Asked { text, features: None }).collect());
        }
        let read = |path: &PathBuf| {
            let wanted = |spec: &TensorSpec| generator.check_features(spec).map_err(|error| error.to_string());
            let features = read_npy_if(path, wanted).map_err(CliError::input)?;
            Ok(Asked { text: texts.concat(), features: Some((super::lossy(path), features)) })
        };
        self.features.iter().map(read).collect()
    }

    fn texts(&self) -> Result<Vec<String>, CliError> {
        let mut prompts = self.prompt.clone();
        for path in &self.prompt_file {
            let text = String::from_utf8(super::read_file(path)?);
            prompts.push(text.map_err(|_| CliError::in_file(path, "is not UTF-8 text; save it as UTF-8"))?);
        }
        Ok(prompts)
    }

    /// The arguments of a session's options.
    fn model_args(&self) -> ModelArgs {
        ModelArgs {
            model: Some(self.folder.clone()),
            input: Vec::new(),
            images: ImageArgs::default(),
            random: None,
            dim: Vec::new(),
            cached: None,
            cache: None,
            fuse: self.fuse.clone(),
            precision: self.precision.clone(),
            limits: self.limits.clone(),
        }
    }
}

impl ChoiceArgs {
    /// Returns the settings of the command line, which override the configuration.
    fn overrides(&self) -> Overrides {
        Overrides {
            temperature: self.temperature,
            top_k: self.top_k.map(NonZeroUsize::get),
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty,
            max_length: self.max_length,
            stops: self.stop.clone(),
            seed: self.seed,
        }
    }
}

/// The error of the library in the command's words.
pub(super) fn failed(error: GenerateError) -> CliError {
    match error.session() {
        _ if error.is_cancelled() => CliError::interrupted(),
        Some(session) => session.clone().into(),
        None => CliError::input(error),
    }
}

/// Ends with status 130 after an interruption.
fn settle(token: &CancelToken) -> Result<(), CliError> {
    if token.is_cancelled() { Err(CliError::interrupted()) } else { Ok(()) }
}
