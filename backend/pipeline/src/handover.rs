//! Measures the time to hand over a data set (the inputs of one run) between stages, without the work of stages.
//!
//! It consists of making the data set, putting it into channels, taking it out, waking threads, and dropping its
//! values.
//!
//! It is the time between results of a line (a pipeline at work) of one stage that passes its inputs on. The channels,
//! packets and threads are those of a real line. The stage is on its core. The system places the threads that push data
//! sets and take results, as it does in a real line. So the time contains wake-ups from core to core, and the
//! contention for locks. Predictions add one half to a stage when it takes a data set, and the other half when it
//! passes the data set on, as the latency of a link.

use super::channel_capacities::ChannelCapacities;
use super::kept::Kept;
use super::line::{Line, Replica, Stage, Work};
use super::packet::{Packet, work};
use super::wiring::{Leaving, Route, Wiring};
use anabranch_costs::median;
use anabranch_execute::{DevicePool, ExecError, RunOptions, RunOutput};
use anabranch_ir::program::Program;
use anabranch_kernels::Tensor;
use anabranch_session::{Inputs, SessionError, ordered};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Timed data sets, data sets before these that are not timed, and lines of whose times the median is taken.
const SETS: u64 = 256;
const BEFORE: u64 = 64;
const LINES: usize = 3;

/// Measures the seconds to hand over a data set of such inputs at a stage on a core.
///
/// As many are handed over together as `channels` says. Takes some milliseconds.
///
/// # Errors
/// If the inputs do not fit the program, or the system gives no threads.
pub(super) fn measured(
    program: &Program,
    inputs: &Inputs,
    core: &Arc<DevicePool>,
    channels: &ChannelCapacities,
) -> Result<f64, SessionError> {
    let wiring = passing_on(&ordered(inputs, program, |_| true)?);
    let packet = || Ok(Packet::new(&ordered(inputs, program, |_| true)?, &wiring));
    let lines = (0..LINES).map(|_| empty_line(&packet, &wiring, core, channels)).collect::<Result<Vec<_>, _>>()?;
    Ok(median(&lines).unwrap_or(0.0))
}

/// Returns the wiring of a stage whose outputs are its inputs.
fn passing_on(inputs: &[&Tensor]) -> Wiring {
    let count = inputs.len();
    let leaving = |(at, input): (usize, &&Tensor)| Some(Leaving::Slot(count + at, input.shape().clone()));
    let route = Route {
        reads: (0..count).collect(),
        makes: (count..2 * count).collect(),
        drops: (0..count).collect(),
        states: Vec::new(),
    };
    Wiring {
        slots: 2 * count,
        inputs: (0..count).map(Some).collect(),
        outputs: inputs.iter().enumerate().map(leaving).collect(),
        routes: vec![route],
        live: vec![0; 2],
        made: vec![0],
    }
}

/// Measures the seconds from result to result.
fn empty_line(
    packet: &(impl Fn() -> Result<Packet, SessionError> + Sync),
    wiring: &Wiring,
    core: &Arc<DevicePool>,
    channels: &ChannelCapacities,
) -> Result<f64, SessionError> {
    let (pool, route, kept) = (Arc::clone(core), wiring.routes[0].clone(), channels.kept[0]);
    let start = move || -> Work<Packet> {
        let pinned = pool.pin_caller();
        let run = move |inputs: &[&Tensor], _: &RunOptions, output: &mut RunOutput| {
            let _on_its_core = &pinned;
            output.outputs.clear();
            output.outputs.extend(inputs.iter().copied().cloned());
            Ok(())
        };
        work(run, route, Kept::none(), kept, RunOptions::default())
    };
    let replica = Replica { device: "no device".into(), start: Box::new(start) };
    let stage =
        Stage { replicas: vec![replica], in_turn: false, capacity: channels.capacities[0], gather: channels.gather };
    let line = Line::start(vec![stage], channels.capacities[1], channels.gather)?;
    // A push fails only if the line has ended, and the thread that takes results learns of that.
    let feed = || -> Result<(), SessionError> {
        (0..BEFORE + SETS).try_for_each(|_| packet().map(|packet| _ = line.push(packet)))
    };
    thread::scope(|scope| {
        let feeding = || {
            let fed = feed();
            line.finish();
            fed
        };
        let feeder = thread::Builder::new().name("measure hand-over".into()).spawn_scoped(scope, feeding);
        let feeder = feeder.map_err(|error| ExecError::no_thread("measure hand-over", &error))?;
        let took = drained(&line, wiring);
        // However it ended, the feeder must no longer wait for room.
        line.close();
        feeder.join().unwrap_or_else(|_| Err(ExecError::internal("a measurement panicked").into()))?;
        Ok(took?.as_secs_f64() / SETS as f64)
    })
}

/// Takes all results, and returns the time of those that count.
fn drained(line: &Line<Packet>, wiring: &Wiring) -> Result<Duration, SessionError> {
    let mut begun = Instant::now();
    while let Some((number, packet)) = line.next() {
        let results = packet.map_err(|error| error.cause().clone())?.results(wiring)?;
        drop(results);
        if number + 1 == BEFORE {
            begun = Instant::now();
        }
    }
    Ok(begun.elapsed())
}
