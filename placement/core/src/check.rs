//! The independent checker: says what is wrong with a placement or a schedule.
//!
//! Written from the definitions (Laich 2017, sections 4.1 and 5.1); shares no code with the strategies, the orders, the
//! transfer sets and the simulator whose results it judges. It reads the graph, the platform and the cost model, and derives
//! everything else anew. An empty list means that nothing was found.

mod alone;
mod placement;
mod schedule;
mod violation;

pub use placement::check_placement;
pub use schedule::check_schedule;
pub use violation::{Subject, Violation};
