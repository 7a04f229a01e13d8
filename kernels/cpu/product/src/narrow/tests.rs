//! Products with narrow weights compared with their definition in 64-bit floats, on every instruction set and number of
//! threads.

use super::*;
use crate::testing::prepare as prepare_node;
use crate::testing::{self, shape};
use anabranch_cpu_base::Team;
use anabranch_cpu_base::vector::{levels, vectorised_at};
use anabranch_kernel_testing::products::{epilogue, keep, require_close, run, run_by_teams, spec, tensor};
use anabranch_op::op::Op;
use anabranch_op::tensor::{Tensor, TensorSpec};
use arbtest::arbitrary::{Result as Arbitrary, Unstructured};
use half::{bf16, f16};
use std::iter::zip;
use std::time::Duration;

/// Returns pseudo-random bytes.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|i| ((i + 1).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Returns a node, its inputs, and its weights `[columns, depth]` widened.
fn case(
    op: &NarrowMatMul,
    dtype: DType,
    [m, n, k]: [usize; 3],
    padding: usize,
    extras: &[Vec<usize>],
) -> (NodeSpec, Vec<Tensor>, Vec<f64>) {
    let line = (k * op.bits()).div_ceil(8 * dtype.size()) + padding;
    let dims = if op.transpose_b { [n, line] } else { [k, n] };
    let a = tensor(&[m, k], 1);
    let weights = if dtype == DType::U8 {
        Tensor::from_elements(shape(&dims), &bytes(dims[0] * dims[1])).expect("as many")
    } else {
        let values = tensor(&dims, 2);
        testing::tensor(dtype, &dims, |i| f64::from(values.elements::<f32>().expect("f32")[i]))
    };
    let mut inputs = vec![a, weights.clone()];
    if let NarrowFormat::Grid { block, zero_points, .. } = op.format {
        let blocks = [n, k.div_ceil(block)];
        inputs.push(tensor(&blocks, 3));
        if zero_points {
            let values: Vec<f32> = (0..blocks[0] * blocks[1]).map(|i| (i % 7) as f32 + 0.5 * (i % 2) as f32).collect();
            inputs.push(Tensor::from_elements(shape(&blocks), &values).expect("as many"));
        }
    }
    inputs.extend(extras.iter().zip(5..).map(|(dims, seed)| tensor(dims, seed)));
    let wide = (0..n * k).map(|at| {
        let (j, p) = (at / k, at % k);
        let index = if op.transpose_b { j * line + p } else { p * n + j };
        let NarrowFormat::Grid { bits, block, zero_points } = op.format else {
            return match dtype {
                DType::F16 => weights.elements::<f16>().expect("f16")[index].to_f64(),
                _ => weights.elements::<bf16>().expect("bf16")[index].to_f64(),
            };
        };
        let raw = weights.elements::<u8>().expect("u8");
        let number = match op.transpose_b {
            true => raw[j * line + p * bits / 8] >> (p * bits % 8),
            false => raw[index],
        };
        let number = f64::from(number & (u8::MAX >> (8 - bits)));
        let parameter =
            |input: usize| f64::from(inputs[input].elements::<f32>().expect("f32")[j * k.div_ceil(block) + p / block]);
        let zero = if zero_points { parameter(3) } else { f64::from(1 << (bits - 1)) };
        (number - zero) * parameter(2)
    });
    let wide = wide.collect();
    let specs = inputs.iter().map(|input| input.spec().clone()).collect();
    (NodeSpec { op: Op::NarrowMatMul(op.clone()), inputs: specs, outputs: vec![spec(&[m, n])] }, inputs, wide)
}

fn require_correct(node: &NodeSpec, inputs: &[Tensor], wide: &[f64], found: &[f32]) {
    let a = inputs[0].elements::<f32>().expect("f32");
    let k = inputs[0].shape().dims()[1];
    require_close(node, inputs, found, |coordinates| {
        let [i, j] = *coordinates else { panic!("a matrix") };
        let terms = (0..k).map(|p| f64::from(a[i * k + p]) * wide[j * k + p]);
        terms.fold((0.0, 0.0), |(sum, magnitude), term| (sum + term, magnitude + term.abs()))
    });
}

/// Op, its weights' type, rows, columns and depth, the padding of a line of weights, and the shapes of the epilogue's
/// inputs.
type Random = (NarrowMatMul, DType, [usize; 3], usize, Vec<Vec<usize>>);

