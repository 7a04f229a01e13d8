//! Promises of generation, on the tiny language models of the tests.

mod batch;
mod greedy;
mod hostile;
mod padded;
mod seq2seq;
mod tiny;

use anabranch_generate::{GenerateError, Generator, Piece, Prompt, Settings};
use anabranch_session::SessionConfig;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The folder of a language model.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/language").join(name)
}

fn open_in(folder: &Path, threads: usize) -> Result<Generator, GenerateError> {
    let options = SessionConfig::default().without_gpu().with_threads(NonZeroUsize::new(threads).expect("some"));
    Generator::open(folder, None, options)
}

fn open(name: &str) -> Generator {
    open_in(&folder(name), 1).expect("a language model")
}

/// Shape and bytes of an array in a model's archive of references, which is not compressed.
fn stored(model: &str, name: &str) -> (Vec<usize>, Vec<u8>) {
    let bytes = fs::read(folder(model).join("greedy.npz")).expect("bundled");
    let find =
        |what: &[u8], from: usize| from + bytes[from..].windows(what.len()).position(|at| at == what).expect("there");
    let header = find(b"\x93NUMPY", find(format!("{name}.npy").as_bytes(), 0));
    let begin = header + 10 + usize::from(u16::from_le_bytes([bytes[header + 8], bytes[header + 9]]));
    let text = String::from_utf8_lossy(&bytes[header..begin]).into_owned();
    let shape = text.split("'shape': (").nth(1).and_then(|shape| shape.split(')').next()).expect("a shape");
    let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
    let dims: Vec<usize> = sizes.map(|size| size.parse().expect("a number")).collect();
    let size = if text.contains("'<i8'") { 8 } else { 4 };
    let count = size * dims.iter().product::<usize>();
    (dims, bytes[begin..begin + count].to_vec())
}

/// An array of 64-bit integers.
fn integers(model: &str, name: &str) -> Vec<u32> {
    let (_, bytes) = stored(model, name);
    bytes.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("eight")) as u32).collect()
}

/// The tokens and the text of an answer.
fn answer(generator: &mut Generator, prompt: impl Into<Prompt>, settings: &Settings) -> (Vec<u32>, String) {
    let pieces = generator.generate(prompt, settings).expect("a prompt");
    let pieces: Vec<Piece> = pieces.collect::<Result<_, _>>().expect("runs");
    (pieces.iter().filter_map(|piece| piece.token).collect(), pieces.iter().map(|piece| &*piece.text).collect())
}
