//! Sweeps that search for the worst instances, and sweeps under uncertain times.

use crate::command::{Anabranch, bundled};
use serde_json::{Value, json};
use std::fs;

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {value}"))
}

/// An instance that was found is a problem file, and `simulate` finds the same makespans.
#[test]
fn the_worst_instance_is_simulated_again() {
    let laboratory = Anabranch::new();
    let sweep = ["sweep", "--adversarial", "heft,cpop", "--seeds", "3", "--steps", "300", "--instances", "worst"];
    let pairs = laboratory.json(&sweep);
    let [pair] = &pairs.as_array().expect("pairs")[..] else { panic!("{pairs}") };
    assert!(number(pair, "ratio") > 1.0 && number(pair, "ratio") >= number(pair, "start_ratio"), "{pair}");
    assert_eq!(pair["ratios"].as_array().map(Vec::len), Some(3));
    for (strategy, makespan) in [("heft", "makespan"), ("cpop", "reference_makespan")] {
        let file = pair["file"].as_str().expect("a file");
        let report = laboratory.json(&["simulate", file, "--place", strategy]);
        assert_eq!((&report["makespan"], &report["valid"]), (&pair[makespan], &json!(true)), "{strategy}");
    }
    assert_eq!(laboratory.json(&sweep), pairs, "the same seeds give the same instance");
}

#[test]
fn several_strategies_are_compared_in_pairs() {
    let laboratory = Anabranch::new();
    let problem = ["sweep", "fft:4", "--devices", "unrelated:3", "--adversarial", "heft,cpop,cp", "--steps", "30"];
    let pairs = laboratory.json(&[&problem[..], &["--chart", "charts"]].concat());
    assert_eq!(pairs.as_array().map(Vec::len), Some(6));
    assert!(laboratory.read("charts/adversarial.svg").contains(">cpop<"));
    assert!(laboratory.read("charts/index.html").contains("Worst instances"));
    let text = laboratory.text(&problem);
    assert!(text.contains("worst ratio against") && text.contains("fft:4 on unrelated:3"), "{text}");
}

#[test]
fn what_cannot_be_searched_or_drawn_is_refused() {
    let laboratory = Anabranch::new();
    laboratory.refuses(&["sweep", "--adversarial", "heft"], &["two or more"]);
    laboratory.refuses(&["sweep", "--adversarial", "heft,heft"], &["two or more different"]);
    laboratory.refuses(&["sweep", "--adversarial", "heft,best"], &["`best`"]);
    laboratory.refuses(&["sweep", "--adversarial", "heft,auto"], &["--evaluations"]);
    laboratory.refuses(&["sweep", "--adversarial", "heft,cp", "--orders", "pct,fifo"], &["one order"]);
    laboratory.refuses(&["sweep", "--adversarial", "heft,cp", "-o", "results.csv"], &["--output"]);
    laboratory.refuses(&["sweep", "--adversarial", "heft,cp", "--seeds", "99999999"], &["the limit is"]);
    laboratory.refuses(&["sweep", "--adversarial", "heft,cp", "--devices", "random:3"], &["needs a graph"]);
    laboratory.refuses(&["sweep", "--stochastic"], &["GRAPH"]);
    let fft = ["sweep", "fft:4", "--devices", "unrelated:3", "--strategies", "heft", "--stochastic"];
    laboratory.refuses(&[&fft[..], &["--spread", "2"]].concat(), &["from 0 to 1"]);
    laboratory.refuses(&[&fft[..], &["--orders", "frugal"]].concat(), &["frugal", "pct"]);
    laboratory.refuses(&[&fft[..], &["--draws", "0"]].concat(), &["--draws"]);
}

#[test]
fn plans_are_simulated_under_drawn_times() {
    let laboratory = Anabranch::new();
    let sweep = ["sweep", "cholesky:5", "--devices", "unrelated:3", "--strategies", "heft,cp", "--stochastic"];
    let rows = laboratory.json(&sweep);
    assert_eq!(laboratory.json(&sweep), rows, "the same seed gives the same times");
    let rows = rows.as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(number(row, "percentile_95") > number(row, "expected"), "{row}");
        assert!((0.8..1.2).contains(&(number(row, "expected") / number(row, "makespan"))), "{row}");
        assert!((0.9..1.5).contains(&number(row, "price")), "{row}");
    }
    let still = laboratory.json(&[&sweep[..], &["--spread", "0", "--draws", "2"]].concat());
    assert_eq!((&still[0]["expected"], &still[0]["price"]), (&still[0]["makespan"], &json!(1.0)));
    let text = laboratory.text(&sweep);
    assert!(text.contains("price of the order") && text.contains("100 draws"), "{text}");
    let text = laboratory.text(&[&sweep[..], &["--spread", "0", "--draws", "1"]].concat());
    assert!(text.contains("1 draw within") && !text.contains("-0.0 %"), "{text}");
}

/// The graph of a model has the uncertainties of the cost store, which the draws use.
#[test]
fn a_models_times_are_drawn_from_the_intervals_of_the_cost_store() {
    let laboratory = Anabranch::new();
    let model = bundled("convnet.onnx");
    laboratory.text(&["profile", &model, "--no-gpu", "--random", "1", "--repeat", "3"]);
    laboratory.json(&["graph", &model, "--no-gpu", "-o", "graph.json"]);
    let graph: Value = serde_json::from_str(&laboratory.read("graph.json")).expect("JSON");
    let known = graph["uncertainties"].as_array().expect("rows").iter().filter(|row| !row[0].is_null()).count();
    assert!(known > 0, "{}", graph["uncertainties"]);
    let sweep = ["sweep", "graph.json", "--strategies", "heft", "--stochastic", "--spread", "0"];
    let row = &laboratory.json(&sweep)[0];
    assert!(number(row, "percentile_95") > number(row, "makespan"), "{row}");
    fs::remove_file(laboratory.path("graph.json")).expect("there");
}
