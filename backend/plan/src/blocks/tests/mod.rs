//! Tests of the forming of blocks, and of the promises of contracted programs.

use super::*;
use crate::test_programs::{Maker, add, chain, cpu_device, map, random_program, relu};
use crate::{ChunkRule, MachineDevice, StreamMode};
use anabranch_base::interruption::{Interrupt, under};
use anabranch_ir::program::{Program, ValueId};
use anabranch_kernels::op::{Binary, Expression, Literal, MatMul, NodeSpec, Op, Reduce, ReduceKind, Step, Unary};
use anabranch_placement_core::platform::DeviceId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn formed(program: &Program, device_of: &[u32], mode: StreamMode) -> Vec<BlockMembers> {
    let device_of: Vec<DeviceId> = device_of.iter().map(|device| DeviceId(*device)).collect();
    let count = device_of.iter().map(|device| device.index() + 1).max().unwrap_or(1);
    let devices: Vec<_> = (0..count).map(|at| cpu_device(&format!("cpu{at}"))).collect();
    let (chunk, supports) = (ChunkRule::Auto, &|_: DeviceId, _: &_, _: &[bool]| true);
    form(&Forming { program, device_of: &device_of, devices: &devices, mode, chunk, supports })
}

/// Members of all blocks.
fn members(program: &Program, device_of: &[u32]) -> Vec<Vec<u32>> {
    let groups = formed(program, device_of, StreamMode::Always);
    groups.iter().map(|group| group.members.iter().map(|node| node.0).collect()).collect()
}

fn exp() -> Op {
    map(Expression::unary(Unary::Exp))
}

fn reduce(kind: ReduceKind, axes: &[usize]) -> Op {
    Op::Reduce(Reduce { kind, axes: axes.to_vec() })
}

/// Softmax over the last axis: `x - max(x)`, its exponential, the sum, and the quotient.
fn softmax(maker: &mut Maker, x: ValueId) -> ValueId {
    let (wide, narrow) = ([64, 32], [64, 1]);
    let max = maker.node(reduce(ReduceKind::Max, &[1]), &[x], &narrow);
    let shifted = maker.node(map(Expression::binary(Binary::Subtract)), &[x, max], &wide);
    let powers = maker.node(exp(), &[shifted], &wide);
    let sum = maker.node(reduce(ReduceKind::Sum, &[1]), &[powers], &narrow);
    maker.node(map(Expression::binary(Binary::Divide)), &[powers, sum], &wide)
}

#[test]
fn chains_stream_and_other_devices_end_them() {
    let program = chain(4, &[64, 32]);
    assert_eq!(members(&program, &[0; 4]), [[0, 1, 2, 3]]);
    assert_eq!(members(&program, &[0, 0, 1, 1]), [[0, 1], [2, 3]]);
    assert_eq!(members(&program, &[0, 1, 0, 1]), [[0; 0]; 0]);
    assert_eq!(formed(&program, &[0; 4], StreamMode::Off), []);
}

#[test]
fn blocks_without_a_kernel_are_formed_of_fewer_nodes() {
    let mut maker = Maker::new();
    let mut values = vec![maker.input(&[64, 32])];
    (0..9).for_each(|at| values.push(maker.node(relu(), &[values[at]], &[64, 32])));
    let program = maker.finish(&[values[9]]);
    let device_of: Vec<_> = [0, 0, 0, 1, 1, 1, 1, 1, 1].map(DeviceId).into();
    let devices = [cpu_device("cpu0"), cpu_device("cpu1")];
    let form_up_to = |most: usize| {
        let asked = std::cell::Cell::new(0);
        let supports = |_: DeviceId, spec: &NodeSpec, _: &[bool]| {
            asked.set(asked.get() + 1);
            matches!(&spec.op, Op::Block(block) if block.members.len() <= most)
        };
        let (mode, chunk) = (StreamMode::Always, ChunkRule::Auto);
        let forming =
            Forming { program: &program, device_of: &device_of, devices: &devices, mode, chunk, supports: &supports };
        let lengths: Vec<_> = form(&forming).iter().map(|group| group.members.len()).collect();
        (lengths, asked.get())
    };
    assert_eq!(form_up_to(6), (vec![3, 6], 2), "each block is asked for once");
    let (lengths, _) = form_up_to(4);
    assert!(lengths[0] == 3 && lengths[1..].iter().sum::<usize>() == 6, "{lengths:?}");
    assert!(lengths.iter().all(|length| *length <= 4), "{lengths:?}");
    assert_eq!(form_up_to(1).0, [0; 0]);
}

