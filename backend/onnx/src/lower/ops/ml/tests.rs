//! Trees of all comparisons against their definition, and rejected lists from files.

use crate::import::from_bytes;
use crate::import::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto, data_type,
};
use crate::lower::{LowerError, LowerOptions, lower};
use anabranch_ir::program::Program;
use arbtest::arbitrary::{Result, Unstructured};

const MODES: [&str; 6] = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"];

/// Lowers one node of the domain that makes `y` from `x`.
fn lowered(node: NodeProto, x: TensorProto) -> std::result::Result<Program, LowerError> {
    let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
    let graph = GraphProto { node: vec![node], initializer: vec![x], output, ..GraphProto::default() };
    let mut model = ModelProto::of(graph, 21);
    model.opset_import = vec![OperatorSetIdProto { domain: "ai.onnx.ml".into(), version: 3 }];
    lower(&from_bytes(&model.to_bytes(), None).expect("a sound model"), &LowerOptions::default())
}

fn node(operator: &str, attributes: Vec<AttributeProto>) -> NodeProto {
    let node = NodeProto { domain: "ai.onnx.ml".into(), ..NodeProto::of(operator, &["x"], &["y"]) };
    attributes.into_iter().fold(node, NodeProto::with)
}

/// Elements to which the program of a constant input was folded.
fn folded(node: NodeProto, x: &[f32], features: usize) -> Vec<f32> {
    let x = TensorProto::f32s("x", &[(x.len() / features) as i64, features as i64], x);
    let program = lowered(node, x).expect("a sound node");
    let output = program.outputs[0].value;
    let constant = program.constant(output).expect("all its inputs are constant").load().expect("in memory");
    constant.elements::<f32>().expect("scores").to_vec()
}

/// A tree, as lists: one node after the other; the first is the root.
#[derive(Default)]
struct Lists {
    modes: Vec<&'static str>,
    values: Vec<f32>,
    features: Vec<i64>,
    sides: [Vec<i64>; 2],
    missing: Vec<i64>,
    weights: Vec<f32>,
}

impl Lists {
    fn random(u: &mut Unstructured<'_>, features: usize) -> Result<Self> {
        let mut lists = Self::default();
        let branches = u.int_in_range(0..=12usize)?;
        for at in 0..=2 * branches {
            // Node i < branches leads to the nodes 2i + 1 and 2i + 2: a tree that is filled level by level.
            let leaf = at >= branches;
            lists.modes.push(if leaf { "LEAF" } else { u.choose(&MODES)? });
            lists.values.push(number(u)?);
            lists.features.push(u.choose_index(features)? as i64);
            let sides = if leaf { [0, 0] } else { [2 * at as i64 + 1, 2 * at as i64 + 2] };
            lists.sides[0].push(sides[0]);
            lists.sides[1].push(sides[1]);
            lists.missing.push(i64::from(u.arbitrary::<bool>()?));
            lists.weights.push(f32::from(u.int_in_range(-9i8..=9)?));
        }
        Ok(lists)
    }

    /// Weight of the leaf that a row reaches, by the standard's definition.
    fn weight(&self, row: &[f32], at: usize) -> f32 {
        let (x, t) = (row[self.features[at] as usize], self.values[at]);
        let holds = match self.modes[at] {
            "LEAF" => return self.weights[at],
            "BRANCH_LEQ" => x <= t,
            "BRANCH_LT" => x < t,
            "BRANCH_GTE" => x >= t,
            "BRANCH_GT" => x > t,
            "BRANCH_EQ" => x == t,
            _ => x != t,
        };
        let holds = holds || x.is_nan() && self.missing[at] != 0;
        self.weight(row, self.sides[usize::from(!holds)][at] as usize)
    }

    fn attributes(&self) -> Vec<AttributeProto> {
        let count = self.modes.len();
        let leaves: Vec<i64> = (0..count).filter(|at| self.modes[*at] == "LEAF").map(|at| at as i64).collect();
        let weights: Vec<f32> = leaves.iter().map(|at| self.weights[*at as usize]).collect();
        vec![
            AttributeProto::ints("nodes_treeids", &vec![7; count]),
            AttributeProto::ints("nodes_nodeids", &(0..count as i64).collect::<Vec<_>>()),
            AttributeProto::ints("nodes_featureids", &self.features),
            AttributeProto::ints("nodes_truenodeids", &self.sides[0]),
            AttributeProto::ints("nodes_falsenodeids", &self.sides[1]),
            AttributeProto::ints("nodes_missing_value_tracks_true", &self.missing),
            AttributeProto::floats("nodes_values", &self.values),
            AttributeProto::strings("nodes_modes", &self.modes),
            AttributeProto::ints("target_treeids", &vec![7; leaves.len()]),
            AttributeProto::ints("target_nodeids", &leaves),
            AttributeProto::ints("target_ids", &vec![0; leaves.len()]),
            AttributeProto::floats("target_weights", &weights),
        ]
    }
}

