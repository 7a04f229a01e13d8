//! Running a command by the shell: its process group, the last that it says, and its end with the run.
//!
//! What a command leaves running when it ends is ended, too, unless that has made itself a process group of its own, as `setsid` and `timeout` do.
//! The command is looked at every few milliseconds.

use anabranch_base::cancel::CancelToken;
use anabranch_base::lock::lock;
#[cfg(unix)]
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of what a command says that are kept: the last.
const KEPT: usize = 4096;
/// Lines of it that an error shows.
const LINES: usize = 8;
/// How often at least it is looked whether a command has ended.
const LOOK: Duration = Duration::from_millis(8);
/// How long a cancelled command's own process may take to end: when it has, all others of its group are ended at once. That of `cd x; prog` is the
/// shell, so `prog` has no time of its own.
const GRACE: Duration = Duration::from_secs(1);
/// How long what an ended command has said is waited for.
const DRAIN: Duration = Duration::from_millis(500);

/// The process groups of all commands that run now.
#[cfg(unix)]
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Ends the commands of all runs of this process at once, and waits for none: for who ends the process without waiting for its runs. What they were
/// writing stays as it is, and is made again by the next run. Where there are no process groups it does nothing.
pub fn end_all() {
    #[cfg(unix)]
    lock(&GROUPS).iter().for_each(|&group| {
        let _ = kill_process_group(group, Signal::KILL);
    });
}

/// Why a command has not ended well.
#[derive(Debug)]
pub(super) enum Failure {
    NotStarted(io::Error),
    /// With the last lines that it said.
    Ended(ExitStatus, String),
    Cancelled,
    /// It wanted to read the terminal, or to change it, for which the system stops who is not in its foreground.
    AtTerminal,
}

/// Runs a command in a directory, and waits for its end. It reads nothing, also not from the terminal; `DLG_UID` and `DLG_ROOT` tell it the
/// application's id and the directory.
pub(super) fn run(command: &str, directory: &Path, id: &str, token: &CancelToken) -> Result<(), Failure> {
    let (mut child, said) = start(command, directory, id).map_err(Failure::NotStarted)?;
    let ended = wait(&mut child, token);
    // While the leader is not waited for, its group's number is nobody else's.
    signal(&mut child, true);
    #[cfg(unix)]
    lock(&GROUPS).retain(|&group| group != Pid::from_child(&child));
    let status = child.wait().map_err(Failure::NotStarted)?;
    ended?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Ended(status, said.last_lines())),
    }
}

fn start(command: &str, directory: &Path, id: &str) -> io::Result<(Child, Said)> {
    let (reader, writer) = io::pipe()?;
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(directory).env("DLG_UID", id).env("DLG_ROOT", directory);
    shell.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    let child = shell.spawn()?;
    #[cfg(unix)]
    lock(&GROUPS).push(Pid::from_child(&child));
    // The pipe's own writers have to go, so that it ends with the command.
    drop(shell);
    Ok((child, Said::by(reader)))
}

/// Waits until the command has ended by itself, or is to be ended.
fn wait(child: &mut Child, token: &CancelToken) -> Result<(), Failure> {
    let mut pause = Duration::from_micros(500);
    let mut asked: Option<Instant> = None;
    loop {
        match look(child) {
            Look::Runs => {}
            Look::AtTerminal => return Err(Failure::AtTerminal),
            Look::Ended if asked.is_some() => return Err(Failure::Cancelled),
            Look::Ended => return Ok(()),
        }
        match asked {
            None if token.is_cancelled() => {
                signal(child, false);
                asked = Some(Instant::now());
            }
            Some(since) if since.elapsed() > GRACE => return Err(Failure::Cancelled),
            _ => {}
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LOOK);
    }
}

/// How a command is found.
enum Look {
    Runs,
    Ended,
    #[cfg_attr(not(unix), allow(dead_code))]
    AtTerminal,
}

