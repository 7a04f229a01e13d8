use crate::prepare;
use crate::testing::{member, one_by_one, run, run_calls, spec, tensor};
use anabranch_cpu_base::Team;
use anabranch_op::op::{
    Binary, Block, Domain, Expression, Map, MatMul, Member, NodeSpec, Normalize, Op, Operand, Reduce, ReduceKind,
    Softmax, Unary,
};
use anabranch_op::tensor::Tensor;
use anabranch_op::{DType, Shape};
use arbtest::arbitrary::{Result as Arbitrary, Unstructured};
use std::sync::LazyLock;

static TEAMS: LazyLock<[Team; 3]> = LazyLock::new(|| [1, 2, 3].map(|threads| Team::new(threads, |_| {})));

/// Block under construction, with its input tensors.
struct Maker {
    inputs: Vec<Tensor>,
    members: Vec<Member>,
}

impl Maker {
    fn input(&mut self, dims: &[usize]) -> Operand {
        let salt = self.inputs.len() * 5;
        self.inputs.push(tensor(DType::F32, dims, |i| ((i * 37 + salt) % 211) as f64 * 0.017 - 1.5));
        Operand::Input(self.inputs.len() - 1)
    }

    fn push(&mut self, op: Op, inputs: &[(Operand, &[usize])], output: &[usize]) -> Operand {
        self.members.push(member(op, inputs, output));
        Operand::Member(self.members.len() - 1)
    }

    /// Returns the block whose outputs are the members that nothing reads, and `also`.
    fn node(&self, rows: usize, chunk_rows: usize, also: &[usize]) -> NodeSpec {
        let read = |at| self.members.iter().any(|member| member.inputs.contains(&Operand::Member(at)));
        let outputs: Vec<usize> = (0..self.members.len()).filter(|at| also.contains(at) || !read(*at)).collect();
        NodeSpec {
            inputs: self.inputs.iter().map(|input| input.spec().clone()).collect(),
            outputs: outputs.iter().map(|at| self.members[*at].spec.outputs[0].clone()).collect(),
            op: Op::Block(Block { members: self.members.clone(), outputs, rows, chunk_rows }),
        }
    }

    /// Returns the outputs of the node, computed by its members one after the other.
    fn one_by_one(&self, node: &NodeSpec) -> Vec<Tensor> {
        one_by_one(node, &self.inputs, |spec, inputs| run(spec, inputs).expect("a sound member").remove(0))
    }

    /// Returns the outputs of the node, computed in consecutive calls for the rows between `bounds`.
    fn in_calls(&self, node: &NodeSpec, team: &Team, bounds: &[usize]) -> Vec<Tensor> {
        run_calls(node, &self.inputs, &vec![None; self.inputs.len()], team, bounds).expect("a sound block")
    }
}

/// Returns a random partition of `0..rows`.
fn partition(u: &mut Unstructured<'_>, rows: usize) -> Arbitrary<Vec<usize>> {
    let mut bounds = vec![0, rows];
    for _ in 0..u.int_in_range(0..=4)? {
        bounds.push(u.int_in_range(0..=rows)?);
    }
    bounds.sort_unstable();
    Ok(bounds)
}

fn map(expression: Expression) -> Op {
    Op::Map(Map { domain: Domain::F32, expression })
}

const KINDS: [ReduceKind; 5] =
    [ReduceKind::Sum, ReduceKind::Mean, ReduceKind::Max, ReduceKind::SumOfSquares, ReduceKind::LogSumExp];

