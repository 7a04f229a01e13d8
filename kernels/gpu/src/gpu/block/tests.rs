use super::super::testing::{Run, assert_close, check_rows, gpu, inputs, member, spec, tensor};
use super::*;
use crate::gpu::supports;
use anabranch_op::Tensor;
use anabranch_op::op::{Binary, Domain, Expression, Map, Reduce, ReduceKind, Softmax, Unary};

fn map(expression: Expression, inputs: &[(Operand, &[usize])], output: &[usize]) -> Member {
    member(Op::Map(Map { domain: Domain::F32, expression }), inputs, output)
}

/// Returns a block of `v = tanh(x · scale) + shift` over rows and columns, then `max(v, −x) · row`, then the reduction.
/// The value `v` leaves the block too.
fn block(rows: usize, columns: usize, reduction: Option<(ReduceKind, &[usize])>) -> NodeSpec {
    let whole: &[usize] = &[rows, columns];
    let scaled = Expression::binary(Binary::Multiply).then(&Expression::unary(Unary::Tanh), 0).expect("fits");
    let negated = Expression::unary(Unary::Negate);
    let mut members = vec![
        map(scaled, &[(Operand::Input(0), whole), (Operand::Input(1), &[columns])], whole),
        map(Expression::binary(Binary::Add), &[(Operand::Member(0), whole), (Operand::Input(2), &[])], whole),
        map(negated, &[(Operand::Input(0), whole)], whole),
        map(Expression::binary(Binary::Max), &[(Operand::Member(1), whole), (Operand::Member(2), whole)], whole),
        map(
            Expression::binary(Binary::Multiply),
            &[(Operand::Member(3), whole), (Operand::Input(3), &[rows, 1])],
            whole,
        ),
    ];
    let mut outputs = vec![1, 4];
    if let Some((kind, axes)) = reduction {
        let kept: usize = (0..2).filter(|axis| !axes.contains(axis)).map(|axis| whole[axis]).product();
        let op = Op::Reduce(Reduce { kind, axes: axes.to_vec() });
        members.push(member(op, &[(Operand::Member(4), whole)], &[kept]));
        outputs = vec![1, 5];
    }
    let specs = outputs.iter().map(|at| members[*at].spec.outputs[0].clone()).collect();
    let inputs = vec![spec(whole), spec(&[columns]), spec(&[]), spec(&[rows])];
    NodeSpec { op: Op::Block(Block { members, outputs, rows, chunk_rows: 1 }), inputs, outputs: specs }
}

/// Returns the block's outputs, computed by its members one after the other on the same device.
fn one_by_one(node: &NodeSpec, inputs: &[Tensor]) -> Vec<Vec<f32>> {
    let run = |spec: &NodeSpec, inputs: &[Tensor]| {
        let values = Run::new(spec).outputs(inputs).expect("runs").remove(0);
        tensor(spec.outputs[0].shape.dims(), &values)
    };
    let made = anabranch_kernel_testing::one_by_one(node, inputs, run);
    made.iter().map(|tensor| tensor.elements::<f32>().expect("f32").to_vec()).collect()
}

/// Checks that the bits are the same on the software adapter. Another driver may contract a product and a sum within a
/// function of `math.wgsl` or a reduction (WGSL, "Reassociation and Fusion"), which rounds once less.
fn assert_same(found: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    let bits = |values: &[Vec<f32>]| -> Vec<Vec<u32>> {
        values.iter().map(|values| values.iter().map(|v| v.to_bits()).collect()).collect()
    };
    if gpu().device().adapter_info().device_type == wgpu::DeviceType::Cpu {
        return assert_eq!(bits(found), bits(expected), "{what}");
    }
    found.iter().zip(expected).for_each(|(found, expected)| assert_close(found, expected, what));
}

#[test]
fn blocks_have_the_bits_of_their_members() {
    for (rows, columns) in [(6, 8), (5, 7), (40, 700)] {
        for reduction in [
            None,
            Some((ReduceKind::Sum, &[1][..])),
            Some((ReduceKind::LogSumExp, &[1])),
            Some((ReduceKind::Mean, &[0, 1])),
            Some((ReduceKind::LogSumExp, &[0, 1])),
            Some((ReduceKind::Max, &[0, 1])),
        ] {
            let node = block(rows, columns, reduction);
            let values = inputs(&node, 31);
            let found = Run::new(&node).outputs(&values).unwrap_or_else(|error| panic!("{error}"));
            assert_same(&found, &one_by_one(&node, &values), &format!("{rows} × {columns}, {reduction:?}"));
        }
    }
}

#[test]
fn rows_are_computed_in_place() {
    for reduction in [None, Some((ReduceKind::Sum, &[1][..]))] {
        let node = block(9, 12, reduction);
        check_rows(&node, &inputs(&node, 32), 2..5);
    }
}

#[test]
fn other_blocks_are_refused_with_the_reason() {
    let limits = *gpu().facts();
    let refusal = |node: &NodeSpec| supports(node, &[false; 4], &limits).expect_err("refused").to_string();
    let mut softmax = block(4, 8, None);
    if let Op::Block(block) = &mut softmax.op {
        block.members[2].spec.op = Op::Softmax(Softmax { axis: 1, log: false });
    }
    assert!(refusal(&softmax).contains("member 2 (softmax) is not element-wise, and not a reduction at the end"));
    let mut repeated = block(4, 8, None);
    if let Op::Block(block) = &mut repeated.op {
        block.members[0] = map(Expression::identity(), &[(Operand::Input(3), &[4, 1])], &[4, 1]);
        block.members[1].spec.inputs = vec![spec(&[4, 1]), spec(&[])];
    }
    assert!(refusal(&repeated).contains("works on other elements than the first"), "{}", refusal(&repeated));
    let whole = block(4, 8, Some((ReduceKind::Sum, &[0, 1])));
    let values = inputs(&whole, 33);
    let part = Run { rows: Some(1..3), ..Run::new(&whole) }.outputs(&values);
    assert!(part.expect_err("not whole").to_string().contains("of which 1..3 were asked for"));
}
