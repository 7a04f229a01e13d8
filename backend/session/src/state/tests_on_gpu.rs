//! Key-value caches on a GPU: GroupQueryAttention in `f32`, `f16` and `bf16` against the CPU.

use super::*;
use crate::SessionConfig;
use anabranch_device::DetectOptions;
use anabranch_kernels::{DType, Shape, TensorSpec};
use anabranch_onnx::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
    data_type,
};
use anabranch_planning::Strategy;
use half::{bf16, f16};
use std::sync::Arc;

const CAPACITY: i64 = 40;
const WIDTH: usize = 32;

/// The bytes of small numbers of which all products and sums are exact in `f32`.
fn numbers(of: i64, count: usize, seed: usize) -> Vec<u8> {
    let number = |at: usize| ((at * 7 + seed * 5) % 9) as f32 / 8.0 - 0.5;
    let bytes = |at: usize| match of {
        data_type::FLOAT16 => f16::from_f32(number(at)).to_le_bytes().to_vec(),
        data_type::BFLOAT16 => bf16::from_f32(number(at)).to_le_bytes().to_vec(),
        _ => number(at).to_le_bytes().to_vec(),
    };
    (0..count).flat_map(bytes).collect()
}

/// A layer of attention with four heads over a cache of two.
fn session(of: i64, options: SessionConfig) -> Session {
    let value = |name: &str, of: i64, dims: &[i64]| {
        ValueInfoProto::tensor(name, of, dims.iter().map(|dim| DimensionProto::known(*dim)).collect())
    };
    let cache = |name: &str| value(name, of, &[1, 2, CAPACITY, 8]);
    let matrix = |name: &str, columns: i64, seed: usize| {
        TensorProto::raw(name, of, &[WIDTH as i64, columns], numbers(of, WIDTH * columns as usize, seed))
    };
    let inputs = ["q", "k", "v", "past_key_values.0.key", "past_key_values.0.value", "last", "total"];
    let attention = NodeProto::of("GroupQueryAttention", &inputs, &["y", "present.0.key", "present.0.value"]);
    let attention = attention.with(AttributeProto::int("num_heads", 4)).with(AttributeProto::int("kv_num_heads", 2));
    let graph = GraphProto {
        node: vec![
            NodeProto::of("MatMul", &["x", "wq"], &["q"]),
            NodeProto::of("MatMul", &["x", "wk"], &["k"]),
            NodeProto::of("MatMul", &["x", "wv"], &["v"]),
            NodeProto { domain: "com.microsoft".into(), ..attention },
        ],
        input: vec![
            value("x", of, &[1, 1, WIDTH as i64]),
            cache("past_key_values.0.key"),
            cache("past_key_values.0.value"),
            value("last", data_type::INT32, &[1]),
        ],
        output: vec![value("y", of, &[1, 1, 32]), cache("present.0.key"), cache("present.0.value")],
        initializer: vec![
            matrix("wq", 32, 1),
            matrix("wk", 16, 2),
            matrix("wv", 16, 3),
            TensorProto::raw("total", data_type::INT32, &[1], (CAPACITY as i32).to_le_bytes().to_vec()),
        ],
        ..GraphProto::default()
    };
    let mut model = ModelProto::of(graph, 17);
    model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 });
    Session::from_bytes(&model.to_bytes(), options).expect("a model")
}

fn step(of: i64, at: usize) -> Inputs {
    let dtype = match of {
        data_type::FLOAT16 => DType::F16,
        data_type::BFLOAT16 => DType::BF16,
        _ => DType::F32,
    };
    let spec = TensorSpec::new(dtype, Shape::new([1, 1, WIDTH]).expect("small"));
    let x = Tensor::new(spec, Arc::new(anabranch_kernels::Buffer::copied(&numbers(of, WIDTH, at)))).expect("as many");
    let last = Tensor::from_elements(Shape::new([1]).expect("small"), &[at as i32]).expect("one");
    Inputs::new().tensor("x", x).tensor("last", last)
}

fn values(outputs: &Outputs, of: i64) -> Vec<f32> {
    let y = outputs.tensor("y").expect("on the host");
    match of {
        data_type::FLOAT16 => y.elements::<f16>().expect("f16").iter().map(|x| x.to_f32()).collect(),
        data_type::BFLOAT16 => y.elements::<bf16>().expect("bf16").iter().map(|x| x.to_f32()).collect(),
        _ => y.elements::<f32>().expect("f32").to_vec(),
    }
}

#[test]
fn caches_of_all_types_stay_on_a_gpu_and_a_step_copies_nothing() {
    // A result is rounded to the cache's type once more: that of two sums which differ in f32 may differ by a unit.
    for (of, bound) in
        [(data_type::FLOAT, 1e-5), (data_type::FLOAT16, 1.0 / 1024.0), (data_type::BFLOAT16, 1.0 / 128.0)]
    {
        let gpu = DetectOptions::default().with_software_gpu(true);
        let gpu = SessionConfig::default().with_devices(gpu).with_strategy(Strategy::GPU);
        let mut on_gpu = session(of, gpu).stateful(&[]).expect("a state");
        let mut on_cpu = session(of, SessionConfig::default().without_gpu()).stateful(&[]).expect("a state");
        let mut middle = None;
        for at in 0..CAPACITY as usize {
            let want = values(on_cpu.run(&step(of, at)).expect("runs"), of);
            let got = values(on_gpu.run(&step(of, at)).expect("runs"), of);
            let scale = want.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
            assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() <= bound * scale), "type {of} at {at}");
            let copied = on_gpu.outputs().copied_on_gpus();
            let cache = on_cpu.bytes();
            let is_shared = middle.is_some() && at == 21;
            assert_eq!(copied, if at == 0 || is_shared { cache } else { 0 }, "type {of} at {at}");
            if at == 20 {
                middle = Some((on_gpu.snapshot(), on_cpu.snapshot()));
            }
        }
        assert!(on_gpu.is_on_gpu(), "type {of}");
        let same = |one: &State, other: &State| {
            let (one, other) = (one.tensors().expect("read"), other.tensors().expect("read"));
            one.len() == 2 && one.iter().zip(&other).all(|(one, other)| one.0 == other.0 && one.1.same_bits(other.1))
        };
        assert!(same(&on_gpu.snapshot(), &on_cpu.snapshot()), "type {of}");
        let (of_gpu, of_cpu) = middle.expect("taken");
        assert!(same(&of_gpu, &of_cpu), "what a snapshot holds is left as it was");
    }
}
