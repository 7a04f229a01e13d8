//! Several models in the same configurations: a matrix of times.

use super::Names;
use crate::chart::html_table;
use crate::table::Table;
use crate::text::duration;
use anabranch::compare::Comparison;
use std::path::is_separator;

/// Returns the matrix with a row per configuration and a column per model. A cell has the median and its ratio to the
/// model's fastest. The last column has the geometric mean of the ratios.
fn matrix(comparisons: &[&Comparison]) -> (Vec<String>, Vec<Vec<String>>) {
    let head = std::iter::once("configuration".to_owned()).chain(model_names(comparisons));
    let mut configurations: Vec<String> = Vec::new();
    // Named alike for all models, so that each row is one configuration.
    let names = Names::of_all(comparisons);
    for outcome in comparisons.iter().flat_map(|one| &one.outcomes) {
        let name = names.name(&outcome.configuration);
        if !configurations.contains(&name) {
            configurations.push(name);
        }
    }
    let row = |configuration: &String| {
        let (mut cells, mut logarithms) = (vec![configuration.clone()], Vec::new());
        for comparison in comparisons {
            let found = comparison.outcomes.iter().find(|outcome| names.name(&outcome.configuration) == *configuration);
            let best = comparison.best().map_or(0.0, |best| best.measured_ms.median);
            cells.push(found.map_or("–".into(), |outcome| {
                let median = outcome.measured_ms.median;
                logarithms.push((median / best).ln());
                format!("{} ({:.2} ×)", duration(median * 1e-3), median / best)
            }));
        }
        let complete = logarithms.len() == comparisons.len();
        let mean = logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64;
        cells.push(if complete { format!("{:.2} ×", mean.exp()) } else { "–".into() });
        cells
    };
    let rows = configurations.iter().map(row).collect();
    (head.chain(["geometric mean".to_owned()]).collect(), rows)
}

/// Returns names that distinguish the models: the shortest end of each path that no other has.
pub(super) fn model_names(comparisons: &[&Comparison]) -> Vec<String> {
    shortest_ends(&comparisons.iter().map(|one| one.model.as_str()).collect::<Vec<_>>())
}

fn shortest_ends(paths: &[&str]) -> Vec<String> {
    let name = |path: &&str| {
        let parts = path.split(is_separator).count();
        let is_own = |count: &usize| paths.iter().all(|other| other == path || end(other, *count) != end(path, *count));
        (1..=parts).find(is_own).map_or_else(|| (*path).to_owned(), |count| end(path, count))
    };
    paths.iter().map(name).collect()
}

/// Returns the last `count` parts of a path.
fn end(path: &str, count: usize) -> String {
    let mut parts: Vec<&str> = path.trim_end_matches(is_separator).rsplit(is_separator).take(count).collect();
    parts.reverse();
    parts.join("/")
}

pub(super) fn html(comparisons: &[&Comparison]) -> String {
    let (head, rows) = matrix(comparisons);
    html_table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows)
}

/// Returns the matrix as text for a terminal.
pub fn text(comparisons: &[&Comparison]) -> String {
    let (head, rows) = matrix(comparisons);
    // A bar in a file's name would begin another column.
    let head: Vec<String> = head.iter().map(|name| name.replace('|', "¦")).collect();
    let mut table = Table::new(&head.join(" | >"));
    rows.into_iter().for_each(|row| table.line(row));
    format!("median, and how many times the model's fastest it is\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_named_by_what_tells_them_apart() {
        assert_eq!(shortest_ends(&["resnet/model.onnx", "bert/model.onnx"]), ["resnet/model.onnx", "bert/model.onnx"]);
        assert_eq!(shortest_ends(&["/a/b/x.onnx", "/a/c/y.onnx", "tests/"]), ["x.onnx", "y.onnx", "tests"]);
        assert_eq!(shortest_ends(&["m.onnx", "a/m.onnx"]), ["m.onnx", "a/m.onnx"]);
        assert_eq!(shortest_ends(&["a/m.onnx", "a/m.onnx"]), ["m.onnx", "m.onnx"]);
    }
}
