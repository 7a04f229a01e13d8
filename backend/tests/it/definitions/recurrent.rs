//! Recurrent layers with every option, step by step.

use super::{Given, answers_of, int, near, numbers};
use anabranch::import::proto::{AttributeProto, NodeProto, TensorProto, data_type};

/// Options of a layer.
#[derive(Clone, Copy, Debug)]
struct Case {
    operator: &'static str,
    /// Names of functions, of which each direction takes the next.
    activations: &'static [&'static str],
    clip: Option<f32>,
    /// For an LSTM: whether gates see the cell, and whether the forget gate is one minus the input gate.
    peepholes: bool,
    coupled: bool,
    linear_before_reset: bool,
    /// Length of each entry of the batch.
    lengths: Option<[i32; 2]>,
    batch_first: bool,
}

const TIME: usize = 3;
const BATCH: usize = 2;
const FEATURES: usize = 3;
const UNITS: usize = 2;

const USUAL: Case = Case {
    operator: "LSTM",
    activations: &[],
    clip: None,
    peepholes: false,
    coupled: false,
    linear_before_reset: false,
    lengths: None,
    batch_first: false,
};

/// A function as the standard writes it; its constants are 0.3, and 0.7 for a second constant.
fn bent(name: &str, x: f64) -> f64 {
    match name {
        "Tanh" => x.tanh(),
        "Sigmoid" => 1.0 / (1.0 + (-x).exp()),
        "Relu" => x.max(0.0),
        "Softsign" => x / (1.0 + x.abs()),
        "Softplus" => (1.0 + x.exp()).ln(),
        "Affine" => 0.3 * x + 0.7,
        "LeakyRelu" => {
            if x < 0.0 {
                0.3 * x
            } else {
                x
            }
        }
        "ThresholdedRelu" => {
            if x >= 0.3 {
                x
            } else {
                0.0
            }
        }
        "ScaledTanh" => 0.3 * (0.7 * x).tanh(),
        "HardSigmoid" => (0.3 * x + 0.7).clamp(0.0, 1.0),
        "Elu" => {
            if x < 0.0 {
                0.3 * (x.exp() - 1.0)
            } else {
                x
            }
        }
        other => panic!("{other}"),
    }
}

/// Number of constants of a function.
fn constants(name: &str) -> usize {
    match name {
        "Affine" | "ScaledTanh" | "HardSigmoid" => 2,
        "LeakyRelu" | "ThresholdedRelu" | "Elu" => 1,
        _ => 0,
    }
}

/// Number of gates, and the default functions.
fn kind(operator: &str) -> (usize, &'static [&'static str]) {
    match operator {
        "RNN" => (1, &["Tanh"]),
        "GRU" => (3, &["Sigmoid", "Tanh"]),
        _ => (4, &["Sigmoid", "Tanh", "Tanh"]),
    }
}

/// The tensors of a layer.
struct Layer {
    x: Given,
    w: Given,
    r: Given,
    b: Given,
    p: Given,
    h: Given,
    c: Given,
}

impl Layer {
    fn of(gates: usize) -> Self {
        let wide = gates * UNITS;
        Self {
            x: Given::of("x", &[TIME, BATCH, FEATURES]),
            w: Given::of("w", &[2, wide, FEATURES]),
            r: Given::of("r", &[2, wide, UNITS]),
            b: Given::of("b", &[2, 2 * wide]),
            p: Given::of("p", &[2, 3 * UNITS]),
            h: Given::of("h", &[2, BATCH, UNITS]),
            c: Given::of("c", &[2, BATCH, UNITS]),
        }
    }

    /// All states `[t, d, b, u]`, the last states and the last cells `[d, b, u]`.
    fn wanted(&self, case: Case) -> [Vec<f64>; 3] {
        let (_, usual) = kind(case.operator);
        let names: Vec<&str> = match case.activations {
            [] => usual.repeat(2),
            named => named.to_vec(),
        };
        let mut all = vec![0f64; TIME * 2 * BATCH * UNITS];
        let (mut last, mut cells) = (Vec::new(), Vec::new());
        for direction in 0..2 {
            for row in 0..BATCH {
                let state = |given: &Given| (0..UNITS).map(|u| given.at(&[direction, row, u])).collect::<Vec<_>>();
                let (mut hidden, mut cell) = (state(&self.h), state(&self.c));
                let length = case.lengths.map_or(TIME, |lengths| lengths[row] as usize);
                for step in 0..length {
                    let at = if direction == 1 { length - 1 - step } else { step };
                    let functions = &names[direction * usual.len()..][..usual.len()];
                    (hidden, cell) = self.step(case, functions, [at, direction, row], (hidden, cell));
                    all[((at * 2 + direction) * BATCH + row) * UNITS..][..UNITS].copy_from_slice(&hidden);
                }
                last.extend(hidden);
                cells.extend(cell);
            }
        }
        [all, last, cells]
    }

