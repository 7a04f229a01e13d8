//! What does the runtime itself cost for each node, and for each time a value crosses to another device?
//!
//! Chains of element-wise nodes on 16 elements, which compute in a few nanoseconds: on one CPU device, in turns on two of
//! them, and in turns on a CPU device and a GPU (a software one if there is no other). The time of a chain of 1,000 nodes
//! in microseconds is the time of a node in nanoseconds.

use anabranch::execute::{ComputeDevice, CpuTeam, Executor, GpuOpener, Kernels, RunOptions};
use anabranch::plan::{Plan, PlanDevice, PlanOptions};
use anabranch::program::{Node, NodeId, Origin, Output, Program, Value, ValueId};
use anabranch::tasks::{HOST, NodeLimits, ProgramTasks};
use anabranch_bench::gpu::adapter;
use anabranch_kernels::cpu::{Call, CpuKernel};
use anabranch_kernels::op::{Domain, Expression, Map, NodeSpec, Op, Unary};
use anabranch_kernels::{DType, KernelError, Shape, Tensor, TensorSpec};
use anabranch_placement::cost::CostTable;
use anabranch_placement::order::Pct;
use anabranch_placement::place::{Fixed, Placer};
use anabranch_placement::platform::{Device, DeviceId, DeviceKind, DeviceKinds, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::simulate::{SimulateOptions, simulate};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::sync::Arc;

/// `max(x, 0)` without anything around it: what is measured is the runtime.
struct Tiny;

impl CpuKernel for Tiny {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (input, output) = (call.inputs[0], &mut *call.outputs[0]);
        let input: &[f32] = bytemuck::cast_slice(input);
        let output: &mut [f32] = bytemuck::cast_slice_mut(output);
        output.iter_mut().zip(input).for_each(|(out, x)| *out = x.max(0.0));
        Ok(())
    }
}

fn spec() -> TensorSpec {
    TensorSpec::new(DType::F32, Shape::new(vec![16]).expect("small"))
}

/// `relu` applied `length` times.
fn chain(length: usize) -> Program {
    let spec = spec();
    let value = |name: String, origin| Value { name, spec: spec.clone(), origin };
    let mut program = Program { values: vec![value("x".into(), Origin::Input)], ..Program::default() };
    program.inputs.push(ValueId(0));
    for at in 0..length as u32 {
        let op = Op::Map(Map { domain: Domain::F32, expression: Expression::unary(Unary::Relu) });
        let (inputs, outputs) = (vec![spec.clone()], vec![spec.clone()]);
        program.values.push(value(format!("v{at}"), Origin::Node(NodeId(at))));
        program.nodes.push(Node {
            name: format!("n{at}"),
            operators: Vec::new(),
            spec: NodeSpec { op, inputs, outputs },
            inputs: vec![ValueId(at)],
            outputs: vec![ValueId(at + 1)],
        });
    }
    program.outputs.push(Output { name: "y".into(), value: ValueId(length as u32), spec });
    program
}

/// An executor of a chain whose node `i` is on device `i` modulo their number. `None` if the kernels are not there.
fn executor(length: usize, devices: &[ComputeDevice], tiny: bool) -> Option<Executor> {
    let program = Arc::new(chain(length));
    let planned = |device: &ComputeDevice| {
        let kind = match device {
            ComputeDevice::Cpu(_) => DeviceKind::Cpu,
            ComputeDevice::Gpu(_) => DeviceKind::Gpu,
        };
        PlanDevice { name: device.name().into(), kind, limit: None }
    };
    let planned: Vec<PlanDevice> = devices.iter().map(planned).collect();
    let limits = vec![NodeLimits { allowed: DeviceKinds::ALL, pinned: None, resident: 0 }; length];
    let tasks = ProgramTasks::new(&program, &limits, &[]).ok()?;
    let platform = planned.iter().map(|device| Device::new(device.name.clone(), device.kind)).collect();
    let platform = Platform::uniform(platform, 1e-5, 1e10).ok()?;
    let costs = CostTable::from_fn(tasks.graph(), &platform, |_, _| Some(1e-7)).ok()?;
    let problem = Problem::new(tasks.graph(), &platform, &costs, MemoryRule::Ignore).ok()?;
    let turn = |at: usize| DeviceId((at % devices.len()) as u32);
    let device_of = (0..length).map(turn).chain([HOST, HOST]).collect();
    let placement = Fixed::new(device_of).place(&problem).ok()?;
    let schedule = simulate(&problem, &placement.device_of, &Pct, &SimulateOptions::default()).ok()?;
    let kernels = Kernels::new(Arc::clone(&program));
    if tiny {
        program.node_ids().for_each(|node| kernels.replace(node, Arc::new(Tiny)));
    }
    let options = PlanOptions::default();
    let plan = Plan::build(&program, &planned, (&placement, &schedule), Vec::new(), &kernels, &options).ok()?;
    Executor::new(plan, Arc::new(kernels), devices.to_vec()).ok()
}

fn cpu(number: usize) -> ComputeDevice {
    ComputeDevice::Cpu(CpuTeam { name: format!("cpu{number}"), threads: 1, units: Vec::new(), slowdown: 1.0 })
}

fn gpu() -> Option<ComputeDevice> {
    Some(ComputeDevice::Gpu(GpuOpener::new("gpu0", adapter()?)))
}

fn overhead(criterion: &mut Criterion) {
    println!("{} threads of {}", std::thread::available_parallelism().map_or(0, usize::from), std::env::consts::ARCH);
    let input = Tensor::zeroed(spec());
    let mut group = criterion.benchmark_group("overhead");
    let mut measure = |name: &str, length: usize, executor: Option<Executor>, profile: bool| {
        let Some(executor) = executor else { return println!("overhead/{name}: not on this machine") };
        let options = RunOptions { profile, ..RunOptions::default() };
        group.throughput(Throughput::Elements(length as u64));
        group.bench_function(name, |b| {
            b.iter(|| executor.run(std::slice::from_ref(&input), &options).expect("nothing fails"));
        });
    };
    let one = [cpu(0)];
    measure("chain of 1000, bare kernel", 1000, executor(1000, &one, true), false);
    measure("chain of 1000, bare kernel, profiled", 1000, executor(1000, &one, true), true);
    measure("chain of 1000, relu", 1000, executor(1000, &one, false), false);
    measure("chain of 1000, relu, profiled", 1000, executor(1000, &one, false), true);
    measure("one node", 1, executor(1, &one, true), false);
    measure("100 nodes in turns on two CPU devices", 100, executor(100, &[cpu(0), cpu(1)], true), false);
    let mixed = gpu().and_then(|gpu| executor(100, &[cpu(0), gpu], true));
    measure("100 nodes in turns on CPU and GPU", 100, mixed, false);
    group.finish();
}

criterion_group!(benches, overhead);
criterion_main!(benches);
