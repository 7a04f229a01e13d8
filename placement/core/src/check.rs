//! Independent checker: lists the faults of a placement or a schedule.
//!
//! It is written from the definitions (Laich 2017, sections 4.1 and 5.1). It shares no code with the strategies, the
//! orders, the transfer sets and the simulator that it checks. It reads the graph, the platform and the cost model, and
//! derives everything else itself. An empty list means that no fault was found.

mod alone;
mod placement;
mod schedule;
mod violation;

pub use placement::check_placement;
pub use schedule::check_schedule;
pub use violation::{Subject, Violation};
