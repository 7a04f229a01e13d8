//! Obstacles that stop a model, each with the next step.

use crate::command::hints::{dimension, hint, raised};
use anabranch::import::ImportError;
use anabranch::lower;
use anabranch::session::{Session, SessionError};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// An obstacle that stops a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Obstacle {
    node: Option<String>,
    operator: Option<String>,
    problem: String,
    next: String,
}

/// All that stops a model: what could not be read, what cannot be lowered, or else why there is no plan. `random` are
/// inputs that decide shapes and are not given, `open` the dimensions whose sizes were only tried, `hopeless` the nodes
/// to which they do not matter.
pub(super) fn all(
    session: &Session,
    refused: Option<&SessionError>,
    random: &[String],
    open: &[String],
    hopeless: &BTreeSet<String>,
) -> Vec<Obstacle> {
    let unread = session.problems().iter().map(|problem| Obstacle::unread(session, problem));
    let mut all: Vec<_> = unread.collect();
    let Some(error) = refused else { return all };
    all.extend(error.obstacles().iter().map(|obstacle| match hopeless.contains(&obstacle.node) {
        true => Obstacle::of_node(obstacle, random, &[]),
        false => Obstacle::of_node(obstacle, random, open),
    }));
    // The error of a session with problems is one of these problems.
    if all.is_empty() {
        all.push(Obstacle::of_plan(error));
    }
    all
}

impl Obstacle {
    fn unread(session: &Session, problem: &ImportError) -> Self {
        let node = problem.node().map(str::to_owned);
        let limit = problem.limit_name();
        let found = session.model().nodes.iter().find(|known| Some(&known.name) == node.as_ref());
        // Node and operator have their own fields here.
        let reason = problem.detail();
        let (problem, next) = in_two(reason).unwrap_or((reason, "export the model again without it"));
        let next = limit.map_or_else(|| next.to_owned(), raised);
        let operator = found.map(|node| node.op_type.clone());
        Self { node, operator, problem: problem.to_owned(), next }
    }

    fn of_node(obstacle: &lower::Obstacle, random: &[String], open: &[String]) -> Self {
        let lower::Obstacle { node, operator, reason, is_unsupported, wanted, .. } = obstacle;
        let decide = |names: &[String]| format!("--input {}=FILE", names.join("=FILE --input "));
        let next = match (wanted.is_empty(), is_unsupported) {
            (false, _) => format!("give the elements that determine shapes: {}", decide(wanted)),
            (true, false) if !random.is_empty() => {
                format!("random elements determine shapes; give real ones: {}", decide(random))
            }
            (true, true) => {
                "docs/operators.md lists what is supported; export it with other operators, or in another opset".into()
            }
            (true, false) if !open.is_empty() => {
                let flags: Vec<_> = open.iter().map(|name| dimension(name, "N")).collect();
                format!("no size that was tried works; give other sizes: {}", flags.join(" "))
            }
            (true, false) => "check the model with `onnx.checker`, and export it again".into(),
        };
        Self { node: Some(node.clone()), operator: Some(operator.clone()), problem: reason.clone(), next }
    }

    fn of_plan(error: &SessionError) -> Self {
        let text = error.to_string();
        let (problem, own) = in_two(&text).unwrap_or((&text, ""));
        let next = match hint(error) {
            Some(hint) if own.is_empty() => hint,
            Some(hint) => format!("{own}: {hint}"),
            None => own.to_owned(),
        };
        Self { node: error.node().map(str::to_owned), operator: None, problem: problem.to_owned(), next }
    }
}

/// Divides an error into its problem and its next step, at the last semicolon outside of backquotes.
fn in_two(text: &str) -> Option<(&str, &str)> {
    let is_between = |at: &usize| text[*at..].matches('`').count().is_multiple_of(2);
    let at = text.rmatch_indices("; ").map(|(at, _)| at).find(is_between)?;
    Some((&text[..at], &text[at + 2..]))
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.node, &self.operator) {
            (Some(node), Some(operator)) => write!(f, "node `{node}` ({operator}): ")?,
            (Some(node), None) => write!(f, "node `{node}`: ")?,
            _ => {}
        }
        write!(f, "{}", self.problem)?;
        if self.next.is_empty() { Ok(()) } else { write!(f, " → {}", self.next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_is_the_part_behind_the_last_semicolon_that_is_in_no_name() {
        assert_eq!(in_two("one; two; three"), Some(("one; two", "three")));
        assert_eq!(
            in_two("tensor `a; b` is wrong; export `c; d` again"),
            Some(("tensor `a; b` is wrong", "export `c; d` again"))
        );
        assert_eq!(in_two("tensor `a; b` is wrong"), None);
    }
}
