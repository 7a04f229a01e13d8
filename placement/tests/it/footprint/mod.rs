//! Footprints: reference cases, brute force, and properties of random graphs.

mod golden;
mod live;
mod properties;
mod random;
