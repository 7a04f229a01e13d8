//! Speed of element-wise nodes, reductions and the nodes built on them, compared with the memory's speed.
//!
//! Tensors have 64 MiB. Each node takes turns with the standard library's copy of a tensor in the same parts, so that
//! disturbances affect both. Rates count bytes read and written; the printed figures are medians.

use anabranch_bench::cpu::{CpuRun, copy};
use anabranch_bench::nodes::{gelu, map, reductions};
use anabranch_bench::turns::{Failure, in_turn, median};
use anabranch_kernels::cpu::Team;
use anabranch_kernels::op::{Binary, Expression, NodeSpec, Unary};

const DIMS: [usize; 2] = [16 * 1024, 1024];
const SECONDS: f64 = 1.5;

fn main() -> Result<(), Failure> {
    let unary = [Unary::Relu, Unary::Exp, Unary::Sigmoid, Unary::Tanh, Unary::Erf, Unary::Log, Unary::Sin];
    let unary = unary.map(|function| (format!("{function:?}").to_lowercase(), Expression::unary(function)));
    let binary = [Binary::Add, Binary::Power];
    let binary = binary.map(|function| (format!("{function:?}").to_lowercase(), Expression::binary(function)));
    let expressions = unary.into_iter().chain(binary).chain([("gelu".to_owned(), gelu())]);
    let maps = expressions.map(|(name, expression)| (name, map(expression, &DIMS)));
    let rows = reductions(DIMS).into_iter().map(|(name, node)| (name.to_owned(), node));
    let nodes: Vec<(String, NodeSpec)> = maps.chain(rows).collect();

    println!("| node | 1 thread, GiB/s | in parts of a copy | 2 threads, GiB/s | in parts of a copy |");
    println!("|---|--:|--:|--:|--:|");
    for (name, node) in nodes {
        let mut run = CpuRun::new(&node, &[]);
        let bytes = run.bytes() as f64;
        let mut cells = String::new();
        for threads in [1, 2] {
            let team = Team::new(threads, |_| {});
            let (mut copied, copy) = copy(DIMS.iter().product::<usize>() * size_of::<f32>(), &team);
            let mut kernel = || {
                run.call(&team);
                Ok(())
            };
            let mut copy = || {
                copy(&mut copied);
                Ok(())
            };
            let seconds = in_turn(&mut [Box::new(&mut kernel), Box::new(&mut copy)], SECONDS)?;
            let copied = (2 * copied.len()) as f64;
            let rates = seconds[0].iter().map(|seconds| bytes / seconds);
            let parts = rates.clone().zip(&seconds[1]).map(|(rate, seconds)| rate * seconds / copied);
            cells += &format!(" {:.1} | {:.2} |", median(rates) / f64::from(1 << 30), median(parts));
        }
        println!("| {name} |{cells}");
    }
    Ok(())
}
