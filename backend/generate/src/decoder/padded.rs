//! Steps over a cache that is padded on the left, so that one plan serves all lengths up to a capacity.
//!
//! Exports that concatenate the cache with new keys take batches of texts of unlike lengths: the shorter ones begin
//! with padding, which the mask hides, and positions are given or counted by the mask. A step here is such a row. The
//! weights of masked keys are exactly 0, so that padding changes the order of sums alone. The distances between
//! positions stay, as windows need it. A model may still take positions or a mask from shapes, so the first step of
//! each capacity is computed both ways and compared. Nothing but the capacity decides shapes, so what holds for one
//! step of a capacity holds for all.

use super::super::cache::Cache;
use super::super::error::GenerateError;
use super::super::names::Names;
use super::Decoder;
use anabranch_execute::RunOptions;
use anabranch_kernels::DType;
use anabranch_session::{ErrorKind, Session, StatePair};

impl Decoder {
    /// Computes tokens behind a cache of this capacity.
    pub(super) fn run_padded(
        &mut self,
        tokens: &[u32],
        capacity: usize,
        options: &RunOptions,
    ) -> Result<(), GenerateError> {
        self.model.align(capacity, self.held.len())?;
        self.run(tokens, capacity - self.held.len(), options)
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
                format!("logits differ by {apart:.1e} of the greatest, but only {tolerated:.0e} is tolerated")
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
            "each length of this model's cache has its own plan: with a cache padded to {capacity} positions, {why}"
        ));
        Ok(())
    }
}

/// Whether an error says nothing about the model: a step without padding would have it, too.
pub(super) fn matters(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Cancelled | ErrorKind::Timeout | ErrorKind::DeviceFailure | ErrorKind::Internal)
}

/// Returns the greatest difference of logits that rounding explains, as a part of the greatest absolute logit.
///
/// Padding changes the order of sums and nothing else. The type of cache and logits says how much a sum may differ;
/// activations that are quantised at run time round in steps of 1/255.
pub(super) fn tolerance(session: &Session, state: &[StatePair], names: &Names) -> f32 {
    let types = state.iter().map(|pair| session.input_info(&pair.input)).chain([session.output_info(&names.logits)]);
    let of_type = types.flatten().map(|info| match info.dtype() {
        Some(DType::F16) => 1e-2,
        Some(DType::BF16) => 5e-2,
        _ => 1e-4,
    });
    let is_quantised = session.model().nodes.iter().any(|node| node.op_type.starts_with("DynamicQuantize"));
    of_type.fold(if is_quantised { 2e-2 } else { 0.0 }, f32::max)
}

/// Returns the greatest difference of logits as a part of the greatest absolute one; no number if one of them is none.
pub(super) fn difference(exact: &[f32], padded: &[f32]) -> f32 {
    let greatest = |values: &mut dyn Iterator<Item = f32>| values.map(f32::abs).max_by(f32::total_cmp).unwrap_or(0.0);
    // Equal infinities stand for tokens that the model forbids.
    let unlike = exact.iter().zip(padded).filter(|(exact, padded)| exact != padded);
    let apart = greatest(&mut unlike.map(|(exact, padded)| exact - padded));
    if apart == 0.0 { 0.0 } else { apart / greatest(&mut exact.iter().copied().filter(|logit| logit.is_finite())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_parts_of_the_greatest_logit() {
        let exact = [-4.0, f32::NEG_INFINITY, 2.0];
        for (padded, want) in [(-4.0, 0.0), (-3.0, 0.25), (2.0, 1.5), (f32::INFINITY, f32::INFINITY)] {
            assert_eq!(difference(&exact, &[padded, f32::NEG_INFINITY, 2.0]), want);
        }
        assert!(difference(&exact, &[f32::NAN; 3]).is_nan() && difference(&[f32::NAN; 3], &exact).is_nan());
        assert_eq!(difference(&[0.0; 3], &[0.0; 3]), 0.0);
    }
}
