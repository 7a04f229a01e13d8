//! Graphs by the name of their family and one size, for command lines and sweeps.

use super::{GenerateError, Grain, Layered, RandomDag, Shape};
use crate::graph::TaskGraph;

/// Every family that [`graph_by_name`] knows, with what its size means.
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

/// Makes the graph of a family, if there is one of that name. Families without chance ignore the seed.
///
/// # Errors
/// A size that the family cannot have.
pub fn graph_by_name(name: &str, size: u32, seed: u64) -> Option<Result<TaskGraph, GenerateError>> {
    let shape = match name {
        "chain" => Shape::Chain { length: size },
        "fork-join" => Shape::ForkJoin { stages: size, width: 8 },
        "in-tree" => Shape::InTree { depth: size, arity: 2 },
        "out-tree" => Shape::OutTree { depth: size, arity: 2 },
        "wavefront" => Shape::Wavefront { rows: size, columns: size },
        "fft" => Shape::FastFourierTransform { points: size },
        "gauss" => Shape::GaussianElimination { order: size },
        "cholesky" => Shape::Cholesky { tiles: size },
        "random" => return Some(RandomDag { tasks: size, ..RandomDag::default() }.generate(seed)),
        "layered" => return Some(Layered { levels: size, ..Layered::default() }.generate(seed)),
        "table-7.1" => {
            let error = GenerateError::Parameter { parameter: "size", value: size.into(), expected: "from 1 to 6" };
            return Some(Layered::table_7_1(size).ok_or(error).and_then(|parameters| parameters.generate(seed)));
        }
        _ => return None,
    };
    Some(shape.generate(&Grain::default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{LoadedGraph, json, thesis};
    use crate::generate::{Devices, Sweep};

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

    /// The written form of what seed 42 gives must never change, on no machine: experiments name their graphs by seed.
    #[test]
    fn the_same_bytes_everywhere() {
        let mut found = Vec::new();
        for &(name, _) in FAMILIES {
            let graph = graph_by_name(name, 4, 42).unwrap().unwrap();
            let mut bytes = Vec::new();
            json::write_graph(&LoadedGraph { name: name.into(), graph, time_unit: None }, &mut bytes).unwrap();
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
        ("chain", 0xce21_692e_90bd_531a),
        ("fork-join", 0x755e_35c4_34a5_224f),
        ("in-tree", 0x4df6_a028_1bec_575f),
        ("out-tree", 0xcfa8_8a3f_ea45_8831),
        ("wavefront", 0x651a_9ec5_47aa_0b29),
        ("fft", 0xf0ab_94aa_b803_d18c),
        ("gauss", 0x503f_9c21_d8ee_715b),
        ("cholesky", 0x01ba_cfa7_77f2_712e),
        ("random", 0xceba_ac48_286f_a722),
        ("layered", 0x999e_2eeb_0247_1376),
        ("table-7.1", 0x04f5_8cbb_9240_8d8d),
        ("devices", 0xdb58_8f89_eaf7_36c3),
        ("sweep", 0xd723_6083_19aa_5686),
    ];
}
