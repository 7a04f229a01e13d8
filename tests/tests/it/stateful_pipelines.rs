//! Pipelines with state give the bits of sessions with state, however the model is cut.

use super::language::{greedy, integers, open, shape};
use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use anabranch::pipeline::{
    Among, DistributedStage, DividedState, DivisionOptions, Goal, MachineLink, MachineTimes, Machines, Pipeline,
    PipelineError, PipelineOptions, StageCosts, StageDevices, StageMapping, StageOutput, divide,
};
use anabranch::{Inputs, Outputs, RunOptions, Session, SessionConfig, Tensor, TensorSpec};
use anabranch_kernels::DType;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

const FEEDS: [(&str, &str); 1] = [("*_out", "*_in")];

fn cores() -> SessionConfig {
    let devices = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Core);
    SessionConfig::default().with_devices(devices)
}

/// Number of kinds of layers.
const KINDS: usize = 9;

/// A chain of layers of these kinds, each with a state.
fn model(kinds: &[usize]) -> Vec<u8> {
    let (mut graph, mut last) = (GraphProto::default(), "x".to_owned());
    let value = |name: &str| ValueInfoProto::f32s(name, &[1, 4]);
    graph.input.push(value("x"));
    for (layer, kind) in kinds.iter().enumerate() {
        let [state, made, next, result] = ["in", "out", "next", "result"].map(|part| format!("h{layer}_{part}"));
        let mut add = |operator: &str, inputs: &[&str], output: &str| {
            graph.node.push(NodeProto::of(operator, inputs, &[output]));
        };
        match kind {
            // The usual one: a sum that is bent.
            0 => {
                add("Add", &[&state, &last], &result);
                add("Tanh", &[&result], &made);
                add("Sub", &[&made, &last], &next);
            }
            // The state is what the layer read before.
            1 => {
                add("Identity", &[&last], &made);
                add("Sub", &[&last, &state], &next);
            }
            // It never changes.
            2 => {
                add("Identity", &[&state], &made);
                add("Mul", &[&last, &state], &next);
            }
            // It is a result, too.
            3 => {
                add("Add", &[&state, &last], &made);
                add("Identity", &[&made], &result);
                add("Neg", &[&made], &next);
                graph.output.push(value(&result));
            }
            // Nothing reads it.
            4 => {
                add("Abs", &[&last], &made);
                add("Neg", &[&last], &next);
            }
            // It is made of the model's input, maybe long before it is read.
            5 => {
                add("Neg", &["x"], &made);
                add("Sub", &[&last, &state], &next);
            }
            // The value before the last becomes another state, which is read first.
            6 => {
                let [sum, last_in, last_out] = ["sum", "late_in", "late_out"].map(|part| format!("h{layer}_{part}"));
                add("Add", &[&state, &last], &sum);
                add("Softmax", &[&sum], &result);
                add("Sub", &[&result, &last_in], &next);
                add("Identity", &[&last_in], &made);
                add("Identity", &[&last], &last_out);
                graph.input.push(value(&last_in));
                graph.output.push(value(&last_out));
            }
            // It is read and made in another shape.
            7 => {
                add("Transpose", &[&state], &format!("{result}_in"));
                add("Transpose", &[&last], &format!("{result}_last"));
                add("Sub", &[&format!("{result}_in"), &format!("{result}_last")], &result);
                add("Transpose", &[&result], &made);
                add("Sin", &[&made], &next);
            }
            // The result is the state before.
            _ => {
                add("Sin", &[&state], &result);
                add("Add", &[&result, &last], &made);
                add("Sub", &[&last, &state], &next);
                graph.node.push(NodeProto::of("Identity", &[&state], &[&format!("h{layer}_before")]));
                graph.output.push(value(&format!("h{layer}_before")));
            }
        }
        graph.input.push(value(&state));
        graph.output.push(value(&made));
        last = next;
    }
    graph.node.push(NodeProto::of("Identity", &[&last], &["y"]));
    graph.output.push(value("y"));
    ModelProto::of(graph, 17).to_bytes()
}

