//! Text of the page `docs/operators.md`: every operator of the ONNX specification and of ONNX Runtime's domain, with
//! its support. The code lists the operators that can be lowered, the specification the versions, and the suite's last
//! full run the passing tests.

use crate::onnx_suite::operators::{Tallies, Tally, read};
use anabranch::import::OPSETS;
use anabranch::lower::operators;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Operators and the versions that changed them, as `tests/onnx/write_operators.py` wrote them.
const STANDARD: &str = include_str!("../onnx/standard.txt");
/// Results of the suite for each operator.
const SHOWN: &str = include_str!("../onnx/operators.txt");
/// Refusals of the suite.
const REFUSED: &str = include_str!("../onnx/refused.txt");

/// Operators that stay without a lowering, by the beginning of their names, and the reason.
const REASONS: [(&str, &str); 17] = [
    ("ZipMap", "taken away when the model is opened: the probabilities come out as columns, with their keys"),
    ("CastMap", "maps and strings: a model's tensors are numbers here"),
    ("CategoryMapper", "maps and strings: a model's tensors are numbers here"),
    ("DictVectorizer", "maps and strings: a model's tensors are numbers here"),
    ("String", "strings: a model's tensors are numbers here"),
    ("Regex", "strings: a model's tensors are numbers here"),
    ("TfIdf", "text vectorisers belong before the model"),
    ("Tokenizer", "text vectorisers belong before the model"),
    ("WordConv", "text vectorisers belong before the model"),
    ("BeamSearch", "loops over a model of its own belong around it"),
    ("GreedySearch", "loops over a model of its own belong around it"),
    ("Sampling", "loops over a model of its own belong around it"),
    ("WhisperBeamSearch", "loops over a model of its own belong around it"),
    ("ImageDecoder", "images belong before the model"),
    ("Random", "the same plan and inputs give the same bits: no dice"),
    ("Bernoulli", "the same plan and inputs give the same bits: no dice"),
    ("Multinomial", "the same plan and inputs give the same bits: no dice"),
];

/// Section on the types in which operators compute.
const PRECISIONS: &str = "\n## What is computed in which type\n\n\
    | type of the tensors | computed in | where |\n|---|---|---|\n\
    | `f64` | `f64` | CPUs |\n\
    | `f32` | `f32` | CPUs and GPUs |\n\
    | `f16`, `bf16` | `f32`; results are rounded to the type | CPUs, and GPUs where all that a node reads and makes is `f32`, or weights or a cache |\n\
    | 8-bit and 4-bit floats | `f32`; results are rounded to the type | CPUs |\n\
    | integers | 64-bit integers; results keep their low bits | CPUs |\n\
    | products and convolutions of 8-bit integers | 32-bit integers, exactly | CPUs |\n\
    | bools | `f32`, as 0 and 1 | CPUs |\n\n\
    Every operator that ONNX types for double computes in double: sums, scales, weights of interpolation and windows\n\
    are 64-bit floats, too. An operator that has no such lowering refuses 64-bit floats by name, and\n\
    `Cast` to `f32` before it says that the digits may go. Attributes such as `epsilon` and `alpha` are 32-bit floats in the file, and\n\
    count as the numbers that these are. `CumSum`, `CumProd`, `DFT` and `STFT` of narrower floats are computed in `f64`.\n\n\
    Kernels of `f64` are made for their digits, and take some times as long as those of `f32`. No GPU has them: a node with a tensor of\n\
    `f64` stays on a CPU, wherever the rest of the model runs.\n";

/// Returns the text of the page.
pub fn page() -> String {
    let shown = read(SHOWN);
    let (oldest, newest) = OPSETS.into_inner();
    let mut text = format!(
        "# Operators\n\n\
        Made by `cargo run -p anabranch-tests --example operators`; a test fails where it is stale. `anabranch inspect MODEL` says of a\n\
        model what stops it. Versions {oldest} to {newest} of the ONNX operators are known.\n\n\
        *Versions* are those that changed the operator. *Types* are those of first inputs in the ONNX node tests that pass here; other\n\
        types may do as well. *GPU* says of how many of the tests that pass every node has a GPU kernel; the others run on a CPU.\n\
        *Refused* lists what the ONNX node tests of the operator alone show; names and numbers are left out.\n"
    );
    text.push_str(PRECISIONS);
    for domain in ["ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "com.microsoft"] {
        section(&mut text, domain, &shown);
    }
    text.push_str("\n## What the ONNX node tests refuse\n\nTests, operator, and reason, with the first test of each.\n\n```text\n");
    text.push_str(REFUSED);
    text.push_str("```\n");
    text
}

/// Writes the operators of a domain: supported operators in a table, then all others by reason.
fn section(text: &mut String, domain: &str, shown: &Tallies) {
    let versions: BTreeMap<&str, &str> = STANDARD
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(known, _)| *known == domain)
        .filter_map(|(_, rest)| rest.split_once(' '))
        .collect();
    let there = operators(domain);
    let known = there.iter().filter(|name| versions.contains_key(**name)).count();
    let _ = write!(text, "\n## {domain}\n\n{known} of {} operators.\n\n", versions.len());
    text.push_str("| operator | versions | tests passed | GPU | types | refused |\n|---|---|---|---|---|---|\n");
    for name in &there {
        let tally = shown.get(&(domain.to_owned(), (*name).to_owned()));
        let versions = versions.get(name).map_or("–".to_owned(), |versions| versions.replace(' ', ", "));
        let _ = writeln!(text, "| {name} | {versions} | {} |", cells(tally));
    }
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in versions.keys().filter(|name| !there.contains(**name)) {
        let reason =
            REASONS.iter().find(|(start, _)| name.starts_with(start)).map_or("no lowering yet", |(_, why)| why);
        missing.entry(reason).or_default().push(name);
    }
    if !missing.is_empty() {
        text.push_str("\nNot there:\n\n");
    }
    for (reason, names) in missing {
        let _ = writeln!(text, "- {reason}: {}", names.join(", "));
    }
}

/// Returns the results of an operator's tests, as the table's last cells.
fn cells(tally: Option<&Tally>) -> String {
    let Some(Tally { passed, on_gpu, refused, types, reasons }) = tally else { return "– | – | – | –".into() };
    let listed = |all: &BTreeSet<String>, between: &str| all.iter().cloned().collect::<Vec<_>>().join(between);
    let types = listed(types, ", ");
    let reasons = listed(reasons, "; ").replace('|', "\\|");
    format!("{passed} of {} | {on_gpu} of {passed} | {types} | {reasons}", passed + refused)
}
