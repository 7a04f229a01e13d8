//! Every bundled model gives its reference outputs for all placements of its nodes.

use anabranch::lower::Rewrites;
use anabranch::plan::StreamMode;
use anabranch::session::SessionConfig;
use anabranch_tests::{MODELS, assert_close, options, reference, session};

fn run_all(place: &str, change: fn(&mut SessionConfig)) {
    for name in MODELS {
        let mut options = options(place);
        change(&mut options);
        let (inputs, references) = reference(name);
        let outputs = session(name, options).run(&inputs).unwrap_or_else(|error| panic!("{name} by {place}: {error}"));
        assert_close(&format!("{name} by {place}"), &outputs, &references);
    }
}

#[test]
fn heft() {
    run_all("heft", |_| {});
}

#[test]
fn mite() {
    run_all("mite", |_| {});
}

#[test]
fn critical_path() {
    run_all("cp", |_| {});
}

#[test]
fn cpu_alone() {
    run_all("cpu", |_| {});
}

#[test]
fn gpu_alone() {
    run_all("gpu", |_| {});
}

#[test]
fn without_fusion() {
    run_all("heft", |options| options.fuse = Some(Rewrites::NONE));
}

#[test]
fn without_streaming() {
    run_all("gpu", |options| options.stream = Some(StreamMode::Off));
}
