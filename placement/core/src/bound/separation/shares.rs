//! Shares of the devices' time and memory: multipliers of a linear relaxation.
//!
//! Suppose that a schedule has a makespan of at most `T`. The groups on device `d` run there after the least start and
//! before the least tail of the groups that can be on `d`. So they take at most `T` minus both: the *free time* of `d`.
//! They need at most its memory. Give the free time and the memory of each device weights `w(d) ≥ 0` and `m(d) ≥ 0`,
//! with a sum of 1 over all of them. The *share* of group `g` on `d` is
//!
//! `s(g, d) = w(d) time(g, d) / free(d) + m(d) demand(g) / memory(d)`.
//!
//! All shares of a schedule together are at most 1, so `Σ over g of min over d of s(g, d) ≤ 1`. If this sum exceeds 1,
//! there is no such schedule. If it exceeds 1 when the term of `g` is replaced by `s(g, d)`, then `g` is not on `d`
//! (fixing by reduced costs, Dantzig, Fulkerson and Johnson 1954).
//!
//! Every choice of weights is valid. Multiplicative weights (Plotkin, Shmoys and Tardos 1995) approach the best choice,
//! and each division starts from the weights of the one before.

use super::trial::Group;
use crate::platform::Platform;

/// Look-ups of needs in the first division, and its least and most steps; later divisions take the least number.
const BUDGET: usize = 1_000_000;
const STEPS: std::ops::RangeInclusive<usize> = 40..=400;
/// First length of a step, and the number of steps after which it is half as long.
const LENGTH: f64 = 0.5;
const HALVING: f64 = 8.0;
/// Relative tolerance of sums of shares, whose rounding must not refute anything.
const ROUNDING: f64 = 1e-9;

/// Weights of times, then of memories, by device.
#[derive(Clone)]
pub(super) struct Shares {
    weights: Vec<f64>,
    is_first: bool,
}

impl Shares {
    /// Creates equal weights.
    pub(super) fn new(platform: &Platform) -> Self {
        let memories = platform.devices().iter().map(|device| if device.memory.is_some() { 1.0 } else { 0.0 });
        let weights = std::iter::repeat_n(1.0, platform.device_count()).chain(memories).collect();
        Shares { weights, is_first: true }
    }

    /// Divides time and memory among the groups, each of which admits a device. Returns the devices that are closed to
    /// a group, as its place and the device; `None` if the groups need more than there is within `limit`.
    pub(super) fn divide<'g, G: Iterator<Item = &'g Group>>(
        &mut self,
        platform: &Platform,
        groups: impl Fn() -> G,
        limit: f64,
    ) -> Option<Vec<(usize, usize)>> {
        let needs = Needs::of(platform, groups, limit);
        let steps = match std::mem::take(&mut self.is_first) {
            true => (BUDGET / needs.options.len().max(1)).clamp(*STEPS.start(), *STEPS.end()),
            false => *STEPS.start(),
        };
        let mut best = (f64::NEG_INFINITY, self.weights.clone());
        for step in 0..steps {
            // Rounding must not lift the sum of the weights above 1.
            let sum: f64 = self.weights.iter().sum::<f64>() * (1.0 + 1e-12);
            self.weights.iter_mut().for_each(|weight| *weight /= sum);
            let (shares, loads) = needs.least(&self.weights);
            if shares > 1.0 + ROUNDING {
                return None;
            }
            if shares > best.0 {
                best = (shares, self.weights.clone());
            }
            let farthest = loads.iter().map(|load| (load - shares).abs()).fold(1e-300, f64::max);
            let length = LENGTH / (1.0 + step as f64 / HALVING);
            for (weight, load) in self.weights.iter_mut().zip(&loads) {
                *weight *= 1.0 + length * (load - shares) / farthest;
            }
        }
        self.weights = best.1;
        Some(needs.excluded(&self.weights, best.0))
    }
}

/// Parts of the free time and of the memory that the groups need.
struct Needs {
    devices: usize,
    /// Group, device, and its needs there; ascending by group.
    options: Vec<(usize, usize, [f64; 2])>,
}

impl Needs {
    fn of<'g, G: Iterator<Item = &'g Group>>(platform: &Platform, groups: impl Fn() -> G, limit: f64) -> Self {
        let devices = platform.device_count();
        let mut ends = vec![[f64::INFINITY; 2]; devices];
        for group in groups() {
            for device in (0..devices).filter(|&device| group.admits(device)) {
                let ([_, start, tail], ends) = (group.on[device], &mut ends[device]);
                *ends = [ends[0].min(start), ends[1].min(tail)];
            }
        }
        let mut options = Vec::new();
        for (place, group) in groups().enumerate() {
            for device in (0..devices).filter(|&device| group.admits(device)) {
                let (time, free) = (group.on[device][0], limit - ends[device][0] - ends[device][1]);
                let part = if time > 0.0 { time / free.max(time) } else { 0.0 };
                let memory = platform.devices()[device].memory;
                let bytes = memory.map_or(0.0, |memory| group.demand as f64 / memory.max(1) as f64);
                options.push((place, device, [part, bytes]));
            }
        }
        Needs { devices, options }
    }

    fn share(&self, weights: &[f64], device: usize, [time, bytes]: [f64; 2]) -> f64 {
        weights[device] * time + weights[self.devices + device] * bytes
    }

