//! Whether the machine was busy with other things while runs were measured: processor time beside wall time, how long this process's
//! threads were kept from a core, and what the system says of all threads.

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::{Duration, Instant};

/// Beyond this share of the time that threads wanted a core they were kept from one by others.
const WAITED: f64 = 0.05;

/// Share of the wall time that others may wait for a core if the waits of our own threads are unknown.
const PRESSED: f64 = 0.25;

/// Threads of this process that use more than this share of all cores wait for each other, and hardly for others.
const OWN: f64 = 0.9;

/// Load of the machine during a measurement. Times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// How long it was measured.
    pub wall_ms: f64,
    /// Processor time of all of this process's threads.
    pub processor_ms: f64,
    /// How long these threads could have run but had no core, added up (`/proc/self/task/*/schedstat`); `None` where that cannot be read.
    pub waited_ms: Option<f64>,
    /// In how many percent of the wall time some thread of the system waited for a core (`/proc/pressure/cpu`); `None` where that cannot be
    /// read.
    pub pressure_percent: Option<f64>,
}

/// Begins to measure the load.
pub(crate) struct LoadMeter {
    begun: Instant,
    processor: Duration,
    waited: Option<Duration>,
    pressure: Option<Duration>,
}

impl Load {
    /// The share of the time for which threads wanted a core in which they had none.
    pub fn waited_share(&self) -> Option<f64> {
        let waited = self.waited_ms?;
        let wanted = self.processor_ms + waited;
        (wanted > 0.0).then(|| waited / wanted)
    }

    /// Whether times are longer than they would be on a machine that does nothing else.
    pub fn is_busy(&self) -> bool {
        self.is_busy_with(std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn is_busy_with(&self, cores: usize) -> bool {
        if self.processor_ms >= OWN * cores as f64 * self.wall_ms {
            return false;
        }
        match (self.waited_share(), self.pressure_percent) {
            (Some(share), _) => share > WAITED,
            (None, Some(percent)) => percent > 100.0 * PRESSED,
            (None, None) => false,
        }
    }
}

impl LoadMeter {
    pub(crate) fn start() -> Self {
        Self { begun: Instant::now(), processor: processor(), waited: waited(), pressure: pressure() }
    }

    pub(crate) fn stop(&self) -> Load {
        let wall = self.begun.elapsed();
        let since =
            |now: Option<Duration>, then: Option<Duration>| now.zip(then).map(|(now, then)| now.saturating_sub(then));
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let pressed = since(pressure(), self.pressure).map(|time| 100.0 * time.as_secs_f64() / wall.as_secs_f64());
        Load {
            wall_ms: ms(wall),
            processor_ms: ms(processor().saturating_sub(self.processor)),
            waited_ms: since(waited(), self.waited).map(ms),
            pressure_percent: pressed.filter(|percent| percent.is_finite()).map(|percent| percent.min(100.0)),
        }
    }
}

fn processor() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0))
}

/// How long all threads that there are were kept from a core.
fn waited() -> Option<Duration> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    let mut all = None;
    for thread in threads.flatten() {
        // A thread may have ended meanwhile.
        let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
        *all.get_or_insert(Duration::ZERO) += waited_of(&text)?;
    }
    all
}

/// The second number of a thread's line is the nanoseconds for which it waited.
fn waited_of(text: &str) -> Option<Duration> {
    Some(Duration::from_nanos(text.split_ascii_whitespace().nth(1)?.parse().ok()?))
}

/// For how long, since the system began, some thread waited for a core.
fn pressure() -> Option<Duration> {
    pressure_of(&fs::read_to_string("/proc/pressure/cpu").ok()?)
}

fn pressure_of(text: &str) -> Option<Duration> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let total = some.split_ascii_whitespace().find_map(|part| part.strip_prefix("total="))?;
    Some(Duration::from_micros(total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read_and_what_it_does_not_say_is_unknown() {
        assert_eq!(waited_of("123 4500 7\n"), Some(Duration::from_nanos(4500)));
        let text = "some avg10=4.43 avg60=15.58 avg300=9.30 total=43726322\nfull avg10=0.00 total=5\n";
        assert_eq!(pressure_of(text), Some(Duration::from_micros(43_726_322)));
        assert!(
            [waited_of(""), waited_of("1 x 2"), pressure_of("full total=5"), pressure_of("")]
                .iter()
                .all(Option::is_none)
        );
    }

    #[test]
    fn threads_that_wait_for_cores_or_a_pressed_system_are_a_busy_machine() {
        let quiet = Load { wall_ms: 100.0, processor_ms: 170.0, waited_ms: Some(2.0), pressure_percent: Some(90.0) };
        assert!(!quiet.is_busy_with(2), "others wait, and do not keep our threads from their cores");
        assert!(Load { waited_ms: Some(40.0), ..quiet }.is_busy_with(2));
        assert!(Load { waited_ms: None, ..quiet }.is_busy_with(2));
        assert!(!Load { waited_ms: None, pressure_percent: None, ..quiet }.is_busy_with(2));
        let own = Load { processor_ms: 195.0, waited_ms: Some(600.0), ..quiet };
        assert!(!own.is_busy_with(2) && own.is_busy_with(4), "our own threads have all cores");
        assert_eq!(Load { processor_ms: 60.0, waited_ms: Some(40.0), ..quiet }.waited_share(), Some(0.4));
    }

    #[test]
    fn processor_time_of_this_process_passes() {
        let meter = LoadMeter::start();
        let sum = (0..1_000_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        let load = meter.stop();
        assert!(load.processor_ms > 0.0 && load.wall_ms > 0.0, "{load:?} {sum}");
    }
}