fn random(u: &mut Unstructured<'_>) -> Arbitrary<Random> {
    let m = *u.choose(&[1, 1, 2, 3, 4, 5, 8, 9, 17, 40])?;
    let (n, k) = (u.int_in_range(1..=150)?, u.int_in_range(1..=150)?);
    let (format, dtype) = match u.int_in_range(0..=4)? {
        0 => (NarrowFormat::Float, DType::F16),
        1 => (NarrowFormat::Float, DType::BF16),
        _ => {
            let (bits, block) = (*u.choose(&[2, 4, 8])?, *u.choose(&[16, 32, 64, 128, 256])?);
            (NarrowFormat::Grid { bits, block, zero_points: u.arbitrary()? }, DType::U8)
        }
    };
    let lines = matches!(format, NarrowFormat::Grid { bits, .. } if bits < 8);
    let transpose_b = lines || u.arbitrary()?;
    let padding = if transpose_b && dtype == DType::U8 { u.int_in_range(0..=3)? } else { 0 };
    let bias: &[usize] = if u.arbitrary()? { &[m, 1] } else { &[n] };
    let (epilogue, extras) = epilogue(u, &[m, n], bias)?;
    Ok((NarrowMatMul { format, transpose_b, quantize_a: false, epilogue }, dtype, [m, n, k], padding, extras))
}

#[test]
fn products_agree_with_the_definition() {
    arbtest::arbtest(|u| {
        let (op, dtype, sizes, padding, extras) = random(u)?;
        let (node, inputs, wide) = case(&op, dtype, sizes, padding, &extras);
        let constants = vec![u.arbitrary()?; inputs.len()];
        let mut kernel = prepare(&op, &node, &constants).expect("a sound node");
        keep(&mut *kernel, &inputs);
        require_correct(&node, &inputs, &wide, &run_by_teams(&*kernel, &node, &inputs));
        Ok(())
    })
    .budget(Duration::from_millis(900));
}

#[test]
fn deep_and_wide_products_agree_with_the_definition() {
    for (bits, block) in [(2, 64), (4, 32), (4, 256), (8, 1500)] {
        for rows in [1, 4, 70] {
            let format = NarrowFormat::Grid { bits, block, zero_points: bits == 4 };
            let op = NarrowMatMul { format, transpose_b: true, quantize_a: false, epilogue: None };
            let (node, inputs, wide) = case(&op, DType::U8, [rows, 700, 1001], 0, &[]);
            let mut kernel = prepare(&op, &node, &[false, true, true, true]).expect("a sound node");
            assert!(!kernel.reads(1) && !kernel.reads(2) && kernel.scratch_bytes() == 0);
            keep(&mut *kernel, &inputs);
            require_correct(&node, &inputs, &wide, &run_by_teams(&*kernel, &node, &inputs));
        }
    }
}

/// Terms of one sign: errors of their partial sums do not cancel.
#[test]
fn errors_do_not_grow_with_the_depth() {
    let weight = |p: usize, j: usize| (200 + (p * 37 + j * 11) % 56) as u8;
    let element = |i: usize, p: usize| 1.0 + ((p * 29 + i * 7) % 101) as f32 / 101.0;
    let columns = 3;
    for depth in [30_000, 33_026, 70_000, 200_000] {
        for (rows, format) in [1, 3, 9].into_iter().flat_map(|rows| {
            let grid = NarrowFormat::Grid { bits: 8, block: depth, zero_points: true };
            [grid, NarrowFormat::Float].map(|format| (rows, format))
        }) {
            let op = NarrowMatMul { format, transpose_b: true, quantize_a: false, epilogue: None };
            let a: Vec<f32> = (0..rows * depth).map(|at| element(at / depth, at % depth)).collect();
            let mut inputs = vec![Tensor::from_elements(shape(&[rows, depth]), &a).expect("as many")];
            if format == NarrowFormat::Float {
                let number = |at: usize| f64::from(weight(at % depth, at / depth));
                inputs.push(testing::tensor(DType::F16, &[columns, depth], number));
            } else {
                let weights: Vec<u8> = (0..columns * depth).map(|at| weight(at % depth, at / depth)).collect();
                inputs.push(Tensor::from_elements(shape(&[columns, depth]), &weights).expect("as many"));
                let each = [[0.5f32; 3], [0.0; 3]].map(|of| Tensor::from_elements(shape(&[columns, 1]), &of));
                inputs.extend(each.map(|of| of.expect("as many")));
            }
            let specs = inputs.iter().map(|input| input.spec().clone()).collect();
            let node =
                NodeSpec { op: Op::NarrowMatMul(op.clone()), inputs: specs, outputs: vec![spec(&[rows, columns])] };
            let kernel = prepare(&op, &node, &vec![false; inputs.len()]).expect("a sound node");
            let scale = if format == NarrowFormat::Float { 1.0 } else { 0.5 };
            for (at, found) in run(&*kernel, &node, &inputs, &Team::solo()).into_iter().enumerate() {
                let (i, j) = (at / columns, at % columns);
                let terms = (0..depth).map(|p| f64::from(element(i, p)) * f64::from(weight(p, j)) * scale);
                let want: f64 = terms.sum();
                let error = (f64::from(found) - want).abs() / want;
                assert!(error < 2e-6, "{depth} steps, {rows} rows, {format:?}: an error of {error:.1e}");
            }
        }
    }
}

