//! Work of a model that runs: arithmetic, bytes, memory, and nodes without a GPU kernel.

use super::{PlanChoice, Strategy, Table, amount, format_bytes, sentence};
use anabranch::planning::Planned;
use anabranch::session::{Inputs, Session};
use anabranch_report::text::count;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Work of one run, for the inputs' shapes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Work {
    /// Number of nodes after lowering and fusion.
    nodes: usize,
    /// Number of arithmetic operations; a multiply-add counts as two.
    flops: f64,
    bytes_read: f64,
    bytes_written: f64,
    /// Memory of a plan if everything runs on one device.
    memory: Vec<Memory>,
    /// Nodes without a GPU kernel.
    without_gpu_kernel: Vec<Missing>,
}

#[derive(Clone, Debug, Serialize)]
struct Memory {
    /// Place of all nodes: on CPU devices or on GPUs.
    place: String,
    device: String,
    peak_bytes: u64,
    /// Constants and the kernels' own data among the peak.
    resident_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Missing {
    node: String,
    /// Operators of the model in it.
    operators: Vec<String>,
    reason: String,
}

impl Work {
    /// Returns the work of a program that is planned for the host alone.
    pub(super) fn of(session: &Session, inputs: &Inputs, planned: &Planned) -> Self {
        let program = &planned.program;
        let total = |part: fn(&anabranch_kernels::op::Work) -> f64| {
            program.nodes.iter().map(|node| part(&node.spec.work())).sum()
        };
        let missing = program.nodes.iter().zip(session.gpu_refusals(program)).filter_map(|(node, refusal)| {
            let operators = node.operators.iter().map(|operator| operator.kind.clone()).collect();
            Some(Missing { node: node.name.clone(), operators, reason: refusal?.to_string() })
        });
        let without_gpu_kernel: Vec<_> = missing.collect();
        let gpu = PlanChoice { strategy: Strategy::GPU, ..session.choice() };
        let on_gpu = if session.inventory().gpus.is_empty() { None } else { session.plan_with(inputs, &gpu).ok() };
        Self {
            nodes: program.nodes.len(),
            flops: total(|work| work.flops),
            bytes_read: total(|work| work.bytes_read),
            bytes_written: total(|work| work.bytes_written),
            memory: [Some(planned), on_gpu.as_deref()].into_iter().flatten().flat_map(Memory::of).collect(),
            without_gpu_kernel,
        }
    }
}

impl Memory {
    /// Returns the memory of a plan on the devices that it uses.
    fn of(planned: &Planned) -> Vec<Self> {
        let plan = planned.plan();
        let devices = plan.devices().iter().zip(plan.memory().devices());
        let used = devices.filter(|(_, memory)| memory.peak() > 0);
        let memory = used.map(|(device, memory)| Self {
            place: plan.strategy().to_owned(),
            device: device.name.clone(),
            peak_bytes: memory.peak(),
            resident_bytes: memory.resident(),
        });
        memory.collect()
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: f64| format_bytes(bytes as u64);
        let [flops, read, written] = [amount(self.flops), bytes(self.bytes_read), bytes(self.bytes_written)];
        writeln!(f, "  one run: {}, {flops} FLOP, {read} read, {written} written\n", count(self.nodes, "node"))?;
        let mut memory = Table::new("all on | device | >peak memory | >of that stays");
        for Memory { place, device, peak_bytes, resident_bytes } in &self.memory {
            memory.row([place.clone(), device.clone(), format_bytes(*peak_bytes), format_bytes(*resident_bytes)]);
        }
        writeln!(f, "{memory}")?;
        if self.without_gpu_kernel.is_empty() {
            return writeln!(f, "  every node has a GPU kernel");
        }
        writeln!(f, "  {} of {} nodes have no GPU kernel:", self.without_gpu_kernel.len(), self.nodes)?;
        // Equal reasons are listed once.
        let mut by_reason: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
        for Missing { node, operators, reason } in &self.without_gpu_kernel {
            by_reason.entry((operators.join("+"), reason)).or_default().push(node);
        }
        for ((operators, reason), nodes) in by_reason {
            let others = if nodes.len() > 1 { format!(" and {} more", nodes.len() - 1) } else { String::new() };
            f.write_str(&sentence(&format!("{operators}: {reason} (`{}`{others})", nodes[0])))?;
        }
        Ok(())
    }
}