/// Looks at a command. It is not waited for: its number stays its own. Who else has stopped it may let it go on.
#[cfg(unix)]
fn look(child: &mut Child) -> Look {
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let terminal = [Signal::TTIN, Signal::TTOU].map(|signal| signal.as_raw());
    match waitid(WaitId::Pid(Pid::from_child(child)), options) {
        Ok(None) => Look::Runs,
        Ok(Some(status)) if status.stopped() => match status.stopping_signal() {
            Some(signal) if terminal.contains(&signal) => Look::AtTerminal,
            _ => Look::Runs,
        },
        _ => Look::Ended,
    }
}

#[cfg(not(unix))]
fn look(child: &mut Child) -> Look {
    if matches!(child.try_wait(), Ok(None)) { Look::Runs } else { Look::Ended }
}

/// Asks all processes of a command to end, or ends them.
#[cfg(unix)]
fn signal(child: &mut Child, is_final: bool) {
    let _ = kill_process_group(Pid::from_child(child), if is_final { Signal::KILL } else { Signal::TERM });
}

#[cfg(not(unix))]
fn signal(child: &mut Child, _: bool) {
    let _ = child.kill();
}

/// What a command says, on both streams; the last of it.
struct Said {
    kept: Arc<Mutex<VecDeque<u8>>>,
    ended: Receiver<()>,
}

impl Said {
    /// Reads a pipe until it ends. Who holds it longer than the command is left behind.
    fn by(mut reader: PipeReader) -> Self {
        let kept: Arc<Mutex<VecDeque<u8>>> = Arc::default();
        let (end, ended) = channel();
        let into = Arc::clone(&kept);
        let read = move || {
            let mut block = [0; KEPT];
            loop {
                match reader.read(&mut block) {
                    Ok(0) => break,
                    Ok(length) => {
                        let mut kept = lock(&into);
                        kept.extend(&block[..length]);
                        let over = kept.len().saturating_sub(KEPT);
                        kept.drain(..over);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            drop(end);
        };
        // Without a thread the command finds its pipe closed when it writes there.
        let _ = thread::Builder::new().name("said by a command".into()).spawn(read);
        Said { kept, ended }
    }

    fn last_lines(&self) -> String {
        let _ = self.ended.recv_timeout(DRAIN);
        let kept: Vec<u8> = lock(&self.kept).iter().copied().collect();
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text.trim_end().lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn here(command: &str, token: &CancelToken) -> Result<(), Failure> {
        run(command, &std::env::temp_dir(), "uid", token)
    }

    #[test]
    fn the_end_and_the_last_words_are_told() {
        let token = CancelToken::new();
        assert!(here("test \"$DLG_UID\" = uid && test -d \"$DLG_ROOT\" && test -z \"$(cat)\"", &token).is_ok());
        let failure = here("seq 100000; echo wrong >&2; exit 3", &token).unwrap_err();
        let Failure::Ended(status, said) = failure else { panic!("{failure:?}") };
        assert_eq!((status.code(), said.lines().count()), (Some(3), LINES));
        assert!(said.ends_with("99999\n100000\nwrong"), "{said}");
        assert!(matches!(here("kill -9 $$", &token), Err(Failure::Ended(..))));
        assert!(matches!(here("a\0b", &token), Err(Failure::NotStarted(_))));
    }

    #[test]
    fn what_is_left_running_ends_with_its_command() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let command = format!("sleep 1000 & echo $! > {}", pid.display());
        assert!(here(&command, &CancelToken::new()).is_ok());
        let pid: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        assert!(is_gone(pid));
    }

    #[test]
    fn cancelled_commands_end_even_if_they_do_not_want_to() {
        for command in ["sleep 1000", "trap '' TERM; sleep 1000; sleep 1000"] {
            let token = CancelToken::new();
            let used = token.clone();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(100));
                used.cancel();
            });
            assert!(matches!(here(command, &token), Err(Failure::Cancelled)), "{command}");
        }
    }

    #[test]
    fn who_wants_to_read_the_terminal_is_ended() {
        let token = CancelToken::new();
        assert!(matches!(here("kill -TTIN $$; exit 0", &token), Err(Failure::AtTerminal)));
    }

    /// Whether a process has ended; one that nobody waits for yet has.
    fn is_gone(pid: i32) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
            if matches!(state, None | Some('Z' | 'X')) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}