/// Results of sessions with state, one for each sequence.
fn expected(bytes: &[u8], first: &Inputs, sets: &[Inputs], sequences: usize) -> Vec<Outputs> {
    let begin = |_| Session::from_bytes(bytes, cores())?.stateful(&FEEDS);
    let mut states = (0..sequences).map(begin).collect::<Result<Vec<_>, _>>().expect("a model with state");
    let run = |(at, inputs): (usize, &Inputs)| {
        let given = if at < sequences { first.clone().tensor("x", inputs.tensor_of("x")) } else { inputs.clone() };
        states[at % sequences].run(&given).expect("runs").clone()
    };
    sets.iter().enumerate().map(run).collect()
}

trait Given {
    fn tensor_of(&self, name: &str) -> Tensor;
}

impl Given for Inputs {
    fn tensor_of(&self, name: &str) -> Tensor {
        self.find(name).expect("given").clone()
    }
}

fn through(pipeline: &Pipeline, sets: &[Inputs]) -> Vec<Outputs> {
    let mut results = Vec::new();
    let ran = pipeline.run_all(sets.iter().cloned().map(Ok), |finished| {
        results.push(finished.outputs);
        Ok::<(), PipelineError>(())
    });
    ran.expect("no stage fails");
    results
}

#[track_caller]
fn assert_same(found: &[Outputs], wanted: &[Outputs], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!(found.iter().all(|(name, _)| !name.ends_with("_out")), "{what}: states are no results");
        for (name, _) in wanted.iter().filter(|(name, _)| !name.ends_with("_out")) {
            let [found, wanted] = [found, wanted].map(|outputs| outputs.tensor(name).expect("made"));
            assert!(found.same_bits(wanted), "{what}: {name} of {at}: {found:?} instead of {wanted:?}");
        }
    }
}

#[test]
fn however_it_is_cut_each_sequence_has_its_state() {
    let (mut opened, mut refused) = (0, 0);
    let digits = |number: usize| [number / KINDS / KINDS, number / KINDS % KINDS, number % KINDS];
    for number in (0..KINDS * KINDS * KINDS).step_by(7) {
        let kinds = digits(number);
        let bytes = model(&kinds);
        let session = Session::from_bytes(&bytes, cores()).expect("a model");
        let first = session.fill_random(Inputs::new(), number as u64).expect("known shapes");
        let x = |at| Inputs::new().tensor("x", session.fill_random(Inputs::new(), at).expect("known").tensor_of("x"));
        let sets: Vec<Inputs> = (1000..1008).map(x).collect();
        let sequences = 1 + number % 3;
        let wanted = expected(&bytes, &first, &sets, sequences);
        let state = session.state_pairs(&FEEDS).expect("pairs");
        let sequences = NonZeroUsize::new(sequences).expect("one or more");
        let options = PipelineOptions::default().with_measuring(false).with_state(state, sequences);
        let costs = StageCosts::of(&session, &first, &options).expect("costs");
        let open = |among| Pipeline::with_costs(&session, &costs, &options.clone().with_among(among));
        for among in [Among::All, Among::Together, Among::Pipelined] {
            let pipeline = open(among.clone()).expect("a mapping");
            assert_same(&through(&pipeline, &sets), &wanted, &format!("{kinds:?}, {among:?}"));
        }
        let nodes = open(Among::Pipelined).expect("a mapping").plan().mapping.stages.clone();
        let nodes: Vec<String> = nodes.into_iter().flat_map(|stage| stage.nodes).collect();
        let devices: Vec<String> = costs.processors().map(str::to_owned).collect();
        for cut in 1..nodes.len() {
            let [one, two, ..] = &devices[..] else { break };
            let stage =
                |nodes: &[String], on: &String| StageDevices { nodes: nodes.to_vec(), devices: vec![on.clone()] };
            let mapping = StageMapping { stages: vec![stage(&nodes[..cut], one), stage(&nodes[cut..], two)] };
            match open(Among::Given(mapping)) {
                Ok(pipeline) => {
                    opened += 1;
                    assert_same(&through(&pipeline, &sets), &wanted, &format!("{kinds:?}, cut at {cut}"));
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("stays in one stage"), "{error}");
                }
            }
        }
    }
    assert!(opened > 50 && refused > 50 || std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2));
}

