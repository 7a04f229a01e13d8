//! Growth of the time of each strategy with the tasks of a graph and with the devices of a platform.
//!
//! ```text
//! cargo bench -p anabranch-placement --bench growth -- [--most TASKS] [--limit SECONDS] [--only NAME,..]
//! ```
//!
//! It prints processor seconds and the exponent of the time between the smallest and the largest graph. The graphs are:
//!
//! - `layered`: 50 tasks per level, colocation groups and constraints, about four edges per task (the synthetic graph 4
//!   of Laich 2017, Table 7.1).
//! - `random`: as many levels as tasks per level, four edges per task, a datum per edge, no constraints.
//!
//! They have 1,000 tasks, ten times as many, and so on up to `--most` (default: 1,000,000) on 16 devices. Then 10,000
//! tasks are on 4 to 100 devices. A strategy that needs more than `--limit` seconds (default: 60) is not measured on
//! larger graphs. The bench also measures the simulator, the checker and the lower bounds.
//!
//! It is here and not among the benches of the workspace, because it needs only the placement crate.

#[path = "../examples/strategies/clock.rs"]
mod clock;

use anabranch_placement::bound::lower_bound;
use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::generate::{Devices, GenerateError, Layered, RandomDag};
use anabranch_placement::graph::TaskGraph;
use anabranch_placement::order::Pct;
use anabranch_placement::place::{ListScheduler, Placer, STRATEGIES, strategy_by_name};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::rules::Rules;
use anabranch_placement::simulate::simulate;
use clock::Clock;
use std::error::Error;

/// Least processor seconds of a measurement: shorter work is repeated.
const LEAST: f64 = 0.02;
/// Makes a graph of about so many tasks.
type Generate = fn(u32) -> Result<TaskGraph, GenerateError>;
/// Families of graphs.
const FAMILIES: [(&str, Generate); 2] = [("layered", layered), ("random", random)];
/// Numbers of devices.
const DEVICES: [u32; 4] = [4, 16, 64, 100];

fn layered(tasks: u32) -> Result<TaskGraph, GenerateError> {
    Layered { levels: (tasks / 50).max(1), ..Layered::default() }.generate(0)
}

fn random(tasks: u32) -> Result<TaskGraph, GenerateError> {
    RandomDag { tasks, out_degree: 4, ..RandomDag::default() }.generate(0)
}

fn problem(graph: TaskGraph, devices: u32) -> Result<LoadedProblem, GenerateError> {
    // No device may be short of memory, because few strategies then do what they usually do.
    let platform = Devices { count: devices, memory_times_speed: u64::MAX, ..Devices::default() }.generate(0)?;
    Ok(LoadedProblem::new("growth", graph, platform, MemoryRule::SizeEstimate))
}

/// Arguments of the command line.
struct Arguments {
    most: u32,
    limit: f64,
    only: Option<Vec<String>>,
}

impl Arguments {
    fn parse(mut given: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        // Without `--bench`, which Cargo adds, the bench runs as a test: it is then to be short.
        let mut arguments = Arguments { most: 1000, limit: 60.0, only: None };
        while let Some(argument) = given.next() {
            let mut value = || given.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--bench" if arguments.most == 1000 => arguments.most = 1_000_000,
                "--most" => arguments.most = value()?.parse()?,
                "--limit" => arguments.limit = value()?.parse()?,
                "--only" => arguments.only = Some(value()?.split(',').map(Into::into).collect()),
                _ => {}
            }
        }
        Ok(arguments)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|wanted| wanted == name))
    }
}

/// Seconds of everything that is measured, by size.
struct Table<'a> {
    arguments: &'a Arguments,
    sizes: Vec<f64>,
    rows: Vec<(&'static str, Vec<Option<f64>>)>,
}

impl<'a> Table<'a> {
    fn new(arguments: &'a Arguments) -> Self {
        Table { arguments, sizes: Vec::new(), rows: Vec::new() }
    }

    /// Measures `work` unless it is not wanted or took too long before.
    fn measure(&mut self, name: &'static str, mut work: impl FnMut()) {
        if !self.arguments.wants(name) {
            return;
        }
        let row = match self.rows.iter().position(|(known, _)| *known == name) {
            Some(row) => row,
            None => {
                self.rows.push((name, Vec::new()));
                self.rows.len() - 1
            }
        };
        let before = self.rows[row].1.last().copied();
        let too_long =
            before.is_some_and(|seconds| seconds.is_none_or(|seconds| seconds > self.arguments.limit / 10.0));
        let seconds = (!too_long).then(|| {
            let (start, mut runs) = (Clock::start(), 0.0);
            while runs == 0.0 || start.seconds() < LEAST {
                work();
                runs += 1.0;
            }
            start.seconds() / runs
        });
        self.rows[row].1.push(seconds);
    }

    fn measure_all(&mut self, problem: &Problem<'_>, size: f64) -> Result<(), Box<dyn Error>> {
        self.sizes.push(size);
        for &(name, _) in STRATEGIES {
            let strategy = strategy_by_name(name).ok_or("every listed strategy is known")?;
            self.measure(name, || _ = std::hint::black_box(strategy.place(problem)));
        }
        let device_of = ListScheduler::HEFT.place(problem)?.device_of;
        self.measure("simulation", || _ = std::hint::black_box(simulate(problem, &device_of, &Pct)));
        let schedule = simulate(problem, &device_of, &Pct)?;
        self.measure("checker", || {
            assert_eq!(check_placement(problem, &device_of), []);
            assert_eq!(check_schedule(problem, &device_of, &schedule), []);
        });
        self.measure("lower bound", || _ = std::hint::black_box(lower_bound(problem)));
        Ok(())
    }

    fn print(&self, what: &str) {
        print!("\n| {what} |");
        self.sizes.iter().for_each(|size| print!(" {size} |"));
        println!(" exponent |\n|---|{}", "--:|".repeat(self.sizes.len() + 1));
        for (name, seconds) in &self.rows {
            print!("| {name} |");
            for seconds in seconds {
                print!(" {} |", seconds.map(|seconds| format!("{seconds:.4}")).unwrap_or_default());
            }
            let measured: Vec<(f64, f64)> =
                self.sizes.iter().zip(seconds).filter_map(|(&size, seconds)| Some((size, (*seconds)?))).collect();
            match measured[..] {
                [(small, short), .., (large, long)] => println!(" {:.2} |", (long / short).ln() / (large / small).ln()),
                _ => println!(" |"),
            }
        }
    }
}

/// Returns the greatest memory that this process has had, as the system reports it (Linux).
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(status.lines().find(|line| line.starts_with("VmHWM"))?.to_string())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    for (family, generate) in FAMILIES {
        let mut table = Table::new(&arguments);
        for tasks in std::iter::successors(Some(1000), |tasks: &u32| tasks.checked_mul(10)) {
            if tasks > arguments.most {
                break;
            }
            let loaded = problem(generate(tasks)?, 16)?;
            let problem = loaded.problem()?.under(Rules::THESIS)?;
            table.measure_all(&problem, problem.graph().task_count() as f64)?;
        }
        table.print(&format!("{family}, 16 devices: tasks"));
        let mut table = Table::new(&arguments);
        for devices in DEVICES {
            let loaded = problem(generate(arguments.most.min(10_000))?, devices)?;
            let problem = loaded.problem()?.under(Rules::THESIS)?;
            table.measure_all(&problem, devices.into())?;
        }
        table.print(&format!("{family}, {} tasks: devices", arguments.most.min(10_000)));
    }
    println!("\n{}", peak_memory().unwrap_or_default());
    Ok(())
}
