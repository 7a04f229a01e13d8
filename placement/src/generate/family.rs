//! Graphs by the name of their family and a size, for command lines and sweeps.

use super::{GenerateError, Grain, Layered, RandomDag, Shape};
use crate::graph::TaskGraph;

/// Names of the families that [`graph_by_name`] knows, with the meaning of the size.
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
    ("layered", "random graphs as in Laich 2017, about 50 tasks a level; size: the number of levels"),
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

/// Generates the graph of a family, if there is one called `name`. Families without randomness ignore the seed.
///
/// # Errors
/// Returns an error for a size that the family cannot have.
pub fn graph_by_name(name: &str, size: u32, seed: u64) -> Option<Result<TaskGraph, GenerateError>> {
    match name {
        "random" => Some(RandomDag { tasks: size, ..RandomDag::default() }.generate(seed)),
        "layered" => Some(Layered { levels: size, ..Layered::default() }.generate(seed)),
        "table-7.1" => {
            let error = GenerateError::Parameter { parameter: "size", value: size.into(), expected: "from 1 to 6" };
            Some(Layered::table_7_1(size).ok_or(error).and_then(|parameters| parameters.generate(seed)))
        }
        _ => shape_by_name(name, size).map(|shape| shape.generate(&Grain::default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{LoadedGraph, json, thesis};
    use crate::generate::{Devices, Sweep};
    use crate::problem::MemoryRule;

    #[test]
    fn every_family_makes_graphs() {
        for &(name, _) in FAMILIES {
            let graph = graph_by_name(name, 4, 0).unwrap().unwrap();
            assert!(graph.task_count() >= 4, "{name}");
        }
        assert!(graph_by_name("none", 4, 0).is_none());
        assert!(graph_by_name("table-7.1", 7, 0).unwrap().is_err());
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
            let graph = graph_by_name(name, 4, 42).unwrap().unwrap();
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
        let graph = graph_by_name("random", 20, 42).unwrap().unwrap();
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
