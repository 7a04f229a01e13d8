//! Products of integers compared with their definition in 64 bits, for all block instructions and numbers of threads.

use super::*;
use crate::testing::prepare as prepare_node;
use crate::testing::{run_kernel, shape};
use anabranch_cpu_base::Team;
use anabranch_op::op::{Op, Rounding};
use anabranch_op::tensor::{Tensor, TensorSpec};
use arbtest::arbitrary::Unstructured;
use std::time::Duration;

pub(super) fn numbers(dtype: DType, dims: &[usize], seed: usize) -> Tensor {
    let shape = shape(dims);
    // The extremes are frequent.
    let byte = |i: usize| match ((i + 1).wrapping_mul(2_654_435_761 + 2 * seed) >> 11) % 512 {
        x if x < 256 => x as u8,
        x => [0, 0x7f, 0x80, 0xff][x % 4],
    };
    let bytes: Vec<u8> = (0..shape.elements()).map(byte).collect();
    match dtype {
        DType::U8 => Tensor::from_elements(shape, &bytes),
        _ => Tensor::from_elements(shape, bytemuck::cast_slice::<u8, i8>(&bytes)),
    }
    .expect("as many")
}

pub(super) fn integers(count: usize, seed: usize) -> Tensor {
    let values: Vec<i32> = (0..count).map(|i| ((i * 37 + seed) % 511) as i32 - 255).collect();
    Tensor::from_elements(shape(&[count]), &values).expect("as many")
}

pub(super) fn wide(tensor: &Tensor) -> Vec<i64> {
    match tensor.elements::<u8>() {
        Some(bytes) => bytes.iter().map(|x| i64::from(*x)).collect(),
        None => tensor.elements::<i8>().expect("bytes").iter().map(|x| i64::from(*x)).collect(),
    }
}

/// Type of an output that sums are rounded to, and the range.
pub(super) type Rounded = Option<(DType, Rounding)>;

/// Chooses a rounding, or none.
pub(super) fn any_rounding(u: &mut Unstructured<'_>) -> arbtest::arbitrary::Result<Rounded> {
    let (dtype, least, greatest) = if u.arbitrary()? { (DType::U8, 0, 255) } else { (DType::I8, -128, 127) };
    let cut: bool = u.arbitrary()?;
    let rounding =
        if cut { Rounding { least: least + 3, greatest: greatest - 9 } } else { Rounding { least, greatest } };
    Ok(if u.arbitrary()? { Some((dtype, rounding)) } else { None })
}

/// Returns the inputs of a rounding. Most scales and offsets are powers of two, so that halves are frequent.
pub(super) fn grid(count: usize, rounded: Rounded) -> Vec<Tensor> {
    const SCALES: [f64; 11] =
        [1.0 / 64.0, 1.0 / 256.0, 3.0 / 4096.0, -1.0 / 512.0, 0.0, 1e300, 0.1, f64::NAN, f64::NEG_INFINITY, 1e20, -4e9];
    const OFFSETS: [f64; 8] = [0.0, 0.5, -17.25, 100.0, 0.0, -0.0, f64::INFINITY, 0.125];
    let Some((dtype, _)) = rounded else { return Vec::new() };
    let scale = |i: usize| SCALES[i * 7 % 32 % SCALES.len()];
    // A product that is not exact may be rounded before or after the sum with an offset.
    let offset = |i: usize| if scale(i) == 0.1 { 0.0 } else { OFFSETS[i * 5 % 23 % OFFSETS.len()] };
    let numbers = |number: &dyn Fn(usize) -> f64| {
        Tensor::from_elements(shape(&[count]), &(0..count).map(number).collect::<Vec<_>>()).expect("as many")
    };
    vec![numbers(&scale), numbers(&offset), self::numbers(dtype, &[1], 5)]
}

