//! Plain tables and figures for terminals of 100 columns.

pub(super) use crate::text::{duration, interval, shortened};
use std::fmt;

/// Columns of a terminal that tables must fit.
const WIDTH: usize = 100;

/// A table with a head line. Its last column is cut where a line would be longer than a terminal.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Names, and whether they are aligned to the right.
    columns: Vec<(String, bool)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table. The columns' names stand between bars; a column of figures, whose name begins with `>`, is aligned to the
    /// right: `name | >bytes`.
    pub(crate) fn new(columns: &str) -> Self {
        let column = |text: &str| (text.trim_start_matches('>').to_owned(), text.starts_with('>'));
        Self { columns: columns.split(" | ").map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(&self.rows).collect();
        let width =
            |column: usize| lines.iter().map(|l| l.get(column).map_or(0, |c| c.chars().count())).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        for line in lines {
            let mut text = String::from(" ");
            for ((cell, width), (_, right)) in line.iter().zip(&widths).zip(&self.columns) {
                text.push_str(&if *right { format!(" {cell:>width$} ") } else { format!(" {cell:<width$} ") });
            }
            writeln!(f, "{}", shortened(text.trim_end(), WIDTH))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_long_lines_cut() {
        let mut table = Table::new(">time | node");
        table.row(["1 ms".into(), "conv".into()]);
        table.row(["12.5 ms".into(), "x".repeat(200)]);
        let text = table.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "     time  node");
        assert_eq!(lines[1], "     1 ms  conv");
        assert_eq!(lines[2].chars().count(), 100);
        assert!(lines[2].ends_with("x…"));
    }
}