fn number(u: &mut Unstructured<'_>) -> Result<f32> {
    Ok(match u.int_in_range(0..=15)? {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => f32::NEG_INFINITY,
        3 => -0.0,
        4 => 1e-45,
        _ => f32::from(u.int_in_range(-3i8..=3)?) / 2.0,
    })
}

#[test]
fn trees_decide_as_they_are_defined() {
    arbtest::arbtest(|u| {
        let features = u.int_in_range(1..=3usize)?;
        let lists = Lists::random(u, features)?;
        let rows = *u.choose(&[1, 7, 8, 9])?;
        let x = (0..rows * features).map(|_| number(u)).collect::<Result<Vec<_>>>()?;
        let got = folded(node("TreeEnsembleRegressor", lists.attributes()), &x, features);
        let want: Vec<f32> = x.chunks(features).map(|row| lists.weight(row, 0)).collect();
        assert_eq!(got, want, "{:?} of {:?} at {x:?}", lists.modes, lists.values);
        Ok(())
    })
    .budget_ms(700);
}

/// Error of one tree of a branch and two leaves, with one attribute replaced.
fn refused(replaced: AttributeProto) -> String {
    let lists = Lists {
        modes: vec!["BRANCH_LEQ", "LEAF", "LEAF"],
        values: vec![0.0; 3],
        features: vec![0; 3],
        sides: [vec![1, 0, 0], vec![2, 0, 0]],
        missing: vec![0; 3],
        weights: vec![1.0; 3],
    };
    let mut attributes = lists.attributes();
    attributes.retain(|attribute| attribute.name != replaced.name);
    attributes.push(replaced);
    let x = TensorProto::f32s("x", &[1, 1], &[1.0]);
    lowered(node("TreeEnsembleRegressor", attributes), x).expect_err("not a tree").to_string()
}

#[test]
fn lists_that_are_no_tree_are_refused() {
    let cases = [
        (AttributeProto::ints("nodes_truenodeids", &[1, 0]), "nodes_truenodeids"),
        (AttributeProto::ints("nodes_truenodeids", &[0, 0, 0]), "node 0 of tree 7 leads to itself"),
        (AttributeProto::ints("nodes_falsenodeids", &[9, 0, 0]), "leads to node 9"),
        (AttributeProto::ints("nodes_featureids", &[1, 0, 0]), "reads feature 1, but rows have 1"),
        (AttributeProto::ints("nodes_featureids", &[i64::MAX, 0, 0]), "reads feature"),
        (AttributeProto::ints("nodes_featureids", &[-1, 0, 0]), "reads feature -1"),
        (AttributeProto::ints("nodes_nodeids", &[0, 1, 1]), "node 1 of tree 7 is listed twice"),
        (AttributeProto::ints("target_ids", &[0, 1]), "target_ids"),
        (AttributeProto::ints("target_ids", &[-1, 0]), "target_ids"),
        (AttributeProto::ints("target_nodeids", &[5, 1]), "node 5 of tree 7, which does not exist"),
        (AttributeProto::floats("target_weights", &[1.0]), "target_weights"),
        (AttributeProto::int("n_targets", i64::MAX), "constant"),
        (AttributeProto::int("n_targets", 0), "n_targets"),
        (AttributeProto::floats("base_values", &[1.0, 2.0]), "base_values"),
    ];
    for (attribute, part) in cases {
        let (name, error) = (attribute.name.clone(), refused(attribute));
        assert!(error.contains(part), "{name}: {error}");
    }
}

#[test]
fn a_tree_may_be_a_chain_of_any_length_and_share_what_is_below() {
    let count = 100_000;
    let chain = |at: usize| if at + 1 < count { "BRANCH_LEQ" } else { "LEAF" };
    let next: Vec<i64> = (0..count as i64).map(|at| (at + 1) % count as i64).collect();
    let lists = Lists {
        modes: (0..count).map(chain).collect(),
        values: vec![0.0; count],
        features: vec![0; count],
        sides: [next.clone(), next],
        missing: vec![0; count],
        weights: vec![3.0; count],
    };
    assert_eq!(folded(node("TreeEnsembleRegressor", lists.attributes()), &[1.0], 1), [3.0]);
}

