//! Text from language models: folders as exporters write them, and tokens one after the other, chosen exactly and by a
//! seed.

#![forbid(unsafe_code)]

mod bench;
mod cache;
mod chat;
mod config;
mod decoder;
mod error;
mod generator;
mod names;
mod read;
mod sample;
mod stop;
mod stream;
mod vocabulary;

pub use bench::{Forecast, Rates, Sample, forecast, measure};
pub use chat::Message;
pub use config::Config;
pub use error::GenerateError;
pub use generator::{Course, Ended, Generation, Generator, Piece, Timing};
pub use sample::{Choice, Overrides, Sampler, Settings};
