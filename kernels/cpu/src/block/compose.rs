//! Joins consecutive element-wise members into one member. A pass over a chunk in cache costs more than the steps of
//! most expressions, and the steps of one expression share a pass.
//!
//! Both members compute in `f32`, and so does the tensor between them, so that the joined expression rounds where they
//! do.

use anabranch_op::dtype::DType;
use anabranch_op::op::{Block, Domain, Map, Member, NodeSpec, Op, Operand};

/// Maximum steps of a joined expression: a block of elements is held for each.
const MOST_STEPS: usize = 64;

/// Maximum operands of a joined expression: each is a separate stream from memory.
const MOST_OPERANDS: usize = 8;

/// Returns the block with as many members joined as possible. O(members² · inputs).
pub(super) fn composed(block: &Block) -> Block {
    let mut block = block.clone();
    let mut at = 0;
    while at < block.members.len() {
        match joined(&block, at) {
            Some((earlier, member)) => {
                replace(&mut block, earlier, at, member);
                at -= 1;
            }
            None => at += 1,
        }
    }
    block
}

/// Returns a member that only member `at` reads, and the join of both.
fn joined(block: &Block, at: usize) -> Option<(usize, Member)> {
    let member = &block.members[at];
    (0..member.inputs.len()).find_map(|input| {
        let Operand::Member(earlier) = member.inputs[input] else { return None };
        let readers = block.members.iter().flat_map(|member| &member.inputs);
        let once = readers.filter(|operand| **operand == Operand::Member(earlier)).count() == 1;
        let kept = block.outputs.contains(&earlier);
        let joined = join(&block.members[earlier], member, input).filter(|_| once && !kept)?;
        as_windowed(&joined, &block.members[earlier], member, (input, block.rows)).then_some((earlier, joined))
    })
}

/// Returns the join of `earlier` and `next`, if both are expressions of the same elements. The output of `earlier` is
/// input `at` of `next`.
fn join(earlier: &Member, next: &Member, at: usize) -> Option<Member> {
    let (Op::Map(first), Op::Map(second)) = (&earlier.spec.op, &next.spec.op) else { return None };
    let (made, output) = (&earlier.spec.outputs[0], &next.spec.outputs[0]);
    let single = [first.domain, second.domain].iter().all(|domain| *domain == Domain::F32) && made.dtype == DType::F32;
    let same = made.shape == output.shape && next.spec.inputs[at].shape == output.shape;
    if !single || !same {
        return None;
    }
    let expression = first.expression.then(&second.expression, at).ok()?;
    if expression.steps().len() > MOST_STEPS || expression.inputs() > MOST_OPERANDS {
        return None;
    }
    let others = |index: &usize| *index != at;
    let rest = (0..next.inputs.len()).filter(others);
    let inputs = earlier.inputs.iter().copied().chain(rest.clone().map(|index| next.inputs[index])).collect();
    let specs = earlier.spec.inputs.iter().chain(rest.map(|index| &next.spec.inputs[index])).cloned().collect();
    let op = Op::Map(Map { domain: Domain::F32, expression });
    Some(Member { spec: NodeSpec { op, inputs: specs, outputs: next.spec.outputs.clone() }, inputs })
}

/// Whether the joined member divides into the block's rows, and reads row by row the inputs that the two members read
/// row by row.
fn as_windowed(joined: &Member, earlier: &Member, next: &Member, (at, rows): (usize, usize)) -> bool {
    let plans = (joined.spec.row_plan(), earlier.spec.row_plan(), next.spec.row_plan());
    let (Some(whole), Some(first), Some(second)) = plans else { return false };
    let rest = second.windowed.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, windowed)| windowed);
    whole.rows.is_multiple_of(rows) && whole.windowed.iter().eq(first.windowed.iter().chain(rest))
}

/// Replaces members `earlier` and `at` by `member`.
fn replace(block: &mut Block, earlier: usize, at: usize, member: Member) {
    block.members[at] = member;
    block.members.remove(earlier);
    let moved = |of: &mut usize| *of -= usize::from(*of > earlier);
    block.outputs.iter_mut().for_each(moved);
    for operand in block.members.iter_mut().flat_map(|member| &mut member.inputs) {
        if let Operand::Member(of) = operand {
            moved(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::member;
    use anabranch_op::op::{Binary, Expression, Unary};
    use anabranch_op::op::{Reduce, ReduceKind};

    fn map(expression: Expression) -> Op {
        Op::Map(Map { domain: Domain::F32, expression })
    }

    /// Returns a block of `relu(x + bias)`, squared if `square`, and its sum by rows.
    fn block(square: bool, outputs: Vec<usize>) -> Block {
        let (wide, bias) = ([4, 6], [6]);
        let sum = Op::Reduce(Reduce { kind: ReduceKind::Sum, axes: vec![1] });
        let relu = (Operand::Member(1), &wide[..]);
        let last: Vec<(Operand, &[usize])> =
            if square { vec![relu, relu] } else { vec![relu, (Operand::Input(0), &wide)] };
        let members = vec![
            member(
                map(Expression::binary(Binary::Add)),
                &[(Operand::Input(0), &wide), (Operand::Input(1), &bias)],
                &wide,
            ),
            member(map(Expression::unary(Unary::Relu)), &[(Operand::Member(0), &wide)], &wide),
            member(map(Expression::binary(Binary::Multiply)), &last, &wide),
            member(sum, &[(Operand::Member(2), &wide)], &[4]),
        ];
        Block { members, outputs, rows: 4, chunk_rows: 2 }
    }

    #[test]
    fn chains_become_one_member() {
        let one = composed(&block(false, vec![3]));
        let expressions = |block: &Block| -> Vec<String> {
            let maps = block.members.iter().map(|member| match &member.spec.op {
                Op::Map(map) => map.expression.to_string(),
                other => other.name().to_owned(),
            });
            maps.collect()
        };
        assert_eq!(expressions(&one), ["3: Add(r0,r1) Relu(r3) Multiply(r4,r2)", "reduce"]);
        assert_eq!(one.members[0].inputs, [0, 1, 0].map(Operand::Input));
        assert_eq!((&one.members[1].inputs[..], &one.outputs[..]), (&[Operand::Member(0)][..], &[1][..]));
    }

    #[test]
    fn what_is_read_twice_or_leaves_the_block_stays() {
        assert_eq!(composed(&block(true, vec![3])).members.len(), 3);
        let kept = composed(&block(false, vec![0, 3]));
        assert_eq!((kept.members.len(), kept.outputs), (3, vec![0, 2]));
    }
}
