//! The tokenizer of a model: texts to tokens and back.

use super::error::GenerateError;
use anabranch_base::files::read;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

/// Bytes of a tokenizer's file at most: those of the largest vocabularies take some tens of MiB.
const LARGEST: u64 = 256 << 20;

/// A tokenizer, and the file that it is from.
pub(crate) struct Vocabulary {
    tokenizer: Tokenizer,
    file: PathBuf,
}

impl Vocabulary {
    /// Reads `tokenizer.json` of a folder.
    ///
    /// # Errors
    /// If there is none, or it is no tokenizer.
    pub(crate) fn read(folder: &Path) -> Result<Self, GenerateError> {
        let file = folder.join("tokenizer.json");
        let bytes = read(&file, LARGEST).map_err(|error| {
            GenerateError::file(
                &file,
                format!("{error}; export the model with its tokenizer, or save the tokenizer next to the model"),
            )
        })?;
        let tokenizer = guarded(&file, || Tokenizer::from_bytes(&bytes))?;
        Ok(Self { tokenizer, file })
    }

    /// The tokens of a text, with those that the tokenizer adds around it if `special`.
    ///
    /// # Errors
    /// If the tokenizer cannot take the text.
    pub(crate) fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, GenerateError> {
        guarded(&self.file, || self.tokenizer.encode_fast(text, special)).map(|encoding| encoding.get_ids().to_vec())
    }

    /// The text of tokens, without special ones; empty if the tokenizer fails.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let decode = || self.tokenizer.decode(ids, true);
        catch_unwind(AssertUnwindSafe(decode)).ok().and_then(Result::ok).unwrap_or_default()
    }

    /// One more than the greatest token.
    pub(crate) fn len(&self) -> usize {
        self.tokenizer.get_vocab(true).values().max().map_or(0, |most| *most as usize + 1)
    }
}

/// Work of the tokenizer, whose file says what it does: a panic there is a fault of that file.
fn guarded<T, E: Display>(file: &Path, work: impl FnOnce() -> Result<T, E>) -> Result<T, GenerateError> {
    let broken = |what: String| GenerateError::file(file, format!("the tokenizer fails: {what}; export it again"));
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| broken(error.to_string())),
        Err(_) => Err(broken("it contradicts itself".into())),
    }
}