/// Computes data sets stage by stage, each in a session of its own. In the middle all stages are opened again, and go
/// on from the states that the former ones had.
fn walk(bytes: &[u8], first: &Inputs, sets: &[Inputs], cuts: &[Vec<String>], state: &DividedState) -> Vec<Outputs> {
    let session = || Session::from_bytes(bytes, SessionConfig::default().without_gpu()).expect("a model");
    let open = || {
        let stage = |at| DistributedStage::open(&session(), first, cuts, at, "cpu0", state).expect("it fits");
        (0..cuts.len()).map(stage).collect::<Vec<_>>()
    };
    let (mut stages, mut results) = (open(), Vec::new());
    for (at, inputs) in sets.iter().enumerate() {
        if at == sets.len() / 2 {
            let states: Vec<_> = stages.iter().flat_map(DistributedStage::states).collect();
            stages = open();
            for (stage, (input, states)) in stages.iter().flat_map(|stage| states.iter().map(move |own| (stage, own))) {
                stage.restore(input, states).expect("they fit");
            }
        }
        stages[0].verify(inputs, |_| true).expect("no state is an input");
        let slots = stages[0].inputs().map(|(name, slot)| (slot, inputs.tensor_of(name)));
        let mut values: BTreeMap<usize, Tensor> = slots.collect();
        for stage in &stages {
            let given: Vec<&Tensor> = stage.reads().iter().map(|slot| &values[slot]).collect();
            let sequence = at % state.sequences.get();
            let made = stage.run((sequence, false), &given, &RunOptions::default()).expect("it runs");
            values.extend(stage.makes().iter().copied().zip(made));
            stage.drops().iter().for_each(|slot| _ = values.remove(slot));
        }
        let output = |(name, output): (&str, StageOutput)| match output {
            StageOutput::Slot(slot, dims) => {
                (name.to_owned(), values[&slot].reshaped(shape(&dims)).expect("as declared"))
            }
            StageOutput::Constant(constant) => (name.to_owned(), constant),
        };
        let (names, tensors): (Vec<_>, Vec<_>) = stages[0].outputs().map(output).unzip();
        results.push(Outputs::new(names.into(), tensors));
    }
    results
}

#[test]
fn stages_of_several_machines_keep_their_states_and_give_them_to_others() {
    let mut divided = 0;
    for number in (0..KINDS * KINDS * KINDS).step_by(11) {
        let kinds = [number / KINDS / KINDS, number / KINDS % KINDS, number % KINDS];
        let bytes = model(&kinds);
        let session = Session::from_bytes(&bytes, SessionConfig::default().without_gpu()).expect("a model");
        let first = session.fill_random(Inputs::new(), number as u64).expect("known shapes");
        let x = |at| Inputs::new().tensor("x", session.fill_random(Inputs::new(), at).expect("known").tensor_of("x"));
        let sets: Vec<Inputs> = (1000..1008).map(x).collect();
        let sequences = NonZeroUsize::new(1 + number % 3).expect("one or more");
        let state = DividedState { pairs: session.state_pairs(&FEEDS).expect("pairs"), sequences };
        let times = MachineTimes::of(&session, &first, false).expect("times");
        let link = |from: &str, to: &str| MachineLink { from: from.into(), to: to.into(), latency: 0.0, rate: 1e15 };
        let names = ["node1", "node2", "outside"];
        let machines = Machines {
            machines: names[..2].iter().map(|name| ((*name).to_owned(), times.clone())).collect(),
            links: names.iter().flat_map(|from| names.iter().map(move |to| link(from, to))).collect(),
        };
        let options = DivisionOptions { goal: Goal::Period, replication: true, branches: false };
        let division = divide(&session, &first, &machines, &state, options).expect("it divides");
        let cuts: Vec<Vec<String>> = division.stages.iter().map(|stage| stage.nodes.clone()).collect();
        divided += usize::from(cuts.len() > 1);
        let wanted = expected(&bytes, &first, &sets, sequences.get());
        assert_same(&walk(&bytes, &first, &sets, &cuts, &state), &wanted, &format!("{kinds:?} in {}", cuts.len()));
    }
    assert!(divided > 20, "{divided} models were divided");
}

