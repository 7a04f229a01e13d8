//! Spatial blocks: sets of tasks that are on the processing elements together (paper, section 5).

use super::{CanonicalGraph, NodeId};

/// Reason why lists of tasks are not a valid sequence of spatial blocks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum BlocksError {
    /// A node that does not exist in the graph.
    #[error("block {block} holds {node}, but the graph has {count} nodes")]
    UnknownNode { block: usize, node: NodeId, count: usize },
    /// A task that is not in exactly one block.
    #[error("task {node:?} is in {times} blocks, but must be in one")]
    Uncovered { node: String, times: usize },
    /// A task that reads data of a later block.
    #[error("task {node:?} in block {block} reads from block {later}, which comes later")]
    Backward { node: String, block: usize, later: usize },
    /// A block with more tasks than processing elements.
    #[error("block {block} holds {tasks} tasks, but there are {elements} processing elements")]
    TooLarge { block: usize, tasks: usize, elements: usize },
}

/// Sequence of spatial blocks, which run on the processing elements one after the other. Memory nodes are in no block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    lists: Vec<Vec<NodeId>>,
    of: Vec<u32>,
}

impl Blocks {
    /// Creates the blocks from lists of tasks, the first block first. Memory nodes and empty lists are dropped.
    ///
    /// # Errors
    /// Returns an error unless each task is in one block, no task reads from a later block, and no block has more tasks
    /// than `elements`.
    pub fn new(graph: &CanonicalGraph, lists: Vec<Vec<NodeId>>, elements: usize) -> Result<Self, BlocksError> {
        let count = graph.node_count();
        for (block, list) in lists.iter().enumerate() {
            if let Some(&node) = list.iter().find(|node| node.index() >= count) {
                return Err(BlocksError::UnknownNode { block, node, count });
            }
        }
        let tasks =
            |list: Vec<NodeId>| list.into_iter().filter(|&node| !graph.node(node).is_memory()).collect::<Vec<_>>();
        let lists: Vec<Vec<NodeId>> = lists.into_iter().map(tasks).filter(|list| !list.is_empty()).collect();
        check_cover(graph, &lists)?;
        let blocks = Blocks::numbered(graph, lists);
        blocks.check_order(graph)?;
        match blocks.lists.iter().position(|list| list.len() > elements) {
            Some(block) => Err(BlocksError::TooLarge { block, tasks: blocks.lists[block].len(), elements }),
            None => Ok(blocks),
        }
    }

    /// Puts all tasks into one block.
    pub fn one(graph: &CanonicalGraph) -> Self {
        let tasks: Vec<NodeId> = graph.task_ids().collect();
        Blocks::numbered(graph, if tasks.is_empty() { Vec::new() } else { vec![tasks] })
    }

    /// Numbers the nodes by blocks, which must partition the tasks in an order of their dependencies.
    pub(super) fn numbered(graph: &CanonicalGraph, lists: Vec<Vec<NodeId>>) -> Self {
        let mut of = vec![0; graph.node_count()];
        for (block, list) in lists.iter().enumerate() {
            list.iter().for_each(|node| of[node.index()] = block as u32);
        }
        for &node in graph.topological_order() {
            if graph.node(node).is_memory() {
                of[node.index()] = graph.predecessors(node).map(|before| of[before.index()]).max().unwrap_or(0);
            }
        }
        Blocks { lists, of }
    }

    /// Returns the tasks of each block.
    pub fn lists(&self) -> &[Vec<NodeId>] {
        &self.lists
    }

    /// Returns the number of blocks.
    pub fn count(&self) -> usize {
        self.lists.len()
    }

    /// Returns the block of a task, from 0. For memory, returns the block after which it is full.
    pub fn of(&self, node: NodeId) -> usize {
        self.of[node.index()] as usize
    }

    /// Whether two nodes are in one block.
    pub fn together(&self, (a, b): (NodeId, NodeId)) -> bool {
        self.of(a) == self.of(b)
    }

    fn check_order(&self, graph: &CanonicalGraph) -> Result<(), BlocksError> {
        for &(from, to) in graph.edges() {
            let (later, block) = (self.of(from), self.of(to));
            if later > block {
                return Err(BlocksError::Backward { node: graph.node(to).name().into(), block, later });
            }
        }
        Ok(())
    }
}

fn check_cover(graph: &CanonicalGraph, lists: &[Vec<NodeId>]) -> Result<(), BlocksError> {
    let mut times = vec![0; graph.node_count()];
    lists.iter().flatten().for_each(|node| times[node.index()] += 1);
    match graph.task_ids().find(|node| times[node.index()] != 1) {
        Some(node) => Err(BlocksError::Uncovered { node: graph.node(node).name().into(), times: times[node.index()] }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streaming::{CanonicalGraphBuilder, Node};

    #[test]
    fn only_partitions_in_the_order_of_dependencies_are_blocks() {
        let mut builder = CanonicalGraphBuilder::new();
        let ids: Vec<NodeId> = ["a", "b", "c"].iter().map(|name| builder.node(Node::task(*name, 4, 4))).collect();
        let memory = builder.node(Node::buffer("m", 4, 4));
        builder.edge(ids[0], memory);
        builder.edge(memory, ids[1]);
        let graph = builder.build().unwrap();
        let new = |lists: &[&[u32]], elements| {
            let lists = lists.iter().map(|list| list.iter().copied().map(NodeId).collect()).collect();
            Blocks::new(&graph, lists, elements).map(|blocks| blocks.count()).map_err(|error| error.to_string())
        };
        assert_eq!(new(&[&[0, 3], &[], &[1, 2]], 2), Ok(2));
        assert_eq!(new(&[&[0, 1, 2]], 2).unwrap_err(), "block 0 holds 3 tasks, but there are 2 processing elements");
        assert_eq!(
            new(&[&[1], &[0, 2]], 2).unwrap_err(),
            "task \"b\" in block 0 reads from block 1, which comes later"
        );
        assert_eq!(new(&[&[0], &[1]], 2).unwrap_err(), "task \"c\" is in 0 blocks, but must be in one");
        assert_eq!(new(&[&[0, 1], &[1, 2]], 2).unwrap_err(), "task \"b\" is in 2 blocks, but must be in one");
        assert_eq!(new(&[&[4]], 2).unwrap_err(), "block 0 holds node 4, but the graph has 4 nodes");
    }
}
