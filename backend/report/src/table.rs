//! Plain tables for terminals of 100 columns.

use crate::text::{WIDTH, shortened};
use anabranch_placement::quoted::Line;
use std::fmt;
use std::io::{IsTerminal, stdout};

/// A table with a head line.
///
/// In a terminal, its last column is cut if a line would be too long. Pipes and files get the whole table; files use
/// its alternate form (`{:#}`).
#[derive(Clone, Debug)]
pub struct Table {
    /// Names, and whether they are aligned to the right.
    columns: Vec<(String, bool)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes an empty table. `columns` holds the columns' names between bars. A column of figures, whose name begins
    /// with `>`, is aligned to the right: `name | >bytes`.
    pub fn new(columns: &str) -> Self {
        let column = |text: &str| (text.trim_start_matches('>').to_owned(), text.starts_with('>'));
        Self { columns: columns.split(" | ").map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.line(cells.into());
    }

    /// Adds a row whose number of columns is only known at run time.
    pub fn line(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| Line(cell).to_string()).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = f.alternate() || !stdout().is_terminal();
        self.write(f, if whole { usize::MAX } else { WIDTH })
    }
}

impl Table {
    /// Writes the lines, cut to `most` characters.
    fn write(&self, f: &mut impl fmt::Write, most: usize) -> fmt::Result {
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
            writeln!(f, "{}", shortened(text.trim_end(), most))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_long_lines_cut_in_terminals_alone() {
        let mut table = Table::new(">time | node");
        table.row(["1 ms".into(), "conv".into()]);
        table.row(["12.5 ms".into(), "x".repeat(200)]);
        let written = |most: usize| {
            let mut text = String::new();
            table.write(&mut text, most).expect("a text takes all");
            text
        };
        let text = written(WIDTH);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "     time  node");
        assert_eq!(lines[1], "     1 ms  conv");
        assert_eq!(lines[2].chars().count(), 100);
        assert!(lines[2].ends_with("x…"));
        assert!(written(usize::MAX).contains(&"x".repeat(200)));
    }
}