#[test]
fn the_rows_of_a_tile_change_no_bits() {
    let format = NarrowFormat::Grid { bits: 4, block: 32, zero_points: true };
    let op = NarrowMatMul { format, transpose_b: true, quantize_a: false, epilogue: None };
    let columns = MANY_TILES * PANEL;
    let made = |rows: usize| {
        let (node, inputs, _) = case(&op, DType::U8, [rows, columns, 40], 0, &[]);
        let kernel = prepare(&op, &node, &[false; 4]).expect("a sound node");
        (summation(&node), run_by_teams(&*kernel, &node, &inputs))
    };
    let [few, many] = [TILE_ROWS[1] - 1, TILE_ROWS[1]];
    assert!(tile_rows(few, columns) <= TILE_ROWS[0] && tile_rows(many, columns) > TILE_ROWS[0]);
    let ((key, few), (key_of_many, many)) = (made(few), made(many));
    assert_eq!(key, key_of_many);
    assert!(zip(few, many).all(|(few, many)| few.to_bits() == many.to_bits()));
}

/// Returns the elements of A as they are after rounding, and half of the scale of each.
fn quantized(a: &[f32], depth: usize, block: usize) -> (Vec<f64>, Vec<f64>) {
    let blocks = a.chunks(depth.max(1)).flat_map(|row| row.chunks(block));
    let rounded = blocks.flat_map(|block| {
        let greatest = block.iter().fold(0.0f32, |greatest, x| greatest.max(x.abs()));
        let scale = (greatest / 127.0).max(f32::MIN_POSITIVE);
        block.iter().map(move |x| {
            (f64::from((x * (1.0 / scale)).round_ties_even()) * f64::from(scale), 0.5001 * f64::from(scale))
        })
    });
    rounded.unzip()
}

/// Inputs and definition of a product whose left-hand matrix is quantised; elements of A have magnitudes about `size`.
fn quantized_case(
    sizes: [usize; 3],
    (block, zero_points): (usize, bool),
    size: f32,
) -> (NodeSpec, Vec<Tensor>, Vec<f64>) {
    let format = NarrowFormat::Grid { bits: 4, block, zero_points };
    let op = NarrowMatMul { format, transpose_b: true, quantize_a: true, epilogue: None };
    let [m, n, k] = sizes;
    let padding = k.next_multiple_of(8) / 2 - k.div_ceil(2);
    let (node, mut inputs, wide) = case(&op, DType::U8, [m, n, k], padding, &[]);
    let a: Vec<f32> = inputs[0].elements::<f32>().expect("f32").iter().map(|x| x * size).collect();
    inputs[0] = Tensor::from_elements(shape(&[m, k]), &a).expect("as many");
    (node, inputs, wide)
}

