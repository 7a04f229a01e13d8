//! Charts, pages, traces and tables of plans, runs and comparisons, and tensors in files.
//!
//! Programs start with [`show`]: it returns a run, a plan, a flow or a comparison as JSON, SVG, HTML or a trace. The
//! command `anabranch` and the Python package both build on this crate. Programs that only run models use the crate
//! [`anabranch`].

#![forbid(unsafe_code)]

pub mod chart;
pub mod comparison;
pub mod divided;
pub mod flow;
pub mod npy;
pub mod plan;
pub mod report;
pub mod run;
pub mod show;
pub mod table;
pub mod tensors;
pub mod text;
pub mod trace;
pub mod trial;
pub mod vision;
