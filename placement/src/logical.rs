//! DALiuGE's logical graphs: what a pipeline does, whatever it runs on, as the editor EAGLE writes it; and the physical graphs that they unroll to.
//!
//! In a logical graph applications and data are nodes, and groups of them are constructs: a *scatter* is there in so many copies, a *gather* once for
//! so many of its inputs, a *group-by* once for each index of a scatter, and a *loop* runs so often. [`parse`] reads one,
//! [`LogicalGraph::unroll`] makes a drop of every copy of every node ([`PhysicalGraph`]), and [`PhysicalGraph::workload`] makes a task of every
//! drop, for [`footprint`](crate::footprint) and for every strategy. [`PhysicalGraph::write`] writes the drops in DALiuGE's form, which
//! [`parse_template`] reads.
//!
//! ```
//! use anabranch_placement::logical::parse;
//!
//! // One datum, which three copies of an application read.
//! let text = r#"{"nodeDataArray": [
//!     {"key": -1, "name": "raw", "category": "File", "categoryType": "Data"},
//!     {"key": -2, "name": "parts", "category": "Scatter", "fields": [{"name": "num_of_copies", "value": "3"}]},
//!     {"key": -3, "name": "work", "category": "PythonApp", "categoryType": "Application", "group": -2}
//! ], "linkDataArray": [{"from": -1, "to": -3}]}"#;
//! let physical = parse("example", text.as_bytes())?.unroll()?;
//! assert_eq!((physical.drops().len(), physical.links()), (4, &[(0, 1), (0, 2), (0, 3)][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is unlike the reference
//!
//! * Links join drops by their indices in the groups that their nodes share. The reference joins them by their order, which is the same where every
//!   group is complete.
//! * A loop-aware link goes into the first iteration, or out of the last. The reference looks for the loop at the wrong end.
//! * Groups of a group-by stand in the order of their index; the reference sorts the indices as texts, so that `10` comes before `2`.
//! * What a gather has gathered goes to all of the applications that start it; the reference takes the first alone.
//! * MKN, MPI and service constructs, group-bys of group-bys, and links from a gather to another group are refused by name.

mod document;
mod node;
mod physical;
mod template;
mod unroll;

pub use document::{LogicalGraph, parse};
pub use physical::{Drop, DropKind, PhysicalGraph, Workload};
pub use template::parse_template;
pub use unroll::{MAX_DROPS, MAX_LINKS};
