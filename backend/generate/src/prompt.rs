//! Prompts: tokens, and features for an encoder.

use anabranch_kernels::Tensor;

/// Beginning of an answer: tokens, and features for a model whose encoder takes them.
///
/// The tokens go to the encoder of a model that has one for text. Behind an encoder of features they are the beginning
/// of the decoder's text.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    /// Tokens of a text.
    pub tokens: Vec<u32>,
    /// Input of an encoder that takes no text, such as 1 × mels × frames.
    pub features: Option<Tensor>,
}

impl<T: AsRef<[u32]> + ?Sized> From<&T> for Prompt {
    fn from(tokens: &T) -> Self {
        Self { tokens: tokens.as_ref().to_vec(), features: None }
    }
}
