//! Programs of Silva et al., section IV, as flows: a wavefront, a product by blocks, and an integral by fork-join and
//! as a pipeline. Each program also exists as a plain loop, to check the flow's answer and to measure the speedup.

mod integral;
mod lcs;
mod matmul;

pub use integral::{ForkJoin, Pipeline};
pub use lcs::Lcs;
pub use matmul::Matmul;

use super::{Collected, Flow, FlowError, FlowOptions, FlowReport};

/// A computation that exists both as a flow and as a loop.
pub trait Program: Sync {
    /// Result of the computation. Flow and loop give equal results, bit for bit.
    type Answer: PartialEq + Send;

    /// Returns its name on a command line.
    fn name(&self) -> &'static str;

    /// Returns the flow and its answers: an item for each iteration, the last of which counts.
    fn flow(&self) -> (Flow<'_>, Collected<Self::Answer>);

    /// Computes the answer in a loop on the calling thread.
    fn sequential(&self) -> Self::Answer;

    /// Runs the flow, and returns its answer and the report.
    ///
    /// # Errors
    /// As [`Flow::run`].
    fn run(&self, options: &FlowOptions) -> Result<(Option<Self::Answer>, FlowReport), FlowError> {
        let (flow, answers) = self.flow();
        let report = flow.run(options)?;
        Ok((answers.take().pop(), report))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scheduler, WorkerConfig};
    use super::*;

    fn holds<P: Program>(program: &P) {
        let expected = program.sequential();
        for scheduler in Scheduler::ALL {
            for (machines, workers) in [(1, 1), (1, 3), (2, 1)] {
                let worker_config = WorkerConfig::machines(machines, workers).expect("a few workers");
                let options = FlowOptions::default().with_workers(worker_config).with_scheduler(scheduler);
                let (answer, _) = program.run(&options).expect("a sound flow");
                assert!(answer.as_ref() == Some(&expected), "{} with {options:?}", program.name());
            }
        }
    }

    #[test]
    fn flows_give_what_loops_give() {
        // Blocks that do not divide the size, and one block for everything.
        for block in [7, 16, 100] {
            holds(&Lcs::random(60, block, 1));
            holds(&Matmul::random(40, block, 2));
            holds(&ForkJoin { points: 1000, parts: block });
            holds(&Pipeline { points: 1000, parts: block });
        }
    }

    /// Checks that the weights are in seconds: a small program is predicted to take less than 0.1 s.
    fn is_weighed<P: Program>(program: &P) {
        let worker_config = WorkerConfig::of(2).expect("a few workers");
        let allocation = program.flow().0.place("heft", &worker_config).expect("a sound flow");
        let predicted = allocation.predicted().map(|schedule| schedule.makespan);
        assert!(predicted.is_some_and(|seconds| seconds < 0.1), "{}: {predicted:?}", program.name());
    }

    #[test]
    fn small_programs_are_predicted_to_take_little() {
        is_weighed(&Lcs::random(60, 20, 1));
        is_weighed(&Matmul::random(40, 20, 2));
        is_weighed(&ForkJoin { points: 1000, parts: 4 });
        is_weighed(&Pipeline { points: 1000, parts: 4 });
    }

    #[test]
    fn answers_are_what_they_are_known_to_be() {
        let lcs = Lcs::new(b"dataflow".to_vec(), b"autoflow".to_vec(), 3);
        assert_eq!(lcs.sequential(), 6);
        let pi = ForkJoin { points: 100_000, parts: 10 }.sequential();
        assert!((pi - std::f64::consts::PI).abs() < 1e-6, "{pi}");
    }
}
