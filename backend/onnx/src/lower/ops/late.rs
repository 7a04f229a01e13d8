//! Operators whose results alone determine their shapes: computed now if all their inputs are known, else steps between
//! programs.

use super::{Builder, Entry, Fault, Operator, View};
use crate::host_operators::{Call, MAP, RegionSettings, Work, host_operator};
use crate::item::Item;
use anabranch_kernels::cpu::Team;

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
        let why = || Fault::unsupported("its elements are read as another type on the host, between two programs");
        known(operator, builder)?.ok_or_else(why)
    }),
    ("RoiAlign", |operator, builder| {
        RegionSettings::of(operator.node)?;
        let why = || Fault::unsupported("its points are found on the host, between two programs");
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
    let why = || Fault::unsupported("the shape of its result is known only after it was computed");
    known(operator, builder)?.ok_or_else(why)
}

/// Returns the operator's tensors, if all its inputs are known and it takes little time and memory: a run can be
/// interrupted, lowering cannot.
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
    let work = Work::new(&team, None, given.saturating_add(MOST_MEMORY));
    let items = match (Call { node: operator.node, inputs: &inputs, work: &work }).made_by(compute) {
        Err(fault) if fault.is_memory() => return Ok(None),
        made => made?,
    };
    let tensors: Option<Vec<_>> =
        items.into_iter().map(|item| if let Item::Tensor(tensor) = item { Some(tensor) } else { None }).collect();
    tensors.map(|tensors| tensors.into_iter().map(|tensor| builder.made(tensor)).collect()).transpose()
}