    fn step(
        &self,
        case: Case,
        functions: &[&str],
        [at, direction, row]: [usize; 3],
        (hidden, mut cell): (Vec<f64>, Vec<f64>),
    ) -> (Vec<f64>, Vec<f64>) {
        let Self { x, w, r, b, p, .. } = self;
        let (gates, _) = kind(case.operator);
        let input = |wide: usize| -> f64 {
            let own: f64 = (0..FEATURES).map(|k| x.at(&[at, row, k]) * w.at(&[direction, wide, k])).sum();
            own + b.at(&[direction, wide])
        };
        let back = |wide: usize, state: &[f64]| -> f64 {
            let sum: f64 = (0..UNITS).map(|k| state[k] * r.at(&[direction, wide, k])).sum();
            sum + b.at(&[direction, gates * UNITS + wide])
        };
        let function = |which: usize, x: f64| {
            bent(functions[which], case.clip.map_or(x, |clip| x.clamp(-f64::from(clip), f64::from(clip))))
        };
        let sum = |gate: usize, unit: usize| input(gate * UNITS + unit) + back(gate * UNITS + unit, &hidden);
        let mut next = Vec::new();
        for unit in 0..UNITS {
            next.push(match case.operator {
                "RNN" => function(0, sum(0, unit)),
                "GRU" => {
                    let reset = |unit: usize| function(0, sum(1, unit));
                    let wide = 2 * UNITS + unit;
                    let new = if case.linear_before_reset {
                        function(1, input(wide) + reset(unit) * back(wide, &hidden))
                    } else {
                        let passed: Vec<_> = (0..UNITS).map(|k| reset(k) * hidden[k]).collect();
                        function(1, input(wide) + back(wide, &passed))
                    };
                    let update = function(0, sum(0, unit));
                    (1.0 - update) * new + update * hidden[unit]
                }
                _ => {
                    let seen = |gate: usize| {
                        if case.peepholes { p.at(&[direction, gate * UNITS + unit]) } else { 0.0 }
                    };
                    let taken = function(0, sum(0, unit) + seen(0) * cell[unit]);
                    let forget = function(0, sum(2, unit) + seen(2) * cell[unit]);
                    let forget = if case.coupled { 1.0 - taken } else { forget };
                    cell[unit] = forget * cell[unit] + taken * function(1, sum(3, unit));
                    function(0, sum(1, unit) + seen(1) * cell[unit]) * function(2, cell[unit])
                }
            });
        }
        (next, cell)
    }

    /// The node and its inputs.
    fn node(&self, case: Case) -> (NodeProto, Vec<TensorProto>) {
        let Self { x, w, r, b, p, h, c } = self;
        let turned = |given: &Given, name: &str| {
            let [outer, inner, width] = given.dims[..] else { panic!("three dimensions") };
            let places = (0..inner).flat_map(|i| (0..outer).flat_map(move |o| (0..width).map(move |k| [o, i, k])));
            let elements: Vec<f32> = places.map(|place| given.at(&place) as f32).collect();
            TensorProto::f32s(name, &[inner as i64, outer as i64, width as i64], &elements)
        };
        let mut inputs = vec![w.message(), r.message(), b.message(), p.message()];
        inputs.extend(match case.batch_first {
            true => [turned(x, "x"), turned(h, "h"), turned(c, "c")],
            false => [x, h, c].map(Given::message),
        });
        let bytes = |lengths: [i32; 2]| lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
        inputs.extend(case.lengths.map(|l| TensorProto::raw("n", data_type::INT32, &[BATCH as i64], bytes(l))));
        let lengths = if case.lengths.is_some() { "n" } else { "" };
        let mut names = vec!["x", "w", "r", "b", lengths, "h"];
        let mut outputs = vec!["y", "z"];
        if case.operator == "LSTM" {
            names.extend(["c", if case.peepholes { "p" } else { "" }]);
            outputs.push("u");
        }
        let node = NodeProto::of(case.operator, &names, &outputs)
            .with(int("hidden_size", UNITS as i64))
            .with(int("layout", i64::from(case.batch_first)))
            .with(AttributeProto::string("direction", "bidirectional"));
        let node = match case.operator {
            "LSTM" => node.with(int("input_forget", i64::from(case.coupled))),
            "GRU" => node.with(int("linear_before_reset", i64::from(case.linear_before_reset))),
            _ => node,
        };
        let node = match case.clip {
            Some(clip) => node.with(AttributeProto::float("clip", clip)),
            None => node,
        };
        let taking = |least: usize| case.activations.iter().filter(move |name| constants(name) >= least).count();
        let node = match case.activations {
            [] => node,
            names => node
                .with(AttributeProto::strings("activations", names))
                .with(AttributeProto::floats("activation_alpha", &vec![0.3; taking(1)]))
                .with(AttributeProto::floats("activation_beta", &vec![0.7; taking(2)])),
        };
        (node, inputs)
    }
}

