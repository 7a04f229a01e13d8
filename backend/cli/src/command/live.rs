//! Live display of work in progress: on a terminal some lines that are redrawn, elsewhere a line now and then.

use super::{CliError, finish, say};
use anabranch_report::text::{printable, shortened};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Most columns, so that no line is wrapped.
const COLUMNS: usize = 100;
/// Columns of a bar.
const BAR: usize = 16;

/// Destination of the display.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    /// Standard output: the display is the result.
    Output,
    /// Standard error, next to the results.
    Error,
    /// Nowhere.
    Nobody,
}

/// Live display of a run.
pub(super) struct Live {
    to: To,
    /// Only on a terminal.
    bar: Option<ProgressBar>,
    every: Duration,
    last: Instant,
}

impl Live {
    /// Makes a display that is drawn every `every`.
    pub(super) fn new(to: To, every: Duration) -> Self {
        let target = match to {
            To::Output if io::stdout().is_terminal() => Some(ProgressDrawTarget::stdout()),
            To::Error if io::stderr().is_terminal() => Some(ProgressDrawTarget::stderr()),
            To::Output | To::Error | To::Nobody => None,
        };
        let bar = target.map(|target| ProgressBar::with_draw_target(None, target));
        let bar =
            bar.map(|bar| ProgressStyle::with_template("{msg}").map_or(bar.clone(), |style| bar.with_style(style)));
        Self { to, bar, every, last: Instant::now() }
    }

    /// Whether it is time to draw again.
    pub(super) fn is_due(&self) -> bool {
        self.to != To::Nobody && self.last.elapsed() >= self.every
    }

    /// Draws the lines `picture` on a terminal, or writes `line` elsewhere.
    ///
    /// # Errors
    /// If standard output fails.
    pub(super) fn show(&mut self, picture: &[String], line: &str) -> Result<(), CliError> {
        self.last = Instant::now();
        match (&self.bar, self.to) {
            (Some(bar), _) => {
                let lines: Vec<String> = picture.iter().map(|line| shortened(&printable(line), COLUMNS)).collect();
                bar.set_message(lines.join("\n"));
                bar.tick();
                Ok(())
            }
            (None, To::Output) => finish(writeln!(io::stdout(), "{}", printable(line))),
            (None, To::Error) => {
                say(line);
                Ok(())
            }
            (None, To::Nobody) => Ok(()),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The last picture stays on the terminal.
        self.bar.iter().for_each(|bar| bar.abandon());
    }
}

/// Returns a share of the whole as a bar and in percent.
pub(super) fn share(part: f64) -> String {
    let filled = (part.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("{}{} {:>3.0} %", "█".repeat(filled), "░".repeat(BAR - filled), 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_as_long_as_they_are() {
        assert_eq!(share(0.5), format!("{}{}  50 %", "█".repeat(8), "░".repeat(8)));
        assert_eq!(share(1.2), format!("{} 120 %", "█".repeat(16)));
    }

    #[test]
    fn nobody_is_shown_anything() {
        let mut live = Live::new(To::Nobody, Duration::ZERO);
        assert!(!live.is_due() && live.show(&[], "").is_ok());
        assert!(Live::new(To::Error, Duration::ZERO).is_due());
        assert!(!Live::new(To::Error, Duration::from_secs(3600)).is_due());
    }
}
