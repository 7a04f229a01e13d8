//! Promises of generation, on the tiny language models of the tests.

mod greedy;
mod hostile;
mod padded;
mod tiny;

use anabranch_device::DetectOptions;
use anabranch_generate::{GenerateError, Generator, Piece, Settings};
use anabranch_session::SessionOptions;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The folder of a language model.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/language").join(name)
}

fn open_in(folder: &Path, threads: usize) -> Result<Generator, GenerateError> {
    let options = SessionOptions::default()
        .with_devices(DetectOptions::default().without_gpu())
        .with_threads(NonZeroUsize::new(threads).expect("some"));
    Generator::open(folder, None, options)
}

fn open(name: &str) -> Generator {
    open_in(&folder(name), 1).expect("a language model")
}

/// The tokens and the text of an answer.
fn answer(generator: &mut Generator, prompt: &[u32], settings: &Settings) -> (Vec<u32>, String) {
    let pieces = generator.generate(prompt, settings).expect("a prompt");
    let pieces: Vec<Piece> = pieces.collect::<Result<_, _>>().expect("runs");
    (pieces.iter().filter_map(|piece| piece.token).collect(), pieces.iter().map(|piece| &*piece.text).collect())
}
