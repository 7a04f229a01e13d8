//! A model that is divided over machines has the bits of one session, keeps the memory of each device, and refuses what
//! does not belong together.

use super::pipelines::{MODELS, assert_same, open, sets};
use anabranch::pipeline::{
    DeviceTimes, DistributedStage, DividedState, Division, DivisionOptions, Goal, MachineLink, MachineTimes, Machines,
    StageOutput, divide,
};
use anabranch::{Inputs, Outputs, RunOptions, Session};
use anabranch_kernels::{Shape, Tensor};
use std::collections::BTreeMap;

const BEST: DivisionOptions = DivisionOptions { goal: Goal::Period, replication: false, branches: false };

/// Returns machines that are all like this one, with this much memory and links of no cost.
fn machines(session: &Session, inputs: &Inputs, count: usize, memory: Option<u64>) -> Machines {
    let mut times = MachineTimes::of(session, inputs, false).expect("times");
    times.devices.retain(|device| device.name == "cpu0");
    times.devices.iter_mut().for_each(|device| device.memory = memory);
    let names: Vec<String> = (1..=count).map(|number| format!("node{number}")).collect();
    let ends = || names.iter().map(String::as_str).chain(["outside"]);
    let link = |from: &str, to: &str| MachineLink { from: from.into(), to: to.into(), latency: 0.0, rate: 1e15 };
    let links = ends().flat_map(|from| ends().map(move |to| link(from, to))).collect();
    Machines { machines: names.iter().map(|name| (name.clone(), times.clone())).collect(), links }
}

/// Computes a data set stage by stage, each in a session of its own, as processes of a cluster do.
fn walk(model: &str, division: &Division, inputs: &Inputs, software_gpu: bool) -> Outputs {
    let nodes: Vec<Vec<String>> = division.stages.iter().map(|stage| stage.nodes.clone()).collect();
    let mut values: BTreeMap<usize, Tensor> = BTreeMap::new();
    let mut outputs = None;
    for (at, stage) in division.stages.iter().enumerate() {
        let session = open(model, software_gpu);
        let device = stage.devices[0].split_once('/').expect("a machine and a device").1;
        let opened =
            DistributedStage::open(&session, inputs, &nodes, at, device, &DividedState::default()).expect("it fits");
        if at == 0 {
            opened.verify(inputs, |_| true).expect("the inputs it was opened for");
            for (name, slot) in opened.inputs() {
                values.insert(slot, inputs.find(name).expect("it is given").clone());
            }
        }
        let given: Vec<&Tensor> = opened.reads().iter().map(|slot| &values[slot]).collect();
        let made = opened.run((0, false), &given, &RunOptions::default()).expect("it runs");
        values.extend(opened.makes().iter().copied().zip(made));
        opened.drops().iter().for_each(|slot| drop(values.remove(slot).expect("it was there")));
        let leaving = opened.outputs().map(|(name, output)| (name.to_owned(), output)).collect::<Vec<_>>();
        outputs = Some(leaving);
    }
    let tensor = |output: StageOutput| match output {
        StageOutput::Slot(slot, shape) => {
            values[&slot].reshaped(Shape::new(shape).expect("small")).expect("as declared")
        }
        StageOutput::Constant(constant) => constant,
    };
    let (names, tensors): (Vec<_>, Vec<_>) = outputs.expect("a stage").into_iter().unzip();
    Outputs::new(names.into(), tensors.into_iter().map(tensor).collect())
}

#[test]
fn stages_in_sessions_of_their_own_have_the_bits_of_one() {
    for model in MODELS {
        let session = open(model, false);
        let inputs = &sets(&session, 1)[0];
        let expected = session.run(inputs).expect("it runs");
        for count in [1, 2, 3] {
            let division =
                divide(&session, inputs, &machines(&session, inputs, count, None), &DividedState::default(), BEST)
                    .expect("it divides");
            assert!(division.period >= division.lower_bound * (1.0 - 1e-9), "{model}");
            let found = walk(model, &division, inputs, false);
            assert_same(&[found], std::slice::from_ref(&expected), &format!("{model} on {count} machines"));
        }
    }
}

