//! An independent checker of plans: replays the total order and follows every value through memory.
//!
//! Nothing here is shared with the code that makes plans. The replay itself finds the uses of a value's memory. A node
//! that reads a value on a device reads the value's own slot there. If there is none (shared memory, streams), it reads
//! the slot in which the value was made. Events in a gang count as lasting for the whole gang.

mod in_place;
mod streams;

use super::{HOST, InPlace, PackedConstant, Plan, Route, Step, TransferId};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use std::collections::{BTreeMap, BTreeSet};

/// A fault of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A step that is not exactly once in the order.
    #[error("{0:?} occurs {1} times in the order, not once")]
    Count(Step, usize),
    /// A step before its input value is on the device.
    #[error("{0:?} runs before {1:?} is on {2:?}")]
    NotThere(Step, ValueId, DeviceId),
    /// A value sent twice to a device, to the device that makes it, or to a device without a reader.
    #[error("{0:?} is redundant: the value is already there, or unused")]
    Transfer(TransferId),
    /// A stream that is not in a gang with its only reader and its producer, or does not fit them.
    #[error("the stream of {0:?} does not match its reader and producer")]
    Stream(TransferId),
    /// A gang, by its first position, whose members cannot run at the same time.
    #[error("the steps from position {0} on cannot run at the same time")]
    Gang(usize),
    /// A link that does not list the transfers between its ends, in order.
    #[error("the link from {0:?} to {1:?} does not list its transfers in order")]
    Link(DeviceId, DeviceId),
    /// A value without memory on a device where it is made or arrives.
    #[error("{0:?} has no memory on {1:?}")]
    NoMemory(ValueId, DeviceId),
    /// A slot that is smaller than a value in it.
    #[error("the slot of {0:?} on {1:?} is too small")]
    Small(ValueId, DeviceId),
    /// Two values in one slot at the same time: the first is still used when the second arrives.
    #[error("{0:?} and {1:?} use one slot on {2:?} at the same time")]
    Clash(ValueId, ValueId, DeviceId),
    /// A part of a device's memory that differs from the plan: the part, the plan's figure, the true figure.
    #[error("{1} on {0:?}: {3} bytes, but the plan states {2}")]
    Figure(DeviceId, &'static str, u64, u64),
    /// An input and an output in one memory, of which one has a use that the other spoils.
    #[error("{0:?} and {1:?} cannot share memory")]
    InPlace(ValueId, ValueId),
    /// A device whose peak exceeds its limit.
    #[error("the peak memory on {0:?} exceeds its limit")]
    Limit(DeviceId),
}

/// Returns all faults of `plan` for `program`; none for a plan from [`Plan::build`]. O(s log s + p s) for
/// s steps and p outputs in the memory of inputs.
pub fn check(program: &Program, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    counts(program, plan, &mut found);
    if found.is_empty() {
        let sent = sent_constants(program, plan);
        availability(program, plan, &sent, &mut found);
        streams::judge(program, plan, &mut found);
        links(program, plan, &mut found);
        let in_place = InPlace::all(plan, program);
        clashes(program, plan, &sent, &in_place, &mut found);
        figures(program, plan, &sent, &in_place, &mut found);
        in_place::judge(program, plan, &sent, &in_place, &mut found);
    }
    found
}

fn counts(program: &Program, plan: &Plan, found: &mut Vec<Violation>) {
    let mut expected: BTreeSet<Step> = (0..program.inputs.len()).map(Step::Input).collect();
    expected.extend(program.node_ids().map(Step::Node));
    expected.extend((0..program.outputs.len()).map(Step::Output));
    expected.extend((0..plan.transfers().len()).map(|at| Step::Transfer(TransferId(at as u32))));
    let mut times: BTreeMap<Step, usize> = BTreeMap::new();
    for step in plan.steps() {
        *times.entry(*step).or_default() += 1;
    }
    let wrong = |step: &Step| {
        let wanted = usize::from(expected.contains(step));
        let times = times.get(step).copied().unwrap_or(0);
        (times != wanted).then_some(Violation::Count(*step, times))
    };
    let all: BTreeSet<Step> = expected.iter().chain(times.keys()).copied().collect();
    found.extend(all.iter().filter_map(wrong));
}

