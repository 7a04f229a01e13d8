//! Choice of the parts of a batch by the predicted times of the devices.
//!
//! The rows go, one step after the other, to the device that would finish its part first with them. This minimizes the
//! time of the slowest part if a device takes no less time for more rows. Forecasts of the plans of neighbouring
//! divisions then decide.

use super::bits::paddings;
use super::divided::{Divided, Part, Role, divided};
use super::request;
use super::rows::Rows;
use crate::choosing::Contest;
use crate::constraints::Constraints;
use crate::error::PlanningError;
use crate::fitting::{Planner, still_wanted};
use crate::placing::Placing;
use crate::request::PlanChoice;
use anabranch_ir::program::{NodeId, Program};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::HOST;
use std::collections::BTreeMap;

/// Most numbers of rows for which times are predicted; those in between are interpolated.
const SAMPLES: usize = 12;
/// Most steps in which the rows are given out.
const STEPS: usize = 1 << 12;
/// Most times that the parts are chosen again with the slowdowns of the devices that have parts.
const ROUNDS: usize = 3;
/// Most plans of neighbouring divisions, and most nodes of them together.
const NEIGHBOURS: (usize, usize) = (12, 20_000);

/// Predicted seconds of each device for some numbers of rows.
struct Times(Vec<(usize, Vec<f64>)>);

impl Times {
    /// Returns the seconds of a device for a number of rows.
    fn of(&self, device: usize, rows: usize) -> f64 {
        if rows == 0 {
            return 0.0;
        }
        let at = self.0.partition_point(|(known, _)| *known < rows).min(self.0.len() - 1);
        let (above, seconds) = &self.0[at];
        if *above <= rows || at == 0 {
            return seconds[device];
        }
        let (below, less) = &self.0[at - 1];
        let part = (rows - below) as f64 / (above - below) as f64;
        less[device] + part * (seconds[device] - less[device])
    }
}

impl Planner<'_> {
    /// Returns the divisions that are worth a plan: the best by predicted times, and all rows on the fastest device.
    pub(super) fn promising_parts(&self, rows: &Rows) -> Result<Vec<Vec<(String, usize)>>, PlanningError> {
        let devices = self.machine.devices.len();
        let mut samples = Vec::new();
        for count in sampled(rows.batch) {
            still_wanted()?;
            samples.push((count, self.seconds(rows, count)?));
        }
        let times = Times(samples);
        let is_there = |device: &usize| !self.machine.lost.contains(&DeviceId(*device as u32));
        let there: Vec<usize> = (0..devices).filter(is_there).collect();
        let slowdowns = self.machine.slowdowns(devices);
        let mut busy = there.clone();
        let mut counts = vec![0; devices];
        for _ in 0..ROUNDS {
            let factor =
                |device: usize| slowdowns.beside(DeviceId(device as u32), |other| busy.contains(&other.index()));
            let factors: Vec<f64> = (0..devices).map(factor).collect();
            counts = given_out(rows.batch, devices, &there, |device, rows| times.of(device, rows) * factors[device]);
            let now: Vec<usize> = there.iter().copied().filter(|device| counts[*device] > 0).collect();
            if now == busy {
                break;
            }
            busy = now;
        }
        let fastest = |one: &usize, other: &usize| times.of(*one, rows.batch).total_cmp(&times.of(*other, rows.batch));
        let mut alone = vec![0; devices];
        there.into_iter().min_by(fastest).into_iter().for_each(|device| alone[device] = rows.batch);
        let named = |counts: &Vec<usize>| {
            let devices = self.machine.devices.iter().zip(counts).filter(|(_, rows)| **rows > 0);
            devices.map(|(device, rows)| (device.name.clone(), *rows)).collect()
        };
        let mut all = vec![counts, alone];
        all.dedup();
        Ok(all.iter().map(named).collect())
    }

    /// Adds plans of divisions in which some rows of one device are computed by another, as long as that is faster.
    pub(super) fn enter_neighbours(
        &self,
        rows: &Rows,
        choice: &PlanChoice,
        contest: &mut Contest,
    ) -> Result<(), PlanningError> {
        let (most, nodes) = NEIGHBOURS;
        let mut left = (nodes / self.lowered.program.nodes.len().max(1)).min(most);
        let mut step = (rows.batch / 32).max(1);
        let mut tried = Vec::new();
        while left > 0 && step > 0 {
            let best = contest.best().and_then(|best| best.divided.clone());
            let Some(parts) = best.map(|divided| divided.parts.clone()) else { return Ok(()) };
            let pairs = (0..parts.len()).flat_map(|from| (0..parts.len()).map(move |to| (from, to)));
            for (from, to) in pairs.filter(|(from, to)| from != to) {
                let mut moved = parts.clone();
                if moved[from].1 <= step || left == 0 {
                    continue;
                }
                moved[from].1 -= step;
                moved[to].1 += step;
                if tried.contains(&moved) {
                    continue;
                }
                tried.push(moved.clone());
                left -= 1;
                contest.enter(&request::shown(&moved), self.with_parts(rows, &moved, choice))?;
            }
            let now = contest.best().and_then(|best| best.divided.clone());
            if now.is_none_or(|divided| divided.parts == parts) {
                step /= 2;
            }
        }
        Ok(())
    }

    /// Returns the predicted seconds of each device for a part of so many rows, with the transfers of its rows.
    fn seconds(&self, rows: &Rows, count: usize) -> Result<Vec<f64>, PlanningError> {
        let mut seconds = vec![0.0; self.machine.devices.len()];
        // The kernels of a kind of device decide how many rows its nodes compute.
        let mut kinds: Vec<_> = self.machine.devices.iter().map(|device| device.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let program = &*self.lowered.program;
        let runs = self.machine.gpu_runs(program);
        for kind in kinds {
            let part = |name, count| Part { name, rows: count, paddings: paddings(program, rows, count, kind, &runs) };
            let parts = match rows.batch - count {
                0 => vec![part("part", count)],
                rest => vec![part("part", count), part("rest", rest)],
            };
            let lost = || PlanningError::invalid("the rows of the batch were lost");
            let divided = divided(program, rows, &parts).ok_or_else(lost)?;
            let of_kind = self.machine.devices.iter().enumerate().filter(|(_, device)| device.kind == kind);
            self.of_devices(&divided, &runs, of_kind.map(|(device, _)| device), &mut seconds)?;
        }
        Ok(seconds)
    }

    /// Sets the predicted seconds of some devices for the first part; `runs` says which nodes of the whole program run
    /// on GPUs.
    fn of_devices(
        &self,
        divided: &Divided,
        runs: &[bool],
        devices: impl Iterator<Item = usize>,
        seconds: &mut [f64],
    ) -> Result<(), PlanningError> {
        let constraints = Constraints::default();
        let placing = Placing::new(&divided.program, self.machine, &constraints)?;
        let costs = placing.costs();
        let (sent, returned) = traffic(&divided.program, &divided.roles);
        for device in devices {
            let there = DeviceId(device as u32);
            let node = |(node, role): (usize, &Role)| match role {
                Role::Part(0) | Role::Slice(0) => {
                    let is_there = divided.whole[node].is_none_or(|whole| runs[whole]) || self.is_cpu(there);
                    let there = if is_there { device } else { HOST.index() };
                    let cost = costs[node][there].or(costs[node][HOST.index()]);
                    cost.map_or(f64::INFINITY, |cost| cost.seconds.max(placing.interval(device)))
                }
                Role::Part(_) | Role::Slice(_) | Role::Shared | Role::Joined => 0.0,
            };
            let computed: f64 = divided.roles.iter().enumerate().map(node).sum();
            let crossed = match there {
                HOST => 0.0,
                _ => self.machine.crossing(HOST, there).time(sent) + self.machine.crossing(there, HOST).time(returned),
            };
            seconds[device] = computed + crossed;
        }
        Ok(())
    }
}

