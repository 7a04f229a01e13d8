//! The command as its users see it, in one executable: `cargo test -p anabranch-cli --test it NAME` runs a part.

mod bench;
mod cli;
mod command;
mod compiled;
mod costs;
mod dataflow;
#[cfg(target_os = "linux")]
mod drops;
mod everyday;
mod fit;
mod flow;
mod formats;
mod generate;
mod graphics;
#[cfg(unix)]
mod guides;
#[cfg(unix)]
mod hostile;
mod laboratory;
#[cfg(target_os = "linux")]
mod memory;
mod messages;
mod phases;
mod pipe;
#[cfg(unix)]
mod promises;
mod report;
#[cfg(unix)]
mod shared;
#[cfg(target_os = "linux")]
mod signals;
mod sizes;
mod split;
mod sweeps;
mod tensors;
mod traces;
mod what_if;
