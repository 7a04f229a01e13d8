//! What it takes to hand over a data set, beside the work of stages: making it, putting it into channels and taking it out, waking threads,
//! letting go of its values.
//!
//! It is measured rather than assumed: the time from result to result of a line of one stage that gives its inputs on as they are, with the
//! channels, packets and threads of a real one. The stage is on its core; who pushes and who takes results are wherever the system puts
//! them, as in a real line, so that the wake-ups from core to core are in it, and locks that several threads want. In predictions one half is
//! charged to a stage as it takes a data set and the other as it gives it on: the latency of a link.

use super::line::{Line, Replica, Stage, Work};
use super::packet::{Packet, work};
use super::room::Room;
use super::wiring::{Leaving, Route, Wiring};
use anabranch_costs::median;
use anabranch_execute::{DevicePool, ExecError, RunOptions, RunOutput};
use anabranch_ir::program::Program;
use anabranch_kernels::Tensor;
use anabranch_session::{Inputs, SessionError, ordered};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Data sets of a measurement, after some that are not counted, and measurements of which the median is taken.
const SETS: u64 = 256;
const BEFORE: u64 = 64;
const LINES: usize = 3;

/// Seconds for a data set of such inputs at a stage on a core, where as many are handed on together as `room` says: some milliseconds of measuring.
///
/// # Errors
/// If the inputs do not fit the program, or the system gives no threads.
pub(super) fn measured(
    program: &Program,
    inputs: &Inputs,
    core: &Arc<DevicePool>,
    room: &Room,
) -> Result<f64, SessionError> {
    let wiring = passing_on(&ordered(inputs, program, |_| true)?);
    let packet = || Ok(Packet::new(&ordered(inputs, program, |_| true)?, &wiring));
    let lines = (0..LINES).map(|_| empty_line(&packet, &wiring, core, room)).collect::<Result<Vec<_>, _>>()?;
    Ok(median(&lines).unwrap_or(0.0))
}

/// A stage whose outputs are its inputs.
fn passing_on(inputs: &[&Tensor]) -> Wiring {
    let count = inputs.len();
    let leaving = |(at, input): (usize, &&Tensor)| Leaving::Slot(count + at, input.shape().clone());
    let route = Route { reads: (0..count).collect(), makes: (count..2 * count).collect(), drops: (0..count).collect() };
    Wiring {
        slots: 2 * count,
        inputs: (0..count).collect(),
        outputs: inputs.iter().enumerate().map(leaving).collect(),
        routes: vec![route],
        live: vec![0; 2],
        made: vec![0],
    }
}

/// Seconds from result to result.
fn empty_line(
    packet: &(impl Fn() -> Result<Packet, SessionError> + Sync),
    wiring: &Wiring,
    core: &Arc<DevicePool>,
    room: &Room,
) -> Result<f64, SessionError> {
    let (pool, route, kept) = (Arc::clone(core), wiring.routes[0].clone(), room.kept[0]);
    let start = move || -> Work<Packet> {
        let pinned = pool.pin_caller();
        let run = move |inputs: &[&Tensor], _: &RunOptions, output: &mut RunOutput| {
            let _on_its_core = &pinned;
            output.outputs.clear();
            output.outputs.extend(inputs.iter().copied().cloned());
            Ok(())
        };
        work(run, route, kept, RunOptions::default())
    };
    let replica = Replica { device: "no device".into(), start: Box::new(start) };
    let stage = Stage { replicas: vec![replica], in_turn: false, capacity: room.capacities[0], gather: room.gather };
    let line = Line::start(vec![stage], room.capacities[1], room.gather)?;
    // Refused only by a line that has ended, which whoever takes results learns.
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
        // However it ended, the feeder waits for room no more.
        line.close();
        feeder.join().unwrap_or_else(|_| Err(ExecError::internal("a measurement panicked").into()))?;
        Ok(took?.as_secs_f64() / SETS as f64)
    })
}

/// Takes all results; how long those took that count.
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
