//! Random flows under random options give what a loop over their nodes gives.

use super::super::{Collected, Flow, FlowOptions, Output, Scheduler};
use super::options;
use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;

/// Behaviour of one node.
#[derive(Clone, Debug)]
struct Plan {
    reads: Vec<usize>,
    /// Drops an operand that is divisible by this number.
    drops: Option<u64>,
    is_serial: bool,
    machine: Option<u32>,
}

fn plans(unstructured: &mut Unstructured<'_>, machines: u32) -> Result<Vec<Plan>> {
    let count = unstructured.int_in_range(1..=12)?;
    let plan = |number: usize| {
        let reads = (0..unstructured.int_in_range(1..=4)?).map(|_| unstructured.int_in_range(0..=number));
        let reads = reads.collect::<Vec<_>>().into_iter().collect::<Result<Vec<usize>>>();
        let drops = if unstructured.ratio(1, 5)? { Some(unstructured.int_in_range(2..=5)?) } else { None };
        let machine = if unstructured.ratio(1, 5)? { Some(unstructured.int_in_range(0..=machines - 1)?) } else { None };
        Ok(Plan { reads: reads?, drops, is_serial: unstructured.ratio(1, 3)?, machine })
    };
    (0..count).map(plan).collect()
}

fn mixed(number: usize, operands: &[u64]) -> u64 {
    operands.iter().fold(number as u64, |sum, operand| sum.wrapping_mul(31).wrapping_add(*operand))
}

/// Returns, by iteration, the operand that each node delivers, if any, the source first. A serial node adds up its
/// inputs.
fn expected(plans: &[Plan], items: u64) -> Vec<Vec<Option<u64>>> {
    let mut sums = vec![0u64; plans.len()];
    let iteration = |item: u64| {
        let mut operands = vec![Some(item)];
        for (number, plan) in plans.iter().enumerate() {
            let reads: Option<Vec<u64>> = plan.reads.iter().map(|read| operands[*read]).collect();
            operands.push(reads.and_then(|reads| {
                let value = mixed(number, &reads);
                if plan.is_serial {
                    sums[number] = sums[number].wrapping_add(value);
                    return Some(sums[number]);
                }
                plan.drops.is_none_or(|divisor| !value.is_multiple_of(divisor)).then_some(value)
            }));
        }
        operands
    };
    (0..items).map(iteration).collect()
}

fn declared(
    flow: &mut Flow<'static>,
    outputs: &[Output<'static, u64>],
    number: usize,
    plan: &Plan,
) -> Output<'static, u64> {
    let reads: Vec<_> = plan.reads.iter().map(|read| outputs[*read].clone()).collect();
    let (name, drops) = (format!("node {number}"), plan.drops);
    let output = if plan.is_serial {
        let mut sum = 0u64;
        flow.serializer(name, &reads[..], move |reads| {
            sum = sum.wrapping_add(mixed(number, &reads));
            sum
        })
    } else {
        flow.filter(name, &reads[..], move |reads| {
            let value = mixed(number, &reads);
            drops.is_none_or(|divisor| !value.is_multiple_of(divisor)).then_some(value)
        })
    };
    match plan.machine {
        Some(machine) => output.machine(machine),
        None => output,
    }
}

/// Returns the flow of these plans, and the operands that each node delivers.
fn flow(plans: &[Plan], items: u64) -> (Flow<'static>, Vec<Collected<u64>>) {
    let mut flow = Flow::new();
    let mut outputs = vec![flow.source("items", 0..items)];
    for (number, plan) in plans.iter().enumerate() {
        let output = declared(&mut flow, &outputs, number, plan);
        outputs.push(output);
    }
    let collected = outputs.iter().enumerate();
    let collected = collected.map(|(number, output)| flow.collect(format!("kept {number}"), output)).collect();
    (flow, collected)
}

fn options_of(unstructured: &mut Unstructured<'_>, machines: u32) -> Result<FlowOptions> {
    let workers = unstructured.int_in_range(1..=2)?;
    let scheduler: Scheduler = *unstructured.choose(&Scheduler::ALL)?;
    let options = options(machines, workers, scheduler).with_spin(std::time::Duration::ZERO);
    Ok(options.with_window(unstructured.int_in_range(1..=6)?))
}

fn verify(plans: &[Plan], items: u64, collected: &[Collected<u64>], options: &FlowOptions) {
    let expected = expected(plans, items);
    for (number, collected) in collected.iter().enumerate() {
        let wanted: Vec<u64> = expected.iter().filter_map(|operands| operands[number]).collect();
        assert_eq!(collected.take(), wanted, "node {number} of {plans:?} under {options:?}");
    }
}

#[test]
fn random_flows_give_what_a_loop_gives() {
    arbtest(|unstructured| {
        let machines = unstructured.int_in_range(1..=3)?;
        let plans = plans(unstructured, machines)?;
        let items = unstructured.int_in_range(0..=40)?;
        let options = options_of(unstructured, machines)?;
        let (flow, collected) = flow(&plans, items);
        let report = flow.run(&options).expect("a sound flow");
        assert_eq!(report.iterations, items);
        verify(&plans, items, &collected, &options);
        Ok(())
    })
    .budget_ms(700);
}