#[test]
fn quantised_products_agree_with_the_definition_of_rounded_rows() {
    arbtest::arbtest(|u| {
        let sizes @ [m, _, k] = [
            *u.choose(&[1, 1, 2, 3, 4, 5, 8, 9, 17, 40])?,
            u.int_in_range(1..=150)?,
            *u.choose(&[1, 7, 8, 9, 16, 31, 32, 33, 40, 64, 100, 129, 520])?,
        ];
        let (block, zero_points) = (*u.choose(&[8, 16, 24, 32, 64, 128, 256])?, u.arbitrary()?);
        let size = *u.choose(&[1.0, 1.0, 1e-30, 1e-37, 1e-40, 1e30, 0.0])?;
        let (node, inputs, wide) = quantized_case(sizes, (block, zero_points), size);
        let Op::NarrowMatMul(op) = &node.op else { panic!("a product") };
        let mut kernel = prepare(op, &node, &vec![u.arbitrary()?; inputs.len()]).expect("a sound node");
        keep(&mut *kernel, &inputs);
        let found = run_by_teams(&*kernel, &node, &inputs);
        let a = inputs[0].elements::<f32>().expect("f32");
        let (rounded, half) = quantized(a, k, block);
        for (at, found) in found.iter().enumerate() {
            let (i, j) = (at / sizes[1], at % sizes[1]);
            let terms = |of: &[f64]| -> Vec<f64> { (0..k).map(|p| of[i * k + p] * wide[j * k + p]).collect() };
            let want: f64 = terms(&rounded).iter().sum();
            let magnitude: f64 = terms(&rounded).iter().map(|term| term.abs()).sum();
            // Zero points are joined with sums of up to `block` integers.
            let most: f64 = 8.0 * terms(&half).iter().map(|term| term.abs()).sum::<f64>() * 256.0;
            // Products below the normal numbers are rounded to the least number.
            let tolerance = 1e-6 * (magnitude + most) + k as f64 * 1e-44;
            assert!((f64::from(*found) - want).abs() <= tolerance, "{found}, not {want} at {i}, {j} of {sizes:?}");
            // Rounding changes no more than half of the scale of each element.
            let exact: f64 = (0..k).map(|p| f64::from(a[i * k + p]) * wide[j * k + p]).sum();
            let bound: f64 = terms(&half).iter().map(|term| term.abs()).sum();
            assert!((f64::from(*found) - exact).abs() <= bound + tolerance, "{found}, not near {exact} of {m} rows");
        }
        Ok(())
    })
    .budget(Duration::from_millis(900));
}

#[test]
fn quantised_rows_that_are_not_finite_give_no_numbers() {
    let sizes @ [m, n, k] = [3, 5, 64];
    let (node, mut inputs, _) = quantized_case(sizes, (32, true), 1.0);
    let mut a = inputs[0].elements::<f32>().expect("f32").to_vec();
    (a[5], a[k + 40]) = (f32::INFINITY, f32::NAN);
    inputs[0] = Tensor::from_elements(shape(&[m, k]), &a).expect("as many");
    let Op::NarrowMatMul(op) = &node.op else { panic!("a product") };
    let kernel = prepare(op, &node, &[]).expect("a sound node");
    let found = run_by_teams(&*kernel, &node, &inputs);
    assert!(found[..2 * n].iter().all(|x| x.is_nan()) && found[2 * n..].iter().all(|x| x.is_finite()), "{found:?}");
}

/// All weights and all factors have the greatest magnitude, so that 16-bit sums come as near to their end as they can.
#[test]
fn quantised_sums_do_not_overflow() {
    for (level, block) in levels().flat_map(|level| [16, 32, 64, 1024, 8192].map(|block| (level, block))) {
        let k = 16384;
        let packed = vec![[[0xFF; 4 * LANES]; PANEL / LANES]; k / 8];
        for sign in [1.0f32, -1.0] {
            let a = vec![sign * 2.0; k];
            let [found] = quantized::tests::rows_by_panel(level, [&a], &packed, block, None);
            assert!(found.iter().all(|x| *x == sign * 2.0 * 7.0 * k as f32), "level {level}, block {block}: {found:?}");
        }
    }
}

