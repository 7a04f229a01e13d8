//! The programs of Silva et al., section IV, as flows: a wavefront, a product by blocks, and an integral by fork-join and as a pipeline. Each also
//! as a plain loop, to check the flow's answer and to measure what it gains.

mod integral;
mod lcs;
mod matmul;

pub use integral::{ForkJoin, Pipeline};
pub use lcs::Lcs;
pub use matmul::Matmul;

use super::{Collected, Flow, FlowError, FlowOptions, FlowReport, Peers};

/// A computation that is known both as a flow and as a loop.
pub trait Program: Sync {
    /// What it computes. Flow and loop give the same, bit for bit.
    type Answer: PartialEq + Send;

    /// Its name on a command line.
    fn name(&self) -> &'static str;

    /// The flow, and where its answer will be: an item for each iteration, the last of which counts.
    fn flow(&self) -> (Flow<'_>, Collected<Self::Answer>);

    /// The same as a loop on the calling thread.
    fn sequential(&self) -> Self::Answer;

    /// Runs the flow: its answer, and what the run did.
    ///
    /// # Errors
    /// As [`Flow::run`].
    fn run(&self, options: &FlowOptions) -> Result<(Option<Self::Answer>, FlowReport), FlowError> {
        let (flow, answers) = self.flow();
        let report = flow.run(options)?;
        Ok((answers.take().pop(), report))
    }

    /// The same among processes ([`Flow::run_among`]); that of machine 0 has the answer.
    ///
    /// # Errors
    /// As [`Flow::run_among`].
    fn run_among(&self, options: &FlowOptions, peers: Peers) -> Result<(Option<Self::Answer>, FlowReport), FlowError> {
        let (flow, answers) = self.flow();
        let answers = answers.machine(0);
        let report = flow.run_among(options, peers)?;
        Ok((answers.take().pop(), report))
    }
}

/// Random numbers that are the same everywhere (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Crew, Scheduler};
    use super::*;

    fn holds<P: Program>(program: &P) {
        let expected = program.sequential();
        for scheduler in Scheduler::ALL {
            for (machines, workers) in [(1, 1), (1, 3), (2, 1)] {
                let crew = Crew::machines(machines, workers).expect("a small crew");
                let options = FlowOptions::default().with_crew(crew).with_scheduler(scheduler);
                let (answer, _) = program.run(&options).expect("a sound flow");
                assert!(answer.as_ref() == Some(&expected), "{} with {options:?}", program.name());
            }
        }
    }

    #[test]
    fn flows_give_what_loops_give() {
        // Blocks that do not divide the size, and one block for all.
        for block in [7, 16, 100] {
            holds(&Lcs::random(60, block, 1));
            holds(&Matmul::random(40, block, 2));
            holds(&ForkJoin { points: 1000, parts: block });
            holds(&Pipeline { points: 1000, parts: block });
        }
    }

    /// The nodes whose weights are seconds are few enough to take no second.
    fn is_weighed<P: Program>(program: &P) {
        let crew = Crew::of(2).expect("a small crew");
        let allocation = program.flow().0.place("heft", &crew).expect("a sound flow");
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
