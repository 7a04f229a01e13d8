//! Graphs by the name of their family, a size and parameters, for command lines and sweeps.

use super::parameters::{self, SpellingError};
use super::{GenerateError, Grain, Layered, RandomDag, Shape};
use crate::graph::TaskGraph;
use std::fmt;
use std::str::FromStr;

/// Names of the families of graphs, with the meaning of the size.
pub const FAMILIES: &[(&str, &str)] = &[
    ("chain", "tasks one after the other; size: their number"),
    ("fork-join", "forks of 8 branches and their joins; size: their number"),
    ("in-tree", "a binary tree to its root; size: its depth"),
    ("out-tree", "a binary tree from its root; size: its depth"),
    ("wavefront", "a square table of blocks, as for the longest common subsequence; size: its side"),
    ("fft", "the fast Fourier transform; size: its points, a power of two"),
    ("gauss", "Gaussian elimination by columns; size: the matrix's order"),
    ("cholesky", "Cholesky factorisation by tiles; size: tiles a side"),
    ("random", "random graphs as in Topcuoglu 2002; size: the number of tasks"),
    ("layered", "random graphs as in Laich 2017, about 50 tasks a level; size: the number of levels, then parameters"),
    ("table-7.1", "the random graphs of Laich 2017, table 7.1; size: the graph's number, 1 to 6"),
];

/// Returns the regular shape called `name`, if there is one. Random families have none.
pub fn shape_by_name(name: &str, size: u32) -> Option<Shape> {
    Some(match name {
        "chain" => Shape::Chain { length: size },
        "fork-join" => Shape::ForkJoin { stages: size, width: 8 },
        "in-tree" => Shape::InTree { depth: size, arity: 2 },
        "out-tree" => Shape::OutTree { depth: size, arity: 2 },
        "wavefront" => Shape::Wavefront { rows: size, columns: size },
        "fft" => Shape::FastFourierTransform { points: size },
        "gauss" => Shape::GaussianElimination { order: size },
        "cholesky" => Shape::Cholesky { tiles: size },
        _ => return None,
    })
}

/// Family of graphs with a size, such as `fft:16`. `layered` may have parameters, as in `layered:20,tasks=10-30`.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    name: &'static str,
    generator: Generator,
}

#[derive(Debug, Clone, PartialEq)]
enum Generator {
    Shape(Shape, u32),
    Random(RandomDag),
    Layered(Box<Layered>),
    /// Number of a graph of Laich 2017, table 7.1, and its parameters.
    Table(u32, Box<Layered>),
}

impl Family {
    /// Whether the graph depends on the seed.
    pub fn draws(&self) -> bool {
        !matches!(self.generator, Generator::Shape(..))
    }

    /// Generates the graph. Families without randomness ignore the seed.
    ///
    /// # Errors
    /// Returns an error for a size that the family cannot have.
    pub fn generate(&self, seed: u64) -> Result<TaskGraph, GenerateError> {
        match &self.generator {
            Generator::Shape(shape, _) => shape.generate(&Grain::default()),
            Generator::Random(random) => random.generate(seed),
            Generator::Layered(layered) | Generator::Table(_, layered) => layered.generate(seed),
        }
    }
}

impl FromStr for Family {
    type Err = SpellingError;

