//! Opened and closed sessions leave nothing behind: no thread, no descriptor, no memory. This is an executable of its
//! own, because it counts the threads, descriptors and memory of the whole process.
#![cfg(target_os = "linux")]

use anabranch::device::CpuGranularity;
use anabranch::{DetectOptions, Inputs, Session, SessionConfig};
use std::fs;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/mlp.onnx");

/// Opens a session with a CPU device for each of the machine's cores, with threads of their own.
fn session() -> Session {
    let devices = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Core);
    let options = SessionConfig::default().with_devices(devices).with_dim("batch", 2);
    Session::open(MODEL, options.with_threads(NonZeroUsize::MIN)).expect("a bundled model opens")
}

/// Numbers of this process's threads and descriptors.
fn open() -> [usize; 2] {
    ["task", "fd"].map(|what| fs::read_dir(format!("/proc/self/{what}")).expect("there is /proc").count())
}

/// Bytes that this process has in memory.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("there is /proc");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages in memory") * 4096
}

/// One test, because all tests of a process share the counts.
#[test]
fn a_thousand_sessions_leave_nothing_behind() {
    let inputs = session().fill_random(Inputs::new(), 0).expect("known shapes");
    let expected = session().run(&inputs).expect("runs");
    let come_and_go = |turn: usize| {
        let session = Arc::new(session());
        // Every other session is dropped by a thread that runs it after its owner has left.
        let (own, given) = (Arc::clone(&session), inputs.clone());
        let running = thread::spawn(move || own.run(&given).expect("runs"));
        let outputs = if turn.is_multiple_of(2) { session.run(&inputs).expect("runs") } else { expected.clone() };
        drop(session);
        for outputs in [outputs, running.join().expect("it runs")] {
            assert!(outputs.iter().zip(expected.iter()).all(|((_, made), (_, right))| made.same_bits(right)));
        }
    };
    (0..50).for_each(come_and_go);
    let (before, bytes) = (open(), resident());
    (0..1000).for_each(come_and_go);
    // The system lists a joined thread for a moment longer.
    let settled = |_| {
        thread::sleep(Duration::from_millis(10));
        open() == before
    };
    assert!((0..500).any(settled), "threads and descriptors: {:?}, and {before:?} before", open());
    let grown = resident().saturating_sub(bytes);
    assert!(grown < 16 << 20, "{grown} bytes more after a thousand sessions");
}