#[test]
fn stages_that_run_at_the_same_time_have_the_bits_of_one_session() {
    let wanted = DivisionOptions { goal: Goal::Latency, replication: false, branches: true };
    let mut wide = 0;
    for model in MODELS {
        let session = open(model, false);
        let inputs = &sets(&session, 1)[0];
        let expected = session.run(inputs).expect("it runs");
        for count in [1, 2, 3] {
            let machines = machines(&session, inputs, count, None);
            let find = |options| divide(&session, inputs, &machines, &DividedState::default(), options);
            let (division, chain) = (find(wanted), find(DivisionOptions { branches: false, ..wanted }));
            let (division, chain) = (division.expect("it divides"), chain.expect("it divides"));
            assert!(chain.chain && division.latency <= chain.latency, "{model}");
            assert!(division.latency >= division.lower_bound * (1.0 - 1e-9), "{model}");
            let busiest = |name: &str| -> f64 {
                let own = division.stages.iter().filter(|stage| stage.devices == [name]);
                own.map(|stage| stage.seconds[0]).sum()
            };
            let most = (1..=count).map(|number| busiest(&format!("node{number}/cpu0"))).fold(0.0, f64::max);
            assert!(most <= division.period.max(division.latency) * (1.0 + 1e-9), "{model}");
            let found = walk(model, &division, inputs, false);
            assert_same(&[found], std::slice::from_ref(&expected), &format!("{model} on {count} machines"));
            wide += usize::from(!division.chain);
        }
    }
    assert!(wide >= 4, "{wide} divisions were wide");
}

#[test]
fn stages_that_run_at_the_same_time_leave_memory_for_values() {
    let wanted = DivisionOptions { goal: Goal::Latency, replication: false, branches: true };
    let mut limited = 0;
    for model in MODELS {
        let session = open(model, false);
        let inputs = &sets(&session, 1)[0];
        let find =
            |memory| divide(&session, inputs, &machines(&session, inputs, 3, memory), &DividedState::default(), wanted);
        let weights: u64 = find(None).expect("it divides").stages.iter().map(|stage| stage.weights).sum();
        let values = inputs.iter().map(|(_, input)| input.bytes().len() as u64).max().expect("an input");
        for share in [2, 3, 4, 6] {
            let memory = weights * share / 4 + values;
            let Ok(division) = find(Some(memory)) else { continue };
            for number in (1..=3).filter(|_| !division.chain) {
                let name = format!("node{number}/cpu0");
                let own = division.stages.iter().filter(|stage| stage.devices == [name.as_str()]);
                let held: u64 = own.map(|stage| stage.weights).sum();
                assert!(held + values <= memory, "{model}: {held} and {values} bytes in {memory}");
                limited += 1;
            }
        }
    }
    assert!(limited >= 6, "{limited} devices were limited");
}

#[test]
fn weights_that_no_device_holds_are_divided() {
    let mut several = 0;
    for model in MODELS {
        let session = open(model, false);
        let inputs = &sets(&session, 1)[0];
        let whole = divide(&session, inputs, &machines(&session, inputs, 1, None), &DividedState::default(), BEST)
            .expect("it divides");
        let weights: u64 = whole.stages.iter().map(|stage| stage.weights).sum();
        // Room for the weights together, but not on one device; activations come on top.
        let memory = weights * 3 / 4 + 4 * whole.bytes_out.max(whole.stages[0].bytes_in);
        match divide(&session, inputs, &machines(&session, inputs, 4, Some(memory)), &DividedState::default(), BEST) {
            Ok(division) => {
                assert!(division.stages.iter().all(|stage| stage.weights <= memory), "{model}");
                several += usize::from(weights > memory && division.stages.len() > 1);
            }
            Err(error) => assert!(error.is_infeasible() && error.to_string().contains("memory"), "{model}: {error}"),
        }
        let none = divide(&session, inputs, &machines(&session, inputs, 4, Some(16)), &DividedState::default(), BEST)
            .expect_err("16 bytes");
        assert!(none.to_string().contains("memory"), "{none}");
    }
    assert!(several >= 2, "{several} models were larger than each device");
}

