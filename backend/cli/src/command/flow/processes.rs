//! Machines as processes: copies of this command, each with a socket to each other, which run one flow together.

use super::job::Job;
use super::named::WithProgram;
use crate::command::CliError;
use anabranch::files;
use anabranch::flow::programs::Program;
use anabranch::flow::{Allocation, FlowError, FlowOptions, FlowReport, Peers, WorkerConfig};
use clap::Args;
use std::io::{self, Read, Write, stdin};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Subcommand of a process that another process starts.
const NAME: &str = "flow-machine";

/// Time in which a process that was just started must read its job.
const PATIENCE: Duration = Duration::from_secs(60);

/// Be a machine of `anabranch flow --processes`, which starts this
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct MachineCommand {}

impl Job {
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
        let refused = |error: io::Error| CliError::input(format!("--processes: {error}; use fewer --machines"));
        let mut peers = Peers::pairs(job.machines).map_err(refused)?.into_iter();
        let own = peers.next().ok_or_else(|| CliError::internal("no machines"))?;
        let mut machines = Machines(Vec::new());
        let program = std::env::current_exe().map_err(refused)?;
        let job = serde_json::to_vec(job)?;
        for peers in peers {
            let (mut here, there) = UnixStream::pair().map_err(refused)?;
            // Each process has its own process group: Ctrl-C reaches only this process, which ends the others.
            let child = Command::new(&program)
                .arg(NAME)
                .stdin(Stdio::from(OwnedFd::from(there)))
                .stdout(Stdio::null())
                .process_group(0)
                .spawn();
            machines.0.push(child.map_err(refused)?);
            let machine = peers.machine();
            let told = here.set_write_timeout(Some(PATIENCE)).and_then(|()| peers.hand_over(&here));
            let told = told.and_then(|()| here.write_all(&job)).and_then(|()| here.shutdown(Shutdown::Write));
            told.map_err(|error| {
                CliError::input(format!("machine {machine}: its process did not receive the job: {error}"))
            })?;
        }
        Ok((machines, own))
    }

    /// Returns the error of a run, with the exit status of the process that caused it.
    pub(super) fn explain(mut self, error: FlowError) -> CliError {
        let FlowError::Machine { machine, reason } = &error else { return error.into() };
        let child = (*machine as usize).checked_sub(1).and_then(|number| self.0.get_mut(number));
        match child.and_then(ended) {
            Some(status) if !status.success() && reason.starts_with("it disconnected") => {
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

/// Returns the exit status of a process that has disconnected: it may not have ended yet.
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
    /// Runs one machine of a flow.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let refused = |error: io::Error| {
            CliError::input(format!("{NAME} cannot be used by hand; `anabranch flow --processes` starts it: {error}"))
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
struct Machine<'a> {
    job: &'a Job,
    peers: Peers,
}

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
