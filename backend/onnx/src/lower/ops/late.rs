//! Operators whose results alone determine their shapes: computed now if all their inputs are known, else steps between
//! programs.

use super::{Builder, Entry, Fault, Operator, View};
use crate::host_operators::{Call, MAP, RegionSettings, Work, host_operator};
use crate::item::Item;
use anabranch_base::interruption;
use anabranch_kernels::cpu::{Interrupt, Team};
use std::sync::Arc;

/// Most input elements of a node with superlinear work that is computed while a model is lowered.
const MOST_ELEMENTS: usize = 1 << 20;

/// Most bytes that a node computed during lowering may take besides its inputs.
const MOST_MEMORY: u64 = 1 << 29;

pub(super) const TABLE: &[Entry] = &[
    ("NonZero", |operator, builder| match known(operator, builder)? {
        Some(views) => Ok(views),
        None => Err(Fault::run_time(operator.input(0)?.value, 0, "X")),
    }),
    ("BitCast", |operator, builder| {
        let why = || Fault::unsupported("a bit cast on the host, between two phases");
        known(operator, builder)?.ok_or_else(why)
    }),
    ("RoiAlign", |operator, builder| {
        RegionSettings::of(operator.node)?;
        let why = || Fault::unsupported("its points are computed on the host, between two phases");
        known(operator, builder)?.ok_or_else(why)
    }),
    ("Unique", late),
    ("NonMaxSuppression", late),
    ("SequenceEmpty", late),
    ("SequenceConstruct", late),
    ("SequenceInsert", late),
    ("SequenceErase", late),
    ("SequenceAt", late),
    ("SequenceLength", late),
    ("SplitToSequence", late),
    ("ConcatFromSequence", late),
    (MAP, late),
];

fn late(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let why = || Fault::unsupported("the shape of its result is known only after it is computed");
    known(operator, builder)?.ok_or_else(why)
}

/// Returns the operator's tensors, if all its inputs are known and it takes little time and memory: runs have a team
/// and a budget for it.
fn known(operator: &Operator<'_>, builder: &mut Builder) -> Result<Option<Vec<View>>, Fault> {
    let views = (0..operator.count()).filter_map(|index| operator.optional(index));
    let elements = views.map(|view| view.shape().elements()).fold(0, usize::saturating_add);
    if elements > MOST_ELEMENTS && matches!(&*operator.node.op_type, "RoiAlign" | "Unique" | "NonMaxSuppression") {
        return Ok(None);
    }
    let mut inputs = Vec::with_capacity(operator.count());
    for index in 0..operator.count() {
        let Some(view) = operator.optional(index) else {
            inputs.push(None);
            continue;
        };
        let Some(tensor) = builder.tensor(view) else { return Ok(None) };
        inputs.push(Some(Item::Tensor(tensor)));
    }
    let Some(compute) = host_operator(operator.node) else { return Ok(None) };
    let team = Team::solo();
    let given: u64 = inputs.iter().flatten().map(Item::bytes).sum();
    // The team has this thread alone, whose interrupts these are.
    let interrupt: Interrupt = Arc::new(interruption::is_due);
    let _watched = team.watch(Arc::clone(&interrupt));
    let work = Work::new(&team, Some(&interrupt), given.saturating_add(MOST_MEMORY));
    let items = match (Call { node: operator.node, inputs: &inputs, work: &work }).made_by(compute) {
        Err(fault) if fault.is_memory() => return Ok(None),
        made => made?,
    };
    let tensors: Option<Vec<_>> =
        items.into_iter().map(|item| if let Item::Tensor(tensor) = item { Some(tensor) } else { None }).collect();
    tensors.map(|tensors| tensors.into_iter().map(|tensor| builder.made(tensor)).collect()).transpose()
}

#[cfg(test)]
mod tests {
    use super::super::testing::lowered;
    use crate::import::proto::{NodeProto, TensorProto, data_type};
    use anabranch_base::interruption;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn what_is_computed_early_asks_whether_to_end() {
        let floats = |name, dims: &[i64], values: Vec<f32>| {
            let bytes = values.into_iter().flat_map(f32::to_le_bytes).collect();
            TensorProto::raw(name, data_type::FLOAT, dims, bytes)
        };
        let count = 20_000;
        // No box overlaps another.
        let boxes = (0..count).flat_map(|at| [at as f32, 0.0, at as f32 + 0.5, 1.0]).collect();
        let constants = vec![
            floats("boxes", &[1, count, 4], boxes),
            floats("scores", &[1, 1, count], vec![1.0; count as usize]),
            TensorProto::raw("most", data_type::INT64, &[], i64::MAX.to_le_bytes().to_vec()),
        ];
        let asked = Arc::new(AtomicUsize::new(0));
        let asks = Arc::clone(&asked);
        let interrupt = move || asks.fetch_add(1, Ordering::Relaxed) > 20;
        let node = NodeProto::of("NonMaxSuppression", &["boxes", "scores", "most"], &["y"]);
        let ended = interruption::under(Some(Arc::new(interrupt)), || lowered(node, Vec::new(), constants));
        assert!(ended.is_err() && asked.load(Ordering::Relaxed) > 20, "asked {asked:?} times");
    }
}