#[test]
fn diamonds_and_softmax_are_one_block() {
    let mut maker = Maker::new();
    let x = maker.input(&[64, 32]);
    let a = maker.node(relu(), &[x], &[64, 32]);
    let (b, c) = (maker.node(relu(), &[a], &[64, 32]), maker.node(exp(), &[a], &[64, 32]));
    let d = maker.node(add(), &[b, c], &[64, 32]);
    assert_eq!(members(&maker.finish(&[d]), &[0; 4]), [[0, 1, 2, 3]]);

    let mut maker = Maker::new();
    let x = maker.input(&[64, 32]);
    let y = softmax(&mut maker, x);
    let program = maker.finish(&[y]);
    let groups = formed(&program, &[0; 5], StreamMode::Always);
    let block = block_node(&program, &Readers::of(&program), &groups[0].members, 3).expect("a block");
    assert_eq!((groups.len(), block.members.len(), block.rows()), (1, 5, 64));
    assert_eq!((block.inputs.len(), block.outputs.len()), (1, 1));
    // Rows of 32: the input, three wide and two narrow results. Only the quotient leaves the block.
    assert_eq!(block.row_bytes(), 4 * (4 * 32 + 2));
    assert_eq!(block.kept_bytes(&program), 64 * 4 * (2 * 32 + 2));
}

/// Each try looks at the interrupt, so that looks count tries.
#[test]
fn pairs_are_tried_again_only_where_groups_have_grown_and_none_once_it_is_interrupted() {
    let mut maker = Maker::new();
    let mut value = maker.input(&[64, 32]);
    for _ in 0..300 {
        let (left, right) = (maker.node(relu(), &[value], &[64, 32]), maker.node(exp(), &[value], &[64, 32]));
        value = maker.node(add(), &[left, right], &[64, 32]);
    }
    let (program, edges) = (maker.finish(&[value]), 4 * 300 - 2);
    let looks_until = |end: usize| {
        let looks = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&looks);
        let interrupt: Interrupt = Arc::new(move || counter.fetch_add(1, Ordering::Relaxed) >= end);
        let blocks = under(Some(interrupt), || formed(&program, &[0; 900], StreamMode::Always)).len();
        (looks.load(Ordering::Relaxed), blocks)
    };
    let (looks, blocks) = looks_until(usize::MAX);
    assert!(blocks >= 900 / 32 && (edges..=3 * edges).contains(&looks), "{looks} tries, {blocks} blocks");
    assert_eq!(looks_until(0).1, 0);
    let (_, half) = looks_until(edges / 2);
    assert!((1..blocks).contains(&half), "{half} of {blocks} blocks");
}

#[test]
fn what_is_read_whole_stays_outside() {
    // The bias is computed, and cannot be a member, because each row reads all of it.
    let mut maker = Maker::new();
    let (x, bias) = (maker.input(&[64, 32]), maker.input(&[32]));
    let bias = maker.node(relu(), &[bias], &[32]);
    let sum = maker.node(add(), &[x, bias], &[64, 32]);
    let y = maker.node(relu(), &[sum], &[64, 32]);
    assert_eq!(members(&maker.finish(&[y]), &[0; 3]), [[1, 2]]);
}

#[test]
fn a_path_that_leaves_and_comes_back_keeps_nodes_apart() {
    // relu → product → add, and relu → add: all three on one device, but the product is not a member.
    let mut maker = Maker::new();
    let x = maker.input(&[64, 32]);
    let weights = maker.constant(&[32, 32], |at| at as f32);
    let a = maker.node(relu(), &[x], &[64, 32]);
    let product = maker.node(Op::MatMul(MatMul::default()), &[a, weights], &[64, 32]);
    let sum = maker.node(add(), &[a, product], &[64, 32]);
    let y = maker.node(exp(), &[sum], &[64, 32]);
    let program = maker.finish(&[y]);
    assert_eq!(members(&program, &[0; 4]), [[2, 3]]);
    let forced = [BlockMembers { members: [0, 2].map(NodeId).to_vec(), chunk_rows: 1 }];
    let (at, error) = contract(&program, &forced).expect_err("a cycle");
    assert!(at == 0 && error.to_string().contains("comes back through \"node1\""), "{error}");
}

