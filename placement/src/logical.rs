//! Logical graphs of DALiuGE, in the format of its editor EAGLE, and the physical graphs that they unroll to.
//!
//! A logical graph describes a workflow independently of any machine.
//!
//! Its nodes are applications and data, and constructs group them. A *scatter* is repeated for each of its copies, and
//! a *gather* once per group of its inputs. A *group-by* is repeated for each index of a scatter, and a *loop* once per
//! iteration. [`parse`] reads a logical graph. [`LogicalGraph::unroll`] makes a drop of every copy of every node
//! ([`PhysicalGraph`]). [`PhysicalGraph::workload`] makes a task of every drop, for [`footprint`](crate::footprint) and
//! for every strategy. [`PhysicalGraph::write`] writes the drops in DALiuGE's form, which [`parse_template`] reads.
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
//! # Differences from the reference
//!
//! * Links join drops by their indices in the groups that their nodes share. The reference joins them by their order,
//!   which is equivalent if every group is complete.
//! * A loop-aware link goes into the first iteration, or out of the last. The reference looks for the loop at the wrong
//!   end.
//! * Groups of a group-by are sorted by their numeric index; the reference sorts the indices as strings, so that `10`
//!   comes before `2`.
//! * The inputs of a gather go to all of the applications that start it; the reference uses the first one only.
//! * MKN, MPI and service constructs, group-bys of group-bys, and links from a gather to another group are rejected
//!   with an error that names them.

mod document;
mod node;
mod physical;
mod template;
mod unroll;

pub use document::{LogicalGraph, parse};
pub use physical::{Drop, DropKind, PhysicalGraph, Workload};
pub use template::parse_template;
pub use unroll::{MAX_DROPS, MAX_LINKS};