#[test]
fn a_cache_that_becomes_another_state_is_not_written_in_place() {
    let value = |name: &str, size: i64| ValueInfoProto::f32s(name, &[1, 1, size, 4]);
    let graph = GraphProto {
        node: vec![
            NodeProto::of("TensorScatter", &["cache_in", "x", "at"], &["cache_out"]),
            NodeProto::of("Identity", &["cache_in"], &["before_out"]),
            NodeProto::of("Neg", &["before_in"], &["y"]),
        ],
        initializer: vec![TensorProto::i64s("at", &[1], &[0])],
        input: vec![value("x", 1), value("cache_in", 3), value("before_in", 3)],
        output: vec![value("y", 3), value("cache_out", 3), value("before_out", 3)],
        ..GraphProto::default()
    };
    let bytes = ModelProto::of(graph, 24).to_bytes();
    let session = Session::from_bytes(&bytes, SessionConfig::default().without_gpu()).expect("a model");
    let first = session.fill_random(Inputs::new(), 1).expect("known shapes");
    let x = |at| Inputs::new().tensor("x", session.fill_random(Inputs::new(), at).expect("known").tensor_of("x"));
    let sets: Vec<Inputs> = (2..8).map(x).collect();
    let state = DividedState { pairs: session.state_pairs(&FEEDS).expect("pairs"), sequences: NonZeroUsize::MIN };
    let nodes = MachineTimes::of(&session, &first, false).expect("times").nodes;
    assert_same(
        &walk(&bytes, &first, &sets, &[nodes], &state),
        &expected(&bytes, &first, &sets, 1),
        "a cache and its last value",
    );
}

#[test]
fn a_sequence_may_begin_anew() {
    let bytes = model(&[0, 1, 3]);
    let session = Session::from_bytes(&bytes, cores()).expect("a model");
    let first = session.fill_random(Inputs::new(), 1).expect("known shapes");
    let state = session.state_pairs(&FEEDS).expect("pairs");
    let options = PipelineOptions::default().with_measuring(false).with_state(state, NonZeroUsize::MIN);
    let pipeline = Pipeline::open(&session, &first, &options).expect("a mapping");
    let mut halves = Vec::new();
    for _ in 0..2 {
        for at in 0..5 {
            let push = if at == 0 { Pipeline::push_first } else { Pipeline::push };
            push(&pipeline, &first).expect("accepted");
            halves.push(pipeline.next().expect("a result").expect("no failure").outputs);
        }
    }
    assert_same(&halves[5..], &halves[..5], "from the first state again");
    let differ = halves[0].iter().any(|(name, _)| {
        let [zeroth, later] = [0, 4].map(|at| halves[at].tensor(name).expect("made"));
        !zeroth.same_bits(later)
    });
    assert!(differ, "a state that passes shows");
}

