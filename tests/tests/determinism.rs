//! The same plan and inputs give the same bits, run after run.

use anabranch::device::CpuGranularity;
use anabranch::session::Outputs;
use anabranch_tests::{options, reference, session};

fn same(first: &Outputs, second: &Outputs) -> bool {
    first.iter().zip(second.iter()).all(|((_, a), (_, b))| a.same_bits(b))
}

#[test]
fn twenty_runs_give_the_same_bits() {
    for name in ["convnet", "encoder", "gru"] {
        for place in ["heft", "gpu"] {
            let session = session(name, options(place));
            let (inputs, _) = reference(name);
            let first = session.run(&inputs).expect("runs");
            for _ in 1..20 {
                assert!(same(&first, &session.run(&inputs).expect("runs")), "{name} by {place}");
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for name in ["convnet", "mobile", "encoder", "unet", "lstm"] {
        let outputs = [CpuGranularity::Machine, CpuGranularity::Core].map(|granularity| {
            let mut options = options("cpu");
            options.devices.cpu_granularity = granularity;
            session(name, options).run(&reference(name).0).expect("runs")
        });
        assert!(same(&outputs[0], &outputs[1]), "{name}");
    }
}

#[test]
fn runs_from_several_threads_follow_each_other() {
    let session = session("mlp", options("heft"));
    let (inputs, _) = reference("mlp");
    let first = session.run(&inputs).expect("runs");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert!(same(&first, &session.run(&inputs).expect("runs")));
                }
            });
        }
    });
}