    fn from_str(text: &str) -> Result<Self, SpellingError> {
        let (given, rest) = text.split_once(':').unwrap_or((text, ""));
        let Some(&(name, _)) = FAMILIES.iter().find(|(name, _)| *name == given) else {
            let known: Vec<String> = FAMILIES.iter().map(|(family, about)| format!("{family} ({about})")).collect();
            return Err(SpellingError::Family { name: given.into(), known: known.join(", ") });
        };
        if name == "layered" {
            return Ok(Family { name, generator: Generator::Layered(Box::new(rest.parse()?)) });
        }
        let (size, parameters) = parameters::size(rest)?;
        if let Some(parameters) = parameters {
            return Err(SpellingError::SizeOnly { family: name, given: parameters.into() });
        }
        let generator = match shape_by_name(name, size) {
            Some(shape) => Generator::Shape(shape, size),
            None if name == "random" => Generator::Random(RandomDag { tasks: size, ..RandomDag::default() }),
            None => {
                let error = GenerateError::Parameter { parameter: "size", value: size.into(), expected: "from 1 to 6" };
                Generator::Table(size, Box::new(Layered::table_7_1(size).ok_or(error)?))
            }
        };
        Ok(Family { name, generator })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        match &self.generator {
            Generator::Shape(_, size) | Generator::Table(size, _) => size.fmt(f),
            Generator::Random(random) => random.tasks.fmt(f),
            Generator::Layered(layered) => layered.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{LoadedGraph, json, thesis};
    use crate::generate::{Devices, EdgeReach, Sweep};
    use crate::problem::MemoryRule;
    use arbtest::arbitrary::{self, Unstructured};

    fn family(text: &str) -> Family {
        text.parse().unwrap()
    }

    #[test]
    fn every_family_makes_graphs() {
        for &(name, _) in FAMILIES {
            let family = family(&format!("{name}:4"));
            let graph = |seed| family.generate(seed).unwrap();
            assert!(graph(0).task_count() >= 4, "{name}");
            assert_eq!(graph(1) != graph(2), family.draws(), "{name}");
        }
    }

    /// Any values within the limits are written and read again, and so are their families and devices.
    #[test]
    fn spellings_are_read_as_they_were_written() {
        arbtest::arbtest(|u| {
            let range = |u: &mut Unstructured<'_>, most| {
                let first = u.int_in_range(0..=most)?;
                Ok::<_, arbitrary::Error>(first..=u.int_in_range(first..=most)?)
            };
            let share =
                |u: &mut Unstructured<'_>| Ok::<_, arbitrary::Error>(f64::from(u.int_in_range(0..=990u32)?) / 1001.0);
            let reach = if u.arbitrary()? { EdgeReach::Limit(u.arbitrary()?) } else { EdgeReach::Decay(share(u)?) };
            let cpu_only = share(u)?;
            let layered = Layered {
                levels: u.int_in_range(0..=100)?,
                tasks_a_level: range(u, 1000)?,
                edge_probability: share(u)?,
                reach,
                long_range_share: share(u)?,
                tensor_size: range(u, 1_000_000_000_000_000)?,
                operations: range(u, 1_000_000_000_000_000)?,
                memory: range(u, 100)?,
                cpu_only,
                gpu_only: (1.0 - cpu_only) / 2.0,
                colocation: share(u)?,
            };
            let devices = Devices {
                count: u.int_in_range(0..=4096)?,
                cpu_share: share(u)?,
                speed: 1..=u.int_in_range(1..=100)?,
                rate: 2..=u.int_in_range(2..=100)?,
                memory_times_speed: u.int_in_range(0..=1_000_000_000_000_000)?,
            };
            assert_eq!(layered.to_string().parse(), Ok(layered.clone()));
            assert_eq!(devices.to_string().parse(), Ok(devices));
            let text = format!("layered:{layered}");
            assert_eq!(family(&text).to_string(), text);
            Ok(())
        })
        .size_max(1 << 10);
        for text in ["fft:16", "random:200", "layered:20", "table-7.1:3", "layered:5,tasks=3-3,decay=0.5"] {
            assert_eq!(family(text).to_string(), text);
        }
        assert_eq!(
            family("layered:020,limit=10,tasks=7").to_string(),
            "layered:20,tasks=7-7",
            "usual values are left out"
        );
    }

    #[test]
    fn misspelt_families_and_absurd_values_are_refused_with_the_keys() {
        let refused = |text: &str| text.parse::<Family>().expect_err(text).to_string();
        for (text, parts) in [
            ("fftt:4", ["`fftt`", "cholesky"]),
            ("fft:x", ["size is `x`", "whole number"]),
            ("fft", ["size is ``", "whole number"]),
            ("fft:4,tasks=3", ["fft takes a size only", "layered"]),
            ("table-7.1:7", ["size is 7", "from 1 to 6"]),
            ("layered:4,widht=3", ["`widht`", "long-range-share"]),
            ("layered:4,tasks", ["`tasks` has no value", "edge-probability"]),
            ("layered:4,", ["`` has no value", "colocation"]),
            ("layered:4,tasks=9-3", ["`9-3`", "the lesser first"]),
            ("layered:4,memory=0-9999999999999999", ["memory", "10^15"]),
            ("layered:4,cpu-only=x", ["cpu-only is `x`", "from 0 to 1"]),
            ("layered:4,edge-probability=1.5", ["edge-probability is 1.5", "a probability"]),
            ("layered:4,edge-probability=nan", ["edge-probability is NaN", "a probability"]),
            ("layered:4,cpu-only=0.6,gpu-only=0.6", ["gpu-only is 0.6", "cpu-only"]),
            ("layered:4,tasks=1,tasks=2", ["tasks occurs twice", "leave out"]),
            ("layered:4,limit=3,decay=0.5", ["limit", "exclude"]),
            ("layered:4000000000,tasks=0,limit=0", ["levels", "limit"]),
            ("layered:4,tasks=1-9999999999", ["tasks", "limit"]),
        ] {
            let message = refused(text);
            assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
        }
        let devices = |text: &str| text.parse::<Devices>().expect_err(text).to_string();
        for (text, part) in [("5000", "limit"), ("4,speeed=3", "memory-times-speed"), ("4,speed=0-9", "above 0")] {
            assert!(devices(text).contains(part), "{}", devices(text));
        }
    }

    /// FNV-1a, 64 bits.
    fn hash(bytes: &[u8]) -> u64 {
        bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }

    /// The files for seed 42 must never change on any machine, because experiments name their graphs by seed.
    #[test]
    fn the_same_bytes_everywhere() {
        let mut found = Vec::new();
        for &(name, _) in FAMILIES {
            let graph = family(&format!("{name}:4")).generate(42).unwrap();
            let mut bytes = Vec::new();
            let memory_rule = MemoryRule::SizeEstimate;
            let graph = LoadedGraph { name: name.into(), graph, memory_rule, time_unit: None, task_ids: vec![] };
            json::write_graph(&graph, &mut bytes).unwrap();
            found.push((name, hash(&bytes)));
        }
        let mut bytes = Vec::new();
        thesis::write_platform(&Devices::default().generate(42).unwrap(), &mut bytes).unwrap();
        found.push(("devices", hash(&bytes)));
        bytes.clear();
        let graph = family("random:20").generate(42).unwrap();
        json::write_problem(&Sweep::default().problem("sweep", graph, 42).unwrap(), &mut bytes).unwrap();
        found.push(("sweep", hash(&bytes)));
        assert_eq!(found, GOLDEN);
    }

    const GOLDEN: [(&str, u64); 13] = [
        ("chain", 0x7c15_8edd_137d_1de4),
        ("fork-join", 0x7375_e8e9_914c_b02d),
        ("in-tree", 0xe38f_2003_6918_bf3d),
        ("out-tree", 0xea64_c802_53c9_caaf),
        ("wavefront", 0xa4ca_9a69_2f8b_b0e7),
        ("fft", 0x48c8_7918_04ad_fa76),
        ("gauss", 0x94d0_8cdf_9584_a999),
        ("cholesky", 0xfe0c_0016_2817_1548),
        ("random", 0xa78e_8374_234e_806c),
        ("layered", 0x7d45_235d_aeba_1770),
        ("table-7.1", 0x20c7_d0cc_c02d_eabb),
        ("devices", 0xdb58_8f89_eaf7_36c3),
        ("sweep", 0xd723_6083_19aa_5686),
    ];
}
