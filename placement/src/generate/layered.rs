//! Random graphs of levels, with constraints (Laich 2017, chapter 6).
//!
//! Each level has a random number of tasks, and edges go from lower to higher levels only. *Level edges* are drawn for
//! every pair of tasks that are near enough, with a probability that may decrease with the distance. *Long-range edges*
//! connect two random tasks of different levels that are not connected yet. Sizes, operations and memory are uniform.
//! Some tasks run only on CPUs or only on GPUs. There are many small colocation groups and few large ones: about half
//! as many per size as of the next smaller size.
//!
//! Table 7.1 gives the numbers of six graphs, but not the probabilities. If the edge level limit excludes its own
//! distance (a limit of 3 connects levels 1 or 2 apart), round probabilities give its numbers of edges.
//! [`Layered::table_7_1`] uses these probabilities.

use super::parameters::{self, Field, Parameter, SHARE, SpellingError};
use super::{GenerateError, MAX_PAIRS, MAX_TASKS, Random, check_count, check_parameter, check_size};
use crate::graph::{DatumId, GraphBuilder, Task, TaskGraph, TaskId};
use crate::platform::DeviceKinds;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Parameters of a random graph of levels.
///
/// As text it is the number of levels, and after commas the parameters that differ from the default:
///
/// ```
/// use anabranch_placement::generate::{EdgeReach, Layered};
///
/// let layered: Layered = "30,tasks=10-20,decay=0.5".parse()?;
/// assert_eq!(layered, Layered { levels: 30, tasks_a_level: 10..=20, reach: EdgeReach::Decay(0.5), ..Layered::default() });
/// # Ok::<(), anabranch_placement::generate::SpellingError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Layered {
    /// Number of levels.
    pub levels: u32,
    /// Number of tasks per level.
    pub tasks_a_level: RangeInclusive<u64>,
    /// Probability of an edge between tasks on neighbouring levels.
    pub edge_probability: f64,
    /// Distance that level edges span.
    pub reach: EdgeReach,
    /// Share of long-range edges in all edges; below 1.
    pub long_range_share: f64,
    /// Bytes of the datum that each task produces.
    pub tensor_size: RangeInclusive<u64>,
    /// Operations of a task.
    pub operations: RangeInclusive<u64>,
    /// Resident memory of a task.
    pub memory: RangeInclusive<u64>,
    /// Probability that a task runs only on CPUs.
    pub cpu_only: f64,
    /// Probability that a task runs only on GPUs.
    pub gpu_only: f64,
    /// Factor of the number of colocation groups. For `n` tasks there are up to `n × colocation × 2^-s` groups of `s`
    /// tasks, a random share of that for each size.
    pub colocation: f64,
}

/// Distance that level edges span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EdgeReach {
    /// All pairs of tasks less than this number of levels apart are equally likely; other pairs are excluded.
    Limit(u32),
    /// Factor below 1 by which the probability decreases with each further level.
    Decay(f64),
}

/// Probability below which edges are not drawn.
const NEGLIGIBLE: f64 = 1e-9;

impl Default for Layered {
    /// Table 7.1's graph 4 with 20 levels: about 1000 tasks and 4000 edges.
    fn default() -> Self {
        Layered {
            levels: 20,
            tasks_a_level: 20..=80,
            edge_probability: 0.005,
            reach: EdgeReach::Limit(10),
            long_range_share: 0.5,
            tensor_size: 1..=100,
            operations: 1..=100,
            memory: 1..=100,
            cpu_only: 0.01,
            gpu_only: 0.01,
            colocation: 0.2,
        }
    }
}

/// Parameters after the number of levels.
const PARAMETERS: [Parameter<Layered>; 11] = [
    Parameter { key: "tasks", about: "tasks per level", field: Field::Range(|layered| &mut layered.tasks_a_level) },
    Parameter {
        key: "edge-probability",
        about: "of an edge between tasks on neighbouring levels",
        field: Field::Share(|layered| &mut layered.edge_probability),
    },
    Parameter {
        key: "limit",
        about: "edge level limit: tasks fewer levels apart are equally likely to have an edge",
        field: Field::Other {
            expected: "a whole number below 4294967296, such as 10",
            write: |layered| match layered.reach {
                EdgeReach::Limit(limit) => Some(limit.to_string()),
                EdgeReach::Decay(_) => None,
            },
            read: |layered, text| text.parse().ok().map(|limit| layered.reach = EdgeReach::Limit(limit)),
        },
    },
    Parameter {
        key: "decay",
        about: "factor of the probability per further level, instead of limit",
        field: Field::Other {
            expected: SHARE,
            write: |layered| match layered.reach {
                EdgeReach::Limit(_) => None,
                EdgeReach::Decay(factor) => Some(factor.to_string()),
            },
            read: |layered, text| text.parse().ok().map(|factor| layered.reach = EdgeReach::Decay(factor)),
        },
    },
    Parameter {
        key: "long-range-share",
        about: "share of long-range edges in all edges",
        field: Field::Share(|layered| &mut layered.long_range_share),
    },
    Parameter {
        key: "tensor-size",
        about: "bytes of a task's datum",
        field: Field::Range(|layered| &mut layered.tensor_size),
    },
    Parameter { key: "operations", about: "of a task", field: Field::Range(|layered| &mut layered.operations) },
    Parameter { key: "memory", about: "resident bytes of a task", field: Field::Range(|layered| &mut layered.memory) },
    Parameter {
        key: "cpu-only",
        about: "probability that a task runs only on CPUs",
        field: Field::Share(|layered| &mut layered.cpu_only),
    },
    Parameter {
        key: "gpu-only",
        about: "probability that a task runs only on GPUs",
        field: Field::Share(|layered| &mut layered.gpu_only),
    },
    Parameter {
        key: "colocation",
        about: "factor of the number of colocation groups",
        field: Field::Share(|layered| &mut layered.colocation),
    },
];