/// Returns the bytes of the first part that are sent from the host, and those that return to it.
fn traffic(program: &Program, roles: &[Role]) -> (u64, u64) {
    let bytes = |node: NodeId| program.node(node).spec.outputs.iter().map(|output| output.bytes() as u64).sum::<u64>();
    let of = |wanted: Role| {
        let nodes = program.node_ids().zip(roles).filter(|(_, role)| **role == wanted);
        nodes.map(|(node, _)| node).collect::<Vec<_>>()
    };
    let first = |node: &NodeId| program.node(*node).spec.inputs.first().map_or(0, |input| input.bytes() as u64);
    let returned = of(Role::Joined).iter().map(first).sum();
    (of(Role::Slice(0)).into_iter().map(bytes).sum(), returned)
}

/// Returns the numbers of rows for which times are predicted, ascending, the last of them the batch.
fn sampled(batch: usize) -> Vec<usize> {
    if batch <= SAMPLES {
        return (1..=batch).collect();
    }
    let ratio = (batch as f64).powf(1.0 / (SAMPLES - 1) as f64);
    let mut counts: Vec<usize> = (0..SAMPLES as i32).map(|step| ratio.powi(step).round() as usize).collect();
    counts[SAMPLES - 1] = batch;
    counts.iter_mut().for_each(|count| *count = (*count).clamp(1, batch));
    counts.dedup();
    counts
}

/// Gives out the rows to the devices `there`, each time to the device that would be done first.
fn given_out(batch: usize, devices: usize, there: &[usize], seconds: impl Fn(usize, usize) -> f64) -> Vec<usize> {
    let step = batch.div_ceil(STEPS);
    let mut counts = vec![0; devices];
    let mut next: BTreeMap<usize, f64> = there.iter().map(|device| (*device, seconds(*device, step))).collect();
    let mut left = batch;
    while left > 0 {
        let rows = step.min(left);
        let Some(device) = next.iter().min_by(|one, other| one.1.total_cmp(other.1)).map(|(device, _)| *device) else {
            return counts;
        };
        counts[device] += rows;
        left -= rows;
        next.insert(device, seconds(device, counts[device] + step));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_the_speeds() {
        let speeds = [1.0, 2.0, 4.0];
        let seconds = |device: usize, rows: usize| rows as f64 / speeds[device];
        assert_eq!(given_out(28, 3, &[0, 1, 2], seconds), [4, 8, 16]);
        assert_eq!(given_out(28, 3, &[0, 2], seconds), [5, 0, 23]);
        let late = |device: usize, rows: usize| seconds(device, rows) + if device == 2 { 100.0 } else { 0.0 };
        assert_eq!(given_out(28, 3, &[0, 1, 2], late), [9, 19, 0]);
    }

    #[test]
    fn few_numbers_of_rows_are_predicted_and_the_rest_is_interpolated() {
        for batch in [2, 12, 13, 32, 1000, 100_000] {
            let counts = sampled(batch);
            assert!(counts.len() <= SAMPLES && counts.is_sorted_by(|one, other| one < other), "{counts:?}");
            assert_eq!((counts[0], counts[counts.len() - 1]), (1, batch));
        }
        let times = Times(vec![(1, vec![2.0]), (5, vec![10.0])]);
        assert_eq!([0, 1, 3, 5].map(|rows| times.of(0, rows)), [0.0, 2.0, 6.0, 10.0]);
    }
}
