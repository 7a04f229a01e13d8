//! Steps over a cache that is padded on the left, so that one plan serves all lengths up to a capacity.
//!
//! Exports that concatenate the cache with new keys take batches of texts of unlike lengths: the shorter ones begin
//! with padding, which the mask hides, and positions are given or counted by the mask. A step here is such a row. The
//! weights of masked keys are exactly 0, so that padding changes the order of sums alone. The distances between
//! positions stay, as windows need it. A model may still take positions or a mask from shapes, so the first step of
//! each capacity is computed both ways and compared. Nothing but the capacity decides shapes, so what holds for one
//! step of a capacity holds for all.

use super::super::cache::{Cache, difference, tolerance};
use super::super::error::GenerateError;
use super::Decoder;
use anabranch_execute::RunOptions;
use anabranch_session::ErrorKind;

impl Decoder {
    /// Computes tokens behind a cache of this capacity.
    pub(super) fn run_padded(
        &mut self,
        tokens: &[u32],
        capacity: usize,
        options: &RunOptions,
    ) -> Result<(), GenerateError> {
        self.model.align(capacity, self.held)?;
        self.run(tokens, capacity - self.held, options)
    }

    /// Computes tokens without padding and with it. If the logits agree, steps of this capacity are padded from now on,
    /// and these are. Otherwise no step is.
    ///
    /// # Errors
    /// If the step without padding fails, or the other fails for a reason that is not the model's. The cache then holds
    /// what it held before.
    pub(super) fn compare(
        &mut self,
        tokens: &[u32],
        capacity: usize,
        options: &RunOptions,
    ) -> Result<(), GenerateError> {
        let before = self.model.snapshot();
        self.run_exact(tokens, options)?;
        let (exact, logits) = (self.model.snapshot(), self.logits.clone());
        self.model.restore(&before);
        let why = match self.run_padded(tokens, capacity, options) {
            Ok(()) => {
                let tolerated = tolerance(self.model.session(), self.model.pairs(), &self.names);
                let apart = difference(&logits, &self.logits);
                if apart <= tolerated {
                    if let Cache::Padded(compared) = &mut self.cache {
                        compared.insert(capacity);
                    }
                    return Ok(());
                }
                format!("logits differ by {apart:.1e} of the greatest, and {tolerated:.0e} is tolerated")
            }
            Err(error) if matters(error.kind()) => {
                self.model.restore(&before);
                return Err(error);
            }
            Err(error) => error.to_string(),
        };
        self.model.restore(&exact);
        (self.logits, self.cache, self.settled) = (logits, Cache::Exact, false);
        self.note = Some(format!(
            "each length of this model's cache is planned: with a cache padded to {capacity} positions, {why}"
        ));
        Ok(())
    }
}

/// Whether an error says nothing about the model: a step without padding would have it, too.
fn matters(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Cancelled | ErrorKind::Timeout | ErrorKind::DeviceFailure | ErrorKind::Internal)
}
