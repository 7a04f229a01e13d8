//! Runs the built-in programs next to plain loops under each scheduler, and checks the results.

use super::super::args::refuse_given;
use super::super::costs::open_store;
use super::super::interrupt::cancel_on_interrupt;
use super::super::progress::Progress;
use super::super::{CliError, Output, say};
use super::named::{ProgramName, WithProgram};
use super::report::{Report, Row};
use super::{FlowCommand, SchedulerName, Weights};
use anabranch::CancelToken;
use anabranch::device::{DetectOptions, detect};
use anabranch::flow::programs::Program;
use anabranch::flow::{Allocation, Flow, FlowError, FlowOptions, FlowReport, Scheduler, WorkerConfig};
use std::time::Instant;

/// Default number of runs of a program.
const RUNS: u32 = 3;

impl FlowCommand {
    pub(super) fn run_program(&self, program: ProgramName, output: Output) -> Result<(), CliError> {
        let graph = &self.graph;
        const WHY: &str = "it is an option of graphs";
        let given = [
            (graph.dir.is_some(), "--dir", WHY),
            (graph.fresh, "--fresh", WHY),
            (graph.dry_run, "--dry-run", WHY),
            (graph.timeout.is_some(), "--timeout", WHY),
            (graph.outside, "--outside", WHY),
        ];
        refuse_given(&given, "a program")?;
        let ((size, block), seed) = (self.sizes(program)?, self.seed.unwrap_or(0));
        program.with(size, block, seed, Comparison { command: self, size, block, output })
    }

    /// Returns the sizes of the program and of a block, within the program's bounds.
    fn sizes(&self, program: ProgramName) -> Result<(usize, usize), CliError> {
        let (usual, usual_block) = program.usual_sizes();
        program.checked_sizes(self.size.unwrap_or(usual), self.block.unwrap_or(usual_block))
    }
}

/// A program to run with the command's options.
struct Comparison<'a> {
    command: &'a FlowCommand,
    size: usize,
    block: usize,
    output: Output,
}

impl WithProgram for Comparison<'_> {
    type Result = Result<(), CliError>;

    /// Runs the loop, and the flow under each scheduler, in turn.
    fn with<P: Program>(self, program: &P) -> Result<(), CliError> {
        let Self { command, size, block, output, .. } = self;
        let worker_config = command.worker_config()?;
        let runner = Runner { job: &self, program, worker_config: &worker_config, token: cancel_on_interrupt()? };
        let (runs, weigh) = (command.runs.unwrap_or(RUNS), runner.weights()?);
        let started = Instant::now();
        let allocation = runner.allocation(&*weigh)?;
        let placing = started.elapsed();
        command.write_allocation(&allocation)?;
        let schedulers = &command.scheduler;
        let progress = Progress::new(output, program.name(), u64::from(runs) * (1 + schedulers.len() as u64));
        let (mut sequential, mut answer) = (Vec::new(), None);
        let mut rows: Vec<Row> = schedulers.iter().map(|scheduler| Row::new((*scheduler).into())).collect();
        for _ in 0..runs {
            let started = Instant::now();
            let expected = answer.insert(program.sequential());
            sequential.push(started.elapsed());
            progress.advance();
            for (row, scheduler) in rows.iter_mut().zip(schedulers) {
                row.add(runner.run_placed(*scheduler, &allocation, false, Some(expected))?);
                progress.advance();
            }
        }
        drop(progress);
        if let Some(scheduler) = schedulers.last().filter(|_| command.gantt.is_some() || command.trace.is_some()) {
            let report = runner.run_placed(*scheduler, &allocation, true, answer.as_ref())?;
            command.draw(program.name(), (*scheduler).into(), &report)?;
        }
        let flow = program.flow().0.task_graph()?;
        let report = Report {
            program: program.name(),
            size,
            block,
            nodes: flow.task_count(),
            edges: flow.datum_count(),
            workers: worker_config.worker_count(),
            machines: worker_config.machine_count(),
            place: if command.allocation.is_some() { "given".to_owned() } else { command.place.clone() },
            predicted: allocation.predicted().map(|schedule| schedule.makespan),
            placing,
            sequential,
            rows,
        };
        output.text_or_json(|| report.to_string(), &report.json())
    }
}

/// A program, with the data that all its runs share.
struct Runner<'a, P> {
    job: &'a Comparison<'a>,
    program: &'a P,
    worker_config: &'a WorkerConfig,
    token: CancelToken,
}

/// Function that weighs the nodes of a flow.
type Weigh = dyn Fn(&Flow<'_>);

impl<P: Program> Runner<'_, P> {
    /// Returns the function that weighs nodes. If weights are to be measured, measures them in one run.
    fn weights(&self) -> Result<Box<Weigh>, CliError> {
        if self.job.command.weights == Weights::Assumed {
            return Ok(Box::new(|_| ()));
        }
        let (place, mut store) = open_store(self.job.command.costs.as_ref())?;
        place.ready()?;
        let here = detect(&DetectOptions::default().without_gpu())?.fingerprint();
        store.settle(&here).iter().for_each(say);
        let options = FlowOptions::default().with_workers(self.worker_config.clone()).with_cancel(self.token.clone());
        let report = self.run(&options.with_profile(true), None)?;
        let name = format!("{} {}/{}", self.program.name(), self.job.size, self.job.block);
        report.learn(&name, &mut store);
        place.save(&mut store)?;
        Ok(Box::new(move |flow| {
            flow.weigh(&name, &store);
        }))
    }

    fn allocation(&self, weigh: &Weigh) -> Result<Allocation, CliError> {
        let (flow, _) = self.program.flow();
        weigh(&flow);
        self.job.command.allocation_of(&flow, self.worker_config)
    }

    fn options(&self, scheduler: Scheduler, allocation: &Allocation) -> FlowOptions {
        let options = FlowOptions::default().with_workers(self.worker_config.clone()).with_scheduler(scheduler);
        let options = options.with_allocation(allocation.clone()).with_cancel(self.token.clone());
        match self.job.command.window {
            Some(window) => options.with_window(window as usize),
            None => options,
        }
    }

    /// Runs the flow as it was placed, and checks its answer.
    fn run_placed(
        &self,
        scheduler: SchedulerName,
        allocation: &Allocation,
        profile: bool,
        expected: Option<&P::Answer>,
    ) -> Result<FlowReport, CliError> {
        let options = self.options(scheduler.into(), allocation).with_profile(profile);
        self.run(&options, expected)
    }

    /// Runs the flow, and checks its answer.
    fn run(&self, options: &FlowOptions, expected: Option<&P::Answer>) -> Result<FlowReport, CliError> {
        let (answer, report) = self.program.run(options).map_err(|error| match error {
            FlowError::Cancelled => CliError::interrupted(),
            error => error.into(),
        })?;
        match expected {
            Some(expected) if answer.as_ref() != Some(expected) => Err(CliError::unexpected(format!(
                "{}: the result of the flow differs from that of the loop",
                self.program.name()
            ))),
            _ => Ok(report),
        }
    }
}