/// Returns the bytes of the output for sums, each with the index of its parameters.
pub(super) fn output(sums: &[(i32, usize)], inputs: &[Tensor], rounded: Rounded) -> Vec<u8> {
    let Some((_, Rounding { least, greatest })) = rounded else {
        return sums.iter().flat_map(|(sum, _)| sum.to_ne_bytes()).collect();
    };
    let [.., scales, offsets, zero] = inputs else { panic!("a rounding has three inputs") };
    let (scales, offsets) = (scales.elements::<f64>().expect("f64"), offsets.elements::<f64>().expect("f64"));
    let zero = wide(zero)[0] as f64;
    let byte = |(sum, at): &(i32, usize)| {
        let x = (f64::from(*sum) * scales[*at] + offsets[*at]).round_ties_even() + zero;
        if x.is_nan() { 0 } else { x.clamp(f64::from(least), f64::from(greatest)) as i16 as u8 }
    };
    sums.iter().map(byte).collect()
}

/// Returns the inputs of a rounding whose scales are all moderate, so that most sums are certain in `f32`.
fn moderate_grid(count: usize, rounded: Rounded) -> Vec<Tensor> {
    let Some((dtype, _)) = rounded else { return Vec::new() };
    let numbers = |number: &dyn Fn(usize) -> f64| {
        Tensor::from_elements(shape(&[count]), &(0..count).map(number).collect::<Vec<_>>()).expect("as many")
    };
    vec![numbers(&|i| 0.000_37 * (i % 7 + 1) as f64), numbers(&|_| 0.0), self::numbers(dtype, &[1], 5)]
}

fn check(
    dots: Dots,
    batches: [&[usize]; 3],
    sizes: [usize; 3],
    dtypes: [DType; 2],
    form: (bool, Rounded),
    constant: bool,
) {
    check_on_grid(grid, dots, batches, sizes, dtypes, form, constant);
}

fn check_on_grid(
    grid: fn(usize, Rounded) -> Vec<Tensor>,
    dots: Dots,
    [left, right, batch]: [&[usize]; 3],
    [m, n, k]: [usize; 3],
    dtypes: [DType; 2],
    (zero_points, rounded): (bool, Rounded),
    constant: bool,
) {
    let matrices: usize = right.iter().product();
    let mut inputs = vec![
        numbers(dtypes[0], &[left, &[m, k]].concat(), 1),
        numbers(dtypes[1], &[right, &[k, n]].concat(), 2),
        integers(matrices * n, 3),
    ];
    inputs.extend(zero_points.then(|| integers(matrices * n, 4)));
    inputs.extend(grid(matrices * n, rounded));
    let op = IntegerMatMul { zero_points, rounding: rounded.map(|(_, rounding)| rounding) };
    let made = rounded.map_or(DType::I32, |(dtype, _)| dtype);
    let node = NodeSpec {
        op: Op::IntegerMatMul(op.clone()),
        inputs: inputs.iter().map(|input| input.spec().clone()).collect(),
        outputs: vec![TensorSpec::new(made, shape(&[batch, &[m, n]].concat()))],
    };
    node.check().expect("sound");
    let mut kernel = Kernel::new(dots, &op, &node, &[false, constant]).expect("a sound node");
    assert_eq!(kernel.reads(1), !constant);
    anabranch_cpu_base::pack(&mut kernel, |input| Some(inputs[input].bytes()));
    let (a, b) = (wide(&inputs[0]), wide(&inputs[1]));
    let batches = Batches::new(&shape(left), &shape(right)).expect("broadcastable");
    let parameter = |input: usize, at: usize| i64::from(inputs[input].elements::<i32>().expect("i32")[at]);
    let sums: Vec<(i32, usize)> = (0..batches.count() * m * n)
        .map(|at| {
            let (product, i, j) = (at / (m * n), at / n % m, at % n);
            let (left, right) = batches.operands(product);
            let zero = if zero_points { parameter(3, right * n + j) } else { 0 };
            let terms = (0..k).map(|p| a[(left * m + i) * k + p] * (b[(right * k + p) * n + j] - zero));
            ((terms.sum::<i64>() + parameter(2, right * n + j)) as i32, right * n + j)
        })
        .collect();
    let want = output(&sums, &inputs, rounded);
    for threads in [1, 3] {
        let made = run_kernel(&kernel, &node, &inputs, &Team::new(threads, |_| {}), &[0, 1]).expect("runs");
        assert!(made[0].bytes() == want, "{dots:?}, {threads} threads, {node:?}");
    }
}

