//! Placeholder of the crate's front page.