#[test]
fn two_blocks_never_wait_for_each_other() {
    // a0 → b1 and b0 → a1: {a0, a1} and {b0, b1} would each be a block alone, but not both together.
    let mut maker = Maker::new();
    let x = maker.input(&[64, 32]);
    let (a0, b0) = (maker.node(relu(), &[x], &[64, 32]), maker.node(exp(), &[x], &[64, 32]));
    let a1 = maker.node(add(), &[a0, b0], &[64, 32]);
    let b1 = maker.node(add(), &[b0, a0], &[64, 32]);
    let program = maker.finish(&[a1, b1]);
    let group = |members: [u32; 2]| BlockMembers { members: members.map(NodeId).to_vec(), chunk_rows: 1 };
    assert!(contract(&program, &[group([0, 2])]).is_ok());
    let (_, both) = contract(&program, &[group([0, 2]), group([1, 3])]).expect_err("a cycle");
    assert!(both.to_string().starts_with("it waits for itself"), "{both}");
    // On two devices only one of the pairs can be formed; on one device all four nodes are a block.
    assert_eq!(members(&program, &[0, 1, 0, 1]).len(), 1);
    assert_eq!(members(&program, &[0; 4]), [[0, 1, 2, 3]]);
}

#[test]
fn outputs_of_the_program_leave_a_block_from_inside() {
    let mut maker = Maker::new();
    let x = maker.input(&[64, 32]);
    let a = maker.node(relu(), &[x], &[64, 32]);
    let b = maker.node(exp(), &[a], &[64, 32]);
    let c = maker.node(relu(), &[b], &[64, 32]);
    let program = maker.finish(&[b, c]);
    let groups = formed(&program, &[0; 3], StreamMode::Always);
    let contraction = contract(&program, &groups).expect("blocks");
    assert_eq!(check(&program, &contraction), []);
    let node = &contraction.program.nodes[0];
    let operators: Vec<_> = node.operators.iter().map(|operator| &*operator.name).collect();
    assert_eq!((&*node.name, &operators[..]), ("node0/map+map+map", &["node0", "node1", "node2"][..]));
    let Op::Block(block) = &node.spec.op else { panic!("a block") };
    assert_eq!(block.outputs, [1, 2]);
    assert_eq!(contraction.program.outputs.iter().map(|o| o.value).collect::<Vec<_>>(), node.outputs);
}

#[test]
fn a_reduction_over_everything_ends_a_block() {
    let mut maker = Maker::new();
    let x = maker.input(&[64, 32]);
    let a = maker.node(exp(), &[x], &[64, 32]);
    let sum = maker.node(reduce(ReduceKind::Sum, &[0, 1]), &[a], &[1, 1]);
    let b = maker.node(relu(), &[a], &[64, 32]);
    let c = maker.node(relu(), &[sum], &[1, 1]);
    let program = maker.finish(&[b, c]);
    assert_eq!(members(&program, &[0; 4]), [[0, 2, 1]]);
    let behind = block_node(&program, &Readers::of(&program), &[0, 1, 3].map(NodeId), 1).expect_err("nothing follows");
    let behind = behind.to_string();
    assert!(behind.contains("cannot be divided") || behind.contains("reduces over all rows"), "{behind}");
}

#[test]
fn a_node_without_inputs_can_begin_a_block() {
    let mut maker = Maker::new();
    let x = maker.input(&[1, 1]);
    let two = Expression::new(0, vec![Step::Constant(Literal::Float(2.0))]).expect("one step");
    let filled = maker.node(map(two), &[], &[64, 32]);
    let sum = maker.node(reduce(ReduceKind::Sum, &[0, 1]), &[filled], &[1, 1]);
    let last = maker.node(add(), &[sum, x], &[1, 1]);
    let program = maker.finish(&[last]);
    assert_eq!(members(&program, &[0; 3]), [[0, 1]]);
}

