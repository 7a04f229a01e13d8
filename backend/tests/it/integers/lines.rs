//! Operators over whole lines: reductions, running sums, products, the order of elements, and updates.

use super::kind::{I32, I64, KINDS, U32, U64};
use super::{Case, Given, check};
use anabranch::import::proto::{AttributeProto, NodeProto};
use anabranch_kernels::DType;

const ROWS: usize = 3;
const COLUMNS: usize = 7;

/// The definition of a reduction; its result wraps.
type Fold = fn(&[i128]) -> i128;

/// The operator, its fold, and whether it accepts narrow types, too.
const FOLDS: [(&str, Fold, bool); 7] = [
    ("ReduceSum", |line| line.iter().sum(), false),
    ("ReduceProd", |line| line.iter().fold(1, |product, x| i128::wrapping_mul(product, *x)), false),
    ("ReduceMax", |line| line.iter().copied().max().unwrap_or(0), true),
    ("ReduceMin", |line| line.iter().copied().min().unwrap_or(0), true),
    ("ReduceMean", |line| line.iter().sum::<i128>() / line.len() as i128, false),
    ("ReduceL1", |line| line.iter().map(|x| x.abs()).sum(), false),
    ("ReduceSumSquare", |line| line.iter().fold(0, |sum, x| i128::wrapping_add(sum, x.wrapping_mul(*x))), false),
];

/// The definition of an update; its result wraps.
type Join = fn(i128, i128) -> i128;

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto::int(name, value)
}

fn row(x: &[i128], row: usize) -> Vec<i128> {
    x[row * COLUMNS..][..COLUMNS].to_vec()
}

fn column(x: &[i128], column: usize) -> Vec<i128> {
    (0..ROWS).map(|row| x[row * COLUMNS + column]).collect()
}

/// Returns the first, or the last, position of the greatest, or the least, element.
fn place(line: &[i128], greatest: bool, last: bool) -> i128 {
    let best = if greatest { line.iter().max() } else { line.iter().min() };
    let is_best = |x: &i128| Some(x) == best;
    (if last { line.iter().rposition(is_best) } else { line.iter().position(is_best) }).unwrap_or(0) as i128
}

#[test]
fn reductions_and_the_order_of_integers_are_their_definitions() {
    arbtest::arbtest(|u| {
        let kind = *u.choose(&KINDS)?;
        let x = kind.some(u, ROWS * COLUMNS)?;
        let (rows, columns) = ((0..ROWS).map(|at| row(&x, at)), (0..COLUMNS).map(|at| column(&x, at)));
        let (rows, columns): (Vec<_>, Vec<_>) = (rows.collect(), columns.collect());
        let mut cases = Vec::new();
        for (operator, fold, narrow) in FOLDS.iter().filter(|(.., narrow)| *narrow || kind.is_wide()) {
            for (axes, lines) in [("one", &rows), ("zero", &columns)] {
                let want: Vec<i128> = lines.iter().map(|line| fold(line)).collect();
                cases.push(Case::of(NodeProto::of(operator, &["x", axes], &[axes]), kind, &want));
            }
            let node = NodeProto::of(operator, &["x"], &["all"]);
            cases.push(Case::of(node, kind, &[fold(&x)]));
            assert!(*narrow || kind.is_wide());
        }
        for (operator, greatest) in [("ArgMax", true), ("ArgMin", false)] {
            for (axis, last) in [(0, false), (0, true), (1, false), (1, true)] {
                let lines = if axis == 1 { &rows } else { &columns };
                let want: Vec<i128> = lines.iter().map(|line| place(line, greatest, last)).collect();
                let node = NodeProto::of(operator, &["x"], &[&format!("{axis} {last}")]);
                let node = node.with(int("axis", axis)).with(int("select_last_index", last.into()));
                cases.push(Case::of(node, I64, &want));
            }
        }
        for largest in [true, false] {
            let sorted = |line: &Vec<i128>| {
                let mut line = line.clone();
                line.sort_unstable();
                if largest {
                    line.reverse();
                }
                line[..2].to_vec()
            };
            let want: Vec<i128> = rows.iter().flat_map(sorted).collect();
            let node = NodeProto::of("TopK", &["x", "two"], &[&format!("{largest}"), &format!("places {largest}")]);
            cases.push(Case::of(node.with(int("largest", largest.into())), kind, &want));
        }
        let given = [
            Given::new("x", kind, &[ROWS, COLUMNS], &x),
            Given::fixed("one", I64, &[1], &[1]),
            Given::fixed("zero", I64, &[1], &[0]),
            Given::fixed("two", I64, &[1], &[2]),
        ];
        check(kind.dtype.name(), &cases, &given);
        Ok(())
    })
    .budget_ms(900);
}

