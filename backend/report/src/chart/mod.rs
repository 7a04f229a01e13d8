//! Charts as self-contained SVG: bars with deviations, matrices, and schedules over time. They embed no fonts. The
//! colours suit colour-blind people, in light and dark mode.
//!
//! Small pieces draw into a `Canvas`. Each chart lays them out and returns the whole file as text.

mod axis;
mod bars;
mod canvas;
mod head;
mod heat;
mod lanes;
mod page;
mod scale;
mod scatter;
mod steps;
mod table;
mod theme;
mod timeline;

pub(crate) use bars::plain;
pub use bars::{Axis, Bar, BarChart, Group, Panel};
pub use canvas::escaped;
pub use head::Sample;
pub use heat::HeatMap;
pub use lanes::{Interval, Lane, Quantity, SEND_COLOUR, busy};
pub use page::{page, section, titled};
pub use scale::Base;
pub(crate) use scale::Scale;
pub use scatter::{Point, Scatter};
pub use table::html_table;
pub use timeline::{TimePanel, Timeline};

/// Formats a value.
pub type Format = fn(f64) -> String;
