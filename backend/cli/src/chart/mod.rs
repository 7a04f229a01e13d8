//! Charts as self-contained SVG: bars with deviations, distributions, and schedules over time. No scripts and no fonts of their own; colours that
//! colour-blind people tell apart, on light and dark paper alike.
//!
//! Small pieces draw into a [`Canvas`]; each chart lays them out and gives the whole file as text.

mod axis;
mod bars;
mod blocks;
mod boxes;
mod canvas;
mod gantt;
mod head;
mod page;
mod run;
mod scale;
mod schedule;
mod steps;
mod table;
mod theme;

pub use bars::{Bar, BarChart, Group, Panel};
pub use blocks::BlockChart;
pub use boxes::{BoxChart, BoxPanel, Boxes, Spread};
pub use canvas::{Anchor, Canvas, Rect, escaped};
pub use gantt::{Activity, Lane, Stay};
pub use page::page;
pub use run::RunChart;
pub use scale::{Scale, amount};
pub use schedule::ScheduleChart;
pub use table::html_table;

/// How values are written.
pub type Format = fn(f64) -> String;
