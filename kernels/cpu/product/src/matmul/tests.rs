//! Products compared with their definition in 64-bit floats, by every micro-kernel and number of threads.

use super::*;
use crate::testing::prepare;
use crate::testing::run_windows;
use anabranch_cpu_base::Team;
use anabranch_kernel_testing::products::{epilogue, keep, require_close, run, run_by_teams, spec, tensor};
use anabranch_op::op::{Binary, Expression, Op, Register, Step, Unary};
use anabranch_op::tensor::{Tensor, TensorSpec};
use arbtest::arbitrary::{Result as Arbitrary, Unstructured};
use std::time::Duration;

/// Returns a random node, and whether each of its inputs is constant.
fn node(u: &mut Unstructured<'_>) -> Arbitrary<(MatMul, NodeSpec)> {
    let mut size = || {
        Ok(match u.int_in_range(0..=9)? {
            0 => 0,
            1..=2 => 1,
            3..=7 => u.int_in_range(2..=40)?,
            _ => u.int_in_range(41..=150)?,
        })
    };
    let (m, n, k) = (size()?, size()?, size()?);
    let (transpose_a, transpose_b) = (u.arbitrary()?, u.arbitrary()?);
    let (left, right, batch): (&[usize], &[usize], &[usize]) = match u.int_in_range(0..=5)? {
        0 => (&[2], &[2], &[2]),
        1 => (&[3], &[], &[3]),
        2 => (&[2, 1], &[1, 3], &[2, 3]),
        3 => (&[], &[2], &[2]),
        _ => (&[], &[], &[]),
    };
    let matrix = |batch: &[usize], rows, columns, transposed: bool| {
        [batch, &if transposed { [columns, rows] } else { [rows, columns] }].concat()
    };
    let output = [batch, &[m, n]].concat();
    let bias: &[usize] = if u.arbitrary()? { &[n] } else { &[m, 1] };
    let (epilogue, extras) = epilogue(u, &output, bias)?;
    let op = MatMul { transpose_a, transpose_b, epilogue, ..MatMul::default() };
    let mut inputs = vec![matrix(left, m, k, transpose_a), matrix(right, k, n, transpose_b)];
    inputs.extend(extras);
    let inputs = inputs.iter().map(|dims| spec(dims)).collect();
    Ok((op.clone(), NodeSpec { op: Op::MatMul(op), inputs, outputs: vec![spec(&output)] }))
}

fn require_correct(op: &MatMul, node: &NodeSpec, inputs: &[Tensor], found: &[f32]) {
    let (a, b) = (inputs[0].elements::<f32>().expect("f32"), inputs[1].elements::<f32>().expect("f32"));
    let (Sizes { m, n, k }, batches) = sizes(op, node).expect("a sound node");
    require_close(node, inputs, found, |coordinates| {
        let (batch, [i, j]) = coordinates.split_last_chunk().expect("of rank 2 or more");
        let product = batch.iter().zip(batches.dims()).fold(0, |product, (index, dim)| product * dim + index);
        let (left, right) = batches.operands(product);
        let terms = (0..k).map(|p| {
            let a = a[left * m * k + if op.transpose_a { p * m + i } else { i * k + p }];
            let b = b[right * k * n + if op.transpose_b { j * k + p } else { p * n + j }];
            f64::from(a) * f64::from(b)
        });
        terms.fold((0.0, 0.0), |(sum, magnitude), term| (sum + term, magnitude + term.abs()))
    });
}

#[test]
fn products_agree_with_the_definition() {
    arbtest::arbtest(|u| {
        let (op, node) = node(u)?;
        let micro = *u.choose(&MicroKernel::of_all_sizes())?;
        let inputs: Vec<Tensor> = node.inputs.iter().zip(1..).map(|(s, seed)| tensor(s.shape.dims(), seed)).collect();
        let constant_b: bool = u.arbitrary()?;
        let mut kernel = Kernel::new(micro, &op, &node, &[false, constant_b]).expect("a sound node");
        keep(&mut kernel, &inputs);
        require_correct(&op, &node, &inputs, &run_by_teams(&kernel, &node, &inputs));
        Ok(())
    })
    .budget(Duration::from_millis(900));
}

#[test]
fn expressions_behind_products_find_their_operands_in_every_tile() {
    // Interpreted: an activation of the product, followed by an operand per row and an operand per element.
    let [gate, scaled] = [3, 4].map(Register);
    let steps = vec![
        Step::Unary(Unary::Sigmoid, Register(0)),
        Step::Binary(Binary::Multiply, gate, Register(1)),
        Step::Binary(Binary::Max, scaled, Register(2)),
    ];
    let epilogue = Some(Expression::new(3, steps).expect("each step reads what is before it"));
    // Tiles of consecutive rows, and tiles of some columns.
    for (m, n, k) in [(300, 20, 9), (90, 400, 70), (6, 6, 4)] {
        let op = MatMul { transpose_a: false, transpose_b: false, epilogue: epilogue.clone(), ..MatMul::default() };
        let inputs = [vec![2, m, k], vec![2, k, n], vec![m, 1], vec![2, m, n]];
        let inputs = inputs.iter().map(|dims| spec(dims)).collect();
        let node = NodeSpec { op: Op::MatMul(op.clone()), inputs, outputs: vec![spec(&[2, m, n])] };
        let inputs: Vec<Tensor> = node.inputs.iter().zip(1..).map(|(s, seed)| tensor(s.shape.dims(), seed)).collect();
        for micro in MicroKernel::of_all_sizes() {
            let kernel = Kernel::new(micro, &op, &node, &[false; 4]).expect("a sound node");
            require_correct(&op, &node, &inputs, &run_by_teams(&kernel, &node, &inputs));
        }
    }
}