/// Whole numbers with the greatest magnitude 127 are not changed by rounding.
#[test]
fn every_instruction_set_computes_the_same_quantised_products() {
    fn check<const ROWS: usize>(depth: usize, block: usize, zero_points: Option<&[f32]>) {
        let element =
            |row: usize, p: usize| if p.is_multiple_of(block) { -127.0 } else { ((p * 37 + row) % 200) as f32 - 99.0 };
        let a: Vec<Vec<f32>> = (0..ROWS).map(|row| (0..depth).map(|p| element(row, p)).collect()).collect();
        let packed: Vec<[[u8; 4 * LANES]; PANEL / LANES]> =
            bytemuck::cast_slice(&bytes(depth.div_ceil(8) * 4 * PANEL)).to_vec();
        let raw: &[u8] = bytemuck::cast_slice(&packed);
        for level in levels() {
            let rows = from_fn::<&[f32], ROWS, _>(|row| &a[row]);
            let found = quantized::tests::rows_by_panel(level, rows, &packed, block, zero_points);
            for (i, j) in (0..ROWS).flat_map(|i| (0..PANEL).map(move |j| (i, j))) {
                let term = |p: usize| {
                    let byte = raw[p / 8 * 4 * PANEL + 4 * j + p % 8 / 2];
                    let zero = zero_points.map_or(8.0, |of| of[p / block * PANEL + j]);
                    a[i][p] * (f32::from(byte >> (p % 2 * 4) & 15) - zero)
                };
                let want: f32 = (0..depth).map(term).sum();
                assert_eq!(found[i][j], want, "level {level}, {ROWS} rows, {depth} by {block}, row {i}, column {j}");
            }
        }
    }
    let zero_points: Vec<f32> = (0..9 * PANEL).map(|at| (at % 31) as f32 * 0.5).collect();
    for zero_points in [None, Some(&zero_points[..])] {
        for (depth, block) in [(8, 8), (35, 16), (64, 32), (100, 40), (257, 32), (257, 256)] {
            check::<1>(depth, block, zero_points);
            check::<2>(depth, block, zero_points);
            check::<3>(depth, block, zero_points);
            check::<4>(depth, block, zero_points);
        }
    }
}

/// Checks a panel's product at each level of instructions.
#[test]
fn every_instruction_set_computes_the_same_integers() {
    fn check<E: Element, const ROWS: usize>(bits: usize, depth: usize) {
        let a: Vec<Vec<f32>> =
            (0..ROWS).map(|r| (0..depth).map(|p| ((p * 5 + r) % 7) as f32 - 3.0).collect()).collect();
        let groups = depth.div_ceil(8 / bits);
        let packed: Vec<[E::Bytes; PANEL / LANES]> = bytemuck::cast_slice(&bytes(groups * PANEL)).to_vec();
        let raw: &[u8] = bytemuck::cast_slice(&packed);
        for level in levels() {
            let a = from_fn::<&[f32], ROWS, _>(|row| &a[row]);
            let panel = Panel::<E, ROWS> { a, weights: &packed, block: 16, scales: None, zero_points: None };
            let found = vectorised_at(level, panel);
            for (i, j) in (0..ROWS).flat_map(|i| (0..PANEL).map(move |j| (i, j))) {
                let want: f32 = (0..depth)
                    .map(|p| {
                        let byte = raw[p * bits / 8 * PANEL + j] >> (p * bits % 8) & (u8::MAX >> (8 - bits));
                        a[i][p] * (f32::from(byte) - E::MIDDLE)
                    })
                    .sum();
                assert_eq!(found[i][j], want, "level {level}, {bits} bits, row {i}, column {j}");
            }
        }
    }
    for depth in [1, 3, 16, 35] {
        check::<Bits<2>, 1>(2, depth);
        check::<Bits<4>, 1>(4, depth);
        check::<Bits<4>, 3>(4, depth);
        check::<Bits<8>, 4>(8, depth);
    }
}

#[test]
fn sixteen_bits_are_widened_on_every_instruction_set() {
    let values: Vec<f32> = [1.0, -2.5, 65504.0, 6e-8, 0.0, f32::INFINITY].into_iter().cycle().take(PANEL).collect();
    for level in levels() {
        let halves: Vec<u8> = values.iter().flat_map(|x| f16::from_f32(*x).to_ne_bytes()).collect();
        let weights: &[[[u8; 2 * LANES]; PANEL / LANES]] = bytemuck::cast_slice(&halves);
        let panel = Panel::<Half, 1> { a: [&[1.0]], weights, block: 1, scales: None, zero_points: None };
        let found = vectorised_at(level, panel)[0];
        assert!(found.iter().zip(&values).all(|(x, want)| *x == f16::from_f32(*want).to_f32()), "level {level}");
        let halves: Vec<u8> = values.iter().flat_map(|x| bf16::from_f32(*x).to_ne_bytes()).collect();
        let weights: &[[[u8; 2 * LANES]; PANEL / LANES]] = bytemuck::cast_slice(&halves);
        let panel = Panel::<UpperHalf, 1> { a: [&[1.0]], weights, block: 1, scales: None, zero_points: None };
        let found = vectorised_at(level, panel)[0];
        assert!(found.iter().zip(&values).all(|(x, want)| *x == bf16::from_f32(*want).to_f32()), "level {level}");
    }
}

