//! A progress bar on standard error, for work that takes longer than a second.

use super::{Output, is_quiet, say};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Display;
use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long work may be silent.
const PATIENCE: Duration = Duration::from_secs(1);

/// Work of a known number of steps. Shown on a terminal only, and not where JSON is wanted.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work of `steps` steps, called `what`.
    pub(super) fn new(output: Output, what: &str, steps: u64) -> Self {
        Self::shown(output, what, steps, "{msg} {wide_bar} {pos}/{len} {eta}")
    }

    /// The same with the steps a second.
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

    /// Work called `what` of which nobody knows how many steps there will be.
    pub(super) fn open_ended(output: Output, what: &str) -> Self {
        let target =
            if is_hidden(output) { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(5) };
        let style = ProgressStyle::with_template("{msg} {pos} {elapsed}");
        let bar = ProgressBar::with_draw_target(None, target).with_message(what.to_owned());
        Self { bar: style.map_or(bar.clone(), |style| bar.with_style(style)) }
    }

    /// The next step, of this name; where nobody sees the bar since standard error is no terminal, a line.
    pub(super) fn begin(&self, output: Output, step: impl Display) {
        if !is_hidden(output) && !stderr().is_terminal() {
            let done = self.bar.position() + 1;
            say(format_args!("{} {done}/{}: {step}", self.bar.message(), self.bar.length().unwrap_or(done)));
        }
    }

    /// So many steps are done in all.
    pub(super) fn reach(&self, steps: u64) {
        self.bar.set_position(steps);
    }

    pub(super) fn advance(&self) {
        self.bar.inc(1);
    }
}

/// Whether nobody wants to see progress.
fn is_hidden(output: Output) -> bool {
    output.json || is_quiet()
}

/// Does work whose steps nobody counts; where it takes longer than a second, it is told what is waited for.
pub(super) fn waiting<T>(output: Output, what: &str, work: impl FnOnce() -> T) -> T {
    if is_hidden(output) {
        return work();
    }
    let (done, ended) = mpsc::channel();
    thread::scope(|scope| {
        // A system that gives no thread for it gets its work done in silence.
        let _ = thread::Builder::new().spawn_scoped(scope, move || tell(what, &ended));
        // Dropped also where the work panics: the scope waits for the thread that waits for this.
        let _done: mpsc::Sender<()> = done;
        work()
    })
}

/// Tells of work that has not ended after a while: how long it takes by now, or, where nobody has a terminal, that it takes long.
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
