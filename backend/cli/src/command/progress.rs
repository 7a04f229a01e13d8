//! A progress bar on standard error, for work that takes longer than a second.

use super::{Output, is_quiet, say};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Display;
use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Longest time without a sign of progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// Work of a known number of steps. Shown only on a terminal, and not if JSON is wanted.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Starts work of `steps` steps, called `what`.
    pub(super) fn new(output: Output, what: &str, steps: u64) -> Self {
        Self::shown(output, what, steps, "{msg} {wide_bar} {pos}/{len} {eta}")
    }

    /// Starts work of `steps` steps, called `what`, and shows the steps per second.
    pub(super) fn with_rate(output: Output, what: &str, steps: u64) -> Self {
        Self::shown(output, what, steps, "{msg} {wide_bar} {pos}/{len} {per_sec} {eta}")
    }

    fn shown(output: Output, what: &str, steps: u64, template: &str) -> Self {
        let target = match is_hidden(output) || steps < 2 {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr_with_hz(5),
        };
        let style = ProgressStyle::with_template(template);
        let bar = ProgressBar::with_draw_target(Some(steps), target).with_message(what.to_owned());
        Self { bar: style.map_or(bar.clone(), |style| bar.with_style(style)) }
    }

    /// Starts work called `what` with an unknown number of steps.
    pub(super) fn open_ended(output: Output, what: &str) -> Self {
        let target =
            if is_hidden(output) { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(5) };
        let style = ProgressStyle::with_template("{msg} {pos} {elapsed}");
        let bar = ProgressBar::with_draw_target(None, target).with_message(what.to_owned());
        Self { bar: style.map_or(bar.clone(), |style| bar.with_style(style)) }
    }

    /// Begins the next step, of this name. If standard error is not a terminal, which shows no bar, prints a line.
    pub(super) fn begin(&self, output: Output, step: impl Display) {
        if !is_hidden(output) && !stderr().is_terminal() {
            let done = self.bar.position() + 1;
            say(format_args!("{} {done}/{}: {step}", self.bar.message(), self.bar.length().unwrap_or(done)));
        }
    }

    /// Sets the number of steps that are done.
    pub(super) fn reach(&self, steps: u64) {
        self.bar.set_position(steps);
    }

    pub(super) fn advance(&self) {
        self.bar.inc(1);
    }
}

/// Whether progress is hidden.
fn is_hidden(output: Output) -> bool {
    output.json || is_quiet()
}

/// Does work of unknown steps. If it takes longer than a second, reports what is waited for.
pub(super) fn waiting<T>(output: Output, what: &str, work: impl FnOnce() -> T) -> T {
    if is_hidden(output) {
        return work();
    }
    let (done, ended) = mpsc::channel();
    thread::scope(|scope| {
        // If the system gives no thread, the work is done without reports.
        let _ = thread::Builder::new().spawn_scoped(scope, move || tell(what, &ended));
        // Dropped also if the work panics: the scope waits for the thread, which waits for this.
        let _done: mpsc::Sender<()> = done;
        work()
    })
}

/// Reports on work that has not ended after a while: on a terminal its time so far, otherwise that it takes long.
fn tell(what: &str, ended: &Receiver<()>) {
    let goes_on = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    if !goes_on(PATIENCE) {
        return;
    }
    if !stderr().is_terminal() {
        return say(format_args!("{what} …"));
    }
    let bar = ProgressBar::new_spinner().with_message(what.to_owned()).with_elapsed(PATIENCE);
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    let bar = style.map_or(bar.clone(), |style| bar.with_style(style));
    while goes_on(Duration::from_millis(200)) {
        bar.tick();
    }
    bar.finish_and_clear();
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
