//! The library from outside, in one executable: `cargo test -p anabranch --test it NAME` runs a part.

mod attributes_hostile;
mod compiled;
mod costs;
mod definitions;
mod functions;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(unix)]
mod import_external;
#[cfg(target_os = "linux")]
mod import_hostile;
mod integers;
mod lowering;
mod operators;