#[test]
fn deep_and_wide_products_agree_with_the_definition() {
    for (m, n, k) in [(70, 300, 900), (3, 600, 1025), (150, 48, 512), (1, 700, 777), (700, 1, 777), (130, 97, 385)] {
        for (transpose_a, transpose_b) in [(false, false), (true, true)] {
            let op = MatMul { transpose_a, transpose_b, epilogue: None, ..MatMul::default() };
            let (a, b) = if transpose_a { ([k, m], [n, k]) } else { ([m, k], [k, n]) };
            let node =
                NodeSpec { op: Op::MatMul(op.clone()), inputs: vec![spec(&a), spec(&b)], outputs: vec![spec(&[m, n])] };
            let inputs = [tensor(&a, 1), tensor(&b, 2)];
            for constant in [false, true] {
                let mut kernel =
                    Kernel::new(MicroKernel::best(), &op, &node, &[false, constant]).expect("a sound node");
                keep(&mut kernel, &inputs);
                require_correct(&op, &node, &inputs, &run_by_teams(&kernel, &node, &inputs));
            }
        }
    }
}

#[test]
fn epilogues_of_deep_products_are_applied_once() {
    let (m, n, k) = (37, 110, 900);
    let (add, scale) = (Expression::binary(Binary::Add), Expression::binary(Binary::Multiply));
    let relu = Expression::unary(Unary::Relu);
    let cases: [(Vec<&Expression>, &[&[usize]]); 5] = [
        (vec![&add, &add, &relu], &[&[m, 1], &[m, n]]),
        (vec![&add, &add, &relu], &[&[m, n], &[m, 1]]),
        (vec![&add, &relu], &[&[n]]),
        (vec![&scale, &add], &[&[], &[m, n]]),
        (vec![&scale, &add], &[&[n], &[m, 1]]),
    ];
    for (steps, extras) in cases {
        let whole = steps.iter().fold(Expression::identity(), |whole, next| whole.then(next, 0).expect("fits"));
        let op = MatMul { epilogue: Some(whole), ..MatMul::default() };
        let operands: [&[usize]; 2] = [&[m, k], &[k, n]];
        let dims = [&operands, extras].concat();
        let inputs = dims.iter().map(|dims| spec(dims)).collect();
        let node = NodeSpec { op: Op::MatMul(op.clone()), inputs, outputs: vec![spec(&[m, n])] };
        let tensors: Vec<Tensor> = dims.iter().zip(1..).map(|(dims, seed)| tensor(dims, seed)).collect();
        for micro in MicroKernel::of_all_sizes() {
            let mut kernel = Kernel::new(micro, &op, &node, &[false, true]).expect("a sound node");
            keep(&mut kernel, &tensors);
            require_correct(&op, &node, &tensors, &run_by_teams(&kernel, &node, &tensors));
        }
    }
}

#[test]
fn not_a_number_spreads_along_its_row_only() {
    let op = MatMul { epilogue: Some(Expression::unary(Unary::Relu)), ..MatMul::default() };
    let node = NodeSpec {
        op: Op::MatMul(op.clone()),
        inputs: vec![spec(&[20, 30]), spec(&[30, 50])],
        outputs: vec![spec(&[20, 50])],
    };
    let mut a = tensor(&[20, 30], 1).elements::<f32>().expect("f32").to_vec();
    a[7 * 30 + 29] = f32::NAN;
    let a = Tensor::from_elements(node.inputs[0].shape.clone(), &a).expect("as many");
    for micro in MicroKernel::of_all_sizes() {
        let kernel = Kernel::new(micro, &op, &node, &[false, false]).expect("a sound node");
        let found = run(&kernel, &node, &[a.clone(), tensor(&[30, 50], 2)], &Team::solo());
        assert!(found.iter().enumerate().all(|(at, x)| x.is_nan() == (at / 50 == 7)), "{}", micro.name);
    }
}

/// 10⁸ + 1 is 10⁸ in 32 bits; 10⁸ + 384 is not.
#[test]
fn a_matrix_is_added_to_complete_sums() {
    let op = MatMul { epilogue: Some(Expression::binary(Binary::Add)), ..MatMul::default() };
    let inputs = vec![spec(&[8, 384]), spec(&[384, 48]), spec(&[8, 48])];
    let all = |spec: &TensorSpec, value: f32| {
        Tensor::from_elements(spec.shape.clone(), &vec![value; spec.shape.elements()]).expect("as many")
    };
    let tensors = [all(&inputs[0], 1.0), all(&inputs[1], 1.0), all(&inputs[2], 1e8)];
    let node = NodeSpec { op: Op::MatMul(op.clone()), inputs, outputs: vec![spec(&[8, 48])] };
    for micro in MicroKernel::of_all_sizes() {
        let kernel = Kernel::new(micro, &op, &node, &[false; 3]).expect("a sound node");
        let found = run(&kernel, &node, &tensors, &Team::solo());
        assert!(found.iter().all(|x| *x == 100_000_384.0), "{}: {}", micro.name, found[0]);
    }
}

