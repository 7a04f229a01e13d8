//! Tests of the public interface of placement, in one executable: `cargo test -p anabranch-placement --test it NAME`
//! runs a part.

mod auto;
mod checker;
mod extremes;
mod footprint;
mod formats;
mod instances;
mod list_schedulers_golden;
mod logical;
mod network;
mod optimum;
mod pipeline;
mod placement_hashes;
mod properties;
mod reference;
mod small;
mod streaming_golden;
mod streaming_properties;
mod thesis_reference;