/// Replays the order and checks that every value is present when it is needed, and is sent once and has a reader.
fn availability(program: &Program, plan: &Plan, sent: &Sent, found: &mut Vec<Violation>) {
    let mut there: BTreeSet<(DeviceId, ValueId)> = BTreeSet::new();
    let mut unread: BTreeMap<(DeviceId, ValueId), TransferId> = BTreeMap::new();
    for step in plan.steps() {
        for (device, value) in reads(program, plan, sent, *step) {
            if !there.contains(&(device, value)) {
                found.push(Violation::NotThere(*step, value, device));
            }
            if !matches!(step, Step::Transfer(_)) {
                unread.remove(&(device, value));
            }
        }
        for place in writes(program, plan, *step) {
            let fresh = there.insert(place);
            if let Step::Transfer(id) = step {
                unread.insert(place, *id);
                if !fresh {
                    found.push(Violation::Transfer(*id));
                }
            }
        }
    }
    found.extend(unread.into_values().map(Violation::Transfer));
}

/// Returns the values that a step reads, with their devices. Constants are on all devices except where they are sent.
fn reads(program: &Program, plan: &Plan, sent: &Sent, step: Step) -> Vec<(DeviceId, ValueId)> {
    let (device, values) = match step {
        Step::Input(_) => return Vec::new(),
        Step::Node(node) => (plan.device_of(node), program.node(node).inputs.clone()),
        Step::Transfer(id) => (plan.transfer(id).from, vec![plan.transfer(id).value]),
        Step::Output(index) => (plan.output_device(index), vec![program.outputs[index].value]),
    };
    let resident = |value: &ValueId| program.constant(*value).is_some() && !sent.contains(&(device, *value));
    values.into_iter().filter(|value| !resident(value)).map(|value| (device, value)).collect()
}

/// Constants that are sent, with their target devices.
type Sent = BTreeSet<(DeviceId, ValueId)>;

fn sent_constants(program: &Program, plan: &Plan) -> Sent {
    let constants = plan.transfers().iter().filter(|transfer| program.constant(transfer.value).is_some());
    constants.map(|transfer| (transfer.to, transfer.value)).collect()
}

fn writes(program: &Program, plan: &Plan, step: Step) -> Vec<(DeviceId, ValueId)> {
    match step {
        Step::Input(index) => vec![(plan.input_device(index), program.inputs[index])],
        Step::Node(node) => program.node(node).outputs.iter().map(|value| (plan.device_of(node), *value)).collect(),
        Step::Transfer(id) => vec![(plan.transfer(id).to, plan.transfer(id).value)],
        Step::Output(_) => Vec::new(),
    }
}

fn links(program: &Program, plan: &Plan, found: &mut Vec<Violation>) {
    let mut moved: BTreeMap<(DeviceId, DeviceId), Vec<TransferId>> = BTreeMap::new();
    for step in plan.steps() {
        if let Step::Transfer(id) = step {
            let transfer = plan.transfer(*id);
            let cpus = [transfer.from, transfer.to].iter().all(|end| plan.device(*end).kind == DeviceKind::Cpu);
            let shared = match &transfer.route {
                Route::Shared => cpus,
                Route::Copied => !cpus,
                Route::Streamed(stream) => !cpus || stream.producer.is_some(),
            };
            let kept = program.constant(transfer.value).is_none() || transfer.from == HOST;
            if !shared || !kept {
                found.push(Violation::Transfer(*id));
            }
            if !cpus {
                moved.entry((transfer.from, transfer.to)).or_default().push(*id);
            }
        }
    }
    for link in plan.links() {
        if moved.remove(&(link.from, link.to)).as_ref() != Some(&link.transfers) {
            found.push(Violation::Link(link.from, link.to));
        }
    }
    found.extend(moved.into_keys().map(|(from, to)| Violation::Link(from, to)));
}

