//! Load of the machine during a measurement: processor time against wall time, the time that this process's threads
//! waited for a core, and the system's pressure figures.

use serde::{Deserialize, Serialize};
use std::fs;
use std::time::{Duration, Instant};

/// The machine is busy if threads waited for a core for more than this share of the time in which they wanted one.
const WAITED: f64 = 0.05;

/// The machine is busy if other threads may have waited for more than this share of the wall time, and the waits of our
/// own threads are unknown.
const PRESSED: f64 = 0.25;

/// If this process uses more than this share of all cores, its threads wait for each other rather than for other
/// processes.
const OWN: f64 = 0.9;

/// Load of the machine during a measurement. Times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Duration of the measurement; `None` if nothing was measured.
    pub wall_ms: Option<f64>,
    /// Processor time of all of this process's threads; `None` if it cannot be read, as outside Linux and macOS.
    pub processor_ms: Option<f64>,
    /// Total time for which these threads were ready but had no core (`/proc/self/task/*/schedstat`); `None` if that
    /// cannot be read.
    pub waited_ms: Option<f64>,
    /// Percentage of the wall time in which some thread of the system waited for a core (`/proc/pressure/cpu`); `None`
    /// if that cannot be read.
    pub pressure_percent: Option<f64>,
}

/// Measures the load from its start on.
pub struct LoadMeter {
    begun: Instant,
    processor: Option<Duration>,
    waited: Option<Duration>,
    pressure: Option<Duration>,
}

impl Load {
    /// Returns the share of the time for which threads wanted a core but had none.
    pub fn waited_share(&self) -> Option<f64> {
        let waited = self.waited_ms?;
        let wanted = self.processor_ms? + waited;
        (wanted > 0.0).then(|| waited / wanted)
    }

    /// Whether times are longer than on an otherwise idle machine; `false` where the system says nothing of it.
    pub fn is_busy(&self) -> bool {
        self.is_busy_with(std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn is_busy_with(&self, cores: usize) -> bool {
        let own = self.processor_ms.zip(self.wall_ms);
        if own.is_some_and(|(processor, wall)| processor >= OWN * cores as f64 * wall) {
            return false;
        }
        match (self.waited_share(), self.pressure_percent) {
            (Some(share), _) => share > WAITED,
            (None, Some(percent)) => percent > 100.0 * PRESSED,
            (None, None) => false,
        }
    }
}

impl Load {
    /// Returns the load over two measurements. What one of them does not know is unknown.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (Some(own), Some(more)) = (self.wall_ms, other.wall_ms) else {
            return if self.wall_ms.is_some() { self } else { other };
        };
        let both = |one: Option<f64>, two: Option<f64>| Some(one? + two?);
        let pressed = |load: Self| Some(load.pressure_percent? * load.wall_ms?);
        let wall_ms = own + more;
        Self {
            wall_ms: Some(wall_ms),
            processor_ms: both(self.processor_ms, other.processor_ms),
            waited_ms: both(self.waited_ms, other.waited_ms),
            pressure_percent: both(pressed(self), pressed(other)).map(|pressed| pressed / wall_ms),
        }
    }
}

impl LoadMeter {
    /// Starts a measurement.
    pub fn start() -> Self {
        Self { begun: Instant::now(), processor: processor(), waited: waited(), pressure: pressure() }
    }

    /// Returns the load since the start.
    pub fn stop(&self) -> Load {
        let wall = self.begun.elapsed();
        let since =
            |now: Option<Duration>, then: Option<Duration>| now.zip(then).map(|(now, then)| now.saturating_sub(then));
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let pressed = since(pressure(), self.pressure).map(|time| 100.0 * time.as_secs_f64() / wall.as_secs_f64());
        Load {
            wall_ms: Some(ms(wall)),
            processor_ms: since(processor(), self.processor).map(ms),
            waited_ms: since(waited(), self.waited).map(ms),
            pressure_percent: pressed.filter(|percent| percent.is_finite()).map(|percent| percent.min(100.0)),
        }
    }
}

/// Returns the processor time of this process since its start.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn processor() -> Option<Duration> {
    use rustix::time::{ClockId, Timespec, clock_gettime};
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ProcessCPUTime);
    Some(Duration::new(u64::try_from(tv_sec).ok()?, u32::try_from(tv_nsec).ok()?))
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn processor() -> Option<Duration> {
    None
}

/// Returns the total time for which all threads of this process waited for a core.
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

/// Parses the time that a thread waited: the second number of its line, in nanoseconds.
fn waited_of(text: &str) -> Option<Duration> {
    Some(Duration::from_nanos(text.split_ascii_whitespace().nth(1)?.parse().ok()?))
}

/// Returns the total time, since the system started, for which some thread waited for a core.
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
        let quiet = Load {
            wall_ms: Some(100.0),
            processor_ms: Some(170.0),
            waited_ms: Some(2.0),
            pressure_percent: Some(90.0),
        };
        assert!(!quiet.is_busy_with(2), "others wait, and do not keep our threads from their cores");
        assert!(Load { waited_ms: Some(40.0), ..quiet }.is_busy_with(2));
        assert!(Load { waited_ms: None, ..quiet }.is_busy_with(2));
        assert!(!Load { waited_ms: None, pressure_percent: None, ..quiet }.is_busy_with(2));
        let own = Load { processor_ms: Some(195.0), waited_ms: Some(600.0), ..quiet };
        assert!(!own.is_busy_with(2) && own.is_busy_with(4), "our own threads have all cores");
        assert_eq!(Load { processor_ms: Some(60.0), waited_ms: Some(40.0), ..quiet }.waited_share(), Some(0.4));
    }

    #[test]
    fn loads_add_up_and_what_one_does_not_know_is_unknown() {
        let one =
            Load { wall_ms: Some(100.0), processor_ms: Some(50.0), waited_ms: None, pressure_percent: Some(10.0) };
        let two =
            Load { wall_ms: Some(300.0), processor_ms: Some(70.0), waited_ms: Some(5.0), pressure_percent: Some(50.0) };
        let both =
            Load { wall_ms: Some(400.0), processor_ms: Some(120.0), waited_ms: None, pressure_percent: Some(40.0) };
        assert_eq!((one.plus(two), Load::default().plus(two), two.plus(Load::default())), (both, two, two));
    }

    #[cfg(any(target_os = "linux", target_os = "macos"))]
    #[test]
    fn processor_time_of_this_process_passes() {
        let meter = LoadMeter::start();
        let sum = (0..1_000_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        let load = meter.stop();
        assert!(load.processor_ms > Some(0.0) && load.wall_ms > Some(0.0), "{load:?} {sum}");
    }
}
