//! Table of all variants of list schedulers: makespans under PCT, relative to the best variant for each problem.

use crate::sources::Case;
use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::order::Pct;
use anabranch_placement::place::{ListRanks, Placer, variants};
use anabranch_placement::simulate::simulate;
use std::error::Error;
use std::fmt::Write;

/// Returns the table, with a row per variant: the geometric mean over `cases`, the worst case, and the number of cases
/// in which no variant is shorter.
pub(crate) fn table(cases: &[Case]) -> Result<String, Box<dyn Error>> {
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); variants().len()];
    for case in cases {
        let makespans = makespans(case)?;
        let best = makespans.iter().copied().fold(f64::INFINITY, f64::min);
        ratios.iter_mut().zip(&makespans).for_each(|(row, makespan)| row.push(makespan / best));
    }
    let mut text = format!("| variant, {} problems | mean | worst | best in |\n|---|--:|--:|--:|\n", cases.len());
    for (variant, ratios) in variants().iter().zip(&ratios) {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let worst = ratios.iter().copied().fold(1.0, f64::max);
        let best = ratios.iter().filter(|&&ratio| ratio <= 1.0 + 1e-9).count();
        writeln!(text, "| {} | {mean:.3} | {worst:.2} | {best} |", variant.name())?;
    }
    Ok(text)
}

/// Returns the makespan of each variant, checked; infinite for a variant that finds no memory.
fn makespans(case: &Case) -> Result<Vec<f64>, Box<dyn Error>> {
    let problem = case.problem.problem()?.under(case.rules.clone())?;
    let ranks = ListRanks::new(&problem);
    let mut makespans = Vec::new();
    for variant in variants() {
        let Ok(device_of) = variant.devices(&problem, &ranks) else {
            makespans.push(f64::INFINITY);
            continue;
        };
        let schedule = simulate(&problem, &device_of, &Pct)?;
        let mut violations = check_placement(&problem, &device_of);
        violations.extend(check_schedule(&problem, &device_of, &schedule));
        if let Some(violation) = violations.first() {
            return Err(format!("{} on {}: {violation}", variant.name(), case.graph).into());
        }
        makespans.push(schedule.makespan);
    }
    Ok(makespans)
}
