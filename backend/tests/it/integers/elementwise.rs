//! Functions of corresponding elements, alone and in chains.

use super::kind::{KINDS, Kind};
use super::{Case, Given, check};
use anabranch::import::proto::{AttributeProto, NodeProto, data_type};
use anabranch_kernels::DType;
use arbtest::arbitrary::{Result, Unstructured};

/// A function of two numbers, whose result wraps.
struct Function {
    operator: &'static str,
    attribute: fn() -> Option<AttributeProto>,
    /// Second operand: `b`, `d` without zeros, or `e` without negative numbers.
    second: &'static str,
    exists: fn(Kind) -> bool,
    of: fn(Kind, i128, i128) -> i128,
}

const fn function(operator: &'static str, second: &'static str, of: fn(Kind, i128, i128) -> i128) -> Function {
    Function { operator, attribute: || None, second, exists: |_| true, of }
}

fn shift(kind: Kind, x: i128, distance: i128, left: bool) -> i128 {
    match u32::try_from(distance) {
        Ok(distance) if distance < kind.bits => {
            if left {
                x << distance
            } else {
                x >> distance
            }
        }
        _ => 0,
    }
}

fn power(kind: Kind, base: i128, mut exponent: i128) -> i128 {
    let (mut result, mut square) = (1, base);
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = kind.wrap(i128::wrapping_mul(result, square));
        }
        square = kind.wrap(square.wrapping_mul(square));
        exponent /= 2;
    }
    result
}

const FUNCTIONS: [Function; 15] = [
    function("Add", "b", |_, x, y| x + y),
    function("Sub", "b", |_, x, y| x - y),
    function("Mul", "b", |_, x, y| x.wrapping_mul(y)),
    function("Div", "d", |_, x, y| x / y),
    function("Mod", "d", |_, x, y| ((x % y) + y) % y),
    Function { attribute: || Some(AttributeProto::int("fmod", 1)), ..function("Mod", "d", |_, x, y| x % y) },
    function("Min", "b", |_, x, y| x.min(y)),
    function("Max", "b", |_, x, y| x.max(y)),
    function("BitwiseAnd", "b", |_, x, y| x & y),
    function("BitwiseOr", "b", |_, x, y| x | y),
    function("BitwiseXor", "b", |_, x, y| x ^ y),
    Function { exists: |kind| kind.is_wide(), ..function("Pow", "e", power) },
    Function { exists: |kind| kind.is_wide(), ..function("PRelu", "b", |_, x, y| if x < 0 { x * y } else { x }) },
    Function {
        attribute: || Some(AttributeProto::string("direction", "LEFT")),
        exists: |kind| !kind.signed,
        ..function("BitShift", "e", |kind, x, y| shift(kind, x, y, true))
    },
    Function {
        attribute: || Some(AttributeProto::string("direction", "RIGHT")),
        exists: |kind| !kind.signed,
        ..function("BitShift", "e", |kind, x, y| shift(kind, x, y, false))
    },
];

/// Whether two numbers are in an order.
type Comparison = fn(&i128, &i128) -> bool;

