//! Checks outputs that lie in the memory of inputs.
//!
//! The content of such an input stands in the output's slot from the beginning of a run. Only the node that makes the
//! output may therefore read the input, and nothing else may write the slot.

use super::{Sent, Violation, reads, writes};
use crate::{InPlace, Plan, Step};
use anabranch_ir::program::Program;

/// Adds the pairs that would lose a value. O(pairs · steps).
pub(super) fn judge(program: &Program, plan: &Plan, sent: &Sent, pairs: &[InPlace], found: &mut Vec<Violation>) {
    if pairs.is_empty() {
        return;
    }
    let of = |step: &Step| (*step, reads(program, plan, sent, *step), writes(program, plan, *step));
    let steps: Vec<_> = plan.steps().iter().map(of).collect();
    for pair in pairs {
        let (from, to) = (program.inputs[pair.input], program.outputs[pair.output].value);
        let slot = |value| plan.memory().home(pair.device, value).map(|allocation| allocation.slot);
        let (mut is_read_once, mut is_kept) = (true, slot(to).is_some());
        for (step, reads, writes) in &steps {
            let makes = matches!(step, Step::Node(_)) && writes.contains(&(pair.device, to));
            is_read_once &= reads.iter().filter(|(_, value)| *value == from).count() == usize::from(makes);
            let is_other = |(device, value): &(_, _)| *device != pair.device || slot(*value) != slot(to);
            is_kept &= makes || *step == Step::Input(pair.input) || writes.iter().all(is_other);
        }
        let is_alike = program.value(from).spec.bytes() == program.value(to).spec.bytes();
        let is_single =
            pairs.iter().filter(|other| other.input == pair.input || other.output == pair.output).count() == 1;
        let is_there = [plan.input_device(pair.input), plan.output_device(pair.output)] == [pair.device; 2];
        if !(is_read_once && is_kept && is_alike && is_single && is_there) {
            found.push(Violation::InPlace(from, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Residence;
    use crate::test_programs::{PlacedProgram, relu};
    use crate::{HOST, PlanOptions};
    use anabranch_base::random::SplitMix64;
    use anabranch_ir::program::{ValueId, floats};
    use anabranch_kernels::op::{Append, Op};
    use anabranch_kernels::{DType, Shape, TensorSpec};
    use anabranch_placement_core::platform::DeviceId;
    use arbtest::arbitrary::{Result, Unstructured};

    const PAIR: InPlace = InPlace { input: 0, output: 0, device: HOST };

    /// A cache with a node that appends to it, and other uses of both as drawn; and the device that keeps the cache.
    fn any(u: &mut Unstructured<'_>) -> Result<(PlacedProgram, DeviceId)> {
        let mut program = Program::default();
        let (cache, new) = (floats(&[1, 1, 4, 2]), floats(&[1, 1, u.int_in_range(1..=2)?, 2]));
        let start = TensorSpec::new(DType::I64, Shape::new([1]).expect("small"));
        let past = program.add_input("past", cache.clone());
        let new = program.add_input("new", new);
        let start = program.add_input("start", start);
        let made = floats(&[1, 1, u.int_in_range(4..=5)?, 2]);
        let mut values: Vec<ValueId> = vec![past];
        let append = u.int_in_range(0..=2)?;
        let mut present = past;
        for at in 0..3 {
            if at == append {
                present = program.add_node(
                    "append",
                    Op::Append(Append { circular: false }),
                    &[past, new, start],
                    made.clone(),
                );
                values.push(present);
            } else {
                // The newest first, if nothing more is drawn.
                let from = values[values.len() - 1 - u.int_in_range(0..=values.len() - 1)?];
                let spec = program.value(from).spec.clone();
                values.push(program.add_node("relu", relu(), &[from], spec));
            }
        }
        program.add_output("present", present);
        for _ in 0..u.int_in_range(0..=2)? {
            program.add_output("more", *u.choose(&values[1..])?);
        }
        if !u.ratio(5, 6)? {
            program.add_output("again", past);
        }
        let other = if u.ratio(2, 3)? { "gpu" } else { "cpu" };
        let home = DeviceId(u32::from(other == "gpu" && u.ratio(1, 2)?));
        let mut residence = Residence::host(&program);
        (residence.inputs[0], residence.outputs[0]) = (home, home);
        let mut devices = [u.int_in_range(0..=1)?, u.int_in_range(0..=1)?, u.int_in_range(0..=1)?];
        if u.ratio(1, 2)? {
            devices[append] = home.0;
        }
        Ok((PlacedProgram::with_residence(program, &["cpu", other], &devices, &residence), home))
    }

    #[test]
    fn found_pairs_pass_and_others_that_lose_a_value_do_not() {
        let mut seen = [[0; 2]; 2];
        let mut random = SplitMix64::new(1);
        for _ in 0..600 {
            let bytes: Vec<u8> = std::iter::repeat_with(|| random.bits() as u8).take(256).collect();
            let (placed, device) = any(&mut Unstructured::new(&bytes)).expect("enough bytes");
            let pair = InPlace { device, ..PAIR };
            let plan = placed.plan(&PlanOptions::default()).expect("feasible");
            let judged = |pairs: &[InPlace]| {
                let mut found = Vec::new();
                judge(&placed.program, &plan, &Sent::new(), pairs, &mut found);
                found
            };
            let pairs = InPlace::all(&plan, &placed.program);
            assert_eq!(judged(&pairs), []);
            let outputs =
                placed.program.outputs.iter().filter(|output| output.value == placed.program.outputs[0].value);
            // A value that is two outputs could lie there, but is not found.
            let is_found = pairs.contains(&pair) || outputs.count() > 1;
            seen[device.index()][usize::from(pairs.contains(&pair))] += 1;
            assert_eq!(crate::check(&placed.program, &plan), []);
            assert!(is_found || !judged(&[pair]).is_empty(), "{:?}", placed.program.nodes);
        }
        assert!(seen.iter().flatten().all(|count| *count > 0), "{seen:?}");
    }
}
