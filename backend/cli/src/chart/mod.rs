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

pub(crate) use bars::{Bar, BarChart, Group, Panel};
pub(crate) use blocks::BlockChart;
pub(crate) use boxes::{BoxChart, BoxPanel, Boxes, Spread};
pub(crate) use canvas::escaped;
pub(crate) use gantt::{Activity, Lane, Stay};
pub(crate) use page::page;
pub(crate) use run::RunChart;
pub(crate) use scale::{Scale, amount};
pub(crate) use schedule::ScheduleChart;
pub(crate) use table::html_table;

/// How values are written.
pub(crate) type Format = fn(f64) -> String;
