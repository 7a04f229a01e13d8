//! Results before a sample that fails, or that is refused, come first and in order; then the error names the sample.

use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::import::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch::pipeline::{Among, Pipeline, PipelineError, PipelineOptions, StageCosts, StageDevices, StageMapping};
use anabranch::{ErrorKind, Inputs, Session, SessionConfig};
use anabranch_kernels::Tensor;
use std::num::NonZeroUsize;

/// Number of samples that go through.
const GOOD: u64 = 17;

/// Returns a session of `y = softmax(table[at])`. Indices outside of the table fail within a kernel.
fn gathering() -> Session {
    let node = vec![NodeProto::of("Gather", &["table", "at"], &["row"]), NodeProto::of("Softmax", &["row"], &["y"])];
    let vector = |name: &str, of| ValueInfoProto::tensor(name, of, vec![DimensionProto::known(2)]);
    let graph = GraphProto {
        node,
        initializer: vec![TensorProto::f32s("table", &[4], &[0.0, 1.0, 2.0, 3.0])],
        input: vec![vector("at", data_type::INT64)],
        output: vec![vector("y", data_type::FLOAT)],
        ..GraphProto::default()
    };
    let devices = DetectOptions::default().with_software_gpu(true).with_cpu_granularity(CpuGranularity::Machine);
    let options = SessionConfig::default().with_devices(devices);
    Session::from_bytes(&ModelProto::of(graph, 17).to_bytes(), options).expect("a sound model")
}

fn set(number: i64) -> Inputs {
    Inputs::new().tensor("at", Tensor::from_i64s(&[number, 3]))
}

/// Returns mappings of the two nodes to cores, groups of cores and a GPU.
fn mappings(session: &Session, costs: &StageCosts) -> Vec<Among> {
    let whole = PipelineOptions::default().with_among(Among::Replicated(NonZeroUsize::new(1)));
    let whole = Pipeline::with_costs(session, costs, &whole).expect("one core");
    let nodes = whole.plan().stages[0].nodes.clone();
    assert_eq!(nodes.len(), 2);
    let stage = |nodes: &[String], device: &str| StageDevices { nodes: nodes.to_vec(), devices: vec![device.into()] };
    let mut all = vec![Among::All, Among::Together, Among::Replicated(None), Among::Pipelined];
    let cores: Vec<&str> = costs.processors().collect();
    let gpu = session.inventory().gpus.first().map(|gpu| gpu.name.as_str());
    if let [first, second, ..] = &cores[..] {
        all.push(Among::DataParallel(NonZeroUsize::new(2)));
        let stages = vec![stage(&nodes[..1], first), stage(&nodes[1..], second)];
        all.push(Among::Given(StageMapping { stages }));
    }
    if let Some(gpu) = gpu {
        let stages = vec![stage(&nodes, gpu)];
        all.push(Among::Given(StageMapping { stages }));
        for (first, second) in [(gpu, cores[0]), (cores[0], gpu)] {
            let stages = vec![stage(&nodes[..1], first), stage(&nodes[1..], second)];
            all.push(Among::Given(StageMapping { stages }));
        }
    }
    all
}

#[test]
fn results_before_a_sample_that_fails_come_first() {
    let session = gathering();
    let measuring = PipelineOptions::default().with_measuring(false);
    let costs = StageCosts::of(&session, &set(0), &measuring).expect("costs");
    let outside = set(4);
    let wrong = Inputs::new().tensor("at", Tensor::from_i64s(&[0; 3]));
    for among in mappings(&session, &costs) {
        // After the bad sample come more, good and bad.
        for (bad, kind, fails_inside) in [(&outside, ErrorKind::Kernel, true), (&wrong, ErrorKind::Input, false)] {
            let options = PipelineOptions::default().with_among(among.clone());
            let pipeline = Pipeline::with_costs(&session, &costs, &options).expect("a mapping");
            let good = (0..GOOD as i64).map(|number| set(number % 4));
            let all = good.chain([bad.clone(), set(1), outside.clone(), wrong.clone()]).chain((0..50).map(|_| set(0)));
            let mut numbers = Vec::new();
            let ran = pipeline.run_all(all.map(Ok), |finished| {
                numbers.push(finished.data_set);
                let expected = session.run(&set(finished.data_set as i64 % 4)).expect("it runs");
                let (found, expected) = (finished.outputs.tensor("y").cloned(), expected.tensor("y").cloned());
                let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
                let elements = |tensor: &Tensor| tensor.elements::<f32>().expect("floats").to_vec();
                let (found, expected) = (elements(&found.expect("made")), elements(&expected.expect("made")));
                assert!(found.iter().zip(&expected).all(close), "{among:?}: {found:?} {expected:?}");
                Ok::<(), PipelineError>(())
            });
            let error = ran.expect_err("a sample fails");
            assert_eq!(numbers, (0..GOOD).collect::<Vec<_>>(), "{among:?}: {error}");
            let found = (error.kind(), error.data_set(), error.stage().is_some());
            assert_eq!(found, (kind, Some(GOOD), fails_inside), "{among:?}: {error}");
            assert!(error.to_string().starts_with(&format!("sample {GOOD}")), "{error}");
        }
    }
}