/// Finds each value's last use in each memory, then replays all arrivals and checks whether the slot is still in use.
fn clashes(program: &Program, plan: &Plan, sent: &Sent, in_place: &[InPlace], found: &mut Vec<Violation>) {
    let shares = |from, to| {
        in_place.iter().any(|pair| (program.inputs[pair.input], program.outputs[pair.output].value) == (from, to))
    };
    let slot = |device, value| plan.memory().home(device, value).map(|allocation| (device, allocation.slot));
    let mut last: BTreeMap<(DeviceId, ValueId), usize> = BTreeMap::new();
    for (place, step) in plan.steps().iter().enumerate() {
        for (device, value) in reads(program, plan, sent, *step) {
            let made = plan.origin(program, value).unwrap_or(device);
            let owner = if slot(device, value).is_some() { device } else { made };
            let until = match step {
                Step::Output(_) if device == HOST => usize::MAX,
                _ => streams::span(plan, place).1,
            };
            let known = last.entry((owner, value)).or_default();
            *known = until.max(*known);
        }
    }
    let passed_through = streams::passed_through(plan);
    let mut occupant: BTreeMap<(DeviceId, usize), (ValueId, usize)> = BTreeMap::new();
    for (place, step) in plan.steps().iter().enumerate() {
        let lands = match step {
            Step::Output(_) => false,
            Step::Input(index) => plan.device(plan.input_device(*index)).kind == DeviceKind::Gpu,
            Step::Node(_) => true,
            Step::Transfer(id) => {
                let transfer = plan.transfer(*id);
                let through = plan.device(transfer.to).kind == DeviceKind::Cpu && transfer.stream().is_some();
                transfer.route != Route::Shared && !through
            }
        };
        // Events in a gang may happen from its beginning on.
        let place = streams::span(plan, place).0;
        let lands = |(device, value): &(DeviceId, ValueId)| lands && !passed_through.contains(&(*device, *value));
        for (device, value) in writes(program, plan, *step).into_iter().filter(lands) {
            let Some(slot) = slot(device, value) else {
                found.push(Violation::NoMemory(value, device));
                continue;
            };
            let size = plan.memory().devices()[device.index()].slots.get(slot.1).copied().unwrap_or(0);
            if size < program.value(value).spec.bytes() as u64 {
                found.push(Violation::Small(value, device));
            }
            let until = last.get(&(device, value)).copied().unwrap_or(place);
            if let Some((other, busy)) = occupant.insert(slot, (value, until))
                && busy >= place
                && !shares(other, value)
            {
                found.push(Violation::Clash(other, value, device));
            }
        }
    }
}