impl FromStr for Layered {
    type Err = SpellingError;

    fn from_str(text: &str) -> Result<Self, SpellingError> {
        let (levels, rest) = parameters::size(text)?;
        let mut layered = Layered { levels, ..Layered::default() };
        if let Some(rest) = rest {
            parameters::read(&mut layered, rest, &PARAMETERS)?;
        }
        layered.validate()?;
        Ok(layered)
    }
}

impl fmt::Display for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.levels, parameters::write(self, &Layered::default(), &PARAMETERS))
    }
}

impl Layered {
    /// Returns the parameters of the synthetic graphs 1 to 6 of Table 7.1.
    pub fn table_7_1(graph: u32) -> Option<Layered> {
        let (levels, tasks_a_level, limit, edge_probability, long_range_share) = match graph {
            1 => (300, 50..=200, 20, 0.0001, 0.5),
            2 => (300, 20..=100, 20, 0.001, 0.2),
            3 => (1000, 5..=10, 3, 0.445, 0.0),
            4 | 5 => (200, 20..=80, 10, 0.005, 0.5),
            6 => (500, 10..=100, 20, 0.002, 0.5),
            _ => return None,
        };
        let reach = EdgeReach::Limit(limit);
        Some(Layered { levels, tasks_a_level, edge_probability, reach, long_range_share, ..Layered::default() })
    }

    /// Draws a graph. The time is proportional to the pairs of tasks within reach.
    ///
    /// # Errors
    /// Returns an error for a parameter outside its range, or for more tasks, edges or pairs than the limits.
    pub fn generate(&self, seed: u64) -> Result<TaskGraph, GenerateError> {
        self.validate()?;
        let first = self.draw_levels(&mut Random::stream(seed, 1))?;
        let edges = self.draw_edges(&first, &mut Random::stream(seed, 2))?;
        let tasks = first[first.len() - 1];
        let mut builder = GraphBuilder::new();
        let kinds = self.draw_tasks(tasks, &mut builder, &mut Random::stream(seed, 3));
        for (from, to) in edges {
            // The datum of a task has the task's number.
            builder.consume(DatumId(from), TaskId(to));
        }
        self.draw_groups(&kinds, &mut builder, &mut Random::stream(seed, 4));
        Ok(builder.build()?)
    }

    fn validate(&self) -> Result<(), GenerateError> {
        // The names of parameters are those of their text.
        let probability = "a probability";
        check_parameter("edge-probability", self.edge_probability, 0.0..=1.0, probability)?;
        check_parameter("cpu-only", self.cpu_only, 0.0..=1.0, probability)?;
        check_parameter("gpu-only", self.gpu_only, 0.0..=1.0 - self.cpu_only, "what cpu-only leaves of 1, or less")?;
        check_parameter("long-range-share", self.long_range_share, 0.0..=0.99, "at most 0.99")?;
        check_parameter("colocation", self.colocation, 0.0..=1.0, "from 0 to 1")?;
        if let EdgeReach::Decay(factor) = self.reach {
            check_parameter("decay", factor, 0.0..=0.99, "at most 0.99")?;
        }
        let reach = match self.reach {
            EdgeReach::Limit(limit) => limit.min(self.levels),
            EdgeReach::Decay(_) => self.levels,
        };
        // Levels may be empty, so the limit of tasks does not limit them.
        check_count("levels", self.levels.into(), MAX_TASKS)?;
        check_count("pairs of levels", u128::from(self.levels) * u128::from(reach), MAX_PAIRS)?;
        let most = u128::from(self.levels) * u128::from(*self.tasks_a_level.end().max(self.tasks_a_level.start()));
        check_size(most, 0)
    }

