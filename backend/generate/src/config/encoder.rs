//! The encoder of an encoder-decoder model, as `config.json` and the names of optimum's files say.

use super::super::error::GenerateError;
use super::Fields;
use std::path::{Path, PathBuf};

/// Files of a decoder behind an encoder; the first that is there counts.
pub(super) const FILES: [&str; 4] = [
    "decoder_model_merged.onnx",
    "decoder_with_past_model.onnx",
    "onnx/decoder_model_merged.onnx",
    "onnx/decoder_with_past_model.onnx",
];

/// Tokens that encoder and decoder take if the configuration does not say.
pub(super) const LENGTH: usize = 512;

/// Configuration of an encoder, and of the decoder's beginning.
#[derive(Clone, Debug)]
pub struct EncoderConfig {
    /// The encoder's file.
    pub model: PathBuf,
    /// The file that computes the first step, unless the decoder's does.
    pub first: Option<PathBuf>,
    /// The token that the decoder begins with.
    pub start: u32,
    /// Tokens that the encoder takes, if it is said.
    pub length: Option<usize>,
    /// Numbers per frame of features, if it is said.
    pub mels: Option<usize>,
    /// Frames of features, if it is said.
    pub frames: Option<usize>,
}

impl EncoderConfig {
    /// Reads what the configuration says; [`Self::find`] adds the files.
    pub(super) fn read(fields: Fields<'_>, search: Fields<'_>, begin: Option<u32>) -> Result<Self, GenerateError> {
        const START: &str = "decoder_start_token_id";
        let start = [search.tokens(START)?, fields.tokens(START)?].concat().first().copied().or(begin);
        let length = fields.size("max_position_embeddings")?.or(fields.size("n_positions")?);
        Ok(Self {
            model: PathBuf::new(),
            first: None,
            start: start.ok_or_else(|| GenerateError::file(fields.file, format!("{START} is missing")))?,
            length,
            mels: fields.size("num_mel_bins")?,
            // A convolution makes one position of two frames.
            frames: fields.size("max_source_positions")?.map(|positions| positions.saturating_mul(2)),
        })
    }

    /// Finds the other files of a decoder's export by its name. `decoder_model_merged_q4.onnx` belongs to
    /// `encoder_model_q4.onnx`, or to `encoder_model.onnx` if that is not there.
    ///
    /// # Errors
    /// If a file is missing, or the name is none of an export.
    pub(super) fn find(&mut self, decoder: &Path) -> Result<(), GenerateError> {
        let name = decoder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let kinds = ["decoder_model_merged", "decoder_with_past_model"];
        let Some(kind) = kinds.into_iter().find(|kind| name.contains(kind)) else {
            let what = format!(
                "the name does not contain {}, so the other files are unknown; name a file that does",
                kinds.join(" or ")
            );
            return Err(GenerateError::file(decoder, what));
        };
        let beside = |other: &str| decoder.with_file_name(name.replacen(kind, other, 1));
        let of_export = [beside("encoder_model"), decoder.with_file_name("encoder_model.onnx")];
        let found = of_export.iter().find(|file| file.exists());
        let missing =
            |file: &Path| GenerateError::file(file, "the file does not exist; export the model again with optimum");
        self.model = found.ok_or_else(|| missing(&of_export[1]))?.clone();
        if kind == kinds[1] {
            let first = beside("decoder_model");
            self.first = Some(if first.exists() { first } else { return Err(missing(&first)) });
        }
        Ok(())
    }
}