#[test]
fn two_texts_are_decoded_in_stages_that_keep_their_caches() {
    let (session, reference) = open("llama", cores());
    let parts = ["0.key", "0.value", "1.key", "1.value"];
    let caches = |inputs: Inputs| {
        let cache = || Tensor::zeroed(TensorSpec::new(DType::F32, shape(&[1, 2, 256, 16])));
        parts.iter().fold(inputs, |inputs, part| inputs.tensor(&format!("past_key_values.{part}"), cache()))
    };
    // Each token of the prompt is a step, so that all data sets have one shape.
    let texts: [Vec<i64>; 2] = [reference.prompt.clone(), reference.prompt.iter().rev().copied().collect()];
    let step = |text: &[i64]| {
        let mask = integers(&[1, 256], |at| i64::from(at < text.len()));
        let token = *text.last().expect("a token");
        Inputs::new().tensor("input_ids", integers(&[1, 1], |_| token)).tensor("attention_mask", mask)
    };
    let pairs = session.state_pairs(&[("present.*", "past_key_values.*")]).expect("pairs");
    let options = PipelineOptions::default().with_measuring(false).with_among(Among::Pipelined);
    let options = options.with_state(pairs, NonZeroUsize::new(2).expect("two"));
    let costs = StageCosts::of(&session, &caches(step(&texts[0][..1])), &options).expect("costs");
    let devices: Vec<String> = costs.processors().map(str::to_owned).collect();
    let chosen = Pipeline::with_costs(&session, &costs, &options).expect("a mapping").plan().clone();
    assert!(chosen.stages.iter().map(|stage| stage.state).sum::<u64>() == 4 * 4 * 2 * 256 * 16 * 4);
    assert!(chosen.stages.len() == 2 || devices.len() < 2, "the two layers can be parted: {:?}", chosen.stages);
    let pipeline = Pipeline::with_costs(&session, &costs, &options).expect("a mapping");
    let (mut fed, mut made) = ([texts[0][..1].to_vec(), texts[1][..1].to_vec()], [Vec::new(), Vec::new()]);
    let most = reference.prompt.len() + 30;
    for at in 0..2 * most {
        let of = at % 2;
        if at >= 2 {
            // The result of this text's step before.
            let outputs = pipeline.next().expect("a result").expect("no failure").outputs;
            let next = match texts[of].get(fed[of].len()) {
                Some(token) => *token,
                None => {
                    made[of].push(greedy(&outputs));
                    made[of][made[of].len() - 1]
                }
            };
            fed[of].push(next);
        }
        pipeline.push(&step(&fed[of])).expect("accepted");
    }
    assert_eq!(made[0], reference.tokens[..made[0].len()]);
    assert!(made[0].len() >= 25 && made[1] != made[0], "{made:?}");
}

#[test]
fn states_that_cannot_stay_in_a_stage_are_refused_by_name() {
    let bytes = model(&[0, 1, 3]);
    let session = Session::from_bytes(&bytes, cores()).expect("a model");
    let first = session.fill_random(Inputs::new(), 1).expect("known shapes");
    let state = session.state_pairs(&FEEDS).expect("pairs");
    let two = NonZeroUsize::new(2);
    let options = PipelineOptions::default().with_measuring(false).with_state(state.clone(), NonZeroUsize::MIN);
    for among in [Among::Replicated(two), Among::DataParallel(two)] {
        let error = Pipeline::open(&session, &first, &options.clone().with_among(among)).expect_err("shared");
        assert!(error.to_string().contains("one device per stage"), "{error}");
    }
    let twice = [state.clone(), state].concat();
    let options = options.with_state(twice, NonZeroUsize::MIN);
    let error = Pipeline::open(&session, &first, &options).expect_err("bound twice").to_string();
    assert!(error.contains("is bound twice"), "{error}");
    // A cache that each step concatenates has no final size.
    let concat = NodeProto::of("Concat", &["h_in", "x"], &["h_out"]);
    let concat = concat.with(anabranch::import::proto::AttributeProto::int("axis", 1));
    let value = |name: &str, size: &str| {
        let size = anabranch::import::proto::DimensionProto::symbol(size);
        let dims = vec![anabranch::import::proto::DimensionProto::known(1), size];
        ValueInfoProto::tensor(name, anabranch::import::proto::data_type::FLOAT, dims)
    };
    let graph = GraphProto {
        node: vec![concat],
        input: vec![value("h_in", "past"), ValueInfoProto::f32s("x", &[1, 2])],
        output: vec![value("h_out", "total")],
        ..GraphProto::default()
    };
    let session = Session::from_bytes(&ModelProto::of(graph, 17).to_bytes(), cores()).expect("a model");
    let state = session.state_pairs(&FEEDS).expect("pairs");
    let first = session.with_first_state(&state, Inputs::new()).expect("no elements yet");
    let first = session.fill_random(first, 0).expect("known shapes");
    let options = options.with_state(state, NonZeroUsize::MIN);
    let error = Pipeline::open(&session, &first, &options).expect_err("it grows").to_string();
    assert!(error.contains("keeps states of one size"), "{error}");
}