/// Returns a block of random members over `rows × columns` elements.
fn block(u: &mut Unstructured<'_>, rows: usize, columns: usize) -> Arbitrary<Maker> {
    let mut maker = Maker { inputs: Vec::new(), members: Vec::new() };
    let whole = [rows, columns];
    let mut wide = vec![maker.input(&whole)];
    let mut narrow: Vec<Operand> = Vec::new();
    for _ in 0..u.int_in_range(0..=6)? {
        let of = *u.choose(&wide)?;
        let made = match u.int_in_range(0..=7)? {
            // Each row is multiplied by its own matrix.
            7 if columns <= 8 => {
                let matrices = maker.input(&[rows, columns, columns]);
                let (row, matrix) = ([rows, 1, columns], [rows, columns, columns]);
                maker.push(Op::MatMul(MatMul::default()), &[(of, &row), (matrices, &matrix)], &row)
            }
            0 => maker.push(
                map(Expression::unary(*u.choose(&[Unary::Tanh, Unary::Relu, Unary::Exp])?)),
                &[(of, &whole)],
                &whole,
            ),
            1 => maker.push(Op::Softmax(Softmax { axis: 1, log: u.arbitrary()? }), &[(of, &whole)], &whole),
            2 if u.arbitrary()? => {
                let op = Normalize { axis: 1, epsilon: 1e-5, center: u.arbitrary()?, epilogue: None };
                maker.push(Op::Normalize(op), &[(of, &whole)], &whole)
            }
            2 => {
                let epilogue = Expression::binary(Binary::Multiply).then(&Expression::binary(Binary::Add), 0);
                let epilogue = Some(epilogue.expect("fits"));
                let (scale, shift) = (maker.input(&[columns]), maker.input(&[rows, 1]));
                let op = Normalize { axis: 1, epsilon: 1e-5, center: true, epilogue };
                maker.push(Op::Normalize(op), &[(of, &whole), (scale, &[columns]), (shift, &[rows, 1])], &whole)
            }
            3 => {
                let op = Reduce { kind: *u.choose(&KINDS)?, axes: vec![1] };
                narrow.push(maker.push(Op::Reduce(op), &[(of, &whole)], &[rows]));
                continue;
            }
            _ => {
                let binary = *u.choose(&[Binary::Add, Binary::Multiply, Binary::Max, Binary::Subtract])?;
                let (other, dims) = match u.int_in_range(0..=4)? {
                    0 => (maker.input(&[columns]), vec![columns]),
                    1 => (maker.input(&[]), vec![]),
                    2 => (maker.input(&[rows, 1]), vec![rows, 1]),
                    3 if !narrow.is_empty() => (*u.choose(&narrow)?, vec![rows, 1]),
                    _ => (*u.choose(&wide)?, whole.to_vec()),
                };
                maker.push(map(Expression::binary(binary)), &[(of, &whole), (other, &dims)], &whole)
            }
        };
        wide.push(made);
    }
    if maker.members.is_empty() || u.ratio(2, 3)? {
        let of = *u.choose(&wide)?;
        let kind = *u.choose(&KINDS)?;
        if columns <= 256 && u.arbitrary()? {
            maker.push(Op::Reduce(Reduce { kind, axes: vec![0] }), &[(of, &whole)], &[columns]);
        } else {
            maker.push(Op::Reduce(Reduce { kind, axes: vec![0, 1] }), &[(of, &whole)], &[]);
        }
    }
    Ok(maker)
}

#[test]
fn blocks_have_the_bits_of_their_members() {
    arbtest::arbtest(|u| {
        let columns = *u.choose(&[1, 3, 8, 50, 256, 300, 5000])?;
        let rows = *u.choose(&[2, 3, 7, 12, 64, 200])?;
        let maker = block(u, rows, columns)?;
        let also: Vec<usize> = (0..maker.members.len()).filter(|at| at % 3 == 1).collect();
        let want = maker.one_by_one(&maker.node(rows, 1, &also));
        let chunk = *u.choose(&[1, 7, (1 << 18) / (4 * columns), rows])?;
        let node = maker.node(rows, chunk, &also);
        let team = u.choose(&*TEAMS)?;
        let bounds = partition(u, rows)?;
        let found = maker.in_calls(&node, team, &bounds);
        for (found, want) in found.iter().zip(&want) {
            assert!(found.same_bits(want), "{node:?} by {} threads in calls {bounds:?}", team.threads());
        }
        Ok(())
    })
    .budget_ms(1500);
}

