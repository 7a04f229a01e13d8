//! Runs a command by the shell: its process group, its last output, and its end together with the run.
//!
//! Processes that a command leaves behind are killed, too, unless they have made a process group of their own, as
//! `setsid` and `timeout` do. The command's state is polled every few milliseconds.

use anabranch_base::cancel::CancelToken;
use anabranch_base::lock::lock;
use anabranch_base::quoted::Line;
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

/// Most bytes of a command's output that are kept: the last.
const KEPT: usize = 4096;
/// Most lines of the output that an error shows.
const LINES: usize = 8;
/// Longest time between two polls of a command.
const LOOK: Duration = Duration::from_millis(8);
/// Time that a cancelled command's own process has to end. After that, the rest of its group is killed at once. For
/// `cd x; prog` this process is the shell, so `prog` has no time of its own.
const GRACE: Duration = Duration::from_secs(1);
/// Time to wait for the output of a command that has ended.
const DRAIN: Duration = Duration::from_millis(500);

/// Process groups of all running commands.
#[cfg(unix)]
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Kills the commands of all runs of this process, without waiting for them.
///
/// For processes that exit without waiting for their runs. Files that the commands were writing stay as they are, and
/// the next run makes them again. Does nothing on systems without process groups.
pub fn end_all() {
    #[cfg(unix)]
    lock(&GROUPS).iter().for_each(|&group| {
        let _ = kill_process_group(group, Signal::KILL);
    });
}

/// Reason why a command has not ended well.
#[derive(Debug)]
enum Failure {
    NotStarted(io::Error),
    /// Exit status, with the last lines of output.
    Ended(ExitStatus, String),
    Cancelled,
    /// The command tried to read the terminal or to change it. The system stops background processes that do so.
    AtTerminal,
}

/// Runs a command in a directory, and waits for its end.
///
/// It gets no input, not even from the terminal. `DLG_UID` holds the application's id, and `DLG_ROOT` the directory.
///
/// # Errors
/// The reason if the command has not ended well.
pub fn run_command(command: &str, directory: &Path, id: &str, token: &CancelToken) -> Result<(), String> {
    run(command, directory, id, token).map_err(|failure| told(&failure))
}

fn told(failure: &Failure) -> String {
    match failure {
        Failure::NotStarted(error) => format!("the shell cannot be started: {error}"),
        Failure::Cancelled => "cancelled".to_owned(),
        Failure::AtTerminal => {
            "it stopped to read the terminal, which is not allowed; give its input in the command or in a file"
                .to_owned()
        }
        Failure::Ended(status, said) if said.is_empty() => format!("its command ended with {status}"),
        Failure::Ended(status, said) => {
            format!("its command ended with {status}; its last output was:\n{}", indented(said))
        }
    }
}

/// Returns the lines that a command wrote, indented.
fn indented(said: &str) -> String {
    let lines: Vec<_> = said.lines().map(|line| format!("  {}", Line(line))).collect();
    lines.join("\n")
}

fn run(command: &str, directory: &Path, id: &str, token: &CancelToken) -> Result<(), Failure> {
    let (mut child, said) = start(command, directory, id).map_err(Failure::NotStarted)?;
    let ended = wait(&mut child, token);
    // The leader is reaped only after this: until then, no other group can have its number.
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
    // The builder's own write ends must be closed, so that the pipe ends with the command.
    drop(shell);
    Ok((child, Said::by(reader)))
}

/// Waits until the command has ended by itself or has been asked to end.
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

/// State of a command when it is polled.
enum Look {
    Runs,
    Ended,
    #[cfg_attr(not(unix), allow(dead_code))]
    AtTerminal,
}

/// Polls a command without reaping it, so that its number stays its own. A command stopped by another signal may be
/// continued by the sender.
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

/// Asks all processes of a command to end, or kills them.
#[cfg(unix)]
fn signal(child: &mut Child, is_final: bool) {
    let _ = kill_process_group(Pid::from_child(child), if is_final { Signal::KILL } else { Signal::TERM });
}

#[cfg(not(unix))]
fn signal(child: &mut Child, _: bool) {
    let _ = child.kill();
}

/// Last output of a command, from both streams.
struct Said {
    kept: Arc<Mutex<VecDeque<u8>>>,
    ended: Receiver<()>,
}

impl Said {
    /// Reads a pipe on a thread until it ends. If a process holds it longer than the command, the thread is left
    /// behind.
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
        // If there is no thread, the command finds its pipe closed when it writes.
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

    /// Whether a process has ended, even if it was not reaped yet.
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
