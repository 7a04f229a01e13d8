//! Text from language models: folders as exporters write them, and tokens one after the other, chosen exactly and by a
//! seed.

#![forbid(unsafe_code)]

mod bench;
mod cache;
mod chat;
mod config;
mod decoder;
mod encoder;
mod error;
mod generator;
mod integers;
mod names;
mod prompt;
mod read;
mod rules;
mod sample;
mod stop;
mod stream;
mod vocabulary;

pub use bench::{Forecast, Rates, Sample, forecast, measure};
pub use chat::Message;
pub use config::{Config, EncoderConfig};
pub use error::GenerateError;
pub use generator::{Batch, Course, Ended, Generation, Generator, Piece, Timing};
pub use prompt::Prompt;
pub use rules::Rules;
pub use sample::{Choice, Overrides, Sampler, Settings};
