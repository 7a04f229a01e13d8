//! Charts as self-contained SVG: bars with deviations, and schedules over time. No fonts of their own; colours
//! that colour-blind people tell apart, on light and dark paper alike.
//!
//! Small pieces draw into a [`Canvas`]; each chart lays them out and gives the whole file as text.

mod axis;
mod bars;
mod canvas;
mod head;
mod lanes;
mod page;
mod scale;
mod scatter;
mod steps;
mod table;
mod theme;
mod timeline;

pub(crate) use crate::text::amount;
pub(crate) use bars::{Bar, BarChart, Group, Panel};
pub(crate) use canvas::escaped;
pub(crate) use head::Sample;
pub(crate) use lanes::{Interval, Lane, Quantity, SEND_COLOUR, busy};
pub(crate) use page::{page, section, titled};
pub(crate) use scale::Scale;
pub(crate) use scatter::{Point, Scatter};
pub(crate) use table::html_table;
pub(crate) use timeline::{TimePanel, Timeline};

/// How values are written.
pub(crate) type Format = fn(f64) -> String;