#[test]
fn numbers_are_looked_up() {
    let keys = AttributeProto::floats("keys_floats", &[2.5, f32::NEG_INFINITY, -1.0, 2.5]);
    let values = AttributeProto::floats("values_floats", &[10.0, 20.0, 30.0, 40.0]);
    let encoder = node("LabelEncoder", vec![keys, values, AttributeProto::float("default_float", 7.0)]);
    let got = folded(encoder, &[2.5, -1.0, f32::NEG_INFINITY, 0.0, f32::NAN, f32::INFINITY], 6);
    assert_eq!(got, [10.0, 30.0, 20.0, 7.0, 7.0, 7.0]);
}

#[test]
fn integers_are_looked_up_in_keys_of_any_order() {
    let x = [2, 3, 4, 5, 6, i64::MIN, i64::MAX, (1 << 53) + 4];
    for keys in [[3, 4, 5], [5, 3, 4]] {
        let labels = keys.map(|key| 10 * key);
        let attributes = vec![
            AttributeProto::ints("keys_int64s", &keys),
            AttributeProto::ints("values_int64s", &labels),
            AttributeProto::int("default_int64", 7),
        ];
        let bytes = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        let x = TensorProto::raw("x", data_type::INT64, &[8], bytes);
        let program = lowered(node("LabelEncoder", attributes), x).expect("sound");
        let made = program.constant(program.outputs[0].value).expect("constant").load().expect("in memory");
        assert_eq!(made.elements::<i64>(), Some(&[7, 30, 40, 50, 7, 7, 7, 7][..]), "{keys:?}");
    }
}

