//! Orders on the same placements: how often PCT is the best one, and how far MSR of the thesis' text is from its code.

#[path = "../../tests/it/reference.rs"]
mod reference;

use crate::measure::Selection;
use crate::sources::Case;
use anabranch_placement::check::check_schedule;
use anabranch_placement::order::{Fifo, Msr, Order, Pct};
use anabranch_placement::simulate::simulate;
use reference::msr_makespan;
use std::error::Error;

/// Absolute difference in percent up to which the two rules of MSR count as near.
const NEAR: f64 = 2.1;

/// Places every case with every strategy of the selection, and compares the makespans under the orders.
pub(crate) fn compare(cases: &[Case], selection: &Selection) -> Result<String, Box<dyn Error>> {
    // Relative distances: of PCT to the best of the others, and of the text's MSR to the code's.
    let (mut behind, mut apart) = (Vec::new(), Vec::new());
    for case in cases {
        let problem = case.problem.problem()?.under(case.rules.clone())?;
        for strategy in selection.strategies() {
            let Ok(placement) = strategy.place(&problem) else { continue };
            let device_of = &placement.device_of;
            let makespan = |order: &dyn Order| -> Result<f64, Box<dyn Error>> {
                let schedule = simulate(&problem, device_of, order)?;
                match check_schedule(&problem, device_of, &schedule).first() {
                    Some(violation) => Err(format!("{} on {}: {violation}", placement.strategy, case.graph).into()),
                    None => Ok(schedule.makespan),
                }
            };
            let (pct, msr, fifo) = (makespan(&Pct)?, makespan(&Msr)?, makespan(&Fifo)?);
            behind.push(pct / msr.min(fifo) - 1.0);
            apart.push(100.0 * (msr / msr_makespan(&problem, device_of) - 1.0));
        }
    }
    let count = |wanted: &dyn Fn(f64) -> bool, values: &[f64]| values.iter().filter(|&&value| wanted(value)).count();
    let greatest = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Ok(format!(
        "{} placements\nPCT: best or equal on {}, else behind by at most {:.3} ‰\n\
         MSR of the text beside the code's: {:+.1} to {:+.1} %, at most {NEAR} % apart on {}",
        behind.len(),
        count(&|value| value <= 1e-12, &behind),
        1e3 * greatest(&behind),
        apart.iter().copied().fold(f64::INFINITY, f64::min),
        greatest(&apart),
        count(&|value| value.abs() <= NEAR, &apart),
    ))
}
