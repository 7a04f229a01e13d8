//! Properties of streaming schedules on random canonical graphs, each checked from its definition.

use anabranch_placement::streaming::{
    BlockVariant, Blocks, BufferSizes, CanonicalGraph, CanonicalGraphBuilder, Node, NodeId, StreamingDepth,
    StreamingSchedule, simulate_streaming, spatial_blocks,
};
use arbtest::arbitrary::{Result, Unstructured};

/// Draws up to 16 nodes. Each reads and writes one of four volumes, and edges connect equal volumes, so that paths of
/// all kinds meet. If `whole`, rates are whole numbers or the inverse of whole numbers.
fn draw(random: &mut Unstructured<'_>, whole: bool) -> Result<CanonicalGraph> {
    let mut volumes = [1, 2, 6, 24];
    if !whole {
        for volume in &mut volumes {
            *volume = random.int_in_range(1..=24)?;
        }
    }
    let mut builder = CanonicalGraphBuilder::new();
    let mut ends = Vec::new();
    for number in 0..random.int_in_range(1..=16)? {
        let (input, output) = (random.int_in_range(0..=3)?, random.int_in_range(0..=3)?);
        let (read, written) = (volumes[input], volumes[output]);
        let name = format!("n{number}");
        let memory = random.ratio(1, 8)?;
        let node = if memory { Node::buffer(name, read, written) } else { Node::task(name, read, written) };
        let id = builder.node(node);
        for &(before, volume) in &ends {
            if volume == read && random.ratio(1, 2)? {
                builder.edge(before, id);
            }
        }
        ends.push((id, written));
    }
    Ok(builder.build().unwrap())
}

fn each_block_plan(whole: bool, test: impl Fn(&CanonicalGraph, usize, BlockVariant, &StreamingSchedule)) {
    arbtest::arbtest(|random| {
        let graph = draw(random, whole)?;
        let elements = random.int_in_range(1..=16)?;
        for variant in [BlockVariant::Lts, BlockVariant::Rlx, BlockVariant::Best] {
            let blocks = spatial_blocks(&graph, elements, variant);
            test(&graph, elements, variant, &StreamingSchedule::new(&graph, blocks));
        }
        Ok(())
    })
    .budget_ms(700);
}

#[test]
fn blocks_are_partitions_in_the_order_of_dependencies() {
    each_block_plan(false, |graph, elements, variant, schedule| {
        let blocks = schedule.blocks();
        Blocks::new(graph, blocks.lists().to_vec(), elements).unwrap();
        match variant {
            BlockVariant::Lts => {
                for task in graph.task_ids() {
                    let produced = graph.node(task).output();
                    assert!(sources(graph, blocks, task).into_iter().all(|source| produced < source), "{task}");
                }
            }
            BlockVariant::Rlx => {
                let full = |list: &Vec<NodeId>| list.len() == elements;
                assert!(blocks.lists().iter().rev().skip(1).all(full), "only the last block has free elements");
            }
            BlockVariant::Best => {
                for printed in [BlockVariant::Lts, BlockVariant::Rlx] {
                    let printed = StreamingSchedule::new(graph, spatial_blocks(graph, elements, printed));
                    assert!(schedule.makespan() <= printed.makespan());
                }
            }
        }
    });
}

/// Returns the volumes that the sources of a task's block produce on which it depends, also through memory; none for a
/// source.
fn sources(graph: &CanonicalGraph, blocks: &Blocks, task: NodeId) -> Vec<u64> {
    let (mut behind, mut found) = (vec![task], Vec::new());
    while let Some(node) = behind.pop() {
        let inside = graph.predecessors(node).filter(|&before| blocks.together((before, node)));
        let filled = inside.filter(|&before| !graph.node(before).is_memory() || is_filled(graph, blocks, before));
        let before: Vec<NodeId> = filled.collect();
        if before.is_empty() && node != task {
            found.push(graph.node(node).output());
        }
        behind.extend(before);
    }
    found
}

/// Whether a task of the memory's block fills it, directly or through other memory.
fn is_filled(graph: &CanonicalGraph, blocks: &Blocks, memory: NodeId) -> bool {
    let mut inside = graph.predecessors(memory).filter(|&before| blocks.together((before, memory)));
    inside.any(|before| !graph.node(before).is_memory() || is_filled(graph, blocks, before))
}

#[test]
fn blocks_of_whole_rates_end_and_no_later_than_scheduled() {
    each_block_plan(true, |graph, _, variant, schedule| {
        let sizes = BufferSizes::new(graph, schedule);
        let simulated = simulate_streaming(graph, schedule, &sizes, 1 << 20);
        assert!(simulated.is_ok(), "{variant:?}: {}\n{graph:?}", simulated.unwrap_err());
        let (_, simulated) = BufferSizes::proven(graph, schedule, 1 << 20).unwrap();
        assert!(simulated.makespan <= schedule.makespan(), "{variant:?}: {graph:?}");
    });
}

#[test]
fn no_block_deadlocks_with_proven_room() {
    each_block_plan(false, |graph, _, _, schedule| {
        let (sizes, simulated) = BufferSizes::proven(graph, schedule, 1 << 20).unwrap();
        assert_eq!(simulate_streaming(graph, schedule, &sizes, 1 << 20), Ok(simulated));
        graph.edge_ids().for_each(|edge| assert!(sizes.of(edge) <= graph.volume(edge)));
    });
}

#[test]
fn one_block_of_everything_ends_no_sooner_than_the_lower_bound() {
    arbtest::arbtest(|random| {
        let graph = draw(random, false)?;
        let schedule = StreamingSchedule::new(&graph, Blocks::one(&graph));
        let (_, simulated) = BufferSizes::proven(&graph, &schedule, 1 << 20).unwrap();
        if let Ok(depth) = StreamingDepth::of(&graph) {
            assert!(depth.lower <= simulated.makespan);
        }
        Ok(())
    })
    .budget_ms(700);
}
