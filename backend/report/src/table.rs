//! Plain tables for terminals, of at most 100 columns.

use crate::text::{shortened, terminal_width};
use anabranch_placement::quoted::Line;
use std::fmt;
use std::io::{IsTerminal, stdout};

/// A table with a head line.
///
/// In a terminal, columns at the end are left out if a line would be too long; a column of text is cut instead. Pipes
/// and files get the whole table; files use its alternate form (`{:#}`).
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
        self.write(f, if whole { usize::MAX } else { terminal_width() })
    }
}

impl Table {
    /// Writes the lines, with at most `most` characters each. An ellipsis stands for columns that are left out.
    fn write(&self, f: &mut impl fmt::Write, most: usize) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(&self.rows).collect();
        let width =
            |column: usize| lines.iter().map(|l| l.get(column).map_or(0, |c| c.chars().count())).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let kept = self.kept(&widths, most);
        for (number, line) in lines.into_iter().enumerate() {
            let mut text = String::from(" ");
            for ((cell, width), (_, right)) in line.iter().zip(&widths).zip(&self.columns).take(kept) {
                text.push_str(&if *right { format!(" {cell:>width$} ") } else { format!(" {cell:<width$} ") });
            }
            if number == 0 && kept < widths.len() {
                text.push_str(" …");
            }
            writeln!(f, "{}", shortened(text.trim_end(), most))?;
        }
        Ok(())
    }

    /// Returns the whole table in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
        let escaped = |cell: &String| cell.replace('\\', "\\\\").replace('|', "\\|");
        let head = line(&mut self.columns.iter().map(|(name, _)| escaped(name)));
        let rule =
            line(&mut self.columns.iter().map(|(_, right)| if *right { "--:".to_owned() } else { "---".to_owned() }));
        let rows = self.rows.iter().map(|row| line(&mut row.iter().map(escaped)));
        [head, rule].into_iter().chain(rows).collect()
    }

    /// Returns the number of columns that fit into `most` characters. At least one column is kept.
    fn kept(&self, widths: &[usize], most: usize) -> usize {
        let ends = |kept: usize| widths[..kept].iter().map(|width| width + 2).sum::<usize>();
        let fits = |kept: &usize| {
            let mark = if *kept < widths.len() { 3 } else { 0 };
            let (_, right) = self.columns[kept - 1];
            ends(*kept) + mark <= most || (!right && ends(kept - 1) + LEAST_TEXT + mark <= most)
        };
        (1..=widths.len()).rev().find(fits).unwrap_or(1)
    }
}

/// Fewest characters of a column of text that is cut.
const LEAST_TEXT: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::WIDTH;

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

    #[test]
    fn markdown_has_all_cells_and_no_bars_within() {
        let mut table = Table::new("node | >time");
        table.row(["a|b".into(), "1 ms".into()]);
        assert_eq!(table.markdown(), "| node | time |\n| --- | --: |\n| a\\|b | 1 ms |\n");
    }

    #[test]
    fn figures_that_do_not_fit_are_left_out_and_not_cut() {
        let mut table = Table::new("name | >first | >second | remark");
        table.row(["node".into(), "1.25".into(), "1000".into(), "x".repeat(30)]);
        let written = |most: usize| {
            let mut text = String::new();
            table.write(&mut text, most).expect("a text takes all");
            text
        };
        assert!(written(60).contains(&"x".repeat(30)));
        assert!(written(40).contains("x…") && written(40).contains("1000"));
        assert_eq!(written(26), "  name  first  second  …\n  node   1.25    1000\n");
        assert_eq!(written(20), "  name  first  …\n  node   1.25\n");
        assert!((1..100).all(|most| written(most).lines().all(|line| line.chars().count() <= most)));
    }
}