    /// Returns the number of each level's first task; the last entry is the number of tasks.
    fn draw_levels(&self, random: &mut Random) -> Result<Vec<u32>, GenerateError> {
        let mut first = vec![0u32];
        for _ in 0..self.levels {
            // The sum fits `u32`, because `validate` has limited the greatest possible sum.
            first.push(first[first.len() - 1] + random.between(&self.tasks_a_level) as u32);
        }
        Ok(first)
    }

    /// Returns the probabilities of an edge over a distance of 1, 2, … levels.
    fn probabilities(&self) -> Vec<f64> {
        match self.reach {
            EdgeReach::Limit(limit) => {
                vec![self.edge_probability; limit.saturating_sub(1).min(self.levels.saturating_sub(1)) as usize]
            }
            EdgeReach::Decay(factor) => {
                let all = std::iter::successors(Some(self.edge_probability), |last| Some(last * factor));
                all.take(self.levels as usize).take_while(|&probability| probability > NEGLIGIBLE).collect()
            }
        }
    }

    fn draw_edges(&self, first: &[u32], random: &mut Random) -> Result<Vec<(u32, u32)>, GenerateError> {
        let probabilities = self.probabilities();
        let width = |level: usize| u128::from(first[level + 1] - first[level]);
        let pairs_of = |level: usize, distance: usize| width(level - distance) * width(level);
        let reachable = |level: usize| (1..=level.min(probabilities.len())).map(move |distance| (level, distance));
        let pairs = (0..first.len() - 1).flat_map(reachable).map(|(level, distance)| pairs_of(level, distance)).sum();
        check_count("pairs of tasks to draw for", pairs, MAX_PAIRS)?;
        let mut edges = Vec::new();
        for (level, distance) in (0..first.len() - 1).flat_map(reachable) {
            let (lower, probability) = (level - distance, probabilities[distance - 1]);
            for to in first[level]..first[level + 1] {
                for from in first[lower]..first[lower + 1] {
                    if random.chance(probability) {
                        edges.push((from, to));
                    }
                }
            }
            check_size(0, edges.len() as u128)?;
        }
        self.add_long_range(first, &mut edges, random)?;
        Ok(edges)
    }

    /// Adds random edges until they are the wanted share of all edges, or until a free pair is too hard to find.
    fn add_long_range(
        &self,
        first: &[u32],
        edges: &mut Vec<(u32, u32)>,
        random: &mut Random,
    ) -> Result<(), GenerateError> {
        let wanted = (edges.len() as f64 * self.long_range_share / (1.0 - self.long_range_share)).round() as u64;
        check_size(0, u128::from(wanted) + edges.len() as u128)?;
        let tasks = u64::from(first[first.len() - 1]);
        let level_of = |task: u32| first.partition_point(|&start| start <= task);
        let mut known: BTreeSet<(u32, u32)> =
            if wanted > 0 { edges.iter().copied().collect() } else { BTreeSet::new() };
        let mut tries = wanted.saturating_mul(16);
        let mut missing = wanted;
        while missing > 0 && tries > 0 {
            tries -= 1;
            let (one, other) = (random.below(tasks) as u32, random.below(tasks) as u32);
            // Task numbers increase with levels.
            let pair = (one.min(other), one.max(other));
            if level_of(one) != level_of(other) && known.insert(pair) {
                edges.push(pair);
                missing -= 1;
            }
        }
        Ok(())
    }

    /// Adds the tasks with a datum each; returns their allowed kinds of devices.
    fn draw_tasks(&self, tasks: u32, builder: &mut GraphBuilder, random: &mut Random) -> Vec<DeviceKinds> {
        let mut kinds = Vec::with_capacity(tasks as usize);
        for number in 0..tasks {
            let constraint = random.fraction();
            let allowed = match constraint {
                _ if constraint < self.cpu_only => DeviceKinds::CPU,
                _ if constraint < self.cpu_only + self.gpu_only => DeviceKinds::GPU,
                _ => DeviceKinds::ALL,
            };
            let task = Task::new(format!("t{number}"))
                .with_operations(random.between(&self.operations) as f64)
                .with_memory(random.between(&self.memory))
                .with_allowed(allowed);
            let id = builder.task(task);
            builder.datum(id, random.between(&self.tensor_size));
            kinds.push(allowed);
        }
        kinds
    }