#[test]
fn a_constant_is_packed_once_for_all_numbers_of_rows_and_not_given_again() {
    let mut layouts = Vec::new();
    for (m, n, k) in [(5, 60, 9), (300, 60, 9), (1, 60, 9)] {
        let node = NodeSpec {
            op: Op::MatMul(MatMul::default()),
            inputs: vec![spec(&[m, k]), spec(&[k, n])],
            outputs: vec![spec(&[m, n])],
        };
        let (a, b) = (tensor(&[m, k], 1), tensor(&[k, n], 2));
        let inputs = [a, b];
        let mut kernel =
            Kernel::new(MicroKernel::best(), &MatMul::default(), &node, &[false, true]).expect("a sound node");
        assert!(kernel.reads(0) && !kernel.reads(1));
        let mut output = [0; 4];
        let call = Call {
            inputs: &[&[], &[]],
            outputs: &mut [&mut output],
            rows: 0..1,
            scratch: &mut [],
            team: &Team::solo(),
        };
        assert_eq!(kernel.run(call), Err(KernelError::Packed { input: 1 }));
        keep(&mut kernel, &inputs);
        require_correct(&MatMul::default(), &node, &inputs, &run(&kernel, &node, &inputs, &Team::solo()));
        layouts.extend(kernel.packings());
    }
    assert!(
        layouts.len() == 3 && layouts.iter().all(|layout| *layout == layouts[0] && layout.layout.bytes() >= 60 * 9 * 4)
    );
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let cases: [(&[&[usize]], &[usize]); 7] = [
        (&[&[2, 3], &[4, 5]], &[2, 5]),
        (&[&[2, 3], &[3, 5]], &[2, 6]),
        (&[&[3], &[3, 5]], &[5]),
        (&[&[2, 2, 3], &[3, 3, 5]], &[2, 2, 5]),
        (&[&[2, 3]], &[2, 3]),
        (&[&[2, 3], &[3, 5], &[5]], &[2, 5]),
        (&[&[2, 2, 3], &[3, 5]], &[2, 5]),
    ];
    for (inputs, output) in cases {
        let inputs = inputs.iter().map(|dims| spec(dims)).collect();
        let node = NodeSpec { op: Op::MatMul(MatMul::default()), inputs, outputs: vec![spec(output)] };
        assert!(prepare(&node, &[]).is_err(), "{node:?}");
    }
    let op = MatMul { epilogue: Some(Expression::binary(Binary::Add)), ..MatMul::default() };
    let mut node = NodeSpec {
        op: Op::MatMul(op),
        inputs: vec![spec(&[2, 3]), spec(&[3, 5]), spec(&[4])],
        outputs: vec![spec(&[2, 5])],
    };
    assert!(prepare(&node, &[]).is_err(), "an operand that cannot be broadcast");
    node.inputs[2].dtype = anabranch_op::DType::I32;
    assert!(prepare(&node, &[]).is_err(), "an operand of another type");
}

#[test]
fn batches_are_computed_in_windows_with_equal_bits() {
    let cases: [(&[usize], &[usize], &[usize]); 4] =
        [(&[3, 2], &[3, 2], &[3, 2]), (&[9], &[9], &[9]), (&[3, 2], &[2], &[3, 2]), (&[2], &[3, 1], &[3, 2])];
    for (left, right, batch) in cases {
        for (sizes, bias) in [([5, 7, 40], vec![7]), ([33, 50, 20], vec![batch[0], 1, 1, 1]), ([1, 9, 30], vec![])] {
            let [m, n, k] = sizes;
            let output = [batch, &[m, n]].concat();
            let bias = if bias.len() > output.len() { vec![batch[0], 1, 1] } else { bias };
            let op = MatMul { epilogue: Some(Expression::binary(Binary::Add)), ..MatMul::default() };
            let dims = [[left, &[m, k]].concat(), [right, &[k, n]].concat(), bias];
            let inputs = dims.iter().map(|dims| spec(dims)).collect();
            let node = NodeSpec { op: Op::MatMul(op), inputs, outputs: vec![spec(&output)] };
            let tensors: Vec<Tensor> = dims.iter().zip(1..).map(|(dims, seed)| tensor(dims, seed)).collect();
            assert!(node.row_plan().is_some(), "{node:?}");
            for constant in [vec![None; 3], vec![None, Some(tensors[1].clone()), None]] {
                let [whole, windows] =
                    [usize::MAX, 1].map(|chunk| run_windows(&node, &tensors, &constant, chunk).remove(0));
                assert!(windows.same_bits(&whole), "{node:?}");
            }
        }
    }
}