#[test]
fn rows_may_be_single_elements() {
    let (rows, mut maker) = (30_011, Maker { inputs: Vec::new(), members: Vec::new() });
    let (x, y) = (maker.input(&[rows]), maker.input(&[rows]));
    let sum = maker.push(map(Expression::binary(Binary::Add)), &[(x, &[rows]), (y, &[rows])], &[rows]);
    let op = Reduce { kind: ReduceKind::Sum, axes: vec![0] };
    maker.push(Op::Reduce(op), &[(sum, &[rows])], &[1]);
    let want = maker.one_by_one(&maker.node(rows, 1, &[]));
    for (chunk, bounds) in
        [(7, vec![0, rows]), (5000, vec![0, 1, 4096, 5000, 5001, rows - 1, rows]), (rows, vec![0, rows])]
    {
        for team in &*TEAMS {
            let found = maker.in_calls(&maker.node(rows, chunk, &[]), team, &bounds);
            assert!(found[0].same_bits(&want[0]), "{chunk} {bounds:?}");
        }
    }
}

#[test]
fn rows_of_a_call_are_folded_in_the_parts_of_the_node() {
    // Each row of so few is folded in parts, and calls have fewer rows than the node.
    let (rows, columns) = (12, 5000);
    let mut maker = Maker { inputs: Vec::new(), members: Vec::new() };
    let x = maker.input(&[rows, columns]);
    let whole = [rows, columns];
    let doubled = maker.push(map(Expression::binary(Binary::Add)), &[(x, &whole), (x, &whole)], &whole);
    maker.push(Op::Reduce(Reduce { kind: ReduceKind::Mean, axes: vec![1] }), &[(doubled, &whole)], &[rows]);
    maker.push(Op::Reduce(Reduce { kind: ReduceKind::Sum, axes: vec![0, 1] }), &[(doubled, &whole)], &[]);
    let want = maker.one_by_one(&maker.node(rows, 1, &[]));
    for team in &*TEAMS {
        let found = maker.in_calls(&maker.node(rows, 5, &[]), team, &[0, 4, 5, rows, rows]);
        assert!(found.iter().zip(&want).all(|(found, want)| found.same_bits(want)), "{} threads", team.threads());
    }
}

#[test]
fn blocks_that_do_not_fit_are_refused() {
    let (rows, columns) = (4, 6);
    let sound = || {
        let mut maker = Maker { inputs: Vec::new(), members: Vec::new() };
        let x = maker.input(&[rows, columns]);
        let y = maker.push(map(Expression::unary(Unary::Relu)), &[(x, &[rows, columns])], &[rows, columns]);
        maker.push(Op::Softmax(Softmax { axis: 1, log: false }), &[(y, &[rows, columns])], &[rows, columns]);
        maker.node(rows, 2, &[])
    };
    assert!(prepare(&sound(), &[false]).is_ok());
    let whole_scale = |block: &mut Block| {
        let spec = &mut block.members[1].spec;
        spec.op = map(Expression::binary(Binary::Add));
        spec.inputs = vec![self::spec(&[24]), self::spec(&[1, 24])];
        spec.outputs = vec![self::spec(&[24, 24])];
        block.members[1].inputs.push(Operand::Input(0));
    };
    type Spoil<'a> = &'a dyn Fn(&mut Block);
    let cases: [(Spoil<'_>, &str); 9] = [
        (&|block| block.members.clear(), "at least one member"),
        (&|block| block.chunk_rows = 0, "one row a chunk"),
        (&|block| block.rows = 3, "member 1 (softmax) has 4 rows, which is not a multiple of the block's 3"),
        (&|block| block.members[0].inputs = vec![Operand::Input(1)], "reads Input(1), which does not exist"),
        (&|block| block.members[0].inputs = vec![Operand::Member(1)], "reads Member(1), which does not exist"),
        (&|block| block.members[0].inputs.clear(), "has 0 operands for 1 inputs"),
        (&|block| block.outputs = vec![0], "nothing reads the output of member 1"),
        (&|block| block.outputs = vec![5], "output 5 of 2 members"),
        (&whole_scale, "reads the whole of another member's output at input 0"),
    ];
    for (spoil, reason) in cases {
        let mut node = sound();
        let Op::Block(block) = &mut node.op else { panic!("a block") };
        spoil(block);
        let error = prepare(&node, &[false]).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(reason), "{error} is not {reason}");
    }
    let mut node = sound();
    node.inputs[0].shape = Shape::scalar();
    let error = prepare(&node, &[false]).err().expect("another input").to_string();
    assert!(error.contains("member 0 (map) reads f32[scalar] as f32[4×6] at input 0"), "{error}");
}
