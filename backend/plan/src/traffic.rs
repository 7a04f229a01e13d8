//! Traffic between devices, by route. Values that are read in place are not traffic of a link.

use super::transfer::{Route, Transfer};
use serde::{Deserialize, Serialize};
use std::iter::Sum;

/// Some transfers and the bytes of their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Number of transfers.
    pub transfers: usize,
    /// Sum of their bytes.
    pub bytes: u64,
}

/// Transfers of a plan, or those that took place in a run of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Values that one CPU device reads in the memory of another ([`Route::Shared`]): nothing moves.
    pub in_place: Moved,
    /// Values copied whole over a link.
    pub copied: Moved,
    /// Values passed on in chunks.
    pub streamed: Moved,
}

impl Sum for Traffic {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let add = |one: Moved, other: Moved| Moved {
            transfers: one.transfers + other.transfers,
            bytes: one.bytes + other.bytes,
        };
        all.fold(Self::default(), |sum, next| Self {
            in_place: add(sum.in_place, next.in_place),
            copied: add(sum.copied, next.copied),
            streamed: add(sum.streamed, next.streamed),
        })
    }
}

impl Traffic {
    /// Returns the copied and streamed transfers together.
    pub fn moved(&self) -> Moved {
        let (copied, streamed) = (self.copied, self.streamed);
        Moved { transfers: copied.transfers + streamed.transfers, bytes: copied.bytes + streamed.bytes }
    }

    /// Adds a value of this many bytes that takes this route.
    pub fn add(&mut self, route: &Route, bytes: u64) {
        let moved = match route {
            Route::Shared => &mut self.in_place,
            Route::Copied => &mut self.copied,
            Route::Streamed(_) => &mut self.streamed,
        };
        moved.transfers += 1;
        moved.bytes += bytes;
    }
}

impl<'a> FromIterator<&'a Transfer> for Traffic {
    fn from_iter<I: IntoIterator<Item = &'a Transfer>>(transfers: I) -> Self {
        let mut traffic = Self::default();
        transfers.into_iter().for_each(|transfer| traffic.add(&transfer.route, transfer.bytes));
        traffic
    }
}
