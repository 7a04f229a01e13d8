//! Machines as processes: copies of this command, each with a socket to each other, which run one flow together.

use super::SchedulerName;
use super::named::ProgramName;
use crate::command::CliError;
use anabranch::flow::{FlowError, Peers};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::Duration;
#[cfg(unix)]
use {
    super::named::WithProgram,
    anabranch::files,
    anabranch::flow::programs::Program,
    anabranch::flow::{Allocation, FlowOptions, FlowReport, WorkerConfig},
    std::io::{Read, Write, stdin},
    std::net::Shutdown,
    std::os::fd::{AsFd, OwnedFd},
    std::os::unix::net::UnixStream,
    std::os::unix::process::CommandExt,
    std::process::{Command, Stdio},
};

/// Subcommand of a process that another process starts.
#[cfg(unix)]
const NAME: &str = "flow-machine";

/// Time in which a process that was just started must read its job.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_secs(60);

/// Be a machine of `anabranch flow --processes`, which starts this
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct MachineCommand {}

/// Job of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) program: ProgramName,
    pub(super) size: usize,
    pub(super) block: usize,
    pub(super) seed: u64,
    pub(super) machines: u32,
    pub(super) workers_each: u32,
    pub(super) window: Option<u32>,
    pub(super) scheduler: SchedulerName,
    /// The allocation, as a list.
    pub(super) allocation: String,
    pub(super) profile: bool,
}

impl Job {
    #[cfg(unix)]
    fn options(&self) -> Result<FlowOptions, FlowError> {
        let worker_config = WorkerConfig::machines(self.machines, self.workers_each)?;
        let options = FlowOptions::default().with_workers(worker_config).with_scheduler(self.scheduler.into());
        let options = options.with_profile(self.profile);
        Ok(match self.window {
            Some(window) => options.with_window(window as usize),
            None => options,
        })
    }
}

/// The other machines of a run. They end when this is dropped.
///
/// If a second Ctrl-C or SIGKILL ends the command, each of them finishes its current function first.
pub(super) struct Machines(Vec<Child>);

impl Machines {
    /// Starts a process for each machine but the first. Returns these, and this process's own end.
    pub(super) fn start(job: &Job) -> Result<(Self, Peers), CliError> {
        let mut peers = Peers::pairs(job.machines).map_err(refused)?.into_iter();
        let own = peers.next().ok_or_else(|| CliError::internal("no machines"))?;
        let mut machines = Machines(Vec::new());
        let program = std::env::current_exe().map_err(refused)?;
        let job = serde_json::to_vec(job)?;
        for peers in peers {
            machines.add(&program, peers, &job)?;
        }
        Ok((machines, own))
    }

    /// Starts the process of one machine, and sends it its sockets and its job.
    #[cfg(unix)]
    fn add(&mut self, program: &Path, peers: Peers, job: &[u8]) -> Result<(), CliError> {
        let (mut here, there) = UnixStream::pair().map_err(refused)?;
        // Each process has its own process group: Ctrl-C reaches only this process, which ends the others.
        let child = Command::new(program)
            .arg(NAME)
            .stdin(Stdio::from(OwnedFd::from(there)))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn();
        self.0.push(child.map_err(refused)?);
        let machine = peers.machine();
        let told = here.set_write_timeout(Some(PATIENCE)).and_then(|()| peers.hand_over(&here));
        let told = told.and_then(|()| here.write_all(job)).and_then(|()| here.shutdown(Shutdown::Write));
        told.map_err(|error| {
            CliError::input(format!("the job could not be sent to the process of machine {machine}: {error}"))
        })
    }

    #[cfg(not(unix))]
    fn add(&mut self, _: &Path, _: Peers, _: &[u8]) -> Result<(), CliError> {
        Err(refused(io::ErrorKind::Unsupported.into()))
    }

    /// Returns the error of a run, with the exit status of the process that caused it.
    pub(super) fn explain(mut self, error: FlowError) -> CliError {
        let FlowError::Machine { machine, reason } = &error else { return error.into() };
        let child = (*machine as usize).checked_sub(1).and_then(|number| self.0.get_mut(number));
        match child.and_then(ended) {
            Some(status) if !status.success() && reason.starts_with("it hung up") => {
                CliError::input(format!("{error} ({status})"))
            }
            _ => error.into(),
        }
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A process that has ended only needs to be waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn refused(error: io::Error) -> CliError {
    let next = if cfg!(unix) { "use fewer --machines" } else { "leave --processes out: only Unix has them" };
    CliError::input(format!("--processes: {error}; {next}"))
}

/// Returns the exit status of a process that has hung up: it may not have ended yet.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..50 {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        sleep(Duration::from_millis(10));
    }
    None
}

impl MachineCommand {
    #[cfg(not(unix))]
    pub(crate) fn run(self) -> Result<(), CliError> {
        Err(refused(io::ErrorKind::Unsupported.into()))
    }

    /// Runs one machine of a flow.
    #[cfg(unix)]
    pub(crate) fn run(self) -> Result<(), CliError> {
        let refused = |error: io::Error| {
            CliError::input(format!("{NAME} is started by `anabranch flow --processes`, not by hand: {error}"))
        };
        let told = UnixStream::from(stdin().as_fd().try_clone_to_owned().map_err(refused)?);
        let peers = Peers::take_over(&told).map_err(refused)?;
        let mut job = Vec::new();
        (&told).take(files::MOST_BYTES).read_to_end(&mut job).map_err(refused)?;
        let job: Job = serde_json::from_slice(&job)?;
        let (size, block) = job.program.checked_sizes(job.size as u64, job.block as u64)?;
        job.program.with(size, block, job.seed, Machine { job: &job, peers })
    }
}

/// A machine that will run a program.
#[cfg(unix)]
struct Machine<'a> {
    job: &'a Job,
    peers: Peers,
}

#[cfg(unix)]
impl WithProgram for Machine<'_> {
    type Result = Result<(), CliError>;

    fn with<P: Program>(self, program: &P) -> Self::Result {
        let allocation = Allocation::from_list(&self.job.allocation, &program.flow().0)?;
        let options = self.job.options()?.with_allocation(allocation);
        let ran: Result<(_, FlowReport), FlowError> = program.run_among(&options, self.peers);
        match ran {
            // The leading process has received the run's failure.
            Err(FlowError::Machine { .. } | FlowError::Panicked { .. }) => Ok(()),
            ran => Ok(ran.map(drop)?),
        }
    }
}
