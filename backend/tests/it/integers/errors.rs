//! An undefined operation on integers is an error, folded and in a run. A float beyond a type of integers becomes the
//! type's nearest number.

use super::kind::{I64, KINDS, Kind, U64};
use super::{Case, Given, check, inputs, model, session};
use anabranch::import::from_bytes;
use anabranch::import::proto::{AttributeProto, NodeProto, data_type};
use anabranch::lower::{LowerOptions, Rewrites, lower};
use anabranch_kernels::DType;

/// Errors of a node over these inputs: when lowered, and when run.
fn errors(node: NodeProto, kind: Kind, given: &[Given]) -> [String; 2] {
    let cases = [Case::of(node, kind, &[])];
    let whole = from_bytes(&model(&cases, given, true), None).expect("a sound model");
    let lowered = lower(&whole, &LowerOptions::default()).expect_err("undefined").to_string();
    let run = session(&model(&cases, given, false), Rewrites::default()).run(&inputs(given)).err();
    [lowered, run.expect("undefined").to_string()]
}

#[test]
fn division_by_zero_is_an_error_that_names_the_node() {
    for kind in KINDS {
        let given = [Given::new("a", kind, &[2], &[1, 2]), Given::new("b", kind, &[2], &[1, 0])];
        for node in [
            NodeProto::of("Div", &["a", "b"], &["y"]),
            NodeProto::of("Mod", &["a", "b"], &["y"]),
            NodeProto::of("Mod", &["a", "b"], &["y"]).with(AttributeProto::int("fmod", 1)),
        ] {
            for error in errors(node.named("the quotient"), kind, &given) {
                assert!(error.contains("zero") && error.contains("the quotient"), "{error}");
            }
        }
    }
}

#[test]
fn negative_powers_are_reciprocals_and_of_zero_an_error() {
    let power = || NodeProto::of("Pow", &["a", "b"], &["y"]);
    let (a, b) = ([2, -1, -1, 1, 5], [-1, -3, -2, -9, 0]);
    check(
        "int64",
        &[Case::of(power(), I64, &[0, -1, 1, 1, 1])],
        &[Given::new("a", I64, &[5], &a), Given::new("b", I64, &[5], &b)],
    );
    let a = [2, (1 << 64) - 1, 1, 0, (1 << 64) - 1];
    check(
        "uint64",
        &[Case::of(power(), U64, &[0, 0, 1, 1, 1])],
        &[Given::new("a", U64, &[5], &a), Given::new("b", I64, &[5], &[-1, -3, -1, 0, 2])],
    );
    for kind in [I64, U64] {
        let given = [Given::new("a", kind, &[1], &[0]), Given::new("b", I64, &[1], &[-1])];
        for error in errors(power(), kind, &given) {
            assert!(error.contains("zero"), "{error}");
        }
    }
}

#[test]
fn what_a_type_does_not_hold_is_refused() {
    let given = [Given::new("a", I64, &[1, 1, 2, 2], &[0; 4]), Given::new("b", I64, &[2, 2], &[0; 4])];
    let pool = NodeProto::of("MaxPool", &["a"], &["y"]).with(AttributeProto::ints("kernel_shape", &[2, 2]));
    let gemm = NodeProto::of("Gemm", &["b", "b"], &["y"]).with(AttributeProto::float("alpha", 0.5));
    for node in [pool, gemm, NodeProto::of("Mean", &["b", "b"], &["y"])] {
        let name = node.op_type.clone();
        let whole = from_bytes(&model(&[Case::of(node, I64, &[])], &given, false), None).expect("a sound model");
        let error = lower(&whole, &LowerOptions::default()).expect_err(&name).to_string();
        assert!(error.contains(&name), "{error}");
    }
}

#[test]
fn floats_become_the_nearest_integers_and_nan_becomes_zero() {
    let floats: [f64; 12] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        2.75,
        -2.75,
        1e30,
        -1e30,
        9_223_372_036_854_775_808.0,
        18_446_744_073_709_549_568.0,
        300.0,
        -1.0,
    ];
    let whole = |kind: Kind, x: f64| match x {
        x if x.is_nan() => 0,
        x => (x.clamp(-1e25, 1e25) as i128).clamp(kind.least(), kind.greatest()),
    };
    let given = |code, dtype, data| Given { name: "x", code, dtype, dims: vec![floats.len()], data, fixed: false };
    let singles = floats.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
    let doubles = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
    let single: Vec<f64> = floats.iter().map(|x| f64::from(*x as f32)).collect();
    for (given, values) in [
        (given(data_type::FLOAT, DType::F32, singles), &single[..]),
        (given(data_type::DOUBLE, DType::F64, doubles), &floats[..]),
    ] {
        let case = |to: &Kind| {
            let node = NodeProto::of("Cast", &["x"], &[to.dtype.name()]).with(AttributeProto::int("to", to.code));
            let want: Vec<i128> = values.iter().map(|x| whole(*to, *x)).collect();
            Case::of(node, *to, &want)
        };
        check(given.dtype.name(), &KINDS.iter().map(case).collect::<Vec<_>>(), std::slice::from_ref(&given));
    }
}
