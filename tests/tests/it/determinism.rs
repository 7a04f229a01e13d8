//! Equal plans and inputs give equal bits in every run.

use anabranch::execute::{ComputeDevice, CpuTeam, DevicePool, Executor, Kernels, RunOptions};
use anabranch::plan::{ChunkRule, PlanOptions, StreamMode, Transfer};
use anabranch::program::ValueId;
use anabranch::session::Session;
use anabranch_kernels::Tensor;
use anabranch_tests::{assert_close, model, one_cpu, options, reference, same, session, strategy};
use std::sync::Arc;

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

/// Nodes are spread over all devices, and values stream in chunks between nodes that run at the same time.
#[test]
fn streaming_changes_no_bits() {
    let mut streams = 0;
    for name in ["convnet", "encoder", "fire", "mlp", "unet", "vit"] {
        let (inputs, references) = reference(name);
        let streaming = |streaming| {
            let plan = PlanOptions::default().with_streaming(streaming).with_chunk(ChunkRule::Bytes(512));
            let session = session(name, options("hash").with_plan(plan));
            let run = session.run_with(&inputs, &RunOptions::default()).expect("runs");
            let transfers = run.prepared.plan().transfers().iter();
            let made = |transfer: &&Transfer| transfer.stream().is_some_and(|stream| stream.producer.is_some());
            (transfers.filter(made).count(), run.outputs)
        };
        let ((none, whole), (some, streamed)) = (streaming(StreamMode::Off), streaming(StreamMode::Always));
        assert_eq!(none, 0);
        streams += some;
        assert!(same(&whole, &streamed), "{name}");
        assert_close(name, &streamed, &references);
    }
    assert!(streams > 0, "nothing was streamed by its producer");
}

/// Teams of different sizes run one plan; this machine may have fewer cores.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for name in ["convnet", "mobile", "encoder", "unet", "lstm"] {
        let session =
            Session::open(model(name), one_cpu().with_strategy(strategy("cpu"))).expect("a bundled model opens");
        let (inputs, _) = reference(name);
        let prepared = session.prepare(&inputs).expect("is placed");
        let program = &prepared.program;
        let input = |id: &ValueId| inputs.find(&program.value(*id).name).expect("is given").clone();
        let inputs: Vec<Tensor> = program.inputs.iter().map(input).collect();
        let run = |threads: usize| {
            let cpu = ComputeDevice::Cpu(CpuTeam { name: "cpu0".into(), threads, units: Vec::new(), slowdown: 1.0 });
            let kernels = Arc::new(Kernels::new(Arc::clone(program)));
            let pool = DevicePool::new(vec![cpu]);
            let executor = Executor::new(prepared.plan().clone(), kernels, &pool).expect("the plan's devices");
            executor.run(&inputs, &RunOptions::default()).expect("runs").outputs
        };
        let alone = run(1);
        for threads in [2, 3, 5, 8] {
            let equal = alone.iter().zip(&run(threads)).all(|(a, b)| a.same_bits(b));
            assert!(equal, "{name} on {threads} threads");
        }
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
