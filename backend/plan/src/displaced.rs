//! Nodes that left their devices because memory is short.

use serde::{Deserialize, Serialize};

/// Nodes that a strategy placed on a device and that run elsewhere, because memory is short there or because their
/// neighbours left for that reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Displaced {
    /// Name of the device that they left.
    pub device: String,
    /// Number of nodes.
    pub nodes: usize,
}
