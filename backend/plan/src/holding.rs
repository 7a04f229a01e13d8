//! Items in a device's memory, and the nodes that would have to leave the device to free them.

use super::memory::{Frame, MemoryPlan, SharedConstant};
use anabranch_ir::program::{NodeId, Origin, ValueId};
use anabranch_placement_core::platform::DeviceId;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// An item in a device's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Kind of the item.
    pub what: MemoryItem,
    /// Size in bytes.
    pub bytes: u64,
    /// Positions of the total order between which the item is in memory.
    pub places: RangeInclusive<u32>,
    /// Nodes of the device that need the item: it is freed when all of them are gone. Empty if the item does not depend
    /// on nodes.
    pub nodes: Vec<NodeId>,
}

/// Kind of an item in a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryItem {
    /// A constant, packed or unpacked.
    Constant(ValueId),
    /// Memory that a kernel keeps for its node alone.
    Table,
    /// Scratch memory: the amount by which some nodes need more than all other nodes.
    Scratch,
    /// A value in a slot.
    Value(ValueId),
    /// The caller's tensors, buffers of streams and staging buffers of links.
    Edges,
}

impl Frame<'_> {
    /// Lists all items in the memory of `device`. Values share slots, which together may be larger than their values at
    /// any position.
    pub(super) fn holdings(&self, memory: &MemoryPlan, device: DeviceId) -> Vec<Holding> {
        let used = &memory.devices()[device.index()];
        let always = 0..=self.steps.len() as u32;
        let held = |what, bytes, nodes| Holding { what, bytes, places: always.clone(), nodes };
        let nodes: Vec<NodeId> =
            self.program.node_ids().filter(|node| self.device_of[node.index()] == device).collect();
        let mut holdings = vec![held(MemoryItem::Edges, used.given + used.rings + used.staging, Vec::new())];
        holdings.extend(used.shared.iter().map(|constant| {
            let reads = |node: &&NodeId| self.keeps(memory, **node, constant);
            let readers = if self.is_output(constant.value, device) {
                Vec::new()
            } else {
                nodes.iter().filter(reads).copied().collect()
            };
            held(MemoryItem::Constant(constant.value), constant.bytes, readers)
        }));
        let tables = nodes.iter().map(|node| held(MemoryItem::Table, memory.needs(*node).resident, vec![*node]));
        holdings.extend(tables.filter(|table| table.bytes > 0));
        let sizes: BTreeSet<u64> = nodes.iter().map(|node| memory.needs(*node).scratch).chain([0]).collect();
        holdings.extend(sizes.iter().zip(sizes.iter().skip(1)).map(|(less, more)| {
            let wants = nodes.iter().filter(|node| memory.needs(**node).scratch >= *more);
            held(MemoryItem::Scratch, more - less, wants.copied().collect())
        }));
        let values = memory.allocations().iter().filter(|allocation| allocation.device == device);
        holdings.extend(values.map(|allocation| Holding {
            what: MemoryItem::Value(allocation.value),
            bytes: allocation.bytes,
            places: allocation.from..=allocation.until,
            nodes: self.touching(allocation.value, device),
        }));
        holdings
    }

    /// Whether a node keeps a constant in this form.
    fn keeps(&self, memory: &MemoryPlan, node: NodeId, constant: &SharedConstant) -> bool {
        let needs = memory.needs(node);
        match &constant.layout {
            Some(layout) => {
                needs.packed.iter().any(|packed| packed.value == constant.value && packed.layout == *layout)
            }
            None => {
                let inputs = self.program.node(node).inputs.iter().enumerate();
                inputs.filter(|(_, value)| **value == constant.value).any(|(at, _)| needs.is_read(at))
            }
        }
    }

    /// Whether the caller receives a value on a device.
    fn is_output(&self, value: ValueId, device: DeviceId) -> bool {
        let mut outputs = self.program.outputs.iter().enumerate();
        outputs.any(|(index, output)| {
            output.value == value && super::uses::output_device(self.program, self.device_of, index) == device
        })
    }

    /// Nodes of a device that make or read a value; empty if the caller gives or receives it there.
    fn touching(&self, value: ValueId, device: DeviceId) -> Vec<NodeId> {
        let readers = self.uses.on(value, device);
        let given = matches!(self.program.value(value).origin, Origin::Input)
            && super::uses::origin(self.program, self.device_of, value) == Some(device);
        if given || readers.iter().any(|(_, reader)| reader.node().is_none()) {
            return Vec::new();
        }
        let maker = match self.program.value(value).origin {
            Origin::Node(node) if self.device_of[node.index()] == device => Some(node),
            Origin::Node(_) | Origin::Input | Origin::Constant(_) => None,
        };
        let nodes: BTreeSet<NodeId> = readers.iter().filter_map(|(_, reader)| reader.node()).chain(maker).collect();
        nodes.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_programs::random_program;
    use crate::{PlanError, PlanOptions};

    /// Items other than values make up the whole peak except the slots, and values need no more than their slots.
    #[test]
    fn holdings_are_what_a_peak_is_made_of() {
        arbtest::arbtest(|u| {
            let placed = random_program(u, 3)?;
            let plan = placed.plan(&PlanOptions::default()).expect("no limit");
            let peaks = plan.memory().devices().iter().map(|memory| memory.peak());
            for (short, _) in peaks.enumerate().filter(|(_, peak)| *peak > 0) {
                let none_there = placed.limited(|device| if device == short { 0 } else { u64::MAX });
                let Err(PlanError::Memory(shortage)) = none_there.plan(&PlanOptions::default()) else {
                    panic!("nothing fits into no memory");
                };
                let (values, rest): (Vec<_>, Vec<_>) =
                    shortage.holdings.iter().partition(|holding| matches!(holding.what, MemoryItem::Value(_)));
                let slots = shortage.needed - rest.iter().map(|holding| holding.bytes).sum::<u64>();
                let alive = |place: u32| {
                    let there = values.iter().filter(|value| value.places.contains(&place));
                    there.map(|value| value.bytes).sum::<u64>()
                };
                let most = (0..=plan.steps().len() as u32).map(alive).max();
                assert!(most <= Some(slots), "{most:?} bytes of values in {slots} of slots");
                let mut nodes = shortage.holdings.iter().flat_map(|holding| &holding.nodes);
                assert!(nodes.all(|node| plan.device_of(*node).index() == short));
            }
            Ok(())
        })
        .budget_ms(300);
    }

    /// A chain whose middle node alone is on another device: the value that it reads stays for its maker, the value
    /// that it makes stays for its reader.
    #[test]
    fn a_value_is_held_by_all_who_touch_it() {
        let placed = crate::test_programs::PlacedProgram::chain(&["cpu", "gpu"], &[0, 1, 0], &[8]);
        let placed = placed.limited(|device| if device == 0 { 0 } else { u64::MAX });
        let Err(PlanError::Memory(shortage)) = placed.plan(&PlanOptions::default()) else { panic!("no memory") };
        let values = shortage.holdings.iter().filter(|holding| matches!(holding.what, MemoryItem::Value(_)));
        let nodes: Vec<Vec<u32>> = values.map(|value| value.nodes.iter().map(|node| node.0).collect()).collect();
        assert_eq!(nodes, [vec![0], vec![2], vec![]], "the last is the caller's");
    }
}