    /// Draws disjoint colocation groups. A task is left out if its kinds would leave a group without a device.
    fn draw_groups(&self, kinds: &[DeviceKinds], builder: &mut GraphBuilder, random: &mut Random) {
        let mut free: Vec<u32> = (0..kinds.len() as u32).collect();
        let mut most = kinds.len() as f64 * self.colocation / 2.0;
        for size in 2.. {
            most /= 2.0;
            let groups = (most * random.fraction()) as u64;
            for _ in 0..groups {
                let mut common = DeviceKinds::ALL;
                let mut leader = None;
                for _ in 0..size.min(free.len()) {
                    let task = free.swap_remove(random.below(free.len() as u64) as usize);
                    let shared = common.intersection(kinds[task as usize]);
                    if shared.is_empty() {
                        continue;
                    }
                    common = shared;
                    builder.colocate(*leader.get_or_insert(TaskId(task)), TaskId(task));
                }
            }
            if most < 1.0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_7_1_has_its_numbers() {
        let published = [(1, 36319, 16076), (3, 7475, 49510), (4, 9899, 42486)];
        for (graph, tasks, edges) in published {
            let generated = Layered::table_7_1(graph).unwrap().generate(0).unwrap();
            let near = |found: usize, published: usize| found.abs_diff(published) * 8 < published;
            assert!(near(generated.task_count(), tasks), "graph {graph}: {} tasks", generated.task_count());
            assert!(near(generated.edge_count(), edges), "graph {graph}: {} edges", generated.edge_count());
        }
        assert_eq!((Layered::table_7_1(0), Layered::table_7_1(7)), (None, None));
    }

    /// Returns the level distance of each edge, in a graph with `width` tasks on every level.
    fn distances(graph: &TaskGraph, width: u32) -> Vec<u32> {
        let edges = graph.task_ids().flat_map(|task| graph.successors(task).iter().map(move |&to| (task, to)));
        edges.map(|(from, to)| to.0 / width - from.0 / width).collect()
    }

    #[test]
    fn edges_reach_as_far_as_they_may() {
        let parameters = Layered { tasks_a_level: 10..=10, long_range_share: 0.0, ..Layered::default() };
        let near = Layered { reach: EdgeReach::Limit(3), edge_probability: 1.0, ..parameters.clone() };
        let near = distances(&near.generate(1).unwrap(), 10);
        assert_eq!((near.iter().min(), near.iter().max(), near.len()), (Some(&1), Some(&2), 19 * 100 + 18 * 100));

        let fading = Layered { reach: EdgeReach::Decay(0.5), edge_probability: 0.8, ..parameters.clone() };
        let fading = distances(&fading.generate(1).unwrap(), 10);
        let count = |distance| fading.iter().filter(|&&found| found == distance).count();
        assert!(count(1) > count(2) && count(2) > count(3) && count(3) > count(4) && count(4) > 0);

        let mixed = Layered { long_range_share: 0.5, edge_probability: 0.1, reach: EdgeReach::Limit(2), ..parameters };
        let far = distances(&mixed.generate(1).unwrap(), 10);
        assert!(far.iter().all(|&distance| distance > 0) && far.iter().any(|&distance| distance > 10));
        let level_edges = 190;
        assert!(far.len().abs_diff(2 * level_edges) < 60, "{}", far.len());
    }

    #[test]
    fn groups_are_many_small_and_few_large() {
        let graph = Layered { levels: 100, ..Layered::default() }.generate(3).unwrap();
        let mut sizes = std::collections::BTreeMap::new();
        for unit in graph.unit_ids() {
            *sizes.entry(graph.members(unit).len()).or_insert(0) += 1;
        }
        let count = |range: RangeInclusive<usize>| sizes.range(range).map(|(_, count)| count).sum::<usize>();
        assert!(count(2..=3) > count(4..=8) && count(4..=8) > 0, "{sizes:?}");
        let of_kind =
            |kinds| graph.tasks().iter().filter(|task| task.allowed == kinds).count() * 100 / graph.task_count();
        assert!(of_kind(DeviceKinds::CPU) <= 2 && of_kind(DeviceKinds::ALL) >= 96);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let base = Layered::default;
        let cases = [
            Layered { edge_probability: 1.5, ..base() },
            Layered { edge_probability: f64::NAN, ..base() },
            Layered { long_range_share: 1.0, ..base() },
            Layered { cpu_only: 0.6, gpu_only: 0.6, ..base() },
            Layered { reach: EdgeReach::Decay(1.0), ..base() },
            Layered { levels: u32::MAX, tasks_a_level: 0..=u64::MAX, ..base() },
            Layered { levels: u32::MAX, tasks_a_level: 0..=0, reach: EdgeReach::Limit(0), ..base() },
            Layered { levels: 1000, tasks_a_level: 4000..=4000, reach: EdgeReach::Limit(900), ..base() },
        ];
        for parameters in cases {
            assert!(parameters.generate(0).is_err(), "{parameters:?}");
        }
        let empty = Layered { levels: 0, ..base() }.generate(0).unwrap();
        assert_eq!(empty.task_count(), 0);
        let lonely = Layered { levels: 2, tasks_a_level: 1..=1, edge_probability: 1.0, ..base() };
        assert_eq!(lonely.generate(0).unwrap().edge_count(), 1, "no second edge, however hard it tries");
    }
}
