//! Comparisons measured batch by batch in turn, so that disturbances of the machine affect all candidates equally.

use std::error::Error;
use std::time::Instant;

/// Seconds of a batch of short calls: less than a time slice, so that most batches are not interrupted on a busy
/// machine.
const BATCH: f64 = 2e-4;

/// Minimum and maximum batches of a measurement.
const BATCHES: (u32, u32) = (5, 501);

/// Reason why a measurement failed.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Function to measure.
pub type Call<'a> = Box<dyn FnMut() -> Result<(), Failure> + 'a>;

/// Returns the seconds per call, as equally many samples of each call, taken in turn. All together take about `seconds`
/// seconds, or longer if that is too short for the minimum number of batches.
///
/// # Errors
/// The errors of the calls.
pub fn in_turn(calls: &mut [Call<'_>], seconds: f64) -> Result<Vec<Vec<f64>>, Failure> {
    let counts = calls.iter_mut().map(calibrate).collect::<Result<Vec<_>, _>>()?;
    let mut samples = vec![Vec::new(); calls.len()];
    let started = Instant::now();
    for round in 0..BATCHES.1 {
        if round >= BATCHES.0 && started.elapsed().as_secs_f64() > seconds {
            break;
        }
        for ((call, count), samples) in calls.iter_mut().zip(&counts).zip(&mut samples) {
            samples.push(batch(call, *count)? / f64::from(*count));
        }
    }
    Ok(samples)
}

/// Returns the number of calls in a batch, after calls that warm everything up.
fn calibrate(call: &mut Call<'_>) -> Result<u32, Failure> {
    batch(call, 2)?;
    let mut count = 1;
    while batch(call, count)? < BATCH {
        count *= 2;
    }
    Ok(count)
}

/// Returns the seconds that `count` calls take.
fn batch(call: &mut Call<'_>, count: u32) -> Result<f64, Failure> {
    let started = Instant::now();
    for _ in 0..count {
        call()?;
    }
    Ok(started.elapsed().as_secs_f64())
}

/// Returns the median, the upper of two; 0 if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