#[test]
fn a_device_that_is_faster_gets_more_nodes() {
    let session = open("encoder", false);
    let inputs = &sets(&session, 1)[0];
    let mut both = machines(&session, inputs, 2, None);
    let fast = both.machines.get_mut("node2").expect("there are two");
    fast.devices[0].seconds.iter_mut().for_each(|seconds| *seconds /= 50.0);
    let division = divide(&session, inputs, &both, &DividedState::default(), BEST).expect("it divides");
    let on = |machine: &str| -> usize {
        let stages = division.stages.iter().filter(|stage| stage.devices[0].starts_with(machine));
        stages.map(|stage| stage.nodes.len()).sum()
    };
    assert!(on("node2") > 5 * on("node1"), "{division:?}");
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let session = open("mlp", false);
    let inputs = &sets(&session, 1)[0];
    let sound = machines(&session, inputs, 2, None);
    let refused = |change: &dyn Fn(&mut Machines)| {
        let mut machines = sound.clone();
        change(&mut machines);
        divide(&session, inputs, &machines, &DividedState::default(), BEST).expect_err("it was changed").to_string()
    };
    let other = |machines: &mut Machines, change: &dyn Fn(&mut MachineTimes)| {
        change(machines.machines.get_mut("node2").expect("there are two"));
    };
    let text = refused(&|all| other(all, &|times| times.nodes[0].push('x')));
    assert!(text.contains("`node2` has another model"), "{text}");
    let text = refused(&|all| other(all, &|times| times.constants.push('0')));
    assert!(text.contains("`node2` has other weights"), "{text}");
    let text = refused(&|all| other(all, &|times| _ = times.devices[0].seconds.pop()));
    assert!(text.contains("node2/cpu0"), "{text}");
    let text = refused(&|all| all.links.retain(|link| link.from != "node1" || link.to != "node2"));
    assert!(text.contains("no link from `node1` to `node2`"), "{text}");
    let text = refused(&|all| other(all, &|times| times.devices[0].seconds[0] = f64::NAN));
    assert!(text.contains("NaN"), "{text}");
    let text = refused(&|all| all.machines.clear());
    assert!(text.contains("processors"), "{text}");

    let division = divide(&session, inputs, &sound, &DividedState::default(), BEST).expect("it divides");
    let nodes: Vec<Vec<String>> = division.stages.iter().map(|stage| stage.nodes.clone()).collect();
    let open = |nodes: &[Vec<String>], at, device| {
        DistributedStage::open(&session, inputs, nodes, at, device, &DividedState::default())
            .expect_err("it is wrong")
            .to_string()
    };
    assert!(open(&nodes, 9, "cpu0").contains("no stage 9"));
    assert!(open(&nodes, 0, "gpu7").contains("cpu0"));
    assert!(open(&nodes[..nodes.len() - 1], 0, "cpu0").contains("no stage") || nodes.len() == 1);
    let mut reversed = nodes.clone();
    reversed.iter_mut().for_each(|nodes| nodes.reverse());
    reversed.reverse();
    assert!(open(&reversed, 0, "cpu0").contains("comes before"));
    let stage =
        DistributedStage::open(&session, inputs, &nodes, 0, "cpu0", &DividedState::default()).expect("it is right");
    assert!(
        stage
            .run((0, false), &[], &RunOptions::default())
            .expect_err("nothing is given")
            .to_string()
            .contains("fewer values")
    );
}

#[test]
fn a_software_gpu_computes_a_stage() {
    let session = open("convnet", true);
    let inputs = &sets(&session, 1)[0];
    let times = MachineTimes::of(&session, inputs, false).expect("times");
    let device = |name: &str| times.devices.iter().find(|device| device.name == name).cloned();
    let Some(gpu) = device("gpu0") else { return };
    let mut both = machines(&session, inputs, 1, None);
    // The GPU computes the second half, and nothing else.
    let half = gpu.seconds.len() / 2;
    let part = |range: std::ops::Range<usize>, device: DeviceTimes| DeviceTimes {
        seconds: (0..device.seconds.len()).map(|node| if range.contains(&node) { 1e-6 } else { 10.0 }).collect(),
        memory: None,
        ..device
    };
    let all = gpu.seconds.len();
    let cpu = both.machines["node1"].devices[0].clone();
    both.machines.get_mut("node1").expect("it is there").devices = vec![part(0..half, cpu), part(half..all, gpu)];
    let division = divide(&session, inputs, &both, &DividedState::default(), BEST).expect("it divides");
    assert!(division.stages.iter().any(|stage| stage.devices == ["node1/gpu0"]), "{division:?}");
    let (found, expected) = (walk("convnet", &division, inputs, true), session.run(inputs).expect("it runs"));
    for ((name, a), (_, b)) in found.iter().zip(expected.iter()) {
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * b.abs().max(1.0);
        assert!(a.elements::<f32>().expect("f32").iter().zip(b.elements::<f32>().expect("f32")).all(close), "{name}");
    }
}