#[test]
fn chunks_fit_half_of_the_cache_and_keep_all_threads_busy() {
    let mut maker = Maker::new();
    let x = maker.input(&[65536, 64]);
    let a = maker.node(relu(), &[x], &[65536, 64]);
    let bias = maker.constant(&[64], |at| at as f32);
    let b = maker.node(add(), &[a, bias], &[65536, 64]);
    let program = maker.finish(&[b]);
    let block = block_node(&program, &Readers::of(&program), &[0, 1].map(NodeId), 1).expect("a block");
    assert_eq!((block.rows(), block.row_bytes()), (65536, 3 * 256));
    let rows = |rule, threads, cache| chunk_rows(&block, rule, &MachineDevice { threads, cache, ..cpu_device("cpu0") });
    assert_eq!(rows(ChunkRule::Auto, 1, 1 << 20), (512 << 10) / 768);
    assert_eq!(rows(ChunkRule::Auto, 1, 0), (128 << 10) / 768);
    assert_eq!(rows(ChunkRule::Auto, 64, 1 << 20), 256);
    assert_eq!(rows(ChunkRule::Auto, 4096, 1 << 20), (32 << 10) / 768);
    assert_eq!(rows(ChunkRule::Bytes(1000), 1, 1 << 20), 1);
    assert_eq!(rows(ChunkRule::Rows(7), 1, 1 << 20), 7);
    assert_eq!(rows(ChunkRule::Rows(1 << 40), 1, 1 << 20), 65536);
    // A row that exceeds the cache is streamed only on request.
    let mut maker = Maker::new();
    let mut value = maker.input(&[4, 1 << 18]);
    for _ in 0..2 {
        value = maker.node(reduce(ReduceKind::Max, &[1]), &[value], &[4, 1]);
        let wide = maker.input(&[4, 1 << 18]);
        value = maker.node(add(), &[wide, value], &[4, 1 << 18]);
    }
    let program = maker.finish(&[value]);
    assert_eq!(formed(&program, &[0; 4], StreamMode::Auto), []);
    assert_eq!(formed(&program, &[0; 4], StreamMode::Always).len(), 1);
}

#[test]
fn random_programs_contract_soundly() {
    arbtest::arbtest(|u| {
        let placed = random_program(u, 3)?;
        let device_of: Vec<u32> =
            placed.placement.device_of[..placed.program.nodes.len()].iter().map(|device| device.0).collect();
        let groups = formed(&placed.program, &device_of, StreamMode::Always);
        let contraction = contract(&placed.program, &groups).expect("what is formed is blocks");
        assert_eq!(check(&placed.program, &contraction), []);
        Ok(())
    })
    .budget_ms(400);
}

#[test]
fn damaged_contractions_are_found_out() {
    let mut maker = Maker::new();
    let x = maker.input(&[64, 32]);
    let y = softmax(&mut maker, x);
    let z = maker.node(relu(), &[y], &[64, 32]);
    let program = maker.finish(&[z, y]);
    let groups = [BlockMembers { members: [0, 1, 2, 3, 4].map(NodeId).to_vec(), chunk_rows: 5 }];
    let contraction = contract(&program, &groups).expect("a block");
    assert_eq!(check(&program, &contraction), []);
    let damaged = |damage: &dyn Fn(&mut Contraction)| {
        let mut contraction = contraction.clone();
        damage(&mut contraction);
        check(&program, &contraction)
    };
    let block = |contraction: &mut Contraction, damage: &dyn Fn(&mut anabranch_kernels::op::Block)| {
        let Op::Block(block) = &mut contraction.program.nodes[0].spec.op else { panic!("a block") };
        damage(block);
    };
    type Case<'a> = (&'a dyn Fn(&mut Contraction), &'a str);
    let cases: [Case<'_>; 10] = [
        (&|c| _ = c.members[0].pop(), "is computed 0 times"),
        (&|c| c.members[1] = vec![NodeId(0)], " times"),
        (&|c| c.members[0].swap(1, 2), "computes something else than"),
        (&|c| block(c, &|b| b.members.swap(1, 2)), "computes something else than"),
        (&|c| block(c, &|b| b.members[1].inputs.swap(0, 1)), "reads something else"),
        (&|c| block(c, &|b| b.rows = 48), "does not stream"),
        (&|c| block(c, &|b| b.chunk_rows = 0), "computes something else than"),
        (&|c| block(c, &|b| b.outputs = vec![3]), "produces something else"),
        (&|c| c.program.outputs.swap(0, 1), "the program's output 0 is another value"),
        (&|c| c.program.nodes[1].inputs = vec![ValueId(0)], "reads something else"),
    ];
    for (damage, fault) in cases {
        let found = damaged(damage);
        assert!(found[0].to_string().contains(fault), "{fault}: {found:?}");
    }
    assert_eq!(damaged(cases[0].0).len(), 1);
    assert!(
        !damaged(&|c| {
            c.program.nodes.swap(0, 1);
            c.members.swap(0, 1);
        })
        .is_empty()
    );
}