#[test]
fn products_are_exact() {
    let random = |u: &mut Unstructured<'_>| {
        let dots = *u.choose(&Dots::available())?;
        let sizes = [u.int_in_range(1..=40)?, u.int_in_range(1..=110)?, u.int_in_range(1..=130)?];
        let batches: [&[usize]; 3] = match u.int_in_range(0..=4)? {
            0 => [&[2], &[2], &[2]],
            1 => [&[3], &[], &[3]],
            2 => [&[2, 1], &[1, 3], &[2, 3]],
            _ => [&[], &[], &[]],
        };
        let kinds = [DType::U8, DType::I8];
        let dtypes = [*u.choose(&kinds)?, *u.choose(&kinds)?];
        check(dots, batches, sizes, dtypes, (u.arbitrary()?, any_rounding(u)?), u.arbitrary()?);
        Ok(())
    };
    arbtest::arbtest(random).budget(Duration::from_millis(900));
}

#[test]
fn columns_of_moderate_scales_are_rounded_as_defined() {
    let range = |dtype, least, greatest| Some((dtype, Rounding { least, greatest }));
    for dots in Dots::available() {
        for (rows, columns) in [1, 2, 3, 4, 5, 8, 9, 20]
            .into_iter()
            .flat_map(|rows| [1, 3, 4, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 67, 97, 145].map(|wide| (rows, wide)))
        {
            let sizes = [rows, columns, 30 + columns % 5];
            let form = match columns % 3 {
                0 => (true, range(DType::U8, 0, 255)),
                1 => (false, range(DType::I8, -128, 127)),
                _ => (false, range(DType::I8, -100, 90)),
            };
            check_on_grid(moderate_grid, dots, [&[], &[], &[]], sizes, [DType::U8, DType::I8], form, true);
        }
    }
}

#[test]
fn deep_and_wide_products_are_exact() {
    for dots in Dots::available() {
        for (sizes, dtypes) in [
            ([1, 200, 1021], [DType::U8, DType::I8]),
            ([131, 97, 256], [DType::I8; 2]),
            ([9, 193, 300], [DType::U8; 2]),
        ] {
            check(dots, [&[], &[], &[]], sizes, dtypes, (true, None), true);
        }
        check(dots, [&[], &[], &[]], [1, 1, 1], [DType::I8, DType::U8], (false, None), true);
    }
}

#[test]
fn tiles_of_deep_products_are_of_fewer_rows() {
    for (depth, rows) in [(0, TILE_ROWS), (8192, TILE_ROWS), (10_000, 104), (1 << 17, ROWS), (usize::MAX, ROWS)] {
        assert_eq!(tile_rows(depth), rows, "{depth}");
    }
    for dots in Dots::available() {
        check(dots, [&[], &[], &[]], [9, 3, 66_001], [DType::U8, DType::I8], (true, None), true);
    }
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let node = |a: DType, b: &[usize], summands: &[usize], made: DType| {
        let spec = |dtype, dims: &[usize]| TensorSpec::new(dtype, shape(dims));
        let inputs = vec![spec(a, &[2, 3]), spec(DType::I8, b), spec(DType::I32, summands)];
        let op = Op::IntegerMatMul(IntegerMatMul { zero_points: false, rounding: None });
        NodeSpec { op, inputs, outputs: vec![spec(made, &[2, 5])] }
    };
    assert!(prepare_node(&node(DType::U8, &[3, 5], &[5], DType::I32), &[]).is_ok());
    for unsound in [
        node(DType::F32, &[3, 5], &[5], DType::I32),
        node(DType::U8, &[4, 5], &[5], DType::I32),
        node(DType::U8, &[3, 5], &[4], DType::I32),
        node(DType::U8, &[3, 5], &[5], DType::F32),
    ] {
        assert!(prepare_node(&unsound, &[]).is_err(), "{unsound:?}");
    }
}
