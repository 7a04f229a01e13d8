//! Merges nodes that compute equal ops on equal values.
//!
//! Class: exact bits.

use super::graph::Graph;
use anabranch_ir::constant::Constant;
use anabranch_ir::program::ValueId;
use std::collections::BTreeMap;

/// Makes readers of a node's outputs read those of an earlier node that computes the same.
pub(super) fn merge_common(graph: &mut Graph) {
    merge_constants(graph);
    let mut known: BTreeMap<String, Vec<ValueId>> = BTreeMap::new();
    for position in 0..graph.end() {
        let Some(node) = graph.node(position) else { continue };
        let outputs = node.outputs.clone();
        // The op's text holds all its parameters; different numbers, except NaNs, print differently.
        let key = format!("{:?} {:?}", node.spec, node.inputs);
        if key.contains("NaN") {
            continue;
        }
        match known.get(&key) {
            Some(same) => outputs.iter().zip(same.clone()).for_each(|(old, new)| graph.bypass(position, *old, new)),
            None => {
                known.insert(key, outputs);
            }
        }
    }
}

/// Most bytes of a constant that is compared with others: larger constants are weights, each of which exists once.
const MOST_COMPARED: usize = 4096;

/// Makes nodes that read equal small constants read one constant.
fn merge_constants(graph: &mut Graph) {
    let mut known: BTreeMap<Vec<u8>, Vec<ValueId>> = BTreeMap::new();
    for position in 0..graph.end() {
        let Some(node) = graph.node(position) else { continue };
        let mut inputs = node.inputs.clone();
        for input in &mut inputs {
            let small = graph.constant(*input).filter(|constant| constant.bytes() <= MOST_COMPARED);
            let Some(tensor) = small.and_then(Constant::held) else {
                continue;
            };
            let same = known.entry(tensor.bytes().to_vec()).or_default();
            let dtype = tensor.dtype();
            let equal = same.iter().find(|other| graph.constant(**other).is_some_and(|other| other.dtype() == dtype));
            match equal {
                Some(equal) => *input = *equal,
                None => same.push(*input),
            }
        }
        if inputs != node.inputs {
            let node = anabranch_ir::program::Node { inputs, ..node.clone() };
            graph.replace(position, node);
        }
    }
}