/// Adds up every device's memory again.
fn figures(program: &Program, plan: &Plan, sent: &Sent, in_place: &[InPlace], found: &mut Vec<Violation>) {
    let in_place: BTreeSet<ValueId> = in_place.iter().map(|pair| program.outputs[pair.output].value).collect();
    let mut counted: BTreeSet<ValueId> = BTreeSet::new();
    let mut packed: BTreeSet<&PackedConstant> = BTreeSet::new();
    for (index, device) in plan.devices().iter().enumerate() {
        let id = DeviceId(index as u32);
        let said = &plan.memory().devices()[index];
        let nodes: Vec<NodeId> = program.node_ids().filter(|node| plan.device_of(*node) == id).collect();
        let needs = || nodes.iter().map(|node| plan.memory().needs(*node));
        let mut constants: BTreeSet<ValueId> = BTreeSet::new();
        let inputs = program.inputs.iter().enumerate().filter(|(at, _)| plan.input_device(*at) == id);
        let outputs = program.outputs.iter().enumerate().filter(|(at, _)| plan.output_device(*at) == id);
        let outputs = || outputs.clone().map(|(_, output)| output.value);
        constants.extend(outputs().filter(|value| program.constant(*value).is_some()));
        for node in &nodes {
            let reads = &plan.memory().needs(*node).reads;
            let inputs = program.node(*node).inputs.iter().enumerate();
            let read = inputs.filter(|(at, _)| reads.get(*at).copied().unwrap_or(true)).map(|(_, value)| *value);
            constants.extend(read.filter(|value| program.constant(*value).is_some() && !sent.contains(&(id, *value))));
        }
        if id == HOST {
            constants.extend(sent.iter().map(|(_, value)| *value));
        }
        if device.kind == DeviceKind::Cpu {
            constants.retain(|value| counted.insert(*value));
        }
        let kept = needs().flat_map(|needs| &needs.packed).filter(|constant| packed.insert(constant));
        let kept: u64 = kept.map(|constant| constant.layout.bytes() as u64).sum();
        let size = |value: &ValueId| program.value(*value).spec.bytes() as u64;
        // A GPU's buffers are whole words, at least one.
        let whole = |bytes: u64| if device.kind == DeviceKind::Cpu { bytes } else { bytes.div_ceil(4).max(1) * 4 };
        let copied = outputs().filter(|value| device.kind == DeviceKind::Gpu && !in_place.contains(value));
        let given = inputs.map(|(_, value)| *value).chain(copied).map(|value| whole(size(&value))).sum();
        let parts = [
            ("constants", said.constants, constants.iter().map(|value| whole(size(value))).sum()),
            ("kernels", said.kernels, needs().map(|needs| needs.resident).sum::<u64>() + kept),
            ("scratch", said.scratch, needs().map(|needs| needs.scratch).max().unwrap_or(0)),
            ("inputs", said.given, given),
            ("rings", said.rings, streams::rings(program, plan, id)),
        ];
        let wrong = parts.iter().filter(|(_, said, is)| said != is);
        found.extend(wrong.map(|(part, said, is)| Violation::Figure(id, part, *said, *is)));
        let total = parts.iter().map(|(_, _, is)| is).chain(&said.slots).chain([&said.staging]).sum::<u64>();
        if total != said.peak() {
            found.push(Violation::Figure(id, "peak", said.peak(), total));
        }
        if !device.limit.admits(total) {
            found.push(Violation::Limit(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_programs::{Maker, PlacedProgram, add, random_program, random_residency, relu};
    use crate::{ChunkRule, PlanError, PlanOptions, StreamMode};

    /// Two branches over three devices, joined on the host.
    fn fork() -> PlacedProgram {
        let mut maker = Maker::new();
        let x = maker.input(&[8, 16]);
        let a = maker.node(relu(), &[x], &[8, 16]);
        let b = maker.node(relu(), &[a], &[8, 16]);
        let c = maker.node(relu(), &[a], &[8, 16]);
        let d = maker.node(add(), &[b, c], &[8, 16]);
        PlacedProgram::new(maker.finish(&[d, a]), &["cpu", "cpu", "gpu"], &[1, 0, 2, 0])
    }

    #[test]
    fn built_plans_pass() {
        let placed = fork();
        for streaming in [StreamMode::Auto, StreamMode::Always] {
            let options = PlanOptions { streaming, chunk: ChunkRule::Rows(1), ..PlanOptions::default() };
            let plan = placed.plan(&options).expect("feasible");
            assert_eq!(check(&placed.program, &plan), []);
        }
    }

    #[test]
    fn broken_plans_are_found_out() {
        let placed = fork();
        let plan =
            placed.plan(&PlanOptions { streaming: StreamMode::Off, ..PlanOptions::default() }).expect("feasible");
        let broken = |damage: &dyn Fn(&mut Plan)| {
            let mut plan = plan.clone();
            damage(&mut plan);
            check(&placed.program, &plan)
        };
        assert!(matches!(broken(&|p| p.steps.truncate(3))[0], Violation::Count(..)));
        assert!(matches!(broken(&|p| p.steps.reverse())[0], Violation::NotThere(..)));
        assert!(broken(&|p| p.links.clear()).iter().any(|v| matches!(v, Violation::Link(..))));
        let merged = broken(&|p| {
            p.memory = p.memory.clone().with_all_in_slot_0();
        });
        assert!(merged.iter().any(|v| matches!(v, Violation::Clash(..))), "{merged:?}");
        let doubled = broken(&|p| {
            let copy = p.transfers[0].clone();
            p.steps.push(Step::Transfer(TransferId(p.transfers.len() as u32)));
            p.transfers.push(copy);
        });
        assert!(doubled.iter().any(|v| matches!(v, Violation::Transfer(_))), "{doubled:?}");
        assert!(broken(&|p| p.devices[0].limit = 1.into()).contains(&Violation::Limit(DeviceId(0))));
    }

    #[test]
    fn broken_gangs_are_found_out() {
        let mut maker = Maker::new();
        let x = maker.input(&[8, 16]);
        let a = maker.node(relu(), &[x], &[8, 16]);
        let b = maker.node(relu(), &[a], &[8, 16]);
        let c = maker.node(add(), &[a, b], &[8, 16]);
        let placed = PlacedProgram::new(maker.finish(&[c]), &["cpu", "cpu", "gpu"], &[1, 2, 0]);
        let options =
            PlanOptions { streaming: StreamMode::Always, chunk: ChunkRule::Rows(7), ..PlanOptions::default() };
        let plan = placed.plan(&options).expect("feasible");
        assert_eq!((check(&placed.program, &plan), plan.gangs().len()), (vec![], 1));
        let broken = |damage: &dyn Fn(&mut Plan)| {
            let mut plan = plan.clone();
            damage(&mut plan);
            check(&placed.program, &plan)
        };
        let stream = |found: &[Violation]| found.iter().any(|violation| matches!(violation, Violation::Stream(_)));
        let gang = |found: &[Violation]| found.iter().any(|violation| matches!(violation, Violation::Gang(_)));
        assert!(stream(&broken(&|p| p.gangs.clear())), "a stream without its gang");
        assert!(stream(&broken(&|p| p.gangs[0].end -= 1)), "a reader outside of it");
        assert!(gang(&broken(&|p| p.gangs[0].end += 1)), "an output inside");
        assert!(gang(&broken(&|p| p.gangs.push(p.gangs[0].clone()))), "the same twice");
        assert!(gang(&broken(&|p| p.device_of[1] = DeviceId(1))), "two members on one device");
        assert!(stream(&broken(&|p| *p = p.clone().with_capacity(1))), "no overlap");
        let damaged = |damage: &dyn Fn(&mut crate::Stream)| {
            broken(&|p| {
                let streamed = p.transfers.iter_mut().find(|transfer| transfer.stream().is_some());
                if let Some(Route::Streamed(stream)) = streamed.map(|transfer| &mut transfer.route) {
                    damage(stream);
                }
            })
        };
        assert!(gang(&damaged(&|s| s.chunk_rows += 1)), "chunks of two sizes");
        assert!(stream(&damaged(&|s| s.producer = None)), "whole before, but it is not");
        assert!(stream(&damaged(&|s| s.rows *= 2)), "rows that the value does not have");
        assert!(stream(&damaged(&|s| s.input = 7)), "no such input");
    }

    #[test]
    fn random_plans_pass_and_their_peak_is_the_least_limit() {
        arbtest::arbtest(|u| {
            let placed = random_program(u, 3)?;
            let options = PlanOptions {
                streaming: StreamMode::Always,
                chunk: ChunkRule::Rows(u.int_in_range(1..=5)?),
                weights: random_residency(u, &placed)?,
                ..PlanOptions::default()
            };
            let plan = placed.plan(&options).expect("no limit");
            assert_eq!(check(&placed.program, &plan), []);
            let peaks: Vec<u64> = plan.memory().devices().iter().map(super::super::DeviceMemory::peak).collect();
            let exact = placed.limited(|device| peaks[device]).plan(&options).expect("exactly the peak is enough");
            assert_eq!(check(&placed.program, &exact), []);
            for (device, peak) in peaks.into_iter().enumerate().filter(|(_, peak)| *peak > 0) {
                let one_short = |peak: u64| {
                    let short = |other: usize| if other == device { peak - 1 } else { u64::MAX };
                    placed.limited(short).plan(&options)
                };
                // The first missing byte may only cost the slots that avoid waiting, the next byte the early sending of
                // weights.
                let mut least = peak;
                while let Ok(tight) = one_short(least) {
                    assert_eq!(check(&placed.program, &tight), []);
                    let taken = tight.memory().devices()[device].peak();
                    assert!(taken < least, "{taken} of {least} bytes less one");
                    least = taken;
                }
                match one_short(least) {
                    Err(PlanError::Memory(shortage)) => {
                        assert_eq!((shortage.needed, shortage.available), (least, least - 1));
                        assert_eq!(shortage.device, placed.devices[device].name);
                    }
                    other => panic!("one byte too few on {device} gave {other:?}"),
                }
            }
            Ok(())
        })
        .budget_ms(600);
    }
}
