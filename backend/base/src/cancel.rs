//! Cancels runs from outside.

use crate::sync::AtomicBool;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Asks runs to stop. Clones are the same token. A cancelled token stays cancelled.
///
/// A run looks at its token while it is planned, between nodes, between the parts of a CPU's kernel, and every few
/// milliseconds while it waits.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks every run with this token to stop, now or when it begins.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the token was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
