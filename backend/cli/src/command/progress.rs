//! A progress bar on standard error, for work that takes longer than a second.

use super::{Output, say};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Display;
use std::io::{IsTerminal, stderr};

/// Work of a known number of steps. Shown on a terminal only, and not where JSON is wanted.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work of `steps` steps, called `what`.
    pub(super) fn new(output: Output, what: &str, steps: u64) -> Self {
        let target = match output.json || steps < 2 {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr_with_hz(5),
        };
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
        let bar = ProgressBar::with_draw_target(Some(steps), target).with_message(what.to_owned());
        Self { bar: style.map_or(bar.clone(), |style| bar.with_style(style)) }
    }

    /// The next step, of this name; where nobody sees the bar since standard error is no terminal, a line.
    pub(super) fn begin(&self, output: Output, step: impl Display) {
        if !output.json && !stderr().is_terminal() {
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

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
