//! A table of figures as a fragment of an HTML page.

use super::canvas::escaped;
use std::fmt::Write;

/// Returns the table. Columns whose cells all begin with a digit, a sign or a dash are aligned to the right.
pub fn html_table(head: &[&str], rows: &[Vec<String>]) -> String {
    let figure =
        |cell: &String| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "+-−–".contains(c));
    let right: Vec<bool> =
        (0..head.len()).map(|column| rows.iter().filter_map(|row| row.get(column)).all(figure)).collect();
    let class = |column: usize| if right.get(column) == Some(&true) { " class=\"right\"" } else { "" };
    let mut html = String::from("<table class=\"figures\">\n<tr>");
    for (column, name) in head.iter().enumerate() {
        // Writing into a String cannot fail.
        let _ = write!(html, "<th{}>{}</th>", class(column), escaped(name));
    }
    html.push_str("</tr>\n");
    for row in rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(html, "<td{}>{}</td>", class(column), escaped(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_to_the_right_and_text_is_escaped() {
        let rows = [vec!["<heft>".to_owned(), "1.2 ms".to_owned()], vec!["cpu".to_owned(), "–".to_owned()]];
        let html = html_table(&["way", "time"], &rows);
        assert!(html.contains("<td>&lt;heft&gt;</td><td class=\"right\">1.2 ms</td>"), "{html}");
        assert!(html.contains("<th>way</th><th class=\"right\">time</th>"), "{html}");
    }
}
