//! Estimates of an interval whose neighbours are not known yet: transfers use the slowest of a processor's links. If
//! all links are identical, as in the paper, the estimates are exact.

use super::evaluate::cycle;
use super::problem::Problem;
use super::processors::Port;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Estimate<'a> {
    pub(super) problem: &'a Problem,
    /// Seconds in and out, by processor and position in the chain.
    transfers: Vec<Vec<(f64, f64)>>,
    /// Processors by seconds of all stages, fastest first. A processor that cannot run some stages comes after the
    /// processors that can run more.
    pub(super) by_speed: Vec<usize>,
}

impl<'a> Estimate<'a> {
    /// Tabulates the transfers. `O(processors² × stages)`.
    pub(super) fn new(problem: &'a Problem) -> Self {
        let count = problem.processor_count();
        let of = |processor| (0..=problem.stage_count()).map(|place| slowest(problem, processor, place)).collect();
        let mut by_speed: Vec<usize> = (0..count).collect();
        let key = |&processor: &usize| {
            let times = problem.stages().stages.iter().map(|stage| stage.times[processor]);
            let barred = times.clone().filter(Option::is_none).count();
            (barred, crate::total::Total(times.flatten().sum()))
        };
        by_speed.sort_by_key(key);
        Estimate { problem, transfers: (0..count).map(of).collect(), by_speed }
    }

    /// Returns the period of an interval on one processor; infinite if the processor cannot run it.
    pub(super) fn period(&self, processor: usize, stages: Range<usize>) -> f64 {
        let (incoming, outgoing) = (self.transfers[processor][stages.start].0, self.transfers[processor][stages.end].1);
        let compute = self.problem.seconds(processor, stages);
        cycle(self.problem.rules().communication, incoming, compute, outgoing, 1)
    }

    /// Returns the seconds of the datum before a stage into a processor.
    pub(super) fn incoming(&self, processor: usize, stage: usize) -> f64 {
        self.transfers[processor][stage].0
    }
}

fn slowest(problem: &Problem, processor: usize, place: usize) -> (f64, f64) {
    let bytes = problem.stages().data[place] as f64;
    let own = Port::Processor(processor);
    let outside = place == 0 || place == problem.stage_count();
    let others = (0..problem.processor_count()).filter(|&other| other != processor).map(Port::Processor);
    let ports: Vec<Port> = if outside { vec![Port::Outside] } else { others.collect() };
    let most = |seconds: &dyn Fn(Port) -> f64| ports.iter().map(|&port| seconds(port)).fold(0.0, f64::max);
    let link = |from, to| problem.processors().link(from, to).seconds(bytes);
    (most(&|port| link(port, own)), most(&|port| link(own, port)))
}