    /// Puts every group where its share is least. Returns the sum of the shares, and the loads of times and memories.
    fn least(&self, weights: &[f64]) -> (f64, Vec<f64>) {
        let (mut shares, mut loads) = (0.0, vec![0.0; 2 * self.devices]);
        for options in self.options.chunk_by(|one, other| one.0 == other.0) {
            let share = |&(_, device, needs): &(usize, usize, [f64; 2])| self.share(weights, device, needs);
            let best =
                options.iter().map(|option| (share(option), option)).min_by(|one, other| one.0.total_cmp(&other.0));
            if let Some((share, &(_, device, [time, bytes]))) = best {
                shares += share;
                loads[device] += time;
                loads[self.devices + device] += bytes;
            }
        }
        (shares, loads)
    }

    /// Returns groups and devices whose share raises the sum `shares` above 1.
    fn excluded(&self, weights: &[f64], shares: f64) -> Vec<(usize, usize)> {
        let mut excluded = Vec::new();
        for options in self.options.chunk_by(|one, other| one.0 == other.0) {
            let share = |&(_, device, needs): &(usize, usize, [f64; 2])| self.share(weights, device, needs);
            let least = options.iter().map(share).fold(f64::INFINITY, f64::min);
            let above = options.iter().filter(|option| shares - least + share(option) > 1.0 + ROUNDING);
            excluded.extend(above.map(|&(group, device, _)| (group, device)));
        }
        excluded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::lower_bounds;
    use crate::graph::Task;
    use crate::loaded::LoadedProblem;
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// Independent tasks (operations, bytes) on a slow device and on fast devices with these memories.
    fn overflow(tasks: &[(f64, u64)], memories: &[u64]) -> LoadedProblem {
        let mut builder = sample::tasks(&[]);
        for &(operations, bytes) in tasks {
            builder.task(Task::new("t").with_operations(operations).with_memory(bytes));
        }
        let fast =
            memories.iter().map(|&memory| Device::new("f", DeviceKind::Gpu).with_speed(100.0).with_memory(memory));
        let devices: Vec<Device> = std::iter::once(Device::new("slow", DeviceKind::Cpu)).chain(fast).collect();
        sample::on(builder.build().unwrap(), devices, MemoryRule::Resident)
    }

    /// 20 tasks of 1 to 20 operations and 10 bytes each. Two fast devices take 7 tasks each, so at least 6 tasks are on
    /// the slow device: those of 1 to 6 operations.
    #[test]
    fn what_memory_leaves_over_is_on_the_slow_device() {
        let tasks: Vec<(f64, u64)> = (1..=20).map(|number| (f64::from(number), 10)).collect();
        let bound = lower_bounds(&overflow(&tasks, &[70, 70]).problem().unwrap())[3].value;
        assert!(bound <= 21.0 * (1.0 + 1e-9) && bound > 20.5, "{bound}");
    }

    /// The longest of the same tasks are not on the slow device in a schedule of 21, and no schedule takes 15.
    #[test]
    fn a_group_whose_share_is_too_large_is_excluded() {
        let tasks: Vec<(f64, u64)> = (1..=20).map(|number| (f64::from(number), 10)).collect();
        let loaded = overflow(&tasks, &[73, 73]);
        let on = |time: f64| [time, time / 100.0, time / 100.0].map(|time| [time, 0.0, 0.0]).to_vec();
        let groups: Vec<Group> = tasks.iter().map(|&(time, demand)| Group { demand, on: on(time) }).collect();
        let closed = Shares::new(&loaded.platform).divide(&loaded.platform, || groups.iter(), 21.0).unwrap();
        assert!((12..20).all(|place| closed.contains(&(place, 0))), "{closed:?}");
        // The shortest six are nowhere else.
        assert!(closed.iter().all(|&(place, device)| (device == 0) == (place >= 6)), "{closed:?}");
        assert_eq!(Shares::new(&loaded.platform).divide(&loaded.platform, || groups.iter(), 15.0), None);
    }

    /// If a placement is within the limit, its groups need at most 1 under any weights.
    #[test]
    fn no_group_is_excluded_from_its_device_in_a_schedule() {
        arbtest::arbtest(|random| {
            let devices = random.int_in_range(1..=4usize)?;
            let mut groups = Vec::new();
            let mut work = vec![0u32; devices];
            let mut bytes = vec![1u64; devices];
            for _ in 0..random.int_in_range(1..=10u8)? {
                let mut on = Vec::new();
                for _ in 0..devices {
                    on.push([f64::from(random.int_in_range(0..=9u8)?), 0.0, 0.0]);
                }
                let (device, demand) = (random.int_in_range(0..=devices - 1)?, random.int_in_range(0..=9u64)?);
                work[device] += on[device][0] as u32;
                bytes[device] += demand;
                groups.push((Group { demand, on }, device));
            }
            let limited = bytes.iter().map(|&bytes| Device::new("d", DeviceKind::Cpu).with_memory(bytes));
            let loaded =
                sample::on(sample::tasks(&[1.0]).build().unwrap(), limited.collect::<Vec<_>>(), MemoryRule::Ignore);
            let limit = f64::from(*work.iter().max().unwrap()).max(1.0);
            let mut shares = Shares::new(&loaded.platform);
            let closed = shares.divide(&loaded.platform, || groups.iter().map(|(group, _)| group), limit);
            let closed = closed.expect("a schedule exists");
            assert!(closed.iter().all(|&(place, device)| groups[place].1 != device), "{closed:?}");
            Ok(())
        })
        .budget_ms(300);
    }
}