/// Sums of the elements before each element of a line.
fn running(line: &[i128], exclusive: bool, reverse: bool) -> Vec<i128> {
    let mut line = line.to_vec();
    if reverse {
        line.reverse();
    }
    let mut sum = 0;
    for x in &mut line {
        let before = sum;
        sum += *x;
        *x = if exclusive { before } else { sum };
    }
    if reverse {
        line.reverse();
    }
    line
}

#[test]
fn running_sums_and_products_of_matrices_wrap() {
    arbtest::arbtest(|u| {
        let kind = *u.choose(&[I32, U32, I64, U64])?;
        let (x, y) = (kind.some(u, ROWS * COLUMNS)?, kind.some(u, COLUMNS * ROWS)?);
        let mut cases = Vec::new();
        for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
            let want: Vec<i128> = (0..ROWS).flat_map(|at| running(&row(&x, at), exclusive, reverse)).collect();
            let node = NodeProto::of("CumSum", &["x", "axis"], &[&format!("{exclusive} {reverse}")]);
            let node = node.with(int("exclusive", exclusive.into())).with(int("reverse", reverse.into()));
            cases.push(Case::of(node, kind, &want));
        }
        let dot = |i: usize, j: usize| {
            (0..COLUMNS).fold(0i128, |sum, k| sum.wrapping_add(x[i * COLUMNS + k].wrapping_mul(y[k * ROWS + j])))
        };
        let places = || (0..ROWS).flat_map(|i| (0..ROWS).map(move |j| (i, j)));
        let product: Vec<i128> = places().map(|(i, j)| dot(i, j)).collect();
        cases.push(Case::of(NodeProto::of("MatMul", &["x", "y"], &["p"]), kind, &product));
        let scaled: Vec<i128> = places().map(|(i, j)| kind.wrap(dot(i, j)) * 3 - 2 * y[j]).collect();
        let gemm = NodeProto::of("Gemm", &["x", "y", "c"], &["g"]);
        let gemm = gemm.with(AttributeProto::float("alpha", 3.0)).with(AttributeProto::float("beta", -2.0));
        cases.push(Case::of(gemm, kind, &scaled));
        let given = [
            Given::new("x", kind, &[ROWS, COLUMNS], &x),
            Given::new("y", kind, &[COLUMNS, ROWS], &y),
            Given::new("c", kind, &[ROWS], &y[..ROWS]),
            Given::fixed("axis", I64, &[], &[1]),
        ];
        check(kind.dtype.name(), &cases, &given);
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn sums_over_named_axes_wrap_and_an_axis_of_one_goes_with_any() {
    arbtest::arbtest(|u| {
        let kind = *u.choose(&KINDS)?;
        let (x, y, z) = (kind.some(u, ROWS * COLUMNS)?, kind.some(u, COLUMNS)?, kind.some(u, ROWS)?);
        let at = |i: usize, j: usize| x[i * COLUMNS + j];
        let sum = |terms: &mut dyn Iterator<Item = i128>| terms.fold(0i128, i128::wrapping_add);
        let einsum = |equation: &str, inputs: &[&str]| {
            NodeProto::of("Einsum", inputs, &[equation]).with(AttributeProto::string("equation", equation))
        };
        let lines: Vec<i128> = (0..ROWS).map(|i| sum(&mut (0..COLUMNS).map(|j| at(i, j).wrapping_mul(y[j])))).collect();
        let all = sum(&mut (0..ROWS * COLUMNS).map(|at| x[at].wrapping_mul(y[at % COLUMNS])));
        let turned: Vec<i128> =
            (0..COLUMNS).flat_map(|j| (0..ROWS).map(move |i| (i, j))).map(|(i, j)| at(i, j)).collect();
        let outer: Vec<i128> =
            (0..ROWS).flat_map(|i| y.iter().map(move |y| (i, *y))).map(|(i, y)| z[i].wrapping_mul(y)).collect();
        let squares: Vec<i128> = (0..ROWS)
            .flat_map(|i| (0..ROWS).map(move |k| (i, k)))
            .map(|(i, k)| sum(&mut (0..COLUMNS).map(|j| at(i, j).wrapping_mul(at(k, j)))))
            .collect();
        let cases = [
            Case::of(einsum("ij,j->i", &["x", "y"]), kind, &lines),
            Case::of(einsum("ij,kj->ik", &["x", "x"]), kind, &squares),
            Case::of(einsum("ij->ji", &["x"]), kind, &turned),
            Case::of(einsum("i,j->ij", &["z", "y"]), kind, &outer),
            // The second term's first axis has one element.
            Case::of(einsum("ij,ij->i", &["x", "row"]), kind, &lines),
            Case::of(einsum("ij,ij->", &["x", "row"]), kind, &[all]),
        ];
        let given = [
            Given::new("x", kind, &[ROWS, COLUMNS], &x),
            Given::new("y", kind, &[COLUMNS], &y),
            Given::new("z", kind, &[ROWS], &z),
            Given::new("row", kind, &[1, COLUMNS], &y),
        ];
        check(kind.dtype.name(), &cases, &given);
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn updates_of_integers_are_combined_in_their_type() {
    arbtest::arbtest(|u| {
        let kind = *u.choose(&KINDS)?;
        let (x, new) = (kind.some(u, COLUMNS)?, kind.some(u, 4)?);
        let places = [5usize, 0, 5, 2];
        let combine: [(&str, Join); 5] = [
            ("none", |_, new| new),
            ("add", |old, new| old + new),
            ("mul", i128::wrapping_mul),
            ("min", i128::min),
            ("max", i128::max),
        ];
        let mut cases = Vec::new();
        for (reduction, of) in combine {
            let mut want = x.clone();
            for (place, new) in places.iter().zip(&new) {
                want[*place] = kind.wrap(of(want[*place], *new));
            }
            let operators =
                if reduction == "none" { &["ScatterElements"][..] } else { &["ScatterElements", "ScatterND"] };
            for operator in operators {
                let index = if *operator == "ScatterND" { "tuples" } else { "places" };
                let node = NodeProto::of(operator, &["x", index, "new"], &[reduction]);
                cases.push(Case::of(node.with(AttributeProto::string("reduction", reduction)), kind, &want));
            }
        }
        let indices = places.map(|place| place as i128 - if place == 5 { COLUMNS as i128 } else { 0 });
        let given = [
            Given::new("x", kind, &[COLUMNS], &x),
            Given::new("new", kind, &[4], &new),
            Given::new("places", I64, &[4], &indices),
            Given::new("tuples", I64, &[4, 1], &indices),
        ];
        check(kind.dtype.name(), &cases, &given);
        Ok(())
    })
    .budget_ms(400);
}

#[test]
fn the_greatest_and_the_least_of_no_integers_are_the_ends_of_their_type() {
    for kind in KINDS {
        let cases = [("ReduceMax", kind.least()), ("ReduceMin", kind.greatest())]
            .map(|(operator, want)| Case::of(NodeProto::of(operator, &["x", "one"], &["y"]), kind, &[want; 2]));
        let given = [Given::new("x", kind, &[2, 0], &[]), Given::fixed("one", I64, &[1], &[1])];
        check(kind.dtype.name(), &cases, &given);
    }
}

#[test]
fn roots_and_logarithms_of_integers_are_those_of_real_numbers() {
    for kind in [I32, I64, U32, U64] {
        let cases = [("ReduceL2", 50), ("ReduceLogSum", 4), ("ReduceLogSumExp", 40)]
            .map(|(operator, want)| Case::of(NodeProto::of(operator, &["x"], &["y"]), kind, &[want]));
        check(kind.dtype.name(), &cases, &[Given::new("x", kind, &[2], &[30, 40])]);
        let ends = [kind.greatest(), kind.greatest()];
        let root = Case::of(NodeProto::of("ReduceL2", &["x"], &["y"]), kind, &[kind.greatest()]);
        check(kind.dtype.name(), &[root], &[Given::new("x", kind, &[2], &ends)]);
    }
    let cases = [Case::typed(NodeProto::of("Erf", &["x"], &["y"]), DType::I32, I32.bytes(&[0, 0, 1, -1]))];
    check("erf", &cases, &[Given::new("x", I32, &[4], &[0, 1, 9, -9])]);
}
