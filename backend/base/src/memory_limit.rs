//! The limit of a device's memory.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// Most bytes of a device's memory that plans may fill, if there is a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemoryLimit(Option<u64>);

impl MemoryLimit {
    /// No limit.
    pub const NONE: Self = Self(None);

    /// Whether so many bytes are within the limit.
    pub fn admits(self, bytes: u64) -> bool {
        bytes <= self.or_all()
    }

    /// Returns the limit in bytes, or the most that a `u64` holds.
    pub fn or_all(self) -> u64 {
        self.0.unwrap_or(u64::MAX)
    }

    /// Returns the limit in bytes, if there is one.
    pub fn bytes(self) -> Option<u64> {
        self.0
    }
}

impl From<u64> for MemoryLimit {
    fn from(bytes: u64) -> Self {
        Self(Some(bytes))
    }
}

impl From<Option<u64>> for MemoryLimit {
    fn from(bytes: Option<u64>) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_admits_what_it_holds_and_none_admits_all() {
        let limit = MemoryLimit::from(5);
        assert!(limit.admits(5) && !limit.admits(6) && MemoryLimit::NONE.admits(u64::MAX));
        assert_eq!((limit.or_all(), MemoryLimit::NONE.bytes()), (5, None));
    }
}
