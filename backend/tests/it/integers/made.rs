//! Integers that are constants of operators: borders, ranges, repeated or selected values, and triangles.

use super::kind::{I32, I64, KINDS, Kind, U64};
use super::{Case, Given, check, inputs, model, session};
use anabranch::import::proto::{AttributeProto, NodeProto, TensorProto};
use anabranch::lower::Rewrites;

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto::int(name, value)
}

#[test]
fn constants_of_operators_keep_all_bits() {
    arbtest::arbtest(|u| {
        let kind = *u.choose(&KINDS)?;
        let x = kind.some(u, 9)?;
        let (value, other) = (kind.any(u)?, kind.any(u)?);
        let padded = [&[value][..], &x[..3], &[value]].concat();
        let repeated = TensorProto::raw("", kind.code, &[1], kind.bytes(&[value]));
        let at = |of: fn(usize, usize) -> bool| {
            (0..9).map(|at| if of(at / 3, at % 3) { x[at] } else { 0 }).collect::<Vec<_>>()
        };
        let hot = [other, other, value, value, other, other, other, other, other];
        let chosen: Vec<i128> = (0..9).map(|at| if x[at] < value { x[at] } else { value }).collect();
        let triangle = |upper: i64, k: &str| NodeProto::of("Trilu", &["x", k], &[k]).with(int("upper", upper));
        let cases = vec![
            Case::of(NodeProto::of("Pad", &["line", "pads", "value"], &["y"]), kind, &padded),
            Case::of(
                NodeProto::of("ConstantOfShape", &["shape"], &["y"]).with(AttributeProto::tensor("value", repeated)),
                kind,
                &[value; 6],
            ),
            Case::of(NodeProto::of("Expand", &["value", "shape"], &["y"]), kind, &[value; 6]),
            Case::of(NodeProto::of("OneHot", &["indices", "depth", "values"], &["y"]), kind, &hot),
            Case::of(triangle(1, "k"), kind, &at(|row, column| column > row)),
            Case::of(triangle(0, "minus"), kind, &at(|row, column| column < row)),
            Case::of(NodeProto::of("EyeLike", &["x"], &["y"]), kind, &[1, 0, 0, 0, 1, 0, 0, 0, 1]),
            Case::of(NodeProto::of("Min", &["x", "value"], &["w"]), kind, &chosen),
            Case::of(NodeProto::of("Identity", &["x"], &["i"]), kind, &x),
        ];
        let given = [
            Given::new("x", kind, &[3, 3], &x),
            Given::new("line", kind, &[3], &x[..3]),
            Given::fixed("value", kind, &[1], &[value]),
            Given::fixed("values", kind, &[2], &[other, value]),
            Given::fixed("pads", I64, &[2], &[1, 1]),
            Given::fixed("shape", I64, &[2], &[2, 3]),
            Given::new("indices", I64, &[3], &[2, -3, i64::MIN.into()]),
            Given::fixed("depth", I64, &[1], &[3]),
            Given::fixed("k", I64, &[], &[1]),
            Given::fixed("minus", I64, &[], &[-1]),
        ];
        check(kind.dtype.name(), &cases, &given);
        Ok(())
    })
    .budget_ms(600);
}

#[test]
fn indices_without_a_sign_are_never_counted_from_the_end() {
    let want = [0, 0, 1, 0, 0, 0, 0, 0, 0];
    let cases = [Case::of(NodeProto::of("OneHot", &["indices", "depth", "values"], &["y"]), I32, &want)];
    let given = [
        Given::new("indices", U64, &[3], &[2, (1 << 64) - 1, 1 << 63]),
        Given::fixed("depth", U64, &[1], &[3]),
        Given::fixed("values", I32, &[2], &[0, 1]),
    ];
    check("uint64", &cases, &given);
}

#[test]
fn ranges_span_all_integers() {
    let (least, greatest) = (i128::from(i64::MIN), i128::from(i64::MAX));
    for (start, limit, delta) in [
        (least, greatest, 1 << 61),
        (greatest, least, -(1 << 61)),
        (greatest - 3, greatest, 1),
        ((1 << 53) + 1, (1 << 53) + 6, 2),
        (least, least + 5, 2),
        (5, 5, 1),
        (5, 4, 1),
        (least, greatest, greatest),
    ] {
        let mut want = Vec::new();
        let mut next = start;
        while if delta > 0 { next < limit } else { next > limit } {
            want.push(next);
            next += delta;
        }
        let cases = [Case::of(NodeProto::of("Range", &["start", "limit", "delta"], &["y"]), I64, &want)];
        let bounds = [("start", start), ("limit", limit), ("delta", delta)];
        check("int64", &cases, &bounds.map(|(name, value)| Given::fixed(name, I64, &[], &[value])));
    }
}

#[test]
fn different_integers_are_found_in_order() {
    for kind in KINDS {
        let x = [kind.greatest(), kind.least(), 1, kind.greatest(), kind.greatest() - 1];
        let mut want: Vec<i128> = x.to_vec();
        want.sort_unstable();
        want.dedup();
        let unique = Case::of(NodeProto::of("Unique", &["x"], &["y"]), kind, &want);
        let cases = [unique, Case::of(NodeProto::of("NonZero", &["x"], &["y"]), I64, &[])];
        let given = [Given::new("x", kind, &[5], &x)];
        let outputs = session(&model(&cases, &given, false), Rewrites::default()).run(&inputs(&given)).expect("runs");
        let places: &[i128] = if kind.signed { &[0, 1, 2, 3, 4] } else { &[0, 2, 3, 4] };
        assert_eq!(found(I64, outputs.tensor(&cases[1].output).expect("made")), places, "{kind:?}");
        assert_eq!(found(kind, outputs.tensor(&cases[0].output).expect("made")), want, "{kind:?}");
    }
}

fn found(kind: Kind, tensor: &anabranch::Tensor) -> Vec<i128> {
    kind.values(tensor)
}

/// Resized images of integers have the elements of the input.
#[test]
fn resized_integers_keep_all_bits() {
    arbtest::arbtest(|u| {
        let kind = *u.choose(&KINDS)?;
        let x = kind.some(u, 4)?;
        let text = AttributeProto::string;
        let resize =
            |name: &str| NodeProto::of("Resize", &["x", "", "", "sizes"], &[name]).with(text("mode", "nearest"));
        let corner = resize("corner")
            .with(text("coordinate_transformation_mode", "asymmetric"))
            .with(text("nearest_mode", "floor"));
        let twice: Vec<i128> = x.iter().flat_map(|value| [*value; 2]).collect();
        let cases = [Case::of(resize("half"), kind, &twice), Case::of(corner, kind, &twice)];
        let given = [Given::new("x", kind, &[1, 1, 1, 4], &x), Given::fixed("sizes", I64, &[4], &[1, 1, 1, 8])];
        check(&format!("{kind:?}"), &cases, &given);
        Ok(())
    })
    .budget_ms(300);
}