#[test]
fn packed_weights_are_as_small_as_the_weights() {
    let format = NarrowFormat::Grid { bits: 4, block: 32, zero_points: false };
    let op = NarrowMatMul { format, transpose_b: true, quantize_a: false, epilogue: None };
    let (node, inputs, wide) = case(&op, DType::U8, [1, 256, 512], 0, &[]);
    let mut kernel = prepare(&op, &node, &[false, true, true]).expect("a sound node");
    let packed: usize = kernel.packings().iter().map(|packing| packing.layout.bytes()).sum();
    assert_eq!(packed, inputs[1].bytes().len() + inputs[2].bytes().len());
    // Pieces of the weights are packed to the same bytes.
    let layout = kernel.packings()[0].layout.clone();
    let [mut whole, mut parts] = [(); 2].map(|()| Buffer::zeroed(layout.bytes()));
    layout.pack(inputs[1].bytes(), whole.bytes_mut());
    for piece in layout.pieces(1) {
        layout.pack_piece(&piece, &inputs[1].bytes()[piece.clone()], parts.bytes_mut());
    }
    assert_eq!(whole.bytes(), parts.bytes());
    let call = Call {
        inputs: &[inputs[0].bytes(), &[], &[]],
        outputs: &mut [&mut [0; 1024]],
        rows: 0..1,
        scratch: &mut [],
        team: &Team::solo(),
    };
    assert_eq!(kernel.run(call), Err(KernelError::Packed { input: 1 }));
    keep(&mut *kernel, &inputs);
    require_correct(&node, &inputs, &wide, &run(&*kernel, &node, &inputs, &Team::solo()));
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let op = |bits, block, transpose_b| {
        let format = NarrowFormat::Grid { bits, block, zero_points: false };
        NarrowMatMul { format, transpose_b, quantize_a: false, epilogue: None }
    };
    let node = |op: &NarrowMatMul, dtype, weights: &[usize], scales: &[usize]| {
        let weights = TensorSpec::new(dtype, shape(weights));
        let inputs = vec![spec(&[2, 64]), weights, spec(scales)];
        NodeSpec { op: Op::NarrowMatMul(op.clone()), inputs, outputs: vec![spec(&[2, 5])] }
    };
    let (four, eight) = (op(4, 32, true), op(8, 64, false));
    assert!(prepare_node(&node(&four, DType::U8, &[5, 32], &[5, 2]), &[]).is_ok());
    assert!(prepare_node(&node(&eight, DType::U8, &[64, 5], &[5, 1]), &[]).is_ok());
    for unsound in [
        node(&four, DType::U8, &[5, 31], &[5, 2]),
        node(&four, DType::U8, &[5, 32], &[5, 3]),
        node(&four, DType::U8, &[4, 32], &[4, 2]),
        node(&four, DType::I8, &[5, 32], &[5, 2]),
        node(&op(4, 32, false), DType::U8, &[32, 5], &[5, 2]),
        node(&op(3, 32, true), DType::U8, &[5, 32], &[5, 2]),
        node(&op(4, 0, true), DType::U8, &[5, 32], &[5, 2]),
        node(&op(4, 33, true), DType::U8, &[5, 32], &[5, 2]),
        node(&eight, DType::U8, &[63, 5], &[5, 1]),
        node(&NarrowMatMul { quantize_a: true, ..op(8, 64, true) }, DType::U8, &[5, 64], &[5, 1]),
        node(&NarrowMatMul { quantize_a: true, ..op(4, 4, true) }, DType::U8, &[5, 32], &[5, 16]),
        node(&NarrowMatMul { quantize_a: true, ..op(4, 32, true) }, DType::U8, &[5, 33], &[5, 2]),
    ] {
        assert!(prepare_node(&unsound, &[]).is_err(), "{unsound:?}");
    }
}
