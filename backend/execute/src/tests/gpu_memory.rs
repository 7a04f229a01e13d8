//! A GPU without memory for a plan's buffers, in a child process with a limit that a software GPU shares.

use super::{adapter, gpu, kernels, pool};
use crate::Executor;
use anabranch_base::error_kind::ErrorKind;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::PlanOptions;
use anabranch_plan::tasks::Residence;
use anabranch_plan::test_programs::{Maker, PlacedProgram, relu};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::Command;

const MARK: &str = "ANABRANCH_TEST_CHILD";

/// Elements of each value: 32 MiB, which every GPU binds.
const ELEMENTS: usize = 8 << 20;

/// Bytes of address space that the process has.
fn address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = status.split(' ').next().and_then(|pages| pages.parse().ok()).expect("its first field");
    pages * 4096
}

/// Does nothing except in the child process.
#[test]
fn child() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let is_software = |adapter: &wgpu::Adapter| adapter.get_info().device_type == wgpu::DeviceType::Cpu;
    let Some(gpu) = gpu().filter(|_| adapter().is_some_and(|adapter| is_software(&adapter))) else {
        println!("passed: only a software GPU shares the limit");
        return;
    };
    let mut maker = Maker::new();
    let mut values = vec![maker.input(&[ELEMENTS])];
    for _ in 0..6 {
        values.push(maker.node(relu(), &[values[values.len() - 1]], &[ELEMENTS]));
    }
    let residence = Residence { inputs: vec![DeviceId(1)], outputs: vec![DeviceId(1); 6] };
    let program = maker.finish(&values[1..]);
    let placed = PlacedProgram::with_residence(program, &["cpu", "gpu"], &[1; 6], &residence);
    let (pool, kernels) = (pool(&placed, 1), kernels(&placed.program));
    let plan = || placed.plan_with(&*kernels, &PlanOptions::default()).expect("no limits");
    let whole = getrlimit(Resource::As);
    let limit = Rlimit { current: Some(address_space() + (100 << 20)), ..whole };
    setrlimit(Resource::As, limit).expect("a limit may be lowered");
    let error = Executor::new(plan(), kernels.clone(), &pool).expect_err("six slots of 32 MiB do not fit 100");
    setrlimit(Resource::As, whole).expect("and raised again");
    assert_eq!(error.kind, ErrorKind::Memory, "{error}");
    assert!(error.node.is_some() && error.device.as_deref() == Some(&*placed.devices[1].name), "{error}");
    for part in ["no memory for a buffer of 33554432 bytes", "limit"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(gpu.fault(), None, "nothing is lost");
    Executor::new(plan(), kernels.clone(), &pool).expect("there is memory again");
    println!("passed");
}

#[test]
fn a_lack_of_memory_names_node_and_bytes_and_is_no_loss() {
    let program = std::env::current_exe().expect("a test knows its own program");
    let name = concat!(module_path!(), "::child").split_once("::").map_or("", |(_, path)| path);
    let output = Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .output()
        .expect("the test program runs once more");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
