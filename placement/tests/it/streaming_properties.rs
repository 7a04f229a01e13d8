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
        for variant in [BlockVariant::Lts, BlockVariant::Rlx] {
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
        for &(memory, to) in graph.edges().iter().filter(|&&(from, _)| graph.node(from).is_memory()) {
            let filled = graph.predecessors(memory).any(|before| !graph.node(before).is_memory());
            let later = blocks.of(memory) < blocks.of(to);
            assert!(!filled || later || graph.node(to).is_memory(), "{memory} and {to}");
        }
        if variant == BlockVariant::Lts {
            for task in graph.task_ids() {
                assert!(sources(graph, schedule, task).all(|source| graph.node(task).work() <= source), "{task}");
            }
        }
    });
}

/// Returns the greatest work of the block's sources from which a task streams; nothing for a source.
fn sources(graph: &CanonicalGraph, schedule: &StreamingSchedule, task: NodeId) -> impl Iterator<Item = u64> {
    let (mut behind, mut found) = (vec![task], Vec::new());
    while let Some(node) = behind.pop() {
        let streams = graph.incoming(node).iter().filter(|&&edge| schedule.streams(graph, edge));
        let before: Vec<NodeId> = streams.map(|&edge| graph.edge(edge).0).collect();
        if before.is_empty() && node != task {
            found.push(graph.node(node).work());
        }
        behind.extend(before);
    }
    found.into_iter().max().into_iter()
}

#[test]
fn no_block_of_whole_rates_deadlocks_with_the_room_of_equation_5() {
    each_block_plan(true, |graph, _, variant, schedule| {
        let sizes = BufferSizes::new(graph, schedule);
        let simulated = simulate_streaming(graph, schedule, &sizes, 1 << 20);
        assert!(simulated.is_ok(), "{variant:?}: {}\n{graph:?}", simulated.unwrap_err());
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
