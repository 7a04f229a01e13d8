//! `anabranch strategies`: for each strategy what it does, its source, its time, and when to use it.

use super::{CliError, Output};
use anabranch::planning::Strategy;
use anabranch_report::table::Table;
use anabranch_report::text::wrapped;
use clap::Args;
use serde::Serialize;

/// List the placement strategies, with sources and advice
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct StrategiesCommand {}

/// A strategy. Time is in tasks V, edges E and devices P.
#[derive(Clone, Copy, Debug, Serialize)]
struct Entry {
    name: &'static str,
    does: &'static str,
    source: &'static str,
    time: &'static str,
    when: &'static str,
}

/// Name, source, time, and when to use it.
const FACTS: [[&str; 4]; 19] = [
    [
        "heft",
        "Topcuoglu 2002, 4.2",
        "O(E·P), and a search for gaps",
        "first choice: fast, and seldom far from the best",
    ],
    [
        "cpop",
        "Topcuoglu 2002, 4.3",
        "O(E·P), and a search for gaps",
        "graphs in which one long chain decides the makespan",
    ],
    ["peft", "Arabnejad & Barbosa 2014", "O(E·P²)", "devices that differ much from task to task"],
    ["lookahead", "Bittencourt et al. 2010", "O(E·P²) and more", "small graphs with costly transfers"],
    ["minmin", "Ibarra & Kim 1977", "O(V·P·log V + E·P)", "many short independent tasks"],
    ["maxmin", "Ibarra & Kim 1977", "O(V²·P) at worst", "few long tasks among many short ones"],
    ["etf", "Hwang et al. 1989", "O(V·P·log V + E·P)", "alike devices, transfers that count"],
    ["dls", "Sih & Lee 1993", "O(V·P·log V + E·P)", "unlike devices, transfers that count"],
    ["sucuri", "Silva et al. 2016, III", "O(V + E)", "comparison with the Sucuri library"],
    ["mite", "Laich 2017, 4.7", "O(V·log V + (V + E)·P)", "memory limits, or traffic that should be low"],
    ["cp", "Laich 2017, 4.6", "O(E + V·P)", "one device that is much faster, and a narrow graph"],
    ["icp", "Laich 2017, 4.5", "O(paths·(V + E)·log V)", "a few long chains side by side"],
    ["dfs", "Laich 2017, 4.8", "O(V·log V + (V + E)·P)", "deep graphs of little parallelism"],
    ["batch", "Laich 2017, 4.4", "O(V·log V + V·P)", "comparison: it looks at no edge"],
    ["hash", "Laich 2017, 4.2", "O(V·P)", "comparison: it looks at nothing"],
    ["cpu", "—", "O(V·P)", "no GPU wanted; the baseline of every comparison"],
    ["gpu", "—", "O(V·P)", "all that a GPU can run, on one GPU"],
    [
        "auto",
        "late acceptance, simulated annealing",
        "up to a minute",
        "a plan that is run often: under PCT never worse than those above",
    ],
    [
        "exact",
        "branch and bound, from auto on",
        "up to a million nodes more",
        "small graphs, to know the optimum or the gap to it",
    ],
];

/// Most characters of a line beside a strategy's name.
const TEXT: usize = 66;

/// Text below the tables.
const VARIANTS: &str = "\
A list scheduler can also be put together (Coleman & Krishnamachari 2024):
list:PRIORITY:SCORE:GAPS:path:sufferage
  PRIORITY   upward (default), cpop, topological: the first ready task
  SCORE      eft (default), est, quickest: earliest finish, earliest start, or
             least time on a device
  GAPS       insertion (default), append: whether a task may go before others
             on its device
  path       the critical path stays on one device (default: no)
  sufferage  of two ready tasks, first the one that loses more on its second
             best device (default: no)
Parts may be left out: list:est:path

With --split, the strategy `split` computes each part of a batch on its device;
it is the default there.
";

impl StrategiesCommand {
    pub(crate) fn run(self, output: Output) -> Result<(), CliError> {
        let entries = entries();
        output.text_or_json(|| table(&entries), &entries)
    }
}

fn entries() -> Vec<Entry> {
    let entry = |(name, does): (&'static str, &'static str)| {
        let [_, source, time, when] = *FACTS.iter().find(|[known, ..]| *known == name)?;
        Some(Entry { name, does, source, time, when })
    };
    Strategy::algorithms().filter_map(entry).collect()
}

/// Returns tables that fit into 80 columns.
fn table(entries: &[Entry]) -> String {
    let [mut does, mut when] = ["does", "use it for"].map(|column| Table::new(&format!("strategy | {column}")));
    let mut facts = Table::new("strategy | source | time");
    for entry in entries {
        let name = entry.name.to_owned();
        wrap(&mut does, entry.name, entry.does);
        wrap(&mut when, entry.name, entry.when);
        facts.row([name, entry.source.into(), entry.time.into()]);
    }
    format!("{does}\n{when}\nTime is in tasks V, edges E and devices P.\n{facts}\n{VARIANTS}")
}

/// Adds a text as one or more lines, of which the first has the name.
fn wrap(table: &mut Table, name: &str, text: &str) {
    for (at, line) in wrapped(text, TEXT).into_iter().enumerate() {
        table.row([if at == 0 { name.to_owned() } else { String::new() }, line]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_has_its_facts() {
        let (known, listed): (Vec<_>, Vec<_>) = (
            Strategy::algorithms().map(|(name, _)| name).collect(),
            entries().iter().map(|entry| entry.name).collect(),
        );
        assert_eq!(known, listed);
        assert_eq!(FACTS.len(), listed.len());
    }

    #[test]
    fn all_lines_fit_into_80_columns() {
        let text = table(&entries());
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty() && text.lines().count() > 3 * FACTS.len(), "{wide:?}");
    }
}
