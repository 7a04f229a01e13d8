//! Fork and join: parts count the words of a borrowed text, and one node adds up the counts.
//!
//!     cargo run --release -p anabranch-examples --example flow_fork_join

use anabranch::flow::{Flow, FlowOptions, WorkerConfig};
use std::collections::BTreeMap;

type Counts = BTreeMap<String, usize>;

fn count(lines: &[&str], least: usize) -> Counts {
    let mut counts = Counts::new();
    for word in lines.iter().flat_map(|line| line.split(|letter: char| !letter.is_alphabetic())) {
        if word.len() >= least {
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
    }
    counts
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = include_str!("flow_fork_join.rs").repeat(200);
    let lines: Vec<&str> = text.lines().collect();

    let mut flow = Flow::new();
    let least = flow.feeder("least length", 4);
    let mut parts = Vec::new();
    for (number, lines) in lines.chunks(lines.len().div_ceil(16)).enumerate() {
        let part = flow.node(format!("part {number}"), &least, move |least| count(lines, least));
        parts.push(part.weight(lines.len() as f64));
    }
    let sums = flow.node("sums", &parts[..], |parts| {
        let mut sums = Counts::new();
        parts.into_iter().flatten().for_each(|(word, count)| *sums.entry(word).or_default() += count);
        sums
    });
    let sums = flow.collect("kept", &sums);
    let report = flow.run(&FlowOptions::default().with_workers(WorkerConfig::detect(2)?))?;

    let sums = sums.take().pop().unwrap_or_default();
    assert_eq!(sums, count(&lines, 4), "as a loop counts them");
    let mut words: Vec<(&String, &usize)> = sums.iter().collect();
    words.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    println!("{} tasks in {:?}; the most frequent: {:?}", report.tasks(), report.time, &words[..5]);
    Ok(())
}