/// An operator of one number, the types that it accepts, and its value, which wraps.
type Single = (&'static str, fn(Kind) -> bool, fn(i128) -> i128);

const SINGLES: [Single; 5] = [
    ("Neg", |kind| kind.signed, |x| -x),
    ("Abs", |_| true, i128::abs),
    ("Sign", |_| true, i128::signum),
    ("Relu", |kind| kind.signed, |x| x.max(0)),
    ("BitwiseNot", |_| true, |x| !x),
];

impl Function {
    fn node(&self, first: &str, output: &str) -> NodeProto {
        let node = NodeProto::of(self.operator, &[first, self.second], &[output]);
        match (self.attribute)() {
            Some(attribute) => node.with(attribute),
            None => node,
        }
    }
}

/// Operands of all functions: any number, any, any but zero, any that is not negative.
fn operands(kind: Kind, u: &mut Unstructured<'_>, count: usize) -> Result<Vec<(&'static str, Vec<i128>)>> {
    let (a, b) = (kind.some(u, count)?, kind.some(u, count)?);
    let d: Vec<i128> = b.iter().map(|b| if *b == 0 { 1 } else { *b }).collect();
    let small = |b: &i128| if b % 2 == 0 { b.abs() % 70 } else { b.abs() };
    let e: Vec<i128> = b.iter().map(small).map(|e| e.min(kind.greatest())).collect();
    Ok(vec![("a", a), ("b", b), ("d", d), ("e", e)])
}

fn given(kind: Kind, operands: &[(&'static str, Vec<i128>)]) -> Vec<Given> {
    operands.iter().map(|(name, values)| Given::new(name, kind, &[values.len()], values)).collect()
}

fn of<'a>(operands: &'a [(&'static str, Vec<i128>)], name: &str) -> &'a [i128] {
    operands.iter().find(|(own, _)| *own == name).map_or(&[], |(_, values)| values)
}

#[test]
fn functions_of_two_integers_are_their_definitions() {
    arbtest::arbtest(|u| {
        let kind = *u.choose(&KINDS)?;
        let operands = operands(kind, u, 24)?;
        let a = of(&operands, "a");
        let pairs =
            |second: &str| a.iter().zip(of(&operands, second).to_vec()).map(|(a, b)| (*a, b)).collect::<Vec<_>>();
        let mut cases: Vec<Case> = FUNCTIONS
            .iter()
            .enumerate()
            .filter(|(_, function)| (function.exists)(kind))
            .map(|(number, function)| {
                let want =
                    pairs(function.second).into_iter().map(|(x, y)| (function.of)(kind, x, y)).collect::<Vec<_>>();
                Case::of(function.node("a", &number.to_string()), kind, &want)
            })
            .collect();
        let comparisons: [(&str, Comparison); 5] = [
            ("Less", i128::lt),
            ("LessOrEqual", i128::le),
            ("Greater", i128::gt),
            ("GreaterOrEqual", i128::ge),
            ("Equal", i128::eq),
        ];
        for (operator, holds) in comparisons {
            let want: Vec<bool> = pairs("b").iter().map(|(x, y)| holds(x, y)).collect();
            cases.push(Case::truths(NodeProto::of(operator, &["a", "b"], &["t"]), &want));
        }
        let clipped: Vec<i128> = a.iter().map(|x| (*x).max(a[0]).min(a[1])).collect();
        let bounds = [("low", a[0]), ("high", a[1])].map(|(name, bound)| Given::new(name, kind, &[], &[bound]));
        cases.push(Case::of(NodeProto::of("Clip", &["a", "low", "high"], &["c"]), kind, &clipped));
        let three: Vec<i128> =
            (0..a.len()).map(|at| a[at].max(of(&operands, "b")[at]).max(of(&operands, "e")[at])).collect();
        cases.push(Case::of(NodeProto::of("Max", &["a", "b", "e"], &["m"]), kind, &three));
        check(kind.dtype.name(), &cases, &[given(kind, &operands), bounds.to_vec()].concat());
        Ok(())
    })
    .budget_ms(900);
}

#[test]
fn functions_of_one_integer_and_casts_are_their_definitions() {
    arbtest::arbtest(|u| {
        let kind = *u.choose(&KINDS)?;
        let a = kind.some(u, 24)?;
        let mut cases: Vec<Case> = SINGLES
            .iter()
            .filter(|(_, exists, _)| exists(kind))
            .map(|(operator, _, of)| {
                let want: Vec<i128> = a.iter().map(|x| of(*x)).collect();
                Case::of(NodeProto::of(operator, &["a"], &["y"]), kind, &want)
            })
            .collect();
        let cast =
            |code: i64| NodeProto::of("Cast", &["a"], &[&code.to_string()]).with(AttributeProto::int("to", code));
        cases.extend(KINDS.iter().map(|to| Case::of(cast(to.code), *to, &a)));
        let truths: Vec<bool> = a.iter().map(|x| *x != 0).collect();
        cases.push(Case::truths(cast(data_type::BOOL), &truths));
        let singles = a.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
        cases.push(Case::typed(cast(data_type::FLOAT), DType::F32, singles));
        let doubles = a.iter().flat_map(|x| (*x as f64).to_le_bytes()).collect();
        cases.push(Case::typed(cast(data_type::DOUBLE), DType::F64, doubles));
        check(kind.dtype.name(), &cases, &[Given::new("a", kind, &[24], &a)]);
        Ok(())
    })
    .budget_ms(700);
}

#[test]
fn chains_of_integers_wrap_at_each_step() {
    arbtest::arbtest(|u| {
        let kind = *u.choose(&KINDS)?;
        let operands = operands(kind, u, 12)?;
        let mut cases = Vec::new();
        for chain in 0..4 {
            let mut values = of(&operands, "a").to_vec();
            let (mut nodes, mut last) = (Vec::new(), "a".to_owned());
            for step in 0..u.int_in_range(2..=4)? {
                let output = format!("{chain} {step}");
                if u.ratio(1, 3)? {
                    let (operator, exists, of) = u.choose(&SINGLES)?;
                    if !exists(kind) {
                        continue;
                    }
                    values.iter_mut().for_each(|value| *value = kind.wrap(of(*value)));
                    nodes.push(NodeProto::of(operator, &[&last], &[&output]));
                } else {
                    let function = u.choose(&FUNCTIONS)?;
                    if !(function.exists)(kind) {
                        continue;
                    }
                    let second = of(&operands, function.second);
                    for (value, second) in values.iter_mut().zip(second) {
                        *value = kind.wrap((function.of)(kind, *value, *second));
                    }
                    nodes.push(function.node(&last, &output));
                }
                last = output;
            }
            if !nodes.is_empty() {
                cases.push(Case { nodes, output: last, dtype: kind.dtype, want: kind.bytes(&values) });
            }
        }
        check(kind.dtype.name(), &cases, &given(kind, &operands));
        Ok(())
    })
    .budget_ms(700);
}
