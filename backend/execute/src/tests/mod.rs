//! Promises of executors, tested with artificial kernels and on any GPU of the machine.

mod blocks;
mod dynamic;
mod failures;
mod faults;
mod gangs;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(all(feature = "gpu", target_os = "linux"))]
mod gpu_memory;
mod in_place;
#[cfg(feature = "gpu")]
mod in_place_gpu;
mod naive;
mod pool;
#[cfg(feature = "gpu")]
mod resident;
mod runs;
#[cfg(shuttle)]
mod schedules;
mod staged;
#[cfg(feature = "gpu")]
mod status;
#[cfg(not(shuttle))]
mod weights;

use super::{ComputeDevice, CpuTeam, DevicePool, Executor, GpuOpener, Kernels, RunOptions, RunOutput};
use anabranch_ir::program::{Program, ValueId};
use anabranch_kernels::gpu::{Adapter, Gpu};
use anabranch_kernels::op::Precision;
use anabranch_kernels::{DType, KernelError, Tensor, TensorSpec};
use anabranch_placement_core::platform::DeviceKind;
use anabranch_plan::test_programs::PlacedProgram;
use anabranch_plan::{HOST, PlanOptions, check};
use naive::Naive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Naive kernels for all nodes of a program.
fn kernels(program: &Program) -> Arc<Kernels> {
    let program = Arc::new(program.clone());
    let kernels = Kernels::new(Arc::clone(&program));
    for node in program.node_ids() {
        kernels.replace(node, Arc::new(Naive::new(&program.node(node).spec)));
    }
    Arc::new(kernels)
}

/// A team of this many threads for each CPU device, a shared GPU for each other device.
pub(crate) fn devices(placed: &PlacedProgram, threads: usize) -> Vec<ComputeDevice> {
    let device = |device: &anabranch_plan::PlanDevice| match device.kind {
        DeviceKind::Cpu => {
            ComputeDevice::Cpu(CpuTeam { name: device.name.clone(), threads, units: Vec::new(), slowdown: 1.0 })
        }
        _ => ComputeDevice::Gpu(GpuOpener::with(device.name.clone(), || {
            gpu().ok_or_else(|| KernelError::Gpu("there is none".into()))
        })),
    };
    placed.devices.iter().map(device).collect()
}

/// A pool of these devices.
fn pool(placed: &PlacedProgram, threads: usize) -> Arc<DevicePool> {
    DevicePool::new(devices(placed, threads))
}

/// An executor on the devices of a pool.
fn executor_on(
    pool: &Arc<DevicePool>,
    placed: &PlacedProgram,
    kernels: Arc<Kernels>,
    options: &PlanOptions,
) -> Executor {
    let plan = placed.plan_with(&*kernels, options).expect("no limits");
    assert_eq!(check(&placed.program, &plan), []);
    Executor::new(plan, kernels, pool).expect("all devices are there")
}

fn executor_with(placed: &PlacedProgram, kernels: Arc<Kernels>, options: &PlanOptions, threads: usize) -> Executor {
    executor_on(&pool(placed, threads), placed, kernels, options)
}

fn executor(placed: &PlacedProgram, options: &PlanOptions, threads: usize) -> Executor {
    executor_with(placed, kernels(&placed.program), options, threads)
}

/// Inputs that differ in every element; integers are 0 or 1.
pub(crate) fn inputs(program: &Program) -> Vec<Tensor> {
    let tensor = |(number, id): (usize, &ValueId)| {
        let TensorSpec { dtype, shape } = program.value(*id).spec.clone();
        if dtype == DType::I64 {
            let elements: Vec<i64> = (0..shape.elements() as i64).map(|at| at % 2).collect();
            return Tensor::from_elements(shape, &elements).expect("one for each");
        }
        let element = |at: usize| ((at * 37 + number * 11) % 101) as f32 * 0.125 - 5.0;
        let elements: Vec<f32> = (0..shape.elements()).map(element).collect();
        Tensor::from_elements(shape, &elements).expect("one for each")
    };
    program.inputs.iter().enumerate().map(tensor).collect()
}

/// Runs with each input on the device where the plan reads it; all outputs are read back.
fn run(executor: &Executor, inputs: &[Tensor], options: &RunOptions) -> RunOutput {
    let plan = executor.plan();
    let (mut given, mut resident) = (Vec::new(), Vec::new());
    for (at, tensor) in inputs.iter().enumerate() {
        match plan.input_device(at) {
            HOST => given.push(tensor),
            device => resident.push(executor.pool.upload(device, tensor).expect("it is open")),
        }
    }
    let mut output = RunOutput::default();
    executor.run_resident(&given, &resident, options, &mut output).expect("nothing fails");
    let mut host = std::mem::take(&mut output.outputs).into_iter();
    let mut read = output.resident.iter().map(|tensor| tensor.read().expect("it is open"));
    let all = (0..executor.program().outputs.len()).map(|at| match plan.output_device(at) {
        HOST => host.next(),
        _ => read.next(),
    });
    output.outputs = all.flatten().collect();
    output
}

/// Runs and compares every output's bits with a node-by-node evaluation.
fn assert_right(executor: &Executor, options: &RunOptions) {
    let inputs = inputs(executor.program());
    let output = run(executor, &inputs, options);
    let expected = naive::evaluate(executor.program(), &inputs);
    for (at, (output, expected)) in output.outputs.iter().zip(&expected).enumerate() {
        assert!(
            output.same_bits(expected),
            "output {at}: {:?} not {:?}",
            output.elements::<f32>(),
            expected.elements::<f32>()
        );
    }
    assert_eq!(output.outputs.len(), expected.len());
    for (device, (taken, memory)) in output.peaks.iter().zip(executor.plan().memory().devices()).enumerate() {
        assert!(*taken <= memory.peak(), "device {device} took {taken} bytes of {}", memory.peak());
    }
}

/// A GPU for all tests. `None` on a machine without any GPU, even a software GPU.
pub(crate) fn gpu() -> Option<Arc<Gpu>> {
    static OPEN: OnceLock<Option<Arc<Gpu>>> = OnceLock::new();
    let open = || {
        let gpu = Gpu::open(&adapter()?, Precision::F32).ok()?;
        // Vulkan's layers start threads with the first submission, which inherit the submitting thread's name and live
        // as long as the GPU. They must not have the name of a device, whose threads are expected to end.
        gpu.upload(&[0; 4]).expect("four bytes fit");
        Some(Arc::new(gpu))
    };
    OPEN.get_or_init(open).clone()
}

#[cfg(not(feature = "gpu"))]
fn adapter() -> Option<Adapter> {
    None
}

#[cfg(feature = "gpu")]
fn adapter() -> Option<Adapter> {
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    description.backends = wgpu::Backends::PRIMARY;
    let instance = wgpu::Instance::new(description);
    pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY)).into_iter().next()
}

/// Checks that no thread has a name with this prefix. The system lists a joined thread for a moment longer.
fn assert_ended(prefix: &str) {
    let ended = |_: &u32| {
        let ended = threads_named(prefix) == 0;
        if !ended {
            std::thread::sleep(Duration::from_millis(10));
        }
        ended
    };
    assert!((0..500).any(|look| ended(&look)), "{prefix}: some thread has not ended");
}

/// Number of this process's threads whose names have this prefix.
fn threads_named(prefix: &str) -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(name).filter(|name| name.starts_with(prefix)).count()
}