#[test]
fn a_member_of_a_set_goes_the_way_of_members() {
    let tensor = |name: &str, values: &[f32]| TensorProto::f32s(name, &[values.len() as i64], values);
    let modes = TensorProto::raw("nodes_modes", data_type::UINT8, &[1], vec![6]);
    let attributes = vec![
        AttributeProto::tensor("nodes_splits", tensor("s", &[0.0])),
        AttributeProto::tensor("nodes_modes", modes),
        AttributeProto::tensor("leaf_weights", tensor("w", &[1.0, 2.0])),
        AttributeProto::tensor("membership_values", tensor("m", &[3.0, -0.0, f32::NEG_INFINITY, f32::NAN])),
        AttributeProto::ints("nodes_featureids", &[0]),
        AttributeProto::ints("nodes_truenodeids", &[0]),
        AttributeProto::ints("nodes_trueleafs", &[1]),
        AttributeProto::ints("nodes_falsenodeids", &[1]),
        AttributeProto::ints("nodes_falseleafs", &[1]),
        AttributeProto::ints("leaf_targetids", &[0, 0]),
        AttributeProto::ints("tree_roots", &[0]),
        AttributeProto::int("n_targets", 1),
    ];
    let x = [3.0, 0.0, f32::NEG_INFINITY, f32::NAN, 1.0, -1e-45, f32::INFINITY];
    assert_eq!(folded(node("TreeEnsemble", attributes), &x, 1), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
}

#[test]
fn features_of_all_types_are_made_ready() {
    type ToBytes = fn(i8) -> Vec<u8>;
    let bytes = |x: [i8; 2], to: ToBytes| x.into_iter().flat_map(to).collect::<Vec<_>>();
    let types: [(i64, ToBytes); 3] = [
        (data_type::FLOAT, |x| f32::from(x).to_le_bytes().to_vec()),
        (data_type::DOUBLE, |x| f64::from(x).to_le_bytes().to_vec()),
        (data_type::INT64, |x| i64::from(x).to_le_bytes().to_vec()),
    ];
    let cases = [
        (
            "Scaler",
            vec![AttributeProto::floats("offset", &[1.0, 2.0]), AttributeProto::floats("scale", &[0.5, 2.0])],
            [1.0, -12.0],
        ),
        ("Scaler", vec![AttributeProto::floats("scale", &[0.5])], [1.5, -2.0]),
        (
            "Imputer",
            vec![
                AttributeProto::floats("imputed_value_floats", &[9.0, 8.0]),
                AttributeProto::float("replaced_value_float", 3.0),
                AttributeProto::ints("imputed_value_int64s", &[9, 8]),
                AttributeProto::int("replaced_value_int64", 3),
            ],
            [9.0, -4.0],
        ),
        ("Normalizer", vec![AttributeProto::string("norm", "L2")], [f64::from(0.6f32), f64::from(-0.8f32)]),
        ("Binarizer", vec![AttributeProto::float("threshold", -4.5)], [1.0, 1.0]),
        ("Binarizer", vec![AttributeProto::float("threshold", 2.5)], [1.0, 0.0]),
    ];
    for (operator, attributes, want) in cases {
        for (kind, to) in types {
            let x = TensorProto::raw("x", kind, &[1, 2], bytes([3, -4], to));
            let program = lowered(node(operator, attributes.clone()), x).expect("a type of the standard");
            let made = program.constant(program.outputs[0].value).expect("constant").load().expect("in memory");
            let found = super::numbers(&made).expect("numbers");
            assert_eq!(found, want, "{operator} of type {kind}");
        }
    }
}

#[test]
fn rows_without_features_are_refused() {
    let attributes = vec![AttributeProto::int("n_supports", 1 << 60), AttributeProto::floats("rho", &[0.0])];
    let x = TensorProto::f32s("x", &[1, 0], &[]);
    let error = lowered(node("SVMRegressor", attributes), x).expect_err("no feature").to_string();
    assert!(error.contains("at least one feature"), "{error}");
}

#[test]
fn small_distances_beside_a_large_offset_count() {
    let attributes = vec![
        AttributeProto::int("n_supports", 2),
        AttributeProto::floats("rho", &[0.0]),
        AttributeProto::floats("support_vectors", &[1e9, 1e9 + 64.0]),
        AttributeProto::floats("coefficients", &[1.0, 0.0]),
        AttributeProto::floats("kernel_params", &[1.0 / 4096.0, 0.0, 0.0]),
        AttributeProto::string("kernel_type", "RBF"),
    ];
    let got = folded(node("SVMRegressor", attributes), &[1e9, 1e9 + 64.0], 1);
    assert_eq!(got, [1.0, (-1f64).exp() as f32]);
}

#[test]
fn an_infinite_feature_leaves_the_others_zero() {
    for norm in ["L1", "L2", "MAX"] {
        let attributes = vec![AttributeProto::string("norm", norm)];
        let found = folded(node("Normalizer", attributes), &[1.0, f32::INFINITY, -3.0], 3);
        assert!(found[1].is_nan(), "{norm}: {found:?}");
        assert_eq!([found[0], found[2]], [0.0, 0.0], "{norm}");
    }
}

#[test]
fn a_class_without_votes_has_a_score_of_zero() {
    // One leaf, with a vote for each class that is listed.
    let best = |votes: &[(i64, f32)]| {
        let each = |value: i64| vec![value; votes.len()];
        let ids: Vec<i64> = votes.iter().map(|(class, _)| *class).collect();
        let weights: Vec<f32> = votes.iter().map(|(_, weight)| *weight).collect();
        let attributes = vec![
            AttributeProto::ints("nodes_treeids", &[0]),
            AttributeProto::ints("nodes_nodeids", &[0]),
            AttributeProto::ints("nodes_featureids", &[0]),
            AttributeProto::ints("nodes_truenodeids", &[0]),
            AttributeProto::ints("nodes_falsenodeids", &[0]),
            AttributeProto::floats("nodes_values", &[0.0]),
            AttributeProto::strings("nodes_modes", &["LEAF"]),
            AttributeProto::ints("class_treeids", &each(0)),
            AttributeProto::ints("class_nodeids", &each(0)),
            AttributeProto::ints("class_ids", &ids),
            AttributeProto::floats("class_weights", &weights),
            AttributeProto::ints("classlabels_int64s", &[7, 8, 9]),
        ];
        let x = TensorProto::f32s("x", &[1, 1], &[1.0]);
        let program = lowered(node("TreeEnsembleClassifier", attributes), x).expect("a sound node");
        let label = program.constant(program.outputs[0].value).expect("constant").load().expect("in memory");
        label.elements::<i64>().expect("labels")[0]
    };
    assert_eq!(best(&[(0, -0.18)]), 8);
    assert_eq!(best(&[(0, -0.18), (2, 0.0)]), 8);
    assert_eq!(best(&[(0, 0.0), (1, 0.0)]), 7);
    assert_eq!(best(&[(2, 0.5)]), 9);
    assert_eq!(best(&[(1, -0.5), (2, -0.25)]), 7);
}
