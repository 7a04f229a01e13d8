//! Gain of a chain of nodes as one streaming block, and the best size of its chunks.
//!
//! Chains of element-wise nodes end in a sum of everything, on a 64 MiB tensor. Each chain runs node by node on the
//! whole tensor, and as one block that takes the tensor chunk by chunk. Both are compared with the time of a plain
//! copy, which reads and writes the tensor once. Each figure is the median over rounds of ratios within the round.

use anabranch_bench::cpu::{PreparedKernel, copy, touched};
use anabranch_bench::nodes::{spec, values};
use anabranch_bench::turns::median;
use anabranch_kernels::cpu::Team;
use anabranch_kernels::op::{
    Binary, Block, Domain, Expression, Map, Member, NodeSpec, Op, Operand, Reduce, ReduceKind, Unary,
};
use anabranch_kernels::{Buffer, Tensor};
use std::time::Instant;

const ROWS: usize = 16_384;
const COLUMNS: usize = 1024;
const BYTES: usize = ROWS * COLUMNS * size_of::<f32>();
const ROUNDS: usize = 15;
/// Bytes of a chunk, unless the chunk size is the question.
const CHUNK: usize = 128 << 10;

fn main() {
    println!("{ROWS} × {COLUMNS} f32 (64 MiB), medians of {ROUNDS} rounds");
    for threads in [1, 2] {
        let team = Team::new(threads, |_| {});
        println!("\n{threads} thread(s): time of node by node ÷ block; copy ÷ block; block");
        for (name, ops) in [("simple", &SIMPLE), ("heavy", &HEAVY)] {
            for length in [2, 4, 8] {
                let chain = Chain::new(ops, length);
                let mut rivals = [chain.one_by_one(&team), chain.block(CHUNK, &team), copied(&team)];
                let times = measure(&mut rivals);
                let ratio = |rival: usize| median(times.iter().map(|t| t[rival] / t[1]));
                let own = median(times.iter().map(|t| t[1]));
                println!("{name:7} {length} {:6.2} {:6.2} {:8.2} ms", ratio(0), ratio(2), own * 1e3);
            }
        }
        println!("\n{threads} thread(s), 4 ops: time of a copy ÷ that of the block, by bytes of a chunk");
        let sizes: Vec<usize> = (12..=24).map(|power| 1 << power).collect();
        for (name, ops) in [("simple", &SIMPLE), ("heavy", &HEAVY)] {
            let chain = Chain::new(ops, 4);
            let mut rivals: Vec<_> = sizes.iter().map(|size| chain.block(*size, &team)).collect();
            rivals.push(copied(&team));
            let times = measure(&mut rivals);
            for (at, size) in sizes.iter().enumerate() {
                let ratio = median(times.iter().map(|t| t[sizes.len()] / t[at]));
                println!("{name:7} {:6} KiB {ratio:6.2}", size >> 10);
            }
        }
    }
}

/// Function that one node of a chain applies to its first operand, alone or with a vector of one number per column.
#[derive(Clone, Copy)]
enum Step {
    Unary(Unary),
    Binary(Binary),
}

const SIMPLE: [Step; 4] = [
    Step::Binary(Binary::Add),
    Step::Binary(Binary::Multiply),
    Step::Unary(Unary::Relu),
    Step::Binary(Binary::Subtract),
];
const HEAVY: [Step; 4] =
    [Step::Unary(Unary::Tanh), Step::Binary(Binary::Multiply), Step::Unary(Unary::Exp), Step::Binary(Binary::Add)];

/// Chain of element-wise nodes and a sum of everything.
struct Chain {
    members: Vec<Member>,
    inputs: [Tensor; 2],
}

impl Chain {
    fn new(ops: &[Step; 4], length: usize) -> Self {
        let (whole, column) = (spec(&[ROWS, COLUMNS]), spec(&[COLUMNS]));
        let before = |at: usize| if at == 0 { Operand::Input(0) } else { Operand::Member(at - 1) };
        let mut members: Vec<Member> = (0..length)
            .map(|at| {
                let (expression, inputs, specs) = match ops[at % ops.len()] {
                    Step::Unary(function) => (Expression::unary(function), vec![before(at)], vec![whole.clone()]),
                    Step::Binary(function) => {
                        let inputs = vec![before(at), Operand::Input(1)];
                        (Expression::binary(function), inputs, vec![whole.clone(), column.clone()])
                    }
                };
                let op = Op::Map(Map { domain: Domain::F32, expression });
                Member { spec: NodeSpec { op, inputs: specs, outputs: vec![whole.clone()] }, inputs }
            })
            .collect();
        let op = Op::Reduce(Reduce { kind: ReduceKind::Sum, axes: vec![0, 1] });
        let sum = NodeSpec { op, inputs: vec![whole], outputs: vec![spec(&[])] };
        members.push(Member { spec: sum, inputs: vec![before(length)] });
        Self { members, inputs: [values(&spec(&[ROWS, COLUMNS])), values(&spec(&[COLUMNS]))] }
    }

    /// Returns a rival that runs each node on the whole tensor, alternating between two buffers.
    fn one_by_one<'a>(&'a self, team: &'a Team) -> Rival<'a> {
        let mut nodes: Vec<_> = self.members.iter().map(|member| PreparedKernel::new(&member.spec, &[])).collect();
        let [mut from, mut to] = [touched(BYTES), touched(BYTES)];
        Box::new(move || {
            for (at, (node, member)) in nodes.iter_mut().zip(&self.members).enumerate() {
                let first = if at == 0 { self.inputs[0].bytes() } else { from.bytes() };
                let inputs = [first, self.inputs[1].bytes()];
                let output = &mut to.bytes_mut()[..member.spec.outputs[0].bytes()];
                node.run(&inputs[..member.inputs.len()], output, team);
                std::mem::swap(&mut from, &mut to);
            }
        })
    }

    fn block<'a>(&'a self, chunk: usize, team: &'a Team) -> Rival<'a> {
        let (rows, chunk_rows) = (ROWS, chunk.div_ceil(COLUMNS * size_of::<f32>()));
        let members = self.members.clone();
        let op = Op::Block(Block { outputs: vec![members.len() - 1], members, rows, chunk_rows });
        let node = NodeSpec { op, inputs: vec![spec(&[ROWS, COLUMNS]), spec(&[COLUMNS])], outputs: vec![spec(&[])] };
        let (mut node, mut sum) = (PreparedKernel::new(&node, &[]), Buffer::zeroed(size_of::<f32>()));
        Box::new(move || node.run(&self.inputs.each_ref().map(Tensor::bytes), sum.bytes_mut(), team))
    }
}

/// Method of processing the tensor.
type Rival<'a> = Box<dyn FnMut() + 'a>;

fn copied(team: &Team) -> Rival<'_> {
    let (mut to, copy) = copy(BYTES, team);
    Box::new(move || copy(&mut to))
}

/// Returns the rivals' times in each round, in seconds; they take turns, so that disturbances affect all of them.
fn measure(rivals: &mut [Rival<'_>]) -> Vec<Vec<f64>> {
    let time = |rival: &mut Rival<'_>| {
        let start = Instant::now();
        rival();
        start.elapsed().as_secs_f64()
    };
    rivals.iter_mut().for_each(|rival| rival());
    (0..ROUNDS).map(|_| rivals.iter_mut().map(time).collect()).collect()
}