/// Converts `[t, d, b, u]` to `[b, t, d, u]`, and `[d, b, u]` to `[b, d, u]`.
fn batch_first(states: &[f64], outer: usize) -> Vec<f64> {
    let places = (0..BATCH).flat_map(|b| (0..outer).flat_map(move |o| (0..UNITS).map(move |u| (o * BATCH + b, u))));
    places.map(|(row, unit)| states[row * UNITS + unit]).collect()
}

#[test]
fn layers_of_every_option_follow_their_definitions() {
    let gru = Case { operator: "GRU", ..USUAL };
    let rnn = Case { operator: "RNN", ..USUAL };
    let cases = [
        USUAL,
        Case { peepholes: true, ..USUAL },
        Case { coupled: true, clip: Some(0.4), ..USUAL },
        Case { coupled: true, peepholes: true, clip: Some(0.4), ..USUAL },
        Case { coupled: true, ..USUAL },
        Case { clip: Some(0.2), ..USUAL },
        Case { lengths: Some([1, 3]), ..USUAL },
        Case { lengths: Some([2, 1]), peepholes: true, batch_first: true, ..USUAL },
        Case { activations: &["HardSigmoid", "Softsign", "Relu", "Sigmoid", "Affine", "Softplus"], ..USUAL },
        gru,
        Case { linear_before_reset: true, clip: Some(0.3), ..gru },
        Case { clip: Some(0.3), ..gru },
        Case { linear_before_reset: true, lengths: Some([3, 2]), ..gru },
        Case { lengths: Some([2, 3]), clip: Some(0.3), batch_first: true, ..gru },
        Case { activations: &["HardSigmoid", "LeakyRelu", "Sigmoid", "ScaledTanh"], linear_before_reset: true, ..gru },
        rnn,
        Case { clip: Some(0.3), batch_first: true, ..rnn },
        Case { lengths: Some([1, 2]), batch_first: true, ..rnn },
        Case { activations: &["Elu", "ThresholdedRelu"], clip: Some(0.8), ..rnn },
    ];
    for case in cases {
        let layer = Layer::of(kind(case.operator).0);
        let (node, inputs) = layer.node(case);
        let made = numbers(node, inputs);
        let wanted = layer.wanted(case);
        for (at, (made, wanted)) in made.iter().zip(&wanted).enumerate() {
            let outer = if at == 0 { TIME * 2 } else { 2 };
            let wanted = if case.batch_first { batch_first(wanted, outer) } else { wanted.clone() };
            near(made, &wanted, &format!("output {at} of {case:?}"));
        }
    }
}

#[test]
fn time_steps_that_become_nodes_have_a_bound_in_each_layer() {
    let weight = |name: &str| TensorProto::f32s(name, &[1, 1, 1], &[0.5]);
    let refusal = |layers: usize, time: i64| {
        let x = TensorProto::f32s("x", &[time, 1, 1], &vec![1.0; time as usize]);
        let relu = || AttributeProto::strings("activations", &["Relu"]);
        let layer = |at: usize| NodeProto::of("RNN", &["x", "w", "r"], &[&format!("y{at}")]).with(relu());
        answers_of((0..layers).map(layer).collect(), vec![x, weight("w"), weight("r")]).err()
    };
    assert_eq!((refusal(1, 1024), refusal(17, 1024)), (None, None));
    let long = refusal(1, 1025).expect("too long");
    assert!(long.contains("1025 time steps") && long.contains("the limit per operator is 1024"), "{long}");
}
